"""Choose priors for a formula's parameters: from laws of the catalogue with a parameter
of the same name and role, else guesses.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import jax.numpy as jnp

from bayeslaw._base.errors import FitWarning, LawError, warn
from bayeslaw._law.catalogue import laws
from bayeslaw._law.expression import (
    REFERENCE,
    FormulaTerm,
    evaluate,
    latex,
    names,
    symbol,
)
from bayeslaw._law.law import (
    NATS,
    Basis,
    Exponent,
    Law,
    Term,
    Values,
    as_arrays,
    constant,
)
from bayeslaw._law.priors import Prior, fixed, lognormal

NUMBER = lognormal(1.0, 1.0, "guessed")


def spelled(tree: ast.expr, reference: Mapping[str, float]) -> Law | None:
    """Find the law of the catalogue that equals a formula: same columns and parameters,
    and the same loss at plausible parameters.
    """
    run = as_arrays(reference)
    for law in laws():
        if {*law.covariates, *law.plausible} != names(tree):
            continue
        plausible = as_arrays(law.plausible)
        loss = evaluate(tree, {**run, **plausible})
        if jnp.allclose(loss, law.loss(run, law.from_paper(plausible)), rtol=1e-3):
            return law
    return None


def term_of(
    part: FormulaTerm,
    index: int,
    medians: Values,
    reference: Mapping[str, float],
    equal_law: Law | None = None,
) -> Term:
    """Build the term with its prior. ``medians``: prior medians of the exponents;
    ``equal_law``: law of the catalogue that equals the formula.
    """
    basis: Basis = part.basis if part.basis.factors else constant
    factors = [
        latex(factor) if above else rf"\frac{{1}}{{{latex(factor)}}}"
        for factor, above in part.basis.factors
    ]
    if part.coefficient is None:
        unit_prior = fixed(1.0, "the term has no coefficient of its own")
        name, written = f"one{index + 1}", r" \cdot ".join(factors)
        return Term(name, basis, unit_prior, written, part.sign, in_nats=False)
    written = r" \cdot ".join([symbol(part.coefficient), *factors])
    size = float(basis(as_arrays(reference), medians))
    # a basis that vanishes at the reference run cannot carry a contribution in nats
    in_nats = math.isfinite(size) and size > 1e-30

    # of the law that equals the formula, else of the nearest in which the coefficient has
    # the same role: published priors apply to a term that reads columns of the schema
    # only, and whose powers act on one column, or on several that share an exponent
    columns = part.basis.names & set(reference)
    bases = [
        names(node.left) & columns
        for factor, _ in part.basis.factors
        for node in ast.walk(factor)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    ]
    shared = [{e.covariate, *e.also} for law in laws() for e in law.exponents]
    act_as_one = all(len(base) <= 1 or base in shared for base in bases)
    lenders = [equal_law] if equal_law else []
    if columns <= set(REFERENCE) and act_as_one:
        lenders += _sort_by_similarity(reference)
    moves = _find_formula_moves(part, reference)
    for law in lenders:
        for t in law.terms:
            alike = (part.coefficient, basis is constant, in_nats)
            if (t.coefficient, t.is_floor, t.in_nats) != alike:
                continue
            has_role = law is equal_law or _find_law_moves(law, t) == moves
            if t.prior.support == "positive" and has_role:
                prior = _borrow_prior(t.prior, law)
                return Term(part.coefficient, basis, prior, written, part.sign, in_nats)
    prior = NUMBER
    if basis is constant:
        prior = lognormal(1.6, 0.4, "guessed: floors of published laws are .8-2.5 nats")
    elif in_nats:
        prior = lognormal(0.3, 1.0, "guessed: .06-1.6 nats at the reference run")
    return Term(part.coefficient, basis, prior, written, part.sign, in_nats)


def _sort_by_similarity(columns: Collection[str]) -> list[Law]:
    return sorted(laws(), key=lambda law: len(set(law.covariates) ^ set(columns)))


def _borrow_prior(prior: Prior, law: Law) -> Prior:
    return replace(prior, source=f"of law {law.name!r}: {prior.source}")


def _take_medians(exponents: Iterable[Exponent]) -> Values:
    return {e.name: jnp.asarray(e.prior.median) for e in exponents}


def _find_moves(
    basis: Basis, sign: int, reference: Mapping[str, float], exponents: Values
) -> dict[str, int]:
    """Tell whether a term rises (1) or falls (-1) with each column near the reference
    run; columns that do not move it are left out.
    """
    start = float(basis(as_arrays(reference), exponents))
    moves = {}
    for column, value in reference.items():
        moved = as_arrays({**reference, column: 1.1 * value})
        change = sign * (float(basis(moved, exponents)) - start)
        if math.isfinite(change) and change != 0:
            moves[column] = 1 if change > 0 else -1
    return moves


def _find_formula_moves(
    part: FormulaTerm, reference: Mapping[str, float]
) -> dict[str, int]:
    """Tell how a formula's term moves, at exponents of usual size."""
    powers = dict.fromkeys(part.basis.names - set(reference), jnp.asarray(0.3))
    return _find_moves(part.basis, part.sign, reference, powers)


