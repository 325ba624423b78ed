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
from bayeslaw._law.expression import evaluate, latex, names, symbol
from bayeslaw._law.formula_parts import REFERENCE, FormulaTerm
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


def _sort_by_similarity(columns: Collection[str]) -> list[Law]:
    return sorted(laws(), key=lambda law: len(set(law.covariates) ^ set(columns)))


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
    written = _write_latex(part)
    if part.coefficient is None:
        unit_prior = fixed(1.0, "the term has no coefficient of its own")
        name = f"one{index + 1}"
        return Term(name, basis, unit_prior, written, part.sign, in_nats=False)
    size = float(basis(as_arrays(reference), medians))
    # a basis that vanishes at the reference run cannot carry a contribution in nats
    in_nats = math.isfinite(size) and size > 1e-30
    lenders = [equal_law] if equal_law else []
    if _is_published(part, reference):
        lenders += _sort_by_similarity(reference)
    moves = _find_formula_moves(part, reference)
    cited = [
        _borrow_prior(t.prior, law)
        for law in lenders
        for t in law.terms
        if t.coefficient == part.coefficient
        and t.is_floor == (basis is constant)
        and t.in_nats == in_nats
        and t.prior.support == "positive"
        and (law is equal_law or _find_law_moves(law, t) == moves)
    ]
    prior = cited[0] if cited else _guess_prior(basis is constant, in_nats)
    return Term(part.coefficient, basis, prior, written, part.sign, in_nats)


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
    usual = jnp.asarray(0.3)
    powers = dict.fromkeys(part.basis.names - set(reference), usual)
    return _find_moves(part.basis, part.sign, reference, powers)


def _find_law_moves(law: Law, term: Term) -> dict[str, int]:
    """Tell how a term of a law moves, at the medians of its exponents' priors."""
    medians = _take_medians(law.exponents)
    return _find_moves(term.basis, term.sign, law.reference, medians)


def _take_medians(exponents: Iterable[Exponent]) -> Values:
    return {e.name: jnp.asarray(e.prior.median) for e in exponents}


def _guess_prior(is_floor: bool, in_nats: bool) -> Prior:
    """Guess the prior of a coefficient that no law of the catalogue has."""
    if is_floor:
        source = "guessed: floors of published laws are .8-2.5 nats"
        return lognormal(1.6, 0.4, source)
    if in_nats:
        return lognormal(0.3, 1.0, "guessed: .06-1.6 nats at the reference run")
    return NUMBER


def _borrow_prior(prior: Prior, law: Law) -> Prior:
    return replace(prior, source=f"of law {law.name!r}: {prior.source}")


def _is_published(part: FormulaTerm, reference: Mapping[str, float]) -> bool:
    """Tell whether published priors can apply to a term. The term must read only
    columns of the schema, and a power must act on one column, or on columns that share
    an exponent in a law of the catalogue.
    """
    columns = part.basis.names & set(reference)
    bases = [
        names(node.left) & columns
        for factor, _ in part.basis.factors
        for node in ast.walk(factor)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    ]
    shared = [{e.covariate, *e.also} for law in laws() for e in law.exponents]
    act_as_one = all(len(base) <= 1 or base in shared for base in bases)
    return columns <= set(REFERENCE) and act_as_one


def _write_latex(part: FormulaTerm) -> str:
    """Write the term without its sign, in LaTeX."""
    factors = [
        latex(factor) if above else rf"\frac{{1}}{{{latex(factor)}}}"
        for factor, above in part.basis.factors
    ]
    if part.coefficient is not None:
        factors = [symbol(part.coefficient), *factors]
    return r" \cdot ".join(factors)


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
    for part in parts:
        for factor, _ in part.basis.factors:
            for name in sorted(names(factor) - set(reference) - set(exponents)):
                where, acts_on = _find_subexpression(
                    name, part.basis.factors, reference
                )
                together = names(where) & set(reference)
                prior = _find_prior_in_law(name, equal_law) or _find_cited_prior(
                    name, together, _find_formula_moves(part, reference), reference
                )
                is_power = (
                    isinstance(where, ast.BinOp)
                    and isinstance(where.op, ast.Pow)
                    and name in names(where.right)
                )
                if prior is None and is_power:
                    source = "guessed: exponents of published laws are .05-1"
                    prior = lognormal(0.3, 0.7, source)
                if prior is None:
                    scales[name] = (where, acts_on)
                else:
                    exponents[name] = Exponent(name, prior, acts_on, symbol(name))
    medians = _take_medians(exponents.values())
    at = {**reference, **medians, **dict.fromkeys(scales, jnp.ones(()))}
    for name, (where, acts_on) in scales.items():
        prior = _guess_scale_prior(name, where, at)
        exponents[name] = Exponent(name, prior, acts_on, symbol(name))
    return tuple(exponents.values())


def _find_subexpression(
    name: str,
    factors: tuple[tuple[ast.expr, bool], ...],
    columns: Collection[str],
) -> tuple[ast.expr, str]:
    """Find the least subexpression with the parameter and a column; name both."""
    pieces = [
        node
        for factor, _ in factors
        for node in ast.walk(factor)
        if isinstance(node, ast.expr)
        and name in names(node)
        and names(node) & set(columns)
    ]
    if not pieces:
        raise LawError(
            f"parameter {name!r} acts on no column: let it multiply a term, "
            "or be the power of a column"
        )
    smallest = min(pieces, key=lambda piece: sum(1 for _ in ast.walk(piece)))
    return smallest, next(c for c in columns if c in names(smallest))


def _find_prior_in_law(name: str, equal_law: Law | None) -> Prior | None:
    """Find the exponent's prior in the law that equals the formula."""
    if equal_law is None:
        return None
    priors = {e.name: e.prior for e in equal_law.exponents}
    return _borrow_prior(priors[name], equal_law) if name in priors else None


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
        for e in law.exponents:
            acts_on = ({e.covariate}, {e.covariate, *e.also})
            if e.name != name or set(together) not in acts_on:
                continue
            for term in _find_terms(law, e):
                found = _find_law_moves(law, term)
                if wanted == {c: found.get(c) for c in together}:
                    return _borrow_prior(e.prior, law)
    return None


def _find_terms(law: Law, exponent: Exponent) -> list[Term]:
    """Find the terms of a law that change with an exponent."""
    run = as_arrays(law.reference)
    medians = _take_medians(law.exponents)
    moved = {**medians, exponent.name: 1.1 * medians[exponent.name]}
    return [t for t in law.terms if t.basis(run, medians) != t.basis(run, moved)]


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
    """Warn of guessed priors, with their values."""
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
