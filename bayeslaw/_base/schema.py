"""Make the JSON schema of an answer from its record: from the annotations of its fields,
the keys that it states of dictionaries, and what its docstring says of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from inspect import cleandoc
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN: dict[Any, dict[str, Any]] = {
    Any: {},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # null: infinite, not known, or no number
    str: {"type": "string"},
    Path: {"type": "string"},
}
INTERVAL = "median low high"
LABEL = int | str  # of a row of a table
CELLS = {"**": str | float | bool}  # a row of a table, whose columns are the user's


class _Array:
    """What ``Float[np.ndarray, " run"]`` is in JSON; jaxtyping is there for checks only."""

    def __class_getitem__(cls, _: Any) -> Any:
        return list[float]


def schema_of(kind: Any) -> dict[str, Any]:
    """Make the schema of a type: of plain values, lists, dictionaries by name, and
    records.

    A dictionary in place of a type states keys. Names separated by spaces share a type,
    and without a dictionary they are of numbers; a name that ends in ``?`` may be
    missing or null; ``**`` is the type of any other key, and ``*`` stands for all keys
    of a record, or of several (``A | B``). A type with its description is a
    pair. A list states the type of its items. A record's ``KEYS`` states its JSON where
    that is not its fields; there ``...`` is a field's own type, and all fields of ``*``.

    Raises
    ------
    TypeError
        JSON has no such type.

    Examples
    --------
    >>> schema_of({"low high": float, "unit?": str})["required"]
    ['low', 'high']
    """
    if isinstance(kind, Mapping | str):
        return _object({kind: float} if isinstance(kind, str) else kind)
    if isinstance(kind, list):
        return {"type": "array", "items": schema_of(kind[0])}
    if kind in PLAIN:
        return dict(PLAIN[kind])
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _record(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, UnionType):
        made = any_of(*(each for each in inner if each is not type(None)))
        return _or_null(made) if type(None) in inner else made
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": schema_of(inner[0])}
    raise TypeError(f"no JSON schema for {kind}")


def any_of(*kinds: Any) -> dict[str, Any]:
    """Make the schema of a value of one of several types."""
    schemas = [schema_of(kind) for kind in kinds]
    return {"anyOf": schemas} if len(schemas) > 1 else schemas[0]


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return schema | {"type": [kind, "null"]}
    is_open = not schema or isinstance(kind, list)  # has null already
    return schema if is_open else {"anyOf": [schema, {"type": "null"}]}


def _record(kind: Any) -> dict[str, Any]:
    """Make the schema of a record's JSON."""
    hints = get_type_hints(kind, localns={"Float": _Array})
    names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
    keys = getattr(kind, "KEYS", {"*": ...})
    own = {name: hints[name] for name in names}
    about, described = _read_docstring(kind.__doc__ or "")
    return {"description": about} | _object(keys, own, described)


def _object(
    keys: Mapping[str, Any],
    own: Mapping[str, Any] | None = None,
    described: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Make the schema of an object with these keys. ``own``, ``described``: types and
    descriptions of the record's fields.
    """
    own, described = own or {}, described or {}
    named = {word.removesuffix("?") for names in keys for word in names.split()}
    as_fields = [name for name in own if name not in named]
    properties: dict[str, Any] = {}
    required: list[str] = []
    others: Any = False
    for names, stated in keys.items():
        kind, *said = stated if isinstance(stated, tuple) else (stated,)
        if names == "**":
            others = schema_of(kind)
            continue
        if names == "*" and kind is not ...:
            for record in get_args(kind) or (kind,):
                base = schema_of(record)
                properties |= base["properties"]
                required += base["required"]
            continue
        for word in as_fields if names == "*" else names.split():
            name = word.removesuffix("?")
            made = schema_of(own[name] if kind is ... else kind)
            if word != name or type(None) in get_args(own.get(name)):
                made = _or_null(made)
            about = said[0] if said else described.get(name)
            properties[name] = made | ({"description": about} if about else {})
            required += [name] if word == name else []
    schema = {"type": "object", "additionalProperties": others}
    if not properties:
        return schema
    return schema | {"properties": properties, "required": [*dict.fromkeys(required)]}


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Read a record's first paragraph, and what it says of each parameter."""
    paragraph, _, rest = cleandoc(docstring).partition("\n\n")
    section = rest.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    described = {}
    for entry in re.split(r"\n(?=\w)", section):
        names, _, text = entry.partition("\n")
        described |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return " ".join(paragraph.split()), described
