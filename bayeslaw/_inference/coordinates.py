"""Transform the posterior to coordinates in which it is easy to sample: an exact change
of variables with its Jacobian.

The data determine how far the loss moves along each covariate, and its level at the
middle of the table, to a thousandth. They hardly determine how floor, terms and
exponents share this movement, so the posterior lies along curved sheets. Therefore the
sampler uses these coordinates, derived from the law's terms and the table:

- for each term, the *total* contrast of the loss along the term's own covariate, up to
  this term; the contributions of earlier terms are subtracted to get the term itself;
- for the floor (without one, the first term), the loss at the middle of the table; all
  other terms are subtracted to get it;
- for each exponent, how far it moves its term's log basis along its covariate, given
  the exponents listed after it in the law (so that beta becomes the data exponent at
  the middle stage, lam the effect of the gate across stages); an exponent of either
  sign is its own coordinate.

Every coordinate is shifted by a function of earlier ones, so the Jacobian is nearly
free. A last affine step, in `density`, makes the posterior's curvature at its mode the
identity.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._base.programs import compiled
from bayeslaw._law.law import Covariates, Law, Term, Values

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from bayeslaw._base.arrays import AnyArray

Unconstrained = dict[str, Any]  # arrays, of JAX or NumPy

# nats; a contribution above this is sampled as it is, a smaller one by its logarithm
RESOLUTION = 0.005


class ContrastPoints(NamedTuple):
    """Runs at which the coordinates of a law are evaluated. They are arrays, so that a
    new table needs no new compilation.

    Parameters
    ----------
    middle
        Covariates at the middle of the table, each of shape ().
    span
        Largest and smallest value of each covariate, shape (2,).
    ends
        Covariates of the two runs between which the contrast of each term is taken,
        each of shape (term, 2). The two runs differ only in the term's own covariate.
    size
        Contrast of each term per unit of its site, at the median exponents, shape
        (term,).
    """

    middle: Mapping[str, Float[AnyArray, ""]]
    span: Mapping[str, Float[AnyArray, " 2"]]
    ends: Mapping[str, Float[AnyArray, "term 2"]]
    size: Float[AnyArray, " term"]


def scaled_terms(law: Law) -> list[Term]:
    """List the terms whose coefficients the coordinates replace by contrasts: free,
    positive or of either sign, and neither a floor nor the level.
    """
    level = level_term(law)
    return [
        term
        for term in law.terms
        if term is not level
        and not term.is_floor
        and term.prior.support in ("positive", "real")
    ]


def level_term(law: Law) -> Term | None:
    """Choose the term that the loss at the middle of the table determines: the free
    floor, else the first free positive term in nats, if there is one.
    """
    positive = [
        term
        for term in law.terms
        if term.prior.support == "positive" and not term.prior.is_fixed
    ]
    floors = [term for term in positive if term.is_floor]
    in_nats = [term for term in positive if term.in_nats and term.sign > 0]
    return next(iter(floors + in_nats), None)


def contrast_points(law: Law, covariates: Covariates) -> ContrastPoints:
    """Take the middle of the table and, for each term, the two runs that span it along
    its own covariate.

    A term's own covariate is the one along which its basis changes most.
    """
    x = {c: np.asarray(v, float) for c, v in covariates.items()}
    middle = {c: np.asarray(np.median(v)) for c, v in x.items()}
    span = {c: np.array([v.max(), v.min()]) for c, v in x.items()}
    # Not the medians themselves: at an exponent of exactly 0 a basis would be constant,
    # and the term would have no covariate of its own.
    exponents = {e.name: np.asarray(e.prior.median + 0.01) for e in law.exponents}
    # vary each covariate by itself, with all others at the middle of the table
    pair = {name: np.full(2, v) for name, v in middle.items()}
    runs = tuple(pair | {c: span[c]} for c in x)
    at_ends, scales = map(np.asarray, _compute_bases(law, runs, exponents))
    ends, sizes = [], []
    for basis, scale in zip(at_ends, scales, strict=True):
        reach = np.abs(basis[:, 0] - basis[:, 1])
        widest = int(np.argmax(reach))
        first, last = basis[widest]
        # Put the end with the larger basis first, so that the contrast is positive.
        order = [0, 1] if first >= last else [1, 0]
        ends.append({name: v[order] for name, v in runs[widest].items()})
        # If a table has one value of the covariate, there is no contrast; if the term
        # vanishes there, any size will do.
        size = max(abs(first - last), 1e-6 * abs(first)) / float(scale)
        sizes.append(size or 1.0)
    stacked = {c: np.array([run[c] for run in ends]).reshape(-1, 2) for c in x}
    return ContrastPoints(middle, span, stacked, np.array(sizes))


@compiled(static_argnums=0)
def _compute_bases(
    law: Law,
    runs: tuple[Mapping[str, Float[AnyArray, " 2"]], ...],
    exponents: Values,
) -> tuple[Float[Array, "term pair 2"], Float[Array, " term"]]:
    """Compute the basis of each scaled term at pairs of runs, and its site's scale."""
    terms = scaled_terms(law)
    if not terms:
        return jnp.zeros((0, len(runs), 2)), jnp.zeros(0)
    at_runs = [
        [jnp.broadcast_to(term.basis(pair, exponents), (2,)) for pair in runs]
        for term in terms
    ]
    # the factor from a coefficient to its term's site
    reference = {c: np.asarray(v) for c, v in law.reference.items()}
    scales = [
        jnp.asarray(t.basis(reference, exponents)) if t.in_nats else jnp.ones(())
        for t in terms
    ]
    return jnp.asarray(at_runs), jnp.stack(scales)


