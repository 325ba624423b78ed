"""Reduce sweeps of settings (learning rate, batch, weight decay) to one row for each
cell, with the loss of the tuned run.

The lowest of k noisy losses is biased downwards. So a quadratic in the logs of the
settings is fitted to a cell's runs near its best, and the loss is that of its lowest
point. All cells share the curvature; noise is pooled over cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

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
    from jaxtyping import Bool, Float, Int


def tuned(
    runs: pd.DataFrame, setting: str | Sequence[str], *, near: int = 2
) -> pd.DataFrame:
    """Keep the best row of each cell, with an estimate of the loss of a tuned run.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it. Rows that are equal in all columns that laws
        read form a cell.
    setting
        The numeric columns that were swept, of positive numbers: ``"lr"``, or
        ``["lr", "batch"]`` where runs differ in both.
    near
        Number of levels on each side of a cell's best to which its quadratic is fitted;
        more where these have too few runs.

    Returns
    -------
    DataFrame
        The best run of each cell, in the order of the table. ``loss`` is the loss of
        the tuned run, ``log_sd`` the standard error of its log, and ``loss_measured``
        the loss of the best run. Of each setting, ``{setting}_best`` is where the loss
        is lowest, with a 90% interval from ``{setting}_low`` to ``{setting}_high``. If
        ``at_edge``, the lowest point lies beyond the cell's sweep; ``loss`` and
        ``{setting}_best`` are then those at the end of the sweep, and the tuned loss
        may be lower.

    Raises
    ------
    RunTableError
        There is no such column, or it has no numbers above 0; another setting is swept
        in the same cells; fewer than two cells have three levels of each; or losses do
        not bend upwards along them.

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
    Log losses are fitted by least squares: y = a_c + b_c . x + x' G x, x = log settings,
    with one G for all cells. The estimated minimum a_c - b_c' G^-1 b_c/4 is too low by
    trace(G^-1 cov(b_c))/4 on average, which is added. Intervals are of the delta method.
    """
    runs = as_runs(runs)
    y = fitting.log_losses(runs)
    settings = [setting] if isinstance(setting, str) else list(dict.fromkeys(setting))
    option = f"--best-of {','.join(settings)}"
    quoted = " and ".join(map(repr, settings))
    logarithms = []
    for name in settings:
        if name not in runs:
            raise RunTableError(
                f"{option}: no such column as {name!r}; there are: "
                f"{', '.join(map(str, runs.columns))}"
            )
        if not are_levels(runs[name]):
            raise RunTableError(
                f"{option}: levels of {name!r} must be numbers above 0, whose "
                "logarithm a parabola is in"
            )
        values = pd.to_numeric(runs[name]).to_numpy(float)
        logarithms.append(np.log(at_levels(values, ROUNDING)))
    x = np.stack(logarithms, axis=1)
    cells = cells_of(runs)

    # one quadratic would go through the runs of all levels of another swept setting
    beside = swept_beside(runs, settings)
    if beside:
        # the level that most cells' best runs have
        losses = pd.Series(runs["loss"].to_numpy(float))
        best = runs.iloc[losses.groupby(cells).idxmin()]
        are_tunable = all(are_levels(runs[name]) for name in beside)
        together = ",".join([*settings, *beside])
        raise RunTableError(
            f"{option}: {' and '.join(map(repr, beside))} "
            f"differ{'s' * (len(beside) == 1)} within cells, too, and one parabola along "
            f"{quoted} would go through runs of all levels; "
            f"{f'tune them together (--best-of {together}), or ' * are_tunable}keep one "
            f'level, for instance of most best runs: --where "{at_commonest(best, beside)}"'
            " (a column that is no setting is left out by: bayeslaw table RUNS --keep "
            f"{','.join(settings)} -o FILE)"
        )

    # the runs near the best of each cell that has the levels of a quadratic
    kept = _select_near_best(cells, x, y, near)
    chosen = [c for c in np.unique(cells) if _is_enough(x[kept & (cells == c)])]
    if len(chosen) < 2:
        raise RunTableError(
            f"{option}: {len(chosen)} cells have {NEEDED} or more levels of {quoted}, and "
            "two are needed; keep the runs you will use, by --where"
        )
    kept &= np.isin(cells, chosen)
    fitted = _find_lowest(cells[kept], x[kept], y[kept])
    if fitted is None:
        raise RunTableError(
            f"{option}: losses have no minimum along {quoted} (they do not bend upwards), "
            "so that no run is known to be the tuned one"
        )
    lowest, half = fitted
    best = [int(np.flatnonzero(cells == c)[y[cells == c].argmin()]) for c in chosen]
    table = runs.iloc[best].drop(columns=settings)
    table["loss_measured"] = table["loss"]
    table["loss"] = np.exp([cell.log_loss for cell in lowest])
    table["log_sd"] = [cell.log_sd for cell in lowest]
    for k, name in enumerate(settings):
        at, vertex, sd = np.array(
            [(cell.at[k], cell.vertex[k], cell.vertex_sd[k]) for cell in lowest]
        ).T
        table[f"{name}_best"] = np.exp(at)
        table[f"{name}_low"] = np.exp(vertex - half * sd)
        table[f"{name}_high"] = np.exp(vertex + half * sd)
    table["at_edge"] = [cell.at_edge for cell in lowest]
    return table.iloc[np.argsort(best)]


def _select_near_best(
    cells: Int[np.ndarray, " row"],
    x: Float[np.ndarray, "row setting"],
    y: Float[np.ndarray, " row"],
    near: int,
) -> Bool[np.ndarray, " row"]:
    """Select the rows within ``near`` levels of their cell's best in each setting, or
    within more levels if these have fewer rows than a quadratic has coefficients. Near
    an end of the sweep the window has as many levels, to one side.
    """
    kept = np.zeros(len(y), bool)
    for cell in np.unique(cells):
        inside = np.flatnonzero(cells == cell)
        # seeds of one level count as one: the best has the lowest mean
        levels, run = np.unique(x[inside], axis=0, return_inverse=True)
        means = np.bincount(run.ravel(), y[inside]) / np.bincount(run.ravel())
        best = levels[means.argmin()]
        reach = near
        is_near = _are_within(x[inside], best, reach)
        while is_near.sum() < _count_coefficients(x) and not is_near.all():
            reach += 1
            is_near = _are_within(x[inside], best, reach)
        kept[inside] = is_near
    return kept


def _are_within(
    x: Float[np.ndarray, "row setting"], best: Float[np.ndarray, " setting"], near: int
) -> Bool[np.ndarray, " row"]:
    is_within = np.ones(len(x), bool)
    for values, at in zip(x.T, best, strict=True):
        levels, place = np.unique(values, return_inverse=True)
        low = np.searchsorted(levels, at) - near
        low = min(max(low, 0), max(len(levels) - 2 * near - 1, 0))
        is_within &= (place >= low) & (place <= low + 2 * near)
    return is_within


def _is_enough(x: Float[np.ndarray, "row setting"]) -> bool:
    """Tell whether a cell's rows have the levels and runs that a quadratic needs."""
    levels = [len(np.unique(values)) for values in x.T]
    return min(levels) >= NEEDED and len(x) >= _count_coefficients(x)


