"""Convergence of chains, as ArviZ computes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_RHAT, MIN_ESS, MAX_DIVERGENT = 1.01, 400, 0.001


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
