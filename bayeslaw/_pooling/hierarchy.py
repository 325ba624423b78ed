"""Compute the density of a law on several domains that share a population.

Each sampled site of a law (and the scale of the noise) is, on the unconstrained scale
and for every domain,

    u = mean + spread z,    z ~ Normal(0, 1),

where the mean has the law's own prior, and the spread has a half-normal prior in units
of that prior's sd.
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
    """Hold a table of several domains. ``table``: its rows lie in blocks of equal size,
    each with one domain. ``code``: each block's domain, shape (block,). ``slots``: a
    zero for each domain, shape (domain,).
    """

    table: Padded
    code: Int[AnyArray, " block"]
    slots: Float[AnyArray, " domain"]

    @property
    def count(self) -> int:
        return len(self.slots)

    def in_blocks(self, rows: Float[AnyArray, " row"]) -> Float[Array, "block run"]:
        """Reshape a column of the table to blocks."""
        return jnp.asarray(rows).reshape(len(self.code), -1)

    @property
    def weight(self) -> Float[Array, "block run"]:
        """Mark measured rows by 1 and padding by 0."""
        return self.in_blocks(self.table.weight)

    @property
    def _inside(self) -> Float[Array, "block domain"]:
        """Mark by 1 each block's domain."""
        # XLA gathers and sums by index one number at a time, which took half the time
        # of a gradient. Small products with this matrix are faster.
        return jax.nn.one_hot(self.code, self.count)

    def by_block(self, of_domains: Float[Array, " domain"]) -> Float[Array, "block 1"]:
        """Look up each block's value by its domain."""
        return (self._inside @ of_domains)[:, None]

    def sums(self, rows: Float[Array, "block run"]) -> Float[Array, " domain"]:
        """Sum over each domain's rows, shape (domain,)."""
        return jnp.sum(rows, axis=1) @ self._inside


class State(NamedTuple):
    """Hold one draw: ``mean`` and ``spread`` of shape (site,), ``dof_above_2``, ``u``
    of shape (domain, site).
    """

    mean: Float[Array, " site"]
    spread: Float[Array, " site"]
    dof_above_2: Float[Array, ""]
    u: Float[Array, "domain site"]


def pooled_priors(law: Law) -> dict[str, Prior]:
    """List priors of the population's means, in the order of a vector: the law's free
    sites and, last, the noise.
    """
    # This is the order of every vector of sites; [-1] is the noise.
    return law.free_priors | {"sigma": ERROR.sigma}


def prior_moments(
    law: Law,
) -> tuple[Float[np.ndarray, " site"], Float[np.ndarray, " site"]]:
    """Compute centre and sd of each prior on the unconstrained scale (log of a positive
    number, logit of a share), shape (site,).
    """
    moments = point.prior_centre(law)
    moments["sigma"] = (np.log(ERROR.sigma.args[0]), ERROR.sigma.args[1])
    centre, sd = np.array([moments[name] for name in pooled_priors(law)]).T
    return centre, sd


def values_of(
    law: Law, u: Float[Array, "*draw site"]
) -> dict[str, Float[Array, "*draw"] | Float[Array, ""]]:
    """Compute the law's values and ``sigma`` from unconstrained values, shape (...,
    site); fixed values are scalars.
    """
    by_name = {n: u[..., i] for i, n in enumerate(pooled_priors(law))}
    sigma = jnp.exp(by_name["sigma"])
    values = coordinates.constrain(law, by_name)
    return values | {"sigma": sigma}


def covariates_in_blocks(domains: Domains) -> dict[str, Float[Array, "block run"]]:
    """Reshape the covariates of every row to blocks."""
    columns = domains.table.covariates
    return {name: domains.in_blocks(column) for name, column in columns.items()}


def row_offset(law: Law, domains: Domains) -> Float[Array, "block run"] | float:
    """Compute the part of each row's loss that does not depend on the law's values."""
    if law.offset is None:
        return 0.0
    return jnp.asarray(law.offset(covariates_in_blocks(domains)))


def row_contributions(
    law: Law,
    domains: Domains,
    values: Mapping[str, Float[Array, " domain"] | Float[Array, ""]],
) -> dict[str, Float[Array, "block run"]]:
    """Compute the signed contribution of each term in nats at every row, by
    coefficient, each of shape (block, run), from values of shape (domain,).

    Coefficients are computed by domain. This saves half of the powers that
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
    """Compute the law's log loss at every row from values of shape (domain,)."""
    contributions = row_contributions(law, domains, values)
    loss = row_offset(law, domains) + sum(contributions.values())
    return jnp.log(jnp.maximum(loss, LOSS_MIN))


def row_log_likelihood(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    dof_above_2: Float[Array, ""],
) -> Float[Array, "block run"]:
    """Compute the log density of every row given each domain's u."""
    values, dof = values_of(law, u), ERROR.dof_min + dof_above_2
    miss = row_log_loss(law, domains, values) - domains.in_blocks(domains.table.y)
    sigma, log_sigma = domains.by_block(values["sigma"]), domains.by_block(u[:, -1])
    # t(miss; 0, sigma) = t(miss / sigma; 0, 1) / sigma, and log sigma is a site.
    density = dist.StudentT(dof).log_prob(miss / sigma) - log_sigma
    return density * domains.weight


def log_prior_mean(law: Law, mean: Float[Array, " site"]) -> Float[Array, ""]:
    """Compute the log prior density of the population's means on the unconstrained
    scale.
    """

    # p(u) = p(value) |d value / du|. The slope of an exponential is its value; that of
    # a logistic s is s (1 - s).
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
    """Compute the log posterior density of means, log spreads, z, and the log of the
    degrees of freedom above 2.
    """
    # Log spread and the log of the degrees of freedom above 2 are sampled; their
    # Jacobians are the values themselves. z is sampled in place of u (non-centred:
    # Papaspiliopoulos, Roberts and Skold 2007). It has no Jacobian here, because the
    # density is a density of z, written at u.
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
