"""Diagnose chains (by ArviZ) and importance weights, with their thresholds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Limits for a posterior to report: R-hat, bulk ESS (or effective draws of weights), and
# share of divergent draws.
MAX_RHAT, MIN_ESS, MAX_DIVERGENT = 1.01, 400, 0.001

# Pareto k-hat above which importance weights are unreliable (Vehtari et al. 2024)
TRUSTED_K = 0.7


def rhat_and_ess(
    sites: Mapping[str, Float[np.ndarray, "chain draw *site"]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Compute rank-normalised R-hat and bulk ESS of each site (chain, draw, ...)
    (Vehtari 2021); for a vector, its worst entry.
    """
    import arviz_stats.base

    stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
    axes = {"chain_axis": 0, "draw_axis": 1}
    rhat = {
        name: float(np.max(stats.rhat(draws, method="rank", **axes)))
        for name, draws in sites.items()
    }
    ess = {
        name: float(np.min(stats.ess(draws, method="bulk", **axes)))
        for name, draws in sites.items()
    }
    return rhat, ess


def of_chains(
    sites: Mapping[str, Float[np.ndarray, "chain draw *site"]],
) -> tuple[float, float]:
    """Compute the largest R-hat and the smallest bulk ESS of sampled sites."""
    rhat, ess = rhat_and_ess(sites)
    worst = max(rhat.values())
    least = min(ess.values())
    return worst, least


def are_enough(sites: Mapping[str, Float[np.ndarray, "chain draw *site"]]) -> bool:
    """Tell whether R-hat and bulk ESS pass."""
    rhat, ess = of_chains(sites)
    return rhat <= MAX_RHAT and ess >= MIN_ESS


def pareto_smoothed(
    log_weight: Float[np.ndarray, " draw"], fewest: int = 100
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Normalise weights with Pareto-smoothed tails, shape (draw,), and compute k-hat
    (Vehtari 2024); it is infinite if the weights degenerate.

    Weights degenerate if fewer than ``fewest`` draws have finite weight, or if too few
    draws count to fit a tail. Then the weights are not smoothed.
    """
    finite = np.isfinite(log_weight)
    if not finite.any():
        return np.full(len(log_weight), 1 / len(log_weight)), np.inf
    floor = log_weight[finite].min() - 50.0
    plain = np.where(finite, log_weight, floor)
    k, smooth = np.inf, plain
    if finite.sum() >= fewest:
        with np.errstate(all="ignore"):  # if one draw has all weight
            smooth, k = smoothed_tail(plain)
        if not (np.isfinite(k) and np.isfinite(smooth.max())):
            k, smooth = np.inf, plain
    weight = np.exp(smooth - smooth.max())
    return weight / weight.sum(), float(k)


def smoothed_tail(
    log_weight: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Smooth log weights, shape (draw,), up to a constant: the largest are replaced by
    quantiles of a fitted Pareto distribution. Also returns k-hat, its shape.

    This is algorithm 1 of Vehtari et al. 2024, as in ArviZ, whose statistics take half
    a second to import.
    """
    draws = len(log_weight)
    # size of the tail: a fifth of the draws, at most three times their root
    size = int(3 * draws**0.5 if draws > 225 else draws / 5)
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


def _generalised_pareto(
    excess: Float[np.ndarray, " draw"],
    prior_shape: float = 0.5,
    prior_draws: int = 10,
) -> tuple[float, float]:
    """Estimate shape and scale of a generalised Pareto distribution from sorted draws,
    shape (draw,) (Zhang and Stephens 2009).

    The shape is shrunk towards its prior mean, which counts as a number of draws
    (Vehtari et al. 2024, appendix C).
    """
    draws = len(excess)
    points = 30 + int(draws**0.5)
    quarter = excess[int(draws / 4 + 0.5) - 1]
    # b = -shape / scale is its mean over a grid, weighed by the profile likelihood.
    spread = 1 - np.sqrt(points / (np.arange(points) + 0.5))
    grid = spread / (3 * quarter) + 1 / excess[-1]
    shapes = np.mean(np.log1p(-grid[:, None] * excess), axis=1)
    log_profile = draws * (np.log(-grid / shapes) - shapes - 1)
    b = grid @ np.exp(log_profile - logsumexp(log_profile))
    shape = np.mean(np.log1p(-b * excess))
    weighed = (draws * shape + prior_draws * prior_shape) / (draws + prior_draws)
    return weighed, -shape / b


def weighted_student(
    log_density: Callable[[np.ndarray], np.ndarray],
    centre: Float[np.ndarray, " coordinate"],
    root: Float[np.ndarray, "coordinate coordinate"],
    dof: float,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Float[np.ndarray, "draw coordinate"], Float[np.ndarray, " draw"], float]:
    """Draw from a Student-t and weigh the draws by a density: importance sampling.
    Returns draws, weights with smoothed tails, and k-hat.

    ``root`` times its transpose is the Student-t's scale matrix.
    """
    size = len(centre)
    # Student-t: a normal over the root of a chi-square.
    mixed = rng.chisquare(dof, (draws, 1)) / dof
    standard = rng.standard_normal((draws, size)) / np.sqrt(mixed)
    square = np.sum(standard**2, axis=1)
    log_q = -0.5 * (dof + size) * np.log1p(square / dof)
    tried = centre + standard @ root.T
    return tried, *pareto_smoothed(log_density(tried) - log_q)


def by_weight(
    weight: Float[np.ndarray, " draw"], draws: int, rng: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """Resample draws to equal weights, systematically; indices in order."""
    # Systematic resampling: one uniform number shifts evenly spaced levels. A draw of
    # weight w is then taken w * draws times, rounded up or down, mostly with less
    # variance than independent choices (Douc, Cappe and Moulines 2005).
    levels = (rng.random() + np.arange(draws)) / draws
    index = np.searchsorted(np.cumsum(weight), levels)
    return np.minimum(index, len(weight) - 1)


def interval_score(
    low: Float[np.ndarray, " run"],
    high: Float[np.ndarray, " run"],
    y: Float[np.ndarray, " run"],
) -> Float[np.ndarray, " run"]:
    """Compute the interval score of 90% intervals of log loss, over the loss, shape
    (run,): the width plus 2/.1 times the distance of the loss outside (Gneiting and
    Raftery 2007).
    """
    below, above = np.exp(low - y), np.exp(high - y)
    outside = np.maximum(below - 1, 0) + np.maximum(1 - above, 0)
    return above - below + 20 * outside
