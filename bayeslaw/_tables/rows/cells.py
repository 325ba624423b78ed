"""Convert cells that are not a single number or text, and leave out rows that are not
runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, warn


def plain_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Make a column for each field of a record (``config.N``), and convert lists to
    text.

    Raises
    ------
    RunTableError
        A field of a record has the name of a column.
    """
    columns: dict[Any, pd.Series] = {}
    if not table.columns.is_unique or not any(map(_is_nested, table.dtypes)):
        return table
    for name in table:
        cells = table[name]
        if not _is_nested(cells.dtype):
            columns[name] = cells
            continue
        records = cells.map(_record)
        is_record = records.map(lambda cell: isinstance(cell, Mapping))
        if is_record.any() and (is_record | cells.isna()).all():
            for field, values in _fields(str(name), records).items():
                if field in columns or field in table:
                    raise RunTableError(
                        f"2 columns are called {field!r}; rename or drop all but one"
                    )
                columns[field] = values
        else:
            columns[name] = cells.map(_flat)
    return pd.DataFrame(columns, index=table.index)


def _is_nested(kind: Any) -> bool:
    """Tell whether a column of this type may hold records and lists."""
    return pd.api.types.is_object_dtype(kind)


def _record(cell: Any) -> Any:
    """Convert a cell of a Parquet map, a list of pairs, to a record."""
    is_map = isinstance(cell, list) and len(cell) > 0
    if is_map and all(isinstance(pair, tuple) and len(pair) == 2 for pair in cell):
        return dict(cell)
    return cell


def _flat(cell: Any) -> Any:
    """Convert a cell to text if it is not a single value."""
    if isinstance(cell, list | tuple | set | dict | np.ndarray):
        return str(cell.tolist() if isinstance(cell, np.ndarray) else cell)
    return cell


def _fields(name: str, records: pd.Series) -> dict[str, pd.Series]:
    """Make a column for each field of a column of records."""
    rows = [
        dict(leaves(record, f"{name}.")) if isinstance(record, Mapping) else {}
        for record in records
    ]
    fields = dict.fromkeys(field for row in rows for field in row)
    columns = {}
    for field in fields:
        values = [row.get(field) for row in rows]
        columns[field] = pd.Series(values, records.index).infer_objects()
    return columns


def leaves(record: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a record that are not records; fields of nested records get
    dotted names.
    """
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", _flat(value)


def without_summary(runs: pd.DataFrame) -> pd.DataFrame:
    """Leave out rows of means or totals at the end, with a warning."""
    rows = _called_summary(runs) or int(_is_computed(runs))
    if not rows:
        return runs
    left_out = ", ".join(map(str, runs.index[-rows:]))
    warn(f"row {left_out}: a mean or total of the rows above, not a run; left out")
    return runs.iloc[:-rows]


def _called_summary(runs: pd.DataFrame) -> int:
    """Count the rows at the end that are called a mean or total, if no row above is."""
    names = {
        *("mean", "average", "avg", "median", "total", "totals", "grand total", "sum"),
        *("std", "stdev", "std dev", "stddev", "min", "max", "count", "overall"),
        *("summe", "gesamt", "mittel", "mittelwert", "durchschnitt", "insgesamt"),
        *("somme", "moyenne", "total général", "suma", "media", "promedio", "totale"),
    }
    for column in _texts(runs):
        texts = runs[column].astype(str).str.strip(" :.*#=-").str.lower()
        called = texts.isin(names).to_numpy()
        count = int(called.sum())
        if 0 < count < len(runs) and called[-count:].all():
            return count
    return 0


def _is_computed(runs: pd.DataFrame) -> bool:
    """Tell whether the last row holds the mean or the sum of each column
    above it, where it holds a number. Two such numbers are no chance.
    """
    numbers = runs.select_dtypes("number")
    varying = [c for c in numbers if numbers[c].iloc[:-1].nunique() > 1]
    above, last = numbers[varying].iloc[:-1], numbers[varying].iloc[-1].dropna()
    if len(above) < 3 or len(last) < 2:
        return False
    values = last.to_numpy(float)
    summaries = [s[last.index].to_numpy(float) for s in (above.mean(), above.sum())]
    # exports round
    alike = [np.isclose(values, summary, rtol=1e-4, atol=0) for summary in summaries]
    return bool(np.logical_or(*alike).all())


def _texts(runs: pd.DataFrame) -> list[Any]:
    return [*runs.select_dtypes(exclude="number")]
