"""Find the table in an office's sheet: titles above, units below, decimal commas; or
between the bars of a Markdown table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import parse_number
from bayeslaw._tables.rows.naming import is_name

MISSING = frozenset({"", "-", "n/a", "na", "nan", "none", "null", "nil"})
# units that change no number: they are those of the schema, or of other columns
PLAIN_UNITS = frozenset(
    {*("nats", "nat", "nats/token", "tokens", "token", "params", "parameters"), "1"}
)
# numbers in a sheet's cells, each with a short unit after it; 0,15 and 1234,5: the comma
# groups no thousands
DECIMAL_COMMA = re.compile(
    r"[-+]?(?:\d+,(?:\d{1,2}|\d{4,})|0,\d+|\d{4,},\d+|"
    r"\d{1,3}(?:\.\d{3})+,\d+)\s*[a-zA-Z%]{0,2}"
)
DECIMAL_POINT = re.compile(
    r"[-+]?(?:\d*\.(?:\d{1,2}|\d{4,})|0?\.\d+|\d{4,}\.\d+|"
    r"\d{1,3}(?:,\d{3})+\.\d+)(?:e[-+]?\d+)?\s*[a-zA-Z%]{0,2}",
    re.IGNORECASE,
)
WITH_COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+\s*[a-zA-Z%]{0,2}")
GROUPED_BY_POINTS = re.compile(r"[-+]?[1-9]\d{0,2}((?:\.\d{3})+)\s*[a-zA-Z%]{0,2}")


Rows = Sequence[Sequence[Any]]


def split_sheet(rows: Rows, where: str) -> tuple[list[str], Rows]:
    """Find the names of columns, and the rows below them, in the cells of a sheet, and
    say what is left out: titles above the header, which have gaps where it has names,
    and a row of units below it, which become part of the names, ``tokens [B]``.
    """
    start = _find_header(rows)
    if start:
        above = f"{start} lines above it are" if start > 1 else "1 line above it is"
        warn(
            f"{where}: the header is line {start + 1}, where each column has a name; "
            f"{above} left out"
        )
    names = [_read_text(cell) for cell in rows[start]]
    below = rows[start + 1 :]
    units = _read_units(names, below)
    if units is None:
        return names, below
    stated = [f"{name} {unit}" for name, unit in zip(names, units, strict=True) if unit]
    warn(
        f"{where}: the row below the header states units ({', '.join(stated[:4])}) and "
        "is no run; it is left out"
    )
    with_units = [
        name if unit.lower() in PLAIN_UNITS | MISSING else f"{name} [{unit}]"
        for name, unit in zip(names, units, strict=True)
    ]
    return with_units, below[1:]


def without_rule(rows: Rows) -> Rows:
    """Drop what a Markdown table has beside its cells: the line of dashes below the
    names, and the bars at both ends of a line.
    """

    def is_rule(row: Sequence[str]) -> bool:
        cells = [cell for cell in map(_read_text, row) if cell]
        return all(re.fullmatch(":?-+:?", cell) for cell in cells)

    rule = next(filter(is_rule, rows), None)
    if rule is None:
        return rows
    first, after = not rule[0].strip(), not rule[-1].strip()
    inner = [row[first : len(row) - after] for row in rows if not is_rule(row)]
    return [row for row in inner if row]


def with_decimal_points(names: Sequence[str], rows: Rows, where: str) -> Rows:
    """Write decimal commas as points, in rows whose numbers show them."""
    columns = [i for i, name in enumerate(names) if not is_name(name)]
    if not any("," in c for row in rows for c in row if isinstance(c, str)):
        return rows
    cells = [_read_text(row[i]) for row in rows for i in columns if i < len(row)]
    by_comma = [cell for cell in cells if DECIMAL_COMMA.fullmatch(cell)]
    if not by_comma or any(map(DECIMAL_POINT.fullmatch, cells)):
        return rows
    # in a column whose only points stand before three digits, once in a number, 1.234
    # among decimal commas may be 1234, or one number with a decimal point
    for i in columns:
        cells = [_read_text(row[i]) for row in rows if i < len(row)]
        matches = [match for match in map(GROUPED_BY_POINTS.fullmatch, cells) if match]
        is_once = bool(matches) and all(len(match[1]) == 4 for match in matches)
        if is_once and any(map(WITH_COMMA.fullmatch, cells)):
            cell = matches[0][0]
            raise RunTableError(
                f"{where}: row {cells.index(cell) + 1}, column {names[i]!r}: "
                f"{cell!r} may mean {cell.replace('.', '')} or {cell.replace('.', ',')}, "
                "as other numbers have decimal commas; write the one that is meant"
            )
    warn(f"{where}: the comma is read as the decimal sign ({by_comma[0]})")

    def point(cell: Any) -> Any:
        text = _read_text(cell)
        is_number = WITH_COMMA.fullmatch(text) or GROUPED_BY_POINTS.fullmatch(text)
        return text.replace(".", "").replace(",", ".") if is_number else cell

    return [
        [point(cell) if i in columns else cell for i, cell in enumerate(row)]
        for row in rows
    ]


def _find_header(rows: Rows) -> int:
    """Find the header: the first line, or one below titles that names each column."""
    width = max((len(row) for row in rows), default=0)
    for i, row in enumerate(rows[:10]):
        names = [_read_text(cell) for cell in row]
        # a column of row numbers has no name
        named = names[1:] if width > 2 else names
        has_number = any(map(_is_number, names))
        if len(set(names)) == len(names) == width and all(named) and not has_number:
            below = [_read_text(cell) for row in rows[i + 1 : i + 3] for cell in row]
            return i if any(map(_is_number, below)) else 0
        if has_number and sum(map(bool, names)) > 1:
            return 0
    return 0


def _read_units(names: Sequence[str], rows: Rows) -> list[str] | None:
    """Read the units in the row below the header; None if it is a run or has none."""
    if len(rows) < 3 or len(rows[0]) != len(names):
        return None
    units = [_read_text(cell) for cell in rows[0]]
    words = [i for i, unit in enumerate(units) if not _is_number(unit)]
    stated = [i for i in words if units[i].lower() not in MISSING]

    def has_numbers(i: int) -> bool:
        cells = Counter(_read_text(row[i]) for row in rows[1:] if i < len(row))
        counts = {c: n for c, n in cells.items() if c.lower() not in MISSING}
        numbers = sum(n for cell, n in counts.items() if _is_number(cell))
        return bool(counts) and numbers >= 0.8 * sum(counts.values())

    # most tables have no two such words, and none of their columns is read
    if len(stated) < 2 or sum(map(has_numbers, stated)) < 2:
        return None
    others = set(range(len(units))) - set(words)
    return None if any(map(has_numbers, others)) else units


def _is_number(text: str) -> bool:
    """Tell whether a cell is a number, also one with a decimal comma."""
    if not text.lstrip("+-.")[:1].isdecimal():
        return False
    if WITH_COMMA.fullmatch(text) or GROUPED_BY_POINTS.fullmatch(text):
        return True
    try:
        parse_number(text)
    except RunTableError:
        return False
    return True


def _read_text(cell: Any) -> str:
    """Return a cell's text; an empty one for missing cells."""
    # NaN is the one value that differs from itself
    return "" if cell is None or cell != cell else str(cell).strip()
