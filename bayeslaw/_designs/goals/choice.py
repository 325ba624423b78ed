"""A choice as it stands, and as it is expected to be once runs are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._designs.evidence import Gaussian
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.goal import Goal
from bayeslaw._designs.goals.quantities import Options
from bayeslaw._designs.reweighting import ReweightedDraws
from bayeslaw._posteriors.streams import Stream, generator

if TYPE_CHECKING:
    from jaxtyping import Float

OUTCOMES = 20_000  # simulated


def foreseen(
    goal: Goal, approximation: Gaussian, picks: Sequence[Pick], seed: int
) -> dict[str, Any] | None:
    """The option that is best on average, the chance that it is the best and what it is
    expected to lose to the best; of recipes also what both will be after the runs.
    None where there is nothing to choose.
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
    told = mean + _draws(rows, np.eye(len(covariance)) - covariance, rng)
    truth = told + _draws(rows, covariance, rng)
    chosen = np.argmin(told, axis=1)
    lost = truth[np.arange(OUTCOMES), chosen] - truth.min(axis=1)
    return now | {
        "chance_after": float(np.mean(chosen == np.argmin(truth, axis=1))),
        "regret_after": float(lost.mean()),
    }


def simulated(options: Options, views: Sequence[ReweightedDraws]) -> dict[str, float]:
    """Chance that what is chosen after an outcome is the best, and regret: means over
    simulated outcomes.
    """
    (view,) = views
    judged = options.judged(view.weights)
    return {
        "chance": float(judged.chance.mean()),
        "regret": float(judged.regret.mean()),
    }


def _draws(
    rows: Float[np.ndarray, "option coordinate"],
    covariance: Float[np.ndarray, "coordinate coordinate"],
    rng: np.random.Generator,
) -> Float[np.ndarray, "outcome option"]:
    """Draw losses of options with these loadings on coordinates of this covariance, shape (outcome,
    option).
    """
    # an eigenvalue may be below zero by rounding
    values, vectors = np.linalg.eigh(rows @ covariance @ rows.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((OUTCOMES, len(rows))) @ root.T
