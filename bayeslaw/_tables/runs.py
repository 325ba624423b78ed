"""Read run tables: columns, units, validation. One row per measured loss."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_scalar

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.numbers import LARGEST_COUNT, MULTIPLES_OF_COUNTS, format_count
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    LOSS_SD,
    SHARE,
    SOURCE_LOSS_BEFORE,
    is_share,
)
from bayeslaw._tables.before import complete_losses, finished_query, with_stages
from bayeslaw._tables.columns import BOTH, melt_losses, pairs_of, renamed, replaced
from bayeslaw._tables.proposals import foreign_names
from bayeslaw._tables.rates.logged import add_areas
from bayeslaw._tables.rows import naming, shares
from bayeslaw._tables.rows.cells import (
    is_of_numbers,
    plain_cells,
    read_numbers,
    without_summary,
)
from bayeslaw._tables.rows.levels import with_levels
from bayeslaw._tables.rows.naming import NAMES, ColumnMap, check_repeated, named_rows
from bayeslaw._tables.rows.shares import evaluation_columns, share_columns
from bayeslaw._tables.sources.files import FORMATS, is_tracker, melt_wide, read_source
from bayeslaw._tables.sources.points import with_tokens
from bayeslaw._tables.suspicions import PastMinimumWarning, past_minimum, suspicions
from bayeslaw._tables.where import select

_BEFORE = "loss of the checkpoint before adaptation, nats per token"
_COMPUTED = "computed where there are columns step, lr and run"
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
    LOSS_BEFORE: _BEFORE,
    SOURCE_LOSS_BEFORE: f"source {_BEFORE}",
    "target_loss_before": f"target {_BEFORE}",
    "source_loss": "loss on the source domain, nats per token",
    "target_loss": "loss on the target domain, nats per token",
    "S1_pt": f"forward area of the pre-training schedule, {_COMPUTED}",
    "S2_pt": f"annealing area of the pre-training schedule, {_COMPUTED}",
    "S1_cpt": "forward area of the adaptation schedule",
    "S2_cpt": "annealing area of the adaptation schedule",
    "step": "step",
    "lr": "learning rate",
    "cost": "cost of the run",
}
POSITIVE = {"N", "D", "U", "ptpp", "pretrain_tokens"}
POSITIVE |= {n for n in NUMERIC if "loss" in n and n != LOSS_SD}
NOT_NEGATIVE = ("cost", "step", "lr", LOSS_SD)
# large: in 240,000 the comma groups thousands
COUNTS = ("N", "D", "U", "pretrain_tokens", "step", "cost")
COUNTED = ("N", "D", "ptpp")  # at most `LARGEST_COUNT`
TEXT = ("run", "checkpoint", "domain", "schedule", "seed")


def row_schema() -> dict[str, Any]:
    """Make the JSON schema of a row of a table under the schema's names. A number may
    be text, ``"8.1B"`` or ``"34%"``; an empty cell is null. Other columns are allowed.
    """
    cell = {"type": ["number", "string", "null"]}
    share = cell | {"minimum": 0, "maximum": 1}
    columns: dict[str, Any] = {name: dict(cell) for name in (*TEXT, *NUMERIC)}
    for name, what in NUMERIC.items():
        column = columns[name]
        column["description"] = what
        column |= {"exclusiveMinimum": 0} if name in POSITIVE else {}
        column |= {"minimum": 0} if name in NOT_NEGATIVE else {}
        column |= {"maximum": LARGEST_COUNT} if name in COUNTED else {}
    columns["replay"] |= share
    return {
        "description": "A row of the run table: a run, or a checkpoint of one.",
        "type": "object",
        "properties": columns,
        "patternProperties": {f"^{SHARE}.": share},
    }


def read_runs(
    source: str | Path | Table,
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
    """Runs that were read, and notes on how, one line each. ``mapped``: the columns
    that a mapping renamed or replaced, under the user's own names, row by row.
    """

    runs: pd.DataFrame
    notes: list[str]
    mapped: pd.DataFrame


def read_with_notes(
    source: Table | str | Path,
    *,
    where: str | None = None,
    columns: ColumnMap | Sequence[str] | None = None,
    grows: bool = False,
) -> Reading:
    """Read runs as `read_runs` does, with notes; of what ``grows``, whole lines."""
    pairs = pairs_of(columns)
    name = str(source) if isinstance(source, str | Path) else "the table"
    is_store = is_tracker(source)
    notes: list[str] = []

    # the table under the schema's names
    of_names = {theirs for theirs, ours in pairs if ours in NAMES}
    table = load_table(source, grows=grows, names=of_names)
    if is_store:  # a metric of whose name `columns` makes another column is dropped
        table = table.drop(columns=replaced(table, pairs))
    runs = _with_names(renamed(table, pairs, (*NUMERIC, *TEXT)), notes)
    runs.index = pd.RangeIndex(1, len(runs) + 1, name="row")
    if runs.empty:
        raise RunTableError(f"{name}: no rows below the header; add runs")
    gone = [column for column in table if column not in runs]
    mapped = table[gone].set_axis(runs.index)
    for column in gone:
        numbers, unread_cells = read_numbers(mapped[column])
        if not unread_cells and not is_of_numbers(mapped[column].dtype):
            mapped[column] = numbers

    # numbers, and columns that follow from others
    runs = without_summary(runs)
    if is_store and "D" not in runs:
        runs, how = with_tokens(runs)
        notes += [how] if how else []
    runs, unread = _parse_numbers(runs)
    runs = shares.with_shares(runs)
    evaluations = evaluation_columns(runs)
    melted = melt_losses(add_areas(with_stages(runs)), evaluations, unread)
    melted = with_levels(melted)
    if "loss" not in runs and "loss" in melted:
        which = "the" if evaluations else "both"
        notes.append(f"{which} losses of a row became a row each, by domain")
        for domain, column in (evaluations or BOTH).items():
            empty = runs.index[runs[column].isna().to_numpy()]
            if len(empty):
                notes.append(
                    f"{named_rows(empty)}: no loss on {domain}, and no row of it"
                )
    if is_store:
        melted = _keep_measured(melted, name, notes)
    melted = complete_losses(melted)

    # the rows that are asked for, and what is wrong with them
    runs = select(melted, where, mapped)
    mapped = mapped.reindex(runs.index)
    _check(runs, unread)
    runs = _with_curves(runs)
    kinds = ["read"]
    if any(ours in ("N", "D") for _, ours in pairs):
        kinds.append("mapped")
    for line in suspicions(runs, *kinds):
        warn(line)
    risen = past_minimum(runs)
    if risen is not None:
        warn(risen, PastMinimumWarning)
    if not runs.index.is_unique:
        runs = runs.set_axis(pd.RangeIndex(1, len(runs) + 1, name="row"))
    return Reading(runs, notes, mapped.set_axis(runs.index))


def _check(runs: pd.DataFrame, unread: Mapping[str, Mapping[Any, str]]) -> None:
    """Refuse cells that are no numbers or out of range, and two losses of one point."""
    for name, reasons in unread.items():
        rows = [row for row in reasons if row in runs.index]
        if rows:
            raise RunTableError(
                f"{named_rows(rows)}, column {name!r}: {reasons[rows[0]]}"
            )
    check_values(runs, numeric_columns(runs))
    shares.check_shares(runs)
    if not {"run", "loss"} <= set(runs):
        return
    # different runs with equal covariates are replicates
    keys = point_columns(runs)
    points = runs.groupby(keys, dropna=False)
    twice = points["loss"].transform("nunique").to_numpy() > 1
    if twice.any():
        number = points.ngroup().to_numpy()
        rows = number == number[twice][0]
        point = ", ".join(
            f"{key} {'(empty)' if pd.isna(cell) else cell}"
            for key, cell in runs[keys][rows].iloc[0].items()
        )
        do = "name the runs apart (replicates are other runs) or drop the wrong row"
        what = f"different losses for one {point}"
        refuse(row_numbers(runs)[rows], "loss", what, do)


def _with_names(runs: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Read names as text, and make a column ``run`` if another one names the runs."""
    runs = runs.assign(**{n: naming.as_names(runs[n]) for n in NAMES if n in runs})
    for name in (n for n in NAMES if n in runs):
        names = pd.Series(runs[name].dropna().unique())
        twice = names[names.map(str.casefold).duplicated(keep=False)]
        if len(twice):
            listed = ", ".join(map(repr, twice[:4]))
            warn(
                f"column {name!r} has names that differ in case only ({listed}), which are "
                "read as different: spell those alike that are meant to be one"
            )
    theirs, doubt = naming.find_run_column(runs)
    if doubt is not None:
        warn(
            f"{doubt}, so it is not taken as the name of the run: mend the names, or say "
            "so by --column run=yours"
        )
    if theirs is None:
        return runs
    notes.append(f"run is column {theirs!r}")
    return runs.assign(run=naming.as_names(runs[theirs]))


