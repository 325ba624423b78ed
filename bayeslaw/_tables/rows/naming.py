"""Find which columns name things, and which rows are the points of one run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._tables.rates.areas import COLUMNS
from bayeslaw._tables.words import EXPORTED, PERHAPS_RUN, RUN

# the table's names, and the schema's for each: one, or several
ColumnMap = Mapping[str, str | Sequence[str]]
# columns of the schema that hold names, spelled as they are written
NAMES = ("run", "checkpoint", "domain", "schedule")
# a run with at least this many points is a learning curve (`shared_error`)
CURVE = 10
# columns of the schema that are set before a run, those of numbers first
SETTINGS = ("N", "U", "replay", "ptpp")
DESIGN = (*SETTINGS, "checkpoint", "domain", "schedule")
SET_BEFORE = (*DESIGN, "seed")
# these differ from point to point along a run
LOSSES = ("loss", "target_loss", "source_loss")


def is_name(column: object) -> bool:
    """Tell whether a column of a file holds names, by its own name."""
    spelled = _spell(column)
    # the size identifies a model, too
    return spelled in (*NAMES, *RUN, *PERHAPS_RUN) and spelled != "model"


def _spell(column: object) -> str:
    """Spell a column's name in small letters, without a tracker's prefix."""
    name = str(column).strip()
    exported = EXPORTED.fullmatch(name)
    return re.sub(r"[_.-]", " ", exported[1] if exported else name).lower()


def as_names(cells: pd.Series) -> pd.Series:
    """Convert cells to text; empty cells, and empty text, are empty."""
    names = cells.astype(object).map(_write_name, na_action="ignore")
    return names.mask(names == "")


def _write_name(cell: Any) -> str:
    is_whole = isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15
    return str(int(cell)) if is_whole else str(cell).strip()


def check_repeated(names: Iterable[object], where: str = "") -> None:
    times = Counter(names)
    for name, count in times.items():
        if count > 1 and name != "":
            raise RunTableError(
                f"{where}{count} columns are called {name!r}; rename or drop all but one"
            )


def named_rows(rows: Iterable[object], most: int = 3) -> str:
    """Name rows: ``row 3``, or ``rows 3, 4, 7 and 12 more``."""
    # both losses of a row have its number
    names = list(dict.fromkeys(map(str, rows)))
    word = "row" if len(names) == 1 else "rows"
    text = f"{word} {', '.join(names[:most])}"
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


def find_run_column(runs: pd.DataFrame) -> tuple[str | None, str | None]:
    """Find the column that names the runs under another name, if there is one and no
    ``run``. Also describes a column with a usual name for it that cannot be it, because
    up to a tenth of its names contradict it. Each may be None.
    """
    if "run" in runs or "D" not in runs or not set(LOSSES) & set(runs):
        return None, None
    for spellings in (RUN, PERHAPS_RUN):
        called = [str(c) for c in runs if _spell(c) in spellings]
        columns = [c for c in called if _names_runs(runs, c)]
        # the one with most different names; of several, the one that is listed first
        columns.sort(key=lambda c: (-runs[c].nunique(), spellings.index(_spell(c))))
        if columns:
            return columns[0], None
    for column in (c for c in runs if _spell(c) in RUN):
        names = as_names(runs[column])
        empty = names.isna()
        if 0 < empty.mean() < 0.1:
            return None, f"column {column!r} is empty in {empty.sum()} rows"
        repeated = names[names.duplicated(keep=False) & ~empty]
        # no column of these names its runs, or it would have been found
        if 0 < repeated.nunique() <= max(1, 0.1 * names.nunique()):
            name = repeated.iloc[0]
            return None, f"column {column!r} names rows {name!r} that differ"
    return None, None


def _names_runs(runs: pd.DataFrame, column: Any) -> bool:
    """Tell whether rows of one name are points of one run, with one loss at a point."""
    cells = runs[column]
    names = as_names(cells)
    is_counter = names.is_unique and names.astype(str).str.isdigit().all()
    is_size = pd.api.types.is_numeric_dtype(cells) and _spell(column) not in RUN
    if names.isna().any() or is_counter or is_size:
        return False
    along = "step" if "step" in runs else "D"
    point = [names, *(runs[c] for c in (along, "domain") if c in runs)]
    losses = [c for c in LOSSES if c in runs]
    settings = [c for c in ("N", "replay", "ptpp", "checkpoint") if c in runs]
    of_point = runs.groupby(point, sort=False)[losses].nunique()
    of_run = runs.groupby(names, sort=False)[settings].nunique()
    return bool((of_point <= 1).all(axis=None) and (of_run <= 1).all(axis=None))


class Curves(NamedTuple):
    """The name of each row's curve; ``are_runs`` if each has one loss at a point."""

    names: pd.Series
    are_runs: bool


def unnamed_curves(runs: pd.DataFrame) -> Curves | None:
    """Name each row's curve, if no column names runs and most rows are points of long
    curves, with equal settings and different D; else None.
    """
    if not {"N", "D", "loss"} <= set(runs) or {"run", "schedule"} & set(runs):
        return None
    keys = [c for c in runs if c in SET_BEFORE or str(c).endswith(LOSS_BEFORE)]
    # columns outside the schema with one value along each curve
    along = {"D", "step", *LOSSES, "cost", "lr", *COLUMNS, *keys}
    own = []
    for column in (c for c in runs if c not in along and runs[c].nunique() > 1):
        points = runs.groupby([*keys, column], dropna=False)["D"].nunique()
        # if the column changed from point to point, there would be no long curves
        if min(points.max(), points.median()) >= CURVE:
            own.append(column)
    keys += own
    curve = runs.groupby(keys, dropna=False, sort=False).ngroup()
    points = runs.groupby(curve)["D"].transform("nunique")
    long = points >= CURVE
    # with more sizes, curves of ten points may in fact be a grid of runs
    if long.mean() < 0.5 or runs["N"][long].nunique() > 12:
        return None
    are_runs = (runs.groupby([curve, runs["D"]])["loss"].nunique() <= 1).all()
    # one run measured on two domains is one run
    if "domain" in keys and len(keys) > 1:
        keys.remove("domain")
        curve = runs.groupby(keys, dropna=False, sort=False).ngroup()
    return Curves("curve " + (curve + 1).astype(str), bool(are_runs))
