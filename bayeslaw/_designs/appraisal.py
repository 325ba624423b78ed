"""Appraise a list: the cost and gain of each pick, and where the list ends. The gains
are checked by draws that are reweighted by the likelihood of simulated outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslaw._base.streams import Stream, generator
from bayeslaw._designs.criteria import Criterion, Variance
from bayeslaw._designs.evidence import Domain, Gaussian
from bayeslaw._designs.gaussian import Offer, Pick, Precision
from bayeslaw._designs.menu import Menu
from bayeslaw._designs.search import Limits, choose, greedy, order_by_worth, what_fits
from bayeslaw._inference.diagnostics import pareto_smoothed
from bayeslaw._inference.noise import draw_new_effects
from bayeslaw._inference.table import MIN_GAP
from bayeslaw._posteriors.outcomes import BATCHES, RowErrors

if TYPE_CHECKING:
    from jaxtyping import Float


# above this, importance weights are unreliable (Vehtari, Simpson, Gelman, Yao and Gabry
# 2024)
MAX_KHAT = 0.7


class ReweightedDraws(NamedTuple):
    """Draws reweighted by outcomes."""

    # importance weights under each outcome, smoothed and normalised
    weights: Float[np.ndarray, "outcome draw"]
    khat: Float[np.ndarray, " outcome"]  # Pareto k-hat of the weights
    # draws of the goal with the effects of its checkpoint
    goal: Float[np.ndarray, "draw goal"]

    def variance(self) -> Float[np.ndarray, "outcome goal"]:
        """Compute the variance of each goal under each outcome, shape (outcome, goal),
        corrected for the effective number of draws.
        """
        mean = self.weights @ self.goal
        square = self.weights @ self.goal**2
        # with n effective draws (Kish) a variance is too small by the factor 1 - 1/n
        inverse_size = (self.weights**2).sum(axis=1, keepdims=True)
        return (square - mean**2) / np.maximum(1 - inverse_size, 1e-3)

    @property
    def median_khat(self) -> float:
        return float(np.median(self.khat))


def reweight(
    menu: Menu, domain: Domain, picks: Sequence[Pick], outcomes: int, seed: int
) -> ReweightedDraws:
    """Simulate outcomes of all rows that these picks measure from draws and weight all
    other draws by their likelihood.

    Effects of checkpoints and runs are drawn with each draw, so draws of law and
    effects are reweighted together. A run that continues measured points shares an
    error with these points, which is ignored.
    """
    by_pick = [menu.measured_by(pick) for pick in picks]
    rows = np.concatenate(by_pick)
    of_pick = np.repeat(np.arange(len(picks)), [len(r) for r in by_pick])
    checkpoint = menu.checkpoint[[run for run, _ in picks]][of_pick]
    # e-folds since the pick's previous row, infinite at its first
    gaps = [np.diff(menu.along[rows], prepend=-np.inf) for rows in by_pick]
    gap = np.maximum(np.concatenate(gaps), MIN_GAP)

    rng = generator(seed, Stream.REWEIGHTING)
    noise = domain.noise
    checkpoints = int(max(checkpoint.max(), *domain.at)) + 1
    effects = draw_new_effects(noise.tau_checkpoint, checkpoints, rng)
    of_runs = draw_new_effects(noise.tau_run, len(picks), rng)
    law = domain.log_loss[:, rows]
    centre = law + effects[:, checkpoint] + of_runs[:, of_pick]
    # a goal that starts from a measured checkpoint has the same effect
    goal = domain.goal + np.where(domain.at >= 0, effects[:, domain.at], 0.0)

    draws = len(law)
    truths = rng.choice(draws, min(outcomes, draws), replace=False)
    error = RowErrors.along_runs(noise, gap, domain.error_size[rows])
    weights, khat = [], []
    for truth in truths:
        outcome = centre[truth] + error.draw(truth, rng)
        log_likelihood = error.log_density(outcome - centre)  # under all draws
        # A draw explains its own outcome too well, so it is left out: its log
        # likelihood is set far below all others.
        log_likelihood[truth] = log_likelihood.min() - 100.0
        smoothed, k = pareto_smoothed(log_likelihood)
        weights.append(smoothed)
        khat.append(k)
    return ReweightedDraws(np.stack(weights), np.array(khat), goal)


def longest_checkable(
    menu: Menu,
    domains: Sequence[Domain],
    picks: Sequence[Pick],
    outcomes: int,
    seed: int,
) -> tuple[int, list[ReweightedDraws]]:
    """Find how many of the first picks can be checked by reweighting, and reweight by
    them. The number is halved until the weights are reliable.
    """
    count = len(picks)
    while True:
        views = [
            reweight(menu, domain, picks[:count], outcomes, seed + k)
            for k, domain in enumerate(domains)
        ]
        if count == 1 or max(view.median_khat for view in views) <= MAX_KHAT:
            return count, views
        count = count // 2


# -- the list --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Appraisal:
    """A list of runs: cost (with its checkpoint if it is the first to need it), gain and
    its Monte Carlo error of each pick, given the picks before it.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    gain: Float[np.ndarray, " pick"]
    gain_error: Float[np.ndarray, " pick"]
    sds: list[float]  # root mean square sd of the goal before and after each pick

    def first(self, count: int) -> Appraisal:
        """Appraise the first picks only."""
        return Appraisal(
            self.picks[:count],
            self.cost[:count],
            self.gain[:count],
            self.gain_error[:count],
            self.sds[: count + 1],
        )


