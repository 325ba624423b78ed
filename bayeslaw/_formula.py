"""Own laws: by a formula, ``"E + A/N^alpha + B/(D^beta * replay^-nu)"``, or by a Python file that defines ``LAW``.

In a formula, columns of a run table are covariates and any other name is a parameter. The sum is split into terms; a
parameter that multiplies one term and occurs nowhere else is that term's coefficient, the others are exponents.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
from jax import Array

from bayeslaw._catalogue import PACKAGE, laws
from bayeslaw._catalogue import law as law_by_name
from bayeslaw._errors import FitWarning, LawError
from bayeslaw._expression import evaluate, latex, names, parse, symbol
from bayeslaw._law import NATS, Basis, Covariates, Exponent, Law, Term, Values, clip_replay, constant
from bayeslaw._priors import Prior, fixed, lognormal

# Columns a formula may read, at the run where contributions are stated.
REFERENCE = {
    "N": 1e9,
    "D": 2e10,
    "replay": 0.25,
    "ptpp": 30.0,
    "loss_before": 2.6,
    "source_loss_before": 2.6,
    "source_loss": 2.6,
    "target_loss": 2.6,
    "S1_pt": 7.2,
    "S2_pt": 0.0,
    "S1_cpt": 1.0,
    "S2_cpt": 0.0,
    "step": 1e4,
}
NO_COVARIATES = {
    "loss": "it is what the law predicts",
    "lr": "use the areas S1_pt, S2_pt",
    "cost": "it is no covariate",
}
MEANT = {"r": "replay", "n": "N", "d": "D", "p": "replay", "P": "ptpp", "PTPP": "ptpp", "atpp": "D/N"}
VANISHING = 1e-30  # a basis below this at the reference run cannot carry a contribution in nats

CONTRIBUTION = lognormal(0.3, 1.0, "guessed: .06-1.6 nats at the reference run")
FLOOR = lognormal(1.6, 0.4, "guessed: floors of published laws are .8-2.5 nats")
POWER = lognormal(0.3, 0.7, "guessed: exponents of published laws are .05-1")
NUMBER = lognormal(1.0, 1.0, "guessed")


def find_law(text: str) -> Law:
    """The law that a word on the command line means: a catalogue name, a Python file, or a formula.

    Raises
    ------
    LawError
        It is none of these.
    """
    if text.endswith(".py"):
        return law_from_file(text)
    return law_from_formula(text) if re.search(r"[+*/^(]|\s-\s", text) else law_by_name(text)


def law_from_formula(text: str, *, name: str = "custom") -> Law:
    """A law from its formula, in the column names of a run table.

    Contributions are stated at a model of 1e9 parameters, 2e10 tokens, a quarter of replay and 30 tokens per
    parameter of pre-training (`Law.with_reference` moves them). A parameter called as in a law of the catalogue that
    reads the same columns takes its prior from there; the others are guessed, with a warning (`Law.with_priors`).

    Raises
    ------
    LawError
        The text is no formula, reads nothing, or cannot be split into identifiable terms.
    """
    tree = parse(text)
    for word in sorted(names(tree)):
        _check_name(word)
    covariates = tuple(c for c in REFERENCE if c in names(tree))
    if not covariates:
        raise LawError(f"formula {text!r} reads no column of a run table; columns: {', '.join(REFERENCE)}")
    parts = _split(tree)
    exponents = _exponents(parts, covariates)
    medians = {e.name: jnp.asarray(e.prior.median) for e in exponents}
    terms = tuple(_term(p, i, medians, covariates) for i, p in enumerate(parts) if p.is_free)
    _check_identified(text, terms)
    _warn_guessed(terms, exponents)
    known = [p for p in parts if not p.is_free]
    fixed_ones = {t.coefficient for t in terms if t.prior.is_fixed}
    values = medians | {t.site: jnp.asarray(t.prior.median) for t in terms}
    law = Law(
        name=name,
        title="law by formula",
        source=f"formula {text}",
        latex=latex(tree),
        covariates=covariates,
        terms=terms,
        exponents=exponents,
        reference={c: REFERENCE[c] for c in covariates},
        plausible={},
        origin=f"formula:{text}",
        offset=_Offset(tuple((p.sign, p.basis) for p in known)) if known else None,
        unpublish=lambda p: {**p, **dict.fromkeys(fixed_ones, jnp.ones(()))},
    )
    published = law.coefficients(values) | medians
    plausible = {n: float(v) for n, v in published.items() if n not in fixed_ones}
    if not math.isfinite(float(law.loss(_reference_run(), values))):
        raise LawError(
            f"formula {text!r} has no finite loss at {', '.join(f'{c} = {REFERENCE[c]:g}' for c in covariates)}"
        )
    return replace(law, plausible=plausible)


def law_from_file(path: str | Path) -> Law:
    """The law of a Python file that defines ``LAW``, as the files in ``models/`` do. The file is executed.

    It may import what those files share as they do (``from ._terms import size``).

    Raises
    ------
    LawError
        No such file, it fails, or its ``LAW`` is missing or no `Law`.
    """
    path = Path(path)
    if not path.is_file():
        raise LawError(f"{path}: no such file; give a Python file that defines LAW = Law(...)")
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}._user_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LawError(f"{path}: not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file does
        raise LawError(f"{path}: {type(error).__name__}: {error}") from error
    found = getattr(module, "LAW", None)
    if not isinstance(found, Law):
        what = "defines no LAW" if found is None else f"LAW is a {type(found).__name__}"
        raise LawError(f"{path}: {what}; it should end in LAW = Law(...), as the files in models/ do")
    return replace(found, origin=f"file:{path.resolve()}")


def law_from_origin(name: str, origin: str) -> Law:
    """The law a saved fit names: of the catalogue, or again from its formula or file."""
    kind, _, rest = origin.partition(":")
    if kind == "formula":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # guessed priors were named when the law was fitted
            return law_from_formula(rest, name=name)
    return law_from_file(rest) if kind == "file" else law_by_name(name)


# -- splitting -------------------------------------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if name in NO_COVARIATES or name.endswith(NATS):
        why = NO_COVARIATES.get(name, "that name has a meaning of its own")
        raise LawError(f"a formula cannot use {name!r} as a name: {why}")
    if name in MEANT:
        raise LawError(f"{name!r} is no column of a run table; write {MEANT[name]}, or name the parameter otherwise")


@dataclass(frozen=True)
class _Product:
    """A product of factors, each to the power +1 or -1; itself a basis."""

    factors: tuple[tuple[ast.expr, bool], ...]  # (factor, in the numerator)

    def __call__(self, x: Covariates, e: Values) -> Array:
        env = {**x, **e}
        if "replay" in x:
            env["replay"] = clip_replay(x["replay"])
        value = jnp.ones(())
        for factor, above in self.factors:
            value = value * evaluate(factor, env) if above else value / evaluate(factor, env)
        return value

    @property
    def names(self) -> set[str]:
        return set().union(*(names(f) for f, _ in self.factors))


@dataclass(frozen=True)
class _Part:
    """A term before it has priors: sign, coefficient if it has one, and the rest."""

    sign: int
    coefficient: str | None
    basis: _Product

    @property
    def parameters(self) -> set[str]:
        """Exponents of the term."""
        return self.basis.names - set(REFERENCE)

    @property
    def is_free(self) -> bool:
        return self.coefficient is not None or bool(self.parameters)


@dataclass(frozen=True)
class _Offset:
    """The terms that hold no parameter."""

    parts: tuple[tuple[int, _Product], ...]

    def __call__(self, x: Covariates) -> Array:
        return jnp.asarray(sum(sign * basis(x, {}) for sign, basis in self.parts))


def _summands(node: ast.expr, sign: int = 1) -> Iterator[tuple[int, ast.expr]]:
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _summands(left, sign)
            yield from _summands(right, sign)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            yield from _summands(left, sign)
            yield from _summands(right, -sign)
        case ast.UnaryOp(op=op, operand=operand):
            yield from _summands(operand, -sign if isinstance(op, ast.USub) else sign)
        case _:
            yield sign, node


def _factors(node: ast.expr, above: bool = True) -> Iterator[tuple[int, ast.expr | None, bool]]:
    """(sign, factor, in the numerator); signs come out of the product."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield from _factors(left, above)
            yield from _factors(right, above)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            yield from _factors(left, above)
            yield from _factors(right, not above)
        case ast.UnaryOp(op=op, operand=operand):
            yield (-1 if isinstance(op, ast.USub) else 1), None, above
            yield from _factors(operand, above)
        case _:
            yield 1, node, above


