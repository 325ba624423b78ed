"""64 posteriors by one Dask worker, by two, and by two of which one is killed half-way: seconds, and whether they are equal.

    python tests/benchmarks/workers.py [--law ptpp-gate-floor] [--fits 64]

Workers are processes of one thread. They have compiled their programs before the clock starts. Each fit is NUTS on a table
of its own where importance weights cannot be trusted (`bayeslaw.refits`).
"""

import argparse
import os
import signal
import time
import warnings

import numpy as np
from distributed import Client, LocalCluster

import bayeslaw
from bayeslaw._base.executors import executor_at


def timed(cluster, runs, law, weights, kill: bool) -> tuple[float, list]:
    """Seconds and results; with ``kill`` one worker is killed after a third of the fits."""
    killed = []

    def progress(done: int, total: int) -> None:
        if kill and not killed and done >= total // 3:
            with Client(cluster) as client:
                killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    with executor_at(cluster.scheduler_address) as executor:
        began = time.perf_counter()
        found = bayeslaw.refits(
            runs,
            law,
            weights,
            independent=True,
            draws=500,
            executor=executor,
            progress=progress,
        )
        return time.perf_counter() - began, found


def equal(a, b) -> bool:
    return all(
        np.array_equal(x.values[n], y.values[n])
        for x, y in zip(a, b, strict=True)
        for n in x.values
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", default="ptpp-gate-floor")
    parser.add_argument("--fits", type=int, default=64)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = (
        bayeslaw.simulate(options.law, seed=1)
        .query("ptpp <= 31")
        .drop(columns=["run", "checkpoint"])
    )
    weights = bayeslaw.bootstrap_weights(len(runs), options.fits, seed=1)
    seconds, results = {}, {}
    for name, workers, kill in (
        ("one worker", 1, False),
        ("two", 2, False),
        ("two, one killed", 2, True),
    ):
        with LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
        ) as cluster:
            with executor_at(
                cluster.scheduler_address
            ) as executor:  # compile in every worker
                bayeslaw.refits(
                    runs,
                    options.law,
                    weights[: 16 * workers],
                    independent=True,
                    draws=500,
                    executor=executor,
                )
            seconds[name], results[name] = timed(
                cluster, runs, options.law, weights, kill
            )
        print(
            f"{name}: {seconds[name]:.1f} s, {seconds[name] / seconds['one worker']:.0%} of one worker's, "
            f"{'equal' if equal(results['one worker'], results[name]) else 'NOT equal'}",
            flush=True,
        )
    nuts = sum(r.note["sampler"].startswith("NUTS") for r in results["two"])
    print(
        f"{options.fits} posteriors of {options.law}, {nuts} by NUTS; {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
