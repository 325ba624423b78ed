"""Convergence of chains and trust in importance weights, as ArviZ computes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_RHAT, MIN_ESS, MAX_DIVERGENT = 1.01, 400, 0.001
TRUSTED_K = 0.7  # Pareto k-hat from which importance weights say nothing (Vehtari et al. 2024)


def rhat_and_ess(sites: Mapping[str, np.ndarray]) -> tuple[dict[str, float], dict[str, float]]:
    """Rank-normalised R-hat and bulk ESS of each site (chain, draw, ...) (Vehtari 2021); the worst of a vector."""
    import arviz_stats.base

    stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
    rhat = {k: float(np.max(stats.rhat(v, method="rank", chain_axis=0, draw_axis=1))) for k, v in sites.items()}
    return rhat, {k: float(np.min(stats.ess(v, method="bulk", chain_axis=0, draw_axis=1))) for k, v in sites.items()}


def of_chains(sites: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Largest R-hat and smallest bulk ESS of sampled sites; of the signed checkpoint scale, its size counts."""
    rhat, ess = rhat_and_ess({k: np.abs(v) if k == "tau_checkpoint" else v for k, v in sites.items()})
    return max(rhat.values()), min(ess.values())


def are_enough(sites: Mapping[str, np.ndarray]) -> bool:
    """Whether R-hat and bulk ESS pass."""
    rhat, ess = of_chains(sites)
    return rhat <= MAX_RHAT and ess >= MIN_ESS


def pareto_smoothed(log_weight: np.ndarray) -> tuple[np.ndarray, float]:
    """Normalised weights with Pareto-smoothed tails, and k-hat (Vehtari 2024); infinite where the weights degenerate.

    Degenerate: fewer than 100 draws of finite weight, or so few that count that no tail can be fitted; the weights
    are then plain ones.
    """
    import arviz_stats.base

    finite = np.isfinite(log_weight)
    if not finite.any():
        return np.full(len(log_weight), 1 / len(log_weight)), np.inf
    floor = log_weight[finite].min() - 50.0
    plain = np.where(finite, log_weight, floor)
    k, smooth = np.inf, plain
    if finite.sum() >= 100:
        stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
        with np.errstate(all="ignore"):  # where one draw takes all
            smooth, k = stats.psislw(-plain)
        if not (np.isfinite(k) and np.isfinite(smooth.max())):
            k, smooth = np.inf, plain
    weight = np.exp(smooth - smooth.max())
    return weight / weight.sum(), float(k)
