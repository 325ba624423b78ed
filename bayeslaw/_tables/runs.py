"""Read run tables: columns, units, validation. One row per measured loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import (
    LARGEST_COUNT,
    MULTIPLES_OF_COUNTS,
    format_count,
    parse_number,
)
from bayeslaw._law.columns import LOSS_BEFORE, LOSS_SD, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._tables.before import (
    finished_query,
    with_gaps_filled,
    with_stages,
    without_starts,
)
from bayeslaw._tables.checks.rises import PastMinimumWarning, past_minimum
from bayeslaw._tables.checks.suspicions import suspicions
from bayeslaw._tables.columns import (
    BOTH,
    as_mapping,
    melt_losses,
    pairs_of,
    renamed,
    replaced,
)
from bayeslaw._tables.proposals import foreign_names
from bayeslaw._tables.rates.logged import add_areas
from bayeslaw._tables.rows.cells import is_of_numbers, plain_cells, without_summary
from bayeslaw._tables.rows.levels import with_levels
from bayeslaw._tables.rows.naming import (
    CURVE,
    NAMES,
    ColumnMap,
    as_names,
    check_repeated,
    doubtful_names,
    named_rows,
    names_of,
    run_column,
    unnamed_curves,
)
from bayeslaw._tables.rows.shares import (
    check_shares,
    evaluation_columns,
    share_columns,
    with_shares,
)
from bayeslaw._tables.sources.points import with_tokens
from bayeslaw._tables.sources.source import FORMATS, is_tracker, read_source
from bayeslaw._tables.sources.wide import long
from bayeslaw._tables.where import select

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# column of the schema: what it is
NUMERIC = {
    "N": "model parameters",
    "D": "adaptation (or training) tokens",
    "U": "unique tokens of the corpus that D is read from",
    "replay": "share of source data in the mixture, 0 to 1",
    "ptpp": "pre-training tokens per parameter",
    "pretrain_tokens": "pre-training tokens, from which ptpp is reckoned",
    "loss": "nats per token",
    LOSS_SD: "standard error of the loss, nats per token",
    LOSS_BEFORE: "loss of the checkpoint before adaptation, nats per token",
    SOURCE_LOSS_BEFORE: (
        "source loss of the checkpoint before adaptation, nats per token"
    ),
    "target_loss_before": (
        "target loss of the checkpoint before adaptation, nats per token"
    ),
    "source_loss": "loss on the source domain, nats per token",
    "target_loss": "loss on the target domain, nats per token",
    "S1_pt": (
        "forward area of the pre-training schedule, "
        "computed where there are columns step, lr and run"
    ),
    "S2_pt": (
        "annealing area of the pre-training schedule, "
        "computed where there are columns step, lr and run"
    ),
    "S1_cpt": "forward area of the adaptation schedule",
    "S2_cpt": "annealing area of the adaptation schedule",
    "step": "step",
    "lr": "learning rate",
    "cost": "cost of the run",
}
POSITIVE = (
    "N",
    "D",
    "U",
    "ptpp",
    "pretrain_tokens",
    *(n for n in NUMERIC if "loss" in n and n != LOSS_SD),
)
COUNTS = (
    "N",
    "D",
    "U",
    "pretrain_tokens",
    "step",
    "cost",
)  # large: in 240,000 the comma groups thousands
TEXT = ("run", "checkpoint", "domain", "schedule", "seed")


def read_runs(
    source: str | Path | pd.DataFrame,
    *,
    where: str | None = None,
    columns: ColumnMap | Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read, select and validate a table of runs.

    Tables exported by experiment trackers name columns ``config.N``, ``params.N``,
    ``summary/loss`` or ``metrics.loss``. They are read as ``N`` and ``loss`` if the
    table has no column of that name.

    If a table has both losses in one row, ``target_loss`` and ``source_loss``, and no
    ``loss`` or ``domain``, each loss becomes a row. The same holds for a table of
    mixtures with a column ``loss_NAME`` for each evaluation set. Its columns
    ``share_NAME`` (shares, percent, or the tokens of each domain) are completed to one.
    If one cell of a row is empty, it gets the rest of the sum. If all rows sum to less
    than one, the rest becomes ``share_rest``.

    Names (``run``, ``checkpoint``, ``domain``, ``schedule``) stay text as spelled. If
    no column is called ``run``, a column with a usual name for it (``run_name``,
    ``run_id``, ``Name``, ``exp``, ...) is taken. Otherwise, if most rows are points of
    long curves of a few sizes, each curve is a run, with a warning. A row of means or
    totals at the end is left out, with a warning.

    A table with columns ``step`` and ``lr``, the rows of a curve named by ``run`` (or
    ``schedule``, ``curve``), gets its areas S1 and S2 if it has none; they sum over all
    rows of the curve, selected or not (`areas_from_table`).

    The store of an experiment tracker is a table, too: it has a row for each run and
    step at which a loss was logged, and settings and metrics as columns. Without a
    column ``D``, a logged counter of tokens is taken; without a counter, steps times
    the tokens of a step from the settings, with a warning.

    Parameters
    ----------
    source
        A CSV (commas, semicolons or tabs), JSON lines, Parquet or Excel file
        (``"book.xlsx#sheet"``), a DataFrame, or a tracker's store:
        ``"tensorboard:FOLDER"``, ``"mlflow:PLACE#EXPERIMENT"``, ``"trackio:PROJECT"``,
        ``"wandb:ENTITY/PROJECT"`` or a folder of offline runs, ``"hf:OUTPUT_DIR"``.
    where
        A pandas query that selects rows, for instance ``"ptpp <= 31 and domain ==
        'target'"``.
    columns
        Your column name -> name of the schema, for tables with other names. For other
        units add a factor to your name: ``{"tokens_B*1e9": "D", "replay_pct/100":
        "replay"}``. A number is a value for all rows: ``{"124M": "N"}``. One of your
        columns may become several: ``{"params": ("N", "run")}``. You can also give a
        list as on the command line: ``["N=params", "loss=ln(ppl)"]``.

    Returns
    -------
    DataFrame
        The selected rows; schema columns as floats. Its index keeps the row numbers of
        the source, from 1.

    Raises
    ------
    RunTableError
        A value cannot be used; the message names row and column.

    Examples
    --------
    >>> table = pd.DataFrame({"params": ["124M"] * 2, "toks_B": [2, 6], "val": [3.2, 3.0]})
    >>> names = {"params": "N", "toks_B*1e9": "D", "val": "loss"}
    >>> bayeslaw.read_runs(table, columns=names)["D"].tolist()
    [2000000000.0, 6000000000.0]
    """
    runs = read_with_notes(source, where=where, columns=columns).runs
    for line in foreign_names(runs):
        warn(line)
    return runs