def constrain(
    law: Law, sites: Unconstrained, names: Collection[str] | None = None
) -> dict[str, Array]:
    """Convert unconstrained sites to values, with fixed ones, for these names."""
    maps = {"positive": jnp.exp, "unit": jax.nn.sigmoid, "real": lambda v: v}
    values = {}
    for name, prior in law.priors.items():
        if names is not None and name not in names:
            continue
        if prior.is_fixed:
            values[name] = jnp.asarray(prior.args[0])
        else:
            values[name] = maps[prior.support](sites[name])
    return values


def unconstrain(law: Law, values: Values, xp: ModuleType = jnp) -> Unconstrained:
    """Convert values to unconstrained NumPyro sites: the inverse of `constrain`,
    without fixed values. ``xp`` is NumPy or JAX's NumPy.
    """
    maps = {
        "positive": xp.log,
        "unit": lambda v: xp.log(v / (1 - v)),
        "real": xp.asarray,
    }
    return {
        name: maps[prior.support](values[name])
        for name, prior in law.free_priors.items()
    }


@cache
def _find_owners(law: Law) -> dict[str, Term]:
    """Find the first term whose basis each exponent changes off the reference."""
    run = {c: np.asarray(1.7 * v) for c, v in law.reference.items()}
    exponents = {e.name: np.asarray(e.prior.median + 0.01) for e in law.exponents}
    # Called while a program is traced: the comparison needs numbers.
    with jax.ensure_compile_time_eval():
        changes = np.asarray(_find_changes(law, run, exponents))
    terms = [term for term in law.terms if not term.is_floor]
    return {
        name: terms[int(np.argmax(is_changed))]
        for name, is_changed in zip(exponents, changes, strict=True)
        if is_changed.any()
    }


@compiled(static_argnums=0)
def _find_changes(
    law: Law, run: Mapping[str, Float[AnyArray, ""]], exponents: Values
) -> Bool[Array, "exponent term"]:
    """Tell which terms' bases at a run change with the value of each exponent."""
    terms = [term for term in law.terms if not term.is_floor]
    before = [term.basis(run, exponents) for term in terms]
    changes = []
    for e in law.exponents:
        moved = {**exponents, e.name: exponents[e.name] * 1.1 + 0.01}
        after = [term.basis(run, moved) for term in terms]
        changes.append([b != a for b, a in zip(before, after, strict=True)])
    return jnp.asarray(changes)


def _compute_log_effect(
    law: Law, points: ContrastPoints, exponents: Values, name: str, soft: float = 0.02
) -> Float[Array, ""]:
    """Compute the log of the effect of an exponent, at its median, on its term's log
    basis along its covariate. Effects below ``soft`` are not resolved further.
    """
    exponent = next(e for e in law.exponents if e.name == name)
    owner = _find_owners(law).get(name)
    if owner is None or exponent.covariate not in points.span:
        return jnp.zeros(())
    runs = {c: jnp.broadcast_to(jnp.asarray(v), (2,)) for c, v in points.middle.items()}
    runs |= {exponent.covariate: jnp.asarray(points.span[exponent.covariate])}
    basis = jnp.broadcast_to(owner.basis(runs, exponents), (2,))
    log_basis = jnp.log(jnp.maximum(jnp.abs(basis), 1e-300))
    # log |difference|, softened so that it is smooth and bounded for an exponent
    # without effect.
    return 0.5 * jnp.log((log_basis[0] - log_basis[1]) ** 2 + soft**2)


