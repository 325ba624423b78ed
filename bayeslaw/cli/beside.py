"""Read ``bayeslaw.toml`` beside a table, which holds values for every command that
reads the table.

The file has values only, read by `tomllib`; nothing in it is run. Options that the user
types have precedence.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bayeslaw._base.errors import LawError
from bayeslaw._base.files import atomic_write
from bayeslaw._base.terminal import say
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw.cli.parsing import MENU_COLUMNS, columns_of, name_values, read_toml

Options = TypeVar("Options")

FILE = "bayeslaw.toml"
OPTION = {  # option by field of a record
    "column": "--column",
    "reference": "--reference",
    "question": "--plan",
    "unit": "--unit",
    "offer": "--offer",
    "budget": "--budget",
    "goal": "--goal",
    "hardware": "--hardware",
    "mfu": "--mfu",
    "price": "--price",
    "fixed_cost": "--fixed-cost",
    "side_by_side": "--side-by-side",
    "tokens_per_second": "--tokens-per-second",
}
COSTS = ("hardware", "mfu", "price", "fixed_cost", "side_by_side")


class Beside(NamedTuple):
    """Content of a file, converted to options as the user would type them: NAME=VALUE
    for its sections, and texts; None for missing parts.
    """

    path: Path
    columns: list[str]
    reference: list[str]
    plan: list[str]
    budget: list[str]
    offer: list[str]
    unit: list[str]
    costs: dict[str, list[str]]


def with_file(options: Options, table: Path | None) -> Options:
    """Complete the options from the file beside the table, except typed ones. One line
    on stderr says which values were taken.

    Parameters
    ----------
    options
        The record of a command.
    table
        The table that the command reads; a tracker's store has no such file.

    Raises
    ------
    LawError
        The file cannot be read, or has an unknown key or a value of the wrong type.
    """
    path = _beside(table)
    if path is None:
        return options
    assert table is not None
    record: Any = options
    offered = _offered(read_file(path), record, table)
    settings = {
        field: _not_typed(field, values, getattr(record, field))
        for field, values in offered.items()
    }
    words = []
    for field, values in settings.items():
        for value in values:
            words += [OPTION[field], value]
    if words:
        say(f"from {path}: {shlex.join(words)}", to_stderr=True)
    changed = {
        field: values[0]
        if field in ("unit", "budget", *COSTS)
        else [*values, *(getattr(record, field) or [])]
        for field, values in settings.items()
        if values
    }
    return replace(record, **changed)


def _offered(said: Beside, options: Any, table: Path) -> dict[str, list[str]]:
    """Sort the file's values by the fields of the command's record."""
    names = {field.name for field in fields(options)}
    of_fields = {
        "column": columns_there(said.columns, table) if "column" in names else [],
        "reference": said.reference,
        "question": said.plan,
        "unit": said.unit,
        **said.costs,
    }
    if "candidates" in names:
        of_fields |= {"offer": said.offer, "budget": said.budget, "goal": said.plan}
    # only a plan reads costs
    if not getattr(options, "question", True) and not said.plan:
        of_fields = {n: v for n, v in of_fields.items() if n not in said.costs}
    # a plan needs both fits, so `update` without --source has no question
    if getattr(options, "source", True) is None:
        of_fields.pop("question")
    # a saved fit has its reference run already
    if not getattr(options, "next_batch", True):
        of_fields.pop("reference")
    return {field: values for field, values in of_fields.items() if field in names}


def _not_typed(field: str, values: list[str], typed: Any) -> list[str]:
    """Keep the file's values that were not typed, name by name, or all."""
    if not typed:
        return values
    # these options are merged name by name, the others as a whole
    if field not in ("column", "reference", "question"):
        return []
    names = {name for name, _ in name_values(typed)}
    return [pair for pair in values if pair.partition("=")[0] not in names]


def _beside(table: Path | None) -> Path | None:
    """Find the file beside a table; None for a tracker's store, or if there is no file."""
    from bayeslaw._tables.sources.source import is_tracker

    if table is None or is_tracker(table):
        return None
    path = table.parent / FILE
    return path if path.is_file() else None


def columns_there(columns: Sequence[str] | None, table: Path) -> list[str]:
    """Keep those mappings whose columns the table has. (The folder may also have a
    table with the schema's names, or a goal without losses.)
    """
    from bayeslaw._tables.columns import is_there
    from bayeslaw._tables.runs import load_table

    if not columns:
        return []
    names = list(map(str, load_table(table).columns))
    mapped = {pair.partition("=")[0] for pair in columns}
    there = []
    for pair in columns:
        ours, _, theirs = pair.partition("=")
        if is_there(theirs, ours, names, mapped):
            there.append(pair)
    return there


# -- the file --------------------------------------------------------------------------


