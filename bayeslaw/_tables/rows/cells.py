"""Convert cells that are no single number or text, and drop rows that are no runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import parse_number
from bayeslaw._tables.rows.naming import check_repeated, is_name

if TYPE_CHECKING:
    from jaxtyping import Bool


def plain_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Make a column for each field of a record (``config.N``), convert lists to text,
    and numbers of another type (objects, categories, decimals) to floats.
    """
    columns: dict[Any, pd.Series] = {}
    if not table.columns.is_unique or not any(map(_holds_anything, table.dtypes)):
        return table
    for name in table:
        cells = table[name]
        if not _holds_anything(cells.dtype):
            columns[name] = cells
            continue
        cells = cells.astype(object)
        if all(map(_is_real, cells.dropna())):
            columns[name] = cells.map(float, na_action="ignore").astype(float)
            continue
        # a cell of a Parquet map is a list of pairs; not by `map`, which in old pandas
        # fails at integers too long for a float
        records = [dict(cell) if _is_map(cell) else cell for cell in cells]
        is_record = np.array([isinstance(record, Mapping) for record in records])
        if not (is_record.any() and (is_record | cells.isna()).all()):
            columns[name] = cells.map(_flatten)
            continue
        fields: dict[str, list[Any]] = {}
        for row, record in enumerate(records):
            inside = leaves(record, f"{name}.") if is_record[row] else ()
            for field, cell in inside:
                fields.setdefault(field, [None] * len(records))[row] = _flatten(cell)
        check_repeated([*{*columns, *table}, *fields])
        for field, values in fields.items():
            columns[field] = pd.Series(values, cells.index).infer_objects()
    return pd.DataFrame(columns, index=table.index)


def _holds_anything(kind: Any) -> bool:
    """Tell whether a column of this type may hold records, lists, or mixed cells."""
    if isinstance(kind, pd.CategoricalDtype):
        return is_of_numbers(kind.categories.dtype)
    if isinstance(kind, pd.ArrowDtype):
        return any(word in str(kind) for word in ("struct", "list", "map", "decimal"))
    return pd.api.types.is_object_dtype(kind)


def is_of_numbers(kind: Any) -> bool:
    types = pd.api.types
    is_other = types.is_bool_dtype(kind) or types.is_complex_dtype(kind)
    return types.is_numeric_dtype(kind) and not is_other


def read_numbers(cells: pd.Series, **options: Any) -> tuple[pd.Series, dict[Any, str]]:
    """Convert cells to floats, empty ones and others to NaN; and tell why others."""
    reasons: dict[Any, str] = {}
    if is_of_numbers(cells.dtype):
        return pd.Series(cells.to_numpy(float, na_value=np.nan), cells.index), reasons
    values = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        if pd.isna(cell) or (isinstance(cell, str) and not cell.strip()):
            continue
        try:
            values[i] = parse_number(cell, **options)
        except RunTableError as error:
            reasons[cells.index[i]] = str(error)
    return pd.Series(values, cells.index), reasons


def _is_real(cell: Any) -> bool:
    """Tell whether a cell is a real number that a float can hold."""
    if isinstance(cell, int):
        return not isinstance(cell, bool) and abs(cell) < 2**53
    return isinstance(cell, float | np.floating | np.integer | Decimal)


def _is_map(cell: Any) -> bool:
    pairs = cell if isinstance(cell, list) else []
    return bool(pairs) and all(isinstance(p, tuple) and len(p) == 2 for p in pairs)


def _flatten(cell: Any) -> Any:
    """Convert a cell to text if it is not a single value, or no float can hold it."""
    if isinstance(cell, list | tuple | set | dict | np.ndarray):
        return str(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    if isinstance(cell, int) and abs(cell) >= 2**1023:
        return str(cell)
    return cell


def leaves(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a record's fields, those of nested records under dotted names."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


# the words of a row of means or totals, and those that stand beside them
SUMMARY = (
    "mean|average|avg|median|totals?|sum|std|stdev|stddev|min|max|count|overall|"
    "summe|gesamt|mittel|mittelwert|durchschnitt|insgesamt|"
    "somme|moyenne|suma|media|promedio|totale"
)
BESIDE = "of|all|the|above|over|runs|rows|seeds|grand|dev|général|general"
IS_SUMMARY = re.compile(
    rf"(?=.*\b(?:{SUMMARY})\b)\W*(?:(?:{SUMMARY}|{BESIDE})\b\W*)+",
    re.IGNORECASE | re.DOTALL,
)


def without_summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave out means or totals at the end; warn of these and of others."""
    # rows at the end that are called a mean or total, if no row above is
    rows = int(_is_computed(runs))
    for column in runs.select_dtypes(exclude="number"):
        if _called_summary(runs[column].iloc[-1:]).any():
            called = _called_summary(runs[column])
            count = int(called.sum())
            if count < len(runs) and called[-count:].all():
                rows = count
                break
    if rows:
        left_out = ", ".join(map(str, runs.index[-rows:]))
        warn(f"row {left_out}: a mean or total of the rows above, not a run; left out")
        return runs.iloc[:-rows]
    for column in filter(is_name, runs):
        called = _called_summary(runs[column])
        if 0 < called.sum() < len(runs) / 2:
            name = runs[column][called].iloc[0]
            between = ", ".join(map(str, runs.index[called][:3]))
            warn(
                f"row {between}: column {column!r} says {name!r}, a mean or total, and it "
                f"is counted as a run: leave it out (--where \"{column} != '{name}'\"), or "
                "call the run something else"
            )
            break
    return runs


def _called_summary(names: pd.Series) -> Bool[np.ndarray, " run"]:
    return np.array([bool(IS_SUMMARY.fullmatch(str(name))) for name in names])


def _is_computed(runs: pd.DataFrame) -> bool:
    """Tell whether the last row is the mean or sum of those above, in two columns."""
    numbers = runs[[c for c in runs if is_of_numbers(runs[c].dtype)]].astype(float)
    above, last = numbers.iloc[:-1], numbers.iloc[-1].dropna()
    last = last[above[last.index].nunique() > 1]
    if len(above) < 3 or len(last) < 2:
        return False
    # exports round
    alike = [
        np.isclose(last, summary[last.index], rtol=1e-4, atol=0)
        for summary in (above.mean(), above.sum())
    ]
    return bool(np.any(alike, axis=0).all())