class Reading(NamedTuple):
    """Runs that were read, and notes on how the source was read, one line each.
    ``mapped``: the columns that a mapping renamed or replaced, under the user's own
    names, row by row.
    """

    runs: pd.DataFrame
    notes: list[str]
    mapped: pd.DataFrame


def read_with_notes(
    source: str | Path | pd.DataFrame,
    *,
    where: str | None = None,
    columns: ColumnMap | Sequence[str] | None = None,
    grows: bool = False,
) -> Reading:
    """Read runs as `read_runs` does, with notes on how the source was read; from a file
    that ``grows``, only whole lines.
    """
    columns = as_mapping(columns)
    table = load_table(source, grows=grows, names=names_of(columns))
    if is_tracker(source):
        # if `columns` maps another column to a metric's name, the metric is dropped
        table = table.drop(columns=replaced(table, columns))
    notes: list[str] = []
    runs = _with_names(renamed(table, columns, (*NUMERIC, *TEXT)), notes)
    runs.index = pd.RangeIndex(1, len(runs) + 1, name="row")
    if runs.empty:
        raise RunTableError(f"{_name(source)}: no rows below the header; add runs")
    gone = [name for name in table if name not in runs]
    mapped = table[gone].apply(_as_numbers).set_axis(runs.index)
    runs = without_summary(runs)
    if is_tracker(source) and "D" not in runs:
        runs, tokens = with_tokens(runs)
        if tokens is not None:
            notes.append(tokens.how)
        if tokens is not None and tokens.assumed:
            warn(tokens.how)
    runs, unread = _numbers(runs)
    runs = with_shares(runs)
    evaluations = evaluation_columns(runs)
    melted = melt_losses(add_areas(with_stages(runs)), evaluations, unread)
    melted = with_levels(melted)
    if "loss" not in runs and "loss" in melted:
        which = "the" if evaluations else "both"
        notes.append(f"{which} losses of a row became a row each, by domain")
        notes.extend(_empty_losses(runs, evaluations or BOTH))
    if is_tracker(source):
        melted = _measured(melted, _name(source), notes)
    else:
        melted = without_starts(melted)
    melted = with_gaps_filled(melted)
    runs = select(melted, where, mapped)
    mapped = mapped.reindex(runs.index)
    _refuse_unread(runs, unread)
    _check_numbers(runs)
    _check_repeats(runs)
    runs = _with_curves(runs)
    for line in suspicions(runs, [ours for _, ours in pairs_of(columns)]):
        warn(line)
    risen = past_minimum(runs)
    if risen is not None:
        warn(risen, PastMinimumWarning)
    if not runs.index.is_unique:
        runs = runs.set_axis(pd.RangeIndex(1, len(runs) + 1, name="row"))
    return Reading(runs, notes, mapped.set_axis(runs.index))