def read_file(path: Path) -> Beside:
    """Read a file, and check it completely.

    Raises
    ------
    LawError
        As `with_file` does.
    """
    content = read_toml(path)
    for name in content:
        if name not in ("columns", "reference", "plan", "anchors", "costs", "unit"):
            raise LawError(
                f"{path}: unknown key {name!r}; there are: "
                "[columns], [reference], [plan], [anchors], [costs] and unit"
            )
    unit = content.get("unit")
    if unit is not None and not isinstance(unit, str):
        raise LawError(f"{path}: unit is text, such as 'nats per byte'; got {unit!r}")
    anchors = _section(path, content, "anchors")
    _refuse_unknown(path, "anchors", anchors, ("budget", "offer"))
    offer = _section(path, anchors, "offer")
    _refuse_unknown(path, "anchors.offer", offer, MENU_COLUMNS)
    plan = _section(path, content, "plan")
    if plan:
        _refuse_unknown(path, "plan", plan, _plan_names())
    budget = anchors.get("budget")
    return Beside(
        path,
        _pairs(path, "columns", _section(path, content, "columns")),
        _pairs(path, "reference", _section(path, content, "reference")),
        _pairs(path, "plan", plan),
        [] if budget is None else [_text(path, "anchors.budget", budget)],
        [f"{n}={_levels(path, f'anchors.offer.{n}', v)}" for n, v in offer.items()],
        [] if unit is None else [unit],
        _costs(path, _section(path, content, "costs")),
    )


def _costs(path: Path, said: Mapping[str, Any]) -> dict[str, list[str]]:
    """Read the costs of training, by option."""
    _refuse_unknown(path, "costs", said, (*COSTS, "tokens_per_second"))
    costs = {n: [_text(path, f"costs.{n}", said[n])] for n in COSTS if n in said}
    rates = _section(path, said, "tokens_per_second")
    if rates:
        costs["tokens_per_second"] = _pairs(path, "costs.tokens_per_second", rates)
    return costs


def _plan_names() -> tuple[str, ...]:
    """List the names that ``--plan`` takes: the planner's arguments, and columns that
    laws read.
    """
    from bayeslaw._plans.arguments.plan_arguments import NAMES
    from bayeslaw._tables.runs import NUMERIC

    no_number = ("covariates", "point", "forgetting_unit", "costs")
    names = {*NAMES, *LOSSES_BEFORE, *NUMERIC} - {*no_number, "D", "replay", "loss"}
    return tuple(sorted(names))


def _section(path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Read a section of the file, which must hold names and values."""
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise LawError(
            f"{path}: {name} is a value; write it as names and values under [{name}]"
        )
    return section


def _refuse_unknown(
    path: Path, section: str, content: Mapping[str, Any], allowed: Sequence[str]
) -> None:
    """Refuse keys that a section does not have."""
    for name in content:
        if name not in allowed:
            raise LawError(
                f"{path}: unknown key {name!r} in [{section}]; there are: "
                f"{', '.join(allowed)}"
            )


def _pairs(path: Path, section: str, content: Mapping[str, Any]) -> list[str]:
    return [f"{n}={_text(path, f'{section}.{n}', v)}" for n, v in content.items()]


def _text(path: Path, key: str, value: Any) -> str:
    """Format a value as it would be typed."""
    is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not is_value or value == "":
        raise LawError(
            f"{path}: {key} is a number or text, as on the command line (8.1B, '2%', "
            f"'tokens_B*1e9'); got {value!r}"
        )
    return str(value)


def _levels(path: Path, key: str, value: Any) -> str:
    """Format levels on offer: one, or a list."""
    several = value if isinstance(value, list) else [value]
    return ",".join(_text(path, key, level) for level in several)


def write_columns(table: Path, columns: Sequence[str]) -> Path:
    """Write a mapping to the file beside its table.

    Raises
    ------
    LawError
        There is no mapping, no folder for it, or a file with other content.
    """
    from bayeslaw._tables.sources.source import is_tracker

    if is_tracker(table):
        raise LawError(f"--remember: {table} is no file to write {FILE} beside")
    if not columns:
        raise LawError("--remember keeps a mapping: give --column N=yours ...")
    columns_of(columns)  # raises the usual errors for a wrong mapping
    path = table.parent / FILE
    lines = [f"{_key(n)} = {json.dumps(v)}" for n, v in name_values(columns)]
    if path.is_file():
        if set(read_file(path).columns) == {
            f"{n}={v}" for n, v in name_values(columns)
        }:
            return path
        raise LawError(
            f"{path} is there already; write into its [columns]: {'; '.join(lines)}"
        )
    with atomic_write(path) as part:
        part.write_text("\n".join(["[columns]", *lines, ""]), encoding="utf-8")
    return path


def _key(name: str) -> str:
    # a TOML key of these characters needs no quotes
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)
