"""Make a table of points from runs as trackers logged them: a row for each run and
step, and a column for each metric and setting.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.numbers import format_count
from bayeslaw._tables import words
from bayeslaw._tables.rows.cells import leaves
from bayeslaw._tables.rows.naming import LOSSES
from bayeslaw._tables.words import OWN_STEP, WHOLE_BATCH, last_part


def imported(module: str, extra: str) -> ModuleType:
    """Import a library of an extra when a store or a sheet needs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RunTableError(
            f"{module.split('.')[0]} is needed to read this ({error}): "
            f'pip install "bayeslaw[{extra}]"'
        ) from None


@dataclass(frozen=True)
class LoggedRun:
    """One run: its name, settings, and metrics by step."""

    name: str
    config: Mapping[str, Any]
    # step -> metric -> value
    history: Mapping[float, Mapping[str, float]] = field(repr=False)


def points(runs: Sequence[LoggedRun], where: str) -> pd.DataFrame:
    """Make a row for each step of each run, columns ``run``, ``step``, metrics,
    settings; a setting that has the name of one of these or of a loss becomes
    ``config.NAME``.
    """
    if not runs:
        raise RunTableError(f"{where}: no runs")
    logged = [run for run in runs if run.history]
    if not logged:
        names = ", ".join(run.name for run in runs[:3])
        raise RunTableError(f"{where}: no run has logged a number (runs: {names})")
    metrics = {m for run in logged for row in run.history.values() for m in row}
    # a setting may name the loss that is minimised; it is not a measured loss
    reserved = {"run", "step", *LOSSES, *metrics}
    rows = []
    times: Counter[str] = Counter()
    for run in logged:
        # of runs with the same name the first keeps it, since a query may use it
        times[run.name] += 1
        count = times[run.name]
        called = run.name if count == 1 else f"{run.name}#{count}"
        settings = {
            (f"config.{name}" if name in reserved else name): value
            for name, value in leaves(run.config)
            if isinstance(value, str | bool | int | float)
        }
        for step in sorted(run.history):
            point = {"run": called, "step": step}
            rows.append(settings | dict(run.history[step]) | point)
    table = pd.DataFrame(rows)
    first = ["run", "step", *sorted(metrics - {"run", "step"})]
    return table[[*first, *(c for c in table if c not in first)]]


def files_below(place: str, pattern: str, what: str) -> tuple[Path, list[Path]]:
    """List a folder's files of this name, at any depth; or the one file that is given."""
    folder = Path(place)
    if not folder.exists():
        raise RunTableError(f"no such folder; give {what}")
    files = [folder] if folder.is_file() else sorted(folder.rglob(pattern))
    if not files:
        raise RunTableError(f"no {pattern} in it or below")
    return folder, files


def name_below(folder: Path, place: Path) -> str:
    """Name a run by its folder, relative to the folder that was given."""
    # a single file or checkpoint was given, and no folder
    if place == folder or not place.is_relative_to(folder):
        return place.resolve().name
    return place.relative_to(folder).as_posix()


def by_step(
    logged: Sequence[tuple[float, Mapping[str, Any]]],
) -> dict[float, dict[str, float]]:
    """Order metrics by step, from values logged call by call; the last value for a step
    counts. A step that the training logs with every call goes before the tracker's.
    """
    rows = [row for _, row in logged]
    shared = [name for name in OWN_STEP if all(name in row for row in rows)]
    history: dict[float, dict[str, float]] = {}
    for step, values in logged:
        at = values.get(shared[0], math.nan) if shared else step
        if not (_is_number(at) and math.isfinite(at)):
            continue
        # NaN means that a run diverged, and infinity is refused when the table is read;
        # NaN would be taken for a step at which nothing was logged
        row = {
            name: math.inf if math.isnan(value) else float(value)
            for name, value in values.items()
            if _is_number(value) and name not in OWN_STEP and name[:1] != "_"
        }
        history.setdefault(float(at), {}).update(row)
    return {step: row for step, row in history.items() if row}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def by_time(
    logged: Sequence[tuple[float, float, str, Any]],
) -> dict[float, dict[str, float]]:
    """Order metrics by step, written in order of time: a restart writes some again."""
    in_order = sorted(logged, key=lambda event: event[0])
    return by_step([(step, {name: value}) for _, step, name, value in in_order])


def with_tokens(table: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """Add a column ``D``: a logged counter, else steps times the tokens of a step from
    the settings. Without either the table is unchanged. Also returns how it was made;
    if that assumes values that were not logged, with a warning.
    """
    # a setting may have the name of a counter, too, for the planned tokens
    counters = [
        name
        for name in map(str, table)
        if last_part(name) in words.TOKENS_SEEN
        and pd.api.types.is_numeric_dtype(table[name])
        and table[name].nunique() > 1
    ]
    for second in counters[1:]:
        counts = table[[counters[0], second]].dropna()
        first = counts[counters[0]]
        # loggers round large counts; counters without a common step cannot be compared
        apart = (first - counts[second]).abs() > 1e-3 * first.abs()
        if apart.any() or counts.empty:
            raise RunTableError(
                f"{counters[0]!r} and {second!r} both count tokens, and differ; say which "
                f'is meant: --column "D={counters[0]}" or --column "D={second}"'
            )
    if counters:
        tokens = pd.Series(np.nan, table.index)
        for _, rows in table.groupby("run"):
            logged = rows[["step", counters[0]]].dropna().sort_values("step")
            # on a line between the steps that logged it; the tokens before the first of
            # them, and of an evaluation after the last, are unknown
            steps, counts = logged["step"], logged[counters[0]]
            if len(logged):
                tokens[rows.index] = np.interp(
                    rows["step"], steps, counts, left=np.nan, right=np.nan
                )
        return table.assign(D=tokens), f"D is what {counters[0]!r} counted"
    factors = step_factors(table)
    if not factors:
        return table, None
    tokens = table[factors].astype(float).prod(axis=1, skipna=False)
    text = " or ".join(sorted({format_count(n) for n in tokens.unique()}))
    how = f"D is steps x {text} tokens ({' x '.join(factors)})"
    if last_part(factors[0]) not in words.PER_STEP:
        how += '; if a step has others, say so: --column "D=step*TOKENS"'
        warn(how)
    return table.assign(D=table["step"] * tokens), how


def step_factors(
    table: pd.DataFrame, batches: Sequence[str] = words.BATCH
) -> list[str]:
    """List the settings whose product is the tokens of a step: one that says so, else
    batch and length, a batch per device times devices and accumulated batches.
    """

    def find(*names: str) -> list[str]:
        """Find the column of the first of these names with numbers in all rows."""
        for name in names:
            called = [str(c) for c in table if last_part(c) == name]
            numbers = (pd.to_numeric(table[c], errors="coerce") for c in called)
            full = [c for c, x in zip(called, numbers, strict=True) if (x > 0).all()]
            if len(full) == 1:
                return full
        return []

    batch, length = find(*batches), find(*words.LENGTH)
    factors = batch + length if batch and length else []
    if factors and last_part(batch[0]) not in WHOLE_BATCH:
        factors += find(*words.ACCUMULATED) + find(*words.DEVICES)
    return find(*words.PER_STEP) or factors
