"""One grammar for what users write: formulas of laws, columns made from columns, queries.

Python's parser reads a text, and Python never evaluates it: a text is refused unless each
node of its tree is allowed, and the tree is interpreted here (a query's, by pandas).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

OPERATORS: dict[type[ast.operator], Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NotUnderstoodError(Exception):
    """A text is no expression of the language, or (``too_deep``) nested too deep."""

    too_deep = False


def parse(
    text: str,
    parts: Callable[[Any], Iterable[ast.AST]],
    *,
    most_deep: int = 1000,
) -> ast.expr:
    """Parse an expression into its tree.

    ``parts``: the language, which returns the parts of a node that are to be checked
    next, and raises for a node that is not allowed.
    """
    refused = NotUnderstoodError(text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise refused from None
    except (RecursionError, MemoryError):
        refused.too_deep = True
        raise refused from None
    unchecked: list[tuple[ast.AST, int]] = [(tree, 0)]
    # the language may write a node into its refusal, which fails where it is too deep
    try:
        while unchecked:
            node, depth = unchecked.pop()
            if depth > most_deep:
                refused.too_deep = True
                raise refused
            inside = [(part, depth + 1) for part in parts(node)]
            unchecked += reversed(inside)
    except RecursionError:
        refused.too_deep = True
        raise refused from None
    return tree


def names_in(node: ast.AST, functions: Collection[str] = ()) -> set[str]:
    """List the names in a tree that are no functions."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return names - {*functions}


def evaluate(
    node: ast.expr,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable],
    operators: Mapping[type[ast.operator], Callable] = OPERATORS,
    number: Callable[[float], Any] = float,
) -> Any:
    """Compute a checked expression, its names taken from ``values``."""

    rest = (values, functions, operators, number)
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=right) if not names_in(
            right, functions
        ):
            # a whole exponent may have a negative base
            return evaluate(left, *rest) ** evaluate(right, *rest)
        case ast.BinOp(left=left, op=op, right=right):
            return operators[type(op)](evaluate(left, *rest), evaluate(right, *rest))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, *rest)
        case ast.UnaryOp(operand=operand):
            return evaluate(operand, *rest)
        case ast.Call(func=ast.Name(id=function), args=[argument]):
            return functions[function](evaluate(argument, *rest))
        case ast.Constant(value=constant):
            return number(float(constant))  # type: ignore[arg-type]
        case ast.Name(id=name):
            return values[name]
    raise TypeError(f"an expression cannot contain {type(node).__name__}")
