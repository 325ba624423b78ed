"""Find each domain's mode given the population. The domain's likelihood is expanded at
the mode, which also gives the weight of the domain's own runs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._base.programs import OFTEN, compiled
from bayeslaw._inference import coordinates, point
from bayeslaw._inference.noise import ERROR
from bayeslaw._law.law import Law
from bayeslaw._pooling.coordinates import Expansion, WhitenedPool
from bayeslaw._pooling.hierarchy import (
    Domains,
    curve_at,
    pooled_priors,
    prior_moments,
    row_log_likelihood,
    row_log_loss,
    values_of,
)

if TYPE_CHECKING:
    from jaxtyping import Float


# The search for the modes at which likelihoods are expanded: Newton steps under the law's
# prior from several starts, then more, each followed by an update of the population's
# mean and spread.
STARTS, NEWTON_STEPS, POPULATION_STEPS, HALVINGS = 8, 30, 20, 7
LONGEST_STEP = 3.0  # in sds of the prior
PSEUDO_DOMAINS = 3.0  # domains that a spread's prior counts as
DOF_ABOVE_2 = 10.0


def expand(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    dof_above_2: Float[Array, ""],
) -> tuple[Float[Array, "domain site"], Float[Array, "domain site site"]]:
    """Compute the gradient and the expected curvature of each domain's log likelihood at u.

    The expected curvature is never negative, and zero without rows. The Fisher
    information of a Student-t (Lange et al. 1989) is (dof + 1) / (dof + 3) / scale^2
    for its location and 2 dof / (dof + 3) for its log scale, with no correlation of the
    two.
    """
    dof = ERROR.dof_min + dof_above_2

    def total(v: Float[Array, "domain site"]) -> Float[Array, ""]:
        rows = row_log_likelihood(law, domains, v, dof_above_2)
        return jnp.sum(rows)

    def mean(v: Float[Array, "domain site"]) -> Float[Array, "block run"]:
        values = values_of(law, v)
        return row_log_loss(law, domains, values)

    # derivative of each row's mean along a site of its domain
    def slope(site: Float[Array, " site"]) -> Float[Array, "block run"]:
        along = jnp.broadcast_to(site, u.shape)
        _, slopes_of_rows = jax.jvp(mean, (u,), (along,))
        return slopes_of_rows

    # A row depends on the parameters of its domain only, so one gradient of the sum
    # gives the gradients of all domains.
    gradient = jax.grad(total)(u)
    slopes = jax.vmap(slope)(jnp.eye(u.shape[1]))  # (site, block, run)
    # The expected curvature of a row is slope slope' times its location's information:
    # Gauss-Newton, without second derivatives of the law.
    variance = domains.by_block(jnp.exp(2 * u[:, -1]))
    weight = domains.weight * (dof + 1) / (dof + 3) / variance
    # products of each pair of sites, shape (site, site, block, run)
    products = slopes[:, None] * slopes[None] * weight[None, None]
    by_domain = jax.vmap(jax.vmap(domains.sums, out_axes=-1), out_axes=-1)
    information = by_domain(products)
    of_noise = domains.sums(domains.weight) * 2 * dof / (dof + 3)
    return gradient, information.at[:, -1, -1].add(of_noise)


class _Step(NamedTuple):
    u: Float[Array, "domain site"]
    height: Float[Array, " domain"]
    precision: Float[Array, "domain site site"]
    gradient: Float[Array, "domain site"]
    information: Float[Array, "domain site site"]


def _take_newton_step(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    mean: Float[Array, " site"],
    spread: Float[Array, " site"],
) -> _Step:
    """Take one step uphill for every domain, given the population (Fisher scoring).

    The effective number of parameters is subtracted from the rows that inform the
    noise, as n - p in an unbiased variance; otherwise the noise would be too low.
    """
    dof = jnp.asarray(DOF_ABOVE_2)
    gradient, information = expand(law, domains, u, dof)
    prior = jnp.diag(spread**-2)[None]
    # The effective number of parameters is the trace of the rows' information times the
    # inverse of the total information.
    data_share = jnp.linalg.solve(information + prior, information)
    paid = jnp.trace(data_share[:, :-1, :-1], axis1=1, axis2=2)
    rows = domains.sums(domains.weight)
    # n - p in place of n, as in an unbiased variance
    unpaid = 1 - paid / jnp.maximum(rows, paid + 1)
    gradient = gradient.at[:, -1].add(paid)
    information = information.at[:, -1, -1].multiply(unpaid)
    precision = information + prior
    uphill = gradient + (mean[None] - u) / spread[None] ** 2
    # Fisher scoring: Newton's step with the expected curvature.
    move = jnp.linalg.solve(precision, uphill[..., None])[..., 0]
    _, sd = prior_moments(law)
    in_sds = move / sd[None]
    length = jnp.linalg.norm(in_sds, axis=1, keepdims=True)
    move = move / jnp.maximum(1.0, length / LONGEST_STEP)

    def height(v: Float[Array, "domain site"]) -> Float[Array, " domain"]:
        # the likelihood's term -rows log sigma, with ``paid`` rows less
        rows_of_domain = domains.sums(row_log_likelihood(law, domains, v, dof))
        fit = rows_of_domain + paid * v[:, -1]
        z = (v - mean[None]) / spread[None]
        return fit - 0.5 * jnp.sum(z**2, axis=1)

    # The starting point itself is among the candidates, so no step goes downhill.
    shares = 0.5 ** jnp.arange(HALVINGS + 1.0)[:, None, None]
    tried = jnp.concatenate([u[None], u[None] + shares * move[None]])
    heights = jax.vmap(height)(tried)
    heights = jnp.where(jnp.isfinite(heights), heights, -jnp.inf)
    best = jnp.argmax(heights, axis=0)
    u = jnp.take_along_axis(tried, best[None, :, None], axis=0)[0]
    return _Step(u, jnp.max(heights, axis=0), precision, gradient, information)


@compiled(static_argnums=0, level=OFTEN)
def _expand_at_modes(
    law: Law,
    domains: Domains,
    half_normal: Float[Array, " site"],
    starts: Float[Array, "start site"],
) -> WhitenedPool:
    """Find each domain's mode from many starts under the law's prior; then alternate between
    the population and the modes given it.
    """
    centre, sd = (jnp.asarray(a) for a in prior_moments(law))
    k = domains.count
    # median of a half-normal: the spread before any domain is known
    usual = 0.67 * half_normal

    def turn(i, carry):
        u, mean, spread = carry
        step = jax.lax.map(
            lambda v: _take_newton_step(law, domains, v, mean, spread), u
        )
        # Each domain keeps its own best of all starts.
        best = jnp.argmax(step.height, axis=0)
        modes = step.u[best, jnp.arange(k)]
        precision = step.precision[best, jnp.arange(k)]
        # the population given the domains: like one step of expectation maximisation
        weights = k / spread**2 + sd**-2
        new_mean = (jnp.sum(modes, 0) / spread**2 + centre / sd**2) / weights
        unknown = jnp.diagonal(jnp.linalg.inv(precision), axis1=1, axis2=2)
        # E((u - mean)^2) in the E step is the mode's squared distance plus the domain's
        # remaining variance (Dempster, Laird and Rubin 1977).
        squares = jnp.sum((modes - mean[None]) ** 2 + unknown, axis=0)
        squares += PSEUDO_DOMAINS * usual**2
        new_spread = jnp.sqrt(squares / (k + PSEUDO_DOMAINS))
        keep = partial(jnp.where, i >= NEWTON_STEPS)
        return keep(modes, step.u), keep(new_mean, mean), keep(new_spread, spread)

    u = jnp.broadcast_to(starts[:, None], (len(starts), k, len(sd)))
    turns = NEWTON_STEPS + POPULATION_STEPS
    u, mean, spread = jax.lax.fori_loop(0, turns, turn, (u, centre, sd))
    u = u[0]
    step = _take_newton_step(law, domains, u, mean, spread)
    # l(v) ~ l(u) + g'(v - u) - (v - u)'I(v - u)/2: its linear part is g + I u.
    slope = step.gradient + jnp.einsum("dij,dj->di", step.information, u)
    curve = curve_at(law, domains, u)
    near = Expansion(u, slope, step.information, curve)
    log_dof = jnp.log(DOF_ABOVE_2)
    middle = jnp.concatenate([mean, jnp.log(spread), log_dof[None]])
    # With k domains the mean is known to spread / sqrt(k), and the log spread to about
    # 1 / sqrt(2 k); a rough scale is enough.
    in_spread, in_log = spread / np.sqrt(k), jnp.full(len(sd), 1 / np.sqrt(k))
    scale = jnp.concatenate([in_spread, in_log, jnp.full(1, 0.5)])
    return WhitenedPool(domains, half_normal, near, middle, scale)


def prepare(
    law: Law,
    domains: Domains,
    spread: float,
    seed: int,
) -> WhitenedPool:
    """Find coordinates that whiten the posterior; ``spread``: in the priors' sds."""
    points = coordinates.contrast_points(law, domains.table.covariates)
    starts = point.start_points(law, domains.table, points, STARTS, seed)
    sites = jax.vmap(lambda z: coordinates.to_sites(law, points, z)[0])(starts)
    sites |= {"sigma": jnp.full(STARTS, np.log(0.02))}
    vectors = jnp.stack([sites[name] for name in pooled_priors(law)], axis=1)
    half_normal = jnp.asarray(spread * prior_moments(law)[1])
    return _expand_at_modes(law, domains, half_normal, vectors)


@compiled(static_argnums=0)
def own_shares(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    dof_above_2: Float[Array, ""],
    spreads: Float[Array, "draw site"],
) -> Float[Array, "domain site"]:
    """Compute the share of the information about each domain that comes from its own runs:
    one minus the pooling factor of Gelman and Pardoe 2006, 1 - Var(z | own runs,
    population), at u and averaged over the spreads.
    """
    information = expand(law, domains, u, dof_above_2)[1]

    def one(spread: Float[Array, " site"]) -> Float[Array, "domain site"]:
        # u = mean + S z, so the precision of z is 1 from the prior plus S I S from the
        # runs
        of_runs = spread[None, :, None] * information * spread[None, None, :]
        precision = jnp.eye(len(spread))[None] + of_runs
        covariance = jnp.linalg.inv(precision)
        variance = jnp.diagonal(covariance, axis1=1, axis2=2)
        return 1 - variance

    return jnp.mean(jax.lax.map(one, spreads), axis=0)
