"""Select rows of a table by a query of column names, literals and comparisons.

A pandas query can run arbitrary code (``@pd.io.common.os...``). The text is therefore
parsed by the grammar, and pandas gets it only if every node of the syntax tree is allowed.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base import grammar
from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.proposals import mapping_hint
from bayeslaw._tables.rows.naming import NAMES

if TYPE_CHECKING:
    from jaxtyping import Bool


FUNCTIONS = {"abs", "sqrt", "log", "log10", "log1p", "exp", "floor", "ceil"}
METHODS = {
    *("isin", "between", "isna", "isnull", "notna", "notnull", "abs", "round"),
    *("min", "max", "mean", "median", "quantile"),
}
STRING_METHODS = {
    *("contains", "startswith", "endswith", "match", "fullmatch"),
    *("lower", "upper", "strip", "len"),
}
ARITHMETIC = (*grammar.OPERATORS, ast.FloorDiv, ast.Mod, ast.Pow)


def select(
    runs: pd.DataFrame, where: str | None, mapped: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Select the rows at which a query holds; all rows if ``where`` is None.

    ``mapped``: columns under the user's own names, which the query may also read; it
    has a row for each label of ``runs``.
    """
    if where is None:
        return runs
    table = runs
    if mapped is not None:
        own = [name for name in map(str, mapped) if name in where and name not in runs]
        table = runs.assign(**{name: mapped[name].reindex(runs.index) for name in own})
    mask = _find_rows(table, where)
    if not mask.any():
        raise RunTableError(f"where {where!r} selects none of the {len(runs)} rows")
    return runs[mask]


def _find_rows(runs: pd.DataFrame, where: str) -> Bool[np.ndarray, " run"]:
    """Evaluate the query at each row, shape (run,)."""
    query = _Query(where, runs, {})
    checked = query.parse()
    table = runs.rename(columns=query.placeholders)
    try:
        answers = table.eval(checked, local_dict={}, global_dict={})
    except Exception as error:  # pandas raises errors of many types
        raise query.refusal(str(error).splitlines()[0] if str(error) else "") from None
    if not (isinstance(answers, pd.Series) and len(answers) == len(runs)):
        raise query.refusal("it has one value for all rows; compare a column")
    is_truth = np.array([isinstance(answer, (bool, np.bool_)) for answer in answers])
    has_values = not (answers.isna() | is_truth).all()
    if has_values or answers.dtype.kind == "f":
        raise query.refusal("it is a value, not a condition; compare it with another")
    # rows where the comparison is missing (NaN) are not selected
    return is_truth & answers.where(is_truth, False).to_numpy(bool)


@dataclass(frozen=True)
class _Query:
    """A query, its table, and names for its columns in backticks."""

    text: str
    runs: pd.DataFrame
    placeholders: dict[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(map(str, self.runs.columns))

    def refusal(self, reason: str) -> RunTableError:
        """Build the error about this query, with the reason and the columns."""
        return RunTableError(
            f"where {self.text!r} is not a query of this table ({reason}); "
            f"columns: {', '.join(self.columns)}"
        )

    def parse(self, most: int = 1000) -> str:
        """Translate the query to Python, after checking every node of its tree."""
        if len(self.text) > most:
            raise self.refusal(f"it has more than {most} characters")

        # a string, a name in backticks, or a sign that pandas reads as a word
        token = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`([^`]*)`|([&|])"""
        plain = re.sub(token, self._translate, self.text.strip())
        try:
            return ast.unparse(grammar.parse(plain, self._list_parts, most_deep=100))
        except grammar.NotUnderstoodError as error:
            if error.too_deep:
                reason = "it is nested too deep to be read"
            elif "@" in plain:
                reason = "@ is not allowed"
            else:
                reason = "write it like \"ptpp <= 31 and domain == 'target'\""
            raise self.refusal(reason) from None

    def _translate(self, match: re.Match) -> str:
        text, quoted, sign = match.groups()
        if sign:
            return " and " if sign == "&" else " or "
        if text:
            return text
        if quoted not in self.columns:
            raise self.refusal(f"there is no column {quoted!r}")
        name = f"_quoted{len(self.placeholders)}"
        return self.placeholders.setdefault(quoted, name)

    def _list_parts(self, node: ast.AST) -> Iterable[ast.AST]:
        """List the parts of a node; refuse every node that is not listed here."""
        match node:
            case ast.BoolOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
                pass
            case ast.Compare(ops=ops) if not any(
                isinstance(op, ast.Is | ast.IsNot) for op in ops
            ):
                self._check_names(node)
            case ast.BinOp(op=op) if isinstance(op, ARITHMETIC):
                self._check_arithmetic(node)
            case ast.Constant(value=str() | int() | float() as value) if "`" not in str(
                value
            ):
                pass
            case ast.Name(id=name):
                self._check_name(name)
            case ast.Call(func=function, args=values, keywords=options):
                column = self._find_column(function)
                return *column, *values, *(option.value for option in options)
            case _:
                raise self.refusal(
                    f"{ast.unparse(node)!r} is not allowed: names of columns, literals, "
                    "comparisons, and, or, not, in, arithmetic"
                )
        return (
            part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)
        )

    def _check_names(self, node: ast.Compare) -> None:
        """Refuse a column of names beside a number: names are text, ``'001'``."""
        sides = [node.left, *node.comparators]
        named = [n.id for n in sides if isinstance(n, ast.Name) and n.id in NAMES]
        values = [n.value for n in sides if isinstance(n, ast.Constant)]
        numbers = [value for value in values if isinstance(value, int | float)]
        if named and numbers:
            raise self.refusal(
                f"column {named[0]!r} holds names, which are text: write "
                f"'{numbers[0]}', as it is spelled in the table"
            )

    def _check_name(self, name: str) -> None:
        """Refuse a name that is no column, with the likely name."""
        # ``index`` and ``row`` are names of the row numbers
        if name in (*self.columns, *self.placeholders.values(), "index", "row"):
            return
        close = difflib.get_close_matches(name, self.columns, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"text is quoted: '{name}'"
        mapping = mapping_hint(self.runs)
        if mapping and (f'"{name}=' in mapping or name == "domain"):
            # the name is the schema's, and a column with another name may be meant;
            # domains are made of columns of losses
            hint = mapping.removeprefix("; ")
        raise self.refusal(f"there is no column {name!r}; {hint}")

    def _check_arithmetic(self, node: ast.BinOp) -> None:
        """Refuse arithmetic that fills memory: text products, powers over 10."""
        left, right = (getattr(s, "value", None) for s in (node.left, node.right))
        is_text = isinstance(left, str) or isinstance(right, str)
        if is_text and not isinstance(node.op, ast.Add):
            raise self.refusal("text can only be compared and joined")
        is_power = isinstance(right, int | float) and abs(right) <= 10
        if isinstance(node.op, ast.Pow) and not (
            is_power and grammar.names_in(node.left)
        ):
            raise self.refusal("only columns may have powers, of at most 10")

    def _find_column(self, function: ast.expr) -> tuple[ast.expr, ...]:
        """Find the column of a method, ``column.isin(...)`` or
        ``column.str.contains(...)``; refuse functions that are not listed.
        """
        match function:
            case ast.Name(id=name) if name in FUNCTIONS:
                return ()
            case ast.Attribute(
                value=ast.Attribute(value=column, attr="str"), attr=name
            ) if name in STRING_METHODS:
                return (column,)
            case ast.Attribute(value=column, attr=name) if name in METHODS:
                return (column,)
        raise self.refusal(f"{ast.unparse(function)!r} is not allowed")
