"""Test posteriors by the ranks of truths among their draws: the share of draws below
the truth is uniform over simulations (Talts et al. 2018).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import Array
from scipy import stats

from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import generator
from bayeslaw._inference.likelihood import log_likelihood
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import Law, log_loss

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

# p-value below which shares are not uniform, divided among all quantities
ALPHA = 0.01


def shares_below(
    law: Law,
    table: Padded,
    values: Mapping[str, Float[AnyArray, " draw"]],
    weight: Float[np.ndarray, " draw"],
    truth: Mapping[str, float],
) -> dict[str, float]:
    """Compute the share of a posterior below the truth, for each free parameter, the
    error's parameters, and the log likelihood, which also depends on the data (Modrak
    et al. 2023).

    Parameters
    ----------
    values
        Draws of the law's values and of its error by name.
    weight
        Weights of the draws; they sum to 1.
    truth
        The law's values and the error's.
    """
    names = [*law.free_priors, *(name for name in truth if name not in law.priors)]
    with_truth = {
        name: np.append(np.asarray(values[name]), truth[name])
        for name in {*law.priors, *names}
    }
    sizes = {
        n: np.abs(with_truth[n]) if n == "tau_checkpoint" else with_truth[n]
        for n in names
    }
    sizes["log likelihood"] = np.asarray(
        _compute_log_likelihoods(law, table, with_truth)
    )
    return {name: float(weight @ (v[:-1] < v[-1])) for name, v in sizes.items()}


@compiled(static_argnums=0)
def _compute_log_likelihoods(law: Law, table: Padded, values) -> Float[Array, " draw"]:
    def one(draw):
        mean = log_loss(law, table.covariates, draw)
        return log_likelihood(mean, table.y, table.weight, draw, table.shared)

    return jax.vmap(one)(values)


# -- uniform shares --------------------------------------------------------------------


def uniformity(
    shares: Float[np.ndarray, " simulation"] | Collection[float], tail: float = 0.01
) -> float:
    """Test uniform shares. There are two p-values: from the simultaneous band of their
    empirical distribution (Sailynoja et al. 2022), and from the number in the outermost
    ``tail`` on either side. Returns the smaller one, doubled.
    """
    shares = np.asarray(shares, float)
    n = len(shares)
    statistic = _compute_extremes(shares[None], n)[0]
    null = _simulate_null(n)
    as_extreme = np.searchsorted(null, statistic, side="right")
    band = (1 + as_extreme) / (1 + len(null))
    outermost = np.sum(np.minimum(shares, 1 - shares) < tail)
    tails = stats.binom.sf(outermost - 1, n, 2 * tail)
    return float(min(1.0, 2 * min(band, tails)))


def _compute_extremes(
    shares: Float[np.ndarray, "set n"], n: int
) -> Float[np.ndarray, " set"]:
    """Compute the statistic of Sailynoja et al. 2022, section 2.2, for each set of
    shares: the smallest binomial tail of the empirical distribution at 1/n, 2/n, ...
    """
    bins = np.minimum((np.clip(shares, 0, 1) * n).astype(int), n - 1)
    # count all sets at once: each set gets its own range of numbers
    offset = np.arange(len(shares))[:, None] * n
    numbers = (bins + offset).ravel()
    counts = np.bincount(numbers, minlength=len(shares) * n).reshape(-1, n)
    below = np.cumsum(counts, axis=1)[:, :-1]
    return _compute_tails(n)[below, np.arange(n - 1)].min(axis=1)


@lru_cache
def _compute_tails(n: int) -> Float[np.ndarray, "count point"]:
    """Compute the smaller tail probability of a binomial count of n at each point."""
    counts = np.arange(n + 1)[:, None]
    points = np.arange(1, n)[None] / n
    at_most = stats.binom.cdf(counts, n, points)
    at_least = stats.binom.sf(counts - 1, n, points)
    return np.minimum(at_most, at_least)


@lru_cache
def _simulate_null(n: int) -> Float[np.ndarray, " set"]:
    """Simulate the statistic of 200,000 sets of uniform shares, in order."""
    rng = generator(214)
    sets = [_compute_extremes(rng.random((10_000, n)), n) for _ in range(20)]
    return np.sort(np.concatenate(sets))
