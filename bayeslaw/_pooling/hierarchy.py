"""Compute the density of a law on several domains that share a population.

Each sampled site of a law (and the scale of the noise) is, on the unconstrained scale
and for every domain,

    u = mean + spread z,    z ~ Normal(0, 1),

where the mean has the law's own prior, and the spread has a half-normal prior in units
of that prior's sd.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from bayeslaw._inference import coordinates, point
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.table import Padded
from bayeslaw._law.law import LOSS_MIN, Law, Term
from bayeslaw._law.priors import Prior

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray


class Domains(NamedTuple):
    """A table of several domains. Its rows lie in blocks of equal size, each with one
    domain, ``code``; ``slots``: a zero for each domain.
    """

    table: Padded
    code: Int[AnyArray, " block"]
    slots: Float[AnyArray, " domain"]

    @property
    def count(self) -> int:
        return len(self.slots)

    def in_blocks(self, rows: Float[AnyArray, " row"]) -> Float[Array, "block run"]:
        return jnp.asarray(rows).reshape(len(self.code), -1)

    @property
    def covariates(self) -> dict[str, Float[Array, "block run"]]:
        columns = self.table.covariates
        return {name: self.in_blocks(column) for name, column in columns.items()}

    @property
    def weight(self) -> Float[Array, "block run"]:
        return self.in_blocks(self.table.weight)

    @property
    def _inside(self) -> Float[Array, "block domain"]:
        """Mark by 1 each block's domain."""
        # XLA gathers and sums by index one number at a time, which took half the time
        # of a gradient. Small products with this matrix are faster.
        return jax.nn.one_hot(self.code, self.count)

    def by_block(self, of_domains: Float[Array, " domain"]) -> Float[Array, "block 1"]:
        return (self._inside @ of_domains)[:, None]

    def sums(self, rows: Float[Array, "block run"]) -> Float[Array, " domain"]:
        """Sum over each domain's rows."""
        return jnp.sum(rows, axis=1) @ self._inside


class State(NamedTuple):
    """One draw."""

    mean: Float[Array, " site"]
    spread: Float[Array, " site"]
    dof_above_2: Float[Array, ""]
    u: Float[Array, "domain site"]


def pooled_priors(law: Law) -> dict[str, Prior]:
    """List priors of the population's means: the law's free sites and, last, the noise.
    This is the order of every vector of sites.
    """
    return law.free_priors | {"sigma": ERROR.sigma}


def prior_moments(
    law: Law,
) -> tuple[Float[np.ndarray, " site"], Float[np.ndarray, " site"]]:
    """Compute centre and sd of each prior on the unconstrained scale."""
    moments = point.prior_centre(law)
    moments["sigma"] = (np.log(ERROR.sigma.args[0]), ERROR.sigma.args[1])
    centre, sd = np.array([moments[name] for name in pooled_priors(law)]).T
    return centre, sd


def values_of(
    law: Law, u: Float[Array, "*draw site"]
) -> dict[str, Float[Array, "*draw"] | Float[Array, ""]]:
    """Compute the law's values and ``sigma`` from unconstrained values."""
    by_name = {n: u[..., i] for i, n in enumerate(pooled_priors(law))}
    sigma = jnp.exp(by_name["sigma"])
    values = coordinates.constrain(law, by_name)
    return values | {"sigma": sigma}


def row_offset(law: Law, domains: Domains) -> Float[Array, "block run"] | float:
    if law.offset is None:
        return 0.0
    return jnp.asarray(law.offset(domains.covariates))


def row_contributions(
    law: Law,
    domains: Domains,
    values: Mapping[str, Float[Array, " domain"] | Float[Array, ""]],
) -> dict[str, Float[Array, "block run"]]:
    """Compute the signed contribution of each term in nats at every row, by coefficient.

    Coefficients are computed by domain. This saves half of the powers that
    `Law.contributions` would take at every row.
    """
    x = domains.covariates
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
    contributions = row_contributions(law, domains, values)
    loss = row_offset(law, domains) + sum(contributions.values())
    return jnp.log(jnp.maximum(loss, LOSS_MIN))