def _split(tree: ast.expr) -> tuple[_Part, ...]:
    count: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            count[node.id] = count.get(node.id, 0) + 1
    parts = []
    for sign, summand in _summands(tree):
        factors = list(_factors(summand))
        sign *= math.prod(s for s, _, _ in factors)
        kept = [(f, above) for _, f, above in factors if f is not None]
        single = [
            f.id
            for f, above in kept
            if isinstance(f, ast.Name) and above and f.id not in REFERENCE and count[f.id] == 1
        ]
        if len(single) > 1:
            raise LawError(
                f"{' and '.join(single)} only occur as a product, which no data can split; write one of them"
            )
        name = single[0] if single else None
        rest = tuple((f, above) for f, above in kept if not (isinstance(f, ast.Name) and f.id == name))
        parts.append(_Part(sign, name, _Product(rest)))
    return tuple(parts)


def _check_identified(text: str, terms: tuple[Term, ...]) -> None:
    if not terms:
        raise LawError(f"formula {text!r} has no parameter to learn")
    floors = [t.coefficient for t in terms if t.is_floor]
    if len(floors) > 1:
        raise LawError(f"{' and '.join(floors)} are both constants, which no data can split; write one of them")


# -- priors ----------------------------------------------------------------------------------------------------------


def _reference_run() -> dict[str, Array]:
    return {c: jnp.asarray(v) for c, v in REFERENCE.items()}


