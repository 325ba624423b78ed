"""The posterior density in the coordinates of `_geometry`, one vector a draw, with its gradient and curvature."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw import _geometry
from bayeslaw._law import Law
from bayeslaw._model import error_sites, log_density
from bayeslaw._padding import Padded
from bayeslaw._shared_error import NONE, SharedError

STEP = 1e-5  # of a coordinate, between two gradients whose difference is the curvature
FLAT = 1e-2  # curvature below which a direction is scaled as if this curved


def site_names(law: Law, shared: SharedError = NONE) -> list[str]:
    """Sampled sites, in the order of a coordinate vector."""
    return sorted([n for n, p in law.priors.items() if not p.is_fixed] + list(error_sites(shared)))


def from_vector(law: Law, shared: SharedError, vector: Array) -> dict[str, Array]:
    """Sites or coordinates by name from one vector."""
    return {n: vector[i] for i, n in enumerate(site_names(law, shared))}


def to_vector(law: Law, shared: SharedError, sites: dict[str, Array]) -> Array:
    """The inverse of `from_vector`."""
    return jnp.stack([jnp.asarray(sites[n]) for n in site_names(law, shared)])


def potential(law: Law, table: Padded, at: _geometry.Anchors, vector: Array) -> Array:
    """Negative log density of the coordinates (one vector, see `from_vector`)."""
    u, logdet = _geometry.to_sites(law, at, from_vector(law, table.shared, vector))
    rows = (table.covariates, table.y, table.weight, table.shared)
    return -log_density(law, *rows, u, _geometry.constrain(law, u)) - logdet


def error_start(shared: SharedError, noise: Array | float) -> dict[str, Array]:
    """Unconstrained error sites to start from."""
    start = {"sigma": jnp.log(noise), "dof_above_2": jnp.log(10.0)}
    if shared.kind is not None:
        start[f"tau_{shared.kind}"] = jnp.asarray(0.001) if shared.kind == "checkpoint" else jnp.log(0.002)
    return start | ({"run_length": jnp.log(0.1)} if shared.along_run else {})


@partial(jax.jit, static_argnums=0)
def gradients(law: Law, table: Padded, at: _geometry.Anchors, vectors) -> tuple[Array, Array]:
    """Negative log density and its gradient at many vectors, shape (vector,) and (vector, coordinate)."""
    return jax.vmap(jax.value_and_grad(partial(potential, law, table, at)))(vectors)


def at_each(law: Law, table: Padded, at: _geometry.Anchors, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`gradients` at up to 2 d + 1 vectors, by the one program compiled for that many; infinite where undefined."""
    n, size = len(vectors), 2 * vectors.shape[1] + 1
    padded = vectors[np.minimum(np.arange(size), n - 1)]
    heights, slopes = (np.asarray(v)[:n] for v in gradients(law, table, at, padded))
    return np.where(np.isfinite(heights), heights, np.inf), np.nan_to_num(slopes)


def hessian(law: Law, table: Padded, at: _geometry.Anchors, vector: np.ndarray) -> np.ndarray:
    """Second derivatives of the negative log density, from differences of gradients.

    Differentiating twice took XLA 25 s to compile for Form 3, the gradient takes 6.
    """
    d = len(vector)
    steps = STEP * np.concatenate([np.eye(d), -np.eye(d)])
    slopes = at_each(law, table, at, vector + steps)[1]
    found = (slopes[:d] - slopes[d:]) / (2 * STEP)
    return (found + found.T) / 2


def whitening(curvature: np.ndarray) -> np.ndarray:
    """Scale that makes a curvature the identity: ``scale @ standard_normal`` has its inverse as covariance."""
    sizes, axes = np.linalg.eigh(curvature)
    return axes / np.sqrt(np.maximum(np.abs(sizes), FLAT))
