"""A choice as it stands, and as it is expected to be once runs are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._designs.evidence import Gaussian
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.goal import Goal
from bayeslaw._designs.goals.quantities import OptionDraws
from bayeslaw._designs.reweighting import ReweightedDraws
from bayeslaw._posteriors.streams import Stream, generator

if TYPE_CHECKING:
    from jaxtyping import Float


def foreseen(
    goal: Goal,
    approximation: Gaussian,
    picks: Sequence[Pick],
    seed: int,
    outcomes: int = 20_000,
) -> dict[str, Any] | None:
    """Find the option that is best on average, the chance that it is the best and what
    it is expected to lose to the best; of recipes also what both will be after the
    runs, by so many simulated outcomes. None where there is nothing to choose.
    """
    if goal.options is None:
        return None
    now = goal.options.now()
    if goal.gain != "best":
        return now
    # In principal coordinates what is known is a standard normal: the part that the
    # runs tell, and what is left after them.
    rows = approximation.goals
    covariance = np.linalg.inv(precision_of(approximation.offer, picks).marginal)
    rng = generator(seed, Stream.CHOICES)
    mean = goal.options.worse.mean(axis=0)
    learned = np.eye(len(covariance)) - covariance
    posterior_mean = mean + _draws(rows, learned, outcomes, rng)
    truth = posterior_mean + _draws(rows, covariance, outcomes, rng)
    chosen = np.argmin(posterior_mean, axis=1)
    lost = truth[np.arange(outcomes), chosen] - truth.min(axis=1)
    return now | {
        "chance_after": float(np.mean(chosen == np.argmin(truth, axis=1))),
        "regret_after": float(lost.mean()),
    }


def simulated(
    options: OptionDraws, views: Sequence[ReweightedDraws]
) -> dict[str, float]:
    """Chance that what is chosen after an outcome is the best, and regret: means over
    simulated outcomes.
    """
    (view,) = views
    expected = options.expected_choice(view.weights)
    return {
        "chance": float(expected.chance.mean()),
        "regret": float(expected.regret.mean()),
    }


def _draws(
    rows: Float[np.ndarray, "option coordinate"],
    covariance: Float[np.ndarray, "coordinate coordinate"],
    count: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "outcome option"]:
    """Draw losses of options with these loadings on coordinates of this covariance,
    shape (outcome, option).
    """
    # an eigenvalue may be below zero by rounding
    values, vectors = np.linalg.eigh(rows @ covariance @ rows.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((count, len(rows))) @ root.T
