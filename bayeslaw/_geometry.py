"""Coordinates in which the posterior is easy to sample. Exact: a change of variables with its Jacobian.

The data fix how far the loss moves along each covariate, and its level at the middle of the table, to a thousandth;
how that is shared out among floor, terms and exponents they leave open, along curved sheets. So the sampler sees,
derived from the law's terms and the table:

- for each term, the *total* contrast of the loss along the term's own covariate, up to this term: what the terms
  before it contribute there is subtracted to get the term itself;
- for the floor, the loss at the middle of the table, from which all terms are subtracted;
- for each exponent, how far it moves its term's log basis along its covariate, given the exponents listed after it
  in the law (so that beta becomes the data exponent at the middle stage, lam the effect of the gate across stages);
- for an exponent of either sign, the inverse hyperbolic sine: linear at its prior's centre, a logarithm far from it.

Every coordinate is shifted by what comes before it, so the Jacobian is nearly free. A last affine step, elsewhere,
makes the posterior's curvature at its mode the identity.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._law import Covariates, Law, Values

Unconstrained = dict[str, Array]

RESOLUTION = 0.005  # nats: above, a contribution is sampled as it is; below, its logarithm
SOFT = 0.05  # basis contrasts below this share of their size at the median exponents are not resolved further
SOFT_LOG = 0.02  # nor are effects of an exponent below this change of its term's log basis
NEAR = 0.1  # prior sds around its centre within which an exponent of either sign is sampled as it is


class Anchors(NamedTuple):
    """What the coordinates take from the table; arrays, so that another table needs no recompilation.

    ``middle``: each covariate at the middle of the table; ``span``: shape (2,), its largest and smallest value.
    ``ends``: each covariate, shape (term, 2): the two runs, alike but for the term's own covariate, between which its
    contrast is taken. ``size``: contrast of each basis at the median exponents.
    """

    middle: dict[str, np.ndarray]
    span: dict[str, np.ndarray]
    ends: dict[str, np.ndarray]
    size: np.ndarray


def scaled_terms(law: Law):
    """Terms whose coefficient the coordinates replace by a contrast: positive, free, and no floor."""
    return [t for t in law.terms if not t.is_floor and t.prior.support == "positive"]


def floor_term(law: Law):
    """The free floor of the law, if it has one."""
    return next((t for t in law.terms if t.is_floor and not t.prior.is_fixed and t.prior.support == "positive"), None)


def anchors(law: Law, covariates: Covariates) -> Anchors:
    """Take the middle of the table and, for each term, the two runs that span it along its own covariate."""
    x = {c: np.asarray(v, float) for c, v in covariates.items()}
    middle = {c: np.asarray(np.median(v)) for c, v in x.items()}
    span = {c: np.array([v.max(), v.min()]) for c, v in x.items()}
    medians = {e.name: jnp.asarray(e.prior.median + 0.01) for e in law.exponents}
    ends, sizes = [], []
    for t in scaled_terms(law):
        runs = {c: {k: np.broadcast_to(v, (2,)) for k, v in middle.items()} | {c: span[c]} for c in x}
        basis = {c: np.broadcast_to(np.asarray(t.basis(r, medians)), (2,)) for c, r in runs.items()}
        own = max(basis, key=lambda c: abs(basis[c][0] - basis[c][1]))
        order = [0, 1] if basis[own][0] >= basis[own][1] else [1, 0]
        ends.append({k: v[order] for k, v in runs[own].items()})
        sizes.append(max(abs(basis[own][0] - basis[own][1]), 1e-6 * abs(basis[own][0]), 1e-300))
    stacked = {c: np.array([e[c] for e in ends]).reshape(-1, 2) for c in x}
    return Anchors(middle, span, stacked, np.array(sizes))


def constrain(law: Law, u: Unconstrained, names: Collection[str] | None = None) -> dict[str, Array]:
    """Unconstrained NumPyro sites to values, fixed ones included; of these names, or all."""
    names = law.priors if names is None else names
    maps = {"positive": jnp.exp, "unit": jax.nn.sigmoid, "real": lambda v: v}
    return {
        n: jnp.asarray(p.args[0]) if p.is_fixed else maps[p.support](u[n]) for n, p in law.priors.items() if n in names
    }


def unconstrain(law: Law, values: Values) -> Unconstrained:
    """Values to unconstrained NumPyro sites: the inverse of `constrain`, without the fixed ones."""
    maps = {"positive": jnp.log, "unit": lambda v: jnp.log(v / (1 - v)), "real": jnp.asarray}
    return {n: maps[p.support](values[n]) for n, p in law.priors.items() if not p.is_fixed}


@cache
def _owner(law: Law, exponent: str):
    """The first term whose basis an exponent changes, seen at a run off the reference; None if there is none."""
    with jax.ensure_compile_time_eval():
        run = {c: jnp.asarray(1.7 * v) for c, v in law.reference.items()}
        values = {e.name: jnp.asarray(e.prior.median + 0.01) for e in law.exponents}
        moved = values | {exponent: values[exponent] * 1.1 + 0.01}
        return next((t for t in law.terms if not t.is_floor and t.basis(run, values) != t.basis(run, moved)), None)


def _effect(law: Law, at: Anchors, exponents: Values, name: str) -> Array:
    """Log of how far an exponent at its median moves its term's log basis along its covariate."""
    exponent = next(e for e in law.exponents if e.name == name)
    owner = _owner(law, name)
    if owner is None or exponent.covariate not in at.span:
        return jnp.zeros(())
    x = {c: jnp.broadcast_to(jnp.asarray(v), (2,)) for c, v in at.middle.items()}
    basis = jnp.broadcast_to(
        owner.basis(x | {exponent.covariate: jnp.asarray(at.span[exponent.covariate])}, exponents), (2,)
    )
    log_basis = jnp.log(jnp.maximum(jnp.abs(basis), 1e-300))
    return 0.5 * jnp.log((log_basis[0] - log_basis[1]) ** 2 + SOFT_LOG**2)


