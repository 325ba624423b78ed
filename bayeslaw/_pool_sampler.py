"""Partial pooling over domains: the density, coordinates that whiten it, and NUTS in them.

Each sampled site of a law (and the scale of the noise) is, on the unconstrained scale and for every domain,

    u = mean + spread z,    z ~ Normal(0, 1),

where the mean has the law's own prior, and the spread a half-normal one in units of that prior's sd. A domain's own runs
may fix its z to a thousandth (a hundred runs) or not at all (none), and the more the wider the spread and the lower the
noise. So what is sampled is, given those three, z shifted and scaled by what a quadratic approximation of the domain's
likelihood says about it: as good as centred where it says much, non-centred where it says nothing (Papaspiliopoulos et
al. 2007, for every domain and direction by itself). The floor, which must make up for what the other terms leave, follows
them along the curve on which the law keeps the domain's level. All of it is exact: a shift and a triangular scale, whose
Jacobian is the diagonal of a Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.infer import NUTS

from bayeslaw import _geometry, _point
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, DOF_RATE, DOF_SHAPE, LOSS_MIN, SIGMA
from bayeslaw._padding import Padded
from bayeslaw._priors import Prior
from bayeslaw._sampler import TARGET_ACCEPT, Program

# The search for where to expand the likelihood.
STARTS, NEWTON_STEPS, POPULATION_STEPS = 8, 30, 20
SHORTENED = 0.5 ** np.arange(0, 8, 1.0)  # of a Newton step, all tried at once
LONGEST = 3.0  # step, in sds of the prior
PSEUDO = 3.0  # domains that the prior of a spread counts for there
TAILS = 10.0  # degrees of freedom above 2 there
FLOOR_SOFT = 0.1  # of the floor's prior median: where the level leaves less for the floor, it vanishes slowly


class Domains(NamedTuple):
    """A table of several domains.

    ``code``: each row's domain, shape (row,). ``middle``: each covariate at the median of each domain, shape (domain,).
    """

    table: Padded
    code: Any
    middle: Mapping[str, Any]

    @property
    def count(self) -> int:
        return len(next(iter(self.middle.values())))


class Expansion(NamedTuple):
    """A domain's log likelihood is about slope u - u information u/2, at the noise of ``u``.

    ``u``, ``slope``: shape (domain, site); ``information``: (domain, site, site); the noise is the last site. ``level``:
    the law's loss at the domain's median run, shape (domain,).
    """

    u: Array
    slope: Array
    information: Array
    level: Array


class Problem(NamedTuple):
    """Everything the compiled program takes.

    ``half_normal``: scale of the spreads' prior, shape (site,); ``centre``, ``scale``: of the population's parameters
    (means, log spreads, log of the degrees of freedom above 2), shape (2 site + 1,).
    """

    domains: Domains
    half_normal: Array
    near: Expansion
    centre: Array
    scale: Array


class State(NamedTuple):
    """One draw: ``mean`` and ``spread`` of shape (site,), ``dof_above_2``, ``u`` of shape (domain, site)."""

    mean: Array
    spread: Array
    dof_above_2: Array
    u: Array


def pooled_priors(law: Law) -> dict[str, Prior]:
    """Priors of the population's means: the law's free sites and, last, the noise, in the order of a vector."""
    return {n: p for n, p in law.priors.items() if not p.is_fixed} | {"sigma": SIGMA}


def prior_moments(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Centre and sd of each prior on the unconstrained scale (log of a positive, logit of a share), shape (site,)."""
    known = _point._prior_centre(law) | {"sigma": (np.log(SIGMA.args[0]), SIGMA.args[1])}
    centre, sd = np.array([known[n] for n in pooled_priors(law)]).T
    return centre, sd


def values_of(law: Law, u: Array) -> dict[str, Array]:
    """The law's values and ``sigma`` from unconstrained ones, shape (..., site); fixed ones are scalars."""
    by_name = {n: u[..., i] for i, n in enumerate(pooled_priors(law))}
    return _geometry.constrain(law, by_name) | {"sigma": jnp.exp(by_name["sigma"])}


# -- the density -----------------------------------------------------------------------------------------------------


