"""Posterior predictive at any table of runs: the law's loss, and a new run's, apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.beyond import warn_far
from bayeslaw._tables.fitting import warn_other_domain

if TYPE_CHECKING:
    from jaxtyping import Float


def forecast(
    posterior: Posterior, runs: pd.DataFrame, *, prob: float = 0.9, seed: int = 0
) -> pd.DataFrame:
    """Forecast the loss of each run, in nats per token.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`.
    runs
        Table with the columns the law reads; other columns are ignored.
    prob
        Probability inside the central intervals.

    Returns
    -------
    DataFrame
        The table's index; ``median`` and the interval ``low``, ``high`` of a new run's
        loss, ``log_sd`` of its log (from the central 68%), and ``law_low``,
        ``law_high`` of the law's loss, which leaves out the noise of a run. A loss
        whose log is Student-t has no mean and no sd, so none is told.

    Raises
    ------
    ValueError
        ``prob`` is not strictly between 0 and 1.
    RunTableError
        The table lacks a column the law reads.
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must be strictly between 0 and 1, got {prob}")
    fitted = getattr(posterior, "runs", None)
    warn_other_domain(fitted, runs)
    warn_far(fitted, runs)
    law = np.exp(posterior.log_loss(runs))  # (draw, run), as the next
    new = np.exp(posterior.log_loss(runs, noise=True, seed=seed))
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    low, high = np.quantile(new, tails, axis=0)
    law_low, law_high = np.quantile(law, tails, axis=0)
    columns = {
        "median": np.median(new, axis=0),
        "low": low,
        "high": high,
        "log_sd": _robust_sd(np.log(new)),
        "law_low": law_low,
        "law_high": law_high,
    }
    return pd.DataFrame(columns, index=runs.index)


def _robust_sd(draws: Float[np.ndarray, "draw run"]) -> Float[np.ndarray, " run"]:
    """Half the width of the central 68% of draws (draw, run), shape (run,)."""
    # a normal has these shares below one sd under and over its mean
    ends = [0.1587, 0.8413]
    low, high = np.quantile(draws, ends, axis=0)
    return (high - low) / 2