def best_list(
    approximation: Gaussian, criterion: Criterion, limits: Limits, errors: float = 2.0
) -> tuple[Appraisal, bool]:
    """Find the best runs within the limits, and tell whether doubtful runs were left
    out.

    A run is doubtful if its gain is at most ``errors`` times the gain's Monte Carlo
    error. If all doubtful runs together gain no more than that, their cost is spent on
    other runs.
    """
    offer = approximation.offer
    picks = choose(offer, criterion, limits)
    barred = np.zeros(offer.cost.shape, bool)
    while True:
        appraisal, _ = appraise_picks(approximation, criterion, picks)
        is_chance = appraisal.gain <= errors * appraisal.gain_error
        doubtful = [picks[i] for i in np.flatnonzero(is_chance)]
        certain = [picks[i] for i in np.flatnonzero(~is_chance)]
        if not doubtful:
            return appraisal, bool(barred.any())
        reordered, batches = appraise_picks(
            approximation, criterion, [*certain, *doubtful]
        )
        error = _estimate_batch_error(batches[:, len(certain) :].sum(axis=1))
        if reordered.gain[len(certain) :].sum() > errors * error:
            return appraisal, bool(barred.any())
        for run, stop in doubtful:
            barred[run, : stop + 1] = True
        more = greedy(offer, criterion, limits, 1.0, bought=certain, barred=barred)
        picks = order_by_worth(offer, criterion, more)


def appraise_picks(
    approximation: Gaussian,
    criterion: Criterion,
    picks: list[Pick],
    draws_a_coordinate: int = 4,
) -> tuple[Appraisal, Float[np.ndarray, "batch pick"]]:
    """Appraise picks in their order, and compute their gains from each batch of draws,
    shape (batch, pick).

    The gains of a batch are 0 if it has fewer than ``draws_a_coordinate`` draws for
    each coordinate, because its covariance could not be inverted.
    """
    offer = approximation.offer
    start = np.eye(offer.coordinates)
    gain = np.diff(_compute_running_gains(offer, criterion, picks, start))
    price = [offer.price_picks(picks[:count]) for count in range(len(picks) + 1)]
    draws, rank = approximation.draws.shape
    batches = np.zeros((BATCHES, len(picks)))
    if draws >= draws_a_coordinate * rank * BATCHES and picks:
        for b in range(BATCHES):
            # all draws together have unit covariance, a batch has its own
            of_batch = approximation.draws[approximation.batch == b]
            covariance = np.atleast_2d(np.cov(of_batch.T, bias=True))
            start = np.eye(offer.coordinates)
            start[:rank, :rank] = np.linalg.inv(draws * covariance)
            batches[b] = np.diff(_compute_running_gains(offer, criterion, picks, start))
    error = _estimate_batch_error(batches)
    variance = Variance(approximation.goals)
    lowered = _compute_running_gains(offer, variance, picks, np.eye(offer.coordinates))
    remaining = np.maximum(variance.total - np.array(lowered), 0.0)
    sds = [float(sd) for sd in np.sqrt(remaining)]
    return Appraisal(picks, np.diff(price), gain, error, sds), batches


def _compute_running_gains(
    offer: Offer,
    criterion: Criterion,
    picks: Sequence[Pick],
    start: Float[np.ndarray, "coordinate coordinate"],
) -> list[float]:
    """Compute the gain of no pick, the first, the first two, ..., from a precision of
    shape (coordinate, coordinate), up to a constant.
    """
    precision = Precision(start)
    values = [criterion.value(precision)]
    for pick in picks:
        precision = precision + offer.information(pick)
        values.append(criterion.value(precision))
    return values


def _estimate_batch_error(
    gains: Float[np.ndarray, "batch *#pick"],
) -> Float[Any, "*#pick"]:
    """Estimate the Monte Carlo error of means by batch means, shape (batch, ...) -> (...)."""
    return np.std(gains, axis=0, ddof=1) / math.sqrt(len(gains))


def where_to_stop(
    offer: Offer,
    appraisal: Appraisal,
    limits: Limits,
    least: float,
    is_chance: bool,
) -> tuple[int, str]:
    """Find how many picks to keep, and the reason why the list ends there. The kept
    picks have the largest sum of gain minus ``least`` times cost. ``is_chance``:
    whether runs were left out because their gain may be due to chance.
    """
    # a run may be worth its cost only with later ones, for example of the same
    # checkpoint
    beyond = np.cumsum(appraisal.gain - least * appraisal.cost)
    count = int(np.argmax([0.0, *beyond]))
    picks = appraisal.picks
    if count < len(picks):
        return count, "the next run gains less for its cost than asked for"
    fits, allowed = what_fits(offer, picks, limits)
    if fits and not allowed:
        return len(picks), (
            "what fits the rest of the budget has been bought as often as allowed "
            f"(replicates: {np.max(limits.replicates)})"
        )
    if len(picks) == limits.picks:
        return len(picks), "the batch is full"
    if not fits:
        return len(picks), "nothing else fits the budget"
    if is_chance:
        return len(picks), "what else fits gains no more than its Monte Carlo error"
    what = "left" if picks else "on offer"
    return len(picks), f"nothing {what} is worth buying"
