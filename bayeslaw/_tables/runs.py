"""Run tables: columns, units, validation. One row per measured loss."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, RunTableWarning
from bayeslaw._base.numbers import LARGEST_COUNT, parse_number
from bayeslaw._tables.before import (
    finished_query,
    warn_unfinished,
    with_gaps_filled,
    with_stages,
    without_starts,
)
from bayeslaw._tables.columns import melt_losses, renamed, replaced
from bayeslaw._tables.logged import add_areas
from bayeslaw._tables.sources.points import with_tokens
from bayeslaw._tables.sources.source import KINDS, is_tracker, read_source
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
    "loss_before": "loss of the checkpoint before adaptation, nats per token",
    "source_loss_before": (
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
    *(n for n in NUMERIC if "loss" in n),
)
NOT_NEGATIVE = ("cost", "step", "lr")
COUNTS = (
    "N",
    "D",
    "U",
    "pretrain_tokens",
    "step",
    "cost",
)  # large: in 240,000 the comma groups thousands
SHOWN = 3  # rows named in a message
WIDEST = 1e4  # ratio of neighbours in a column of one unit; measured tables: under 100
TEXT = ("run", "checkpoint", "domain", "schedule", "seed")


def read_runs(
    source: str | Path | pd.DataFrame,
    *,
    where: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Read, select and validate a table of runs.

    Tables exported by experiment trackers name columns ``config.N``, ``params.N``,
    ``summary/loss`` or ``metrics.loss``: they are read as ``N`` and ``loss`` where the
    table has no column of that name itself.

    A table with both losses in one row, ``target_loss`` and ``source_loss``, and no
    ``loss`` or ``domain``, becomes one with a row for each.

    A table with columns ``step`` and ``lr``, the rows of a curve named by ``run`` (or
    ``schedule``, ``curve``), gets its areas S1 and S2 if it has none; they sum over all
    rows of the curve, selected or not (`areas_from_table`).

    The store of an experiment tracker is a table, too: a row for each run and step at
    which a loss was logged, settings and metrics as columns. Where it has no ``D``, a
    logged counter of tokens is, else steps times the tokens of a step as the settings
    tell them, with a warning.

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
        Your column name -> name of the schema, for tables with other names; yours may
        end in a factor, for other units: ``{"tokens_B*1e9": "D", "replay_pct/100":
        "replay"}``, or be a number that all rows share: ``{"124M": "N"}``.

    Returns
    -------
    DataFrame
        The selected rows; schema columns as floats. Its index keeps the row numbers of
        the source, from 1.

    Raises
    ------
    RunTableError
        What cannot be used, naming row and column.
    """
    return read_with_notes(source, where=where, columns=columns).runs


class Reading(NamedTuple):
    """Runs that were read, and what was made of their source, a line each."""

    runs: pd.DataFrame
    notes: list[str]


def read_with_notes(
    source: str | Path | pd.DataFrame,
    *,
    where: str | None = None,
    columns: Mapping[str, str] | None = None,
    grows: bool = False,
) -> Reading:
    """`read_runs`, and what was made of the source; of a file that ``grows``, its whole
    lines.
    """
    given = load_table(source, grows=grows)
    columns = columns or {}
    if is_tracker(source):
        # a metric that is called like the schema's gives way to the one that is meant
        given = given.drop(columns=replaced(given, columns))
    runs = renamed(given, columns, (*NUMERIC, *TEXT))
    runs.index = pd.RangeIndex(1, len(runs) + 1, name="row")
    if runs.empty:
        raise RunTableError(f"{_name(source)}: no rows below the header; add runs")
    notes: list[str] = []
    if is_tracker(source) and "D" not in runs:
        runs, tokens = with_tokens(runs)
        if tokens is not None:
            notes.append(tokens.how)
        if tokens is not None and tokens.assumed:
            warnings.warn(tokens.how, RunTableWarning, stacklevel=3)
    runs, unread = _numbers(runs)
    melted = melt_losses(add_areas(with_stages(runs)))
    if "loss" not in runs and "loss" in melted:
        notes.append("both losses of a row became a row each, by domain")
    if is_tracker(source):
        melted = _measured(melted, _name(source), notes)
    else:
        melted = without_starts(melted)
    melted = with_gaps_filled(melted)
    runs = select(melted, where)
    for name, reasons in unread.items():
        rows = [row for row in reasons if row in runs.index]
        if rows:
            raise RunTableError(
                f"{named_rows(rows)}, column {name!r}: {reasons[rows[0]]}"
            )
    _check_values(runs)
    warn_unfinished(runs)
    _check_repeats(runs)
    _warn_twins(runs)
    _warn_units(runs)
    if not runs.index.is_unique:
        runs = runs.set_axis(pd.RangeIndex(1, len(runs) + 1, name="row"))
    return Reading(runs, notes)


