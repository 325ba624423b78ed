"""Reweight draws by the likelihood of simulated outcomes of bought runs: a check of the
linear-Gaussian approximation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._base.streams import Stream, generator
from bayeslaw._designs.evidence import Domain
from bayeslaw._designs.gaussian import Pick
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.diagnostics import pareto_smoothed
from bayeslaw._inference.noise import draw_new_effects
from bayeslaw._inference.table import MIN_GAP
from bayeslaw._posteriors.outcomes import RowErrors

if TYPE_CHECKING:
    from jaxtyping import Float


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
    effects = effects * np.sqrt(domain.new_of_checkpoint[:checkpoints])
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
        outcome = centre[truth] + error.draw(rng, truth)
        log_likelihood = error.log_density(outcome - centre)  # under all draws
        # A draw explains its own outcome too well, so it is left out: its log
        # likelihood is set far below all others.
        log_likelihood[truth] = log_likelihood.min() - 100.0
        smoothed, k = pareto_smoothed(log_likelihood)
        weights.append(smoothed)
        khat.append(k)
    return ReweightedDraws(np.stack(weights), np.array(khat), goal)