def _with_curves(runs: pd.DataFrame) -> pd.DataFrame:
    curves = naming.unnamed_curves(runs)
    if curves is None:
        return runs
    count = curves.names.nunique()
    do = "name the run of each row in a column 'run' (--column run=yours)"
    finding = f"no column names the runs, and {count} curves have {naming.CURVE} points and more"
    if not curves.are_runs:
        warn(
            f"{finding}, some with two losses at one D: each row counts as a run of its "
            f"own, so that points of one run pass for independent; {do}"
        )
    elif count > 1:  # a single curve needs no warning
        warn(
            f"{finding}: rows alike in all but D are taken as the points of one run; {do} "
            "to say otherwise"
        )
    return runs.assign(run=curves.names) if curves.are_runs else runs


def _keep_measured(points: pd.DataFrame, where: str, notes: list[str]) -> pd.DataFrame:
    """Keep a tracker's points after the first token, with a loss if that is known."""
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
        named = ", ".join(without[:3])
        warn(f"{where}: no loss in {len(without)} runs, left out: {named}")
    return measured


def as_runs(source: object) -> pd.DataFrame:
    """Return a table as it is, or read it from a file's path, as all functions that
    take one. A table that was read before (its index is named ``row``) may have changed
    since: it is checked again, without warnings. Other rows keep their own labels.
    """
    if isinstance(source, str | Path):
        return read_with_notes(source).runs
    table = frame_of(source)
    if table.index.name == "row" and len(table):
        check_repeated(table.columns)
        runs, unread = _parse_numbers(table.copy(deep=False))
        runs = with_levels(runs)
        _check(runs, unread)
        return runs
    runs = read_with_notes(table).runs
    if not runs.index.equals(pd.RangeIndex(1, len(table) + 1)):
        return runs
    # a named index is a column now
    return runs.set_axis(table.index.set_names([None] * table.index.nlevels))


