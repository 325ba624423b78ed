"""Let one coefficient of a domain follow its other sites.

A domain's runs determine the sum of its terms, but not how a coefficient and exponents
share this sum. As the other sites move, the leading coefficient must follow along a
curve. A quadratic approximation has only the curve's tangent. With five runs a domain,
whitened coordinates along the tangent had a skewness of -4 and were up to five times
too wide.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslaw._inference import coordinates
from bayeslaw._law.law import Law, Term
from bayeslaw._pooling.hierarchy import (
    Domains,
    pooled_priors,
    row_contributions,
    row_offset,
    values_of,
)

if TYPE_CHECKING:
    from jaxtyping import Float


class LeadingCurve(NamedTuple):
    """Hold the losses that the leading coefficient keeps as the other sites move, and
    the curve's tangent at the point of expansion.

    ``level``: the law's loss at every row, at that point, shape (block, run).
    ``start``: log of the leading site at that point, shape (domain,). ``tangent``:
    slope of the curve along the other sites, and 0 for the leading site, shape (domain,
    site).
    """

    level: Float[Array, "block run"]
    start: Float[Array, " domain"]
    tangent: Float[Array, "domain site"]


def leading_term(law: Law) -> Term | None:
    """Choose the floor, else the first term with a free positive coefficient, if there
    is one.
    """
    floor = coordinates.floor_term(law)
    if floor is not None:
        return floor
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
    """Find the log of the term's site, given a domain's other sites, at which the law
    is nearest to ``level`` at the domain's rows (least squares), shape (domain,).
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
    """Compute the curve through each domain's sites."""
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
