"""Read files of tables into columns and fields, before any number is parsed."""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import lzma
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._tables.rows.naming import check_repeated, is_name
from bayeslaw._tables.rows.records import read_records
from bayeslaw._tables.sources.layout import sheet_of_rows, with_decimal_points
from bayeslaw._tables.sources.library import imported

EXCEL = (".xlsx", ".xlsm")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def read_table_file(
    path: Path, *, grows: bool = False, names: Collection[str] = ()
) -> pd.DataFrame:
    """Read the table of a file; the suffix of its name decides the format.

    Parameters
    ----------
    grows
        Whether another process may be writing to the file. Then a last line without an
        end of line is not read, because its last number may be cut short.
    names
        Further columns that hold names. Names stay as they are written, also ``1.10``
        and ``NA``.

    Raises
    ------
    RunTableError
        Its fields do not match the names of its header. Errors of codecs and parsers go
        on to the caller.
    """
    kind = _kind(path)
    if kind in (".parquet", ".pq"):
        return pd.read_parquet(path)
    if kind in EXCEL:
        return _excel(path)
    text = _text(path)
    if grows:
        text = text[: text.rfind("\n") + 1]
    if kind in (".jsonl", ".ndjson", ".json"):
        return read_records(path, text)
    _refuse_other_format(path, text)
    separator = _separator(text, kind)
    rows = list(_rows(text, separator))
    if not rows:
        raise ValueError("it is empty")
    sheet = with_decimal_points(sheet_of_rows(rows, str(path)), str(path))
    if [sheet.names, *sheet.rows] != rows:
        rows = [sheet.names, *sheet.rows]
        text = _written(rows, separator)
    _check_fields(path, iter(rows))
    layout: dict[str, Any] = {"sep": separator, "skipinitialspace": True}
    # read all digits of numbers, as pandas 3 does by default
    precision = "round_trip" if pd.__version__.startswith("2.") else None
    table = pd.read_csv(StringIO(text), **layout, float_precision=precision)
    of_names = [n for n in table if is_name(n) or str(n).strip() in names]
    if of_names:
        # pandas reads NA as empty and 1.10 as 1.1
        written = pd.read_csv(
            StringIO(text), **layout, usecols=of_names, dtype=str, na_filter=False
        )
        texts = written[of_names].apply(lambda cells: cells.str.strip())
        table[of_names] = texts.mask(texts == "")
    return table


def _refuse_other_format(path: Path, text: str) -> None:
    """Refuse text that is not a table of separated fields."""
    begins = text.lstrip()[:1]
    formats = {"{": "JSON", "[": "JSON", "<": "HTML or XML"}
    if begins in formats:
        raise RunTableError(
            f"{path}: it holds {formats[begins]}, not fields with commas between; name "
            "JSON lines .jsonl, and export other formats as CSV"
        )


def sheet_of(path: str | Path) -> tuple[Path, str | None]:
    """Split a path into its file and the sheet after a ``#``."""
    name, mark, sheet = str(path).rpartition("#")
    if mark and Path(name).suffix.lower() in EXCEL:
        return Path(name), sheet
    return Path(path), None


def _excel(path: Path) -> pd.DataFrame:
    """Read the named sheet, else the only sheet with rows.

    Raises
    ------
    RunTableError
        There is no such sheet, or several have rows; or `openpyxl` is not installed.
    """
    imported("openpyxl", "excel")
    file, sheet = sheet_of(path)
    sheets = pd.read_excel(file, sheet_name=None, header=None, engine="openpyxl")
    if sheet is not None and sheet not in sheets:
        raise RunTableError(f"{file}: no sheet {sheet!r}; it has: {', '.join(sheets)}")
    filled = [name for name, cells in sheets.items() if len(cells) > 1]
    if sheet is None and len(filled) > 1:
        raise RunTableError(
            f"{file}: rows in {len(filled)} sheets ({', '.join(filled)}); name one, as "
            f"in '{file}#{filled[0]}'"
        )
    cells = sheets[sheet or (filled or list(sheets))[0]]
    return _below_header(file, cells.dropna(how="all").dropna(how="all", axis=1))


