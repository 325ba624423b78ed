"""The language of columns that are made from columns: products, ratios and sums of columns
and numbers, ``ln(...)`` and ``sqrt(...)``.

Names may have any characters (``eval/loss``). So the grammar gets the text with a sign in
place of each name.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base import grammar
from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import drop_rounding, parse_number
from bayeslaw._tables.rows.cells import read_numbers

# name -> function, how a number that it takes compares to 0, and what others do not have
FUNCTIONS = {
    "ln": (np.log, operator.gt, "logarithm; a perplexity is at least 1"),
    "sqrt": (np.sqrt, operator.ge, "square root"),
}
NUMBER = r"[\d.]+(?:[eE][-+]?\d+|[kKmMbBgGtT%])?"
SIGN = r"\s+|[-+*/()]|(?:ln|sqrt)(?=\()"
NAME_END = r"(?=\s*(?:[-+*/)]|$))"  # what may follow a name
# a cell that states its unit: 25%, 20B
STATED = re.compile(r"\s*[-+]?[\d.,_]+(?:e[-+]?\d+)?\s*[kmbgt%]\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Expression:
    """An expression that was read. ``columns``: those it reads, in their order."""

    text: str
    tree: ast.expr
    columns: tuple[str, ...]

    @property
    def divides(self) -> bool:
        """Whether it divides by a column."""
        return any(
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and grammar.names_in(node.right, FUNCTIONS)
            for node in ast.walk(self.tree)
        )

    @property
    def factor(self) -> float | None:
        """The factor of the one column that is rescaled; None for other expressions."""
        nodes = [type(node) for node in ast.walk(self.tree)]
        others = {ast.Call, ast.Add, ast.Sub} & {*nodes}
        if nodes.count(ast.Name) > 1 or others or self.divides:
            return None
        return float(grammar.evaluate(self.tree, {"_0": 1.0}, {}))

    def of(self, cells: Mapping[str, pd.Series], ours: str) -> pd.Series:
        """Compute column ``ours`` from the cells of the columns that are read. Cells that
        are not numbers stay as text: an error follows only if their rows are used.
        """
        numbers = {name: read_numbers(cells[name])[0] for name in self.columns}
        for name, x in numbers.items():
            if x.isna().all() and not cells[name].isna().all():
                raise RunTableError(
                    f"column {name!r} is not numbers, so nothing can be made of it"
                )
        read = {f"_{i}": x for i, x in enumerate(numbers.values())}
        factor, first = self.factor, cells[self.columns[0]]
        if factor in (1e3, 1e6, 1e9, 1e12, 0.01):
            # a cell that states its unit, as 25% in mix/100, needs no factor of units
            stated = first.map(
                lambda cell: isinstance(cell, str) and bool(STATED.fullmatch(cell))
            ).astype(bool)
            if stated.any():
                warn(
                    f"{int(stated.sum())} cells of {self.columns[0]!r} state their unit "
                    f"themselves ({first[stated].iloc[0]}): they are read as written, and "
                    f"the factor of {ours!r} is left out there"
                )
            read["_0"] = read["_0"].mask(stated, read["_0"] / factor)
        functions = {name: partial(self._take, name) for name in FUNCTIONS}
        values = grammar.evaluate(self.tree, read, functions).map(drop_rounding)
        for name in reversed(self.columns):
            is_text = numbers[name].isna() & cells[name].notna()
            if is_text.any():
                values = values.astype(object).mask(is_text, cells[name].astype(object))
        return values

    def _take(self, name: str, values: Any) -> Any:
        function, is_taken, what = FUNCTIONS[name]
        if not np.all(is_taken(values, 0) | np.isnan(values)):
            raise RunTableError(
                f"column {self.text!r}: {np.nanmin(values):g} has no {what}"
            )
        return function(values)


def parse(text: str, names: Collection[str]) -> Expression | None:
    """Read an expression of columns, the longest name first; None if it is none."""
    by_length = sorted(filter(None, names), key=len, reverse=True)
    named = "|".join(map(re.escape, by_length)) or "(?!)"
    token = re.compile(rf"({named}){NAME_END}|({NUMBER})|{SIGN}")
    columns: list[str] = []
    plain, left = "", text.strip()
    if len(left) > 1000:
        return None
    while left:
        match = token.match(left)
        if match is None:
            return None
        name, number = match.groups()
        if name is not None:
            columns += [name] * (name not in columns)
            plain += f"_{columns.index(name)}"
        elif number is not None:
            factor = shared_number(number)
            if factor is None or not (factor > 0 and math.isfinite(1 / factor)):
                raise RunTableError(
                    f"column {text!r}: {number} is no factor; write a number above 0, "
                    f"like {first_name(text)}*1e9"
                )
            plain += repr(factor)
        else:
            plain += match[0]
        left = left[match.end() :]
    try:
        tree = grammar.parse(plain, partial(grammar.list_parts, functions=FUNCTIONS))
    except grammar.NotUnderstoodError:
        return None
    return Expression(text, tree, tuple(columns)) if columns else None


def first_name(text: str) -> str:
    return re.split(rf"\s*[*/]\s*(?={NUMBER})", text, maxsplit=1)[0].strip()


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
