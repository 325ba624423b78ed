"""Define what the records of answers have in common: their JSON, and how consoles and
notebooks show them (HTML without scripts or styles).
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:  # the command line's --help does not wait for pandas
    import pandas as pd


class InJson:
    """A record in JSON. ``KEYS``: its keys there (`_base.schema`), which are its fields,
    properties and methods of these names; by default all fields.
    """

    KEYS: ClassVar[Mapping[str, Any]] = {"*": ...}

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        record: Any = self
        names = " ".join(self.KEYS).split()
        if "*" in names:
            names = [*(field.name for field in fields(record)), *names]
        told = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return {n: as_json(x() if callable(x) else x) for n, x in told.items()}


class Shown(InJson):
    """An answer that says itself in a ``sentence`` of one or several lines, and may have
    a ``table``. A dataclass of it states ``repr=False``.
    """

    def sentence(self) -> str:
        raise NotImplementedError

    def __repr__(self) -> str:
        first, *_ = self.sentence().splitlines() or [""]
        return f"{type(self).__name__}({first})"

    def _repr_html_(self) -> str:
        """Show the answer in words, and its table, in notebooks."""
        table: Any = getattr(self, "table", None)
        if callable(table):
            table = table()
        shown = paragraphs(self.sentence())
        return shown if table is None else shown + table_html(table)


def paragraphs(text: str) -> str:
    """Write an escaped paragraph for each line."""
    lines = [f"<p>{html.escape(line)}</p>" for line in text.splitlines() if line]
    return "".join(lines)


def table_html(table: pd.DataFrame) -> str:
    """Write a table with escaped cells and headings."""
    return table.to_html(escape=True, border=0, float_format="{:.4g}".format)


def as_json(value: Any) -> Any:
    """Convert an answer, or a part of one, to what JSON can hold: a record to its keys,
    NaN and infinity to None, a path to its text.
    """
    if hasattr(value, "itertuples"):  # a DataFrame
        value = value.to_dict(orient="records")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if hasattr(value, "tolist"):  # arrays, and their numbers
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
