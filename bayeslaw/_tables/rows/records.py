"""Read JSON files of records: one record a line, or an array of records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError


class _Repeated(ValueError):
    """A record has two values under one name."""


def read_records(path: Path, text: str) -> pd.DataFrame:
    """Read the table of a file of JSON lines, of one JSON array of records, or of one
    record of columns.

    Raises
    ------
    RunTableError
        The file is not JSON, has no records, or has a record with two values under one
        name.
    """
    if _is_one_object(text):
        records, where = [_parsed(path, text, "")], ["the file"]
        _refuse_evaluation(path, records[0])
    elif text.lstrip().startswith("["):
        records = _parsed(path, text, "")
        where = [f"record {i}" for i in range(1, len(records) + 1)]
    else:
        lines = [(i, line) for i, line in enumerate(text.splitlines(), 1)]
        where = [f"line {i}" for i, line in lines if line.strip()]
        records = [_parsed(path, t, f"line {i}: ") for i, t in lines if t.strip()]
    for place, record in zip(where, records, strict=True):
        if not isinstance(record, dict):
            raise RunTableError(
                f"{path}: {place} is no record of names and values; write each run as "
                '{"N": 1e9, "D": 2e10, "loss": 2.5}'
            )
    table = _whole_table(records[0]) if len(records) == 1 else None
    return pd.DataFrame(records) if table is None else table


def _is_one_object(text: str) -> bool:
    """Tell whether a file is one JSON object, on one line or many."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_evaluation(path: Path, record: dict[str, Any]) -> None:
    """Refuse the results of one model's evaluation: metrics by task, as lm-eval writes
    them.
    """
    results = record.get("results")
    if not isinstance(results, dict) or not results:
        return
    if not all(isinstance(metrics, dict) for metrics in results.values()):
        return
    tasks = ", ".join(map(str, [*results][:3]))
    raise RunTableError(
        f"{path}: it holds one model's evaluation, metrics by task ({tasks}), as lm-eval "
        "writes them, and no table of runs; write a row for each model, with its N, D "
        'and loss, as CSV or JSON lines: {"N": 1e9, "D": 2e10, "loss": 2.5}'
    )


def _whole_table(record: dict[str, Any]) -> pd.DataFrame | None:
    """Read a record that is a whole table: lists, or values by row number, as
    `pandas.DataFrame.to_json` writes them; None for a record of one run.
    """
    parts = [*record.values()]
    if parts and all(isinstance(part, list) for part in parts):
        return pd.DataFrame(record)
    if not parts or not all(isinstance(part, dict) for part in parts):
        return None
    if all(map(str.isdigit, record)):
        return pd.DataFrame(parts)
    if all(map(str.isdigit, (row for part in parts for row in part))):
        return pd.DataFrame(record).reset_index(drop=True)
    return None


def _parsed(path: Path, text: str, where: str) -> Any:
    """Parse JSON text; the error names the file and the reason."""
    try:
        return json.loads(text, object_pairs_hook=_record)
    except _Repeated as error:
        reason = str(error)
    except RecursionError:
        reason = "records within records, too deep to be read"
    except ValueError as error:
        reason = f"not JSON ({error})"
    raise RunTableError(
        f"{path}: {where}{reason}; give each record of names and values on one line"
    )


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise _Repeated(f"{name!r} is there {times} times; keep one value")
    return dict(pairs)
