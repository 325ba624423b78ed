"""The density of a law on several domains that share a population.

Each sampled site of a law (and the scale of the noise) is, on the unconstrained scale
and for every domain,

    u = mean + spread z,    z ~ Normal(0, 1),

where the mean has the law's own prior, and the spread a half-normal one in units of
that prior's sd.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bayeslaw._inference import coordinates, point
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import LOSS_MIN, Law
from bayeslaw._law.priors import Prior

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray


class Domains(NamedTuple):
    """A table of several domains.

    ``table``: its rows lie in blocks of equally many, each of one domain. ``code``: each
    block's domain, shape (block,). ``slots``: zeros, one a domain, shape (domain,).
    """

    table: Padded
    code: Int[AnyArray, " block"]
    slots: Float[AnyArray, " domain"]

    @property
    def count(self) -> int:
        return len(self.slots)

    def in_blocks(self, rows: Float[AnyArray, " row"]) -> Float[Array, "block run"]:
        """A column of the table by blocks."""
        return jnp.asarray(rows).reshape(len(self.code), -1)

    @property
    def weight(self) -> Float[Array, "block run"]:
        """1 at measured rows, 0 at padding."""
        return self.in_blocks(self.table.weight)

    @property
    def _inside(self) -> Float[Array, "block domain"]:
        """1 where a block is of a domain."""
        # Small products with this in place of gathering and adding up by index, which
        # XLA does one number after another: a half of a gradient.
        return jax.nn.one_hot(self.code, self.count)

    def by_block(self, of_domains: Float[Array, " domain"]) -> Float[Array, "block 1"]:
        """What belongs to each block's domain."""
        return (self._inside @ of_domains)[:, None]

    def sums(self, rows: Float[Array, "block run"]) -> Float[Array, " domain"]:
        """Sum over each domain's rows, shape (domain,)."""
        return jnp.sum(rows, axis=1) @ self._inside


class State(NamedTuple):
    """One draw: ``mean`` and ``spread`` of shape (site,), ``dof_above_2``, ``u`` of
    shape (domain, site).
    """

    mean: Float[Array, " site"]
    spread: Float[Array, " site"]
    dof_above_2: Float[Array, ""]
    u: Float[Array, "domain site"]


def pooled_priors(law: Law) -> dict[str, Prior]:
    """Priors of the population's means: the law's free sites and, last, the noise, in
    the order of a vector.
    """
    # The order of every vector of sites: what reads [-1] means the noise.
    return law.free_priors | {"sigma": ERROR.sigma}


def prior_moments(
    law: Law,
) -> tuple[Float[np.ndarray, " site"], Float[np.ndarray, " site"]]:
    """Centre and sd of each prior on the unconstrained scale (log of a positive, logit
    of a share), shape (site,).
    """
    moments = point.prior_centre(law)
    moments["sigma"] = (np.log(ERROR.sigma.args[0]), ERROR.sigma.args[1])
    centre, sd = np.array([moments[name] for name in pooled_priors(law)]).T
    return centre, sd


def values_of(
    law: Law, u: Float[Array, "*draw site"]
) -> dict[str, Float[Array, "*draw"] | Float[Array, ""]]:
    """The law's values and ``sigma`` from unconstrained ones, shape (..., site); fixed
    ones are scalars.
    """
    by_name = {n: u[..., i] for i, n in enumerate(pooled_priors(law))}
    sigma = jnp.exp(by_name["sigma"])
    values = coordinates.constrain(law, by_name)
    return values | {"sigma": sigma}


def covariates_in_blocks(domains: Domains) -> dict[str, Float[Array, "block run"]]:
    """Covariates at every row."""
    columns = domains.table.covariates
    return {name: domains.in_blocks(column) for name, column in columns.items()}


def row_offset(law: Law, domains: Domains) -> Float[Array, "block run"] | float:
    """What the law adds to each row's loss whatever its values."""
    if law.offset is None:
        return 0.0
    return jnp.asarray(law.offset(covariates_in_blocks(domains)))


