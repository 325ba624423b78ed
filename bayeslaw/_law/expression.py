"""The language of users' formulas: numbers, names, + - * / ^, parentheses, exp, log and
sqrt; parsed safely into trees (`_base.grammar`), evaluated, written in LaTeX, and split
into terms.

A parameter that multiplies one term and occurs nowhere else is the coefficient of that
term. All other parameters are exponents.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from bayeslaw._base import grammar
from bayeslaw._base.errors import LawError
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._law.law import Covariates, Values, clip_replay, power

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray


def _raise_to_power(base: Any, exponent: Any) -> Any:
    """Raise to a power like `power`, but with the usual results for a negative base
    (NaN) and for a base of 0 in a denominator (infinity).
    """
    at_zero = jnp.where(exponent < 0, jnp.inf, 0.0)
    elsewhere = jnp.where(base < 0, jnp.nan, at_zero)
    return jnp.where(base > 0, power(base, exponent), elsewhere)


FUNCTIONS: dict[str, Callable] = {"exp": jnp.exp, "log": jnp.log, "sqrt": jnp.sqrt}
OPERATORS = {**grammar.OPERATORS, ast.Pow: _raise_to_power}


def parse(text: str, most_characters: int = 1000) -> ast.expr:
    if len(text) > most_characters:
        raise LawError(
            f"the formula has {len(text)} characters; at most {most_characters}"
        )
    return _WithoutUnits().visit(_parse(text))


def _parse(text: str) -> ast.expr:
    try:
        return grammar.parse(text.replace("^", "**"), _list_parts, most_deep=100)
    except grammar.NotUnderstoodError as error:
        if error.too_deep:
            raise LawError("the formula is nested more than 100 deep") from None
        if error.part:
            excerpt = error.part if len(error.part) <= 60 else f"{error.part[:60]}..."
            raise LawError(
                f"a formula cannot contain {excerpt!r}: "
                "only numbers, names, + - * / ^ ( ), exp, log, sqrt"
            ) from None
        raise LawError(
            f"formula {text!r} is not understood; "
            'write it like "E + A/N^alpha + B/D^beta"'
        ) from None


def units(text: str) -> dict[str, str]:
    """Collect the units that a formula states for its columns: ``heat[degC]``."""
    stated: dict[str, str] = {}
    for node in ast.walk(_parse(text)):
        match node:
            case ast.Subscript(value=ast.Name(id=column), slice=unit):
                said = ast.unparse(unit).strip("'\"").replace(" ", "")
                if stated.setdefault(column, said) != said:
                    raise LawError(
                        f"the formula has {column!r} in {stated[column]} and in {said}; "
                        "state one unit"
                    )
    return stated


class _WithoutUnits(ast.NodeTransformer):
    """Remove the units: ``heat[degC]`` becomes the column ``heat``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node.value


def _list_parts(node: ast.AST) -> Iterable[ast.AST] | None:
    match node:
        case ast.Subscript(
            value=ast.Name(), slice=ast.Name() | ast.BinOp() | ast.Constant()
        ):  # a column with its unit
            return ()
    return grammar.list_parts(node, FUNCTIONS, OPERATORS)


def names(node: ast.AST) -> set[str]:
    return grammar.names_in(node, FUNCTIONS)


def evaluate(node: ast.expr, env: Mapping[str, Any]) -> Any:
    """Compute a checked formula, its names taken from ``env``; shapes broadcast."""
    return grammar.evaluate(node, env, FUNCTIONS, OPERATORS, jnp.asarray)


def symbol(name: str) -> str:
    """Write a name in LaTeX: Greek letters, an index after an underscore."""
    head, _, tail = name.partition("_")
    greek = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
    greek += ("eta", "kappa", "mu", "nu", "sigma", "tau")
    letter = head if len(head) == 1 else rf"\mathrm{{{head}}}"
    if head in greek:
        letter = "\\" + head
    index = tail.replace("_", " ")
    return rf"{letter}_{{\mathrm{{{index}}}}}" if tail else letter


def latex(node: ast.expr) -> str:
    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return rf"\frac{{{latex(left)}}}{{{latex(right)}}}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return rf"{_enclose(left, True)}^{{{latex(right)}}}"
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            sides = [_enclose(side, _is_sum(side)) for side in (left, right)]
            return r" \cdot ".join(sides)
        case ast.BinOp(left=left, op=op, right=right):
            minus = isinstance(op, ast.Sub)
            second = _enclose(right, minus and _is_sum(right))
            return f"{latex(left)} {'-' if minus else '+'} {second}"
        case ast.UnaryOp(op=op, operand=operand):
            sign = "-" if isinstance(op, ast.USub) else ""
            return sign + _enclose(operand, _is_sum(operand))
        case ast.Call(func=ast.Name(id="sqrt"), args=[argument]):
            return rf"\sqrt{{{latex(argument)}}}"
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            return rf"\{function}\left({latex(argument)}\right)"
        case ast.Name(id=name):
            return symbol(name)
    return ast.unparse(node)


