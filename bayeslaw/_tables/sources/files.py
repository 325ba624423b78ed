"""Read what a user names as a table into columns and cells, before any number is parsed: a
tracker's store as ``SCHEME:PLACE``, or a file (CSV, Excel, JSON records, Parquet).
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import json
import lzma
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection
from functools import partial, reduce
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._law.catalogue import law_names
from bayeslaw._tables.rows.naming import check_repeated, is_name
from bayeslaw._tables.sources.layout import (
    split_sheet,
    with_decimal_points,
    without_rule,
)
from bayeslaw._tables.sources.points import LoggedRun, imported, points
from bayeslaw._tables.sources.trackers import TRACKERS
from bayeslaw._tables.words import STEP, last_part

FORMATS = "CSV, JSON lines, Parquet or Excel"
EXCEL = (".xlsx", ".xlsm")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def is_tracker(source: object) -> bool:
    """Tell whether a source names a tracker's store, not a file."""
    if not isinstance(source, str | Path):
        return False
    scheme, colon, _ = str(source).partition(":")
    return bool(colon) and scheme in TRACKERS


def read_source(
    source: str | Path, *, grows: bool = False, names: Collection[str] = ()
) -> pd.DataFrame:
    """Read a file's table or a tracker's points; every error is one line."""
    scheme, _, place = str(source).partition(":")
    do = f"give {FORMATS}"
    try:
        if is_tracker(source):
            do = "see that it is whole and can be reached"
            return points(_read_store(scheme, place), str(source))
        if sheet_of(source)[0].is_file():
            return read_table_file(Path(source), grows=grows, names=names)
    except RunTableError:
        raise
    except Exception as error:  # every codec, parser and tracker raises its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunTableError(
            f"{source}: cannot be read as a table ({reason}); {do}"
        ) from None
    name = str(source).lower()
    if name in law_names():
        raise RunTableError(
            f"{str(source)!r} is a law, not a table of runs; the table comes first: "
            f"fit(runs, {name!r}), and at the command line fit RUNS --law {name}"
        )
    raise RunTableError(
        f"{source}: no such file; {do}, or a tracker's store as "
        f"{':..., '.join(TRACKERS)}:..."
    )


def _read_store(scheme: str, place: str) -> list[LoggedRun]:
    if not place:
        raise RunTableError(f"{scheme}:: of which store? write {scheme}:PLACE")
    with warnings.catch_warnings():
        # trackers' libraries warn of their own dependencies
        warnings.simplefilter("ignore")
        try:
            return TRACKERS[scheme](place)
        except RunTableError as error:
            # that of a file or folder in the store names its path
            where = "" if str(error).startswith(place) else f"{place}: "
            raise RunTableError(f"{scheme}:{where}{error}") from None


def read_table_file(
    path: Path, *, grows: bool = False, names: Collection[str] = ()
) -> pd.DataFrame:
    """Read the table of a file; the suffix of its name decides the format.

    Of a file that ``grows`` by another process, a last line without an end of line is
    not read, because its last number may be cut short. ``names``: further columns that
    hold names, which stay as they are written, also ``1.10`` and ``NA``.
    """
    # the suffix without that of a compression
    ends = [suffix.lower() for suffix in sheet_of(path)[0].suffixes]
    kind = ([end for end in ends if end not in (*OPENERS, ".zip")] or [""])[-1]
    if kind in (".parquet", ".pq"):
        return pd.read_parquet(path)
    if kind in EXCEL:
        return _read_excel(path)
    text = _read_text(path)
    if grows:
        text = text[: text.rfind("\n") + 1]
    if kind in (".jsonl", ".ndjson", ".json"):
        return _read_records(path, text)
    what = {"{": "JSON", "[": "JSON", "<": "HTML or XML"}.get(text.lstrip()[:1])
    if what is not None:
        raise RunTableError(
            f"{path}: it holds {what}, not fields with commas between; name "
            "JSON lines .jsonl, and export other formats as CSV"
        )
    separator = "\t" if kind == ".tsv" else _find_separator(text)
    reader = csv.reader(StringIO(text), delimiter=separator, skipinitialspace=True)
    rows = [fields for fields in reader if any(map(str.strip, fields))]
    if not rows:
        raise ValueError("it is empty")
    if separator == "|":
        rows = without_rule(rows)
    header, below = split_sheet(rows, str(path))
    below = with_decimal_points(header, below, str(path))
    check_repeated([name.strip() for name in header], f"{path}: ")
    width = len(header)
    odd = {i: len(row) for i, row in enumerate(below, 1) if len(row) != width}
    if odd:
        first, fields = next(iter(odd.items()))
        more = f" (and {len(odd) - 1} more rows)" if len(odd) > 1 else ""
        raise RunTableError(
            f"{path}: row {first} has {fields} fields, the header {width} names{more}: "
            "numbers would be read under another's name; name all columns, or mend the "
            "row (a comma too many, or in a number without quotes?)"
        )
    written = StringIO()
    csv.writer(written, lineterminator="\n").writerows([header, *below])
    written.seek(0)
    # read all digits of numbers, as pandas 3 does by default
    precision = "round_trip" if pd.__version__.startswith("2.") else None
    table = pd.read_csv(written, float_precision=precision)
    for i, name in enumerate(table):
        if is_name(name) or str(name).strip() in names:
            # pandas reads NA as empty and 1.10 as 1.1
            cells = pd.Series([row[i].strip() for row in below])
            table[name] = cells.mask(cells == "")
    return table


