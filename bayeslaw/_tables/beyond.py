"""Measure how far runs extrapolate beyond the runs of a fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import axis_product, powers_of
from bayeslaw._tables.runs import NUMERIC

if TYPE_CHECKING:
    from jaxtyping import Float

# factor beyond the fitted range from which extrapolation is called far; published tests
# of laws forecast up to 9 times the largest stage
FAR = 10.0
AXES = {
    "N": "parameters",
    "D": "tokens",
    "ptpp": "pre-training tokens per parameter",
    "D/N": "adaptation tokens per parameter",
}


class Reach(NamedTuple):
    """Extrapolation of runs beyond a table along one axis.

    ``axis``: key of `AXES`. ``low``, ``high``: the table's range. ``worst``: the value
    farthest beyond the range. ``times``: factor by which it lies beyond, which is 1 at
    either end and less inside. ``all_times``: the factor of each run that has the axis,
    shape (run,).
    """

    axis: str
    low: float
    high: float
    worst: float
    times: float
    all_times: Float[np.ndarray, " run"]

    @property
    def is_above(self) -> bool:
        """Tell whether the farthest value is above the table's range."""
        return self.worst > self.high

    def sentence(self, far: float = FAR) -> str:
        """Describe the farthest value, and count rows over ``far`` times beyond."""
        ends = f"{format_count(self.low)} to {format_count(self.high)}"
        rows = ""
        if len(self.all_times) > 1:
            beyond = int(np.sum(self.all_times > far))
            rows = f" in {beyond} of {len(self.all_times)} rows"
        return (
            f"{self.axis} = {format_count(self.worst)} ({AXES[self.axis]}){rows} lies "
            f"{self.times:.3g} times beyond the runs that were fitted ({ends})"
        )


class Distance(NamedTuple):
    """Place of one run along a column, relative to the runs of a fit.

    ``low``, ``high``: the range of the runs. ``times``: the factor over ``high`` or of
    ``low``, above and below 1; 1 inside.
    """

    value: float
    low: float
    high: float
    times: float

    @classmethod
    def of(
        cls, value: float, fitted: Float[np.ndarray, " run"], rounding: float = 0.01
    ) -> Distance:
        """Measure a value, within a tolerance for rounding."""
        low, high = float(fitted.min()), float(fitted.max())
        times = 1.0
        if value > (1 + rounding) * high:
            times = value / high if high > 0 else np.inf
        elif value < (1 - rounding) * low:
            times = value / low
        return cls(float(value), low, high, float(times))

    @property
    def is_inside(self) -> bool:
        return self.times == 1

    @property
    def factor(self) -> float:
        """Distance as a factor of at least 1."""
        return max(self.times, 1 / self.times if self.times > 0 else np.inf)

    def is_tested(self, reached: float) -> bool:
        """Tell whether left-out runs lay as far beyond the others' largest value, by a
        factor of ``reached``. Nothing is left out below the smallest.
        """
        return self.is_inside or 1 < self.times <= 1.01 * reached

    def phrase(self, column: str) -> str:
        """Describe the place of a value outside in words."""
        end = "largest" if self.times > 1 else "smallest"
        if not np.isfinite(self.factor):
            return f"beyond the {end} {column}"
        return f"{self.times:.3g} times the {end} {column}"


def distances(
    table: pd.DataFrame,
    run: Mapping[str, float],
    columns: Sequence[str] = ("N", "ptpp", "D/N", "replay"),
) -> dict[str, Distance]:
    """Measure where a run lies relative to a table, along the columns that both have."""
    planned = pd.DataFrame([run])
    places = {}
    for name in columns:
        fitted, new = _compute_axis(table, name), _compute_axis(planned, name)
        fitted = fitted[np.isfinite(fitted)]
        if len(fitted) and np.isfinite(new[0]):
            places[name] = Distance.of(float(new[0]), fitted)
    return places


def describe_place(places: Mapping[str, Distance]) -> str:
    """Describe in words where a run lies relative to the fitted runs; empty if there are
    no columns.
    """
    beyond = [p.phrase(column) for column, p in places.items() if not p.is_inside]
    if beyond:
        return f"beyond the fitted runs ({', '.join(beyond)})"
    return f"within the fitted runs ({', '.join(places)})" if places else ""


def read_places(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Distance]:
    """Read places from their JSON types, where None is infinite."""
    return {
        column: Distance(
            *(np.inf if row[name] is None else row[name] for name in Distance._fields)
        )
        for column, row in rows.items()
    }


def reaches_beyond(table: pd.DataFrame, runs: pd.DataFrame) -> list[Reach]:
    """Measure how far runs lie beyond a table, along each axis that both have."""
    reaches = []
    for name in AXES:
        fitted, new = values_along(table, name), values_along(runs, name)
        if fitted is None or new is None:
            continue
        low, high = float(fitted.min()), float(fitted.max())
        times = np.maximum(new / high, low / new)
        worst = int(np.argmax(times))
        farthest = float(new[worst]), float(times[worst])
        reaches.append(Reach(name, low, high, *farthest, times))
    return reaches


