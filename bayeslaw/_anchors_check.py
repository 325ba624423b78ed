"""The approximation checked: outcomes simulated from draws, and the draws reweighted by each outcome's likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from bayeslaw._anchors_design import Pick
from bayeslaw._anchors_evidence import Domain, Measured, measured
from bayeslaw._anchors_menu import Menu
from bayeslaw._diagnostics import pareto_smoothed

STREAM = 6  # keeps these random numbers apart from others of the same seed
MAX_KHAT = 0.7  # beyond, importance weights say nothing (Vehtari, Simpson, Gelman, Yao and Gabry 2024)


class Reweighted(NamedTuple):
    """What outcomes leave of the draws.

    ``weights``: of each draw under each outcome, smoothed and normalised, shape (outcome, draw); ``khat`` of shape
    (outcome,); ``goal``: draws of the goal, effects of its checkpoint included, shape (draw, goal).
    """

    weights: np.ndarray
    khat: np.ndarray
    goal: np.ndarray

    def variance(self) -> np.ndarray:
        """Of each goal under each outcome, shape (outcome, goal), corrected for the effective number of draws."""
        mean, square = self.weights @ self.goal, self.weights @ self.goal**2
        lost = (self.weights**2).sum(axis=1, keepdims=True)
        return (square - mean**2) / np.maximum(1 - lost, 1e-3)


def reweighted(domain: Domain, rows: Measured, outcomes: int, seed: int) -> Reweighted:
    """Simulate outcomes of these measurements from draws and weight all other draws by their likelihood.

    Effects of checkpoints and runs are drawn with each draw: what is reweighted are draws of law and effects together.
    """
    rng = np.random.default_rng([seed, STREAM])
    law, noise = domain.log_loss[:, rows.row], domain.noise
    effects = _effects(noise.checkpoint, max(rows.checkpoint.max(), *domain.at) + 1, rng)
    centre = law + effects[:, rows.checkpoint] + _effects(noise.run, rows.pick.max() + 1, rng)[:, rows.pick]
    goal = domain.goal + np.where(domain.at >= 0, effects[:, domain.at], 0.0)
    truths = rng.choice(len(law), min(outcomes, len(law)), replace=False)
    carried = _carried(domain, rows)
    log_weights = np.stack([_log_likelihood(domain, rows, centre, carried, i, rng) for i in truths])
    smooth = [pareto_smoothed(w) for w in log_weights]
    return Reweighted(np.stack([w for w, _ in smooth]), np.array([k for _, k in smooth]), goal)


def _effects(scale: np.ndarray, groups: int, rng: np.random.Generator) -> np.ndarray:
    """A draw of each group's effect for each draw of its scale, shape (draw, group)."""
    return scale[:, None] * rng.standard_normal((len(scale), groups))


def _carried(domain: Domain, rows: Measured) -> np.ndarray:
    """Correlation of each measurement's error with the one before it in its run, shape (draw, measurement)."""
    length = domain.noise.length[:, None]
    return np.where(length > 0, np.exp(-rows.gap / np.where(length > 0, length, 1.0)), 0.0)


def _log_likelihood(
    domain: Domain, rows: Measured, centre: np.ndarray, carried: np.ndarray, truth: int, rng: np.random.Generator
) -> np.ndarray:
    """Log likelihood of one outcome, drawn from the draw ``truth``, under all draws; next to nothing under its own."""
    sigma, dof = domain.noise.sigma, domain.noise.dof
    fresh = np.sqrt(1 - carried[truth] ** 2) * sigma[truth] * rng.standard_t(dof[truth], len(rows.row))
    error = fresh.copy()
    for j in np.flatnonzero(carried[truth] > 0):
        error[j] += carried[truth, j] * error[j - 1]
    miss = centre[truth] + error - centre
    before = np.roll(miss, 1, axis=1)
    scale = sigma[:, None] * np.sqrt(1 - carried**2)
    z2 = ((miss - carried * before) / scale) ** 2
    dof = dof[:, None]
    norm = gammaln((dof + 1) / 2) - gammaln(dof / 2) - 0.5 * np.log(dof) - np.log(scale)
    total = (norm - (dof + 1) / 2 * np.log1p(z2 / dof)).sum(axis=1)
    total[truth] = total.min() - 100.0
    return total


def longest_checkable(
    menu: Menu, domains: Sequence[Domain], picks: Sequence[Pick], outcomes: int, seed: int
) -> tuple[int, list[Reweighted]]:
    """How many of the first picks can be checked by reweighting, and the weights: halved while the weights degenerate."""
    count = len(picks)
    while True:
        rows = measured(menu, picks[:count])
        found = [reweighted(d, rows, outcomes, seed + k) for k, d in enumerate(domains)]
        if count == 1 or max(float(np.median(f.khat)) for f in found) <= MAX_KHAT:
            return count, found
        count = count // 2