def row_log_loss(law: Law, domains: Domains, values: Mapping[str, Array]) -> Array:
    """The law's log loss at every row from values of shape (domain,), shape (row,).

    Coefficients are worked out by domain, which saves half of the powers that `Law.loss` would take at every row.
    """
    x, row = domains.table.covariates, {n: v[domains.code] if v.ndim else v for n, v in values.items()}
    coefficients = {n: jnp.broadcast_to(c, domains.count)[domains.code] for n, c in law.coefficients(values).items()}
    known = 0.0 if law.offset is None else law.offset(x)
    loss = known + sum(t.sign * coefficients[t.coefficient] * t.basis(x, row) for t in law.terms)
    return jnp.log(jnp.maximum(loss, LOSS_MIN))


def row_log_likelihood(law: Law, domains: Domains, u: Array, dof_above_2: Array) -> Array:
    """Log density of every row given each domain's u, shape (row,)."""
    values, dof = values_of(law, u), DOF_MIN + dof_above_2
    rest = (row_log_loss(law, domains, values) - domains.table.y) / values["sigma"][domains.code]
    scale = u[:, -1][domains.code]
    return (dist.StudentT(dof).log_prob(rest) - scale) * domains.table.weight


def log_prior_mean(law: Law, mean: Array) -> Array:
    """Log prior density of the population's means on the unconstrained scale."""

    def one(prior: Prior, u: Array) -> Array:
        if prior.support == "positive":
            return u + prior.distribution().log_prob(jnp.exp(u))
        if prior.support == "unit":
            return jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u) + prior.distribution().log_prob(jax.nn.sigmoid(u))
        return jnp.asarray(prior.distribution().log_prob(u))

    return sum((one(p, mean[i]) for i, p in enumerate(pooled_priors(law).values())), jnp.zeros(()))


def log_density(law: Law, domains: Domains, half_normal: Array, state: State) -> Array:
    """Log posterior density of means, log spreads, z, and the log of the degrees of freedom above 2."""
    spread = jnp.sum(dist.HalfNormal(half_normal).log_prob(state.spread) + jnp.log(state.spread))
    tails = dist.Gamma(DOF_SHAPE, DOF_RATE).log_prob(state.dof_above_2) + jnp.log(state.dof_above_2)
    z = (state.u - state.mean) / state.spread
    rows = jnp.sum(row_log_likelihood(law, domains, state.u, state.dof_above_2))
    return log_prior_mean(law, state.mean) + spread + tails + jnp.sum(jax.scipy.stats.norm.logpdf(z)) + rows


# -- coordinates -----------------------------------------------------------------------------------------------------


def to_state(law: Law, problem: Problem, w: Mapping[str, Array]) -> tuple[State, Array]:
    """A draw from whitened ``population`` (2 site + 1,) and ``domain`` (domain, site); log determinant of dz/dw."""
    p, near, sites = problem.centre + problem.scale * w["population"], problem.near, len(problem.half_normal)
    mean, spread = p[:sites], jnp.exp(p[sites : 2 * sites])

    known = 1 + spread[-1] ** 2 * near.information[:, -1, -1]
    pull = spread[-1] * (near.slope[:, -1] - near.information[:, -1, -1] * mean[-1])
    log_sigma = mean[-1] + spread[-1] * (pull / known + w["domain"][:, -1] / jnp.sqrt(known))

    quieter = jnp.exp(2 * (near.u[:, -1] - log_sigma))[:, None]
    information = quieter[..., None] * near.information[:, :-1, :-1]
    slope = quieter * near.slope[:, :-1] - information @ mean[:-1]
    lower = jnp.linalg.cholesky(jnp.eye(sites - 1) + spread[:-1, None] * information * spread[:-1])
    solve = partial(jax.lax.linalg.triangular_solve, lower, left_side=True, lower=True)
    z = solve(solve((spread[:-1] * slope)[..., None]) + w["domain"][:, :-1, None], transpose_a=True)[..., 0]
    u = jnp.concatenate([mean[:-1] + spread[:-1] * z, log_sigma[:, None]], axis=1)

    logdet = -jnp.sum(jnp.log(jnp.diagonal(lower, axis1=1, axis2=2))) - 0.5 * jnp.sum(jnp.log(known))
    return State(mean, spread, jnp.exp(p[-1]), _follow_level(law, problem, information, spread, u)), logdet