def far_beyond(table: object, runs: pd.DataFrame, far: float = FAR) -> list[str]:
    """Write a line for each axis along which runs lie over ``far`` times beyond the
    table, and one if their replay is outside the table's range.

    Parameters
    ----------
    table
        Runs of the fit; no lines if it is not a table.
    runs
        Runs to forecast. Columns missing in either table are skipped.
    """
    if not isinstance(table, pd.DataFrame):
        return []
    reaches = reaches_beyond(table, runs)
    lines = [reach.sentence(far) for reach in reaches if reach.times > far]
    outside = replay_outside(table, runs)
    return lines if outside is None else [*lines, outside]


def own_beyond(
    table: object,
    runs: pd.DataFrame,
    inputs: Collection[str],
    far: float = FAR,
    units: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a line for each column outside the schema along which runs lie more than
    ``far`` times beyond the table. The unit of distance is half the column's range if
    the column has values of 0 or less, where a factor has no meaning.

    Parameters
    ----------
    inputs
        The columns that laws read.
    units
        Units of these columns, if a formula states them.
    """
    lines: list[str] = []
    if not isinstance(table, pd.DataFrame):
        return lines
    for name in dict.fromkeys(inputs):
        if name in NUMERIC or name not in table or name not in runs:
            continue
        low, high = float(table[name].min()), float(table[name].max())
        x, how = runs[name].to_numpy(float), "halves of their range"
        times = np.abs(x - (low + high) / 2) / ((high - low) / 2 or 1.0)
        if low > 0:
            # a value of 0 or less lies infinitely far below
            share = np.divide(low, x, out=np.full(len(x), np.inf), where=x > 0)
            times, how = np.maximum(x / high, share), "times"
        worst = int(np.argmax(times))
        if times[worst] > far:
            unit = (units or {}).get(name, "")
            lines.append(
                f"{name} = {x[worst]:g}{unit and f' {unit}'} (a column of your own) lies "
                f"{times[worst]:.3g} {how} beyond the runs that were fitted ({low:g} to "
                f"{high:g})"
            )
    return lines


def replay_outside(table: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """Write a line if runs have a replay outside the table's range. Above the range the
    distance is the factor by which the target's share is smaller than in any fitted
    run; below it, the factor for the source's share.
    """
    fitted, new = _take_numbers(table, "replay"), _take_numbers(runs, "replay")
    fitted, new = fitted[np.isfinite(fitted)], new[np.isfinite(new)]
    if not len(fitted) or not len(new):
        return None
    low, high = float(fitted.min()), float(fitted.max())
    times = _count_times_less(new, low, high)
    outside = times > 1.01  # tolerance for rounded values
    if not outside.any():
        return None
    worst = float(new[np.argmax(times)])
    rows = f" in {outside.sum()} of {len(new)} rows" if len(new) > 1 else ""
    return (
        f"replay {100 * worst:.4g}%{rows} lies outside that of the runs that were fitted "
        f"({low:.0%} to {high:.0%}): {less_data(worst, low, high)}"
    )


def less_data(replay: float, low: float, high: float) -> str:
    """Say of which domain's data a token has less than at any of the fitted replays, and
    how many times less.
    """
    (times,) = _count_times_less(np.array([replay]), low, high)
    domain = "target" if replay > high else "source"
    return f"{times:.3g} times less {domain} data in a token"


def _count_times_less(
    replay: Float[np.ndarray, " run"], low: float, high: float
) -> Float[np.ndarray, " run"]:
    """Compute how many times a domain's share of the data is smaller than at any of the
    fitted replays: the target's above their range, and the source's below it.
    """
    least = 1e-3  # smaller shares count as this, so that 0 has a finite factor
    less_target = np.maximum(1 - high, least) / np.maximum(1 - replay, least)
    less_source = np.maximum(low, least) / np.maximum(replay, least)
    return np.maximum(less_target, less_source)


def values_along(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"] | None:
    """Select the positive finite values of an axis; None if there are none."""
    x = _compute_axis(columns, name)
    positive = x[np.isfinite(x) & (x > 0)]
    return positive if len(positive) else None


def _compute_axis(columns: pd.DataFrame, axis: str) -> Float[np.ndarray, " run"]:
    """Compute an axis, such as D/N, from its columns."""
    return axis_product(axis, {c: _take_numbers(columns, c) for c in powers_of(axis)})


def _take_numbers(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"]:
    """Convert a column to numbers; NaN for other cells, or if the column is missing."""
    if name not in columns:
        return np.full(len(columns), np.nan)
    values = pd.to_numeric(columns[name], errors="coerce")
    return values.to_numpy(float)
