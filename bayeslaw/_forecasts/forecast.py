"""Compute the posterior predictive at any runs, for the law's loss and a new run's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import FitWarning, warn
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import CHANCE, checked
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.accuracy import AccuracyLink
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import shuffled
from bayeslaw._posteriors.pairs import new_sizes_of_plain_fits, own_far, table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.beyond import far_beyond
from bayeslaw._tables.fitting import warn_other_domain
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

# columns of a forecast
FORECAST = (
    "median low high log_sd law_low law_high accuracy? accuracy_low? accuracy_high?"
)
ONE_SD = (0.1587, 0.8413)  # shares of a normal below one sd under and over its mean


def forecast(
    posterior: Posterior | str | Path,
    runs: Table | Mapping[str, Any] | str | Path,
    *,
    prob: float = 0.9,
    keep: bool = False,
    accuracy: AccuracyLink | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Forecast the loss of each run, in nats per token.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`, or the path of its file.
    runs
        Table with the columns the law reads, the path of one, or one run as a mapping,
        ``{"N": "7B", "D": "20B"}``; other columns are ignored.
    prob
        Probability inside the central intervals.
    keep
        Also return the table's own columns, before those of the forecast.
    accuracy
        The link from loss to the accuracy of an evaluation (`accuracy_link`); it adds
        ``accuracy``, ``accuracy_low`` and ``accuracy_high`` of a new run.

    Returns
    -------
    DataFrame
        The table's index; ``median`` and the interval ``low``, ``high`` of a new run's
        loss, ``log_sd`` of its log (from the central 68%), and ``law_low``,
        ``law_high`` of the law's loss, which leaves out the noise of a run. A loss
        whose log is Student-t has no mean and no sd, so none is given.

    Raises
    ------
    PlanError
        ``prob`` is not strictly between 0 and 1.
    RunTableError
        The table lacks a column the law reads.

    Examples
    --------
    >>> bayeslaw.forecast(target, large).columns.tolist()
    ['median', 'low', 'high', 'log_sd', 'law_low', 'law_high']
    """
    prob = checked("prob", prob, CHANCE)
    posterior, runs = as_posterior(posterior), as_runs(runs)
    warn_of_distance(posterior, runs)
    blocks = [
        _of_block(posterior, block, prob, seed, accuracy) for block in _blocks(runs)
    ]
    rows = pd.concat(blocks).iloc[: len(runs)].set_index(runs.index)
    if not keep:
        return rows
    columns = runs.drop(columns=[name for name in rows if name in runs])
    return pd.concat([columns, rows], axis=1)


def warn_of_distance(posterior: Posterior, runs: pd.DataFrame) -> None:
    """Warn of runs of another domain than a posterior's table, or far beyond it."""
    fitted = table_of(posterior)
    warn_other_domain(fitted, runs)
    for line in [*far_beyond(fitted, runs), *own_far(posterior, runs)]:
        warn(f"{line}: nothing measured says how far a law holds there")
    for line in new_sizes_of_plain_fits([posterior], runs):
        warn(line, FitWarning)


def _blocks(runs: pd.DataFrame, size: int = 2000) -> list[pd.DataFrame]:
    """Split a table into blocks of rows that are forecast together, so that memory does
    not grow with the table. The last block is filled up with its own last row, so that
    all blocks share one program.
    """
    if len(runs) <= size:
        return [runs]
    last = len(runs) - 1
    blocks = []
    for start in range(0, len(runs), size):
        rows = np.arange(start, start + size)
        inside = np.minimum(rows, last)
        blocks.append(runs.iloc[inside])
    return blocks


def _of_block(
    posterior: Posterior,
    runs: pd.DataFrame,
    prob: float,
    seed: int,
    link: AccuracyLink | None,
) -> pd.DataFrame:
    """Forecast a block of runs: quantiles of losses, and of an accuracy."""
    law = posterior.log_loss(runs)
    new = posterior.log_loss(runs, noise=True, seed=seed)
    columns = quantiles_of(law, new, prob)
    if link is not None:
        low, high = (1 - prob) / 2, (1 + prob) / 2
        rng = generator(seed, Stream.EVALUATIONS)
        evaluations = link.take(shuffled(rng, link.draws, len(new))).of_new_evaluation(
            rng
        )
        accuracy = np.clip(evaluations.accuracy(np.exp(new)), 0.0, 1.0)
        middle, least, most = np.quantile(accuracy, [0.5, low, high], axis=0)
        columns |= {"accuracy": middle, "accuracy_low": least, "accuracy_high": most}
    return pd.DataFrame(columns)


def quantiles_of(
    law: Float[np.ndarray, "draw run"], new: Float[np.ndarray, "draw run"], prob: float
) -> dict[str, Float[np.ndarray, " run"]]:
    """Summarise log losses of the law and of new runs as `forecast` returns them."""
    # exp keeps the order, so it can be applied to the quantiles
    low, high = (1 - prob) / 2, (1 + prob) / 2
    of_new = np.quantile(new, [0.5, low, high, *ONE_SD], axis=0)
    law_low, law_high = np.quantile(law, [low, high], axis=0)
    return {
        "median": np.exp(of_new[0]),
        "low": np.exp(of_new[1]),
        "high": np.exp(of_new[2]),
        "log_sd": (of_new[4] - of_new[3]) / 2,
        "law_low": np.exp(law_low),
        "law_high": np.exp(law_high),
    }
