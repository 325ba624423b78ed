"""Coordinates that whiten the posterior of several domains, and NUTS in them.

A domain's own runs may fix its z to a thousandth (a hundred runs) or not at all (none),
and the more the wider the spread and the lower the noise. So what is sampled is, given
those three, z shifted and scaled by what a quadratic approximation of the domain's
likelihood says about it: as good as centred where it says much, non-centred where it
says nothing (Papaspiliopoulos et al. 2007, for every domain and direction by itself).
The floor, which must make up for what the other terms leave, follows them along the
curve on which the law keeps the domain's level. All of it is exact: a shift and a
triangular scale, whose Jacobian is the diagonal of a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import infer

from bayeslaw._inference import coordinates
from bayeslaw._inference.nuts import TARGET_ACCEPT, Program
from bayeslaw._law.law import Law
from bayeslaw._posteriors.pooling.hierarchy import (
    Domains,
    State,
    log_density,
    pooled_priors,
    values_of,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

# of the floor's prior median: where the level leaves less for the floor, it vanishes
# slowly
FLOOR_SOFT = 0.1


class Expansion(NamedTuple):
    """A domain's log likelihood is about slope u - u information u/2, at the noise of
    ``u``.

    ``u``, ``slope``: shape (domain, site); ``information``: (domain, site, site); the
    noise is the last site. ``level``: the law's loss at the domain's median run, shape
    (domain,).
    """

    u: Float[Array, "domain site"]
    slope: Float[Array, "domain site"]
    information: Float[Array, "domain site site"]
    level: Float[Array, " domain"]


class WhitenedPool(NamedTuple):
    """Everything the compiled program takes of several domains.

    ``half_normal``: scale of the spreads' prior, shape (site,); ``centre``, ``scale``:
    of the population's parameters (means, log spreads, log of the degrees of freedom
    above 2), shape (2 site + 1,).
    """

    domains: Domains
    half_normal: Float[Array, " site"]
    near: Expansion
    centre: Float[Array, " coordinate"]
    scale: Float[Array, " coordinate"]


def to_state(
    law: Law, problem: WhitenedPool, w: Mapping[str, Float[Array, " ..."]]
) -> tuple[State, Float[Array, ""]]:
    """A draw from whitened ``population`` (2 site + 1,) and ``domain`` (domain, site);
    log determinant of dz/dw.
    """
    near, sites = problem.near, len(problem.half_normal)
    population = problem.centre + problem.scale * w["population"]
    mean, spread = population[:sites], jnp.exp(population[sites : 2 * sites])

    # The noise, on which the rest depends. With u = mean + spread z its likelihood
    # slope u - information u^2 / 2, times the prior of z, is normal in z with precision
    # 1 + spread^2 information and mean spread (slope - information mean) over that.
    curvature = near.information[:, -1, -1]
    known = 1 + spread[-1] ** 2 * curvature
    pull = spread[-1] * (near.slope[:, -1] - curvature * mean[-1])
    z_noise = pull / known + w["domain"][:, -1] / jnp.sqrt(known)
    log_sigma = mean[-1] + spread[-1] * z_noise

    # The law's sites, likewise but in matrices: precision I + S information S = L L^T,
    # z = L^-T (L^-1 S (slope - information mean) + w). The expansion was taken at other
    # noise, so information and slope are scaled to this.
    quieter = jnp.exp(2 * (near.u[:, -1] - log_sigma))[:, None]
    information = quieter[..., None] * near.information[:, :-1, :-1]
    slope = quieter * near.slope[:, :-1] - information @ mean[:-1]
    of_law = spread[:-1]
    of_runs = of_law[None, :, None] * information * of_law[None, None, :]
    precision = jnp.eye(sites - 1)[None] + of_runs
    lower = jnp.linalg.cholesky(precision)
    solve = partial(jax.lax.linalg.triangular_solve, lower, left_side=True, lower=True)
    pulled = solve((of_law[None] * slope)[..., None])
    z = solve(pulled + w["domain"][:, :-1, None], transpose_a=True)[..., 0]
    law_sites = mean[None, :-1] + of_law[None] * z
    u = jnp.concatenate([law_sites, log_sigma[:, None]], axis=1)
    u = _follow_level(law, problem, information, spread, u)

    # |dz/dw| is 1 / det L, and 1 / sqrt(known) for the noise
    log_diagonal = jnp.log(jnp.diagonal(lower, axis1=1, axis2=2))
    logdet = -jnp.sum(log_diagonal) - 0.5 * jnp.sum(jnp.log(known))
    return State(mean, spread, jnp.exp(population[-1]), u), logdet


def _follow_level(
    law: Law,
    problem: WhitenedPool,
    information: Float[Array, "domain law_site law_site"],
    spread: Float[Array, " site"],
    u: Float[Array, "domain site"],
) -> Float[Array, "domain site"]:
    """Shift each domain's floor by how far the curve that keeps its level departs from
    its tangent, as much as its own runs say of the floor.

    The shift of one site by a function of the others leaves the Jacobian alone.
    """
    floor, near = coordinates.floor_term(law), problem.near
    if floor is None:
        return u
    f = list(pooled_priors(law)).index(floor.site)
    implied = partial(_implied_floor, law, problem.domains.middle, near.level)
    start, tangent = jax.jvp(implied, (near.u,), (u - near.u,))
    told = spread[f] ** 2 * information[:, f, f]
    share = told / (1 + told)
    return u.at[:, f].add(share * (implied(u) - start - tangent))


def _implied_floor(
    law: Law,
    middle: Mapping[str, Float[AnyArray, " domain"]],
    level: Float[Array, " domain"],
    u: Float[Array, "domain site"],
) -> Float[Array, " domain"]:
    """Log floor with which each domain's law has loss ``level`` at its median run,
    shape (domain,).
    """
    floor = coordinates.floor_term(law)
    assert floor is not None
    soft = FLOOR_SOFT * floor.prior.median
    without = values_of(law, u) | {floor.site: jnp.zeros(())}
    rest = law.loss(middle, without)
    left = level - rest
    return jnp.log(soft * jax.nn.softplus(left / soft))


def _potential(
    law: Law, problem: WhitenedPool
) -> Callable[[Mapping[str, Float[Array, " ..."]]], Float[Array, ""]]:
    def potential(w: Mapping[str, Float[Array, " ..."]]) -> Float[Array, ""]:
        state, logdet = to_state(law, problem, w)
        density = log_density(law, problem.domains, problem.half_normal, state)
        return -density - logdet

    return potential


def _kernel(potential_fn: Callable) -> infer.NUTS:
    blocks: Any = [("population",)]  # dense; diagonal elsewhere
    return infer.NUTS(
        potential_fn=potential_fn, dense_mass=blocks, target_accept_prob=TARGET_ACCEPT
    )


def _first(problem: WhitenedPool, key: Array) -> dict[str, Float[Array, " ..."]]:
    """Around the mode."""
    shapes = {"population": problem.centre.shape, "domain": problem.near.u.shape}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shapes[name])
        for name, k in zip(shapes, keys, strict=True)
    }


def _sites(
    law: Law, problem: WhitenedPool, w: Mapping[str, Float[Array, " ..."]]
) -> dict[str, Float[Array, " ..."]]:
    state, _ = to_state(law, problem, w)
    return state._asdict()


POOLED = Program(_potential, _kernel, _first, _sites)