def sheet_of(path: str | Path) -> tuple[Path, str | None]:
    """Split a path into its file and the sheet after a ``#``."""
    name, mark, sheet = str(path).rpartition("#")
    if mark and Path(name).suffix.lower() in EXCEL:
        return Path(name), sheet
    return Path(path), None


def _read_text(path: Path) -> str:
    """Read a text, compressed or not, in UTF-16 or UTF-8, else in Windows-1252."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            (name,) = archive.namelist()
            content = archive.read(name)
    else:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            content = file.read()
    if content.startswith((b"\x89HDF", b"CDF")):
        raise RunTableError(
            f"{path}: it is a saved fit (netCDF), not a table of runs; a fit comes before "
            "the table"
        )
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        if is_utf16 or b"\0" in content:
            raise
        text = content.decode("cp1252")
        warn(
            f"{path}: it is not UTF-8 and is read as Windows-1252: see whether its names "
            "are right"
        )
    if "\0" in text:
        raise ValueError("it is not text")
    return text


def _find_separator(text: str) -> str:
    """Choose the mark of which most of the first lines have the same number outside
    quotes; titles above a header have none or others. Of two such marks it is the one
    that more lines have.
    """
    unquoted = re.sub(r'"[^"]*"', "", text[:100_000])
    lines = [line for line in unquoted.split("\n", 12)[:12] if line.strip()]

    def rate(mark: str) -> tuple[int, int]:
        counts = Counter(n for n in (line.count(mark) for line in lines) if n)
        return max(counts.values(), default=0), counts.total()

    return max(",;\t|", key=rate)


def _read_excel(path: Path) -> pd.DataFrame:
    """Read the named sheet, else the only sheet with rows."""
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
    cells = cells.dropna(how="all").dropna(how="all", axis=1)
    if cells.empty:
        return pd.DataFrame()
    header, below = split_sheet(cells.to_numpy(object).tolist(), str(file))
    if not all(header):
        raise RunTableError(
            f"{file}: a column has cells but no name in the first row; name all columns, "
            "and begin the sheet with their names"
        )
    check_repeated(header, f"{file}: ")
    return pd.DataFrame(below, columns=header, dtype=object).infer_objects()


def _read_records(path: Path, text: str) -> pd.DataFrame:
    """Read JSON lines, an array of records, or one record of columns."""
    example = '{"N": 1e9, "D": 2e10, "loss": 2.5}'

    def as_record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, times in Counter(name for name, _ in pairs).items():
            if times > 1:
                raise RunTableError(f"{name!r} is there {times} times; keep one value")
        return dict(pairs)

    def parse(text: str, where: str = "") -> Any:
        try:
            return json.loads(text, object_pairs_hook=as_record)
        except RecursionError:
            reason = "records within records, too deep to be read"
        except json.JSONDecodeError as error:
            reason = f"not JSON ({error})"
        except RunTableError as error:
            reason = str(error)
        do = "give each record of names and values on one line"
        raise RunTableError(f"{path}: {where}{reason}; {do}")

    try:
        is_one_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_one_object = False
    if is_one_object:
        records = {"the file": parse(text)}
    elif text.lstrip().startswith("["):
        records = {f"record {i}": one for i, one in enumerate(parse(text), 1)}
    else:
        lines = {f"line {i}": t for i, t in enumerate(text.splitlines(), 1)}
        records = {at: parse(t, f"{at}: ") for at, t in lines.items() if t.strip()}
    for place, record in records.items():
        if not isinstance(record, dict):
            raise RunTableError(
                f"{path}: {place} is no record of names and values; write each run as "
                f"{example}"
            )
    if len(records) != 1:
        return pd.DataFrame([*records.values()])
    # one record may be a whole table: lists, or values by row number, as
    # `pandas.DataFrame.to_json` writes them
    (record,) = records.values()
    results = record.get("results") if is_one_object else None
    tasks = results if isinstance(results, dict) else {}
    if tasks and all(isinstance(metrics, dict) for metrics in tasks.values()):
        raise RunTableError(
            f"{path}: it holds one model's evaluation, metrics by task "
            f"({', '.join(map(str, [*tasks][:3]))}), as lm-eval writes them, and no table "
            "of runs; write a row for each model, with its N, D and loss, as CSV or JSON "
            f"lines: {example}"
        )
    parts = [*record.values()]
    if parts and all(isinstance(part, list) for part in parts):
        return pd.DataFrame(record)
    if parts and all(isinstance(part, dict) for part in parts):
        if all(map(str.isdigit, record)):
            return pd.DataFrame(parts)
        if all(row.isdigit() for part in parts for row in part):
            return pd.DataFrame(record).reset_index(drop=True)
    return pd.DataFrame([record])


def melt_wide(table: pd.DataFrame) -> pd.DataFrame:
    """Melt a table with a column for each run or for each size to a row for each loss,
    with a warning; one with ordinary names is unchanged.
    """
    names = list(map(str, table.columns))
    # a panel of runs as W&B exports it: NAME - METRIC, with its minimum and maximum
    cells = {n: re.fullmatch(r"(.+) - (.+?)(__MIN|__MAX)?", n) for n in names}
    plain = [name for name, cell in cells.items() if cell is None]
    shown = {name: cell for name, cell in cells.items() if cell and not cell[3]}
    if len(plain) == 1 and shown:
        (along,) = plain
        steps = table[along]
        along = "step" if last_part(along) in STEP else along
        metrics: dict[str, list[pd.DataFrame]] = {}
        for name, cell in shown.items():
            rows = pd.DataFrame({"run": cell[1], along: steps, cell[2]: table[name]})
            metrics.setdefault(cell[2], []).append(rows.dropna(subset=[cell[2]]))
        curves = [pd.concat(parts, ignore_index=True) for parts in metrics.values()]
        # an outer join, because one metric of a run may have more steps than another
        rows = reduce(partial(pd.merge, on=["run", along], how="outer"), curves)
        has_ends = len(cells) > len(shown) + 1
        note = " (columns __MIN and __MAX are left out)" * has_ends
        count = max(map(len, metrics.values()))
        warn(
            f"a panel of {count} runs, a column each, became rows of run and {along}{note}"
        )
        return rows
    # sizes: 70M, loss_160M, loss 1.4B, N=410M
    pattern = re.compile(r"(?:loss|N)?[\s_=/-]*(\d+(?:\.\d+)?[kmb])", re.IGNORECASE)
    sizes = {name: match[1] for name in names if (match := pattern.fullmatch(name))}
    if len(sizes) < 2 or {"N", "loss"} & set(names):
        return table
    labels = [name for name in names if name not in sizes]
    rows = table.melt(labels, list(sizes), var_name="N", value_name="loss")
    rows["N"] = rows["N"].map(sizes)
    warn(
        f"columns {', '.join(sizes)} became a row each, by N, with their cells as loss"
    )
    return rows.dropna(subset=["loss"]).reset_index(drop=True)
