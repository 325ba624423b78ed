"""The language of users' formulas: numbers, names, + - * / ^, parentheses, exp, log and
sqrt; parsed safely into trees (`_base.grammar`), evaluated, and written in LaTeX.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax.numpy as jnp

from bayeslaw._base import grammar
from bayeslaw._base.errors import LawError
from bayeslaw._law.law import power


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
