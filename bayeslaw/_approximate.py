"""Posteriors without chains: a Student-t proposal around the mode, then mixtures of them fitted to the weighted draws.

Importance weights with Pareto-smoothed tails; k-hat says whether they can be trusted (Vehtari et al. 2024: below .7). One
compiled program per law and padded size, as for NUTS. What it is for: hold-out folds, resamples, designs. A posterior
to report comes from `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from bayeslaw import _geometry
from bayeslaw._density import at_each, error_start, from_vector, hessian, potential, to_vector, whitening
from bayeslaw._diagnostics import TRUSTED_K, pareto_smoothed
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, constrain_error
from bayeslaw._padding import Padded, at_once

GOOD_K = 0.5  # with which no further round is proposed
DRAWS = 2000  # of a round
ENOUGH = 1500  # effective draws with which no further round is proposed
INFLATE = 1.6  # of the scales found by the rounds before: tails found late spoil the weights
DOF = 5.0  # of the proposal: heavier tails than the posterior's
ROUNDS = 36  # of proposals, each fitted to the weighted draws of those before: seconds, where chains took 15
COMPONENTS, EM_STEPS = 6, 3  # of the mixture that is fitted, and steps of its fit in a round
TELLING = 1e-6  # weight below which a draw has no say in the next proposal
LEAST_SHARE, SHRINK = 0.02, 0.1  # below which a component goes; towards the scale of all draws
NEWTON_STEPS, TOLERANCE = 100, 1e-6  # stop when a step gains less than this in log density
SHORTENED = 0.3 ** np.arange(7.0)  # of a Newton step, all tried at once
LONGEST = 10.0  # norm of a Newton step


class Approximation(NamedTuple):
    """Weighted draws of a posterior.

    ``vectors``: coordinates, shape (draw, coordinate); ``values``: the law's values and ``sigma``, ``dof`` and what else the
    error has, each of shape (draw,); ``weight``: shape (draw,), sum 1; ``k``: Pareto k-hat; ``mode``: the coordinates it was
    found at, from where a similar table can start.
    """

    vectors: np.ndarray
    values: dict[str, np.ndarray]
    weight: np.ndarray
    k: float
    mode: Array

    @property
    def ess(self) -> float:
        """Effective draws of the weights."""
        return float(1 / np.sum(self.weight**2)) if len(self.weight) else 0.0

    def is_trusted(self, min_ess: float = 0.0) -> bool:
        return self.k < TRUSTED_K and self.ess >= min_ess

    def chosen(self, draws: int, seed: int) -> np.ndarray:
        """Which draws make an equally weighted sample: systematic resampling, in random order."""
        rng = np.random.default_rng(seed)
        at = (rng.random() + np.arange(draws)) / draws
        return rng.permutation(np.minimum(np.searchsorted(np.cumsum(self.weight), at), len(self.weight) - 1))

    def resample(self, draws: int, seed: int) -> dict[str, np.ndarray]:
        """Values of equal weight."""
        chosen = self.chosen(draws, seed)
        return {name: v[chosen] for name, v in self.values.items()}


def approximate(law: Law, table: Padded, at: _geometry.Anchors, starts: Array, *, seed: int) -> Approximation:
    """Approximate the posterior of one table; rows of weight 0 are left out.

    Parameters
    ----------
    starts
        Coordinate vectors to search from, shape (start, coordinate); the best mode found is taken.
    """
    found = [_minimum(law, table, at, np.asarray(start)) for start in starts]
    mode, height = min(found, key=lambda f: f[1])
    if not np.isfinite(height):
        return Approximation(np.zeros((0, len(mode))), {}, np.zeros(0), np.inf, jnp.asarray(mode))
    rng, pool = np.random.default_rng(seed), Pool((), np.zeros((0, len(mode))), np.zeros(0), np.zeros(0), {})
    proposal = around(mode, whitening(hessian(law, table, at, mode)))
    while True:
        vectors = draw_from(proposal, DRAWS, rng)
        log_p, values = _evaluate(law, table, at, vectors)
        log_p = np.nan_to_num(np.asarray(log_p), nan=-np.inf)
        pool = pool.joined(proposal, vectors, log_p, {n: np.asarray(v) for n, v in values.items()})
        weight, k = pareto_smoothed(pool.log_weight)
        found_well = 1 / np.sum(weight**2) > ENOUGH and k < GOOD_K
        if found_well or not np.isfinite(k) or len(pool.proposals) == ROUNDS:
            return Approximation(pool.vectors, pool.values, weight, k, jnp.asarray(mode))
        telling = weight > TELLING
        proposal = fitted_to(pool.vectors[telling], weight[telling] / weight[telling].sum(), proposal, rng)


class Pool(NamedTuple):
    """Draws of all rounds so far, weighed against the mixture of all proposals (Cornuet et al. 2012).

    ``log_q``: of the sum of the proposals' densities, shape (draw,).
    """

    proposals: tuple[Mixture, ...]
    vectors: np.ndarray
    log_p: np.ndarray
    log_q: np.ndarray
    values: dict[str, np.ndarray]

    @property
    def log_weight(self) -> np.ndarray:
        return self.log_p - self.log_q + np.log(len(self.proposals))

    def joined(self, proposal: Mixture, vectors: np.ndarray, log_p: np.ndarray, values: dict[str, np.ndarray]) -> Pool:
        """With the draws of another round."""
        proposals = (*self.proposals, proposal)
        old = np.logaddexp(self.log_q, log_density_of(proposal, self.vectors)) if len(self.vectors) else self.log_q
        new = np.logaddexp.reduce([log_density_of(p, vectors) for p in proposals], axis=0)
        return Pool(
            proposals,
            np.concatenate([self.vectors, vectors]),
            np.concatenate([self.log_p, log_p]),
            np.concatenate([old, new]),
            {n: np.concatenate([self.values[n], v]) if self.values else v for n, v in values.items()},
        )


# -- proposals -------------------------------------------------------------------------------------------------------


class Mixture(NamedTuple):
    """Student-t components: ``share`` (component,), ``centre`` (component, coordinate), ``root`` of the scale matrices."""

    share: np.ndarray
    centre: np.ndarray
    root: np.ndarray


def around(centre: np.ndarray, root: np.ndarray) -> Mixture:
    """One component."""
    return Mixture(np.ones(1), centre[None], root[None])


def draw_from(mixture: Mixture, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws, shape (draw, coordinate)."""
    d = mixture.centre.shape[1]
    chosen = rng.choice(len(mixture.share), size=draws, p=mixture.share)
    w = rng.standard_normal((draws, d)) / np.sqrt(rng.chisquare(DOF, (draws, 1)) / DOF)
    return mixture.centre[chosen] + np.einsum("nij,nj->ni", mixture.root[chosen], w)


