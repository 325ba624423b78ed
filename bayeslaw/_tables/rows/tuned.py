"""Reduce sweeps of settings (learning rate, batch, weight decay) to one row for each
cell, with the loss of the tuned run.

The lowest of k noisy losses is biased downwards. So a quadratic in the logs of the
settings is fitted to a cell's runs near its best, and the loss is that of its lowest
point. Cells share the curvature unless their losses differ in it; noise is pooled
over cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import optimize, stats

from bayeslaw._base.errors import RunTableError, RunTableWarning, warn
from bayeslaw._base.frames import Table
from bayeslaw._tables import fitting
from bayeslaw._tables.proposals import check_columns
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

    Losses = Float[np.ndarray, " row"]
    Rows = Float[np.ndarray, "row setting"]
    Point = Float[np.ndarray, " setting"]
    Lowest = Float[np.ndarray, "cell setting"]
    Square = Float[np.ndarray, "_ _"]

ROUNDS = 5  # of choosing the rows near a cell's lowest point


def tuned(runs: Table, setting: str | Sequence[str], *, near: int = 2) -> pd.DataFrame:
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
        ``at_edge``, the lowest point lies beyond the cell's sweep (the convex hull of
        its settings); ``loss`` and ``{setting}_best`` are then those at the end of the
        sweep, and the tuned loss may be lower.

    Warns
    -----
    RunTableWarning
        Cells are left out, as they have fewer than three levels; or no cell changes two
        settings together, and they are taken not to depend on each other.

    Raises
    ------
    RunTableError
        There is no such column, or it has no numbers above 0; another setting is swept
        in the same cells; fewer than two cells have three levels of each; settings move
        in step, so that each alone is unknown; or losses do not bend upwards along them.

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
    with one G for all cells; G is scaled by cell, and products of three settings are
    added, where an F test at 1% asks for it. The estimated minimum a_c - b_c' G^-1 b_c/4
    is too low by trace(G^-1 cov(b_c))/4 on average, which is added. Intervals are of the
    delta method. The rows are chosen again around the lowest point, as the run that was
    best by luck would choose rows that make it look better.
    """
    runs = as_runs(runs)
    y = fitting.log_losses(runs)
    settings = [setting] if isinstance(setting, str) else list(dict.fromkeys(setting))
    option = f"--best-of {','.join(settings)}"
    quoted = " and ".join(map(repr, settings))
    check_columns(runs, settings, f" of {option}")
    for name in settings:
        if not are_levels(runs[name]):
            raise RunTableError(
                f"{option}: levels of {name!r} must be numbers above 0, whose "
                "logarithm a parabola is in"
            )
    numbers = runs[settings].apply(pd.to_numeric).to_numpy(float)
    x = np.log(np.apply_along_axis(at_levels, 0, numbers, ROUNDING))
    cells = cells_of(runs)

    # one quadratic would go through the runs of all levels of another swept setting
    beside = swept_beside(runs, settings)
    if beside:
        # the level that most cells' best runs have
        losses = pd.Series(runs["loss"].to_numpy(float))
        best = runs.iloc[losses.groupby(cells).idxmin()]
        are_tunable = all(are_levels(runs[name]) for name in beside)
        together = ",".join([*settings, *beside])
        differ = "differs" if len(beside) == 1 else "differ"
        tune = f"tune them together (--best-of {together}), or " if are_tunable else ""
        raise RunTableError(
            f"{option}: {' and '.join(map(repr, beside))} {differ} within cells, too, and "
            f"one parabola along {quoted} would go through runs of all levels; {tune}keep "
            f'one level, for instance of most best runs: --where "{at_commonest(best, beside)}"'
            " (a column that is no setting is left out by: bayeslaw table RUNS --keep "
            f"{','.join(settings)} -o FILE)"
        )

    # the runs near the best of each cell that has the levels of a quadratic; seeds of one
    # level count as one: the best has the lowest mean
    groups = [cells, *x.T]
    means = pd.Series(y).groupby(groups).transform("mean").to_numpy()
    kept = np.zeros(len(y), bool)
    for cell in np.unique(cells):
        inside = np.flatnonzero(cells == cell)
        best = inside[means[inside].argmin()]
        kept[inside] = _select_around(x[inside], x[best], near)
    chosen = [c for c in np.unique(cells) if _is_enough(x[kept & (cells == c)])]
    levels, upwards = f"{NEEDED} or more levels of {quoted}", "upwards"
    if len(settings) > 1:
        levels += " that do not move in step"
        upwards += " in every direction"
    if len(chosen) < 2:
        raise RunTableError(
            f"{option}: {len(chosen)} cells have {levels}, and "
            "two are needed; keep the runs you will use, by --where"
        )
    left_out = len(np.unique(cells)) - len(chosen)
    if left_out:
        warn(
            f"{option}: {left_out} of {left_out + len(chosen)} cells are left out, as "
            f"they do not have {levels}",
            RunTableWarning,
        )
    kept &= np.isin(cells, chosen)
    fitted = _find_lowest(cells[kept], x[kept], y[kept])
    if fitted is None:
        raise RunTableError(
            f"{option}: losses have no minimum along {quoted} (they do not bend "
            f"{upwards}), so that no run is known to be the tuned one; keep runs nearer "
            "the best ones, by --where"
        )
    # around the lowest points: which run was best by luck then selects no rows
    for _ in range(ROUNDS):
        again = kept.copy()
        for cell, at in zip(chosen, fitted.at, strict=True):
            inside = np.flatnonzero(cells == cell)
            is_near = _select_around(x[inside], at, near)
            if _is_enough(x[inside[is_near]]):
                again[inside] = is_near
        refitted = _find_lowest(cells[again], x[again], y[again], fitted.at)
        is_last = (again == kept).all() and not (refitted and refitted.is_skewed)
        kept, fitted = again, refitted or fitted
        if is_last or refitted is None:
            break
    if fitted.apart:
        pairs = ", ".join(
            f"{settings[i]!r} and {settings[j]!r}" for i, j in fitted.apart
        )
        warn(
            f"{option}: no runs change {pairs} together, so the best of each is taken not "
            "to depend on the other; runs with both off the best would show it",
            RunTableWarning,
        )
    best = [int(np.flatnonzero(cells == c)[y[cells == c].argmin()]) for c in chosen]
    table = runs.iloc[best].drop(columns=settings)
    table["loss_measured"] = table["loss"]
    table["loss"], table["log_sd"] = np.exp(fitted.log_loss), fitted.log_sd
    for k, name in enumerate(settings):
        table[f"{name}_best"] = np.exp(fitted.at[:, k])
        table[f"{name}_low"] = np.exp(fitted.low[:, k])
        table[f"{name}_high"] = np.exp(fitted.high[:, k])
    table["at_edge"] = fitted.at_edge
    return table.iloc[np.argsort(best)]