def _below_header(file: Path, cells: pd.DataFrame) -> pd.DataFrame:
    """Read the rows of a sheet below its names."""
    if cells.empty:
        return pd.DataFrame()
    sheet = sheet_of_rows(cells.to_numpy(object).tolist(), str(file))
    if not all(sheet.names):
        raise RunTableError(
            f"{file}: a column has cells but no name in the first row; name all columns, "
            "and begin the sheet with their names"
        )
    _check_fields(file, iter([sheet.names]))
    rows = pd.DataFrame(sheet.rows, columns=sheet.names, dtype=object)
    return rows.infer_objects()


def _kind(path: Path) -> str:
    """Return the suffix of a file's name, without the suffix of a compression."""
    compressed = (*OPENERS, ".zip")
    file, _ = sheet_of(path)
    ends = [suffix.lower() for suffix in file.suffixes]
    plain = [end for end in ends if end not in compressed]
    return plain[-1] if plain else ""


def _text(path: Path) -> str:
    """Read a text file, compressed or not, without a byte-order mark."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            (name,) = archive.namelist()
            return _decoded(path, archive.read(name))
    opened = OPENERS.get(path.suffix.lower(), open)
    with opened(path, "rb") as file:
        text = _decoded(path, file.read())
    if "\0" in text:
        raise ValueError("it is not text")
    return text


def _decoded(path: Path, content: bytes) -> str:
    """Decode text: UTF-16 with a byte-order mark, UTF-8, or else, with a warning, the
    Western code page in which Excel writes CSV on Windows.
    """
    if content.startswith((b"\x89HDF", b"CDF")):
        raise RunTableError(
            f"{path}: it is a saved fit (netCDF), not a table of runs; a fit comes before "
            "the table"
        )
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in content:
            raise
        text = content.decode("cp1252")
        warn(
            f"{path}: it is not UTF-8 and is read as Windows-1252: see whether its names "
            "are right"
        )
        return text


def _separator(text: str, kind: str) -> str:
    """Choose the separator: a tab for .tsv files, else the mark of which most of the
    first lines have the same number outside quotes; titles above a header have none or
    others. Of two such marks it is the one that more lines have.
    """
    if kind == ".tsv":
        return "\t"
    unquoted = re.sub(r'"[^"]*"', "", text[:100_000])
    lines = [line for line in unquoted.split("\n", 12)[:12] if line.strip()]

    def evenness(mark: str) -> tuple[int, int]:
        counts = Counter(line.count(mark) for line in lines if mark in line)
        return max(counts.values(), default=0), counts.total()

    return max((",", ";", "\t", "|"), key=evenness)


def _written(rows: Sequence[Sequence[str]], separator: str) -> str:
    """Write fields as the text of a table."""
    text = StringIO()
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _rows(text: str, separator: str) -> Iterator[list[str]]:
    """Yield fields of each line that is not blank, the header first."""
    lines = StringIO(text)
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    for fields in reader:
        if any(map(str.strip, fields)):
            yield fields


def _check_fields(path: Path, rows: Iterator[Sequence[str]]) -> None:
    """Refuse two columns with the same name, and rows with more or fewer fields than
    the header, since their fields would be read under wrong names.
    """
    names = [name.strip() for name in next(rows, [])]
    check_repeated(names, f"{path}: ")
    odd = {
        row: len(fields)
        for row, fields in enumerate(rows, 1)
        if len(fields) != len(names)
    }
    if odd:
        first, fields = next(iter(odd.items()))
        more = f" (and {len(odd) - 1} more rows)" if len(odd) > 1 else ""
        raise RunTableError(
            f"{path}: row {first} has {fields} fields, the header {len(names)} names"
            f"{more}: numbers would be read under another's name; name all columns, "
            "or mend the row (a comma too many, or in a number without quotes?)"
        )