def as_design(source: object) -> pd.DataFrame:
    """Return a table of which no losses are read, numbers checked; or read a path."""
    if isinstance(source, str | Path):
        return read_with_notes(source).runs
    table = frame_of(source)
    check_repeated(table.columns)
    if table.empty:
        raise RunTableError("the table: no rows below the header; add runs")
    measured = table.columns.intersection(["loss", *BOTH.values()])
    rows = plain_cells(table.drop(columns=measured))
    rows = rows.set_axis(pd.RangeIndex(1, len(rows) + 1, name="row"))
    rows, unread = _parse_numbers(rows)
    _check(rows, unread)
    return table.assign(**{c: rows[c].to_numpy() for c in numeric_columns(rows)})


def frame_of(source: object) -> pd.DataFrame:
    source = as_frame(source)
    if isinstance(source, pd.DataFrame):
        levels = source.columns.nlevels
        if levels > 1:
            raise RunTableError(
                f"the table's columns have {levels} levels of names; give each one name: "
                "table.columns = ['_'.join(map(str, c)) for c in table.columns]"
            )
        return source
    do = "make it one by pandas.DataFrame(...)"
    if isinstance(source, pd.Series):
        do = "give the table of which it is a column, or a row with named values"
        source = source.to_dict() if {*source.index} & {*NUMERIC} else source
    elif hasattr(source, "log_loss") or hasattr(source, "latex"):
        do = (
            "the table comes second where a fit comes first, and first where a law does"
        )
    if isinstance(source, Mapping) and source:
        is_row = all(map(is_scalar, source.values()))
        try:
            return pd.DataFrame([source] if is_row else dict(source))
        except ValueError as error:  # columns of several lengths
            raise RunTableError(f"a table of runs: {error}") from None
    if (
        isinstance(source, list)
        and source
        and all(isinstance(record, Mapping) for record in source)
    ):
        return pd.DataFrame(source)
    raise RunTableError(
        f"a table of runs is a DataFrame or the path of a file ({FORMATS}); got "
        f"{type(source).__name__}: {do}"
    )


def load_table(
    source: Table | str | Path,
    *,
    grows: bool = False,
    names: Collection[str] = (),
) -> pd.DataFrame:
    """Load a table under its own names, numbers parsed, but for those in ``names``."""
    if isinstance(source, str | Path):
        table = read_source(source, grows=grows, names=names)
    else:
        table = frame_of(source)
        # an index that has names or holds text may name the runs
        index = list(table.index.names)
        if index == [None] and table.index.inferred_type == "string":
            index = ["index"]
        is_unnamed = None in index or index == ["row"] or {*index} & {*table.columns}
        named = table.copy() if is_unnamed else table.reset_index(names=index)
        named.attrs, table = table.attrs, named
        check_repeated(table.columns)
    table = plain_cells(table)
    if is_tracker(source):
        return table
    is_blank = table.isna().all(axis=1)
    if is_blank.any() and not is_blank.all() and not isinstance(source, pd.DataFrame):
        table = table[~is_blank].reset_index(drop=True)
    return melt_wide(table)


def numeric_columns(runs: pd.DataFrame) -> list[str]:
    """List columns of numbers by name: the schema's, shares, and sets' losses."""
    of_schema = [name for name in NUMERIC if name in runs]
    return [*of_schema, *share_columns(runs), *evaluation_columns(runs).values()]


