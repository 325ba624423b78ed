"""How long an update takes, and what a thousand of them keep in memory.

    python tests/studies/benchmarks/follow.py

4,000 draws of a power law, 200 points: the start, each update, and the record that is shown; then a thousand updates.
Milliseconds, median and largest; the memory of the process before and after.
"""

import resource
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from bayeslaw._running.following.follow import Follower
from known.power_laws import UNTIL, N, power_laws, true_curve


def milliseconds(seconds: list[float]) -> str:
    return (
        f"{1e3 * statistics.median(seconds):.0f} ms (at most {1e3 * max(seconds):.0f})"
    )


def resident() -> float:
    """Largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    begun = time.perf_counter()
    follower = Follower.start(power_laws(draws=4000), {"N": N}, UNTIL, max_loss=2.0)
    print(f"start: {1e3 * (time.perf_counter() - begun):.0f} ms")
    updates = []
    for at in np.geomspace(0.03, 10.0, 200) * N:
        begun = time.perf_counter()
        follower = follower.after(at, float(true_curve(at)))
        updates.append(time.perf_counter() - begun)
    print(f"update, 200 points: {milliseconds(updates)}")
    records = []
    for _ in range(5):
        begun = time.perf_counter()
        follower.following()
        records.append(time.perf_counter() - begun)
    print(f"record with path and decision: {milliseconds(records)}")

    follower = Follower.start(power_laws(draws=4000), {"N": N}, UNTIL, max_loss=2.0)
    for number, at in enumerate(np.geomspace(0.03, 19.9, 1000) * N):
        follower = follower.after(at, float(true_curve(at)))
        if number in (99, 999):
            print(f"largest memory after {number + 1} updates: {resident():.0f} MiB")


if __name__ == "__main__":
    main()
