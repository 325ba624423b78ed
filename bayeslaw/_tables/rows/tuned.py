"""Reduce sweeps of a setting (learning rate, batch, weight decay) to one row for each
cell, with the loss of the tuned run.

The lowest of k noisy losses is biased downwards. So a parabola in the log of the
setting is fitted to a cell's runs near its best, and the loss is that of the vertex.
All cells share the curvature; noise is pooled over cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables import fitting
from bayeslaw._tables.rows.levels import ROUNDING, at_levels
from bayeslaw._tables.rows.settings import (
    NEEDED,
    are_levels,
    at_commonest,
    cells_of,
    swept_beside,
)
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def tuned(runs: pd.DataFrame, setting: str, *, near: int = 2) -> pd.DataFrame:
    """Keep the best row of each cell, with an estimate of the loss of a tuned run.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it. Rows that are equal in all columns that laws
        read form a cell.
    setting
        The numeric column that was swept, of positive numbers: ``"lr"``.
    near
        Number of levels on each side of a cell's best to which its parabola is fitted.

    Returns
    -------
    DataFrame
        The best run of each cell, in the order of the table. ``loss`` is the loss of
        the tuned run, ``loss_measured`` the loss of the best run, and
        ``{setting}_best`` the setting at the vertex. If ``at_edge``, the vertex lies
        beyond the cell's sweep; ``loss`` is then taken at the end of the sweep, and the
        tuned loss may be lower.

    Raises
    ------
    RunTableError
        There is no such column, or it has no numbers above 0; another setting is swept
        in the same cells; fewer than two cells have three levels of it; or losses do
        not bend upwards along it.

    Examples
    --------
    >>> rates = np.array([5e-4, 1e-3, 2e-3])
    >>> cells = [(1e8, 3.1), (1e9, 2.8)]  # size, tuned loss
    >>> losses = [low * np.exp(0.01 * np.log(rates / 1e-3) ** 2) for _, low in cells]
    >>> sizes = np.repeat([N for N, _ in cells], 3)
    >>> runs = {"N": sizes, "D": 2e9, "lr": np.tile(rates, 2), "loss": np.ravel(losses)}
    >>> bayeslaw.tuned(pd.DataFrame(runs), "lr")["loss"].round(3).tolist()
    [3.1, 2.8]

    Notes
    -----
    Log losses are fitted by least squares: y = a_c + b_c x + g x^2, x = log setting,
    with one g for all cells. The estimated vertex a_c - b_c^2/(4 g) is too low by
    var(b_c)/(4 g) on average, which is added.
    """
    runs = as_runs(runs)
    y = fitting.log_losses(runs)
    x = _logarithms(runs, setting)
    _refuse_swept_beside(runs, setting)
    cells = cells_of(runs)
    kept = _near_the_best(cells, x, y, near)
    rows = pd.Series(x[kept]).groupby(cells[kept]).nunique()
    cells_with_enough = rows.index[rows >= NEEDED]
    if len(cells_with_enough) < 2:
        raise RunTableError(
            f"--best-of {setting}: {len(cells_with_enough)} cells have {NEEDED} or more levels of "
            f"{setting!r}, and two are needed; keep the runs you will use, by --where"
        )
    vertices = _vertices(cells, x, y, kept & np.isin(cells, cells_with_enough), setting)
    best = [
        int(np.flatnonzero(cells == cell)[y[cells == cell].argmin()])
        for cell in cells_with_enough
    ]
    order = np.argsort(best)
    table = runs.iloc[[best[i] for i in order]].copy()
    table["loss_measured"] = table["loss"]
    table["loss"] = np.exp(vertices["log_loss"].to_numpy()[order])
    table[f"{setting}_best"] = np.exp(vertices["at"].to_numpy()[order])
    table["at_edge"] = vertices["at_edge"].to_numpy()[order]
    return table.drop(columns=setting)


def _logarithms(runs: pd.DataFrame, setting: str) -> Float[np.ndarray, " row"]:
    """Take the logarithms of a swept setting, shape (row,); refuse values not above 0."""
    if setting not in runs:
        raise RunTableError(
            f"--best-of {setting}: no such column; there are: "
            f"{', '.join(map(str, runs.columns))}"
        )
    if not are_levels(runs[setting]):
        raise RunTableError(
            f"--best-of {setting}: its levels must be numbers above 0, whose logarithm a "
            "parabola is in"
        )
    values = pd.to_numeric(runs[setting]).to_numpy(float)
    return np.log(at_levels(values, ROUNDING))


def _refuse_swept_beside(runs: pd.DataFrame, setting: str) -> None:
    """Refuse cells that are sweeps of another setting, too: one parabola would go
    through the runs of all its levels.
    """
    beside = swept_beside(runs, setting)
    if not beside:
        return
    # the level that most cells' best runs have
    losses = pd.Series(runs["loss"].to_numpy(float))
    best = runs.iloc[losses.groupby(cells_of(runs)).idxmin()]
    raise RunTableError(
        f"--best-of {setting}: {' and '.join(map(repr, beside))} differ"
        f"{'s' * (len(beside) == 1)} within cells, too, and one parabola along "
        f"{setting!r} would go through runs of all levels; keep one level, for instance "
        f'of most best runs: --where "{at_commonest(best, beside)}" (a column that is no '
        f"setting is left out by: bayeslaw table RUNS --keep {setting} -o FILE)"
    )


def _near_the_best(
    cells: Int[np.ndarray, " row"],
    x: Float[np.ndarray, " row"],
    y: Float[np.ndarray, " row"],
    near: int,
) -> Any:
    """Select the rows within ``near`` levels of their cell's best, shape (row,)."""
    kept = np.zeros(len(x), bool)
    for cell in np.unique(cells):
        inside = cells == cell
        levels = np.unique(x[inside])
        place = np.searchsorted(levels, x[inside])
        # seeds of one level count as one: the best level has the lowest mean
        means = np.array([y[inside][place == k].mean() for k in range(len(levels))])
        low = min(max(means.argmin() - near, 0), max(len(levels) - 2 * near - 1, 0))
        kept[inside] = (place >= low) & (place <= low + 2 * near)
    return kept