def _move_exponents(law: Law, at: Anchors, given: Unconstrained, to_site: bool) -> tuple[Unconstrained, Array]:
    """Exponents from coordinates to sites (or back), the last listed first; log determinant of the way to sites."""
    values = {e.name: jnp.asarray(e.prior.median) for e in law.exponents}
    moved, logdet = {}, jnp.zeros(())
    for e in reversed(law.exponents):
        if e.prior.is_fixed:
            continue
        v = given[e.name]
        if e.prior.support == "real":
            centre, near = e.prior.args[0], NEAR * e.prior.args[1]
            moved[e.name] = centre + near * jnp.sinh(v) if to_site else jnp.arcsinh((v - centre) / near)
            logdet = logdet + jnp.log(near * jnp.cosh(v if to_site else moved[e.name]))
        else:
            moved[e.name] = v + (-1 if to_site else 1) * _effect(law, at, values, e.name)
        site = {e.name: moved[e.name] if to_site else v}
        values = values | constrain(law, site, {e.name})
    return moved, logdet


def _log_positive(left: Array) -> tuple[Array, Array]:
    """Logarithm of a contribution from its coordinate, and of the derivative: linear above the resolution, log below."""
    is_plain = left > RESOLUTION
    plain = jnp.log(jnp.where(is_plain, left, 1.0))
    log_value = jnp.where(is_plain, plain, jnp.log(RESOLUTION) + (left - RESOLUTION) / RESOLUTION)
    return log_value, jnp.where(is_plain, -plain, -jnp.log(RESOLUTION))


def _left_of(log_value: Array) -> Array:
    """The inverse of `_log_positive`."""
    is_plain = log_value > jnp.log(RESOLUTION)
    return jnp.where(
        is_plain,
        jnp.exp(jnp.where(is_plain, log_value, 0.0)),
        RESOLUTION * (1 + log_value - jnp.log(RESOLUTION)),
    )