def row_log_likelihood(
    law: Law,
    domains: Domains,
    u: Float[Array, "domain site"],
    dof_above_2: Float[Array, ""],
) -> Float[Array, "block run"]:
    values, dof = values_of(law, u), ERROR.dof_min + dof_above_2
    miss = row_log_loss(law, domains, values) - domains.in_blocks(domains.table.y)
    sigma, log_sigma = domains.by_block(values["sigma"]), domains.by_block(u[:, -1])
    # t(miss; 0, sigma) = t(miss / sigma; 0, 1) / sigma, and log sigma is a site.
    density = dist.StudentT(dof).log_prob(miss / sigma) - log_sigma
    return density * domains.weight


def log_prior_mean(law: Law, mean: Float[Array, " site"]) -> Float[Array, ""]:
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
    """Compute the log density of means, log spreads, z, and log (dof - 2)."""
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


# -- the leading coefficient -----------------------------------------------------------


class LeadingCurve(NamedTuple):
    """The losses (``level``) that the leading coefficient keeps as the other sites move, and
    its log and tangent at the point of expansion (0 for the leading site).

    A domain's runs determine the sum of its terms, but not how a coefficient and
    exponents share this sum. As the other sites move, the leading coefficient must
    follow along a curve, of which a quadratic approximation has only the tangent. With
    five runs a domain, whitened coordinates along the tangent had a skewness of -4 and
    were up to five times too wide.
    """

    level: Float[Array, "block run"]
    start: Float[Array, " domain"]
    tangent: Float[Array, "domain site"]


def leading_term(law: Law) -> Term | None:
    """Choose the level's term, else the first with a free positive coefficient."""
    level = coordinates.level_term(law)
    if level is not None:
        return level
    for term in coordinates.scaled_terms(law):
        if term.prior.support == "positive":
            return term
    return None


def implied(
    law: Law,
    domains: Domains,
    term: Term,
    level: Float[Array, "block run"],
    u: Float[Array, "domain site"],
) -> Float[Array, " domain"]:
    """Find the log of the term's site, given a domain's other sites, at which the law is
    nearest to ``level`` at the domain's rows (least squares).
    """
    # The loss is rest + value unit, linear in the term's value, so that least squares
    # over a domain's rows give value = sum unit (level - rest) / sum unit^2.
    ones = jnp.ones(domains.count)
    values = values_of(law, u) | {term.site: ones}
    parts = row_contributions(law, domains, values)
    unit = parts.pop(term.coefficient)
    remainder = level - row_offset(law, domains) - sum(parts.values())
    weight = domains.weight
    value = domains.sums(weight * unit * remainder) / domains.sums(weight * unit**2)
    # below this value the coefficient goes to 0 smoothly
    soft = 0.1 * term.prior.median
    return jnp.log(soft * jax.nn.softplus(value / soft))


def curve_at(
    law: Law, domains: Domains, u: Float[Array, "domain site"]
) -> LeadingCurve:
    values = values_of(law, u)
    parts = row_contributions(law, domains, values)
    level = jnp.asarray(row_offset(law, domains) + sum(parts.values()))
    term = leading_term(law)
    if term is None:
        return LeadingCurve(level, jnp.zeros(domains.count), jnp.zeros_like(u))

    # A domain's coefficient depends on its own sites only, so one gradient of the sum
    # gives the gradient of every domain.
    coefficient = partial(implied, law, domains, term, level)
    tangent = jax.grad(lambda v: jnp.sum(coefficient(v)))(u)
    return LeadingCurve(level, coefficient(u), tangent)


def follow(
    law: Law,
    domains: Domains,
    curve: LeadingCurve,
    centre: Float[Array, "domain site"],
    share: Float[Array, "domain law_site"],
    u: Float[Array, "domain site"],
) -> Float[Array, "domain site"]:
    """Shift each domain's leading coefficient by a share of the distance between the
    curve through ``centre`` and its tangent. A shift of one site by a function of the
    others leaves the Jacobian unchanged.
    """
    term = leading_term(law)
    if term is None:
        return u
    f = list(pooled_priors(law)).index(term.site)
    on_tangent = curve.start + jnp.sum(curve.tangent * (u - centre), axis=1)
    on_curve = implied(law, domains, term, curve.level, u)
    moved = u[:, f] + share[:, f] * (on_curve - on_tangent)
    # Columns are stacked one by one. So the compiler sees that the other sites are
    # unchanged, and computes powers at the rows once, here and for the likelihood.
    columns = [u[:, :f], moved[:, None], u[:, f + 1 :]]
    return jnp.concatenate(columns, axis=1)
