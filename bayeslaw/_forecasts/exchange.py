"""Estimate the exchange rate of replay: the rise of the target loss for each nat by
which replay lowers the source loss.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.limits import CHANCE, RATE, checked
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import pair_draws
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.runs import as_runs


def exchange_rate(
    target: Posterior | str | Path,
    source: Posterior | str | Path,
    runs: pd.DataFrame | str | Path,
    *,
    prob: float | str = 0.9,
    step: float = 0.01,
    seed: int = 0,
) -> pd.DataFrame:
    """Estimate how many nats the target loss rises for each nat that the source loss
    falls, if a little more of the data is replay.

    Three mixes at one size are enough for an estimate. Fits of a handful of runs rest
    on their priors for the rest; then the interval is wide.

    Parameters
    ----------
    target, source
        Posteriors of both losses, whose laws read ``replay``, or the paths of their
        files. Their draws are taken in pairs, at random.
    runs
        Mixes at which to estimate the rate: ``replay`` and the other columns that the
        laws read.
    prob
        Probability inside the central interval.
    step
        Difference in replay, as a share of the data, over which the slope is taken.

    Returns
    -------
    DataFrame
        The table's index; ``rate`` (median), ``low``, ``high``; and ``chance``, the
        probability that more replay raises the target loss and lowers the source loss.
        The rate is that of these draws; it is NaN if they are fewer than one in ten.

    Raises
    ------
    PlanError
        ``prob`` is no probability, or ``step`` no share.
    RunTableError
        The table lacks a column that a law reads, or ``replay``.

    Examples
    --------
    >>> mixes = large.assign(replay=0.25)
    >>> rates = bayeslaw.exchange_rate(target, source, mixes.head(2))
    >>> rates.columns.tolist()
    ['rate', 'low', 'high', 'chance']
    """
    prob, step = checked("prob", prob, CHANCE), checked("step", step, RATE)
    table = as_runs(runs)
    if "replay" not in table:
        raise RunTableError("an exchange rate is along replay: give a column 'replay'")
    low = np.clip(table["replay"] - step, 0.0, 1.0)
    high = np.clip(table["replay"] + step, 0.0, 1.0)
    slopes = []  # of each loss along replay, shape (draw, run)
    for posterior in (as_posterior(target), as_posterior(source)):
        ends = [table.assign(replay=replay) for replay in (low, high)]
        below, above = (np.exp(posterior.log_loss(runs)) for runs in ends)
        slopes.append((above - below) / (high - low).to_numpy())
    orders = pair_draws([len(slope) for slope in slopes], generator(seed, Stream.PAIRS))
    of_target, of_source = (x[i] for x, i in zip(slopes, orders, strict=True))
    exchanges = (of_target > 0) & (of_source < 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(exchanges, -of_target / of_source, np.nan)
    chance = exchanges.mean(axis=0)
    tail = (1 - prob) / 2
    rows = [
        np.nanquantile(draws, [0.5, tail, 1 - tail]) if share >= 0.1 else [np.nan] * 3
        for draws, share in zip(rates.T, chance, strict=True)
    ]
    found = pd.DataFrame(rows, columns=["rate", "low", "high"], index=table.index)
    return found.assign(chance=chance)
