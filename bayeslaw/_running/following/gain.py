"""Compute a recipe's gain: the tokens that another needs for the same loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import POSITIVE, checked
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.answer import Answer, format_probability
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import pair_draws
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._running.following.course import course, unit_of
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.rates.areas import COLUMNS as AREAS
from bayeslaw._tables.runs import as_runs


@dataclass(frozen=True, eq=False)
class Gain(Answer):
    """Gain in compute, shape (draw,): the tokens that the usual recipe needs for the
    new recipe's loss, divided by the tokens of the new recipe. It is infinite if no
    budget in the search reaches that loss.
    """

    def statement(self) -> str:
        """State the worth of the recipe, with its 90% interval, in one sentence."""
        low, high = self.interval
        better = self.probability(low=1.0)
        return (
            f"The recipe is worth {self.median:.3g} times the compute (90% interval "
            f"{low:.3g} to {high:.3g}); it is better with probability "
            f"{format_probability(better)}."
        )


def compute_gain(
    usual: Posterior | str | Path,
    run: Table | str | Path,
    *,
    rival: Posterior | str | Path | None = None,
    seed: int = 0,
) -> Gain:
    """Estimate what a recipe is worth in compute, from one run of it.

    Where fitted runs of the usual recipe have the run's setting, the run is compared
    with what they did at its tokens, not with the law alone.

    Parameters
    ----------
    usual
        A posterior of the usual recipe's loss.
    run
        One row: the columns that the laws read, its tokens ``D``, and its measured
        ``loss``.
    rival
        A posterior of the new recipe; its forecast of a new run replaces the measured
        loss.
    seed
        Seed of the noise of new runs.

    Raises
    ------
    RunTableError
        There is not exactly one row, or a column is missing.

    Examples
    --------
    >>> run = pretrained.tail(1).assign(loss=lambda rows: 0.98 * rows["loss"])
    >>> gain = bayeslaw.compute_gain(pretraining, run)
    >>> bool(gain.median > 1)
    True
    """
    usual, run = as_posterior(usual), as_runs(run)
    rival = None if rival is None else as_posterior(rival)
    if len(run) != 1:
        raise RunTableError(f"a gain is of one run, and the table has {len(run)} rows")
    unit = unit_of(usual)
    check_columns(run, [unit, "loss"] if rival is None else [unit], what="the run")
    tokens = checked(unit, run[unit].iloc[0], POSITIVE)
    # a course goes on to four times its end, so budgets go up to forty times the run's
    along = course(usual, run, 10.0 * tokens, seed=seed)
    draws = len(along.error)
    if rival is None:
        loss = checked("loss", run["loss"].iloc[0], POSITIVE)
        reached = np.full(draws, np.log(loss))
    else:
        # another seed, so that runs of the two recipes have independent noise
        if set(columns_read(rival)) & set(AREAS):
            # a row says what areas are at its end, not along the run
            new = rival.log_loss(run, noise=True, seed=seed + 1)[:, 0]
        else:
            of_rival = course(rival, run, tokens, seed=seed + 1)
            new = of_rival.at(float(np.log(tokens))) + of_rival.error
        rng = generator(seed, Stream.PAIRS)
        _, order = pair_draws([draws, len(new)], rng, draws)
        reached = new[order]

    # the log tokens at which a new run first reaches each draw's loss: interpolated
    # between the first node below it and the node before; infinite if it never does
    over = along.at(along.clock) + (along.error - reached)[:, None]
    below = over <= 0
    node = np.argmax(below, axis=1)
    last = np.maximum(node - 1, 0)
    each = np.arange(draws)
    excess, next_excess = over[each, last], over[each, node]
    fall = np.where(excess > next_excess, excess - next_excess, 1.0)
    share = np.clip(excess / fall, 0.0, 1.0)
    start = along.clock[last]
    there = start + share * (along.clock[node] - start)
    needed = np.where(below.any(axis=1), there, np.inf)
    return Gain(np.exp(needed - np.log(tokens)))
