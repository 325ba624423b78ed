"""Show a law's misfit, and split the width of forecasts into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.numbers import LARGEST_COUNT, Z90, format_count
from bayeslaw._inference.discrepancy import drift
from bayeslaw._inference.discrepancy.axes import AXES
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.posterior import DRIFT, WEIGHTS, LogLoss, Piece, Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

PARTS = ("noise", "parameters", "misfit", "drift", "laws")


def width_parts(
    posterior: Posterior | str | Path, runs: pd.DataFrame | str | Path
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
    posterior, runs = as_posterior(posterior), as_runs(runs)
    variance = _variances(posterior, runs)
    width = _width_by_variance(variance)
    columns = {name: width * variance[name] for name in PARTS if name != "drift"}
    columns["drift"] = width * variance["drift"].to_numpy().sum(axis=1)
    return pd.DataFrame(columns, index=runs.index)[list(PARTS)]


def drift_parts(
    posterior: Posterior | str | Path, runs: pd.DataFrame | str | Path
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
    posterior, runs = as_posterior(posterior), as_runs(runs)
    variance = _variances(posterior, runs)
    width = _width_by_variance(variance)
    return variance["drift"].mul(width, axis=0).set_index(runs.index)


def drift_sentence(
    posterior: Posterior, runs: pd.DataFrame, forecasts: pd.DataFrame
) -> str | None:
    """Name the direction of drift that makes the widest forecast wide; None if drift is
    not the reason.

    ``forecasts``: of the runs, from `forecast`.
    """
    if not _pieces(posterior):
        return None
    width = (forecasts["high"] - forecasts["low"]) / forecasts["median"]
    widest = runs.iloc[[int(np.argmax(width))]]
    parts = drift_parts(posterior, widest)
    if parts.empty or parts.sum(axis=None) <= 0.5 * width_parts(posterior, widest).sum(
        axis=None
    ):
        return None
    side = str(parts.iloc[0].idxmax())
    axis = side.rpartition(" ")[0]
    low, high = (_level(axis, end) for end in _gap(posterior, widest, side))
    return (
        f"row {widest.index[0]}: most of the width is drift along {side}: no run was "
        f"fitted there; runs with {axis} between {low} and {high} would narrow it"
    )


def shift_sentence(
    posterior: Posterior, runs: pd.DataFrame, least: float = 0.005
) -> str | None:
    """Write a line about the forecast that the median drift moves most; None if it
    moves by less than the share ``least`` of the loss.
    """
    moves = []
    for piece in _pieces(posterior):
        formula = _law_of(piece)
        assert formula is not None
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
        "than the laws have it: beyond their runs, laws of N and D err to one side"
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
    parts = width_parts(posterior, runs).mean()
    part, share = str(parts.idxmax()), float(parts.max() / parts.sum())
    if part == "drift":
        part = f"drift along {drift_parts(posterior, runs).mean().idxmax()}"
    return f"{said}, where 4 would do: {share:.0%} of the width is {part}"


def _gap(posterior: Posterior, run: pd.DataFrame, side: str) -> tuple[float, float]:
    """List the values of a side's axis between the training runs and a run beyond them."""
    axis, _, way = side.rpartition(" ")
    for piece in _pieces(posterior):
        formula = _law_of(piece)
        assert formula is not None
        if formula.training_range is None or axis not in formula.training_range.axes:
            continue
        at = drift.positions(fitting.covariates(formula.law, run), np)[axis]
        ends = (
            formula.training_range.high
            if way == "above"
            else formula.training_range.low
        )
        edge = ends[formula.training_range.axes.index(axis)]
        low, high = sorted((edge, float(at[0])))
        return drift.value_at(axis, low), drift.value_at(axis, high)
    raise LookupError(side)


def _level(axis: str, value: float) -> str:
    """Format a value of an axis."""
    is_count = axis in ("N", "D") and value < LARGEST_COUNT
    return format_count(value) if is_count else f"{value:.3g}"


def _law_of(piece: Piece) -> LogLoss | None:
    return piece.log_loss if isinstance(piece.log_loss, LogLoss) else None


def _pieces(posterior: Posterior) -> list[Piece]:
    """Select the pieces that belong to a law and have its parts."""
    return [piece for piece in posterior.pieces() if _law_of(piece) is not None]


def _width_by_variance(variance: Mapping[str, Any]) -> Float[np.ndarray, " run"]:
    """Compute the width of a normal 90% interval over its variance, shape (run,). Parts
    of the variance times this ratio are parts of the width.
    """
    total = variance["drift"].to_numpy().sum(axis=1)
    total = total + sum(variance[name] for name in PARTS if name != "drift")
    return 2 * Z90 / np.sqrt(total)


