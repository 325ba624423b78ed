"""Importance weights with Pareto-smoothed tails (Vehtari et al. 2024, algorithm 1).

As ArviZ has them, to the last digits, without ArviZ: its statistics take as long to
import as all else that a preview computes once its programs are on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from jaxtyping import Float

# of the shape's prior, and how many draws it counts as (appendix C)
PRIOR_SHAPE, PRIOR_DRAWS = 0.5, 10
MANY = 225  # draws, above which the tail is not a fifth of them but 3 roots


def smoothed(
    log_weight: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Log weights up to a constant, shape (draw,), the largest of them replaced by
    quantiles of the Pareto distribution that is fitted to them; and k-hat, its shape.
    """
    draws = len(log_weight)
    size = int(3 * draws**0.5 if draws > MANY else draws / 5)
    # the largest weight is 1
    log_ratio = log_weight - log_weight.max()
    order = np.argsort(log_ratio)
    tail = order[-size:]
    cutoff = np.exp(log_ratio[order[-size - 1]])
    shape, scale = _generalised_pareto(np.exp(log_ratio[tail]) - cutoff)
    chance = (np.arange(size) + 0.5) / size
    beyond = scale * np.expm1(-shape * np.log1p(-chance)) / shape
    replaced = log_ratio.copy()
    replaced[tail] = np.minimum(np.log(cutoff + beyond), 0.0)
    return replaced, float(shape)


def _generalised_pareto(excess: Float[np.ndarray, " draw"]) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution, from sorted draws of shape
    (draw,) (Zhang and Stephens 2009); the shape drawn towards `PRIOR_SHAPE`.
    """
    draws = len(excess)
    points = 30 + int(draws**0.5)
    quarter = excess[int(draws / 4 + 0.5) - 1]
    # A grid of b = -shape / scale with its profile likelihood, of which b is the mean.
    spread = 1 - np.sqrt(points / (np.arange(points) + 0.5))
    grid = spread / (3 * quarter) + 1 / excess[-1]
    shapes = np.mean(np.log1p(-grid[:, None] * excess), axis=1)
    log_profile = draws * (np.log(-grid / shapes) - shapes - 1)
    b = grid @ np.exp(log_profile - logsumexp(log_profile))
    shape = np.mean(np.log1p(-b * excess))
    weighed = (draws * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (draws + PRIOR_DRAWS)
    return weighed, -shape / b
