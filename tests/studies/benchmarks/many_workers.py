"""A study of 10,000 posteriors on 4 to 64 workers, SIMULATED: what the client and the scheduler add to the computing.

    python tests/studies/benchmarks/many_workers.py [--posteriors 10000] [-o tests/studies/benchmarks/workers.csv]

Two cores cannot show four workers at work. Here a worker sleeps for as long as a posterior takes one core, and returns as many
numbers. All else is real: `bayeslaw.refits` with its tasks, the table and the weights sent with each, Dask's client and scheduler,
and four worker processes (for more workers, with several threads each, as sleepers need no core). That it foretells real runs is checked
with one worker and two, which these cores can show.
"""

import argparse
import os
import pickle
import resource
import time
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
from workers import DRAWS, FORM_3, Timing, local_cluster, paper_grid, posteriors, timed

import bayeslaw
from bayeslaw._posteriors.fits import refits
from bayeslaw._posteriors.fits.refits import Refit

PROCESSES = 4
WORKERS = (4, 8, 16, 64)
CHECKED = 64  # posteriors of the runs that are not simulated


class Task(NamedTuple):
    """What a sleeper imitates: CPU seconds of a posterior, and the names of its values."""

    seconds: float
    names: tuple[str, ...]


def asleep(task: Task, problem, weights, seeds, importance) -> list[Refit]:
    """In place of `refits._refit_some`."""
    rng = np.random.default_rng(seeds)
    results = []
    for _ in weights:
        time.sleep(task.seconds)
        values = {name: rng.random(importance.draws) for name in task.names}
        results.append(Refit(values, {"sampler": "none"}))
    return results


def simulated(
    task: Task, workers: int, processes: int, runs: pd.DataFrame, weights: np.ndarray
) -> tuple[Timing, int]:
    """Sleepers on so many workers, in so many processes; and bytes of the results, pickled."""
    sleeper = partial(asleep, task)
    with (
        local_cluster(processes, workers // processes) as cluster,
        patch.object(refits, "_refit_some", sleeper),
    ):
        # workers import the package before the clock starts
        posteriors(cluster, runs, FORM_3, weights[: 16 * workers])
        timing, results = timed(cluster, runs, FORM_3, weights)
    return timing, sum(len(pickle.dumps(result)) for result in results)


def of_a_posterior() -> None:
    """Print what a posterior takes one worker, by law and rows."""
    whole = bayeslaw.simulate(FORM_3, seed=1).drop(columns=["run", "checkpoint"])
    cases = [("chinchilla", paper_grid("chinchilla")), (FORM_3, paper_grid(FORM_3)), (FORM_3, whole)]  # fmt: skip
    for law, runs in cases:
        weights = bayeslaw.bootstrap_weights(len(runs), 16, seed=2)
        with local_cluster(1) as cluster:
            first, _ = timed(cluster, runs, law, weights[:1])
            later, results = timed(cluster, runs, law, weights)
        size = len(pickle.dumps(results[0]))
        print(
            f"{law}, {len(runs)} rows: {later.workers_cpu / len(weights):.3f} CPU s a posterior of {size / 1000:.0f} kB; "
            f"{first.wall:.1f} s for a new worker's first, with its programs from disk",
            flush=True,
        )


def check(runs: pd.DataFrame) -> Task:
    """What to imitate, from a real run of one worker; and how far the simulation is from real runs."""
    weights = bayeslaw.bootstrap_weights(len(runs), CHECKED, seed=1)
    task = None
    for workers in (1, 2):
        with local_cluster(workers) as cluster:
            posteriors(cluster, runs, FORM_3, weights)
            real, results = timed(cluster, runs, FORM_3, weights)
        if task is None:
            task = Task(real.workers_cpu / CHECKED, tuple(results[0].values))
        foretold, _ = simulated(task, workers, workers, runs, weights)
        print(
            f"{workers} real: {real.wall:.2f} s, simulated {foretold.wall:.2f} s ({foretold.wall / real.wall - 1:+.0%})",
            flush=True,
        )
    return task


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--posteriors", type=int, default=10_000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    of_a_posterior()
    runs = paper_grid(FORM_3)
    task = check(runs)
    print(
        f"imitated: {task.seconds:.3f} s a posterior of {DRAWS} draws; {peak_gib():.2f} GiB so far"
    )
    weights = bayeslaw.bootstrap_weights(len(runs), options.posteriors, seed=1)
    tasks = len(refits._tasks(options.posteriors))
    rows = []
    for workers in WORKERS:
        timing, size = simulated(task, workers, PROCESSES, runs, weights)
        computing = options.posteriors * task.seconds / workers
        row = {
            "workers": workers,
            "wall, s": f"{timing.wall:.1f}",
            "of which computing, s": f"{computing:.1f}",
            "workers at work": f"{computing / timing.wall:.1%}",
            "client and scheduler, CPU s": f"{timing.client_cpu:.1f}",
            "a task, CPU ms": f"{1000 * timing.client_cpu / tasks:.1f}",
        }
        print(*row.values(), f"peak {peak_gib():.2f} GiB", sep="\t", flush=True)
        rows.append(row)
    # extrapolated: workers whose tasks take all of one core of the client and the scheduler
    served = refits.MOST_TO_A_TASK * task.seconds * tasks / timing.client_cpu
    print(
        f"{tasks} tasks; results pickled {size / 2**30:.2f} GiB; one core of client and scheduler would serve {served:.0f} "
        f"workers; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    if options.output:
        pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