def _variances(posterior: Posterior, runs: pd.DataFrame) -> dict[str, Any]:
    """Compute the variance of log loss by part, each of shape (run,), and a table of
    the drift's variance with a column for each side.
    """
    pieces = _pieces(posterior)
    if not pieces:
        raise LawError(f"{posterior.name}: its draws do not say what they are made of")
    counts = np.array([piece.draws for piece in pieces])
    share = counts / counts.sum()
    of_pieces = [_of_piece(piece, runs) for piece in pieces]
    variance: dict[str, Any] = {
        name: sum(
            w * parts[name] for w, (_, parts) in zip(share, of_pieces, strict=True)
        )
        for name in ("noise", "parameters", "misfit")
    }
    centres = np.stack([centre for centre, _ in of_pieces])  # (law, run)
    variance["laws"] = share @ (centres - share @ centres) ** 2
    by_side: dict[str, Any] = {}
    for w, (_, parts) in zip(share, of_pieces, strict=True):
        for side, values in parts["drift"].items():
            by_side[side] = by_side.get(side, 0.0) + w * values
    return variance | {"drift": pd.DataFrame(by_side, range(len(runs)))}


def _of_piece(
    piece: Piece, runs: pd.DataFrame
) -> tuple[Float[np.ndarray, " run"], dict[str, Any]]:
    """Compute the mean log loss of a law's draws and the variances by part, each of
    shape (run,), with the drift by side.
    """
    full = _law_of(piece)
    assert full is not None
    columns = fitting.covariates(full.law, runs)

    def draws(formula: LogLoss) -> Float[np.ndarray, "draw run"]:
        return replace(piece, log_loss=formula).at(columns)

    alone = draws(LogLoss(full.law))
    with_misfit = alone
    if full.process:
        with_misfit = draws(replace(full, training_range=None))
    centre, by_side = with_misfit.mean(axis=0), {}
    if full.training_range is not None:
        away = full.beyond(columns)
        rates = np.asarray(piece.values[DRIFT])
        centre = centre + away @ rates.mean(axis=0)
        sides = [
            f"{axis} {way}"
            for axis in full.training_range.axes
            for way in ("above", "below")
        ]
        by_side = dict(zip(sides, (away**2 * rates.var(axis=0)).T, strict=True))
    # Inside the data, each draw's misfit compensates the error of its parameters. So
    # the part of the misfit that a regression on the law's loss predicts counts as
    # parameters, and the residual part as misfit. The two variances add up to that of
    # law plus misfit.
    misfit = _residual_variance(with_misfit - alone, alone)
    return centre, {
        "noise": piece.error_size(columns) ** 2 * np.mean(piece.noise.capped_variance),
        "parameters": np.maximum(with_misfit.var(axis=0) - misfit, 0.0),
        "misfit": misfit,
        "drift": by_side,
    }


def _residual_variance(
    y: Float[np.ndarray, "draw run"], x: Float[np.ndarray, "draw run"]
) -> Float[np.ndarray, " run"]:
    """Compute the variance of y that a linear regression on x leaves, by run."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    spread = np.maximum(np.mean(x**2, axis=0), 1e-300)
    slope = np.mean(x * y, axis=0) / spread
    return np.mean((y - slope * x) ** 2, axis=0)


def misfit_along(
    posterior: Posterior | str | Path,
    runs: pd.DataFrame | str | Path,
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
    posterior = as_posterior(posterior)
    piece = max(posterior.pieces(), key=lambda piece: piece.draws)
    formula = _law_of(piece)
    if formula is None or formula.process is None:
        raise LawError("these draws have no misfit: fit without --plain")
    columns = fitting.covariates(formula.law, as_runs(runs))
    if axis not in columns:
        readable = ", ".join(columns)
        raise LawError(f"law {formula.law.name!r} does not read {axis!r}: {readable}")
    middle = _middle_run(columns)
    x = np.asarray(columns[axis], float)
    grid = (
        np.linspace(x.min(), x.max(), points)
        if axis == "replay" or axis in AXES.starts or x.min() <= 0
        else np.geomspace(x.min(), x.max(), points)
    )
    along = {name: np.full(points, value) for name, value in middle.items()}
    features = formula.process.features(along | {axis: grid}, np)
    draws = np.asarray(piece.values[WEIGHTS]) @ features.T
    low, median, high = np.quantile(draws, [0.05, 0.5, 0.95], axis=0)
    return pd.DataFrame({axis: grid, "low": low, "median": median, "high": high})


def misfit_and_noise(
    posterior: Posterior, runs: pd.DataFrame
) -> tuple[float, float] | None:
    """Compute the root mean square of a law's misfit over runs, and the sd of a run's
    noise, both in log loss, for the law with most draws; None if it has no misfit.
    """
    piece = max(posterior.pieces(), key=lambda piece: piece.draws)
    formula = _law_of(piece)
    if formula is None or formula.process is None:
        return None
    columns = fitting.covariates(formula.law, runs)
    features = formula.process.features(columns, np)
    misfits = np.asarray(piece.values[WEIGHTS]) @ features.T
    variance = np.mean(piece.noise.capped_variance)
    return float(np.sqrt(np.mean(misfits**2))), float(np.sqrt(variance))


def _middle_run(columns: Mapping[str, Float[np.ndarray, " run"]]) -> dict[str, float]:
    """Find the run nearest to the median of every column, by ranks."""
    ranks = [pd.Series(v).rank(pct=True).to_numpy() for v in columns.values()]
    nearest = int(np.argmin(np.sum((np.array(ranks) - 0.5) ** 2, axis=0)))
    return {name: float(v[nearest]) for name, v in columns.items()}
