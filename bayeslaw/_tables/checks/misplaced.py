"""Find single rows with N or D in another unit: rows that agree with their neighbours
if N or D is divided or multiplied by ten, a hundred or a thousand.

Such a row may lie so far out that a surface fitted to all rows passes near it. So each
row is judged by a surface fitted to the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._tables.checks.slopes import surface, unbent

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Suspicion(NamedTuple):
    """Thresholds that decide which rows are judged and which are too far off.

    Parameters
    ----------
    factors
        Factors by which N or D may be wrong, up or down.
    suspects
        Number of rows to judge: this many rows farthest off the surface, and as many
        with the most extreme columns.
    fewest
        Least number of other rows that are needed to judge a row.
    far, least_far
        Least distance of a suspect row from the surface: in median errors of rows, and
        in log loss.
    near
        Largest distance of the corrected row from the surface, in median errors of
        rows.
    alone
        Least ratio between the row's N, D or D / N and the nearest such value of the
        other rows.
    """

    factors: tuple[float, ...] = (10.0, 100.0, 1000.0)
    suspects: int = 4
    fewest: int = 24
    far: float = 12.0
    least_far: float = 0.02
    near: float = 3.0
    alone: float = 5.0


def misplaced(
    runs: pd.DataFrame, columns: Collection[str], rule: Suspicion = Suspicion()
) -> list[str]:
    """Write a line for each row that fits the others only with its N or D times a power
    of ten.

    Parameters
    ----------
    columns
        Columns that laws read.
    """
    numbers = [c for c in ("N", "D") if c in columns and (runs[c] > 0).all()]
    if len(runs) < rule.fewest or not numbers:
        return []
    lines = []
    for place in _suspects(runs, columns, rule.suspects):
        line = _of_row(runs, columns, int(place), numbers, rule)
        if line is not None:
            lines.append(line)
    return lines


def _suspects(
    runs: pd.DataFrame, columns: Collection[str], count: int
) -> Int[np.ndarray, " i"]:
    """Select rows that lie farthest off a surface fitted without them, or farthest out."""
    design = surface(runs, columns)
    basis, _ = np.linalg.qr(design)
    leverage = (basis**2).sum(axis=1)
    y = np.log(runs["loss"].to_numpy(float))
    residuals = y - basis @ (basis.T @ y)
    deleted = np.abs(residuals) / np.maximum(1 - leverage, 1e-9)
    farthest = [np.argsort(-size)[:count] for size in (deleted, leverage)]
    return np.unique(np.concatenate(farthest))


def _of_row(
    runs: pd.DataFrame,
    columns: Collection[str],
    place: int,
    numbers: Collection[str],
    rule: Suspicion,
) -> str | None:
    """Judge one row by a surface fitted to the others. Return a line if the row fits
    only with its N or D multiplied or divided by a factor, else None.
    """
    others = runs[np.arange(len(runs)) != place]
    row = runs.iloc[[place]]
    alone = [name for name in numbers if _is_alone(others, row, name, rule.alone)]
    if not alone:
        return None
    y = np.log(others["loss"].to_numpy(float))
    design = surface(others, columns)
    coefficients = unbent(design, y)
    usual = float(np.median(np.abs(y - design @ coefficients)))

    def miss(at: pd.DataFrame) -> float:
        (foreseen,) = surface(others, columns, at) @ coefficients
        return float(abs(np.log(at["loss"].iloc[0]) - foreseen))

    off = miss(row)
    if off < max(rule.far * usual, rule.least_far):
        return None
    for name in alone:
        value = float(row[name].iloc[0])
        for factor in (*rule.factors, *(1 / f for f in rule.factors)):
            moved = row.assign(**{name: value / factor})
            inside = others[name].min() <= value / factor <= others[name].max()
            if (
                inside
                and not _is_alone(others, moved, name, rule.alone)
                and (miss(moved) < rule.near * usual)
            ):
                return (
                    f"row {row.index[0]}: {name} {format_count(value)} lies {off:.1%} off "
                    f"the other rows, and {format_count(value / factor)} within "
                    f"{rule.near * usual:.1%}: a digit too many or too few?"
                )
    return None


def _is_alone(others: pd.DataFrame, row: pd.DataFrame, name: str, least: float) -> bool:
    """Tell whether no other row has a similar value, or a similar number of tokens per
    parameter.
    """
    pairs = [(others[name], row[name])]
    if {"N", "D"} <= set(others):
        pairs.append((others["D"] / others["N"], row["D"] / row["N"]))
    return any(
        _gap(values.to_numpy(float), float(value.iloc[0])) > np.log(least)
        for values, value in pairs
    )


def _gap(values: Float[np.ndarray, " run"], value: float) -> float:
    """Measure the distance to the nearest of the values, in e-folds."""
    return float(np.abs(np.log(values / value)).min())