class _Contrast(NamedTuple):
    """One term along its own covariate: basis over that of the reference run at both ends, and the log contrast."""

    site: str
    sign: int
    log_size: Array
    before: Array  # what each earlier term adds here per unit of its site, shape (earlier terms,)


def _contrasts(law: Law, at: Anchors, exponents: Values) -> list[_Contrast]:
    reference = {c: jnp.asarray(v) for c, v in law.reference.items()}
    terms = scaled_terms(law)
    scales = [jnp.asarray(t.basis(reference, exponents)) if t.in_nats else jnp.ones(()) for t in terms]

    def difference(j: int, i: int) -> Array:  # of term j between the ends of term i
        high, low = (terms[j].basis({c: jnp.asarray(v)[i, k] for c, v in at.ends.items()}, exponents) for k in (0, 1))
        return (high - low) / scales[j]

    out = []
    for i, t in enumerate(terms):
        size = 0.5 * jnp.log(difference(i, i) ** 2 + (SOFT * at.size[i] / scales[i]) ** 2)
        before = [terms[j].sign * difference(j, i) for j in range(i)]
        out.append(_Contrast(t.site, t.sign, size, jnp.stack(before) if before else jnp.zeros(0)))
    return out


def _rest_at_middle(law: Law, at: Anchors, values: Values) -> Array:
    """Loss at the middle of the table without the floor."""
    middle = {c: jnp.asarray(v)[None] for c, v in at.middle.items()}
    floor = floor_term(law)
    assert floor is not None
    return law.loss(middle, {**values, floor.site: jnp.zeros(())})[0]


def _move_terms(law: Law, at: Anchors, given: Unconstrained, exponents: Values, to_site: bool):
    """Coefficients from coordinates to log contributions (or back), in the order of the law; log determinant."""
    moved, logdet, values = {}, jnp.zeros(()), []
    for c in _contrasts(law, at, exponents):
        others = c.before @ jnp.stack(values) if values else jnp.zeros(())
        if to_site:
            log_value, log_slope = _log_positive(c.sign * (given[c.site] - others))
            moved[c.site], logdet = log_value - c.log_size, logdet + log_slope
        else:
            moved[c.site] = c.sign * _left_of(given[c.site] + c.log_size) + others
        values.append(jnp.exp(moved[c.site] if to_site else given[c.site]))
    return moved, logdet


def to_sites(law: Law, at: Anchors, z: Unconstrained) -> tuple[Unconstrained, Array]:
    """Coordinates to NumPyro's unconstrained sites, with the log determinant of the Jacobian."""
    moved, logdet = _move_exponents(law, at, z, to_site=True)
    u = z | moved
    exponents = constrain(law, u, {e.name for e in law.exponents})
    moved, slope = _move_terms(law, at, z, exponents, to_site=True)
    u, logdet = u | moved, logdet + slope
    floor = floor_term(law)
    if floor is None:
        return u, logdet
    values = constrain(law, u, {n for n in law.priors if n != floor.site})
    log_value, slope = _log_positive(z[floor.site] - _rest_at_middle(law, at, values))
    return u | {floor.site: log_value}, logdet + slope


def from_sites(law: Law, at: Anchors, u: Unconstrained) -> Unconstrained:
    """The inverse of `to_sites`."""
    z = u | _move_exponents(law, at, u, to_site=False)[0]
    exponents = constrain(law, u, {e.name for e in law.exponents})
    z = z | _move_terms(law, at, u, exponents, to_site=False)[0]
    floor = floor_term(law)
    if floor is None:
        return z
    values = constrain(law, u, {n for n in law.priors if n != floor.site})
    return z | {floor.site: _left_of(u[floor.site]) + _rest_at_middle(law, at, values)}
