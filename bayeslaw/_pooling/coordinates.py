"""Whiten the pooled posterior of several domains, and run NUTS in whitened coordinates.

Domain d has sites u = mean + spread z. A hundred runs determine z to a thousandth;
without runs z stays at its prior. So NUTS samples w: z shifted and scaled, given mean,
spread and noise, by a quadratic approximation of the domain's likelihood. For a domain
with many runs this is close to a centred parametrisation, for a domain without runs it
is non-centred (partial non-centring: Papaspiliopoulos et al. 2007). It adapts to each
domain and direction. One coefficient also moves along a curve of the other sites
(`LeadingCurve`). The map from w to z is exact: a shift and a triangular scale. Its log
determinant comes from the diagonal of a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from numpyro import infer

from bayeslaw._inference.nuts import TARGET_ACCEPT, Program
from bayeslaw._law.law import Law
from bayeslaw._pooling.hierarchy import (
    Domains,
    LeadingCurve,
    State,
    follow,
    log_density,
)

if TYPE_CHECKING:
    from jaxtyping import Float


class Expansion(NamedTuple):
    """A quadratic approximation of each domain's log likelihood: slope' v - v' information
    v / 2 for sites v, at the noise of ``u``. The last site is log noise.
    """

    u: Float[Array, "domain site"]
    slope: Float[Array, "domain site"]
    information: Float[Array, "domain site site"]
    curve: LeadingCurve


class WhitenedPool(NamedTuple):
    """The arguments of the compiled program of a pool: ``half_normal``, the scale of the
    spreads' prior; location and scale of the population's parameters (means, log
    spreads, log(dof - 2)).
    """

    domains: Domains
    half_normal: Float[Array, " site"]
    near: Expansion
    centre: Float[Array, " coordinate"]
    scale: Float[Array, " coordinate"]


def to_state(
    law: Law, problem: WhitenedPool, w: Mapping[str, Float[Array, " ..."]]
) -> tuple[State, Float[Array, ""]]:
    """Map whitened ``population`` (2 site + 1,) and ``domain`` (domain, site) to a draw;
    return also the log Jacobian determinant of (mean, log spread, z).
    """
    near, sites = problem.near, len(problem.half_normal)
    population = problem.centre + problem.scale * w["population"]
    mean, bent = population[:sites], population[sites : 2 * sites]
    log_spread, log_slope = _log_spread(problem.centre[sites : 2 * sites], bent)
    spread = jnp.exp(log_spread)

    # Noise comes first, because the other sites depend on it. For u = mean + spread z,
    # the likelihood exp(slope u - information u^2 / 2) times the prior of z is normal
    # in z: precision = 1 + spread^2 information, mean = spread (slope - information
    # mean) / precision.
    curvature = near.information[:, -1, -1]
    noise_precision = 1 + spread[-1] ** 2 * curvature
    pull = spread[-1] * (near.slope[:, -1] - curvature * mean[-1])
    z_noise = pull / noise_precision + w["domain"][:, -1] / jnp.sqrt(noise_precision)
    log_sigma = mean[-1] + spread[-1] * z_noise

    # The law's sites by the same formula in matrices, with S = diag(spread): precision
    # I + S information S = L L^T, z = L^-T (L^-1 S (slope - information mean) + w).
    # Slope and information are proportional to 1 / noise^2; scale them to this noise.
    quieter = jnp.exp(2 * (near.u[:, -1] - log_sigma))[:, None]
    information = quieter[..., None] * near.information[:, :-1, :-1]
    slope = quieter * near.slope[:, :-1] - information @ mean[:-1]
    of_law = spread[:-1]
    of_runs = of_law[None, :, None] * information * of_law[None, None, :]
    lower = jnp.linalg.cholesky(jnp.eye(sites - 1)[None] + of_runs)
    pulled = _solve(lower, of_law[None] * slope)
    z = _solve(lower, pulled + w["domain"][:, :-1], transposed=True)
    law_sites = mean[None, :-1] + of_law[None] * z
    u = jnp.concatenate([law_sites, log_sigma[:, None]], axis=1)

    # share of each site's posterior precision that comes from the domain's runs
    data_weight = jnp.diagonal(of_runs, axis1=1, axis2=2)
    share = data_weight / (1 + data_weight)
    u = follow(law, problem.domains, near.curve, near.u, share, u)

    # |dz/dw| is 1 / det L for the law's sites, 1 / sqrt(precision) for the noise
    log_det = jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)), axis=1)
    log_slopes = -log_det - 0.5 * jnp.log(noise_precision)
    state = State(mean, spread, jnp.exp(population[-1]), u)
    return state, jnp.sum(log_slopes) + jnp.sum(log_slope)


def _solve(
    lower: Float[Array, "domain site site"],
    right: Float[Array, "domain site"],
    transposed: bool = False,
) -> Float[Array, "domain site"]:
    """Solve L x = right of each domain for x, or L' x = right."""
    column = right[..., None]
    return solve_triangular(lower, column, trans=int(transposed), lower=True)[..., 0]


def _log_spread(
    near: Float[Array, " site"], bent: Float[Array, " site"]
) -> tuple[Float[Array, " site"], Float[Array, " site"]]:
    """Map a coordinate to log spread, bending it below ``near``; return also the log
    derivative. Well above ``near`` the map is the identity.
    """
    # Domains may be equal: the density of a spread is then flat down to 0, and the log
    # spread has a long tail, exp(log spread). With log spread = near + v -
    # softplus(-v)^2 / 2 the tail in v is about exp(-v^2 / 2).
    v = bent - near
    below = jax.nn.softplus(-v)
    slope = 1 + below * jax.nn.sigmoid(-v)
    return near + v - 0.5 * below**2, jnp.log(slope)


def _build_potential(
    law: Law, problem: WhitenedPool
) -> Callable[[Mapping[str, Float[Array, " ..."]]], Float[Array, ""]]:
    def potential(w: Mapping[str, Float[Array, " ..."]]) -> Float[Array, ""]:
        state, logdet = to_state(law, problem, w)
        density = log_density(law, problem.domains, problem.half_normal, state)
        return -density - logdet

    return potential


def _make_kernel(potential_fn: Callable) -> infer.NUTS:
    blocks: Any = [("population",)]  # dense mass matrix; diagonal for ``domain``
    return infer.NUTS(
        potential_fn=potential_fn, dense_mass=blocks, target_accept_prob=TARGET_ACCEPT
    )


def _draw_first_point(
    problem: WhitenedPool, key: Array
) -> dict[str, Float[Array, " ..."]]:
    shapes = {"population": problem.centre.shape, "domain": problem.near.u.shape}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shapes[name])
        for name, k in zip(shapes, keys, strict=True)
    }


def _convert_to_sites(
    law: Law, problem: WhitenedPool, w: Mapping[str, Float[Array, " ..."]]
) -> dict[str, Float[Array, " ..."]]:
    state, _ = to_state(law, problem, w)
    return state._asdict()


POOLED = Program(_build_potential, _make_kernel, _draw_first_point, _convert_to_sites)
