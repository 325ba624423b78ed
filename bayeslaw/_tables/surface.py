"""Measure how losses move with their columns, without any law: least squares in logs, and
a smooth surface that single wrong rows do not bend.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from scipy.special import stdtr

from bayeslaw._base.numbers import format_count

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Values = Float[np.ndarray, " run"]
    Terms = Float[np.ndarray, "run term"]

CLEAR = 4.0  # standard errors from which on losses clearly rise or fall
BESIDE_REPLAY = ("N", "D", "ptpp")  # at equal values of these replay moves losses


def partial_slope(
    runs: pd.DataFrame, column: str, other_columns: Collection[str]
) -> tuple[float, float]:
    """Fit the slope of log loss in a column, given the other columns, with its standard
    error; 0 if rows do not determine them. Columns enter as logs, except replay; those
    that are missing or do not vary are left out.
    """
    if not {"loss", column} <= set(runs):
        return 0.0, 0.0
    beside = [c for c in other_columns if c in runs and runs[c].nunique() > 1]
    values = {c: runs[c].to_numpy(float) for c in (column, *beside)}
    axes = [x if c == "replay" else np.log(x) for c, x in values.items()]
    terms = np.column_stack([*axes, np.ones(len(runs)), np.log(runs["loss"])])
    x, *others, y = terms[np.isfinite(terms).all(axis=1)].T
    slope, error, _ = fit_slope(x, np.column_stack(others), y)
    return slope, error


def fit_slope(
    x: Values, beside: Terms, y: Values, least: float = 1e-20
) -> tuple[float, float, int]:
    """Fit the slope of ``y`` in ``x`` beside other terms, by least squares of what these
    leave of both (Frisch and Waugh 1933).

    Returns the slope, its standard error, and the degrees of freedom; 0 each if no more
    than a share ``least`` of the square of ``x`` is left.
    """
    both = np.column_stack([x, y])
    coefficients, _, rank, _ = np.linalg.lstsq(beside, both, rcond=None)
    x_left, y_left = (both - beside @ coefficients).T
    square, freedom = x_left @ x_left, len(y) - int(rank) - 1
    if freedom < 1 or square <= least * (x @ x):
        return 0.0, 0.0, 0
    slope = x_left @ y_left / square
    rest = y_left - slope * x_left
    return float(slope), float(np.sqrt(rest @ rest / freedom / square)), freedom


@dataclass(frozen=True)
class Surface:
    """A smooth surface through the log losses ``y`` of runs: a quadratic in the
    columns' logs (replay, and a column that reaches 0, as they are), or a plane for few
    rows. Single wrong rows do not bend it. It is not a law: it takes milliseconds, and
    is rough where losses bend. Columns that do not vary, or are empty somewhere, are
    left out.
    """

    runs: pd.DataFrame
    columns: Collection[str]
    design: Terms
    y: Values
    coefficients: Float[np.ndarray, " term"]

    @classmethod
    def of(cls, runs: pd.DataFrame, columns: Collection[str]) -> Surface:
        """Fit a surface, by least squares near it and least absolute values afar."""
        design = surface_terms(runs, columns)
        y = np.log(runs["loss"].to_numpy(float))
        start, *_ = np.linalg.lstsq(design, y, rcond=None)
        scale = np.median(np.abs(y - design @ start))
        if not scale > 0:
            return cls(runs, columns, design, y, start)
        solved = least_squares(
            lambda coefficients: (y - design @ coefficients) / scale,
            start,
            jac=lambda _: -design / scale,
            loss="soft_l1",
        )
        return cls(runs, columns, design, y, solved.x)

    @cached_property
    def misses(self) -> Values:
        """How far each log loss lies above the surface, shape (run,)."""
        return self.y - self.design @ self.coefficients

    @cached_property
    def usual(self) -> float:
        """The median distance of a run."""
        return float(np.median(np.abs(self.misses)))

    def misses_at(self, at: pd.DataFrame) -> Float[np.ndarray, " row"]:
        foreseen = surface_terms(self.runs, self.columns, at) @ self.coefficients
        return np.log(at["loss"].to_numpy(float)) - foreseen


def surface_terms(
    runs: pd.DataFrame, columns: Collection[str], at: pd.DataFrame | None = None
) -> Terms:
    """Compute the terms of a `Surface` at each run, or at each row of ``at``."""
    usable = [c for c in columns if c in runs and runs[c].notna().all()]
    axes = [_standardise(runs, c, at) for c in usable if runs[c].nunique() > 1]
    terms = [np.ones(len(runs if at is None else at)), *axes]
    # squares and products, each once
    pairs = [a * b for i, a in enumerate(axes) for b in axes[: i + 1]]
    if len(runs) >= 3 * (len(terms) + len(pairs)):
        terms += pairs
    return np.column_stack(terms)


def _standardise(
    runs: pd.DataFrame, column: str, at: pd.DataFrame | None = None
) -> Values:
    """Standardise a column, in logs if above 0, by the runs; at the rows ``at``, if any."""
    values = runs[column].to_numpy(float)
    wanted = values if at is None else at[column].to_numpy(float)
    if column != "replay" and (values > 0).all():
        values, wanted = np.log(values), np.log(wanted)
    return (wanted - values.mean()) / values.std()


def outliers(
    misses: Values, times: float, least: float = 0.02, *, in_part: bool = False
) -> Bool[np.ndarray, " run"]:
    """Tell which rows are gross outliers, shape (run,): ``times`` the median distance
    off, and over ``least`` in log loss.

    If more than five rows and more than one in twenty lie so far off, the surface is
    wrong and not the rows; then none counts as an outlier. With ``in_part`` only then
    do they count, as a part of the table unlike the rest. In each of 71 measured tables
    two rows, or 1.6%, lie 8 median distances and 3% off, at most.
    """
    size = np.abs(misses)
    far = size > max(times * np.median(size), least)
    is_part = far.sum() > max(5, len(far) // 20)
    return far & (is_part == in_part)


def rise_along(
    runs: pd.DataFrame, column: str, other_columns: Collection[str]
) -> tuple[str, float] | None:
    """Find the first part of a table in which losses clearly rise with a column, given
    the other columns, by over 1% of the loss: a phrase for the part, empty for all
    rows, and the rise from one end of it to the other.

    It tries all rows, then each level of another column (thirds if there are many
    levels, the highest first), then each two neighbouring levels of the column itself.
    """
    if not {"loss", column} <= set(runs) or runs[column].nunique() < 2:
        return None
    beside = [c for c in other_columns if c in runs and c != column]
    for part, rows in _iterate_parts(runs, column, beside):
        rows = rows.dropna(subset=[column, *beside, "loss"])
        if rows[column].nunique() < 2:
            continue
        axis = _standardise(rows, column)
        others = [_standardise(rows, c) for c in beside if rows[c].nunique() > 1]
        terms = [np.ones(len(rows)), *others]
        if len(rows) >= 3 * (1 + len(terms) + len(others)):
            terms += [other**2 for other in others]
        y = np.log(rows["loss"].to_numpy(float))
        slope, error, freedom = fit_slope(axis, np.column_stack(terms), y)
        # six rows beyond the number of terms, and a false rise in one of 100,000
        if freedom < 6 or (error > 0 and stdtr(freedom, -slope / error) > 1e-5):
            continue
        rise = float(np.expm1(slope * np.ptp(axis)))
        if rise > 0.01:
            return part, rise
    return None


def _iterate_parts(
    runs: pd.DataFrame, column: str, beside: Collection[str]
) -> Iterator[tuple[str, pd.DataFrame]]:
    def show(level: float) -> str:
        return f"{level:g}" if level < 1 else format_count(level)

    yield "", runs
    for name in beside:
        values = runs[name]
        levels = np.sort(values.dropna().unique())[::-1]
        if len(levels) > 12:
            low, high = values.quantile([1 / 3, 2 / 3])
            yield f"at {name} over {show(high)}", runs[values > high]
            yield f"at {name} under {show(low)}", runs[values < low]
        elif len(levels) > 1:
            for level in levels:
                yield f"at {name} = {show(level)}", runs[values == level]
    levels = np.sort(runs[column].dropna().unique())
    if 2 < len(levels) <= 12:
        for low, high in itertools.pairwise(levels):
            name = f"from {column} = {show(low)} to {show(high)}"
            yield name, runs[runs[column].isin((low, high))]
