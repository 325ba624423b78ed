"""Compute the probability that a choice is the best, and its regret, now and as
expected after runs are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.streams import Stream, generator
from bayeslaw._designs.evidence import Gaussian
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.goal import Goal
from bayeslaw._designs.goals.quantities import OptionDraws
from bayeslaw._designs.reweighting import ReweightedDraws

if TYPE_CHECKING:
    from jaxtyping import Float


def foreseen(
    goal: Goal,
    approximation: Gaussian,
    picks: Sequence[Pick],
    seed: int,
    outcomes: int = 20_000,
) -> dict[str, Any] | None:
    """Find the option that is best on average, the probability that it is the best, and
    its regret. For recipes, simulated outcomes also give both numbers after the runs.
    None if there is nothing to choose.
    """
    if goal.options is None:
        return None
    now = goal.options.now()
    if goal.gain != "best":
        return now
    # In principal coordinates the posterior is a standard normal. Split it into the
    # part that the runs reveal and the remaining part.
    rows = approximation.goals
    covariance = np.linalg.inv(precision_of(approximation.offer, picks).marginal)
    rng = generator(seed, Stream.CHOICES)
    mean = goal.options.worse.mean(axis=0)
    learned = np.eye(len(covariance)) - covariance
    posterior_mean = mean + _draw_losses(rows, learned, outcomes, rng)
    truth = posterior_mean + _draw_losses(rows, covariance, outcomes, rng)
    chosen = np.argmin(posterior_mean, axis=1)
    lost = truth[np.arange(outcomes), chosen] - truth.min(axis=1)
    return now | {
        "chance_after": float(np.mean(chosen == np.argmin(truth, axis=1))),
        "regret_after": float(lost.mean()),
    }


def simulated(
    options: OptionDraws, views: Sequence[ReweightedDraws]
) -> dict[str, float]:
    """Average over simulated outcomes: the probability that the option chosen after an
    outcome is the best, and its regret.
    """
    (view,) = views
    expected = options.expected_choice(view.weights)
    return {
        "chance": float(expected.chance.mean()),
        "regret": float(expected.regret.mean()),
    }


def _draw_losses(
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
