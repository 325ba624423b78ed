"""Posteriors without chains: a Student-t proposal around the mode, importance weights with Pareto-smoothed tails.

Good where the posterior, in the coordinates of `_geometry`, is nearly elliptic; k-hat says whether it was (Vehtari et al.
2024: below .7 the weights can be trusted). One compiled program per law and padded size, as for NUTS; a refit takes tens
of milliseconds. What it is for: hold-out folds, resamples, designs. A posterior to report comes from `fit`.
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
from bayeslaw._diagnostics import pareto_smoothed
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, constrain_error
from bayeslaw._padding import Padded

TRUSTED_K = 0.7
DRAWS = 4000
ENOUGH = 1500  # effective draws with which no further round is proposed
INFLATE = 1.2  # of the covariance found by the round before
DOF = 5.0  # of the proposal: heavier tails than the posterior's
ROUNDS = 4  # of proposals, each around the mean and covariance that the one before found
NEWTON_STEPS, TOLERANCE = 100, 1e-6  # stop when a step gains less than this in log density
SHORTENED = 0.3 ** np.arange(7.0)  # of a Newton step, all tried at once
LONGEST = 10.0  # norm of a Newton step


class Approximation(NamedTuple):
    """Weighted draws of a posterior.

    ``values``: the law's values and ``sigma``, ``dof`` and what else the error has, each of shape (draw,); ``weight``:
    shape (draw,), sum 1; ``k``: Pareto k-hat; ``log_evidence``: log marginal likelihood of the table; ``mode``: the
    coordinates it was found at, from where a similar table can start.
    """

    values: dict[str, np.ndarray]
    weight: np.ndarray
    k: float
    log_evidence: float
    mode: Array

    @property
    def ess(self) -> float:
        """Effective draws of the weights."""
        return float(1 / np.sum(self.weight**2)) if len(self.weight) else 0.0

    def is_trusted(self, min_ess: float = 0.0) -> bool:
        return self.k < TRUSTED_K and self.ess >= min_ess

    def resample(self, draws: int, seed: int) -> dict[str, np.ndarray]:
        """Draws of equal weight, by systematic resampling, in random order."""
        rng = np.random.default_rng(seed)
        at = (rng.random() + np.arange(draws)) / draws
        chosen = np.minimum(np.searchsorted(np.cumsum(self.weight), at), len(self.weight) - 1)
        chosen = rng.permutation(chosen)
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
        return Approximation({}, np.zeros(0), np.inf, -np.inf, jnp.asarray(mode))
    centre, scale = mode, whitening(hessian(law, table, at, mode))
    rng, best = np.random.default_rng(seed), None
    for _ in range(ROUNDS):
        vectors, log_q = _proposals(centre, scale, rng)
        log_p, values = _evaluate(law, table, at, vectors)
        log_weight = np.nan_to_num(np.asarray(log_p), nan=-np.inf) - log_q
        weight, k = pareto_smoothed(log_weight)
        if best is None or 1 / np.sum(weight**2) > best.ess:
            evidence = float(np.logaddexp.reduce(log_weight) - np.log(len(log_weight)))
            best = Approximation({n: np.asarray(v) for n, v in values.items()}, weight, k, evidence, jnp.asarray(mode))
        if best.ess > ENOUGH or not np.isfinite(k):
            break
        centre = weight @ vectors
        spread = (vectors - centre).T * weight @ (vectors - centre)
        scale = np.linalg.cholesky(spread * (DOF - 2) / DOF * INFLATE + 1e-12 * np.diag(np.diag(spread)))
    assert best is not None
    return best


def _proposals(centre: np.ndarray, scale: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Multivariate Student-t vectors, shape (draw, coordinate), and their log density."""
    d = len(centre)
    w = rng.standard_normal((DRAWS, d)) / np.sqrt(rng.chisquare(DOF, (DRAWS, 1)) / DOF)
    log_norm = gammaln((DOF + d) / 2) - gammaln(DOF / 2) - 0.5 * d * np.log(DOF * np.pi)
    log_q = log_norm - 0.5 * (DOF + d) * np.log1p(np.sum(w**2, axis=1) / DOF) - np.linalg.slogdet(scale)[1]
    return centre + w @ scale.T, log_q


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

    return jax.vmap(one)(vectors)


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