def _select_around(x: Rows, point: Point, near: int) -> Bool[np.ndarray, " row"]:
    """Select a cell's rows within ``near`` levels of a point in each setting, to one
    side near an end of the sweep, or more levels if a quadratic has more coefficients.
    """
    count = (x.shape[1] + 1) * (x.shape[1] + 2) // 2
    is_near = np.zeros(len(x), bool)
    while is_near.sum() < count and not is_near.all():
        is_near = np.ones(len(x), bool)
        for values, at in zip(x.T, point, strict=True):
            levels, place = np.unique(values, return_inverse=True)
            low = int(np.abs(levels - at).argmin()) - near
            low = min(max(low, 0), max(len(levels) - 2 * near - 1, 0))
            is_near &= (place >= low) & (place <= low + 2 * near)
        near += 1
    return is_near


def _is_enough(x: Rows) -> bool:
    """Tell whether a cell's rows have the levels and runs that a quadratic needs."""
    levels = [len(np.unique(values)) for values in x.T]
    # the curvature is that of all cells: a cell's own are the height and the slopes
    in_step = np.linalg.matrix_rank(x - x.mean(axis=0), tol=ROUNDING) < x.shape[1]
    return min(levels) >= NEEDED and not in_step


class _Lowest(NamedTuple):
    """The lowest point of each cell: log settings at which it is taken (``at``), a 90%
    interval of where it lies by the quadratic (``low``, ``high``), its log loss with the
    standard error, and whether it is at an end of the sweep.

    ``apart``: the pairs of settings that no cell changes together. ``is_skewed``: whether
    losses rise faster on one side.
    """

    at: Lowest
    low: Lowest
    high: Lowest
    log_loss: Float[np.ndarray, " cell"]
    log_sd: Float[np.ndarray, " cell"]
    at_edge: Bool[np.ndarray, " cell"]
    apart: list[tuple[int, int]]
    is_skewed: bool


