"""How far runs lie beyond those that a posterior was fitted to."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableWarning
from bayeslaw._base.numbers import format_count

if TYPE_CHECKING:
    from jaxtyping import Float

# times the largest fitted, or under the smallest: where no stage that was left out says
# how far a law may be trusted (the papers forecast 9 times their largest stage)
FAR = 10.0
BARELY = 1.01  # times the target's share: people round
LEAST_SHARE = 1e-3  # of target data; pure replay is not infinitely far away
AXES = {
    "N": "parameters",
    "D": "tokens",
    "ptpp": "pre-training tokens per parameter",
    "D/N": "adaptation tokens per parameter",
}


class Reach(NamedTuple):
    """How far runs lie beyond a table along one axis.

    ``axis``: of `AXES`; ``low``, ``high``: the table's range; ``worst``: the value that
    lies farthest beyond it; ``times``: how many times beyond, 1 at either end and under
    1 inside; ``all_times``: of each run that has the axis, shape (run,).
    """

    axis: str
    low: float
    high: float
    worst: float
    times: float
    all_times: Float[np.ndarray, " run"]

    @property
    def is_above(self) -> bool:
        """Whether the farthest value lies over the table's range, not under it."""
        return self.worst > self.high

    def sentence(self, far: float = FAR) -> str:
        """In words: the farthest value, and how many rows lie ``far`` times beyond."""
        ends = f"{format_count(self.low)} to {format_count(self.high)}"
        rows = ""
        if len(self.all_times) > 1:
            beyond = int(np.sum(self.all_times > far))
            rows = f" in {beyond} of {len(self.all_times)} rows"
        return (
            f"{self.axis} = {format_count(self.worst)} ({AXES[self.axis]}){rows} lies "
            f"{self.times:.3g} times beyond the runs that were fitted ({ends})"
        )


def reaches(table: pd.DataFrame, runs: pd.DataFrame) -> list[Reach]:
    """How far runs lie beyond a table, along each axis that both have."""
    found = []
    for name in AXES:
        known, asked = axis_values(table, name), axis_values(runs, name)
        if known is not None and asked is not None:
            found.append(_reach(name, known, asked))
    return found


def far_beyond(table: object, runs: pd.DataFrame, far: float = FAR) -> list[str]:
    """A line for each axis along which runs lie so many times beyond the table, and
    where their replay lies outside its own.

    Parameters
    ----------
    table
        The runs that were fitted; where it is no table, nothing is known.
    runs
        Those that are asked about. Columns that either lacks are passed over.
    """
    if not isinstance(table, pd.DataFrame):
        return []
    found = reaches(table, runs)
    lines = [reach.sentence(far) for reach in found if reach.times > far]
    outside = replay_outside(table, runs)
    return lines if outside is None else [*lines, outside]


def replay_outside(table: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """A line where runs have a replay under or over all of a table's: how far is told by
    the target's share, along whose logarithm losses move alike.
    """
    known, asked = (_numbers(part, "replay") for part in (table, runs))
    known, asked = known[np.isfinite(known)], asked[np.isfinite(asked)]
    if not len(known) or not len(asked):
        return None
    low, high = float(known.min()), float(known.max())
    share, least, most = (
        np.maximum(1 - replay, LEAST_SHARE) for replay in (asked, high, low)
    )
    times = np.maximum(least / share, share / most)
    outside = times > BARELY
    if not outside.any():
        return None
    worst = float(asked[np.argmax(times)])
    rows = f" in {outside.sum()} of {len(asked)} rows" if len(asked) > 1 else ""
    return (
        f"replay {100 * worst:.4g}%{rows} lies outside that of the runs that were fitted "
        f"({low:.0%} to {high:.0%}): {times.max():.3g} times "
        f"{'less' if worst > high else 'more'} target data in a token"
    )


def warn_far(table: object, runs: pd.DataFrame) -> None:
    """Warn of each axis along which runs lie far beyond the table, and of replay
    outside its own.
    """
    for line in far_beyond(table, runs):
        text = f"{line}: nothing measured says how far a law holds there"
        warnings.warn(text, RunTableWarning, stacklevel=3)


def axis_values(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"] | None:
    """The positive finite values of an axis; None where there are none."""
    above, _, below = name.partition("/")
    x = _numbers(columns, above)
    if below:
        x = x / _numbers(columns, below)
    known = np.isfinite(x) & (x > 0)
    if not known.any():
        return None
    return x[known]


def _numbers(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"]:
    """A column; NaN where it is no number, or missing."""
    if name not in columns:
        return np.full(len(columns), np.nan)
    values = pd.to_numeric(columns[name], errors="coerce")
    return values.to_numpy(float)


def _reach(
    name: str, known: Float[np.ndarray, " run"], asked: Float[np.ndarray, " other_run"]
) -> Reach:
    low, high = float(known.min()), float(known.max())
    times = np.maximum(asked / high, low / asked)
    worst = int(np.argmax(times))
    return Reach(name, low, high, float(asked[worst]), float(times[worst]), times)
