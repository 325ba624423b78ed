"""Compute areas under learning rates from tables of logged steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.rates.areas import COLUMNS, areas, schedule_areas
from bayeslaw._tables.rows.cells import is_of_numbers, plain_cells
from bayeslaw._tables.rows.naming import check_repeated

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float, Int

    Curves = dict[str, Int[np.ndarray, " curve_row"]]
    Logged = Float[np.ndarray, " row"]

MOST_STEPS = 10_000_000


def areas_from_table(
    table: Table,
    *,
    warmup: int | None = None,
    adaptation_start: int | None = None,
    lr_power: float = 0.0,
) -> pd.DataFrame:
    """Add the area columns to a table of logged steps.

    Each curve is interpolated to one rate per step: linearly between logged steps, and
    by a warm-up before the first. Rows of a curve have the same ``run``, or without
    this column the same ``schedule`` or ``curve``, ``N`` and ``domain``. Without any of
    these columns all rows are one curve.

    Parameters
    ----------
    table
        Columns ``step``, counted through both phases, and ``lr``.
    warmup
        Steps of a linear ramp from 0 to the first logged rate; from there to the first
        logged step the rate is constant. By default it is the column ``warmup``;
        without this column the ramp ends at the first logged step, with a warning. It
        is not used if the log starts at step 1 or before.
    adaptation_start
        Last step of pre-training, if a curve continues into adaptation. 0: the whole
        curve is adaptation and pre-training is unknown; S1_pt and S2_pt are then empty.
        By default it is the column ``adaptation_start``; without this column the whole
        curve is pre-training.
    lr_power
        As in `areas`.

    Returns
    -------
    DataFrame
        The table with ``S1_pt``, ``S2_pt``, ``S1_cpt``, ``S2_cpt``; rows and index are
        those of ``table``.

    Raises
    ------
    RunTableError
        A column is missing, a step is not a whole number, or one step has two rates.

    Examples
    --------
    >>> logged = pd.DataFrame({"step": [0, 100, 200], "lr": [0.0, 2e-4, 0.0]})
    >>> bayeslaw.areas_from_table(logged)["S1_pt"].round(4).tolist()
    [0.0, 0.0101, 0.02]
    """
    table = as_frame(table)
    check_columns(table, ("step", "lr"), ": areas need 'step' and 'lr'")
    check_repeated(table.columns)
    if table.empty:
        raise RunTableError("areas need rows: the table has none")
    for name in ("step", "lr"):
        if not is_of_numbers(plain_cells(table[[name]])[name].dtype):
            raise RunTableError(f"areas need numbers, and column {name!r} holds others")
    rows = np.arange(len(table))
    curves = _find_curves(table, rows) or {"table": rows}
    settings = {"warmup": warmup, "adaptation_start": adaptation_start}
    return _add(table, curves, settings, lr_power)


def add_areas(table: pd.DataFrame) -> pd.DataFrame:
    """Add areas to a table that has ``step``, ``lr`` and curves of several steps, but no
    area columns.

    Curves without computable areas get empty cells and a warning, not an error: many
    laws do not read areas.
    """
    if not {"step", "lr"} <= set(table) or set(COLUMNS) & set(table):
        return table
    complete = table[["step", "lr"]].notna().all(axis=1)
    return _add(table, _find_curves(table, np.flatnonzero(complete)), lenient=True)


def _add(
    table: pd.DataFrame,
    curves: Curves,
    settings: Mapping[str, float | None] | None = None,
    lr_power: float = 0.0,
    lenient: bool = False,
) -> pd.DataFrame:
    """Add the areas of each curve; ``lenient``: warn of those without, not refuse."""
    values = np.full((len(table), len(COLUMNS)), np.nan)
    failed, assumed = [], []
    for name, rows in curves.items():
        curve = table.iloc[rows]
        first = float(curve["step"].min())
        try:
            warmup, split = (
                _read_setting(curve, column, (settings or {}).get(column), name)
                for column in ("warmup", "adaptation_start")
            )
            values[rows] = _compute_curve(curve, name, warmup, split, lr_power)
            assumed += [first] if warmup is None and first > 1 else []
        except RunTableError as error:
            if not lenient:
                raise
            failed.append(str(error))
    if failed:
        warn(
            f"no areas S1, S2 from 'step' and 'lr' for {len(failed)} of "
            f"{len(curves)} curves: {failed[0]}"
        )
    if assumed:
        last = f" to {max(assumed):g}" if max(assumed) > min(assumed) else ""
        warn(
            f"{len(assumed)} of {len(curves) - len(failed)} curves start at step "
            f"{min(assumed):g}{last}: areas S1, S2 take the learning rate to ramp linearly "
            "from 0 to the first row and to be linear between rows; if the warm-up was "
            "shorter, say so in a column 'warmup' (steps)"
        )
    if lenient and len(failed) == len(curves):
        return table
    return table.assign(**dict(zip(COLUMNS, values.T, strict=True)))


def _find_curves(table: pd.DataFrame, rows: Int[np.ndarray, " row"]) -> Curves:
    """Group rows by curve; empty if no named curve has several steps."""
    for column in (c for c in ("run", "schedule", "curve") if c in table):
        if not (table.groupby(column, observed=True)["step"].nunique() > 1).any():
            continue
        # several sizes or domains may share a schedule's name
        beside = [c for c in ("N", "domain") if c in table and column != "run"]
        keys = [column, *beside]
        curves = table.iloc[rows].groupby(keys, sort=False, observed=True).indices
        named = {}
        for key, at in curves.items():
            levels = zip(keys, key if isinstance(key, tuple) else (key,), strict=True)
            named[", ".join(f"{c} {level}" for c, level in levels)] = rows[at]
        return named
    return {}


def _compute_curve(
    curve: pd.DataFrame,
    name: str,
    warmup: float | None,
    split: float | None,
    power: float,
) -> Float[np.ndarray, "row area"]:
    steps, logged = curve["step"].to_numpy(float), curve["lr"].to_numpy(float)
    rates = fill_in(steps, logged, warmup=warmup, where=name)
    # after each step, from step 0; without a split there is no adaptation
    after = np.zeros((len(rates) + 1, len(COLUMNS)))
    if split == 0:  # pre-training is unknown
        adapted = areas(rates, lr_power=power)
        after[:, :2] = np.nan
        after[1:, 2:] = np.column_stack([adapted.S1, adapted.S2])
    else:
        last = len(rates) if split is None else int(split)
        phases = schedule_areas(rates[:last], rates[last:], lr_power=power)
        after[1:] = phases[list(COLUMNS)].to_numpy()
    return after[steps.astype(int)]


def _read_setting(
    curve: pd.DataFrame, column: str, steps: float | None, where: str
) -> float | None:
    """Read a number of steps: the argument for all curves, else this curve's column."""
    values: Any = [steps]
    if steps is None:
        values = curve[column].dropna().unique() if column in curve else []
    if len(values) == 0:
        return None
    try:
        (value,) = map(float, values)
    except (TypeError, ValueError):
        value = np.nan
    if value >= 0 and value == np.round(value):
        return value
    raise RunTableError(
        f"{where}: {column!r} must be one whole number of steps, at least 0; "
        f"got {', '.join(map(str, values[:3]))}"
    )