def _follow_level(law: Law, problem: Problem, information: Array, spread: Array, u: Array) -> Array:
    """Shift each domain's floor by how far the curve that keeps its level departs from its tangent."""
    floor, near = _geometry.floor_term(law), problem.near
    if floor is None:
        return u
    f = list(pooled_priors(law)).index(floor.site)
    implied = partial(_implied_floor, law, problem.domains.middle, near.level)
    start, tangent = jax.jvp(implied, (near.u,), (u - near.u,))
    own = spread[f] ** 2 * information[:, f, f]
    return u.at[:, f].add(own / (1 + own) * (implied(u) - start - tangent))


def _implied_floor(law: Law, middle: Mapping[str, Array], level: Array, u: Array) -> Array:
    """Log floor with which each domain's law has loss ``level`` at its median run, shape (domain,)."""
    floor = _geometry.floor_term(law)
    assert floor is not None
    soft = FLOOR_SOFT * floor.prior.median
    left = level - law.loss(middle, values_of(law, u) | {floor.site: jnp.zeros(())})
    return jnp.log(soft * jax.nn.softplus(left / soft))


# -- where to expand the likelihood ----------------------------------------------------------------------------------


def expand(law: Law, domains: Domains, u: Array, dof_above_2: Array) -> tuple[Array, Array]:
    """Gradient and expected curvature of each domain's log likelihood at u.

    The expected curvature (Fisher information of a Student-t) is never negative, and zero where there are no rows.
    """
    dof = DOF_MIN + dof_above_2
    gradient = jax.grad(lambda v: jnp.sum(row_log_likelihood(law, domains, v, dof_above_2)))(u)

    def mean(v):
        return row_log_loss(law, domains, values_of(law, v))

    slopes = jax.vmap(lambda e: jax.jvp(mean, (u,), (jnp.broadcast_to(e, u.shape),))[1])(jnp.eye(u.shape[1]))
    weight = domains.table.weight * (dof + 1) / (dof + 3) / jnp.exp(2 * u[domains.code, -1])
    inside = jax.nn.one_hot(domains.code, domains.count)
    information = jnp.einsum("ir,jr,r,rd->dij", slopes, slopes, weight, inside)
    return gradient, information.at[:, -1, -1].add(domains.table.weight @ inside * 2 * dof / (dof + 3))


class _Step(NamedTuple):
    u: Array
    height: Array
    precision: Array
    gradient: Array
    information: Array


def _newton(law: Law, domains: Domains, u: Array, mean: Array, spread: Array) -> _Step:
    """A step uphill for every domain, given the population.

    The rows that pay for a domain's parameters say nothing about its noise, which would otherwise be found too low.
    """
    dof, inside = jnp.asarray(TAILS), jax.nn.one_hot(domains.code, domains.count)
    gradient, information = expand(law, domains, u, dof)
    paid = jnp.trace(jnp.linalg.solve(information + jnp.diag(spread**-2), information)[:, :-1, :-1], axis1=1, axis2=2)
    rows = domains.table.weight @ inside
    gradient = gradient.at[:, -1].add(paid)
    information = information.at[:, -1, -1].multiply(1 - paid / jnp.maximum(rows, paid + 1))
    precision = information + jnp.diag(spread**-2)
    move = jnp.linalg.solve(precision, (gradient + (mean - u) / spread**2)[..., None])[..., 0]
    move = move / jnp.maximum(1.0, jnp.linalg.norm(move / prior_moments(law)[1], axis=1, keepdims=True) / LONGEST)

    def height(v):
        fit = row_log_likelihood(law, domains, v, dof) @ inside + paid * v[:, -1]
        return fit - 0.5 * jnp.sum(((v - mean) / spread) ** 2, axis=1)

    tried = jnp.concatenate([u[None], u + jnp.asarray(SHORTENED)[:, None, None] * move])
    heights = jax.vmap(height)(tried)
    heights = jnp.where(jnp.isfinite(heights), heights, -jnp.inf)
    best = jnp.argmax(heights, axis=0)
    found = jnp.take_along_axis(tried, best[None, :, None], axis=0)[0]
    return _Step(found, jnp.max(heights, axis=0), precision, gradient, information)