def _components(mixture: Mixture, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log density of each component times its share, and squared distances, each of shape (component, draw)."""
    d = vectors.shape[1]
    flat = np.linalg.inv(mixture.root)  # one product with all draws is several times faster than solving for them
    far = np.stack([np.sum((i @ (vectors - c).T) ** 2, axis=0) for c, i in zip(mixture.centre, flat, strict=True)])
    log_norm = gammaln((DOF + d) / 2) - gammaln(DOF / 2) - 0.5 * d * np.log(DOF * np.pi)
    log_size = np.linalg.slogdet(mixture.root)[1][:, None]
    return np.log(mixture.share)[:, None] + log_norm - log_size - 0.5 * (DOF + d) * np.log1p(far / DOF), far


def log_density_of(mixture: Mixture, vectors: np.ndarray) -> np.ndarray:
    """Log density, shape (draw,)."""
    return np.logaddexp.reduce(_components(mixture, vectors)[0], axis=0)


def fitted_to(vectors: np.ndarray, weight: np.ndarray, before: Mixture, rng: np.random.Generator) -> Mixture:
    """A mixture closer to weighted draws: steps of expectation maximisation (Cappe et al. 2008), scales kept from closing.

    The first time it starts from components at draws chosen by weight, each as wide as all draws together.
    """
    d = vectors.shape[1]
    centre = weight @ vectors
    spread = (vectors - centre).T * weight @ (vectors - centre)
    spread = spread * (DOF - 2) / DOF + 1e-12 * np.diag(np.diag(spread))
    if len(before.share) == 1:
        chosen = np.vstack([centre, vectors[rng.choice(len(weight), COMPONENTS - 1, p=weight)]])
        before = Mixture(
            np.full(COMPONENTS, 1 / COMPONENTS), chosen, np.stack([np.linalg.cholesky(spread)] * COMPONENTS)
        )
    for _ in range(EM_STEPS):
        log_each, far = _components(before, vectors)
        part = weight * np.exp(log_each - np.logaddexp.reduce(log_each, axis=0))
        share, heavy = part.sum(axis=1), part * (DOF + d) / (DOF + far)
        kept = share > LEAST_SHARE
        share, part, heavy = share[kept], part[kept], heavy[kept]
        centres = heavy @ vectors / heavy.sum(axis=1, keepdims=True)
        roots = []
        for c, h, s in zip(centres, heavy, share, strict=True):
            own = (vectors - c).T * h @ (vectors - c) / s
            roots.append(np.linalg.cholesky((1 - SHRINK) * own * INFLATE + SHRINK * spread))
        before = Mixture(share / share.sum(), centres, np.stack(roots))
    return before


@partial(jax.jit, static_argnums=0)
def sites_at(law: Law, table: Padded, at: _geometry.Anchors, vectors) -> dict[str, Array]:
    """NumPyro's unconstrained sites of coordinate vectors, each of shape (vector,)."""
    return jax.vmap(lambda v: _geometry.to_sites(law, at, from_vector(law, table.shared, v))[0])(vectors)


def starts_near(
    law: Law, table: Padded, at: _geometry.Anchors, values: Sequence[dict[str, Any]], noise: float
) -> Array:
    """Coordinate vectors of given values of the law, at a given scale of the noise, shape (start, coordinate)."""
    stacked = {n: jnp.asarray([v[n] for v in values], float) for n in values[0]}
    return _starts_near(law, table, at, stacked, jnp.asarray(noise))


@partial(jax.jit, static_argnums=0)
def _starts_near(law: Law, table: Padded, at: _geometry.Anchors, values, noise: Array) -> Array:
    def one(v):
        z = _geometry.from_sites(law, at, _geometry.unconstrain(law, v))
        return to_vector(law, table.shared, z | error_start(table.shared, noise))

    return jax.vmap(one)(values)


@partial(jax.jit, static_argnums=0)
def _evaluate(law: Law, table: Padded, at: _geometry.Anchors, vectors):
    """Log density of many vectors, and their values."""

    def one(vector):
        u = _geometry.to_sites(law, at, from_vector(law, table.shared, vector))[0]
        error = constrain_error(u, table.shared)
        values = _geometry.constrain(law, u) | error | {"dof": DOF_MIN + error["dof_above_2"]}
        return -potential(law, table, at, vector), values

    return jax.lax.map(one, vectors, batch_size=at_once(table))


def _minimum(law: Law, table: Padded, at: _geometry.Anchors, x: np.ndarray) -> tuple[np.ndarray, float]:
    """A minimum of the negative log density by Newton steps along its axes of curvature, uphill ones turned round."""
    heights, slopes = at_each(law, table, at, x[None])
    height, slope = float(heights[0]), slopes[0]
    for _ in range(NEWTON_STEPS):
        scale = whitening(hessian(law, table, at, x))
        move = scale @ (scale.T @ slope)
        move *= min(1.0, LONGEST / max(np.linalg.norm(move), 1e-300))
        tried = x - SHORTENED[:, None] * move
        heights, slopes = at_each(law, table, at, tried)
        best = int(np.argmin(heights))
        if not heights[best] < height - TOLERANCE:
            break
        x, height, slope = tried[best], float(heights[best]), slopes[best]
    return x, height