def _vertices(
    cells: Int[np.ndarray, " row"],
    x: Float[np.ndarray, " row"],
    y: Float[np.ndarray, " row"],
    kept: Any,
    setting: str,
) -> pd.DataFrame:
    """Compute the vertex of each cell's parabola, by cell: ``at``, ``log_loss``,
    ``at_edge``.
    """
    names, code = np.unique(cells[kept], return_inverse=True)
    count = len(names)
    centre = np.array([x[kept][code == k].mean() for k in range(count)])
    u, v = x[kept] - centre[code], y[kept]
    indicator = np.eye(count)[code]
    basis = np.hstack([indicator, indicator * u[:, None], u[:, None] ** 2])
    coefficients, *_ = np.linalg.lstsq(basis, v, rcond=None)
    a, b, g = coefficients[:count], coefficients[count:-1], coefficients[-1]
    if g <= 0:
        raise RunTableError(
            f"--best-of {setting}: losses have no minimum along it (they do not bend "
            "upwards), so that no run is known to be the tuned one"
        )
    freedom = max(len(v) - basis.shape[1], 1)
    variance = ((v - basis @ coefficients) ** 2).sum() / freedom
    inverse = np.linalg.pinv(basis.T @ basis)
    slope_variance = variance * np.diag(inverse)[count:-1]
    ends = np.array([[u[code == k].min(), u[code == k].max()] for k in range(count)])
    vertex = -b / (2 * g)
    at = np.clip(vertex, ends[:, 0], ends[:, 1])
    at_edge = at != vertex
    lowest = a + b * at + g * at**2
    # the square of an estimated slope is too large by the variance of its error
    lowest = lowest + np.where(at_edge, 0.0, slope_variance / (4 * g))
    return pd.DataFrame(
        {"at": at + centre, "log_loss": lowest, "at_edge": at_edge}, index=names
    )
