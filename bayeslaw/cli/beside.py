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
from typing import Any, TypeVar

from bayeslaw._base.errors import LawError
from bayeslaw._base.files import atomic_write
from bayeslaw._base.terminal import say
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw.cli.parsing import (
    MENU_COLUMNS,
    columns_of,
    name_values,
    read_toml,
    split_pairs,
)

Options = TypeVar("Options")

FILE = "bayeslaw.toml"
COSTS = ("hardware", "mfu", "price", "fixed_cost", "side_by_side")
MERGED = ("column", "reference", "question")  # with those that are typed, by name


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
    from bayeslaw._tables.sources.files import is_tracker

    if table is None or is_tracker(table):
        return options
    path = table.parent / FILE
    if not path.is_file():
        return options
    record: Any = options
    typed = {field.name: getattr(record, field.name) for field in fields(record)}
    words, changed = [], {}
    for field, texts in _values_for(typed, read_file(path), table).items():
        given = typed[field] or []
        if given and field not in MERGED:
            continue
        names = {name for name, _ in name_values(split_pairs(given))}
        taken = [text for text in texts if text.partition("=")[0] not in names]
        if taken:
            is_one = field in ("unit", "budget", *COSTS)
            changed[field] = taken[0] if is_one else [*taken, *given]
        option = "plan" if field == "question" else field.replace("_", "-")
        for text in taken:
            words += [f"--{option}", text]
    if words:
        say(f"from {path}: {shlex.join(words)}", to_stderr=True)
    return replace(record, **changed)


def _values_for(
    typed: Mapping[str, Any], values: dict[str, list[str]], table: Path
) -> dict[str, list[str]]:
    """Choose the file's values that a command has options for, by their fields."""
    values = dict(values)
    if "column" in typed:
        values["column"] = columns_there(values["column"], table)
    if "candidates" in typed:
        values["goal"] = values["question"]
    else:  # the file's budget is that of `anchors`
        values.pop("budget")
    left_out: list[str] = []
    # only a plan reads costs
    if not typed.get("question", True) and not values["question"]:
        left_out += [*COSTS, "tokens_per_second"]
    # a plan needs both fits, so `update` without --source has no question
    if typed.get("source", True) is None:
        left_out += ["question"]
    # a saved fit has its reference run already
    if not typed.get("next_batch", True):
        left_out += ["reference"]
    return {n: v for n, v in values.items() if n in typed and n not in left_out}


def columns_there(columns: Sequence[str] | None, table: Path) -> list[str]:
    """Keep those mappings whose columns the table has. (The folder may also have a
    table with the schema's names, or a goal without losses.)
    """
    from bayeslaw._tables.expression import columns_read, shared_number
    from bayeslaw._tables.runs import load_table

    if not columns:
        return []
    names = set(map(str, load_table(table).columns))
    mapped = {pair.partition("=")[0] for pair in columns}
    there = []
    for pair in columns:
        ours, _, theirs = pair.partition("=")
        inputs = set(columns_read(theirs, names | mapped))
        # a number for all rows, or a product of columns that are computed, does not
        # replace a column: the table may have been read and written before
        is_new = ours not in names or not inputs <= mapped | {ours}
        if theirs in names or (
            is_new and (inputs or shared_number(theirs) is not None)
        ):
            there.append(pair)
    return there


# -- the file --------------------------------------------------------------------------


def read_file(path: Path) -> dict[str, list[str]]:
    """Read a file, and check it completely. Its values are texts as the user would type
    them, NAME=VALUE in sections, by the field of a command's record.

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
    unit = content.get("unit", "")
    if not isinstance(unit, str):
        raise LawError(f"{path}: unit is text, such as 'nats per byte'; got {unit!r}")

    def section(
        name: str, within: Mapping[str, Any] = content, allowed: Sequence[str] = ()
    ) -> dict[str, Any]:
        inside = within.get(name, {})
        if not isinstance(inside, dict):
            raise LawError(
                f"{path}: {name} is a value; write it as names and values under [{name}]"
            )
        label = "anchors.offer" if name == "offer" else name
        for key in inside:
            if allowed and key not in allowed:
                raise LawError(
                    f"{path}: unknown key {key!r} in [{label}]; there are: "
                    f"{', '.join(allowed)}"
                )
        return inside

    def text(key: str, value: Any) -> str:
        is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
        if not is_value or value == "":
            raise LawError(
                f"{path}: {key} is a number or text, as on the command line (8.1B, "
                f"'2%', 'tokens_B*1e9'); got {value!r}"
            )
        return str(value)

    def pairs(name: str, inside: Mapping[str, Any]) -> list[str]:
        return [f"{key}={text(f'{name}.{key}', v)}" for key, v in inside.items()]

    anchors = section("anchors", allowed=("budget", "offer"))
    offer = section("offer", anchors, MENU_COLUMNS)
    costs = section("costs", allowed=(*COSTS, "tokens_per_second"))
    rates = section("tokens_per_second", costs)
    plan = section("plan", allowed=_plan_names() if content.get("plan") else ())
    # a column has one level on offer, or a list of them
    levels = {n: v if isinstance(v, list) else [v] for n, v in offer.items()}
    amounts = {name: costs[name] for name in COSTS if name in costs}
    return {
        "column": pairs("columns", section("columns")),
        "reference": pairs("reference", section("reference")),
        "question": pairs("plan", plan),
        "unit": [unit] if unit else [],
        **{name: [text(f"costs.{name}", v)] for name, v in amounts.items()},
        "tokens_per_second": pairs("costs.tokens_per_second", rates),
        "offer": [
            f"{n}={','.join(text(f'anchors.offer.{n}', v) for v in several)}"
            for n, several in levels.items()
        ],
        "budget": [
            text("anchors.budget", v) for k, v in anchors.items() if k == "budget"
        ],
    }


def _plan_names() -> tuple[str, ...]:
    """List what ``--plan`` takes: the planner's arguments, and columns of laws."""
    from bayeslaw._plans.arguments import NAMES
    from bayeslaw._tables.runs import NUMERIC

    no_number = ("covariates", "point", "forgetting_unit", "costs")
    names = {*NAMES, *LOSSES_BEFORE, *NUMERIC} - {*no_number, "D", "replay", "loss"}
    return tuple(sorted(names))


def write_columns(table: Path, columns: Sequence[str]) -> Path:
    """Write a mapping to the file beside its table.

    Raises
    ------
    LawError
        There is no mapping, no folder for it, or a file with other content.
    """
    from bayeslaw._tables.sources.files import is_tracker

    if is_tracker(table):
        raise LawError(f"--remember: {table} is no file to write {FILE} beside")
    if not columns:
        raise LawError("--remember keeps a mapping: give --column N=yours ...")
    columns_of(columns)  # raises the usual errors for a wrong mapping
    path = table.parent / FILE
    # a TOML key of these characters needs no quotes
    named = [
        (n if re.fullmatch(r"[\w-]+", n) else json.dumps(n), v)
        for n, v in name_values(columns)
    ]
    lines = [f"{key} = {json.dumps(value)}" for key, value in named]
    if path.is_file():
        if set(read_file(path)["column"]) == {
            f"{n}={v}" for n, v in name_values(columns)
        }:
            return path
        raise LawError(
            f"{path} is there already; write into its [columns]: {'; '.join(lines)}"
        )
    with atomic_write(path) as part:
        part.write_text("\n".join(["[columns]", *lines, ""]), encoding="utf-8")
    return path
