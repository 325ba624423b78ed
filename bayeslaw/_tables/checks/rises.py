"""Find parts of a table in which losses rise where laws fall: at one end, or between
two levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtr

from bayeslaw._base.errors import RunTableWarning
from bayeslaw._base.numbers import format_count, format_level
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._tables.checks.slopes import first_coefficient, standardised
from bayeslaw._tables.rows.naming import SET_BEFORE


class PastMinimumWarning(RunTableWarning):
    """The loss of a run passed its minimum. A review and a followed run say so in their
    own words, and leave this warning out.
    """


class Rise(NamedTuple):
    """A rise of losses with a column. ``part`` describes the rows, and is empty for all
    rows. ``rise`` is the rise from one end of the part to the other, relative to the
    loss.
    """

    part: str
    rise: float


def past_minimum(
    runs: pd.DataFrame, least: float = 0.005, further: int = 3, most: int = 12
) -> str | None:
    """Write a line about runs whose loss passed its minimum, or settings of runs of one
    row each: it rose over ``further`` points, by ``least`` and by four times their
    noise; None without such.

    Points of long curves are taken together, so that there are at most ``most``. A
    source may rise, and is left out, and so is what is forgotten.
    """
    has_points = "run" in runs and runs["run"].nunique() < 0.5 * len(runs)
    along = "step" if has_points and "step" in runs else "D"
    names = ("run", "domain") if has_points else SET_BEFORE
    keys = [column for column in names if column in runs]
    if not keys or not {along, "loss"} <= set(runs):
        return None
    rows = runs[runs["domain"] != "source"] if "domain" in runs else runs
    if LOSS_BEFORE in rows:
        # above its loss before adaptation a domain is forgotten, which laws foresee
        rows = rows[~(rows["loss"] > rows[LOSS_BEFORE])]
    points_of_rows = rows.groupby(keys, dropna=False)[along].transform("nunique")
    rows = rows[points_of_rows > further]
    minima = []
    for name, points in rows.groupby(keys, dropna=False):
        losses = points.groupby(along)["loss"].median().map(np.log)
        parts = np.array_split(losses.to_numpy(), min(len(losses), most))
        course = np.array([np.median(part) for part in parts])
        after = course[course.argmin() + 1 :]
        if len(after) < further:
            continue
        # second differences are free of a trend; those of noise have six times its
        # variance
        noise = np.median(np.abs(np.diff(course, 2))) / (0.6745 * np.sqrt(6))
        rise = float(np.median(after[-further:]) - course.min())
        if rise > max(least, 4 * noise):
            minima.append(
                (float(losses.iloc[-1] - losses.min()), name, losses.idxmin())
            )
    if not minima:
        return None
    rise, name, lowest = max(minima, key=lambda minimum: minimum[0])
    shown = [
        f"{column} {format_level(column, level)}"
        for column, level in zip(keys, name, strict=True)
    ]
    others = f" ({len(minima) - 1} more rise, too)" if len(minima) > 1 else ""
    of_repeated = "read U" if "U" in runs else "read the unique tokens, column U"
    return (
        f"the loss of {', '.join(shown)} is least at {along} {format_count(lowest)} and "
        f"{rise:.1%} higher at the end{others}: data that repeat, or a rate too high? "
        "laws fall with D, so keep the rows up to the least loss (--where); laws of "
        f"repeated data {of_repeated}"
    )


def rise_along(
    runs: pd.DataFrame,
    column: str,
    other_columns: Collection[str],
    least: float = 0.01,
) -> Rise | None:
    """Find the first part of a table in which losses clearly rise with a column, given
    the other columns, by at least ``least`` of the loss. It tries all rows, then each
    level of another column (thirds if there are many levels, the highest first), then
    each two neighbouring levels of the column itself.
    """
    if not {"loss", column} <= set(runs) or runs[column].nunique() < 2:
        return None
    beside = [c for c in other_columns if c in runs and c != column]
    for part, rows in _parts(runs, column, beside):
        rise = _clear_rise(rows, column, beside)
        if rise is not None and rise > least:
            return Rise(part, rise)
    return None


def _parts(
    runs: pd.DataFrame, column: str, beside: Collection[str], most: int = 12
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the parts of a table to check, with their names: all rows; each level of
    other columns, highest first (thirds if there are many); neighbouring levels of the
    column.
    """
    yield "", runs
    for name in beside:
        values = runs[name]
        levels = np.sort(values.dropna().unique())[::-1]
        if len(levels) > most:
            low, high = values.quantile([1 / 3, 2 / 3])
            yield f"at {name} over {_shown(high)}", runs[values > high]
            yield f"at {name} under {_shown(low)}", runs[values < low]
        elif len(levels) > 1:
            for level in levels:
                yield f"at {name} = {_shown(level)}", runs[values == level]
    levels = np.sort(runs[column].dropna().unique())
    if 2 < len(levels) <= most:
        for low, high in itertools.pairwise(levels):
            name = f"from {column} = {_shown(low)} to {_shown(high)}"
            yield name, runs[runs[column].isin((low, high))]


def _shown(level: float) -> str:
    return f"{level:g}" if level < 1 else format_count(level)


def _clear_rise(
    runs: pd.DataFrame,
    column: str,
    beside: Collection[str],
    chance: float = 1e-5,
    least_freedom: int = 6,
) -> float | None:
    """Measure by how much losses rise from one end of a column to the other.

    None if they do not rise, or if the rows cannot tell. ``chance`` is the probability
    of a false rise; ``least_freedom`` is the least number of rows beyond the number of
    terms.
    """
    runs = runs.dropna(subset=[column, *beside, "loss"])
    if len(runs) < least_freedom or runs[column].nunique() < 2:
        return None
    axis = standardised(runs, column)
    other_axes = [standardised(runs, c) for c in beside if runs[c].nunique() > 1]
    bends = [beside_axis**2 for beside_axis in other_axes]
    terms = [axis, np.ones(len(runs)), *other_axes]
    if len(runs) >= 3 * (len(terms) + len(bends)):
        terms += bends
    y = np.log(runs["loss"].to_numpy(float))
    slope, error, freedom = first_coefficient(np.column_stack(terms), y)
    if not slope > 0 or freedom < least_freedom:
        return None
    if error > 0 and stdtr(freedom, -slope / error) > chance:
        return None
    return slope * float(np.ptp(axis))
