"""Posterior predictive at any table of runs: the law's loss, and a new run's, apart."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bayeslaw._posterior import Posterior
from bayeslaw._runs import warn_other_domain

COLUMNS = ("mean", "median", "sd", "low", "high", "law_low", "law_high")


def forecast(posterior: Posterior, runs: pd.DataFrame, *, prob: float = 0.9, seed: int = 0) -> pd.DataFrame:
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
        The table's index; ``mean``, ``median``, ``sd`` and the interval ``low``, ``high`` of a new run's loss, and
        ``law_low``, ``law_high`` of the law's, which leaves out the noise of a run.

    Raises
    ------
    ValueError
        ``prob`` is not strictly between 0 and 1.
    RunTableError
        The table lacks a column the law reads.
    """
    if not 0 < prob < 1:
        raise ValueError(f"prob must be strictly between 0 and 1, got {prob}")
    warn_other_domain(getattr(posterior, "runs", None), runs)
    law = np.exp(posterior.log_loss(runs))
    new = np.exp(posterior.log_loss(runs, noise=True, seed=seed))
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    low, high = np.quantile(new, tails, axis=0)
    law_low, law_high = np.quantile(law, tails, axis=0)
    columns = (new.mean(0), np.median(new, axis=0), new.std(0, ddof=1), low, high, law_low, law_high)
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)), index=runs.index)
