"""Parse the formulas of users' laws safely into trees, evaluate them, and write them in
LaTeX.

Python's parser reads a formula, but Python never evaluates it. This module interprets
the tree and allows only numbers, names, + - * / ^, parentheses, exp, log and sqrt.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp

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
OPERATORS: dict[type[ast.operator], Callable] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _raise_to_power,
}


def parse(text: str, most_characters: int = 1000) -> ast.expr:
    """Parse a formula into its tree.

    Raises
    ------
    LawError
        The text is not a formula, is too long or too deep, or contains something that
        is not allowed.
    """
    if len(text) > most_characters:
        raise LawError(
            f"the formula has {len(text)} characters; at most {most_characters}"
        )
    try:
        tree = _parse_tree(text)
        _check_node(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, LawError):
            raise
        raise LawError(
            f"formula {text!r} is not understood; "
            'write it like "E + A/N^alpha + B/D^beta"'
        ) from None
    return _WithoutUnits().visit(tree)


def _parse_tree(text: str) -> ast.expr:
    return ast.parse(text.strip().replace("^", "**"), mode="eval").body


def units(text: str) -> dict[str, str]:
    """Collect the units that a formula states for its columns: ``heat[degC]``.

    Raises
    ------
    LawError
        A column has two units.
    """
    stated: dict[str, str] = {}
    for node in ast.walk(_parse_tree(text)):
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


def _check_node(node: ast.AST, depth: int = 0) -> None:
    """Refuse everything but the few nodes of a formula."""
    if depth > 100:
        raise LawError("the formula is nested more than 100 deep")
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            _check_node(left, depth + 1)
            _check_node(right, depth + 1)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_node(operand, depth + 1)
        case ast.Call(func=ast.Name(id=function), args=[argument], keywords=[]) if (
            function in FUNCTIONS
        ):
            _check_node(argument, depth + 1)
        case ast.Constant(value=value) if _is_number(value):
            pass
        case ast.Name(id=name) if name not in FUNCTIONS:
            pass
        case ast.Subscript(
            value=ast.Name(), slice=ast.Name() | ast.BinOp() | ast.Constant()
        ):  # a column with its unit
            pass
        case _:
            text = type(node).__name__
            if isinstance(node, ast.expr):
                text = ast.unparse(node)
            excerpt = text if len(text) <= 60 else f"{text[:60]}..."
            raise LawError(
                f"a formula cannot contain {excerpt!r}: "
                "only numbers, names, + - * / ^ ( ), exp, log, sqrt"
            )


def _is_number(value: object) -> bool:
    """Tell whether a constant is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def names(node: ast.AST) -> set[str]:
    """List the covariates and parameters of a formula."""
    identifiers = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    functions = set(FUNCTIONS)
    return identifiers - functions


def evaluate(node: ast.expr, env: Mapping[str, Any]) -> Any:
    """Compute the value of a checked formula, its names taken from ``env``; shapes
    broadcast.
    """
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=right) if not names(right):
            # a whole exponent may have a negative base
            return evaluate(left, env) ** evaluate(right, env)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATORS[type(op)](evaluate(left, env), evaluate(right, env))
        case ast.UnaryOp(op=op, operand=operand):
            value = evaluate(operand, env)
            return -value if isinstance(op, ast.USub) else value
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            return FUNCTIONS[function](evaluate(argument, env))
        case ast.Constant(value=value):
            return jnp.asarray(float(value))  # type: ignore[arg-type]
        case ast.Name(id=name):
            return env[name]
    raise LawError(f"a formula cannot contain {type(node).__name__}")


def symbol(name: str) -> str:
    """Write a name in LaTeX: Greek letters, an index after an underscore."""
    head, _, tail = name.partition("_")
    greek = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
    greek += ("eta", "kappa", "mu", "nu", "sigma", "tau")
    if head in greek:
        letter = "\\" + head
    elif len(head) == 1:
        letter = head
    else:
        letter = rf"\mathrm{{{head}}}"
    if not tail:
        return letter
    return rf"{letter}_{{\mathrm{{{tail.replace('_', ' ')}}}}}"


def latex(node: ast.expr) -> str:
    """Write a checked formula in LaTeX."""

    def inner(n: ast.expr) -> str:
        plain = isinstance(n, (ast.Name, ast.Call, ast.Constant))
        return latex(n) if plain else rf"\left({latex(n)}\right)"

    match node:
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return rf"\frac{{{latex(left)}}}{{{latex(right)}}}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return rf"{inner(left)}^{{{latex(right)}}}"
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            sides = [inner(s) if _is_sum(s) else latex(s) for s in (left, right)]
            return r" \cdot ".join(sides)
        case ast.BinOp(left=left, op=op, right=right):
            minus = isinstance(op, ast.Sub)
            second = inner(right) if minus and _is_sum(right) else latex(right)
            return f"{latex(left)} {'-' if minus else '+'} {second}"
        case ast.UnaryOp(op=op, operand=operand):
            sign = "-" if isinstance(op, ast.USub) else ""
            return sign + (inner(operand) if _is_sum(operand) else latex(operand))
        case ast.Call(func=ast.Name(id="sqrt"), args=[argument]):
            return rf"\sqrt{{{latex(argument)}}}"
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            return rf"\{function}\left({latex(argument)}\right)"
        case ast.Name(id=name):
            return symbol(name)
    return ast.unparse(node)


def _is_sum(node: ast.expr) -> bool:
    """Tell whether a node of the tree is a sum or has a sign, so that a product needs
    parentheses.
    """
    if isinstance(node, ast.UnaryOp):
        return True
    if not isinstance(node, ast.BinOp):
        return False
    return isinstance(node.op, ast.Add | ast.Sub)