def fill_in(
    steps: Logged, rates: Logged, *, warmup: float | None = None, where: str = "table"
) -> Float[np.ndarray, " step"]:
    """Interpolate the rate at every step up to the last logged one, shape (step,)."""
    is_finite = np.isfinite(steps) & np.isfinite(rates)
    is_step = (steps >= 0) & (steps == np.round(steps))
    if not np.all(is_finite & is_step & (rates >= 0)):
        raise RunTableError(
            f"{where}: steps must be whole numbers and rates finite, neither below 0"
        )
    if steps.max() > MOST_STEPS:
        raise RunTableError(
            f"{where}: step {steps.max():g}, but areas are summed over at most "
            f"{MOST_STEPS:,} steps"
        )
    if steps.max() < 1:
        raise RunTableError(f"{where}: no step after step 0, so there is no schedule")
    logged, first = np.unique(steps, return_index=True)
    values = rates[first]
    contradicts = rates != values[np.searchsorted(logged, steps)]
    if contradicts.any():
        raise RunTableError(
            f"{where}, step {steps[contradicts][0]:g}: two learning rates; "
            "name the schedules apart in a column 'run'"
        )
    at = logged
    if logged[0] > 1:  # the log lacks the warm-up, which starts from 0 at step 0
        ramp = logged[0] if warmup is None else warmup
        if not 0 < ramp <= logged[0]:
            raise RunTableError(
                f"{where}: warm-up of {ramp:g} steps, "
                f"but the log starts at step {logged[0]:g}"
            )
        if ramp < logged[0]:  # the rate is constant after the ramp
            at, values = np.append(ramp, at), np.append(values[0], values)
        at, values = np.append(0.0, at), np.append(0.0, values)
    return np.interp(np.arange(1, int(logged[-1]) + 1), at, values)
