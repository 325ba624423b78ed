"""Select rows of a table by a query of column names, literals and comparisons.

A pandas query can run arbitrary code (``@pd.io.common.os...``). The text is therefore
parsed by the grammar, and pandas gets it only if every node of the syntax tree is allowed.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

import pandas as pd

from bayeslaw._base import grammar
from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.proposals import mapping_hint
from bayeslaw._tables.rows.naming import NAMES

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
MOST_CHARACTERS = 1000


def select(
    runs: pd.DataFrame, where: str | None, mapped: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Select the rows at which a query holds; all rows if ``where`` is None.
    ``mapped``: columns under the user's own names, with a row for each label of
    ``runs``.
    """
    if where is None:
        return runs
    table = runs
    if mapped is not None:
        own = [name for name in map(str, mapped) if name in where and name not in runs]
        table = runs.assign(**{name: mapped[name].reindex(runs.index) for name in own})
    query = _Query(where, table, {})
    checked, plain = query.parse(), table.rename(columns=query.placeholders)
    try:
        answers = plain.eval(checked, local_dict={}, global_dict={})
    except Exception as error:  # pandas raises errors of many types
        raise query.refusal(str(error).splitlines()[0] if str(error) else "") from None
    if not (isinstance(answers, pd.Series) and len(answers) == len(runs)):
        raise query.refusal("it has one value for all rows; compare a column")
    known = answers.dropna().infer_objects()
    if answers.dtype.kind == "f" or not (
        known.empty or pd.api.types.is_bool_dtype(known)
    ):
        raise query.refusal("it is a value, not a condition; compare it with another")
    # rows where the comparison is missing (NaN) are not selected
    selected = answers.eq(True).fillna(False).to_numpy(bool)
    if not selected.any():
        raise RunTableError(f"where {where!r} selects none of the {len(runs)} rows")
    return runs[selected]


class _Query(NamedTuple):
    """A query, its table, and names for its columns in backticks."""

    text: str
    runs: pd.DataFrame
    placeholders: dict[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(map(str, self.runs.columns))

    def refusal(self, reason: str) -> RunTableError:
        return RunTableError(
            f"where {self.text!r} is not a query of this table ({reason}); "
            f"columns: {', '.join(self.columns)}"
        )

    def parse(self) -> str:
        if len(self.text) > MOST_CHARACTERS:
            raise self.refusal(f"it has more than {MOST_CHARACTERS} characters")

        # a string, a name in backticks, or a sign that pandas reads as a word
        token = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`([^`]*)`|([&|])"""
        plain = re.sub(token, self._translate, self.text.strip())
        try:
            return ast.unparse(grammar.parse(plain, self._list_parts, most_deep=100))
        except grammar.NotUnderstoodError as error:
            reason = "write it like \"ptpp <= 31 and domain == 'target'\""
            if error.too_deep:
                reason = "it is nested too deep to be read"
            elif error.part:
                reason = (
                    f"{error.part!r} is not allowed: names of columns, literals, "
                    "comparisons, and, or, not, in, arithmetic"
                )
            elif "@" in plain:
                reason = "@ is not allowed"
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

    def _list_parts(self, node: ast.AST) -> Iterable[ast.AST] | None:
        match node:
            case ast.BoolOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
                pass
            case ast.Compare(left=left, ops=ops, comparators=right) if not any(
                isinstance(op, ast.Is | ast.IsNot) for op in ops
            ):
                # a column of names is not beside a number: names are text, '001'
                ids = {getattr(side, "id", "") for side in (left, *right)}
                values = [getattr(side, "value", None) for side in (left, *right)]
                numbers = [value for value in values if isinstance(value, int | float)]
                for name in (name for name in NAMES if name in ids and numbers):
                    raise self.refusal(
                        f"column {name!r} holds names, which are text: write "
                        f"'{numbers[0]}', as it is spelled in the table"
                    )
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ARITHMETIC):
                # what fills memory: products of text, and powers over 10
                low, high = (getattr(side, "value", None) for side in (left, right))
                has_text = isinstance(low, str) or isinstance(high, str)
                if has_text and not isinstance(op, ast.Add):
                    raise self.refusal("text can only be compared and joined")
                is_power = isinstance(high, int | float) and abs(high) <= 10
                if isinstance(op, ast.Pow) and not (
                    is_power and grammar.names_in(left)
                ):
                    raise self.refusal("only columns may have powers, of at most 10")
            case ast.Constant(value=str() | int() | float() as value) if "`" not in str(
                value
            ):
                pass
            case ast.Name(id=name):
                self._check_name(name)
            case ast.Call(func=function, args=values, keywords=options):
                inside = [*values, *(option.value for option in options)]
                match function:
                    case ast.Name(id=name) if name in FUNCTIONS:
                        return inside
                    case ast.Attribute(
                        value=ast.Attribute(value=column, attr="str"), attr=name
                    ) if name in STRING_METHODS:
                        return [column, *inside]
                    case ast.Attribute(value=column, attr=name) if name in METHODS:
                        return [column, *inside]
                raise self.refusal(f"{ast.unparse(function)!r} is not allowed")
            case _:
                return None
        return [
            part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)
        ]

    def _check_name(self, name: str) -> None:
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