def _find_vertex(
    a: float, b: Point, curvature: Square, errors: Square, swept: Rows
) -> tuple[Any, ...]:
    """Find the lowest point of a + b . x + x' G x (G the ``curvature``), at the vertex or
    at an end of the sweep. ``errors``: covariance of a, b and the upper triangle of G.

    Returns where it is taken, the vertex, its standard errors, the log loss, its standard
    error, and whether it is at an end.
    """
    inverse = np.linalg.inv(curvature)
    vertex = at = -inverse @ b / 2
    # |R x - R vertex|^2 is the quadratic but for a constant, with R'R = G. Its lowest
    # point in the convex hull of the runs is a mean of them, whose weights are those of
    # the least |sum w R (x - vertex)|^2 + (sum w - 1)^2 with w >= 0 (Lawson and Hanson
    # 1974, chapter 23)
    away = np.linalg.cholesky(curvature).T @ (swept - vertex).T
    away /= np.abs(away).max()
    weights, _ = optimize.nnls(
        np.vstack([away, np.ones(len(swept))]), np.eye(len(away) + 1)[-1]
    )
    weights /= weights.sum()
    at_edge = bool(np.linalg.norm(away @ weights) > ROUNDING)
    if at_edge:
        at = weights @ swept
    log_loss = a + b @ at + at @ curvature @ at
    settings = len(b)
    if not at_edge:
        # the square of an estimated slope is too large by the variance of its error
        of_slopes = errors[1 : 1 + settings, 1 : 1 + settings]
        log_loss += np.trace(inverse @ of_slopes) / 4
    # derivatives by a, b and G: of the lowest log loss, and of the vertex, where
    # 2 G x = -b
    by_all = np.concatenate([[1.0], at, _multiply_pairs(at[None])[0]])
    by_curvature = [-inverse @ unit @ vertex for unit in _symmetric_units(settings)]
    moved = np.column_stack([np.zeros(settings), -inverse / 2, *by_curvature])
    vertex_sd = np.sqrt(np.diag(moved @ errors @ moved.T))
    return at, vertex, vertex_sd, log_loss, np.sqrt(by_all @ errors @ by_all), at_edge


