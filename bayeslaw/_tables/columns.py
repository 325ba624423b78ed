"""People's tables made into run tables: other names, other units, a tracker's prefixes,
both losses in one row.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import parse_number
from bayeslaw._tables.proposals import EXPORTED, is_setting
from bayeslaw._tables.rows.naming import LOSSES, NAMES, as_names, check_repeated

# tokens_B*1e9, replay_pct/100
SCALED = re.compile(r"(.+?)\s*([*/])\s*([\d.]+(?:e[-+]?\d+)?)", re.IGNORECASE)
# losses of one run in one row
BOTH = {"target": "target_loss", "source": "source_loss"}


def renamed(
    table: pd.DataFrame,
    columns: Mapping[str, str | Sequence[str]],
    known: Collection[str],
) -> pd.DataFrame:
    """The table under the schema's names.

    ``columns``: theirs -> ours, where theirs may end in a factor (``"tokens_B*1e9"``,
    ``"replay_pct/100"``), or be a number that all rows share (``"124M"``). A tracker's
    prefix is dropped where the table has no column of that name itself and one column
    only is meant.

    Raises
    ------
    RunTableError
        A column that is not there, cannot be multiplied, or that there would be twice.
    """
    check_repeated(table.columns)
    pairs = _pairs(columns)
    moved = {t: o for t, o in pairs if t in table and o not in NAMES}
    out = table.rename(columns=moved)
    for theirs, ours in pairs:
        if theirs in table:
            if ours in NAMES and ours != theirs:
                # what names runs may be what a law reads, too
                out = _with_new(out, ours, as_names(table[theirs]))
            continue
        shared = _shared_number(theirs)
        if shared is not None:
            out = _with_new(out, ours, shared)
            continue
        name, factor = _scaled(theirs)
        if name not in table:
            _refuse_name(table, name, ours, known)
        scaled = _multiplied(table[name], theirs, factor)
        if name == ours or name not in known:
            # tokens counted by steps leave the steps where they are
            out = out.drop(columns=[name])
        out = _with_new(out, ours, scaled)
    out = out.rename(columns=_exported(out.columns, known))
    check_repeated(out.columns)
    return out


def replaced(
    table: pd.DataFrame, columns: Mapping[str, str | Sequence[str]]
) -> list[str]:
    """Columns under names of the schema for which others are given."""
    read = {theirs if theirs in table else _scaled(theirs)[0] for theirs in columns}
    return [ours for _, ours in _pairs(columns) if ours in table and ours not in read]


def is_there(theirs: str, ours: str, names: Collection[str]) -> bool:
    """Whether a table of columns ``names`` has what `renamed` would read as ``ours``; a
    number that all rows share is what a table without that column has.
    """
    if theirs in names:
        return True
    if _shared_number(theirs) is not None:
        return ours not in names
    return _scaled(theirs)[0] in names


def _pairs(columns: Mapping[str, str | Sequence[str]]) -> list[tuple[str, str]]:
    """Theirs and ours, one of each."""
    return [
        (theirs, name)
        for theirs, ours in columns.items()
        for name in ([ours] if isinstance(ours, str) else ours)
    ]


def _multiplied(cells: pd.Series, theirs: str, factor: float) -> pd.Series:
    """Numbers times a factor. What is none stays text that is none either, to be
    refused where its row is used.

    Raises
    ------
    RunTableError
        None is a number.
    """
    numbers = pd.to_numeric(cells, errors="coerce")
    none = numbers.isna() & cells.notna()
    if pd.api.types.is_bool_dtype(cells) or (none.any() and not numbers.notna().any()):
        raise RunTableError(
            f"column {cells.name!r} is not numbers, so it cannot be read as {theirs!r}"
        )
    scaled = numbers * factor
    if not none.any():
        return scaled
    _, mark, digits = theirs.rpartition("*" if "*" in theirs else "/")
    return scaled.astype(object).mask(none, cells.astype(str) + mark + digits)


def _shared_number(theirs: str) -> float | None:
    """The number that is written in a column's stead."""
    try:
        return parse_number(theirs)
    except RunTableError:
        return None


def _with_new(
    table: pd.DataFrame, ours: str, values: float | pd.Series
) -> pd.DataFrame:
    if ours in table:
        raise RunTableError(
            f"the table has a column {ours!r} already; rename or drop it to give another"
        )
    return table.assign(**{ours: values})


def _scaled(theirs: str) -> tuple[str, float]:
    """Their column and what it is multiplied by."""
    match = SCALED.fullmatch(theirs)
    if not match:
        return theirs, 1.0
    name, sign, digits = match.groups()
    try:
        number = float(digits)
        factor = number if sign == "*" else 1 / number
    except (ValueError, ZeroDivisionError):
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0):
        raise RunTableError(
            f"column {theirs!r}: {digits} is no factor; "
            f"write a number above 0, like {name}{sign}1e9"
        )
    return name, factor


def _refuse_name(
    table: pd.DataFrame, theirs: str, ours: str, known: Collection[str]
) -> None:
    there = [str(c) for c in table.columns]
    if ours in there and theirs in known:
        raise RunTableError(
            f"the table has no column {theirs!r} to read as {ours!r}; the other way "
            f"round? on the command line the schema's name comes first, --column "
            f"{theirs}={ours}, in Python yours, columns={{{ours!r}: {theirs!r}}}"
        )
    close = difflib.get_close_matches(theirs, there, 1, 0.6)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise RunTableError(
        f"the table has no column {theirs!r} to read as {ours!r}{hint}; "
        f"it has: {', '.join(there)}"
    )


def _exported(columns: pd.Index, known: Collection[str]) -> dict[str, str]:
    """Names of the schema for columns of a tracker's export, where each is meant by one
    column only.
    """
    meant: dict[str, list[str]] = {}
    for name in map(str, columns):
        match = EXPORTED.fullmatch(name)
        if match and is_setting(name) and match[1] in LOSSES:
            # a setting is no measurement: config.loss may be what is minimised
            continue
        if match and match[1] in known and match[1] not in columns:
            meant.setdefault(match[1], []).append(name)
    return {theirs[0]: ours for ours, theirs in meant.items() if len(theirs) == 1}


def melt_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each domain's loss, where a table has ``target_loss`` and
    ``source_loss`` and neither loss nor domain.

    Rows keep their numbers, so that both of a run have one. ``loss_before`` becomes
    each domain's own: ``target_loss_before`` (else what ``loss_before`` was) and
    ``source_loss_before``. A loss that is empty has no row.
    """
    if {"loss", "domain"} & set(runs) or not set(BOTH.values()) <= set(runs):
        return runs
    parts = []
    for domain, column in BOTH.items():
        measured = runs[column].notna()
        part = runs.assign(loss=runs[column], domain=domain)
        part = part.drop(columns=list(BOTH.values()))
        before = f"{domain}_loss_before"
        if before in runs:
            part["loss_before"] = runs[before]
        parts.append(part[measured])
    return pd.concat(parts)