def _measured(points: pd.DataFrame, where: str, notes: list[str]) -> pd.DataFrame:
    """Points of a tracker's runs at which the loss was logged, if it is known which
    metric that is, after the first token.
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
        warnings.warn(
            f"{where}: no loss in {len(without)} runs, left out: "
            f"{', '.join(without[:SHOWN])}",
            RunTableWarning,
            stacklevel=4,
        )
    return measured


def as_runs(given: object) -> pd.DataFrame:
    """A table as it was given, or read from the path of its file: one place for all
    functions that take a table.

    Raises
    ------
    RunTableError
        It is neither, or the file cannot be used.
    """
    if isinstance(given, pd.DataFrame):
        return given
    if isinstance(given, str | Path):
        return read_runs(given)
    raise RunTableError(
        f"a table of runs is a DataFrame or the path of a file ({KINDS}); "
        f"got {type(given).__name__}"
    )


def _name(source: str | Path | pd.DataFrame) -> str:
    if isinstance(source, pd.DataFrame):
        return "the table"
    return str(source)


def load_table(
    source: str | Path | pd.DataFrame, *, grows: bool = False
) -> pd.DataFrame:
    given = isinstance(source, pd.DataFrame)
    table = source.copy() if given else read_source(source, grows=grows)
    if is_tracker(source):
        return table
    table, told = long(table)
    if told:
        warnings.warn(told, RunTableWarning, stacklevel=4)
    return table


def _numbers(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, dict[int, str]]]:
    """Schema columns as floats, and why cells are no numbers: column -> row -> reason."""
    unread: dict[str, dict[int, str]] = {}
    for name in (n for n in NUMERIC if n in runs):
        if pd.api.types.is_numeric_dtype(runs[name]):
            runs[name] = runs[name].astype(float)
            continue
        _warn_percent(name, runs[name])
        values = np.full(len(runs), np.nan)
        for i, cell in enumerate(runs[name]):
            if pd.isna(cell):
                continue
            try:
                values[i] = parse_number(cell, counts=name in COUNTS)
            except RunTableError as error:
                unread.setdefault(name, {})[int(runs.index[i])] = str(error)
        runs[name] = values
    return runs, unread


def _warn_percent(name: str, cells: pd.Series) -> None:
    written = cells.dropna().astype(str).str.strip()
    percent = written.str.endswith("%")
    fraction = ~percent & ~written.isin(("0", "0.0"))
    if percent.any() and fraction.any():
        example = f"{written[percent].iloc[0]} and {written[fraction].iloc[0]}"
        warnings.warn(
            f"column {name!r} mixes percent with fractions ({example}): "
            "read as written; write all of them one way",
            RunTableWarning,
            stacklevel=4,
        )


def named_rows(rows: Iterable[object]) -> str:
    """``row 3``, or ``rows 3, 4, 7 and 12 more``."""
    names = list(map(str, rows))
    word = "row" if len(names) == 1 else "rows"
    shown = ", ".join(names[:SHOWN])
    left = len(names) - SHOWN
    more = f" and {left} more" if left > 0 else ""
    return f"{word} {shown}{more}"


def refuse(rows: list[int], column: str, what: str, do: str) -> None:
    where = f"{named_rows(rows)}, column {column!r}"
    raise RunTableError(f"{where}: {what}; {do}")


def _check_values(runs: pd.DataFrame) -> None:
    for name in (n for n in NUMERIC if n in runs):
        x = runs[name].to_numpy()
        for what, (wrong, do) in _problems(name, x, runs).items():
            if wrong.any():
                first = x[wrong][0]
                shown = what if np.isnan(first) else f"{first:g} is {what}"
                refuse([int(row) for row in runs.index[wrong]], name, shown, do)


def _problems(
    name: str, x: Float[np.ndarray, " run"], runs: pd.DataFrame
) -> dict[str, tuple[Bool[np.ndarray, " run"], str]]:
    """What may be wrong with a column ``x`` of shape (run,): rows where it is, and what
    to do.
    """
    problems = {}
    if name == "loss":
        query = " and ".join(filter(None, ["loss > 0", finished_query(runs)]))
        do = f'leave such runs out (--where "{query}") or measure them'
        problems["NaN or empty"] = np.isnan(x), do
    problems["infinite"] = np.isinf(x), "remove the run or mend the number"
    if name in POSITIVE:
        do = f"{name} is {NUMERIC[name]} and must be above 0"
        problems["not positive"] = x <= 0, do
    if name in NOT_NEGATIVE:
        problems["negative"] = x < 0, f"{name} must be at least 0"
    if name in ("N", "D", "ptpp"):
        do = f"{name} is {NUMERIC[name]}; mend the number or its unit"
        problems["more than there can be"] = x > LARGEST_COUNT, do
    if name == "replay":
        percent = (x > 1).sum() > np.isfinite(x).sum() / 2
        do = "these look like percent" if percent else "replay is a share"
        outside = (x < 0) | (x > 1)
        problems["outside [0, 1]"] = outside, f"{do}: write 0.34 or 34%"
    return problems


def point_columns(runs: pd.DataFrame) -> list[str]:
    """Columns that name a point of a run; there can be one loss there."""
    along = "step" if "step" in runs else "D"
    return [name for name in ("run", along, "domain") if name in runs]


def _check_repeats(runs: pd.DataFrame) -> None:
    """One run cannot have two losses at one point; other runs with equal covariates are
    replicates.
    """
    if not {"run", "loss"} <= set(runs):
        return
    keys = point_columns(runs)
    counts = runs.groupby(keys, dropna=False)["loss"].transform("nunique")
    twice = counts.to_numpy() > 1
    if twice.any():
        first = runs[twice].iloc[0]
        rows = runs.index[(runs[keys] == first[keys]).all(axis=1)]
        point = ", ".join(f"{key} {first[key]}" for key in keys)
        do = "name the runs apart (replicates are other runs) or drop the wrong row"
        what = f"different losses for one {point}"
        refuse([int(row) for row in rows], "loss", what, do)


def _warn_twins(runs: pd.DataFrame) -> None:
    """The same rows exported twice would count as replicates: as that many more runs."""
    if "loss" not in runs:
        return
    twins = runs.duplicated(keep="first").to_numpy()
    if twins.any():
        warnings.warn(
            f"{named_rows(runs.index[twins])}: the same as an earlier row in every "
            "column, and counted as further runs; drop them if the table was exported "
            "twice, name the runs apart (column 'run') if they are replicates",
            RunTableWarning,
            stacklevel=3,
        )


def _warn_units(runs: pd.DataFrame) -> None:
    def warn(message: str) -> None:
        warnings.warn(message, RunTableWarning, stacklevel=4)

    if "N" in runs and bool((runs["N"] < 1000).all()):
        warn(
            f"column 'N' is at most {runs['N'].max():g}: model parameters in millions "
            "or billions? write 8.1B or 8.1e9"
        )
    if {"N", "D"} <= set(runs) and bool(((runs["D"] < 1e4) & (runs["N"] > 1e4)).all()):
        warn(
            f"column 'D' is at most {runs['D'].max():g}: billions, or tokens per "
            "parameter? D is tokens: multiply by 1e9 (--column D=yours*1e9) or by N"
        )
    for name in (n for n in ("N", "D", "ptpp", "cost") if n in runs):
        apart = _apart(runs[name])
        if apart is not None:
            small, large = apart
            few = min(apart, key=len)
            warn(
                f"column {name!r} is at most {runs[name][small].max():g} in "
                f"{len(small)} rows and at least {runs[name][large].min():g} in "
                f"{len(large)}, with nothing between: two units in one column? look at "
                f"{named_rows(few)}"
            )


def _apart(column: pd.Series) -> tuple[pd.Index, pd.Index] | None:
    """Rows on either side of the widest gap of a column, if it is wider than those of
    measured tables; None if not.
    """
    positive = column[column > 0]
    known = positive.sort_values()
    logs = np.log(known.to_numpy(float))
    steps = np.diff(logs)
    if not len(steps) or steps.max() < np.log(WIDEST):
        return None
    cut = int(np.argmax(steps)) + 1
    small, large = known.index[:cut], known.index[cut:]
    return small.sort_values(), large.sort_values()
