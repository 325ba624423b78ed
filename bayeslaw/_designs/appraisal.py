"""Appraise runs on offer for a goal: the cost and gain of each pick of a list, the best
list within limits, and where it ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._designs.criteria import Criterion, Variance
from bayeslaw._designs.evidence import Gaussian, gaussian
from bayeslaw._designs.gaussian import Offer, Pick, Precision
from bayeslaw._designs.goals.goal import KINDS, Goal
from bayeslaw._designs.menu import Menu
from bayeslaw._designs.search import Limits, choose, greedy, order_by_worth
from bayeslaw._posteriors.outcomes import BATCHES

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Market:
    """Runs on offer, and how they are valued for a goal."""

    menu: Menu
    goal: Goal
    approximation: Gaussian
    criterion: Criterion

    @classmethod
    def of(cls, menu: Menu, goal: Goal) -> Market:
        approximation = gaussian(menu, goal.domains)
        return cls(menu, goal, approximation, goal.criterion(approximation.goals))

    @property
    def offer(self) -> Offer:
        return self.approximation.offer


@dataclass(frozen=True, eq=False)
class Appraisal:
    """A list of runs: cost (with its checkpoint if it is the first to need it) and gain
    of each pick, given the picks before it.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    gain: Float[np.ndarray, " pick"]
    # gains by each batch of draws; 0 if there are too few draws
    batches: Float[np.ndarray, "batch pick"]
    sds: list[float]  # root mean square sd of the goal before and after each pick

    @property
    def gain_error(self) -> Float[np.ndarray, " pick"]:
        """Monte Carlo error of each gain, by batch means."""
        return np.std(self.batches, axis=0, ddof=1) / math.sqrt(BATCHES)


def best_list(
    market: Market, limits: Limits, least: float | None = None
) -> tuple[Appraisal, str]:
    """Find the best runs within the limits, and the reason why the list ends there.

    The picks kept have the largest sum of gain minus ``least`` times cost, by default
    the least of the goal's kind.
    """
    offer, gain = market.offer, market.goal.gain
    least = KINDS[gain].least if least is None else least
    if gain != "plan":
        # if the possible gain is limited, the rate is a share of it
        least *= market.criterion.total / limits.budget
    appraisal, is_chance = _find_certain_picks(market, limits)
    picks = appraisal.picks
    # a run may be worth its cost only with later ones, for example of the same
    # checkpoint
    beyond = np.cumsum(appraisal.gain - least * appraisal.cost)
    count = int(np.argmax([0.0, *beyond]))
    if count < len(picks):
        kept = appraise_picks(market, picks[:count])
        return kept, "the next run gains less for its cost than asked for"
    fits = offer.due(offer.checkpoints_of(picks)) <= (
        limits.budget - offer.price_picks(picks)
    )
    if not np.isfinite(offer.cost).any():
        stop = "all runs on offer are had already"
    elif fits.any() and not (fits & limits.allow(offer, picks)).any():
        stop = (
            "what fits the rest of the budget has been bought as often as allowed "
            f"(replicates: {np.max(limits.replicates)})"
        )
    elif len(picks) == limits.picks:
        stop = "the batch is full"
    elif not fits.any():
        stop = "nothing else fits the budget"
    elif is_chance:
        stop = "what else fits gains no more than its Monte Carlo error"
    else:
        stop = f"nothing {'left' if picks else 'on offer'} is worth buying"
    return appraisal, stop


def _find_certain_picks(
    market: Market, limits: Limits, errors: float = 2.0
) -> tuple[Appraisal, bool]:
    """Find the best runs within the limits, and tell whether doubtful runs were left
    out.

    A run is doubtful if its gain is at most ``errors`` times the gain's Monte Carlo
    error. If all doubtful runs together gain no more than that, their cost is spent on
    other runs.
    """
    offer, criterion = market.offer, market.criterion
    picks = choose(offer, criterion, limits)
    barred = np.zeros(offer.cost.shape, bool)
    while True:
        appraisal = appraise_picks(market, picks)
        is_chance = appraisal.gain <= errors * appraisal.gain_error
        doubtful = [picks[i] for i in np.flatnonzero(is_chance)]
        certain = [picks[i] for i in np.flatnonzero(~is_chance)]
        if not doubtful:
            return appraisal, bool(barred.any())
        reordered = appraise_picks(market, [*certain, *doubtful])
        last = slice(len(certain), None)
        together = reordered.batches[:, last].sum(axis=1)
        error = np.std(together, ddof=1) / math.sqrt(BATCHES)
        if reordered.gain[last].sum() > errors * error:
            return appraisal, bool(barred.any())
        for run, stop in doubtful:
            barred[run, : stop + 1] = True
        others = limits._replace(replicates=np.where(barred, 0, limits.replicates))
        more = greedy(offer, criterion, others, 1.0, bought=certain)
        picks = order_by_worth(offer, criterion, more)


def appraise_picks(
    market: Market, picks: list[Pick], draws_a_coordinate: int = 4
) -> Appraisal:
    """Appraise picks in their order.

    The gains of a batch are 0 if it has fewer than ``draws_a_coordinate`` draws for
    each coordinate, because its covariance could not be inverted.
    """
    offer, approximation = market.offer, market.approximation
    informations = [offer.information(pick) for pick in picks]
    start = np.eye(offer.coordinates)
    # the precision after no pick, the first, the first two, ...
    known = [*accumulate(informations, initial=Precision(start))]
    gain = np.diff([market.criterion.value(precision) for precision in known])
    price = [offer.price_picks(picks[:count]) for count in range(len(picks) + 1)]
    draws, rank = approximation.draws.shape
    batches = np.zeros((BATCHES, len(picks)))
    if draws >= draws_a_coordinate * rank * BATCHES and picks:
        for b in range(BATCHES):
            # all draws together have unit covariance, a batch has its own
            of_batch = approximation.draws[approximation.batch == b]
            covariance = np.atleast_2d(np.cov(of_batch.T, bias=True))
            of_start = start.copy()
            of_start[:rank, :rank] = np.linalg.inv(draws * covariance)
            in_batch = accumulate(informations, initial=Precision(of_start))
            batches[b] = np.diff([market.criterion.value(p) for p in in_batch])
    variance = Variance(approximation.goals)
    lowered = np.array([variance.value(precision) for precision in known])
    sds = np.sqrt(np.maximum(variance.total - lowered, 0.0)).tolist()
    return Appraisal(picks, np.diff(price), gain, batches, sds)
