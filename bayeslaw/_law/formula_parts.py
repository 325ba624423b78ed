"""Split a formula into its terms.

A parameter that multiplies one term and occurs nowhere else is the coefficient of that
term. All other parameters are exponents.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp

from bayeslaw._base.errors import LawError
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._law.expression import evaluate, names
from bayeslaw._law.law import Covariates, Values, clip_replay

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

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