def _nearest(covariates: tuple[str, ...]) -> list[Law]:
    """The laws of the catalogue, those that read nearly the same columns first."""
    return sorted(laws(), key=lambda law: len(set(law.covariates) ^ set(covariates)))


def _term(part: _Part, index: int, medians: Values, covariates: tuple[str, ...]) -> Term:
    shown = r" \cdot ".join(latex(f) if above else rf"\frac{{1}}{{{latex(f)}}}" for f, above in part.basis.factors)
    basis: Basis = part.basis if part.basis.factors else constant
    if part.coefficient is None:
        one = fixed(1.0, "the term has no coefficient of its own")
        return Term(f"one{index + 1}", basis, one, shown, part.sign, in_nats=False)
    shown = rf"{symbol(part.coefficient)} \cdot {shown}" if shown else symbol(part.coefficient)
    size = float(basis(_reference_run(), medians))
    in_nats = math.isfinite(size) and size > VANISHING
    cited = [
        t.prior
        for law in _nearest(covariates)
        for t in law.terms
        if t.coefficient == part.coefficient and t.is_floor == (basis is constant) and t.in_nats == in_nats
        if t.prior.support == "positive"
    ]
    guess = FLOOR if basis is constant else CONTRIBUTION if in_nats else NUMBER
    return Term(part.coefficient, basis, cited[0] if cited else guess, shown, part.sign, in_nats)


def _exponents(parts: tuple[_Part, ...], covariates: tuple[str, ...]) -> tuple[Exponent, ...]:
    found: dict[str, Exponent] = {}
    scales: dict[str, tuple[ast.expr, str]] = {}
    for part in parts:
        for factor, _ in part.basis.factors:
            for name in sorted(names(factor) - set(REFERENCE) - set(found)):
                where, acts_on = _home(name, part.basis.factors)
                prior = _cited(name, acts_on, covariates)
                if prior is None and _is_power(name, where):
                    prior = POWER
                if prior is None:
                    scales[name] = (where, acts_on)
                else:
                    found[name] = Exponent(name, prior, acts_on, symbol(name))
    medians = {n: jnp.asarray(e.prior.median) for n, e in found.items()} | dict.fromkeys(scales, jnp.ones(()))
    for name, (where, acts_on) in scales.items():
        found[name] = Exponent(name, _scale(name, where, medians), acts_on, symbol(name))
    return tuple(found.values())


def _home(name: str, factors: tuple[tuple[ast.expr, bool], ...]) -> tuple[ast.expr, str]:
    """The smallest piece of the formula that holds the parameter and a covariate, and that covariate."""
    holding = [f for f, _ in factors if name in names(f)]
    pieces = [n for f in holding for n in ast.walk(f) if isinstance(n, ast.expr) and name in names(n)]
    pieces = [n for n in pieces if names(n) & set(REFERENCE)]
    if not pieces:
        raise LawError(f"parameter {name!r} acts on no column: let it multiply a term, or be the power of a column")
    smallest = min(pieces, key=lambda n: sum(1 for _ in ast.walk(n)))
    return smallest, next(c for c in REFERENCE if c in names(smallest))


def _is_power(name: str, where: ast.expr) -> bool:
    return isinstance(where, ast.BinOp) and isinstance(where.op, ast.Pow) and name in names(where.right)


def _cited(name: str, acts_on: str, covariates: tuple[str, ...]) -> Prior | None:
    """The prior of an exponent of this name in the catalogue, along the same column if there is one."""
    same = [e for law in _nearest(covariates) for e in law.exponents if e.name == name and e.covariate in covariates]
    same.sort(key=lambda e: e.covariate != acts_on)
    return same[0].prior if same else None


def _scale(name: str, where: ast.expr, medians: Values) -> Prior:
    """For k in k*x or x/k: as large as makes the piece 1 at the reference run; else about 1."""
    env = {**REFERENCE, **medians}
    one, two = (float(evaluate(where, env | {name: jnp.asarray(v)})) for v in (1.0, 2.0))
    if not (math.isfinite(one) and one != 0):
        return NUMBER
    source = "guessed: the piece of the formula it scales is about 1 at the reference run"
    if math.isclose(two, 2 * one, rel_tol=1e-5):
        return lognormal(1 / abs(one), 1.5, source)
    return lognormal(abs(one), 1.5, source) if math.isclose(two, one / 2, rel_tol=1e-5) else NUMBER


def _warn_guessed(terms: tuple[Term, ...], exponents: tuple[Exponent, ...]) -> None:
    priors = {t.site: t.prior for t in terms} | {e.name: e.prior for e in exponents}
    guessed = [f"{n} = {p}" for n, p in priors.items() if p.source.startswith("guessed")]
    if guessed:
        warnings.warn(
            f"prior{'s' * (len(guessed) > 1)} guessed: {', '.join(guessed)}; set your own by name "
            f"({NATS.removeprefix('_')}: contribution at the reference run)",
            FitWarning,
            stacklevel=3,
        )
