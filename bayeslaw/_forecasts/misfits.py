"""Show a law's misfit, and split the width of forecasts into parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.frames import Table
from bayeslaw._base.numbers import LARGEST_COUNT, Z90, format_count
from bayeslaw._inference.discrepancy import drift
from bayeslaw._inference.discrepancy.axes import AXES
from bayeslaw._inference.discrepancy.process import Process
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.posterior import DRIFT, WEIGHTS, LogLoss, Piece, Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

PARTS = ("noise", "parameters", "misfit", "drift", "laws")


def width_parts(
    posterior: Posterior | str | Path, runs: Table | str | Path
) -> pd.DataFrame:
    """Split the 90% interval of each run's forecast into parts, as shares of its loss.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`.
    runs
        Table with the columns that its laws read.

    Returns
    -------
    DataFrame
        The table's index; columns ``noise`` (of the run, with the effect of a new
        checkpoint or curve), ``parameters`` of the laws (without the part that the
        misfit compensates), ``misfit`` given the parameters, ``drift`` beyond the data,
        and ``laws`` (their differences). They add up to the width of a normal interval
        of the same variance, each in proportion to its variance.

    Examples
    --------
    >>> bayeslaw.width_parts(target, large).columns.tolist()
    ['noise', 'parameters', 'misfit', 'drift', 'laws']
    """
    runs = as_runs(runs)
    parts, _ = _split_width(as_posterior(posterior), runs)
    return parts.set_index(runs.index)


def drift_parts(
    posterior: Posterior | str | Path, runs: Table | str | Path
) -> pd.DataFrame:
    """Split the drift in the 90% interval of each run's forecast by side of the data,
    as shares of its loss.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`.
    runs
        Table with the columns that its laws read.

    Returns
    -------
    DataFrame
        The table's index; a column for each side of each axis of drift, ``N above``,
        ``N below``, ``D/N below`` and so on; no columns if nothing drifts. They add up
        to the ``drift`` of `width_parts`.

    Examples
    --------
    >>> parts = bayeslaw.drift_parts(target, large)
    >>> parts.loc[:, parts.max() > 0].columns.to_list()
    ['N above', 'D above', 'N*D above']
    """
    runs = as_runs(runs)
    _, drift_by_side = _split_width(as_posterior(posterior), runs)
    return drift_by_side.set_index(runs.index)


def drift_sentence(
    posterior: Posterior, runs: pd.DataFrame, forecasts: pd.DataFrame
) -> str | None:
    """Name the direction of drift that makes the widest forecast wide; None if drift is
    not the reason.

    ``forecasts``: of the runs, from `forecast`.
    """
    formulas = [formula for _, formula in _pieces(posterior)]
    if all(formula.training_range is None for formula in formulas):
        return None
    width = (forecasts["high"] - forecasts["low"]) / forecasts["median"]
    widest = runs.iloc[[int(np.argmax(width))]]
    parts, by_side = _split_width(posterior, widest)
    if by_side.empty or by_side.sum(axis=None) <= 0.5 * parts.sum(axis=None):
        return None
    side = str(by_side.iloc[0].idxmax())
    axis, _, way = side.rpartition(" ")
    # from the edge of the training range to the run
    formula = next(f for f in formulas if axis in getattr(f.training_range, "axes", ()))
    known = formula.training_range
    assert known is not None
    ends = known.high if way == "above" else known.low
    at = drift.positions(fitting.covariates(formula.law, widest), np)[axis]
    gap = sorted((ends[known.axes.index(axis)], float(at[0])))
    low, high = (_format_level(axis, drift.value_at(axis, end)) for end in gap)
    return (
        f"row {widest.index[0]}: most of the width is drift along {side}: no run was "
        f"fitted there; runs with {axis} between {low} and {high} would narrow it"
    )


def _format_level(axis: str, value: float) -> str:
    is_count = axis in ("N", "D") and value < LARGEST_COUNT
    return format_count(value) if is_count else f"{value:.3g}"


def shift_sentence(
    posterior: Posterior, runs: pd.DataFrame, least: float = 0.005
) -> str | None:
    """Write a line about the forecast that the median drift moves most; None if it
    moves by less than the share ``least`` of the loss.
    """
    moves = []
    for piece, formula in _pieces(posterior):
        if formula.training_range is not None:
            away = formula.beyond(fitting.covariates(formula.law, runs))
            moves.append(np.asarray(piece.values[DRIFT]) @ away.T)
    if not moves:
        return None
    shift = np.median(np.concatenate(moves), axis=0)
    most = int(np.argmax(np.abs(shift)))
    if abs(shift[most]) < least:
        return None
    way = "higher" if shift[most] > 0 else "lower"
    return (
        f"row {runs.index[most]}: drift makes the forecast {abs(shift[most]):.1%} {way} "
        "than the laws have it: beyond their runs, laws err to one side"
    )


def too_wide(
    posterior: Posterior,
    runs: pd.DataFrame,
    width: float,
    error: float,
    most: float = 10.0,
) -> str | None:
    """Write a line if 90% intervals are over ``most`` times as wide as the mean error
    of the runs, with the largest part of the width. An ideal interval is about four
    times as wide.

    ``width`` and ``error``: means over the runs, relative to the loss.
    """
    if not width > most * error:
        return None
    said = f"intervals are {width / max(error, 1e-9):.0f} times as wide as the errors"
    if not _pieces(posterior):
        return said
    of_runs, by_side = _split_width(posterior, runs)
    parts = of_runs.mean()
    part, share = str(parts.idxmax()), float(parts.max() / parts.sum())
    if part == "drift":
        part = f"drift along {by_side.mean().idxmax()}"
    return f"{said}, where 4 would do: {share:.0%} of the width is {part}"


def _pieces(posterior: Posterior) -> list[tuple[Piece, LogLoss]]:
    """Select the pieces that belong to a law and have its parts, with their formulas."""
    return [
        (piece, piece.log_loss)
        for piece in posterior.pieces()
        if isinstance(piece.log_loss, LogLoss)
    ]


def _split_width(
    posterior: Posterior, runs: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the width of each run's normal 90% interval in proportion to the variances
    of its parts: a table with a column for each part, and one with a column for the
    drift to each side.
    """
    pieces = _pieces(posterior)
    if not pieces:
        raise LawError(f"{posterior.name}: its draws do not say what they are made of")
    counts = np.array([piece.draws for piece, _ in pieces])
    share = counts / counts.sum()
    by_side: dict[str, Any] = {}
    variance, centres = pd.DataFrame(0.0, range(len(runs)), list(PARTS)), []
    for weight, (piece, formula) in zip(share, pieces, strict=True):
        centre, of_law, drifts = _find_variances(piece, formula, runs)
        centres.append(centre)
        for name, values in of_law.items():
            variance[name] += weight * values
        for side, values in drifts.items():
            by_side[side] = by_side.get(side, 0.0) + weight * values
    log_losses = np.stack(centres)  # (law, run)
    variance["laws"] = share @ (log_losses - share @ log_losses) ** 2
    of_drift = pd.DataFrame(by_side, variance.index)
    variance["drift"] = of_drift.to_numpy().sum(axis=1)
    # parts of the variance times this ratio are parts of the width
    ratio = 2 * Z90 / np.sqrt(variance.to_numpy().sum(axis=1))
    return variance.mul(ratio, axis=0), of_drift.mul(ratio, axis=0)


def _find_variances(
    piece: Piece, full: LogLoss, runs: pd.DataFrame
) -> tuple[Float[np.ndarray, " run"], dict[str, Any], dict[str, Any]]:
    """Compute the mean log loss of a law's draws, the variances by part, and those of
    the drift by side, each of shape (run,).
    """
    columns = fitting.covariates(full.law, runs)
    alone = with_misfit = replace(piece, log_loss=LogLoss(full.law)).at(columns)
    if full.process:
        without_drift = replace(full, training_range=None)
        with_misfit = replace(piece, log_loss=without_drift).at(columns)
    centre, by_side = with_misfit.mean(axis=0), {}
    if full.training_range is not None:
        away = full.beyond(columns)
        rates = np.asarray(piece.values[DRIFT])
        centre = centre + away @ rates.mean(axis=0)
        axes, ways = full.training_range.axes, ("above", "below")
        sides = [f"{axis} {way}" for axis in axes for way in ways]
        by_side = dict(zip(sides, (away**2 * rates.var(axis=0)).T, strict=True))
    # Inside the data, each draw's misfit compensates the error of its parameters. So
    # the part of the misfit that a regression on the law's loss predicts counts as
    # parameters, and the residual part as misfit. The two variances add up to that of
    # law plus misfit.
    x, y = alone - alone.mean(axis=0), with_misfit - alone
    y = y - y.mean(axis=0)
    spread = np.maximum(np.mean(x**2, axis=0), 1e-300)
    slope = np.mean(x * y, axis=0) / spread
    misfit = np.mean((y - slope * x) ** 2, axis=0)
    parts = {
        "noise": piece.error_size(columns) ** 2 * np.mean(piece.noise.capped_variance),
        "parameters": np.maximum(with_misfit.var(axis=0) - misfit, 0.0),
        "misfit": misfit,
    }
    return centre, parts, by_side


def misfit_along(
    posterior: Posterior | str | Path,
    runs: Table | str | Path,
    axis: str,
    points: int = 60,
) -> pd.DataFrame:
    """Evaluate a law's misfit along one column over the range of the data, with the
    other columns at a middle run.

    Parameters
    ----------
    posterior
        A `Fit`, or an `Average`, whose law with most draws is shown.
    runs
        The training runs.
    axis
        The column that varies.

    Returns
    -------
    DataFrame
        ``axis`` and quantiles ``low``, ``median``, ``high`` (90%) of the misfit of log
        loss: positive where losses are above the law.

    Raises
    ------
    LawError
        The draws have no misfit, or the law does not read the column.

    Examples
    --------
    >>> bayeslaw.misfit_along(target, of_target, "D", points=5).columns.tolist()
    ['D', 'low', 'median', 'high']
    """
    found = _heaviest_misfit(as_posterior(posterior))
    if found is None:
        raise LawError("these draws have no misfit: fit without --plain")
    piece, formula, process = found
    columns = fitting.covariates(formula.law, as_runs(runs))
    if axis not in columns:
        readable = ", ".join(columns)
        raise LawError(f"law {formula.law.name!r} does not read {axis!r}: {readable}")
    # the run nearest to the median of every column, by ranks
    ranks = [pd.Series(v).rank(pct=True).to_numpy() for v in columns.values()]
    nearest = int(np.argmin(np.sum((np.array(ranks) - 0.5) ** 2, axis=0)))
    middle = {name: float(v[nearest]) for name, v in columns.items()}
    x = np.asarray(columns[axis], float)
    grid = (
        np.linspace(x.min(), x.max(), points)
        if axis == "replay" or axis in AXES.starts or x.min() <= 0
        else np.geomspace(x.min(), x.max(), points)
    )
    along = {name: np.full(points, value) for name, value in middle.items()}
    features = process.features(along | {axis: grid}, np)
    draws = np.asarray(piece.values[WEIGHTS]) @ features.T
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return pd.DataFrame({axis: grid, "low": low, "median": median, "high": high})


def misfit_and_noise(
    posterior: Posterior, runs: pd.DataFrame
) -> tuple[float, float] | None:
    """Compute the root mean square of a law's misfit over runs, and the sd of a run's
    noise, both in log loss, for the law with most draws; None if it has no misfit.
    """
    found = _heaviest_misfit(posterior)
    if found is None:
        return None
    piece, formula, process = found
    features = process.features(fitting.covariates(formula.law, runs), np)
    misfits = np.asarray(piece.values[WEIGHTS]) @ features.T
    variance = np.mean(piece.noise.capped_variance)
    return float(np.sqrt(np.mean(misfits**2))), float(np.sqrt(variance))


def _heaviest_misfit(posterior: Posterior) -> tuple[Piece, LogLoss, Process] | None:
    """Find the law with most draws, and its misfit; None if it has none."""
    piece = max(posterior.pieces(), key=lambda piece: piece.draws)
    formula = piece.log_loss
    if not isinstance(formula, LogLoss) or formula.process is None:
        return None
    return piece, formula, formula.process
