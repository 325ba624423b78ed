"""Print and write results of commands; collect warnings; exit after Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.errors import LawError
from bayeslaw._base.files import atomic_write, try_writing
from bayeslaw._base.shown import as_json
from bayeslaw._base.terminal import printable, say, say_block

if TYPE_CHECKING:
    import pandas as pd


INTERRUPTED = 130  # exit code of a command that Ctrl-C ended
# parts of a warning that vary: names in quotes, and numbers
PARTS = re.compile(r"""('[^']*'|"[^"]*"|[-+]?\d[\d.,]*(?:e[-+]?\d+)?[%KMBT]?)""")


class Resumable(SystemExit):
    """Exit of an interrupted command that has printed where its work is saved."""


# outputs of the command that runs, files or folders: their files from before it, with
# the time of their last change
_outputs: dict[Path, dict[Path, int]] = {}


def expect_output(path: Path) -> None:
    """Keep the state of an output, a file or a folder, before the command writes it."""
    _outputs[path] = _last_changes(path)


def forget_outputs() -> None:
    """Let go of the outputs of an earlier command."""
    _outputs.clear()


def interruption() -> str:
    """Say what an interrupted command leaves behind."""
    written = {
        str(file): None
        for path, before in _outputs.items()
        for file, changed in _last_changes(path).items()
        if before.get(file) != changed
    }
    if not written:
        return "interrupted: nothing was written"
    return f"interrupted; written so far: {', '.join(written)}"


def _last_changes(path: Path) -> dict[Path, int]:
    """Find when a file, or each file of a folder, was last changed."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file: file.stat().st_mtime_ns for file in files if file.is_file()}


def check_writable(*paths: Path | None) -> None:
    """Check before hours of work that output files can be written, by a trial file
    each; an output that is not asked for is None.

    Raises
    ------
    LawError
        A path is a folder, a device or a pipe, or its folder cannot be written to.
    """
    for path in filter(None, paths):
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
        expect_output(path)


def write_table(table: pd.DataFrame, path: Path | None) -> None:
    """Write a table as Parquet or CSV, by the path's suffix; never a partial file."""
    if path is None:
        return
    check_writable(path)
    with atomic_write(path) as part:
        if path.suffix.lower() in (".parquet", ".pq"):
            plain = table.copy(deep=False)
            plain.attrs = {}  # how this table was read is not how the file will be
            plain.to_parquet(part, index=False)
        else:
            _as_plain_text(table).to_csv(part, index=False)


def _as_plain_text(table: pd.DataFrame) -> pd.DataFrame:
    texts = table.select_dtypes(exclude=["number", "bool", "datetime"])
    plain = table.copy()
    plain[texts.columns] = texts.map(_escaped)
    return plain.rename(columns=_escaped)


def _escaped(cell: Any) -> Any:
    """Put an apostrophe before a cell that a spreadsheet would run as a formula."""
    # beginnings of text that a spreadsheet would run as a formula
    starts = ("=", "+", "-", "@", "\t", "\r")
    if not (isinstance(cell, str) and cell.startswith(starts)):
        return cell
    try:
        float(cell)  # a number, such as -1, is not a formula
    except ValueError:
        return f"'{cell}"
    return cell


def write_json(record: Any, path: Path | None) -> None:
    if path is None:
        return
    with atomic_write(path) as part:
        part.write_text(json.dumps(as_json(record), indent=1) + "\n")


def write_picture(
    path: Path | None, draw: Callable[[Any], object], height: float = 4.2
) -> None:
    """Write the picture that ``draw`` makes on axes, ``height`` inches high."""
    if path is None:
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height), layout="constrained")
    draw(figure.subplots())
    with atomic_write(path) as part:
        figure.savefig(part, format=path.suffix[1:] or "png", dpi=110)


def emit(record: Any, is_json: bool, show: Callable[[], None]) -> None:
    if is_json:
        print_answer(json.dumps(as_json(record), allow_nan=False))
    else:
        show()