def _as_numbers(cells: pd.Series) -> pd.Series:
    """Convert cells to numbers where all of them are: 124M, 34%."""
    if is_of_numbers(cells.dtype) or pd.api.types.is_bool_dtype(cells):
        return cells
    try:
        return cells.map(parse_number, na_action="ignore")
    except RunTableError:
        return cells


def _empty_losses(runs: pd.DataFrame, columns: Mapping[str, str]) -> Iterator[str]:
    """Count the rows that have no loss on a domain."""
    for domain, column in columns.items():
        empty = runs.index[runs[column].isna().to_numpy()]
        if len(empty):
            yield f"{named_rows(empty)}: no loss on {domain}, and no row of it"


def _refuse_unread(runs: pd.DataFrame, unread: dict[str, dict[Any, str]]) -> None:
    """Refuse cells that are not numbers, in the selected rows."""
    for name, reasons in unread.items():
        rows = [row for row in reasons if row in runs.index]
        if rows:
            raise RunTableError(
                f"{named_rows(rows)}, column {name!r}: {reasons[rows[0]]}"
            )


def _with_names(runs: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Read names as text, and make a column ``run`` if another column names the runs."""
    texts = {name: as_names(runs[name]) for name in NAMES if name in runs}
    runs = runs.assign(**texts)
    _warn_spellings(runs)
    theirs = run_column(runs)
    if theirs is None:
        doubt = doubtful_names(runs)
        if doubt is not None:
            warn(
                f"{doubt}, so it is not taken as the name of the run: mend the names, or "
                "say so by --column run=yours"
            )
        return runs
    notes.append(f"run is column {theirs!r}")
    return runs.assign(run=as_names(runs[theirs]))


def _warn_spellings(runs: pd.DataFrame) -> None:
    """Warn of names that differ in case only: they name two runs, or two domains."""
    for name in (n for n in NAMES if n in runs):
        names = pd.Series(runs[name].dropna().unique())
        twice = names[names.map(str.casefold).duplicated(keep=False)]
        if len(twice):
            listed = ", ".join(map(repr, twice[:4]))
            warn(
                f"column {name!r} has names that differ in case only ({listed}), which are "
                "read as different: spell those alike that are meant to be one"
            )


def _with_curves(runs: pd.DataFrame) -> pd.DataFrame:
    """Name learning curves as runs, if no column names them."""
    curves = unnamed_curves(runs)
    if curves is None:
        return runs
    count = curves.names.nunique()
    do = "name the run of each row in a column 'run' (--column run=yours)"
    finding = (
        f"no column names the runs, and {count} curves have {CURVE} points and more"
    )
    if not curves.are_runs:
        warn(
            f"{finding}, some with two losses at one D: each row counts as a run of its "
            f"own, so that points of one run pass for independent; {do}"
        )
        return runs
    if count > 1:  # a single curve needs no warning
        warn(
            f"{finding}: rows alike in all but D are taken as the points of one run; {do} "
            "to say otherwise"
        )
    return runs.assign(run=curves.names)


def _measured(points: pd.DataFrame, where: str, notes: list[str]) -> pd.DataFrame:
    """Keep the points of a tracker's runs after the first token, and, if the loss
    metric is known, only those at which it was logged.
    """
    if "D" in points:
        begun = ~(points["D"] == 0)
        if not begun.all():
            notes.append(f"{(~begun).sum()} points at step 0 (D = 0) were left out")
        points = points[begun]
    if "loss" not in points:
        return points
    measured = points[points["loss"].notna()]
    if measured.empty:
        raise RunTableError(f"{where}: no run has logged the loss")
    left_out = len(points) - len(measured)
    if left_out:
        notes.append(f"{left_out} logged steps without the loss were left out")
    without = sorted(set(points["run"]) - set(measured["run"]))
    if without:
        warn(
            f"{where}: no loss in {len(without)} runs, left out: "
            f"{', '.join(without[:3])}"
        )
    return measured


def as_runs(source: object) -> pd.DataFrame:
    """Return a table as it is, or read it from the path of its file; all functions that
    take a table use this.

    Raises
    ------
    RunTableError
        The argument is neither, or the file cannot be used.
    """
    if isinstance(source, str | Path):
        return read_with_notes(source).runs
    return _of_frame(frame_of(source))


def as_design(source: object) -> pd.DataFrame:
    """Return a table of runs of which some columns are read, but no losses: as it is,
    its numbers checked as those of `as_runs`; or read it from the path of its file.

    Raises
    ------
    RunTableError
        The argument is neither, or a number cannot be used.
    """
    if isinstance(source, str | Path):
        return read_with_notes(source).runs
    table = frame_of(source)
    check_repeated(table.columns)
    if table.empty:
        raise RunTableError("the table: no rows below the header; add runs")
    measured = table.columns.intersection(["loss", *BOTH.values()])
    rows = plain_cells(table.drop(columns=measured))
    rows = rows.set_axis(pd.RangeIndex(1, len(rows) + 1, name="row"))
    rows, unread = _numbers(rows)
    _refuse_unread(rows, unread)
    _check_numbers(rows)
    return table.assign(**{c: rows[c].to_numpy() for c in numeric_columns(rows)})


def _no_table(source: object) -> RunTableError:
    """Build the error about an argument that is not a table."""
    got = type(source).__name__
    do = "make it one by pandas.DataFrame(...)"
    if isinstance(source, pd.Series):
        do = "give the table of which it is a column, or a row with named values"
    elif hasattr(source, "log_loss") or hasattr(source, "latex"):
        do = (
            "the table comes second where a fit comes first, and first where a law does"
        )
    return RunTableError(
        f"a table of runs is a DataFrame or the path of a file ({FORMATS}); got {got}: {do}"
    )


def frame_of(source: object) -> pd.DataFrame:
    """Return a DataFrame as it is; make one of a row (a mapping, or a Series of named
    values), of columns, or of rows.

    Raises
    ------
    RunTableError
        The argument is none of these, or its columns differ in length.
    """
    if isinstance(source, pd.DataFrame):
        levels = source.columns.nlevels
        if levels > 1:
            raise RunTableError(
                f"the table's columns have {levels} levels of names; give each one name: "
                "table.columns = ['_'.join(map(str, c)) for c in table.columns]"
            )
        return source
    if isinstance(source, pd.Series) and {*source.index} & {*NUMERIC}:
        return frame_of(source.to_dict())
    if isinstance(source, Mapping) and source and all(map(is_scalar, source.values())):
        return pd.DataFrame([dict(source)])
    if isinstance(source, Mapping) and source:
        try:
            return pd.DataFrame(dict(source))
        except ValueError as error:  # columns of several lengths
            raise RunTableError(f"a table of runs: {error}") from None
    if isinstance(source, list) and source and all(map(_is_row, source)):
        return pd.DataFrame(source)
    raise _no_table(source)


def _is_row(item: object) -> bool:
    return isinstance(item, Mapping)


def _of_frame(table: pd.DataFrame) -> pd.DataFrame:
    """Read a DataFrame as the same table from a file, its rows under their own labels.

    A table that was read before (its index is named ``row``) may have changed since. It
    is checked again, but without warnings.
    """
    if table.index.name == "row" and len(table):
        check_repeated(table.columns)
        runs, unread = _numbers(table.copy(deep=False))
        _refuse_unread(runs, unread)
        _check_numbers(runs)
        runs = with_levels(runs)
        _check_repeats(runs)
        return runs
    runs = read_with_notes(table).runs
    all_rows = pd.RangeIndex(1, len(table) + 1)
    if not runs.index.equals(all_rows):
        return runs
    # a named index is a column now
    return runs.set_axis(table.index.set_names([None] * table.index.nlevels))


def _with_index(table: pd.DataFrame) -> pd.DataFrame:
    """Make columns of an index that has names or holds text: it may name the runs."""
    names = list(table.index.names)
    if names == [None] and table.index.inferred_type == "string":
        names = ["index"]
    is_unnamed = None in names or names == ["row"]
    if is_unnamed or {*names} & {*table.columns}:
        return table.copy()
    columns = table.reset_index(names=names)
    columns.attrs = table.attrs
    return columns


def _name(source: str | Path | pd.DataFrame) -> str:
    return str(source) if isinstance(source, str | Path) else "the table"


def load_table(
    source: str | Path | pd.DataFrame,
    *,
    grows: bool = False,
    names: Collection[str] = (),
) -> pd.DataFrame:
    """Load a table under its own names. Numbers are parsed; other cells stay as
    written. Columns in ``names`` hold names, too.
    """
    if isinstance(source, str | Path):
        table = read_source(source, grows=grows, names=names)
    else:
        table = _with_index(frame_of(source))
        check_repeated(table.columns)
    table = plain_cells(table)
    if is_tracker(source):
        return table
    is_blank = table.isna().all(axis=1)
    if is_blank.any() and not is_blank.all() and not isinstance(source, pd.DataFrame):
        table = table[~is_blank].reset_index(drop=True)
    table, note = long(table)
    if note:
        warn(note)
    return table


def numeric_columns(runs: pd.DataFrame) -> list[str]:
    """List the columns that hold numbers, by their names: those of the schema, shares,
    and losses by evaluation set.
    """
    of_schema = [name for name in NUMERIC if name in runs]
    return [*of_schema, *share_columns(runs), *evaluation_columns(runs).values()]


def _check_numbers(runs: pd.DataFrame) -> None:
    """Refuse numbers out of their range, and shares outside the simplex."""
    check_values(runs, numeric_columns(runs))
    check_shares(runs)


def _numbers(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[Any, str]]]:
    """Convert schema columns to floats. Also returns why cells are not numbers: column
    -> row -> reason.
    """
    unread: dict[str, dict[Any, str]] = {}
    for name in numeric_columns(runs):
        cells = runs[name]
        if is_of_numbers(cells.dtype):
            reasons = _overflowed(name, cells)
            runs[name] = cells.to_numpy(float, na_value=np.nan)
        else:
            if "%" in _suffixes(name):
                _warn_percent(name, cells)
            runs[name], reasons = _parsed(name, cells)
        if name == "replay" or is_share(name):
            runs[name] = _without_rounding(runs[name])
        if reasons:
            unread[name] = reasons
    return runs, unread


def _without_rounding(shares: pd.Series, most: float = 1e-9) -> pd.Series:
    """Move shares that differ from 0 or 1 by an error of arithmetic to these ends."""
    ends = shares.round().clip(0.0, 1.0)
    return shares.where((shares - ends).abs() > most, ends)


def _parsed(name: str, cells: pd.Series) -> tuple[pd.Series, dict[Any, str]]:
    """Convert cells to numbers, with NaN for others. Also returns why: row -> reason."""
    values = np.full(len(cells), np.nan)
    reasons = {}
    for i, cell in enumerate(cells):
        if pd.isna(cell) or (isinstance(cell, str) and not cell.strip()):
            continue
        try:
            values[i] = parse_number(
                cell, counts=name in COUNTS, suffixes=_suffixes(name)
            )
        except RunTableError as error:
            reasons[cells.index[i]] = str(error)
    return pd.Series(values, cells.index), reasons


def _suffixes(name: str) -> str:
    """List the suffixes that a column's numbers may have: thousands for tokens, but not
    for nats.
    """
    if name in (*COUNTS, "ptpp"):
        return MULTIPLES_OF_COUNTS
    return "%" if name == "replay" or is_share(name) else ""


def _overflowed(name: str, cells: pd.Series) -> dict[Any, str]:
    """Find rows with a negative count in 32-bit integers, which overflow at 2.1
    billion.
    """
    kind = cells.dtype
    if name not in COUNTS or not pd.api.types.is_integer_dtype(kind):
        return {}
    below = cells.index[(cells < 0).fillna(False).to_numpy(bool)]
    if getattr(kind, "itemsize", 8) > 4:
        return {}
    if not len(below):
        _warn_nearly_full(name, cells)
    why = (
        f"below 0 in integers of {8 * getattr(kind, 'itemsize', 4)} bits, which hold no "
        "more than 2.1 billion: the column overflowed, also where it is above 0; write "
        "it as 64-bit integers or floats"
    )
    return dict.fromkeys(below, why)


def _warn_nearly_full(name: str, cells: pd.Series) -> None:
    """Warn of a 32-bit count near its maximum: other counts may have overflowed and
    begun again from 0, and the table does not show that.
    """
    unsigned = str(cells.dtype).casefold().startswith("u")
    most = 2.0 ** (32 if unsigned else 31)
    largest = float(cells.max())
    if not most / 2 < largest < most:
        return
    warn(
        f"column {name!r} is of 32-bit integers, which hold up to {format_count(most)}, and "
        f"reaches {format_count(largest)}: larger counts would have overflowed to smaller "
        "ones; write it as 64-bit integers or floats"
    )


def _warn_percent(name: str, cells: pd.Series) -> None:
    """Warn of a column that mixes percent with fractions."""
    written = cells.dropna().astype(str).str.strip()
    percent = written.str.endswith("%")
    fraction = ~percent & ~written.isin(("0", "0.0"))
    if percent.any() and fraction.any():
        example = f"{written[percent].iloc[0]} and {written[fraction].iloc[0]}"
        warn(
            f"column {name!r} mixes percent with fractions ({example}): "
            "read as written; write all of them one way"
        )


def refuse(rows: Iterable[object], column: str, what: str, do: str) -> None:
    where = f"{named_rows(rows)}, column {column!r}"
    raise RunTableError(f"{where}: {what}; {do}")


def check_values(runs: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse values that columns of numbers cannot hold, in those columns of ``names``
    that the table has.

    Raises
    ------
    RunTableError
        A number is missing, infinite or out of its range; the message names row and
        column.
    """
    for name in (n for n in names if n in runs):
        x = runs[name].to_numpy(float)
        for what, (wrong, do) in _problems(name, x, runs).items():
            if wrong.any():
                first = x[wrong][0]
                fault = what if np.isnan(first) else f"{first:g} is {what}"
                refuse(row_numbers(runs)[wrong], name, fault, do)


def row_numbers(runs: pd.DataFrame) -> pd.Index:
    """Number the rows from 1, as in the file that they were read from, else as in the
    table.
    """
    if runs.index.name == "row":
        return runs.index
    return pd.RangeIndex(1, len(runs) + 1)


def _problems(
    name: str, x: Float[np.ndarray, " run"], runs: pd.DataFrame
) -> dict[str, tuple[Bool[np.ndarray, " run"], str]]:
    """List the possible faults of a column ``x`` of shape (run,): the rows with each
    fault, and what to do.
    """
    problems = {}
    if name == "loss":
        query = " and ".join(filter(None, ["loss > 0", finished_query(runs)]))
        do = f'leave such runs out (--where "{query}") or measure them'
        problems["NaN or empty"] = np.isnan(x), do
    problems["infinite"] = np.isinf(x), "remove the run or mend the number"
    if name in POSITIVE:
        do = (
            f"{name} is {NUMERIC[name]} and must be above 0; mend it, or leave such "
            f'rows out (--where "{name} > 0")'
        )
        problems["not positive"] = x <= 0, do
    if name in ("cost", "step", "lr", LOSS_SD):
        problems["negative"] = x < 0, f"{name} must be at least 0"
    if name in ("N", "D", "ptpp"):
        do = f"{name} is {NUMERIC[name]}; mend the number or its unit"
        problems["more than there can be"] = x > LARGEST_COUNT, do
    if name == "replay" or is_share(name):
        percent = (x > 1).sum() > np.isfinite(x).sum() / 2
        do = "these look like percent" if percent else f"{name} is a share"
        outside = (x < 0) | (x > 1)
        problems["outside [0, 1]"] = outside, f"{do}: write 0.34 or 34%"
    return problems


def point_columns(runs: pd.DataFrame) -> list[str]:
    """List columns that identify a point of a run; there can be only one loss at a
    point.
    """
    along = "step" if "step" in runs else "D"
    return [name for name in ("run", along, "domain") if name in runs]


def _check_repeats(runs: pd.DataFrame) -> None:
    """Refuse two losses of one run at one point. Different runs with equal covariates
    are replicates.
    """
    if not {"run", "loss"} <= set(runs):
        return
    keys = point_columns(runs)
    counts = runs.groupby(keys, dropna=False)["loss"].transform("nunique")
    twice = counts.to_numpy() > 1
    if twice.any():
        first = runs[twice].iloc[0]
        # two missing keys are equal
        point_of = runs.groupby(keys, dropna=False).ngroup().to_numpy()
        rows = row_numbers(runs)[point_of == point_of[twice][0]]
        point = ", ".join(
            f"{key} {'(empty)' if pd.isna(first[key]) else first[key]}" for key in keys
        )
        do = "name the runs apart (replicates are other runs) or drop the wrong row"
        what = f"different losses for one {point}"
        refuse(rows, "loss", what, do)
