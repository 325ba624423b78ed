"""What each pick of a list costs and adds, and where the list ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._designs.criteria import Criterion, Variance
from bayeslaw._designs.evidence import Gaussian
from bayeslaw._designs.gaussian import Offer, Pick, Precision
from bayeslaw._designs.search import Limits, what_fits
from bayeslaw._posteriors.outcomes import BATCHES

if TYPE_CHECKING:
    from jaxtyping import Float

SURE = 2.0  # Monte Carlo errors that a gain must exceed
NOTHING_LEFT = "nothing left is worth buying"
# Draws a coordinate that a batch needs, so that its covariance can be inverted.
DRAWS_A_COORDINATE = 4


@dataclass(frozen=True, eq=False)
class Appraisal:
    """What each pick costs and adds after those before it.

    ``cost``, ``gain`` and ``gain_error``, its Monte Carlo error: each of shape (pick,).
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    gain: Float[np.ndarray, " pick"]
    gain_error: Float[np.ndarray, " pick"]

    def first(self, count: int) -> Appraisal:
        """Appraise the first picks only."""
        return Appraisal(
            self.picks[:count],
            self.cost[:count],
            self.gain[:count],
            self.gain_error[:count],
        )


def appraisal_of(
    approximation: Gaussian, criterion: Criterion, picks: list[Pick]
) -> Appraisal:
    offer = approximation.offer
    start = np.eye(offer.coordinates)
    gain = np.diff(_values(offer, criterion, picks, start))
    price = [offer.price(picks[:count]) for count in range(len(picks) + 1)]
    error = _gain_errors(approximation, criterion, picks)
    return Appraisal(picks, np.diff(price), gain, error)


def _values(
    offer: Offer,
    criterion: Criterion,
    picks: Sequence[Pick],
    start: Float[np.ndarray, "coordinate coordinate"],
) -> list[float]:
    """Gain of no pick, the first, the first two, ..., from a precision of shape
    (coordinate, coordinate); up to a constant.
    """
    precision = Precision(start)
    values = [criterion.value(precision)]
    for pick in picks:
        precision = precision + offer.information(pick)
        values.append(criterion.value(precision))
    return values


def _gain_errors(
    approximation: Gaussian, criterion: Criterion, picks: Sequence[Pick]
) -> Float[np.ndarray, " pick"]:
    """Monte Carlo error of each pick's gain by batches of draws, shape (pick,); zeros
    where draws are too few to tell.
    """
    draws, rank = approximation.draws.shape
    if draws < DRAWS_A_COORDINATE * rank * BATCHES or not picks:
        return np.zeros(len(picks))
    gains = []
    for b in range(BATCHES):
        # all draws together have unit covariance, a batch has its own
        own = approximation.draws[approximation.batch == b]
        covariance = np.atleast_2d(np.cov(own.T, bias=True))
        start = np.eye(approximation.offer.coordinates)
        start[:rank, :rank] = np.linalg.inv(draws * covariance)
        values = _values(approximation.offer, criterion, picks, start)
        gains.append(np.diff(values))
    return np.std(gains, axis=0, ddof=1) / math.sqrt(BATCHES)


def goal_sds(approximation: Gaussian, picks: Sequence[Pick]) -> list[float]:
    """Root mean square sd of the goal before and after each pick, shape (1 + pick,)."""
    variance = Variance(approximation.goals)
    start = np.eye(approximation.offer.coordinates)
    reduction = np.array(_values(approximation.offer, variance, picks, start))
    left = np.maximum(variance.total - reduction, 0.0)
    return [float(sd) for sd in np.sqrt(left)]


def where_to_stop(
    offer: Offer,
    criterion: Criterion,
    appraisal: Appraisal,
    limits: Limits,
    least: float,
) -> tuple[int, str]:
    """How many picks come before one that is not worth its cost, and why the list ends
    there.
    """
    terms = zip(appraisal.cost, appraisal.gain, appraisal.gain_error, strict=True)
    for count, (cost, gain, error) in enumerate(terms):
        if not gain > criterion.rounding():
            return count, NOTHING_LEFT
        if gain < least * cost:
            return count, "the next run gains less for its cost than asked for"
        if gain <= SURE * error:
            return count, "the next run's gain is within its Monte Carlo error"
    picks = appraisal.picks
    fits, allowed = what_fits(offer, picks, limits)
    if fits and not allowed:
        return len(picks), (
            "what fits the rest of the budget has been bought as often as allowed "
            f"(replicates: {limits.replicates})"
        )
    if len(picks) == limits.picks:
        return len(picks), "the batch is full"
    return len(picks), NOTHING_LEFT if fits else "nothing else fits the budget"
