"""Convergence of chains, by ArviZ, and trust in importance weights; and every threshold
that either has to pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Of a posterior to report: R-hat, bulk ESS (or effective draws of weights), and share
# of divergent draws.
MAX_RHAT, MIN_ESS, MAX_DIVERGENT = 1.01, 400, 0.001

# Pareto k-hat from which importance weights say nothing (Vehtari et al. 2024)
TRUSTED_K = 0.7


def rhat_and_ess(
    sites: Mapping[str, Float[np.ndarray, "chain draw *site"]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Rank-normalised R-hat and bulk ESS of each site (chain, draw, ...) (Vehtari
    2021); the worst of a vector.
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
    """Largest R-hat and smallest bulk ESS of sampled sites."""
    rhat, ess = rhat_and_ess(sites)
    worst = max(rhat.values())
    least = min(ess.values())
    return worst, least


def are_enough(sites: Mapping[str, Float[np.ndarray, "chain draw *site"]]) -> bool:
    """Whether R-hat and bulk ESS pass."""
    rhat, ess = of_chains(sites)
    return rhat <= MAX_RHAT and ess >= MIN_ESS


def pareto_smoothed(
    log_weight: Float[np.ndarray, " draw"], fewest: int = 100
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Normalise weights with Pareto-smoothed tails, shape (draw,), and give k-hat
    (Vehtari 2024); infinite where the weights degenerate.

    Degenerate: less than the ``fewest`` draws of finite weight, or so few that count
    that no tail can be fitted; the weights are then plain ones.
    """
    finite = np.isfinite(log_weight)
    if not finite.any():
        return np.full(len(log_weight), 1 / len(log_weight)), np.inf
    floor = log_weight[finite].min() - 50.0
    plain = np.where(finite, log_weight, floor)
    k, smooth = np.inf, plain
    if finite.sum() >= fewest:
        with np.errstate(all="ignore"):  # where one draw takes all
            smooth, k = smoothed_tail(plain)
        if not (np.isfinite(k) and np.isfinite(smooth.max())):
            k, smooth = np.inf, plain
    weight = np.exp(smooth - smooth.max())
    return weight / weight.sum(), float(k)


def smoothed_tail(
    log_weight: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, " draw"], float]:
    """Log weights up to a constant, shape (draw,), the largest of them replaced by
    quantiles of the Pareto distribution that is fitted to them; and k-hat, its shape.

    As ArviZ has them (Vehtari et al. 2024, algorithm 1), whose statistics take half a
    second to import.
    """
    draws = len(log_weight)
    # the tail: a fifth of few draws, three roots of many
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

    The shape is drawn towards the one that tails have before they are seen, which
    counts as so many draws (Vehtari et al. 2024, appendix C).
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
    weighed = (draws * shape + prior_draws * prior_shape) / (draws + prior_draws)
    return weighed, -shape / b


def by_weight(
    weight: Float[np.ndarray, " draw"], draws: int, rng: np.random.Generator
) -> Int[np.ndarray, " chosen"]:
    """Which draws make an equally weighted sample, shape (draws,), in their order."""
    # Systematic resampling: one uniform shifts a comb of equal teeth, so that a draw of
    # weight w is taken floor or ceiling of w times draws, mostly with less variance
    # than independent choices (Douc, Cappe and Moulines 2005).
    levels = (rng.random() + np.arange(draws)) / draws
    index = np.searchsorted(np.cumsum(weight), levels)
    return np.minimum(index, len(weight) - 1)


def interval_score(
    low: Float[np.ndarray, " run"],
    high: Float[np.ndarray, " run"],
    y: Float[np.ndarray, " run"],
) -> Float[np.ndarray, " run"]:
    """Score of 90% intervals of log loss, over the loss, shape (run,): width plus 2/.1
    times what the loss is outside by (Gneiting and Raftery 2007).
    """
    below, above = np.exp(low - y), np.exp(high - y)
    outside = np.maximum(below - 1, 0) + np.maximum(1 - above, 0)
    return above - below + 20 * outside