def _count_coefficients(x: Float[np.ndarray, "row setting"]) -> int:
    """Count the coefficients of a quadratic in the settings."""
    settings = x.shape[1]
    return 1 + settings + settings * (settings + 1) // 2


class _Quadratic(NamedTuple):
    """Log loss of a cell over log settings, a + b . x + x' G x. ``errors``: covariance
    of a, b and the upper triangle of G.
    """

    a: float
    b: Float[np.ndarray, " setting"]
    curvature: Float[np.ndarray, "setting setting"]
    errors: Float[np.ndarray, "coefficient coefficient"]

    def lowest_within(
        self, low: Float[np.ndarray, " setting"], high: Float[np.ndarray, " setting"]
    ) -> _Lowest:
        """Find the lowest point, at the vertex or at an end of the sweep."""
        inverse = np.linalg.inv(self.curvature)
        vertex = at = -inverse @ self.b / 2
        at_edge = bool(((vertex < low) | (vertex > high)).any())
        if at_edge:
            # |R x - R vertex|^2 is the quadratic but for a constant, with R'R = G
            root = np.linalg.cholesky(self.curvature).T
            at = optimize.lsq_linear(root, root @ vertex, (low, high), "bvls").x
        log_loss = self.a + self.b @ at + at @ self.curvature @ at
        settings = len(self.b)
        if not at_edge:
            # the square of an estimated slope is too large by the variance of its error
            of_slopes = self.errors[1 : 1 + settings, 1 : 1 + settings]
            log_loss += np.trace(inverse @ of_slopes) / 4
        # derivatives by a, b and G: of the lowest log loss, and of the vertex, where
        # 2 G x = -b
        by_all = np.concatenate([[1.0], at, _multiply_pairs(at[None])[0]])
        units = _symmetric_units(settings)
        by_curvature = [-inverse @ unit @ vertex for unit in units]
        moved = np.column_stack([np.zeros(settings), -inverse / 2, *by_curvature])
        return _Lowest(
            at,
            vertex,
            np.sqrt(np.diag(moved @ self.errors @ moved.T)),
            float(log_loss),
            float(np.sqrt(by_all @ self.errors @ by_all)),
            at_edge,
        )