def _move_exponents(
    law: Law, points: ContrastPoints, start: Unconstrained, to_site: bool
) -> tuple[Unconstrained, Values]:
    """Map exponents from coordinates to sites (or back), the last listed first. Also
    returns their values. A shift by a function of later exponents has no Jacobian.
    """
    # Exponents not yet moved stand at their medians. Backwards and forwards see the
    # same values at each step, which makes one way the inverse of the other.
    values = {e.name: jnp.asarray(e.prior.median) for e in law.exponents}
    moved = {}
    for e in reversed(law.exponents):
        if e.prior.is_fixed:
            continue
        v = start[e.name]
        moved[e.name] = v
        if e.prior.support != "real":
            sign = -1 if to_site else 1
            moved[e.name] += sign * _compute_log_effect(law, points, values, e.name)
        site = {e.name: moved[e.name] if to_site else v}
        values = values | constrain(law, site, {e.name})
    return moved, values


def _compute_log_positive(
    remainder: Float[AnyArray, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Compute the log of a contribution from its coordinate, and the log of the
    derivative: linear above the resolution, logarithmic below.
    """
    # Let x be the coordinate and r the resolution. The site is log(x) above r, and
    # below r the tangent of log at r. This is a smooth map onto the whole line, so a
    # contribution can go to 0 without a boundary. The log slope is -log(max(x, r)).
    is_plain = remainder > RESOLUTION
    plain = jnp.log(jnp.where(is_plain, remainder, 1.0))
    # the tangent of the logarithm at RESOLUTION
    below = jnp.log(RESOLUTION) + (remainder - RESOLUTION) / RESOLUTION
    log_value = jnp.where(is_plain, plain, below)
    return log_value, jnp.where(is_plain, -plain, -jnp.log(RESOLUTION))


def _invert_log_positive(log_value: Float[AnyArray, ""]) -> Float[Array, ""]:
    is_plain = log_value > jnp.log(RESOLUTION)
    return jnp.where(
        is_plain,
        # The inner `where` avoids an overflow in the branch that is not taken, because
        # the gradient would then be NaN.
        jnp.exp(jnp.where(is_plain, log_value, 0.0)),
        RESOLUTION * (1 + log_value - jnp.log(RESOLUTION)),
    )


class _Contrast(NamedTuple):
    """Contrast of one term along its own covariate, in loss per unit of the term's
    value.

    ``is_signed``: whether the value may be negative; the site is then the value itself
    and not its logarithm. ``log_size``: log of the term's contrast, shape ().
    ``between``: the term's contribution to the contrast of every term, per unit of its
    value, shape (term,).
    """

    name: str
    sign: int
    is_signed: bool
    log_size: Float[Array, ""]
    between: Float[Array, " term"]

    def site(
        self, remainder: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Compute the site from a term's share of a contrast, and the log slope."""
        if self.is_signed:
            return remainder * jnp.exp(-self.log_size), -self.log_size
        log_value, log_slope = _compute_log_positive(remainder)
        return log_value - self.log_size, log_slope

    def remainder(self, site: Float[Array, ""]) -> Float[Array, ""]:
        """Invert `site`."""
        if self.is_signed:
            return site * jnp.exp(self.log_size)
        return _invert_log_positive(site + self.log_size)

    def value(self, site: Float[Array, ""]) -> Float[Array, ""]:
        """Compute the value of the term."""
        return site if self.is_signed else jnp.exp(site)


class _Bases(NamedTuple):
    """Bases of the terms, by site, at the runs of the coordinates: the factor from a
    coefficient to the term's site, and the basis at the middle of the table, each of
    shape (); the basis at the ends of the contrasts, shape (contrast, 2).
    """

    scale: dict[str, Float[Array, ""]]
    middle: dict[str, Float[Array, ""]]
    ends: dict[str, Float[Array, "contrast 2"]]


def _compute_bases_at_points(
    law: Law, points: ContrastPoints, exponents: Values
) -> _Bases:
    """Evaluate each term's basis at the reference, the middle and contrasts."""
    # Evaluate each basis once for all of these runs: the time to trace and compile a
    # program depends on the number of its operations, not on their size.
    runs = {}
    for c in law.covariates:
        one_by_one = jnp.stack([jnp.asarray(law.reference[c]), points.middle[c]])
        runs[c] = jnp.concatenate([one_by_one, jnp.ravel(points.ends[c])])
    scale, middle, ends = {}, {}, {}
    for term in law.terms:
        at_runs = term.basis(runs, exponents)
        basis = jnp.broadcast_to(at_runs, (2 + 2 * len(points.size),))
        scale[term.site] = basis[0] if term.in_nats else jnp.ones(())
        middle[term.site] = basis[1]
        ends[term.site] = basis[2:].reshape(-1, 2)
    return _Bases(scale, middle, ends)


def _build_contrasts(
    law: Law, points: ContrastPoints, bases: _Bases
) -> list[_Contrast]:
    """Build the contrast of each scaled term, in the order of the law."""
    terms = scaled_terms(law)
    if not terms:
        return []
    scale = jnp.stack([bases.scale[term.site] for term in terms])
    ends = jnp.stack([bases.ends[term.site] for term in terms])
    # contrast of each term (row) between the two runs of each term (column)
    difference = (ends[..., 0] - ends[..., 1]) / scale[:, None]
    # log |contrast| per unit of the site; the basis itself would change by orders of
    # magnitude with its exponent. Contrasts below a twentieth of the value at the
    # median exponents are not resolved further, because exponents can make a contrast
    # 0.
    soft = 0.05 * points.size
    log_sizes = 0.5 * jnp.log(jnp.diagonal(difference) ** 2 + soft**2)
    return [
        _Contrast(
            term.site,
            term.sign,
            term.prior.support == "real",
            log_size,
            term.sign * between,
        )
        for term, log_size, between in zip(terms, log_sizes, difference, strict=True)
    ]


def _compute_loss_without(
    level: Term,
    law: Law,
    points: ContrastPoints,
    sites: Unconstrained,
    bases: _Bases,
) -> Float[Array, ""]:
    """Compute the loss at the middle of the table without one term, shape ()."""
    terms = [term for term in law.terms if term is not level]
    values = constrain(law, sites, {term.site for term in terms})
    total = jnp.zeros(())
    if law.offset is not None:
        middle = {c: jnp.asarray(v)[None] for c, v in points.middle.items()}
        total = jnp.asarray(law.offset(middle))[0]
    for term in terms:
        coefficient = values[term.site] / bases.scale[term.site]
        total = total + term.sign * coefficient * bases.middle[term.site]
    return total


def _compute_log_unit(bases: _Bases, term: Term) -> Float[Array, ""]:
    """Compute the log of a term at the middle of the table per unit of its site's value."""
    return jnp.log(bases.middle[term.site] / bases.scale[term.site])


def _move_terms(
    law: Law,
    points: ContrastPoints,
    start: Unconstrained,
    bases: _Bases,
    to_site: bool,
) -> tuple[Unconstrained, Float[Array, ""]]:
    """Map coefficients from coordinates to sites (or back), in the order of the law.
    Also returns the log determinant.
    """
    moved, logdet = {}, jnp.zeros(())
    # sum of the terms so far, between the two runs of each term
    added = jnp.zeros(len(points.size))
    for i, c in enumerate(_build_contrasts(law, points, bases)):
        # total contrast = sign value size + what earlier terms add: the map is
        # triangular in the terms' order, and its Jacobian a product of slopes.
        before = added[i]
        if to_site:
            moved[c.name], log_slope = c.site(c.sign * (start[c.name] - before))
            logdet = logdet + log_slope
        else:
            moved[c.name] = c.sign * c.remainder(start[c.name]) + before
        value = c.value(moved[c.name] if to_site else start[c.name])
        added = added + value * c.between
    return moved, logdet


def to_sites(
    law: Law, points: ContrastPoints, z: Unconstrained
) -> tuple[Unconstrained, Float[Array, ""]]:
    """Map coordinates to NumPyro's sites, with the Jacobian's log determinant."""
    moved, exponents = _move_exponents(law, points, z, to_site=True)
    sites = z | moved
    bases = _compute_bases_at_points(law, points, exponents)
    moved, logdet = _move_terms(law, points, z, bases, to_site=True)
    sites = sites | moved
    level = level_term(law)
    if level is None:
        return sites, logdet
    # The level's coordinate is the loss at the middle of the table, the number that the
    # data determine best.
    rest = _compute_loss_without(level, law, points, sites, bases)
    log_value, log_slope = _compute_log_positive(z[level.site] - rest)
    site = log_value - _compute_log_unit(bases, level)
    return sites | {level.site: site}, logdet + log_slope


def from_sites(law: Law, points: ContrastPoints, sites: Unconstrained) -> Unconstrained:
    """Invert `to_sites`."""
    moved, exponents = _move_exponents(law, points, sites, to_site=False)
    z = sites | moved
    bases = _compute_bases_at_points(law, points, exponents)
    z = z | _move_terms(law, points, sites, bases, to_site=False)[0]
    level = level_term(law)
    if level is None:
        return z
    rest = _compute_loss_without(level, law, points, sites, bases)
    log_value = sites[level.site] + _compute_log_unit(bases, level)
    return z | {level.site: _invert_log_positive(log_value) + rest}