def _find_lowest(
    cells: Int[np.ndarray, " row"], x: Rows, y: Losses, around: Lowest | None = None
) -> _Lowest | None:
    """Fit quadratics with one curvature for all cells, and find their lowest points
    within each cell's sweep; None if losses do not bend upwards.

    Where losses show it, products of three settings are added, and a scale of each
    cell's curvature. ``around``: the lowest points by a fit before, from which settings
    are measured; only there are such products those of all cells. Heights and slopes
    are projected out of a cell's rows, so that what is left tells of the curvature
    alone (Frisch and Waugh 1933).
    """
    code = np.unique(cells, return_inverse=True)[1]
    count, size = int(code.max()) + 1, x.shape[1]
    centre = around
    if centre is None:
        centre = np.array([x[code == k].mean(axis=0) for k in range(count)])
    u = x - centre[code]
    own = np.column_stack([np.ones(len(u)), u])
    triples = combinations_with_replacement(range(size), 3)
    cubes = np.column_stack([u[:, triple].prod(axis=1) for triple in triples])
    products = np.hstack([_multiply_pairs(u), cubes])
    rest, left = np.empty_like(products), np.empty_like(y)
    # cell by cell, because all of them together are a matrix of rows x cells
    for k in range(count):
        basis, _ = np.linalg.qr(own[code == k])
        for full, part in ((products, rest), (y, left)):
            part[code == k] = full[code == k] - basis @ (basis.T @ full[code == k])

    # a product that the others can make up for is of settings not changed together
    pairs = np.transpose(np.triu_indices(size))
    squares = rest[:, : len(pairs)]
    rank = np.linalg.matrix_rank(squares, tol=ROUNDING)
    is_known = np.array(
        [
            i == j
            or np.linalg.matrix_rank(np.delete(squares, k, 1), tol=ROUNDING) < rank
            for k, (i, j) in enumerate(pairs)
        ]
    )
    known = int(is_known.sum())
    freedom = len(y) - count * (1 + size) - known
    added = cubes.shape[1]
    quadratic = rest * np.append(is_known, np.zeros(added))
    cubic = rest * np.append(is_known, np.ones(added))
    rest, g, misses = quadratic, *_solve(quadratic, left)
    is_skewed = False
    is_free = np.linalg.matrix_rank(cubic, tol=ROUNDING) == known + added
    if is_free and around is not None:
        of_cubic, fewer = _solve(cubic, left), freedom - added
        is_skewed = _is_better(of_cubic[1], misses, added, fewer)
        if is_skewed:
            rest, (g, misses), freedom = cubic, of_cubic, fewer

    # each cell's scale of the curvature, 1 unless losses show that scales differ
    scales, scale_variances = np.ones(count), np.zeros(count)
    bends = rest @ g
    information = np.bincount(code, bends**2)
    found = np.bincount(code, bends * left) / information
    within, fewer = ((left - found[code] * bends) ** 2).sum(), freedom - (count - 1)
    if _is_better(within, misses, count - 1, fewer):
        # moments' estimate of their variance around 1 (DerSimonian and Laird 1986), and
        # the mean and variance of each given the cell's rows
        freedom, misses = fewer, within
        precision = information / (within / fewer)
        excess = (precision * (found - 1) ** 2).sum() - (count - 1)
        spread = excess / (precision.sum() - (precision**2).sum() / precision.sum())
        share = spread / (spread + 1 / precision)
        scales = np.maximum(1 + share * (found - 1), 0.1)
        scale_variances = share / precision
        rest = rest * scales[code, None]
        g, _ = _solve(rest, left)
    curvature = np.tensordot(g[: len(pairs)], _symmetric_units(size), axes=1)
    if np.linalg.eigvalsh(curvature)[0] <= 0:
        return None
    freedom = max(freedom, 1)
    variance = misses / freedom
    covariance = variance * np.linalg.pinv(rest.T @ rest)

    found = []
    for k in range(count):
        rows = code == k
        solve = np.linalg.pinv(own[rows])
        a, *b = solve @ (y[rows] - products[rows] @ (scales[k] * g))
        # errors of the curvature move height and slopes; those of the rows are apart
        of_g = scales[k] ** 2 * covariance + scale_variances[k] * np.outer(g, g)
        moved = np.vstack([-solve @ products[rows], np.eye(len(pairs), len(g))])
        errors = moved @ of_g @ moved.T
        errors[: size + 1, : size + 1] += variance * solve @ solve.T
        found.append(
            _find_vertex(a, np.array(b), scales[k] * curvature, errors, u[rows])
        )
    at, vertex, sd, log_loss, log_sd, at_edge = map(np.array, zip(*found, strict=True))
    vertex, away = vertex + centre, stats.t.ppf(0.95, freedom) * sd
    apart = [(int(i), int(j)) for i, j in pairs[~is_known]]
    ends = vertex - away, vertex + away
    return _Lowest(at + centre, *ends, log_loss, log_sd, at_edge, apart, is_skewed)


def _solve(
    basis: Float[np.ndarray, "row product"], y: Losses
) -> tuple[Float[np.ndarray, " product"], float]:
    coefficients, *_ = np.linalg.lstsq(basis, y)
    return coefficients, float(((y - basis @ coefficients) ** 2).sum())


def _is_better(misses: float, before: float, added: int, freedom: int) -> bool:
    """Tell whether ``added`` coefficients show in the sum of squares (F test at 1%)."""
    if freedom < 1:
        return False
    worth = stats.f.isf(0.01, added, freedom) * added * misses / freedom
    return bool(before - misses > worth)


def _multiply_pairs(x: Rows) -> Float[np.ndarray, "row pair"]:
    """Multiply settings in pairs i <= j, as x' G x sums them by G's upper triangle."""
    units = _symmetric_units(x.shape[1])
    return np.einsum("ri,pij,rj->rp", x, units, x)


def _symmetric_units(settings: int) -> Float[np.ndarray, "pair setting setting"]:
    """Build the symmetric matrices with a one at i, j and j, i, for each i <= j."""
    pairs = np.transpose(np.triu_indices(settings))
    units = np.zeros((len(pairs), settings, settings))
    for unit, (i, j) in zip(units, pairs, strict=True):
        unit[i, j] = unit[j, i] = 1
    return units
