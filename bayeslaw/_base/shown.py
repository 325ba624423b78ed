"""Define what the records of answers have in common: their JSON, and how consoles and
notebooks show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.html import paragraphs, table_html


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
        table = getattr(self, "table", None)
        if callable(table):
            table = table()
        shown = table_html(table) if isinstance(table, pd.DataFrame) else ""
        return paragraphs(self.sentence()) + shown


def as_json(value: Any) -> Any:
    """Convert an answer, or a part of one, to JSON types."""
    if isinstance(value, pd.DataFrame):
        return value.to_dict(orient="records")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {
            field.name: as_json(getattr(value, field.name)) for field in fields(value)
        }
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value
