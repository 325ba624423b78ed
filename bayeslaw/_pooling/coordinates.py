"""Coordinates that whiten the posterior of several domains, and NUTS in them.

A domain's own runs may fix its z to a thousandth (a hundred runs) or not at all (none),
and the more the wider the spread and the lower the noise. So what is sampled is, given
those three, z shifted and scaled by what a quadratic approximation of the domain's
likelihood says about it: as good as centred where it says much, non-centred where it
says nothing (Papaspiliopoulos et al. 2007, for every domain and direction by itself).
One coefficient, which must make up for what the other sites leave, follows them along a
curve (`leading`). All of it is exact: a shift and a triangular scale, whose Jacobian is
the diagonal of a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro import infer

from bayeslaw._inference.nuts import TARGET_ACCEPT, Program
from bayeslaw._law.law import Law
from bayeslaw._pooling import leading, triangular
from bayeslaw._pooling.hierarchy import Domains, State, log_density
from bayeslaw._pooling.leading import LeadingCurve

if TYPE_CHECKING:
    from jaxtyping import Float


class Expansion(NamedTuple):
    """A domain's log likelihood is about slope u - u information u/2, at the noise of
    ``u``.

    ``u``, ``slope``: shape (domain, site); ``information``: (domain, site, site); the
    noise is the last site. ``curve``: on which the leading coefficient keeps the
    domain's losses.
    """

    u: Float[Array, "domain site"]
    slope: Float[Array, "domain site"]
    information: Float[Array, "domain site site"]
    curve: LeadingCurve


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
    log determinant of the way to means, log spreads and z.
    """
    near, sites = problem.near, len(problem.half_normal)
    population = problem.centre + problem.scale * w["population"]
    mean, bent = population[:sites], population[sites : 2 * sites]
    log_spread, log_slope = _log_spread(problem.centre[sites : 2 * sites], bent)
    spread = jnp.exp(log_spread)

    # The noise, on which the rest depends. With u = mean + spread z its likelihood
    # slope u - information u^2 / 2, times the prior of z, is normal in z with precision
    # 1 + spread^2 information and mean spread (slope - information mean) over that.
    curvature = near.information[:, -1, -1]
    noise_precision = 1 + spread[-1] ** 2 * curvature
    pull = spread[-1] * (near.slope[:, -1] - curvature * mean[-1])
    z_noise = pull / noise_precision + w["domain"][:, -1] / jnp.sqrt(noise_precision)
    log_sigma = mean[-1] + spread[-1] * z_noise

    # The law's sites, likewise but in matrices: precision I + S information S = L L^T,
    # z = L^-T (L^-1 S (slope - information mean) + w). The expansion was taken at other
    # noise, so information and slope are scaled to this.
    quieter = jnp.exp(2 * (near.u[:, -1] - log_sigma))[:, None]
    information = quieter[..., None] * near.information[:, :-1, :-1]
    slope = quieter * near.slope[:, :-1] - information @ mean[:-1]
    of_law = spread[:-1]
    of_runs = of_law[None, :, None] * information * of_law[None, None, :]
    lower = triangular.cholesky(jnp.eye(sites - 1)[None] + of_runs)
    pulled = triangular.solve(lower, of_law[None] * slope)
    z = triangular.solve_transposed(lower, pulled + w["domain"][:, :-1])
    law_sites = mean[None, :-1] + of_law[None] * z
    u = jnp.concatenate([law_sites, log_sigma[:, None]], axis=1)

    # what a domain's own runs weigh in each of its sites, by itself
    data_weight = jnp.diagonal(of_runs, axis1=1, axis2=2)
    share = data_weight / (1 + data_weight)
    u = leading.follow(law, problem.domains, near.curve, near.u, share, u)

    # |dz/dw| is 1 / det L, and 1 / sqrt(known) for the noise
    log_slopes = -triangular.log_determinant(lower) - 0.5 * jnp.log(noise_precision)
    state = State(mean, spread, jnp.exp(population[-1]), u)
    return state, jnp.sum(log_slopes) + jnp.sum(log_slope)


def _log_spread(
    near: Float[Array, " site"], bent: Float[Array, " site"]
) -> tuple[Float[Array, " site"], Float[Array, " site"]]:
    """Log spread of a coordinate that is about it from ``near`` upwards, and the log of
    its slope.
    """
    # Where domains may well be alike, the density of a spread is flat down to 0, and
    # that of its logarithm has an endless tail exp(log spread). With log spread = v -
    # softplus(-v)^2 / 2 the tail is about exp(-v^2 / 2).
    v = bent - near
    below = jax.nn.softplus(-v)
    slope = 1 + below * jax.nn.sigmoid(-v)
    return near + v - 0.5 * below**2, jnp.log(slope)


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
