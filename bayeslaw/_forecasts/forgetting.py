"""Compute the cost of forgetting: the share of pre-training that fine-tuning undoes,
over posterior draws (Bethune 2025); and the exchange rate of replay: the rise of the
target loss for each nat by which replay lowers the source loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.limits import CHANCE, RATE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import pair_draws
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.before import of_source
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Cost:
    """Share of pre-training progress that fine-tuning undoes (Bethune 2025, figure 14).

    Parameters
    ----------
    lost
        1 minus the share of the pre-training tokens at which pre-training had the
        source loss after fine-tuning, shape (draw, run).
    runs
        The runs, with ``N`` and the tokens of pre-training ``pretraining_tokens``.
    """

    lost: Float[np.ndarray, "draw run"]
    runs: pd.DataFrame

    def table(self, prob: float | str = 0.9) -> pd.DataFrame:
        """Summarise each run in a row: ``median``, ``low``, ``high`` of the lost share.

        And ``flops``, the median share of 6 N D.
        """
        tail = (1 - checked("prob", prob, CHANCE)) / 2
        low, median, high = np.quantile(self.lost, [tail, 0.5, 1 - tail], axis=0)
        pretraining = 6 * self.runs["N"] * self.runs["pretraining_tokens"]
        flops = pretraining * median
        columns = {"median": median, "low": low, "high": high, "flops": flops}
        return pd.DataFrame(columns, index=self.runs.index)

    def statements(self) -> tuple[str, ...]:
        """Describe each run in a line."""
        rows = zip(self.runs.itertuples(), self.table().itertuples(), strict=True)
        return tuple(
            f"{format_count(run.N)} parameters, "
            f"fine-tuned on {format_count(run.D)} tokens: "
            f"{row.median:.0%} of pre-training is lost "
            f"(90%: {row.low:.0%} to {row.high:.0%}), {row.flops:.2g} FLOPs"
            for run, row in rows
        )


def progress_lost(
    after: Float[np.ndarray, " draw"],
    tokens: Float[np.ndarray, " point"],
    losses: Float[np.ndarray, " point"] | Float[np.ndarray, "draw point"],
) -> Float[np.ndarray, " draw"]:
    """Compute the share of pre-training progress lost by a model whose source loss has
    risen.

    The share is 1 - t/T, if pre-training first reached that loss at t of its T tokens.
    Between two points, t is interpolated in log tokens. The share is 0 if the loss is
    not above the final loss; a loss above the curve's first point counts as that point.

    Parameters
    ----------
    after
        The source loss after fine-tuning, shape (draw,).
    tokens, losses
        The curve of pre-training: increasing tokens, shape (point,); losses of shape
        (point,) or (draw, point).

    Examples
    --------
    >>> tokens, losses = np.array([1e9, 1e10, 1e11]), np.array([4.0, 3.0, 2.0])
    >>> bayeslaw.progress_lost(np.array([2.5, 3.0]), tokens, losses).round(3).tolist()
    [0.684, 0.9]
    """
    curves = np.broadcast_to(losses, (len(after), len(tokens)))
    # The lowest loss so far never rises, so in reverse order it never falls, as
    # `interp` requires.
    lowest = np.minimum.accumulate(curves, axis=1)[:, ::-1]
    log_tokens = np.log(np.asarray(tokens, float))[::-1]
    reached = [
        np.interp(loss, curve, log_tokens)
        for loss, curve in zip(after, lowest, strict=True)
    ]
    return -np.expm1(np.asarray(reached) - log_tokens[0])


def cost_of_forgetting(
    posterior: Posterior | str | Path,
    runs: Table | str | Path,
    pretraining: Posterior | str | Path | Table,
    *,
    seed: int = 0,
) -> Cost:
    """Compute the share of pre-training progress lost in each run, for every draw.

    Parameters
    ----------
    posterior
        Posterior of the source loss after fine-tuning, for instance a fit of `forgetting`.
    runs
        Table with the columns that its law reads, and N.
    pretraining
        Either measured curves of pre-training, with rows of ``N``, ``D`` and ``loss``.
        The curves are not shifted, so the rise of the loss by re-warming counts as
        lost, too. Or a posterior of a law in N and D. Its curve over ``ptpp`` N tokens
        is shifted to end at the run's ``loss_before``.
    seed
        Seed that pairs the independent draws of the two posteriors.

    Raises
    ------
    RunTableError
        A column is missing, or a run's model has no curve.

    Examples
    --------
    >>> after = pretrained.tail(1)
    >>> curve = pd.DataFrame({"N": after["N"].item(), "D": [1e9, 1e10, 1e11]})
    >>> curve["loss"] = [9.0, 3.0, 1.0]
    >>> bayeslaw.cost_of_forgetting(pretraining, after, curve).lost.shape[1]
    1
    """
    posterior, runs = as_posterior(posterior), as_runs(runs)
    pretraining = as_frame(pretraining)
    is_measured = isinstance(pretraining, pd.DataFrame)
    curves = as_runs(pretraining) if is_measured else as_posterior(pretraining)
    runtime.start()
    after = np.exp(posterior.log_loss(runs))  # (draw, run)
    needed = ["N"] if is_measured else ["N", LOSS_BEFORE, "ptpp"]
    check_columns(runs, needed, ", which the cost of forgetting needs")
    lost, last_tokens = [], []
    for losses_after, (row, run) in zip(after.T, runs.iterrows(), strict=True):
        size = float(run["N"])
        if isinstance(curves, pd.DataFrame):
            points = _select_curve(curves, size, row)
            tokens, losses = (points[c].to_numpy(float) for c in ("D", "loss"))
        else:
            # the curve begins at a ten-thousandth of the tokens, and ends at the
            # measured loss
            tokens = float(run["ptpp"]) * size * np.geomspace(1e-4, 1.0, 400)
            curve = np.exp(curves.log_loss(pd.DataFrame({"N": size, "D": tokens})))
            curve = curve - curve[:, -1:] + float(run[LOSS_BEFORE])
            rng = generator(seed, Stream.PAIRS)
            of_run, of_curve = pair_draws([len(after), len(curve)], rng)
            losses_after, losses = losses_after[of_run], curve[of_curve]
        lost.append(progress_lost(losses_after, tokens, losses))
        last_tokens.append(tokens[-1])
    return Cost(np.stack(lost, axis=1), runs.assign(pretraining_tokens=last_tokens))


def _select_curve(curves: pd.DataFrame, size: float, row: Any) -> pd.DataFrame:
    check_columns(curves, ("N", "D", "loss"), what="the table of pre-training's curves")
    points = curves[np.isclose(curves["N"], size, rtol=1e-6)].sort_values("D")
    if len(points) < 2:
        sizes = ", ".join(format_count(n) for n in np.unique(curves["N"]))
        raise RunTableError(
            f"row {row}: no curve of pre-training of a model of "
            f"{format_count(size)}; there are: {sizes}"
        )
    twice = points["D"].duplicated()
    if twice.any():
        raise RunTableError(
            f"two losses of pre-training at N = {format_count(size)}, D = "
            f"{format_count(points['D'][twice].iloc[0])}: select one run and one domain"
        )
    return points


# -- what replay costs -----------------------------------------------------------------


def exchange_rate(
    target: Posterior | str | Path,
    source: Posterior | str | Path,
    runs: Table | str | Path,
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
        laws read; ``loss_before`` is the target's, ``source_loss_before`` the source's.
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
    check_columns(table, ["replay"], ", along which an exchange rate is")
    low = np.clip(table["replay"] - step, 0.0, 1.0)
    high = np.clip(table["replay"] + step, 0.0, 1.0)
    slopes = []  # of each loss along replay, shape (draw, run)
    for posterior, mixes in ((target, table), (source, of_source(table))):
        posterior = as_posterior(posterior)
        ends = [mixes.assign(replay=replay) for replay in (low, high)]
        below, above = (np.exp(posterior.log_loss(runs)) for runs in ends)
        slopes.append((above - below) / (high - low).to_numpy())
    orders = pair_draws([len(slope) for slope in slopes], generator(seed, Stream.PAIRS))
    rise, fall = (x[i] for x, i in zip(slopes, orders, strict=True))
    exchanges = (rise > 0) & (fall < 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.where(exchanges, -rise / fall, np.nan)
    chance = exchanges.mean(axis=0)
    tail = (1 - prob) / 2
    rows = [
        np.nanquantile(draws, [0.5, tail, 1 - tail]) if share >= 0.1 else [np.nan] * 3
        for draws, share in zip(rates.T, chance, strict=True)
    ]
    found = pd.DataFrame(rows, columns=["rate", "low", "high"], index=table.index)
    return found.assign(chance=chance)
