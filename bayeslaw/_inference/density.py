"""Evaluate the posterior density in `coordinates`, with gradient and curvature."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._base.programs import compiled
from bayeslaw._inference import coordinates
from bayeslaw._inference.coordinates import ContrastPoints, Unconstrained
from bayeslaw._inference.likelihood import log_density
from bayeslaw._inference.noise import error_names
from bayeslaw._inference.table import NONE, Padded, SharedError
from bayeslaw._law.law import Law

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


def site_names(law: Law, shared: SharedError = NONE) -> list[str]:
    """List the sampled sites, in the order of a coordinate vector."""
    of_error = error_names(shared)
    return sorted([*law.free_priors, *of_error])


def from_vector(
    law: Law, shared: SharedError, vector: Float[AnyArray, " coordinate"]
) -> dict[str, Float[AnyArray, ""]]:
    """Split one vector, shape (coordinate,), into sites or coordinates by name."""
    # `[i, ...]` gives an array in NumPy, too; `[i]` would give a scalar
    return {name: vector[i, ...] for i, name in enumerate(site_names(law, shared))}


def to_vector(
    law: Law, shared: SharedError, sites: Mapping[str, Float[AnyArray, ""] | float]
) -> Float[Any, " coordinate"]:
    """Invert `from_vector`; numbers and NumPy arrays give a NumPy array."""
    ordered = [sites[name] for name in site_names(law, shared)]
    is_jax = any(isinstance(site, Array) for site in ordered)
    # NumPy where possible: outside a program, JAX compiles each operation by itself
    return jnp.stack(ordered) if is_jax else np.stack(ordered)


def unsigned(sites: Unconstrained) -> Unconstrained:
    """Make ``tau_checkpoint`` nonnegative; the sampler's site is signed."""
    if "tau_checkpoint" not in sites:
        return sites
    return sites | {"tau_checkpoint": jnp.abs(sites["tau_checkpoint"])}


def sites_of(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vector: Float[Array, " coordinate"],
) -> Unconstrained:
    """Convert a coordinate vector to NumPyro's unconstrained sites, with scales made
    nonnegative (`unsigned`). Only the density takes signed scales.
    """
    z = from_vector(law, table.shared, vector)
    sites, _ = coordinates.to_sites(law, points, z)
    return unsigned(sites)


def potential(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vector: Float[Array, " coordinate"],
) -> Float[Array, ""]:
    """Compute the negative log density of coordinates (see `from_vector`)."""
    z = from_vector(law, table.shared, vector)
    sites, logdet = coordinates.to_sites(law, points, z)
    values = coordinates.constrain(law, sites)
    rows = (
        table.covariates,
        table.y,
        table.weight,
        table.shared,
    )
    # Change of variables: p(z) = p(site(z)) |d site / d z|.
    return -log_density(law, *rows, sites, values) - logdet


def error_start(
    shared: SharedError, log_noise: Float[AnyArray, ""] | float
) -> dict[str, Float[AnyArray, ""] | float]:
    """Choose a start for the unconstrained sites of the error."""
    start = {"sigma": log_noise, "dof_above_2": np.log(10.0)}
    if shared.kind == "checkpoint":
        xp = jnp if isinstance(log_noise, Array) else np
        # This site is the signed scale itself and not its logarithm
        # (`noise.ErrorPrior.tau_checkpoint`). The start is at most the noise of runs.
        start["tau_checkpoint"] = xp.minimum(0.001, xp.exp(log_noise))
    if shared.kind in ("run", "setting"):
        start[f"tau_{shared.kind}"] = np.log(0.002)
    if shared.along_run:
        start["run_length"] = np.log(0.1)
    return start


@compiled(static_argnums=0)
def gradients(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vectors: Float[AnyArray, "vector coordinate"],
) -> tuple[Float[Array, " vector"], Float[Array, "vector coordinate"]]:
    """Compute the negative log density and gradient at many vectors."""
    height = partial(potential, law, table, points)
    height_and_slope = jax.value_and_grad(height)
    return jax.vmap(height_and_slope)(vectors)


def at_each(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vectors: Float[np.ndarray, "vector coordinate"],
) -> tuple[Float[np.ndarray, " vector"], Float[np.ndarray, "vector coordinate"]]:
    """Compute `gradients` at up to 2 d + 1 vectors by one compiled program. Where the
    density is undefined, its negative log is infinite and the gradient 0.
    """
    n, d = vectors.shape
    # A program is compiled for one shape, so the last vector is repeated up to 2 d + 1,
    # the most that a Hessian or a line search needs.
    padded = vectors[np.minimum(np.arange(2 * d + 1), n - 1)]
    heights, slopes = gradients(law, table, points, padded)
    heights = np.asarray(heights)[:n]
    slopes = np.asarray(slopes)[:n]
    heights = np.where(np.isfinite(heights), heights, np.inf)
    return heights, np.nan_to_num(slopes)


def hessian(
    law: Law,
    table: Padded,
    points: ContrastPoints,
    vector: Float[np.ndarray, " coordinate"],
    longest_step: float = 1e-5,
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Estimate second derivatives of the negative log density from differences of
    gradients, shape (coordinate, coordinate).

    Differentiating twice took XLA 25 s to compile for Form 3, the gradient takes 6.
    """
    d = len(vector)
    # Central differences of the exact gradient,
    # H_ij = (g_j(x + h e_i) - g_j(x - h e_i)) / 2 h, have an error of O(h^2). Rounding
    # adds an error of about 1e-16 / h, relative to the gradient. In float64 the sum is
    # least near h = 1e-5 (Nocedal and Wright 2006, section 8.1). With little noise the
    # density is narrow, so the step is at most a tenth of the noise.
    noise = float(np.exp(from_vector(law, table.shared, vector)["sigma"]))
    step = min(longest_step, 0.1 * noise)
    steps = step * np.concatenate([np.eye(d), -np.eye(d)])
    _, slopes = at_each(law, table, points, vector + steps)
    curvature = (slopes[:d] - slopes[d:]) / (2 * step)
    # Differences are symmetric up to rounding only; eigh reads one triangle.
    return (curvature + curvature.T) / 2


def whitening(
    curvature: Float[np.ndarray, "coordinate coordinate"], flattest: float = 1e-2
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Compute the scale that whitens a density: ``scale @ standard_normal`` has the
    inverse of the curvature as covariance. Curvatures below ``flattest`` are raised to
    it.
    """
    # With H = Q diag(s) Q' the scale is Q diag(s)^-1/2. If the mode is not exact, an
    # eigenvalue can be negative; its absolute value still gives the width. The bound
    # keeps the width finite in flat directions.
    sizes, axes = np.linalg.eigh(curvature)
    sizes = np.maximum(np.abs(sizes), flattest)
    return axes / np.sqrt(sizes)
