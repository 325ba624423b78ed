"""How measured losses move with one column, the others held: least squares in logs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from jaxtyping import Float

CLEAR = 4.0  # standard errors at which losses are taken to rise or to fall


def partial_slope(
    runs: pd.DataFrame, column: str, others: Collection[str]
) -> tuple[float, float]:
    """Slope of log loss in a column beside others, and its standard error.

    Replay is taken as it is, other columns in logs; of the others, those that the table
    has and that vary. Both are 0 where the rows do not tell.
    """
    if not {"loss", column} <= set(runs):
        return 0.0, 0.0
    rest = [c for c in others if c in runs and runs[c].nunique() > 1]
    columns = [_as_regressed(runs, c) for c in (column, *rest)]
    level = np.ones(len(runs))
    design = np.column_stack([*columns, level])
    loss = runs["loss"].to_numpy(float)
    y = np.log(loss)
    numbers = np.isfinite(design).all(axis=1)
    told = numbers & np.isfinite(y)
    return _first_coefficient(design[told], y[told])


def _as_regressed(runs: pd.DataFrame, column: str) -> Float[np.ndarray, " run"]:
    values = runs[column].to_numpy(float)
    if column == "replay":
        return values
    return np.log(values)


def _first_coefficient(
    design: Float[np.ndarray, "run column"], y: Float[np.ndarray, " run"]
) -> tuple[float, float]:
    rows, columns = design.shape
    if rows <= columns or np.linalg.matrix_rank(design) < columns:
        return 0.0, 0.0
    found, *_ = np.linalg.lstsq(design, y, rcond=None)
    left = y - design @ found
    freedom = rows - columns
    variance = left @ left / freedom
    gram = design.T @ design
    covariance = variance * np.linalg.inv(gram)
    error = np.sqrt(covariance[0, 0])
    return float(found[0]), float(error)
