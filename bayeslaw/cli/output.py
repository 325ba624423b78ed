"""What commands print and write, and how they end."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.errors import LawError
from bayeslaw._base.files import atomic_write, try_writing
from bayeslaw._base.terminal import printable, say

if TYPE_CHECKING:
    import pandas as pd


INTERRUPTED = 130  # exit code of a command that Ctrl-C ended
# what may differ between lines that are alike: names in quotes, and numbers
PARTS = re.compile(r"""('[^']*'|"[^"]*"|[-+]?\d[\d.,]*(?:e[-+]?\d+)?[%KMBT]?)""")


class Resumable(SystemExit):
    """The end of an interrupted command that has said where it left its work."""


def check_writable(path: Path) -> None:
    """Try to write beside a file that is to be written, before hours of work.

    Raises
    ------
    LawError
        It is a folder, or nothing can be written there.
    """
    if path.is_dir():
        raise LawError(f"{path} is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        raise LawError(f"{path} is a device or a pipe; give the name of a file")
    try:
        try_writing(path)
    except OSError as error:
        raise LawError(
            f"{path}: cannot be written ({error.strerror}); give another --output"
        ) from None


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all."""
    check_writable(path)
    with atomic_write(path) as part:
        if path.suffix.lower() in (".parquet", ".pq"):
            table.to_parquet(part, index=False)
        else:
            _as_plain_text(table).to_csv(part, index=False)


def _as_plain_text(table: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before text that starts a spreadsheet formula."""
    texts = table.select_dtypes(exclude=["number", "bool", "datetime"])
    plain = table.copy()
    plain[texts.columns] = texts.map(_escaped)
    return plain.rename(columns=_escaped)


def _escaped(cell: Any) -> Any:
    # what spreadsheets run when they open a CSV file
    starts = ("=", "+", "-", "@", "\t", "\r")
    if not (isinstance(cell, str) and cell.startswith(starts)):
        return cell
    try:
        float(cell)  # a negative number, say, is no formula
    except ValueError:
        return f"'{cell}"
    return cell


def emit(record: Any, as_json: bool, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(finite(record), allow_nan=False))
    else:
        show()


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON has not, by null."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def print_table(rows: list[dict], names: tuple[str, ...]) -> None:
    columns = []
    for name in names:
        cells = [name, *(_cell_text(row[name]) for row in rows)]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) for cell in cells])
    for line in zip(*columns, strict=True):
        say("  ".join(line).rstrip())


def _cell_text(cell: Any) -> str:
    text = ", ".join(cell) if isinstance(cell, list) else str(cell)
    return printable(text)


# -- warnings --------------------------------------------------------------------------

_kept: list[str] = []  # warnings of the command that runs, in order


def keep_warning(message: Warning | str, *_: object) -> None:
    """Keep a warning for the end of the command, where it is not scrolled away."""
    _kept.append(str(message))


def say_warnings() -> None:
    """Say on stderr what was kept, each once and what is alike in one line."""
    for line in merge_alike(_kept):
        say(f"warning: {line}", to_stderr=True)
    _kept.clear()


def merge_alike(lines: Iterable[str]) -> list[str]:
    """Keep the first of all lines that differ in names and numbers only, and say what
    the others are about.

    ``law 'a' explains 3%``, ``law 'b' explains 4%`` become ``law 'a' explains 3%
    (likewise 'b')``; where no name differs, ``(and 8 like it)``.
    """
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for line in dict.fromkeys(lines):
        pieces = PARTS.split(line)
        groups.setdefault(tuple(pieces[::2]), []).append(pieces)
    return [_merged(group) for group in groups.values()]


def _merged(group: list[list[str]], most: int = 5) -> str:
    """Write the first line of a group, and up to ``most`` names that the others are
    about.
    """
    first, *alike = group
    line = "".join(first)
    if not alike:
        return line
    # the first name in which they differ tells them apart
    for place in range(1, len(first), 2):
        names = list(dict.fromkeys(pieces[place] for pieces in group))
        if first[place][0] in "'\"" and len(names) > 1:
            likewise = ", ".join(names[1 : 1 + most])
            more = len(names) - 1 - most
            if more > 0:
                likewise += f" and {more} more"
            return f"{line} (likewise {likewise})"
    return f"{line} (and {len(alike)} like it)"