def _enclose(node: ast.expr, needed: bool) -> str:
    is_plain = isinstance(node, ast.Name | ast.Call | ast.Constant)
    written = latex(node)
    return written if is_plain or not needed else rf"\left({written}\right)"


def _is_sum(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return True
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


# -- terms -----------------------------------------------------------------------------

# Columns that any formula may read, at the run where contributions are stated.
REFERENCE = {
    "N": 1e9,
    "D": 2e10,
    "replay": 0.25,
    "ptpp": 30.0,
    LOSS_BEFORE: 2.6,
    SOURCE_LOSS_BEFORE: 2.6,
    "source_loss": 2.6,
    "target_loss": 2.6,
    "S1_pt": 7.2,
    "S2_pt": 0.0,
    "S1_cpt": 1.0,
    "S2_cpt": 0.0,
    "step": 1e4,
}


@dataclass(frozen=True)
class Product:
    """A product of factors, each to the power +1 or -1, as the basis of a term."""

    factors: tuple[tuple[ast.expr, bool], ...]  # (factor, in the numerator)

    def __call__(self, x: Covariates, e: Values) -> Float[AnyArray, "*run"]:
        env = {**x, **e}
        if "replay" in x:
            env["replay"] = clip_replay(x["replay"])
        value = jnp.ones(())
        for factor, above in self.factors:
            of_factor = evaluate(factor, env)
            value = value * of_factor if above else value / of_factor
        return value

    @property
    def names(self) -> set[str]:
        return set().union(*(names(f) for f, _ in self.factors))


@dataclass(frozen=True)
class FormulaTerm:
    """A term before it gets a prior: sign, coefficient (or None), and basis."""

    sign: int
    coefficient: str | None
    basis: Product
    exponents: frozenset[str]  # names in the basis that are not columns

    @property
    def is_free(self) -> bool:
        return self.coefficient is not None or bool(self.exponents)


@dataclass(frozen=True)
class Offset:
    """The terms without parameters."""

    parts: tuple[tuple[int, Product], ...]

    def __call__(self, x: Covariates) -> Float[AnyArray, "*run"]:
        return jnp.asarray(sum(sign * basis(x, {}) for sign, basis in self.parts))


def _iterate_summands(node: ast.expr, sign: int = 1) -> Iterator[tuple[int, ast.expr]]:
    """Yield (sign, summand) for each summand of a formula, with signs multiplied out."""
    match node:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from _iterate_summands(left, sign)
            yield from _iterate_summands(right, sign)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            yield from _iterate_summands(left, sign)
            yield from _iterate_summands(right, -sign)
        case ast.UnaryOp(op=op, operand=operand):
            yield from _iterate_summands(
                operand, -sign if isinstance(op, ast.USub) else sign
            )
        case _:
            yield sign, node


def _iterate_factors(
    node: ast.expr, above: bool = True
) -> Iterator[tuple[int, ast.expr | None, bool]]:
    """Yield (sign, factor, in the numerator) for each factor of a product."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield from _iterate_factors(left, above)
            yield from _iterate_factors(right, above)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            yield from _iterate_factors(left, above)
            yield from _iterate_factors(right, not above)
        case ast.UnaryOp(op=op, operand=operand):
            yield (-1 if isinstance(op, ast.USub) else 1), None, above
            yield from _iterate_factors(operand, above)
        case _:
            yield 1, node, above


def split(tree: ast.expr, columns: Collection[str]) -> tuple[FormulaTerm, ...]:
    """Split a formula into its terms; names that are not columns are parameters."""
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    # a coefficient occurs once in the formula
    once = {name for name in used if used.count(name) == 1} - set(columns)
    terms = []
    for sign, summand in _iterate_summands(tree):
        coefficients, factors = [], []
        for factor_sign, factor, above in _iterate_factors(summand):
            sign *= factor_sign
            if above and isinstance(factor, ast.Name) and factor.id in once:
                coefficients.append(factor.id)
            elif factor is not None:
                factors.append((factor, above))
        if len(coefficients) > 1:
            raise LawError(
                f"{' and '.join(coefficients)} only occur as a product, "
                "which no data can split; write one of them"
            )
        basis = Product(tuple(factors))
        exponents = frozenset(basis.names - set(columns))
        terms.append(
            FormulaTerm(sign, next(iter(coefficients), None), basis, exponents)
        )
    return tuple(terms)