def print_answer(text: str) -> None:
    """Print an answer in JSON, which `bayeslaw schema` describes."""
    print(text)


def emit_answer(
    answer: Any,
    is_json: bool,
    table: pd.DataFrame | None = None,
    lines: Sequence[str] = (),
    after: Sequence[str] = (),
    path: Path | None = None,
    **more: Any,
) -> None:
    """Print an answer as JSON with ``more`` keys; or its ``table``, if there is one with
    rows, ``lines``, its sentence, and the lines ``after`` it. Its warnings come at the
    end of the command. The file at ``path`` has the answer without ``more``.
    """
    record = answer.to_dict()
    write_json(record, path)
    for line in record.get("warnings", ()):
        keep_warning(line)

    def show() -> None:
        if table is not None and len(table):
            say_block(table.to_string(index=False))
        say(*lines)
        say_block("\n".join([answer.sentence(), *after]))

    emit(record | more, is_json, show)


def print_table(rows: list[dict], names: tuple[str, ...]) -> None:
    """Print rows as columns of aligned text, under their names."""
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        texts = [", ".join(v) if isinstance(v, list) else v for v in values]
        cells = [name, *map(printable, texts)]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) for cell in cells])
    for line in zip(*columns, strict=True):
        say("  ".join(line).rstrip())


# -- warnings --------------------------------------------------------------------------


@dataclass
class Warned:
    """Warnings of one command: ``kept`` for its end, in order, and those ``said``."""

    kept: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


# of the command that runs, and of those around it; the first is of no command
_warned: list[Warned] = [Warned()]


@contextlib.contextmanager
def own_warnings() -> Iterator[None]:
    """Give a command its own warnings, and print them at its end."""
    _warned.append(Warned())
    try:
        yield
    finally:
        say_warnings()
        _warned.pop()


def keep_warning(message: Warning | str, *_: object) -> None:
    """Keep a warning, to print it at the end of the command."""
    _warned[-1].kept.append(str(message))


def say_at_once(line: str) -> None:
    """Print a warning on stderr before long work; the end does not repeat it, nor lines
    that differ from it only in names and numbers.
    """
    say(f"warning: {line}", to_stderr=True)
    _warned[-1].said.append(line)


def say_warnings() -> None:
    """Print the kept warnings on stderr, similar ones merged into one line."""
    warned = _warned[-1]
    said = {_words(line) for line in warned.said}
    for line in merge_alike(line for line in warned.kept if _words(line) not in said):
        say(f"warning: {line}", to_stderr=True)
    warned.kept.clear()
    warned.said.clear()


def _words(line: str) -> tuple[str, ...]:
    """Split a line at its names and numbers, and leave these out."""
    return tuple(PARTS.split(line)[::2])


def merge_alike(lines: Iterable[str]) -> list[str]:
    """Merge lines that differ only in names and numbers: keep the first line and list
    the names of the others.

    ``law 'a' explains 3%``, ``law 'b' explains 4%`` become ``law 'a' explains 3%
    (likewise 'b')``; if no name differs, the line ends in ``(and 8 like it)``.
    """
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for line in dict.fromkeys(lines):
        groups.setdefault(_words(line), []).append(PARTS.split(line))
    return [_merged(group) for group in groups.values()]


def _merged(group: list[list[str]], most: int = 5) -> str:
    """Write the first line of a group, and up to ``most`` names of its other lines."""
    first, *alike = group
    line = "".join(first)
    if not alike:
        return line
    # list the first name that differs between lines
    for place in range(1, len(first), 2):
        names = list(dict.fromkeys(pieces[place] for pieces in group))
        if first[place][0] in "'\"" and len(names) > 1:
            likewise = ", ".join(names[1 : 1 + most])
            more = len(names) - 1 - most
            if more > 0:
                likewise += f" and {more} more"
            return f"{line} (likewise {likewise})"
    return f"{line} (and {len(alike)} like it)"
