"""The approximation checked: outcomes simulated from draws, and the draws reweighted by
each outcome's likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._designs.evidence import Domain, Measurements, measurements
from bayeslaw._designs.gaussian import Pick
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.diagnostics import pareto_smoothed
from bayeslaw._inference.noise import draw_new_effects
from bayeslaw._posteriors.outcomes import RowErrors
from bayeslaw._posteriors.streams import Stream, generator

if TYPE_CHECKING:
    from jaxtyping import Float

# beyond, importance weights say nothing (Vehtari, Simpson, Gelman, Yao and Gabry 2024)
MAX_KHAT = 0.7


class ReweightedDraws(NamedTuple):
    """What outcomes leave of the draws.

    ``weights``: of each draw under each outcome, smoothed and normalised, shape
    (outcome, draw); ``khat`` of shape (outcome,); ``goal``: draws of the goal, effects
    of its checkpoint included, shape (draw, goal).
    """

    weights: Float[np.ndarray, "outcome draw"]
    khat: Float[np.ndarray, " outcome"]
    goal: Float[np.ndarray, "draw goal"]

    def variance(self) -> Float[np.ndarray, "outcome goal"]:
        """Variance of each goal under each outcome, shape (outcome, goal), corrected for the
        effective number of draws.
        """
        mean = self.weights @ self.goal
        square = self.weights @ self.goal**2
        # sum of squared weights: one over Kish's effective sample size
        lost = (self.weights**2).sum(axis=1, keepdims=True)
        return (square - mean**2) / np.maximum(1 - lost, 1e-3)

    @property
    def median_khat(self) -> float:
        middle = np.median(self.khat)
        return float(middle)


def reweight(
    domain: Domain, rows: Measurements, outcomes: int, seed: int
) -> ReweightedDraws:
    """Simulate outcomes of these measurements from draws and weight all other draws by
    their likelihood.

    Effects of checkpoints and runs are drawn with each draw: what is reweighted are
    draws of law and effects together.
    """
    rng = generator(seed, Stream.REWEIGHTING)
    noise = domain.noise
    checkpoints = int(max(rows.checkpoint.max(), *domain.at)) + 1
    effects = draw_new_effects(noise.tau_checkpoint, checkpoints, rng)
    of_runs = draw_new_effects(noise.tau_run, int(rows.pick.max()) + 1, rng)
    law = domain.log_loss[:, rows.row]
    centre = law + effects[:, rows.checkpoint] + of_runs[:, rows.pick]
    # A goal at a checkpoint that is measured shares its effect.
    goal = domain.goal + np.where(domain.at >= 0, effects[:, domain.at], 0.0)

    draws = len(law)
    truths = rng.choice(draws, min(outcomes, draws), replace=False)
    error = RowErrors.along_runs(noise, rows.gap, domain.error_size[rows.row])
    smoothed = [
        pareto_smoothed(_log_likelihood(error, centre, truth, rng)) for truth in truths
    ]
    weights = np.stack([w for w, _ in smoothed])
    khat = np.array([k for _, k in smoothed])
    return ReweightedDraws(weights, khat, goal)


def _log_likelihood(
    error: RowErrors,
    centre: Float[np.ndarray, "draw measurement"],
    truth: np.integer,
    rng: np.random.Generator,
) -> Float[np.ndarray, " draw"]:
    """Log likelihood of one outcome, drawn from the draw ``truth``, under all draws,
    shape (draw,); next to nothing under its own.
    """
    outcome = centre[truth] + error.draw(truth, rng)
    total = error.log_density(outcome - centre)
    # A draw explains its own outcome too well: leave-one-out, by a log likelihood far
    # below the least of all others.
    total[truth] = total.min() - 100.0
    return total


def longest_checkable(
    menu: Menu,
    domains: Sequence[Domain],
    picks: Sequence[Pick],
    outcomes: int,
    seed: int,
) -> tuple[int, list[ReweightedDraws]]:
    """How many of the first picks can be checked by reweighting, and the weights:
    halved while the weights degenerate.
    """
    count = len(picks)
    while True:
        rows = measurements(menu, picks[:count])
        views = [reweight(d, rows, outcomes, seed + k) for k, d in enumerate(domains)]
        if count == 1 or max(view.median_khat for view in views) <= MAX_KHAT:
            return count, views
        count = count // 2
