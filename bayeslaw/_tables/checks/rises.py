"""Parts of a table in which losses rise where laws fall: at one end, between two levels."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bayeslaw._base.numbers import format_count
from bayeslaw._tables.checks.slopes import standardised

if TYPE_CHECKING:
    from jaxtyping import Float

CHANCE = 1e-5  # that a part which does not rise is called one that does
FREEDOM = 6  # rows more than terms, below which a part does not tell
LEAST_RISE = 0.01  # of the loss from one end of a part to the other
LEVELS = 12  # of a column with more, thirds are looked at in place of levels
ROWS_A_TERM = 3


class Rise(NamedTuple):
    """Where losses rise with a column: ``part`` says of which rows, "" for all;
    ``rise``: from one end of the part to the other, of the loss.
    """

    part: str
    rise: float


def rise_along(runs: pd.DataFrame, column: str, others: Collection[str]) -> Rise | None:
    """The first part of a table in which losses clearly rise with a column beside
    others: all rows, each level of another column (thirds where it has many, the
    highest first), each two neighbouring levels of the column itself.
    """
    if not {"loss", column} <= set(runs) or runs[column].nunique() < 2:
        return None
    beside = [c for c in others if c in runs and c != column]
    for part, rows in _parts(runs, column, beside):
        found = _clear_rise(rows, column, beside)
        if found is not None and found > LEAST_RISE:
            return Rise(part, found)
    return None


def _parts(
    runs: pd.DataFrame, column: str, others: Collection[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    yield "", runs
    for other in others:
        yield from _levels(runs, other)
    levels = np.sort(runs[column].dropna().unique())
    if 2 < len(levels) <= LEVELS:
        for low, high in itertools.pairwise(levels):
            name = f"from {column} = {_shown(low)} to {_shown(high)}"
            yield name, runs[runs[column].isin((low, high))]


def _levels(runs: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    levels = np.sort(runs[column].dropna().unique())[::-1]
    if len(levels) < 2:
        return
    if len(levels) <= LEVELS:
        for level in levels:
            yield f"at {column} = {_shown(level)}", runs[runs[column] == level]
        return
    low, high = np.quantile(runs[column].dropna(), [1 / 3, 2 / 3])
    yield f"at {column} over {_shown(high)}", runs[runs[column] > high]
    yield f"at {column} under {_shown(low)}", runs[runs[column] < low]


def _shown(level: float) -> str:
    return f"{level:g}" if level < 1 else format_count(level)


def _clear_rise(
    runs: pd.DataFrame, column: str, others: Collection[str]
) -> float | None:
    """What losses rise by from one end of a column to the other; None where they do
    not, or the rows do not tell.
    """
    told = runs[[column, *others, "loss"]].notna().all(axis=1)
    runs = runs[told]
    if len(runs) < FREEDOM or runs[column].nunique() < 2:
        return None
    beside = [standardised(runs, c) for c in others if runs[c].nunique() > 1]
    own = standardised(runs, column)
    level = np.ones(len(runs))
    bends = [axis**2 for axis in beside]
    terms = [own, level, *beside]
    if len(runs) >= ROWS_A_TERM * (len(terms) + len(bends)):
        terms += bends
    y = np.log(runs["loss"].to_numpy(float))
    slope, error, freedom = _first(np.column_stack(terms), y)
    if not slope > 0 or freedom < FREEDOM:
        return None
    if error > 0 and stats.t.sf(slope / error, freedom) > CHANCE:
        return None
    return slope * float(np.ptp(own))


def _first(
    design: Float[np.ndarray, "run term"], y: Float[np.ndarray, " run"]
) -> tuple[float, float, int]:
    """The first coefficient of least squares, its standard error, and the degrees of
    freedom; 0 where the terms are not independent.
    """
    rows, terms = design.shape
    if rows <= terms or np.linalg.matrix_rank(design) < terms:
        return 0.0, 0.0, 0
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    left = y - design @ found
    freedom = rows - terms
    variance = left @ left / freedom
    covariance = variance * np.linalg.inv(design.T @ design)
    return float(found[0]), float(np.sqrt(covariance[0, 0])), freedom
