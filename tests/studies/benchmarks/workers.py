"""64 posteriors by one Dask worker, by two, and by two of which one is killed: seconds, and whether they are equal.

    python tests/studies/benchmarks/workers.py [--law ptpp-gate-floor] [--fits 64] [--times 10] [--free]

Workers are processes of one thread, on one machine with the client and the scheduler. They have their programs before the clock
starts. One worker and two take turns, so that other work on the machine counts for both alike; CPU seconds are those of the workers,
and of this process (client and scheduler). The two keep to a core each, as docs/howto/cluster.md starts them; with ``--free`` they
have all cores, as the one alone has either way.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import bayeslaw
from bayeslaw._base.machine.executors import executor_at

FORM_3 = "ptpp-gate-floor"
DRAWS = 500
ASKED = 0.6  # of one worker's time


class Timing(NamedTuple):
    """Of one call of `bayeslaw.refits`, in seconds."""

    wall: float
    workers_cpu: float
    client_cpu: float


def paper_grid(law: str) -> pd.DataFrame:
    """168 simulated runs at the levels of Goffinet 2025, errors independent."""
    runs = bayeslaw.simulate(law, seed=1).query("ptpp <= 31")
    return runs.drop(columns=["run", "checkpoint"])


def local_cluster(workers: int, threads: int = 1) -> LocalCluster:
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        dashboard_address=None,
    )


@contextlib.contextmanager
def pinned_cluster(workers: int) -> Iterator[LocalCluster]:
    """Workers that keep to a core each."""
    cores = sorted(os.sched_getaffinity(0))[:workers]
    with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        worker = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address]
        started = [
            subprocess.Popen(
                ["taskset", "-c", str(core), *worker, "--nthreads", "1"],
                stderr=subprocess.DEVNULL,
            )
            for core in cores
        ]
        try:
            with Client(cluster) as client:
                client.wait_for_workers(workers)
            yield cluster
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


def posteriors(
    cluster: LocalCluster,
    runs: pd.DataFrame,
    law: str,
    weights: np.ndarray,
    progress=None,
) -> list:
    with executor_at(cluster.scheduler_address) as executor:
        return bayeslaw.refits(
            runs,
            law,
            weights,
            independent=True,
            draws=DRAWS,
            executor=executor,
            progress=progress,
        )


def cpu_seconds(cluster: LocalCluster) -> float:
    """Of all workers so far."""
    with Client(cluster) as client:
        return sum(client.run(time.process_time).values())


def timed(
    cluster: LocalCluster, runs: pd.DataFrame, law: str, weights: np.ndarray
) -> tuple[Timing, list]:
    of_workers, of_client = cpu_seconds(cluster), time.process_time()
    began = time.perf_counter()
    results = posteriors(cluster, runs, law, weights)
    wall = time.perf_counter() - began
    of_client = time.process_time() - of_client
    of_workers = cpu_seconds(cluster) - of_workers
    return Timing(wall, of_workers, of_client), results


def one_killed(
    cluster: LocalCluster, runs: pd.DataFrame, law: str, weights: np.ndarray
) -> tuple[float, list]:
    """Seconds and results where a worker is killed after a third of the fits."""
    killed = []

    def progress(done: int, total: int) -> None:
        if not killed and done >= total // 3:
            with Client(cluster) as client:
                killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    began = time.perf_counter()
    results = posteriors(cluster, runs, law, weights, progress)
    return time.perf_counter() - began, results


def difference(a: list, b: list) -> str:
    """Of all draws, in sds of what they are draws of: a program is compiled for so many cores, of which last digits depend."""
    most = max(
        np.abs(x.values[n] - y.values[n]).max() / (x.values[n].std() or 1.0)
        for x, y in zip(a, b, strict=True)
        for n in x.values
    )
    return f"apart by {most:.0e} sds" if most else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--law", default=FORM_3)
    parser.add_argument("--fits", type=int, default=64)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--free", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = paper_grid(options.law)
    weights = bayeslaw.bootstrap_weights(len(runs), options.fits, seed=1)
    problem = (runs, options.law, weights)
    shares = []
    two_workers = local_cluster(2) if options.free else pinned_cluster(2)
    with local_cluster(1) as alone, two_workers as pair:
        for cluster in (alone, pair):
            posteriors(cluster, *problem)  # every worker loads its programs
        for _ in range(options.times):
            one, results = timed(alone, *problem)
            two, of_two = timed(pair, *problem)
            shares.append(two.wall / one.wall)
            print(
                f"one worker {one.wall:.2f} s, two {two.wall:.2f} s: {shares[-1]:.0%}, {difference(results, of_two)}; "
                f"CPU s of workers {one.workers_cpu:.2f} and {two.workers_cpu:.2f}, of client and scheduler "
                f"{one.client_cpu:.2f} and {two.client_cpu:.2f}",
                flush=True,
            )
        seconds, of_rest = one_killed(pair, *problem)
        print(
            f"two, one killed after a third: {seconds:.2f} s, {difference(of_two, of_rest)}"
        )
    kept = sum(share <= ASKED for share in shares)
    nuts = sum(r.note["sampler"].startswith("NUTS") for r in results)
    print(
        f"{kept} of {options.times} at most {ASKED:.0%} (median {np.median(shares):.0%}); {options.fits} posteriors of "
        f"{options.law}, {nuts} by NUTS; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