def _parse_numbers(
    runs: pd.DataFrame,
) -> tuple[pd.DataFrame, dict[str, dict[Any, str]]]:
    """Convert the schema's columns to floats; tell by column and row why others."""
    unread: dict[str, dict[Any, str]] = {}
    for name in numeric_columns(runs):
        cells, of_share = runs[name], name == "replay" or is_share(name)
        # thousands for tokens, but not for nats
        suffixes = "%" if of_share else ""
        if name in (*COUNTS, "ptpp"):
            suffixes = MULTIPLES_OF_COUNTS
        values, reasons = read_numbers(cells, counts=name in COUNTS, suffixes=suffixes)
        if of_share:
            # shares that differ from 0 or 1 by an error of arithmetic lie at these ends
            ends = values.round().clip(0.0, 1.0)
            values = values.where((values - ends).abs() > 1e-9, ends)
        if of_share and not is_of_numbers(cells.dtype):
            written = cells.dropna().astype(str).str.strip()
            percent = written.str.endswith("%")
            fraction = ~percent & ~written.isin(("0", "0.0"))
            if percent.any() and fraction.any():
                example = f"{written[percent].iloc[0]} and {written[fraction].iloc[0]}"
                warn(
                    f"column {name!r} mixes percent with fractions ({example}): "
                    "read as written; write all of them one way"
                )
        is_integer = pd.api.types.is_integer_dtype(cells.dtype)
        bits = 8 * getattr(cells.dtype, "itemsize", 8)
        if name in COUNTS and is_integer and bits <= 32:
            # integers of 32 bits overflow at 2.1 billion, to negative ones; others may
            # have begun again from 0, which the table does not show
            why = (
                f"below 0 in integers of {bits} bits, which hold no more than 2.1 "
                "billion: the column overflowed, also where it is above 0; write it as "
                "64-bit integers or floats"
            )
            reasons |= dict.fromkeys(values.index[values < 0], why)
            is_unsigned = str(cells.dtype).casefold().startswith("u")
            most, largest = 2.0 ** (32 if is_unsigned else 31), values.max()
            if not reasons and most / 2 < largest < most:
                warn(
                    f"column {name!r} is of 32-bit integers, which hold up to "
                    f"{format_count(most)}, and reaches {format_count(largest)}: larger "
                    "counts would have overflowed to smaller ones; write it as 64-bit "
                    "integers or floats"
                )
        runs[name] = values
        if reasons:
            unread[name] = reasons
    return runs, unread


def refuse(rows: Iterable[object], column: str, what: str, do: str) -> None:
    where = f"{named_rows(rows)}, column {column!r}"
    raise RunTableError(f"{where}: {what}; {do}")


def check_values(
    runs: pd.DataFrame, names: Iterable[str], positive: Collection[str] = ()
) -> None:
    """Refuse values that these columns cannot hold; ``positive`` ones are above 0."""
    for name in (n for n in names if n in runs):
        x, what = runs[name].to_numpy(float), NUMERIC.get(name, "a setting")
        # each fault: the rows with it, and what to do
        faults = {"infinite": (np.isinf(x), "remove the run or mend the number")}
        if name == "loss":
            query = " and ".join(filter(None, ["loss > 0", finished_query(runs)]))
            do = f'leave such runs out (--where "{query}") or measure them'
            faults = {"NaN or empty": (np.isnan(x), do)} | faults
        if name in POSITIVE or name in positive:
            do = (
                f"{name} is {what} and must be above 0; mend it, or leave such rows out "
                f'(--where "{name} > 0")'
            )
            faults["not positive"] = x <= 0, do
        if name in NOT_NEGATIVE:
            faults["negative"] = x < 0, f"{name} must be at least 0"
        if name in COUNTED:
            do = f"{name} is {what}; mend the number or its unit"
            faults["more than there can be"] = x > LARGEST_COUNT, do
        if name == "replay" or is_share(name):
            percent = (x > 1).sum() > np.isfinite(x).sum() / 2
            do = "these look like percent" if percent else f"{name} is a share"
            faults["outside [0, 1]"] = (x < 0) | (x > 1), f"{do}: write 0.34 or 34%"
        for fault, (wrong, do) in faults.items():
            if wrong.any():
                first = x[wrong][0]
                fault = fault if np.isnan(first) else f"{first:g} is {fault}"
                refuse(row_numbers(runs)[wrong], name, fault, do)


def row_numbers(runs: pd.DataFrame) -> pd.Index:
    """Number the rows as in their file, from 1, else as in the table."""
    if runs.index.name == "row":
        return runs.index
    return pd.RangeIndex(1, len(runs) + 1)


def point_columns(runs: pd.DataFrame) -> list[str]:
    """List columns that identify a point of a run, at which there is one loss."""
    along = "step" if "step" in runs else "D"
    return [name for name in ("run", along, "domain") if name in runs]
