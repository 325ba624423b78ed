"""Where a law is off, and what a forecast's width is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.numbers import Z90
from bayeslaw._inference.discrepancy.axes import STARTS
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, Piece, Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

PARTS = ("noise", "parameters", "misfit", "drift", "laws")


def width_parts(posterior: Posterior, runs: pd.DataFrame) -> pd.DataFrame:
    """What the 90% interval of each run's forecast is made of, as shares of its loss.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`.
    runs
        Table with the columns that its laws read.

    Returns
    -------
    DataFrame
        The table's index; columns ``noise`` (of the run, with a new checkpoint's or
        curve's effect), ``parameters`` of the laws, their ``misfit``, ``drift`` beyond
        the data, and ``laws`` (that differ). They add up to the width of a normal
        interval of the same variance, each in proportion to its variance.
    """
    pieces = [piece for piece in posterior.pieces() if _law_of(piece) is not None]
    if not pieces:
        raise LawError(f"{posterior.name}: its draws do not say what they are made of")
    counts = np.array([piece.draws for piece in pieces])
    share = counts / counts.sum()
    runs = as_runs(runs)
    each = [_variances(piece, runs) for piece in pieces]
    variance = {
        name: sum(w * parts[name] for w, (_, parts) in zip(share, each, strict=True))
        for name in PARTS[:-1]
    }
    centres = np.stack([centre for centre, _ in each])  # (law, run)
    middle = share @ centres
    variance["laws"] = share @ (centres - middle) ** 2
    total = sum(variance.values())
    width = 2 * Z90 * np.sqrt(total)
    columns = {name: width * variance[name] / total for name in PARTS}
    return pd.DataFrame(columns, index=runs.index)


def _law_of(piece: Piece) -> LogLoss | None:
    return piece.log_loss if isinstance(piece.log_loss, LogLoss) else None


def _variances(
    piece: Piece, runs: pd.DataFrame
) -> tuple[Float[np.ndarray, " run"], dict[str, Float[np.ndarray, " run"]]]:
    """Mean log loss of a law's draws, and variances by part, each of shape (run,)."""
    whole = _law_of(piece)
    assert whole is not None
    columns = fitting.covariates(whole.law, runs)

    def draws(formula: LogLoss) -> Float[np.ndarray, "draw run"]:
        return replace(piece, log_loss=formula).at(columns)

    alone = draws(LogLoss(whole.law))
    with_misfit = draws(replace(whole, known=None)) if whole.process else alone
    everything = draws(whole) if whole.known is not None else with_misfit
    noise = np.mean(piece.noise.capped_variance)
    # The misfit takes back what the law's parameters leave open inside the data: the
    # law's part is what is left of its variance, never more than the sum's.
    both = with_misfit.var(axis=0)
    parameters = np.minimum(alone.var(axis=0), both)
    return everything.mean(axis=0), {
        "noise": np.full(len(runs), noise),
        "parameters": parameters,
        "misfit": both - parameters,
        "drift": np.maximum(everything.var(axis=0) - both, 0.0),
    }


def misfit_along(
    posterior: Posterior, runs: pd.DataFrame, axis: str, points: int = 60
) -> pd.DataFrame:
    """A law's misfit along one column over the data, the others at a middle run.

    Parameters
    ----------
    posterior
        A `Fit`, or an `Average`, of which the law with most draws is shown.
    runs
        The runs that it was fitted to.
    axis
        The column that moves.

    Returns
    -------
    DataFrame
        ``axis`` and quantiles ``low``, ``median``, ``high`` (90%) of the misfit of log
        loss: positive where losses are above the law.

    Raises
    ------
    LawError
        The draws have no misfit, or the law does not read the column.
    """
    piece = max(posterior.pieces(), key=lambda one: one.draws)
    formula = _law_of(piece)
    if formula is None or formula.process is None:
        raise LawError("these draws have no misfit: fit without --plain")
    columns = fitting.covariates(formula.law, as_runs(runs))
    if axis not in columns:
        known = ", ".join(columns)
        raise LawError(f"law {formula.law.name!r} does not read {axis!r}: {known}")
    middle = _middle_run(columns)
    x = np.asarray(columns[axis], float)
    grid = (
        np.linspace(x.min(), x.max(), points)
        if axis == "replay" or axis in STARTS or x.min() <= 0
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
    """Root mean square of a law's misfit over runs, and sd of the noise of one of them,
    in log loss; of the law with most draws, None where it has no misfit.
    """
    piece = max(posterior.pieces(), key=lambda one: one.draws)
    formula = _law_of(piece)
    if formula is None or formula.process is None:
        return None
    columns = fitting.covariates(formula.law, runs)
    features = formula.process.features(columns, np)
    misfits = np.asarray(piece.values[WEIGHTS]) @ features.T
    variance = np.mean(piece.noise.capped_variance)
    return float(np.sqrt(np.mean(misfits**2))), float(np.sqrt(variance))


def _middle_run(columns: Mapping[str, Float[np.ndarray, " run"]]) -> dict[str, float]:
    """The run nearest to the median of every column, by ranks."""
    ranks = [pd.Series(v).rank(pct=True).to_numpy() for v in columns.values()]
    nearest = int(np.argmin(np.sum((np.array(ranks) - 0.5) ** 2, axis=0)))
    return {name: float(v[nearest]) for name, v in columns.items()}
