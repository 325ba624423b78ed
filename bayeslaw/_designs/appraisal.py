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
    approximation: Gaussian,
    criterion: Criterion,
    picks: Sequence[Pick],
    draws_a_coordinate: int = 4,
) -> Float[np.ndarray, " pick"]:
    """Estimate the Monte Carlo error of each pick's gain by batch means, shape (pick,).

    Zeros where a batch has fewer than ``draws_a_coordinate``: its covariance could not
    be inverted.
    """
    draws, rank = approximation.draws.shape
    if draws < draws_a_coordinate * rank * BATCHES or not picks:
        return np.zeros(len(picks))
    gains = []
    for b in range(BATCHES):
        # all draws together have unit covariance, a batch has its own
        of_batch = approximation.draws[approximation.batch == b]
        covariance = np.atleast_2d(np.cov(of_batch.T, bias=True))
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
    remaining = np.maximum(variance.total - reduction, 0.0)
    return [float(sd) for sd in np.sqrt(remaining)]


def where_to_stop(
    offer: Offer,
    criterion: Criterion,
    appraisal: Appraisal,
    limits: Limits,
    least: float,
    errors: float = 2.0,
) -> tuple[int, str]:
    """Count the picks before one that is not worth its cost; say why the list ends there.

    A gain counts from ``least`` per cost, and from so many of its Monte Carlo
    ``errors``.
    """
    exhausted = "nothing left is worth buying"
    terms = zip(appraisal.cost, appraisal.gain, appraisal.gain_error, strict=True)
    for count, (cost, gain, error) in enumerate(terms):
        if not gain > criterion.rounding():
            return count, exhausted
        if gain < least * cost:
            return count, "the next run gains less for its cost than asked for"
        if gain <= errors * error:
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
    return len(picks), exhausted if fits else "nothing else fits the budget"