def _find_law_moves(law: Law, term: Term) -> dict[str, int]:
    return _find_moves(
        term.basis, term.sign, law.reference, _take_medians(law.exponents)
    )


def exponents_of(
    parts: tuple[FormulaTerm, ...],
    reference: Mapping[str, float],
    equal_law: Law | None = None,
) -> tuple[Exponent, ...]:
    """List every parameter that is not a coefficient, with its prior. ``equal_law``: law
    of the catalogue that equals the formula.
    """
    exponents: dict[str, Exponent] = {}
    # parameters that are not powers: their priors need the medians of the powers
    scales: dict[str, tuple[ast.expr, str]] = {}
    equal = {e.name: e.prior for e in equal_law.exponents} if equal_law else {}
    for part in parts:
        for factor, _ in part.basis.factors:
            for name in sorted(names(factor) - set(reference) - set(exponents)):
                # the least subexpression with the parameter and a column
                pieces = [
                    node
                    for factor, _ in part.basis.factors
                    for node in ast.walk(factor)
                    if isinstance(node, ast.expr)
                    and name in names(node)
                    and names(node) & set(reference)
                ]
                if not pieces:
                    raise LawError(
                        f"parameter {name!r} acts on no column: let it multiply a term, "
                        "or be the power of a column"
                    )
                where = min(pieces, key=lambda piece: sum(1 for _ in ast.walk(piece)))
                together = [c for c in reference if c in names(where)]
                is_power = (
                    isinstance(where, ast.BinOp)
                    and isinstance(where.op, ast.Pow)
                    and name in names(where.right)
                )
                if name in equal and equal_law:
                    prior = _borrow_prior(equal[name], equal_law)
                else:
                    moves = _find_formula_moves(part, reference)
                    prior = _find_cited_prior(name, together, moves, reference)
                if prior is None and is_power:
                    source = "guessed: exponents of published laws are .05-1"
                    prior = lognormal(0.3, 0.7, source)
                if prior is None:
                    scales[name] = (where, together[0])
                else:
                    exponents[name] = Exponent(name, prior, together[0], symbol(name))
    medians = _take_medians(exponents.values())
    at = {**reference, **medians, **dict.fromkeys(scales, jnp.ones(()))}
    for name, (where, acts_on) in scales.items():
        prior = _guess_scale_prior(name, where, at)
        exponents[name] = Exponent(name, prior, acts_on, symbol(name))
    return tuple(exponents.values())


def _find_cited_prior(
    name: str,
    together: Collection[str],
    moves: Mapping[str, int],
    columns: Collection[str],
) -> Prior | None:
    """Find the prior of an exponent in the catalogue that has the same name and acts on
    the same columns, in a term that rises and falls with them as the formula's does.
    """
    wanted = {c: moves.get(c) for c in together}
    for law in _sort_by_similarity(columns):
        run, medians = as_arrays(law.reference), _take_medians(law.exponents)
        for e in law.exponents:
            acts_on = ({e.covariate}, {e.covariate, *e.also})
            if e.name != name or set(together) not in acts_on:
                continue
            moved = {**medians, name: 1.1 * medians[name]}
            for term in law.terms:
                if term.basis(run, medians) == term.basis(run, moved):
                    continue
                found = _find_law_moves(law, term)
                if wanted == {c: found.get(c) for c in together}:
                    return _borrow_prior(e.prior, law)
    return None


def _guess_scale_prior(name: str, where: ast.expr, at: Values) -> Prior:
    """Guess the prior of a scale k in k*x or x/k: its median makes the subexpression 1 at
    the reference run. Other parameters get a prior around 1.
    """
    at_one, at_two = (
        float(evaluate(where, {**at, name: jnp.asarray(value)})) for value in (1.0, 2.0)
    )
    if not (math.isfinite(at_one) and at_one != 0):
        return NUMBER
    source = (
        "guessed: the piece of the formula it scales is about 1 at the reference run"
    )
    if math.isclose(at_two, 2 * at_one, rel_tol=1e-5):
        return lognormal(1 / abs(at_one), 1.5, source)
    if math.isclose(at_two, at_one / 2, rel_tol=1e-5):
        return lognormal(abs(at_one), 1.5, source)
    return NUMBER


def warn_guessed(terms: tuple[Term, ...], exponents: tuple[Exponent, ...]) -> None:
    priors = {t.site: t.prior for t in terms} | {e.name: e.prior for e in exponents}
    guessed = [
        f"{n} = {p}" for n, p in priors.items() if p.source.startswith("guessed")
    ]
    if guessed:
        what = "prior" if len(guessed) == 1 else "priors"
        warn(
            f"{what} guessed: {', '.join(guessed)}; "
            f"set your own by name "
            f"({NATS.removeprefix('_')}: contribution at the reference run)",
            FitWarning,
        )
