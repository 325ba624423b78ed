"""One grammar for what users write: formulas of laws, columns made from columns, queries.

Python's parser reads a text, and Python never evaluates it: a text is refused unless each
node of its tree is allowed, and the tree is interpreted here (a query's, by pandas).
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

OPERATORS: dict[type[ast.operator], Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NotUnderstoodError(Exception):
    """A text is no expression of the language. ``part``: the first part of it that is not
    allowed; empty if Python cannot parse it, or (``too_deep``) it is nested too deep.
    """

    def __init__(self, part: str = "", too_deep: bool = False) -> None:
        super().__init__(part)
        self.part, self.too_deep = part, too_deep


def list_parts(
    node: ast.AST,
    functions: Collection[str],
    operators: Collection[type[ast.operator]] = OPERATORS,
) -> Iterable[ast.AST] | None:
    """List the parts of a node of arithmetic, which all languages have: numbers, names,
    operators, signs, and functions of one argument; None for other nodes.
    """
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in operators:
            return left, right
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return (operand,)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if (
            name in functions
        ):
            return (argument,)
        case ast.Constant(value=int() | float() as value) if (
            not isinstance(value, bool) and abs(value) <= sys.float_info.max
        ):
            return ()
        case ast.Name(id=name) if name not in functions:
            return ()
    return None


def parse(
    text: str,
    parts: Callable[[Any], Iterable[ast.AST] | None],
    *,
    most_deep: int = 1000,
) -> ast.expr:
    """Parse an expression into its tree.

    ``parts``: the language, which returns the parts of a node that are to be checked
    next, and None for a node that is not allowed.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise NotUnderstoodError from None
    except (RecursionError, MemoryError):
        raise NotUnderstoodError(too_deep=True) from None
    unchecked: list[tuple[ast.AST, int]] = [(tree, 0)]
    # a node that is refused is written down, which fails where it is too deep
    try:
        while unchecked:
            node, depth = unchecked.pop()
            if depth > most_deep:
                raise NotUnderstoodError(too_deep=True)
            inside = parts(node)
            if inside is None:
                raise NotUnderstoodError(ast.unparse(node))
            unchecked += reversed([(part, depth + 1) for part in inside])
    except RecursionError:
        raise NotUnderstoodError(too_deep=True) from None
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
