"""The approximation checked: outcomes simulated from draws, and the draws reweighted by
each outcome's likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

from bayeslaw._decisions.anchors.evidence import Domain, Measurements, measurements
from bayeslaw._decisions.anchors.gaussian import Pick
from bayeslaw._decisions.anchors.menu import Menu
from bayeslaw._inference.diagnostics import pareto_smoothed
from bayeslaw._inference.noise import RunNoise, draw_effects

if TYPE_CHECKING:
    from jaxtyping import Float

STREAM = 6  # keeps these random numbers apart from others of the same seed
# beyond, importance weights say nothing (Vehtari, Simpson, Gelman, Yao and Gabry 2024)
MAX_KHAT = 0.7
# log likelihood below the least of all others, so that no draw explains its own outcome
EXCLUDED = 100.0


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
        """Of each goal under each outcome, shape (outcome, goal), corrected for the
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
    rng = np.random.default_rng([seed, STREAM])
    noise = domain.noise
    checkpoints = int(max(rows.checkpoint.max(), *domain.at)) + 1
    effects = draw_effects(noise.tau_checkpoint, checkpoints, rng)
    of_runs = draw_effects(noise.tau_run, int(rows.pick.max()) + 1, rng)
    law = domain.log_loss[:, rows.row]
    centre = law + effects[:, rows.checkpoint] + of_runs[:, rows.pick]
    # A goal at a checkpoint that is measured shares its effect.
    goal = domain.goal + np.where(domain.at >= 0, effects[:, domain.at], 0.0)

    draws = len(law)
    truths = rng.choice(draws, min(outcomes, draws), replace=False)
    error = RowErrors.along_runs(noise, rows.gap)
    smoothed = [
        pareto_smoothed(_log_likelihood(error, centre, truth, rng)) for truth in truths
    ]
    weights = np.stack([w for w, _ in smoothed])
    khat = np.array([k for _, k in smoothed])
    return ReweightedDraws(weights, khat, goal)


class RowErrors(NamedTuple):
    """The own errors of rows, a first-order autoregression along each run, whose rows
    follow each other in order.

    ``carried``: correlation with the one before in its run, shape (draw, measurement);
    ``scale``: of what is new in each, of the same shape; ``dof``: of that Student-t,
    shape (draw,).
    """

    carried: Float[np.ndarray, "draw measurement"]
    scale: Float[np.ndarray, "draw measurement"]
    dof: Float[np.ndarray, " draw"]

    @classmethod
    def along_runs(
        cls, noise: RunNoise, gap: Float[np.ndarray, " measurement"]
    ) -> RowErrors:
        """Of rows this many e-folds after the one before in their run, infinite where
        there is none.
        """
        length = noise.run_length[:, None]
        decay = np.exp(-gap / np.where(length > 0, length, 1.0))
        carried = np.where(length > 0, decay, 0.0)
        # So that every point along a run has the variance of one by itself.
        scale = np.sqrt(1 - carried**2) * noise.sigma[:, None]
        return cls(carried, scale, noise.dof)

    def draw(
        self, truth: np.integer, rng: np.random.Generator
    ) -> Float[np.ndarray, " measurement"]:
        """Errors of one draw's scale and correlation, shape (measurement,)."""
        carried, size = self.carried[truth], self.carried.shape[1]
        error = self.scale[truth] * rng.standard_t(self.dof[truth], size)
        # In the order of the run: each carries what the one before has become.
        for j in np.flatnonzero(carried > 0):
            error[j] += carried[j] * error[j - 1]
        return error

    def draw_each(
        self, rng: np.random.Generator
    ) -> Float[np.ndarray, "draw measurement"]:
        """Errors under every draw, shape (draw, measurement)."""
        carried = self.carried
        error = self.scale * rng.standard_t(self.dof[:, None], carried.shape)
        for j in np.flatnonzero((carried > 0).any(axis=0)):
            error[:, j] += carried[:, j] * error[:, j - 1]
        return error

    def log_density(
        self, error: Float[np.ndarray, "draw measurement"]
    ) -> Float[np.ndarray, " draw"]:
        """Of all errors of each draw together, shape (draw, measurement) -> (draw,)."""
        dof = self.dof[:, None]
        # The first of a run has nothing carried, so what is rolled round is unused.
        before = np.roll(error, 1, axis=1)
        z2 = ((error - self.carried * before) / self.scale) ** 2
        constant = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof)
        norm = constant - np.log(self.scale)
        tail = (dof + 1) / 2 * np.log1p(z2 / dof)
        return (norm - tail).sum(axis=1)


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
    # A draw explains its own outcome too well: leave-one-out.
    total[truth] = total.min() - EXCLUDED
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