@partial(jax.jit, static_argnums=0)
def _expand_at_modes(law: Law, domains: Domains, half_normal: Array, starts: Array) -> Problem:
    """Each domain's mode from many starts, shape (start, site), under the law's prior; then given the population, in turn."""
    centre, sd = (jnp.asarray(a) for a in prior_moments(law))
    k, usual = domains.count, 0.67 * half_normal

    def turn(i, carry):
        u, mean, spread = carry
        step = jax.lax.map(lambda v: _newton(law, domains, v, mean, spread), u)
        best = jnp.argmax(step.height, axis=0)
        one, precision = step.u[best, jnp.arange(k)], step.precision[best, jnp.arange(k)]
        new_mean = (jnp.sum(one, 0) / spread**2 + centre / sd**2) / (k / spread**2 + sd**-2)
        seen = jnp.sum((one - mean) ** 2 + jnp.diagonal(jnp.linalg.inv(precision), axis1=1, axis2=2), axis=0)
        new_spread = jnp.sqrt((seen + PSEUDO * usual**2) / (k + PSEUDO))
        pooled = i >= NEWTON_STEPS
        keep = partial(jnp.where, pooled)
        return keep(one, step.u), keep(new_mean, mean), keep(new_spread, spread)

    u = jnp.broadcast_to(starts[:, None], (len(starts), k, len(sd)))
    u, mean, spread = jax.lax.fori_loop(0, NEWTON_STEPS + POPULATION_STEPS, turn, (u, centre, sd))
    u = u[0]
    step = _newton(law, domains, u, mean, spread)
    slope = step.gradient + jnp.einsum("dij,dj->di", step.information, u)
    near = Expansion(u, slope, step.information, law.loss(domains.middle, values_of(law, u)))
    middle = jnp.concatenate([mean, jnp.log(spread), jnp.log(TAILS)[None]])
    scale = jnp.concatenate([spread / np.sqrt(k), jnp.full(len(sd), 1 / np.sqrt(k)), jnp.full(1, 0.5)])
    return Problem(domains, half_normal, near, middle, scale)


def prepare(law: Law, domains: Domains, spread: float, seed: int) -> Problem:
    """Coordinates that whiten the posterior; ``spread``: scale of the spreads' prior, in sds of the law's priors."""
    at = _geometry.anchors(law, domains.table.covariates)
    starts = _point.start_points(law, domains.table, at, STARTS, seed)
    u = jax.vmap(lambda z: _geometry.to_sites(law, at, z)[0])(starts) | {"sigma": jnp.full(STARTS, np.log(0.02))}
    vectors = jnp.stack([u[n] for n in pooled_priors(law)], axis=1)
    return _expand_at_modes(law, domains, jnp.asarray(spread * prior_moments(law)[1]), vectors)


@partial(jax.jit, static_argnums=0)
def own_shares(law: Law, domains: Domains, u: Array, dof_above_2: Array, spreads: Array) -> Array:
    """Weight of each domain's own runs in what is known of it, shape (domain, site); the population has the rest.

    One less the pooling factor of Gelman and Pardoe 2006: 1 - Var(z | own runs, population), at u and averaged over
    spreads of shape (draw, site).
    """
    information = expand(law, domains, u, dof_above_2)[1]

    def one(spread):
        known = jnp.eye(len(spread)) + spread[:, None] * information * spread
        return 1 - jnp.diagonal(jnp.linalg.inv(known), axis1=1, axis2=2)

    return jnp.mean(jax.lax.map(one, spreads), axis=0)


# -- NUTS ------------------------------------------------------------------------------------------------------------


def _kernel(law: Law, problem: Problem) -> NUTS:
    def potential(w):
        state, logdet = to_state(law, problem, w)
        return -log_density(law, problem.domains, problem.half_normal, state) - logdet

    blocks: Any = [("population",)]  # dense; diagonal elsewhere
    return NUTS(potential_fn=potential, dense_mass=blocks, target_accept_prob=TARGET_ACCEPT)


def _first(problem: Problem, key: Array) -> dict[str, Array]:
    """Around the mode."""
    shapes = {"population": problem.centre.shape, "domain": problem.near.u.shape}
    keys = jax.random.split(key, len(shapes))
    return {n: jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)}


def _sites(law: Law, problem: Problem, w: Mapping[str, Array]) -> dict[str, Array]:
    return to_state(law, problem, w)[0]._asdict()


POOLED = Program(_kernel, _first, _sites)