class _Lowest(NamedTuple):
    """The lowest point of a cell, and its standard errors: log settings at which it is
    taken (``at``) and where it lies by the quadratic (``vertex``), each (setting,).
    """

    at: Float[np.ndarray, " setting"]
    vertex: Float[np.ndarray, " setting"]
    vertex_sd: Float[np.ndarray, " setting"]
    log_loss: float
    log_sd: float
    at_edge: bool


def _find_lowest(
    cells: Int[np.ndarray, " row"],
    x: Float[np.ndarray, "row setting"],
    y: Float[np.ndarray, " row"],
) -> tuple[list[_Lowest], float] | None:
    """Fit quadratics with one curvature for all cells. Find their lowest points within
    each cell's sweep, and half a 90% interval of errors in units of their sd; None if
    losses do not bend upwards.
    """
    code = np.unique(cells, return_inverse=True)[1]
    count, size = code.max() + 1, x.shape[1]
    centre = np.array([x[code == k].mean(axis=0) for k in range(count)])
    u = x - centre[code]
    indicator = np.eye(count)[code]
    slopes = (indicator[:, :, None] * u[:, None, :]).reshape(len(y), -1)
    basis = np.hstack([indicator, slopes, _multiply_pairs(u)])
    coefficients, *_ = np.linalg.lstsq(basis, y, rcond=None)
    a, b, g = np.split(coefficients, [count, count * (1 + size)])
    curvature = np.tensordot(g, _symmetric_units(size), axes=1)
    if np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    freedom = max(len(y) - basis.shape[1], 1)
    variance = ((y - basis @ coefficients) ** 2).sum() / freedom
    covariance = variance * np.linalg.pinv(basis.T @ basis)
    lowest = []
    for k in range(count):
        own = [k, *range(count + k * size, count + (k + 1) * size)]
        read = [*own, *range(count * (1 + size), len(coefficients))]
        cell = _Quadratic(
            a[k],
            b[k * size : (k + 1) * size],
            curvature,
            covariance[np.ix_(read, read)],
        )
        swept = u[code == k]
        found = cell.lowest_within(swept.min(axis=0), swept.max(axis=0))
        moved = {"at": found.at + centre[k], "vertex": found.vertex + centre[k]}
        lowest.append(found._replace(**moved))
    return lowest, float(stats.t.ppf(0.95, freedom))


def _multiply_pairs(
    x: Float[np.ndarray, "row setting"],
) -> Float[np.ndarray, "row pair"]:
    """Multiply settings in pairs i <= j, twice where i < j: x' G x is their sum over
    G's upper triangle.
    """
    units = _symmetric_units(x.shape[1])
    return np.einsum("ri,pij,rj->rp", x, units, x)


def _symmetric_units(settings: int) -> Float[np.ndarray, "pair setting setting"]:
    """Build the symmetric matrices with a one at i, j and j, i, for each i <= j."""
    pairs = np.transpose(np.triu_indices(settings))
    units = np.zeros((len(pairs), settings, settings))
    for unit, (i, j) in zip(units, pairs, strict=True):
        unit[i, j] = unit[j, i] = 1
    return units