def row_contributions(
    law: Law,
    domains: Domains,
    values: Mapping[str, Float[Array, " domain"] | Float[Array, ""]],
) -> dict[str, Float[Array, "block run"]]:
    """Signed contribution of each term in nats at every row from values of shape
    (domain,), by coefficient, shape (block, run) each.

    Coefficients are worked out by domain, which saves half of the powers that
    `Law.contributions` would take at every row.
    """
    x = covariates_in_blocks(domains)
    row = {n: domains.by_block(v) if v.ndim else v for n, v in values.items()}
    coefficients = {
        name: domains.by_block(jnp.broadcast_to(c, domains.count))
        for name, c in law.coefficients(values).items()
    }
    return {
        t.coefficient: t.sign * coefficients[t.coefficient] * t.basis(x, row)
        for t in law.terms
    }


def row_log_loss(
    law: Law,
    domains: Domains,
    values: Mapping[str, Float[Array, " domain"] | Float[Array, ""]],
) -> Float[Array, "block run"]:
    """The law's log loss at every row from values of shape (domain,)."""
    contributions = row_contributions(law, domains, values)
    loss = row_offset(law, domains) + sum(contributions.values())
    return jnp.log(jnp.maximum(loss, LOSS_MIN))


def row_log_likelihood(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    dof_above_2: Float[Array, ""],
) -> Float[Array, "block run"]:
    """Log density of every row given each domain's u."""
    values, dof = values_of(law, u), ERROR.dof_min + dof_above_2
    miss = row_log_loss(law, domains, values) - domains.in_blocks(domains.table.y)
    sigma, log_sigma = domains.by_block(values["sigma"]), domains.by_block(u[:, -1])
    # t(miss; 0, sigma) = t(miss / sigma; 0, 1) / sigma, and log sigma is a site.
    density = dist.StudentT(dof).log_prob(miss / sigma) - log_sigma
    return density * domains.weight


def log_prior_mean(law: Law, mean: Float[Array, " site"]) -> Float[Array, ""]:
    """Log prior density of the population's means on the unconstrained scale."""

    # p(u) = p(value) |d value / du|: the slope is the value itself of an exponential, s
    # (1 - s) of a logistic s.
    def one(prior: Prior, u: Float[Array, ""]) -> Float[Array, ""]:
        if prior.support == "positive":
            return u + prior.distribution().log_prob(jnp.exp(u))
        if prior.support == "unit":
            log_slope = jax.nn.log_sigmoid(u) + jax.nn.log_sigmoid(-u)
            return log_slope + prior.distribution().log_prob(jax.nn.sigmoid(u))
        return jnp.asarray(prior.distribution().log_prob(u))

    priors = pooled_priors(law).values()
    return sum((one(p, mean[i]) for i, p in enumerate(priors)), jnp.zeros(()))


def log_density(
    law: Law, domains: Domains, half_normal: Float[Array, " site"], state: State
) -> Float[Array, ""]:
    """Log posterior density of means, log spreads, z, and the log of the degrees of
    freedom above 2.
    """
    # Sampled are log spread and the log of the degrees of freedom above 2, whose
    # Jacobians are the values themselves. Sampled z in place of u (non-centred:
    # Papaspiliopoulos, Roberts and Skold 2007) has no Jacobian here: the density is one
    # of z, written at u.
    half = dist.HalfNormal(half_normal).log_prob(state.spread)
    spread = jnp.sum(half + jnp.log(state.spread))
    above_2 = state.dof_above_2
    tails = dist.Gamma(ERROR.dof_shape, ERROR.dof_rate).log_prob(above_2) + jnp.log(
        above_2
    )
    z = (state.u - state.mean[None]) / state.spread[None]
    domain = jnp.sum(jax.scipy.stats.norm.logpdf(z))
    rows = jnp.sum(row_log_likelihood(law, domains, state.u, above_2))
    return log_prior_mean(law, state.mean) + spread + tails + domain + rows
