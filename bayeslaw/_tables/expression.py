"""Read what users write for a column: products, ratios and sums of columns and numbers,
``ln(...)`` and ``sqrt(...)``.

Names may have any characters (``eval/loss``). So Python's parser gets the text with a
sign in place of each name; Python never evaluates it.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import drop_rounding, parse_number

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
# name -> function, how a number that it takes compares to 0, and what others do not have
FUNCTIONS = {
    "ln": (np.log, operator.gt, "logarithm; a perplexity is at least 1"),
    "sqrt": (np.sqrt, operator.ge, "square root"),
}
NUMBER = re.compile(r"[\d.]+(?:e[-+]?\d+)?", re.IGNORECASE)
SIGN = re.compile(r"\s+|[-+*/()]|(?:ln|sqrt)(?=\()")
# what may follow a name
NAME_END = re.compile(r"\s*(?:[-+*/)]|$)")
# a cell that states its unit: 25%, 20B
STATED = r"[-+]?[\d.,_]+(?:e[-+]?\d+)?\s*[kmbgt%]"


@dataclass(frozen=True)
class Expression:
    """An expression that was read. ``columns``: those it reads, in their order."""

    text: str
    tree: ast.expr
    columns: tuple[str, ...]

    @property
    def divides(self) -> bool:
        """Whether it divides by a column."""
        ratios = [n for n in self._nodes(ast.BinOp) if isinstance(n.op, ast.Div)]
        parts = [part for ratio in ratios for part in ast.walk(ratio.right)]
        return any(isinstance(part, ast.Name) for part in parts)

    @property
    def factor(self) -> float | None:
        """The factor of the one column that is rescaled; None for other expressions."""
        others = self._nodes(ast.Call, ast.Add, ast.Sub)
        if len(self._nodes(ast.Name)) > 1 or others or self.divides:
            return None
        return float(self._value(self.tree, [1.0]))

    def _nodes(self, *kinds: type) -> list[Any]:
        return [node for node in ast.walk(self.tree) if isinstance(node, kinds)]

    def of(self, cells: Mapping[str, pd.Series], ours: str) -> pd.Series:
        """Compute column ``ours`` from the cells of the columns that are read. Cells that
        are not numbers stay as text: an error follows only if their rows are used.

        Raises
        ------
        RunTableError
            A column is not numbers, or a number has no logarithm or root.
        """
        written = [cells[name] for name in self.columns]
        numbers = [_numbers(*pair) for pair in zip(written, self.columns, strict=True)]
        read = [self._without_stated(numbers[0], written[0], ours), *numbers[1:]]
        values = self._value(self.tree, read).map(drop_rounding)
        for column, x in zip(reversed(written), reversed(numbers), strict=True):
            is_text = x.isna() & column.notna()
            if is_text.any():
                values = values.astype(object).mask(is_text, column.astype(object))
        return values

    def _value(self, node: ast.expr, columns: list[Any]) -> Any:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                sides = [self._value(side, columns) for side in (left, right)]
                return OPERATORS[type(op)](*sides)
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                function, is_taken, what = FUNCTIONS[name]
                values = self._value(argument, columns)
                if not np.all(is_taken(values, 0) | np.isnan(values)):
                    raise RunTableError(
                        f"column {self.text!r}: {np.nanmin(values):g} has no {what}"
                    )
                return function(values)
            case ast.Name(id=name):
                return columns[int(name[1:])]
            case ast.Constant(value=value):
                return value
        raise TypeError(node)

    def _without_stated(
        self, numbers: pd.Series, cells: pd.Series, ours: str
    ) -> pd.Series:
        """Leave out a factor of units, with a warning, where the cell states its unit
        itself, as ``25%`` does in ``mix/100``.
        """
        factor = self.factor
        is_unit = factor in (1e3, 1e6, 1e9, 1e12, 0.01)
        if factor is None or not is_unit or pd.api.types.is_numeric_dtype(cells):
            return numbers
        stated = cells.astype(str).str.strip().str.fullmatch(STATED, case=False)
        stated = stated.fillna(False).astype(bool)
        if stated.any():
            warn(
                f"{int(stated.sum())} cells of {self.columns[0]!r} state their unit "
                f"themselves ({cells[stated].iloc[0]}): they are read as written, and the "
                f"factor of {ours!r} is left out there"
            )
        return numbers.mask(stated, numbers / factor)


def parse(
    text: str, names: Collection[str], most_characters: int = 1000
) -> Expression | None:
    """Read an expression of the columns ``names``, of which the longest counts; None if
    the text is none, is too long, or reads no column.

    Raises
    ------
    RunTableError
        A factor is no number above 0.
    """
    by_length = sorted(names, key=len, reverse=True)
    columns: list[str] = []
    plain, left = "", text.strip()
    if len(left) > most_characters:
        return None
    while left:
        name = next((n for n in by_length if n and _begins(left, n)), None)
        sign = NUMBER.match(left) or SIGN.match(left)
        if name is not None:
            columns += [name] * (name not in columns)
            plain += f"_{columns.index(name)}"
            left = left[len(name) :]
        elif sign is not None:
            if NUMBER.match(left):
                _check_factor(sign[0], text)
            plain += sign[0]
            left = left[sign.end() :]
        else:
            return None
    try:
        tree = ast.parse(plain, mode="eval").body
        is_allowed = all(map(_is_allowed, ast.walk(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Expression(text, tree, tuple(columns)) if columns and is_allowed else None


def _begins(text: str, name: str) -> bool:
    return text.startswith(name) and bool(NAME_END.match(text, len(name)))


def _is_allowed(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(op=op):
            return type(op) in OPERATORS
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]):
            return name in FUNCTIONS
    return isinstance(node, ast.Name | ast.Constant | ast.operator | ast.expr_context)


def _check_factor(digits: str, text: str) -> None:
    """Refuse a factor of a column that is not a finite number above 0."""
    try:
        number = float(digits)
    except ValueError:
        number = 0.0
    if not (number > 0 and math.isfinite(number) and math.isfinite(1 / number)):
        raise RunTableError(
            f"column {text!r}: {digits} is no factor; write a number above 0, like "
            f"{first_name(text)}*1e9"
        )


def first_name(text: str) -> str:
    """Take the text before the first factor."""
    return re.split(rf"\s*[*/]\s*(?={NUMBER.pattern})", text, maxsplit=1)[0].strip()


def shared_number(text: str) -> float | None:
    """Parse a number that is given in place of a column; None if the text is none."""
    try:
        return parse_number(text)
    except RunTableError:
        return None


def columns_read(text: str, names: Collection[str]) -> tuple[str, ...]:
    """List the columns that an expression reads; none if it is a number."""
    if text in names:
        return (text,)
    if shared_number(text) is not None:
        return ()
    read = parse(text, names)
    return read.columns if read else ()


def _numbers(column: pd.Series, name: str) -> pd.Series:
    """Convert a column to numbers; other cells become NaN.

    Raises
    ------
    RunTableError
        No cell is a number, or cells are truth values.
    """
    numbers = column.map(_number_or_nan).astype(float)
    is_empty = column.isna().all()
    if pd.api.types.is_bool_dtype(column) or not (is_empty or numbers.notna().any()):
        raise RunTableError(
            f"column {name!r} is not numbers, so nothing can be made of it"
        )
    return numbers


def _number_or_nan(cell: object) -> float:
    try:
        return parse_number(cell)
    except (RunTableError, ValueError, TypeError):
        return math.nan
