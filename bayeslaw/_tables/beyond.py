"""Measure how far runs extrapolate beyond the runs of a fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import axis_product, powers_of
from bayeslaw._tables.rows.levels import SAME
from bayeslaw._tables.runs import NUMERIC

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Values = Float[np.ndarray, " run"]

# factor beyond the fitted range from which extrapolation is called far; published tests
# of laws forecast up to 9 times the largest stage
FAR = 10.0
INSIDE = 1.05  # values up to this factor beyond a range count as inside: people round
AXES = {
    "N": "parameters",
    "D": "tokens",
    "ptpp": "pre-training tokens per parameter",
    "D/N": "adaptation tokens per parameter",
}


class Distance(NamedTuple):
    """Place of one run along a column, relative to the runs of a fit.

    ``low``, ``high``: the range of the runs. ``times``: the factor over ``high`` or of
    ``low``, above and below 1; 1 inside.
    """

    value: float
    low: float
    high: float
    times: float

    @property
    def is_inside(self) -> bool:
        return self.times == 1

    @property
    def is_above(self) -> bool:
        return self.times > 1

    @property
    def factor(self) -> float:
        """Distance as a factor of at least 1."""
        return max(self.times, 1 / self.times if self.times > 0 else np.inf)

    @property
    def ends(self) -> str:
        return f"{format_count(self.low)} to {format_count(self.high)}"

    def is_tested(self, reached: float) -> bool:
        """Tell whether left-out runs lay as far beyond the others' largest (``reached``)."""
        return self.is_inside or 1 < self.times <= (1 + SAME) * reached

    def phrase(self, column: str) -> str:
        """Describe the place of a value outside in words."""
        end = "largest" if self.is_above else "smallest"
        if not np.isfinite(self.factor):
            return f"beyond the {end} {column}"
        return f"{self.times:.3g} times the {end} {column}"

    def sentence(self, axis: str, rows: str = "") -> str:
        """Describe the place along one of the `AXES`. ``rows``: how many lie so far."""
        return (
            f"{axis} = {format_count(self.value)} ({AXES[axis]}){rows} lies "
            f"{self.factor:.3g} times beyond the runs that were fitted ({self.ends})"
        )


# keys of a place in JSON (`tell_distance`)
PLACE = {"*": Distance, "inside": bool, "tested": float}


def distances(
    table: pd.DataFrame,
    runs: pd.DataFrame,
    columns: Collection[str] = ("N", "ptpp", "D/N", "replay"),
    above: float = -np.inf,
) -> dict[str, Distance]:
    """Measure where the farthest of some runs lies relative to a table, by column."""
    places = {}
    for name in columns:
        fitted, new = (values_along(rows, name, above) for rows in (table, runs))
        if fitted is None or new is None:
            continue
        low, high = float(fitted.min()), float(fitted.max())
        value = float(new[np.argmax(_factors(new, low, high))])
        times = 1.0
        if value > (1 + SAME) * high:
            times = value / high if high > 0 else np.inf
        elif value < (1 - SAME) * low:
            times = value / low
        places[name] = Distance(value, low, high, times)
    return places


def describe_place(places: Mapping[str, Distance]) -> str:
    """Describe where a run lies relative to the fitted ones; empty without columns."""
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


def far_beyond(table: object, runs: pd.DataFrame) -> list[str]:
    """Write a line for each axis along which runs lie over `FAR` times beyond a fit's
    table, and one if their replay is outside the table's range.
    """
    if not isinstance(table, pd.DataFrame):
        return []
    lines = []
    for axis, place in distances(table, runs, AXES, above=0).items():
        new = values_along(runs, axis)
        if place.factor > FAR and new is not None:
            is_far = _factors(new, place.low, place.high) > FAR
            lines.append(place.sentence(axis, _count_rows(is_far)))
    outside = replay_outside(table, runs)
    return lines if outside is None else [*lines, outside]


def _count_rows(is_far: Bool[np.ndarray, " run"]) -> str:
    return f" in {is_far.sum()} of {len(is_far)} rows" if len(is_far) > 1 else ""


def own_beyond(
    table: pd.DataFrame,
    runs: pd.DataFrame,
    inputs: Collection[str],
    units: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a line for each column outside the schema of those that laws read
    (``inputs``) along which runs lie over `FAR` times beyond the table, or as many
    halves of a range that reaches 0. ``units``: those that a formula states.
    """
    own = [n for n in dict.fromkeys(inputs) if n not in NUMERIC and n in table]
    lines = []
    for name in (name for name in own if name in runs):
        low, high = float(table[name].min()), float(table[name].max())
        x, how = runs[name].to_numpy(float), "times"
        times = _factors(x, low, high)
        if low <= 0:
            half, how = (high - low) / 2 or 1.0, "halves of their range"
            times = np.abs(x - (low + high) / 2) / half
        worst = int(np.argmax(times))
        if times[worst] > FAR:
            value = f"{x[worst]:g} {(units or {}).get(name, '')}".rstrip()
            lines.append(
                f"{name} = {value} (a column of your own) lies {times[worst]:.3g} {how} "
                f"beyond the runs that were fitted ({low:g} to {high:g})"
            )
    return lines


def _factors(values: Values, low: float, high: float) -> Values:
    """Compute how many times values lie beyond a range, under 1 inside it."""
    over = values / high if high > 0 else np.where(values > high, np.inf, 0.0)
    under = np.full(len(values), np.inf if low > 0 else 0.0)
    return np.maximum(over, np.divide(low, values, out=under, where=values > 0))


def replay_outside(table: pd.DataFrame, runs: pd.DataFrame) -> str | None:
    """Write a line if runs have a replay outside the table's range. Above the range the
    distance is the factor by which the target's share is smaller than in any fitted
    run; below it, the factor for the source's share.
    """
    fitted, new = (values_along(rows, "replay", -np.inf) for rows in (table, runs))
    if fitted is None or new is None:
        return None
    low, high = float(fitted.min()), float(fitted.max())
    times = _count_times_less(new, low, high)
    outside = times > 1 + SAME
    if not outside.any():
        return None
    worst = float(new[np.argmax(times)])
    return (
        f"replay {100 * worst:.4g}%{_count_rows(outside)} lies outside that of the runs "
        f"that were fitted ({low:.0%} to {high:.0%}): {less_data(worst, low, high)}"
    )


def less_data(replay: float, low: float, high: float) -> str:
    """Say which data a token has less of than at any fitted replay, by what factor."""
    (times,) = _count_times_less(np.array([replay]), low, high)
    domain = "target" if replay > high else "source"
    return f"{times:.3g} times less {domain} data in a token"


def _count_times_less(replay: Values, low: float, high: float) -> Values:
    """Count how many times less data of a domain a token has than at fitted replays."""
    least = 1e-3  # smaller shares count as this, so that 0 has a finite factor
    less_target = np.maximum(1 - high, least) / np.maximum(1 - replay, least)
    less_source = np.maximum(low, least) / np.maximum(replay, least)
    return np.maximum(less_target, less_source)


def values_along(columns: pd.DataFrame, axis: str, above: float = 0.0) -> Values | None:
    """Select the finite values of an axis, such as D/N, over ``above``, if any."""
    # missing columns, and cells that are no numbers, are NaN
    known = columns.reindex(columns=[*powers_of(axis)])
    numbers = known.apply(pd.to_numeric, errors="coerce").astype(float)
    x = axis_product(axis, {c: numbers[c].to_numpy() for c in powers_of(axis)})
    usable = x[np.isfinite(x) & (x > above)]
    return usable if len(usable) else None
