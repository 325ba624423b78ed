"""The coefficient of a domain that makes up for its other sites.

A domain's runs fix how much its terms add to their losses, not how that is shared among
a coefficient and exponents. As the others move, the leading coefficient has to follow
along a curve, of which a quadratic approximation knows the tangent only: with five runs
a domain, whitened coordinates along it were skewed by -4 and up to five times too wide.
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
    """What the leading coefficient keeps as the other sites move, and its tangent.

    ``level``: the law's loss at every row where the tangent was taken, shape (block,
    run); ``start``: log of the leading site there, shape (domain,); ``tangent``: its
    slope along the others, 0 along itself, shape (domain, site).
    """

    level: Float[Array, "block run"]
    start: Float[Array, " domain"]
    tangent: Float[Array, "domain site"]


def leading_term(law: Law) -> Term | None:
    """The floor, else the first term with a free positive coefficient, if there is one."""
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
    """Log of the term's site with which each domain's law comes nearest to ``level`` at
    its rows, given its other sites, shape (domain,).
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
    # where the rows leave less for the coefficient than this, it vanishes slowly
    soft = 0.1 * term.prior.median
    return jnp.log(soft * jax.nn.softplus(value / soft))


def curve_at(
    law: Law, domains: Domains, u: Float[Array, "domain site"]
) -> LeadingCurve:
    """The curve through each domain's sites."""
    values = values_of(law, u)
    parts = row_contributions(law, domains, values)
    level = jnp.asarray(row_offset(law, domains) + sum(parts.values()))
    term = leading_term(law)
    if term is None:
        return LeadingCurve(level, jnp.zeros(domains.count), jnp.zeros_like(u))

    # A domain's coefficient depends on its own sites only, so that one gradient of the
    # sum is that of every domain.
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
    """Shift each domain's leading coefficient by a share of how far the curve through
    ``centre`` departs from its tangent.

    The shift of one site by a function of the others leaves the Jacobian alone.
    """
    term = leading_term(law)
    if term is None:
        return u
    f = list(pooled_priors(law)).index(term.site)
    on_tangent = curve.start + jnp.sum(curve.tangent * (u - centre), axis=1)
    on_curve = implied(law, domains, term, curve.level, u)
    moved = u[:, f] + share[:, f] * (on_curve - on_tangent)
    # Column beside column, so that the compiler sees that the others have not moved and
    # raises powers at the rows once for this and for the likelihood.
    columns = [u[:, :f], moved[:, None], u[:, f + 1 :]]
    return jnp.concatenate(columns, axis=1)
