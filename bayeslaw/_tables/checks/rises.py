"""Find parts of a table in which losses rise where laws fall: at one end, or between
two levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bayeslaw._base.numbers import format_count
from bayeslaw._tables.checks.slopes import first_coefficient, standardised


class Rise(NamedTuple):
    """A rise of losses with a column. ``part`` describes the rows, and is empty for all
    rows. ``rise`` is the rise from one end of the part to the other, relative to the
    loss.
    """

    part: str
    rise: float


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
    runs: pd.DataFrame, column: str, beside: Collection[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the parts of a table to check, with their names: all rows, levels of other
    columns, neighbouring levels of the column.
    """
    yield "", runs
    for name in beside:
        yield from _levels(runs, name)
    levels = np.sort(runs[column].dropna().unique())
    if 2 < len(levels) <= 12:
        for low, high in itertools.pairwise(levels):
            name = f"from {column} = {_shown(low)} to {_shown(high)}"
            yield name, runs[runs[column].isin((low, high))]


def _levels(runs: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows at each level of a column, highest first; thirds if there are many
    levels.
    """
    values = runs[column]
    levels = np.sort(values.dropna().unique())[::-1]
    if len(levels) < 2:
        return
    if len(levels) <= 12:
        for level in levels:
            yield f"at {column} = {_shown(level)}", runs[values == level]
        return
    low, high = values.quantile([1 / 3, 2 / 3])
    yield f"at {column} over {_shown(high)}", runs[values > high]
    yield f"at {column} under {_shown(low)}", runs[values < low]


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
    if error > 0 and stats.t.sf(slope / error, freedom) > chance:
        return None
    return slope * float(np.ptp(axis))
