"""Learning-rate schedules and their areas, which the annealing laws read as covariates.

S1(t) = sum_{i<=t} eta_i,    S2(t) = sum_{i<=t} m_i,    m_i = sum_{k<=i} (eta_{k-1} - eta_k) lambda^(i-k),

the forward and the annealing area (Tissue 2024; Wang 2025, eq. 1), with lambda = .999. The momentum obeys
m_i = lambda m_{i-1} + eta_{i-1} - eta_i, so both areas cost one pass. The sum starts at step 1 with eta_0 = 0: the
warm-up ramp is part of it, and S2 is negative until the rate has come down again.

A schedule is an array of learning rates at steps 1, 2, ..., shape (step,).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bayeslaw._errors import RunTableError, RunTableWarning

if TYPE_CHECKING:
    import pandas as pd

LAMBDA = 0.999  # Tissue 2024; Wang 2025, appendix C
COLUMNS = ("S1_pt", "S2_pt", "S1_cpt", "S2_cpt")
CURVES = ("run", "schedule", "curve")  # columns that name a curve, the first of them that gives one several rows
WITHIN = ("N", "domain")  # the name of a schedule may come back at another size or domain
MAX_STEPS = 10_000_000

# -- schedules -------------------------------------------------------------------------------------------------------


def constant(peak: float, steps: int, *, warmup: int = 0, start: float = 0.0) -> np.ndarray:
    """The peak at every step after the warm-up. Shape (step,).

    Parameters
    ----------
    peak, steps
        Highest learning rate, and number of steps with the warm-up.
    warmup, start
        Steps of the linear ramp from ``start`` to ``peak``. An adaptation phase re-warms from ``start`` = 0 (Wang
        2025, section 4.1) or from the last rate of pre-training.
    """
    return _warmed(peak, steps, warmup, start, np.ones(max(steps - warmup, 0)), peak)


def cosine(peak: float, steps: int, *, final: float = 0.0, warmup: int = 0, start: float = 0.0) -> np.ndarray:
    """Half a cosine from the peak to ``final`` at the last step. Shape (step,)."""
    return _warmed(peak, steps, warmup, start, 0.5 * (1 + np.cos(np.pi * _progress(steps - warmup))), final)


def wsd(
    peak: float,
    steps: int,
    *,
    decay: int,
    final: float = 0.0,
    shape: Literal["linear", "exponential"] = "linear",
    warmup: int = 0,
    start: float = 0.0,
) -> np.ndarray:
    """Warm-up, stable, and a decay to ``final`` over the last ``decay`` steps. Shape (step,).

    An exponential decay needs ``final`` above 0.
    """
    if not 0 <= decay <= steps - warmup:
        raise ValueError(f"decay = {decay} steps, but {steps - warmup} are left after the warm-up")
    stable = np.ones(steps - warmup - decay)
    if shape == "linear":
        return _warmed(peak, steps, warmup, start, np.concatenate([stable, 1 - _progress(decay)]), final)
    if final <= 0:
        raise ValueError(f"an exponential decay never reaches {final:g}: give final above 0")
    rates = np.concatenate([np.full(len(stable), peak), peak * (final / peak) ** _progress(decay)])
    return np.concatenate([_ramp(peak, warmup, start), rates])


def multi_step(
    peak: float, steps: int, *, drops: Mapping[int, float], warmup: int = 0, start: float = 0.0
) -> np.ndarray:
    """Constant, and multiplied by ``drops[step]`` from that step on. Shape (step,)."""
    rates = constant(peak, steps, warmup=warmup, start=start)
    for step, factor in drops.items():
        rates[step - 1 :] *= factor
    return rates


def _progress(steps: int) -> np.ndarray:
    """1/steps, ..., 1."""
    return np.arange(1, steps + 1) / max(steps, 1)


def _ramp(peak: float, warmup: int, start: float) -> np.ndarray:
    return start + (peak - start) * _progress(warmup)


def _warmed(peak: float, steps: int, warmup: int, start: float, body: np.ndarray, final: float) -> np.ndarray:
    """The ramp, then a body that falls from 1 (the peak) to 0 (the final rate)."""
    if not 0 <= warmup <= steps:
        raise ValueError(f"warmup = {warmup} steps of {steps}")
    return np.concatenate([_ramp(peak, warmup, start), final + (peak - final) * body])


# -- areas -----------------------------------------------------------------------------------------------------------


class Areas(NamedTuple):
    """Areas after each step, and the momentum that the next phase inherits; each of shape (step,)."""

    S1: np.ndarray
    S2: np.ndarray
    momentum: np.ndarray


def areas(
    rates: np.ndarray,
    *,
    before: float = 0.0,
    momentum: float = 0.0,
    lr_power: float = 0.0,
    batch_ratio: float = 1.0,
    decay: float = LAMBDA,
) -> Areas:
    """Forward and annealing area of a schedule, in linear time.

    Parameters
    ----------
    rates
        Learning rate at steps 1, 2, ..., shape (step,).
    before, momentum
        Learning rate and momentum at step 0: both 0 at the start of pre-training, its last ones afterwards.
    lr_power
        Wang 2025, eq. 9: each step's momentum counts times eta_i^lr_power (.1 and .2 there); 0 is eq. 1.
    batch_ratio
        A step counts as so many steps of the same rate: the areas of a phase with another batch size in steps of
        the first. Wang 2025 (appendix F) keeps 1 and lets the coefficients absorb the batch size.
    decay
        lambda, per step of the first phase.
    """
    from scipy.signal import lfilter

    rates = np.asarray(rates, float)
    drop = -np.diff(rates, prepend=before)
    per_step = decay**batch_ratio
    first, _ = lfilter([1.0], [1.0, -per_step], drop, zi=np.array([decay * momentum]))
    inside = (1 - per_step) / (1 - decay)  # sum of decay^j over the steps that this one counts as
    weight = inside * (rates**lr_power if lr_power else 1.0)
    last = first * decay ** (batch_ratio - 1)
    return Areas(S1=batch_ratio * np.cumsum(rates), S2=np.cumsum(weight * first), momentum=last)


def schedule_areas(
    pretraining: np.ndarray,
    adaptation: np.ndarray | None = None,
    *,
    carry_momentum: bool = True,
    lr_power: float = 0.0,
    batch_ratio: float = 1.0,
) -> pd.DataFrame:
    """Areas of both phases after every step, one row per step.

    During adaptation the areas of pre-training stay at their last values. Wang 2025 defines S2 "at the PT and CPT
    stages" and lets the loss without distribution shift follow eq. 1 over the whole schedule (eq. 2), so
    S2_pt + S2_cpt must be the S2 of the two phases joined: the first drop of adaptation is taken from the last rate
    of pre-training (appendix G), and what is left of its momentum runs out in S2_cpt. The paper writes no formula
    for that remainder; ``carry_momentum=False`` drops it.

    Parameters
    ----------
    pretraining, adaptation
        Learning rates at steps 1, 2, ... of each phase, shape (step,).
    carry_momentum
        See above.
    lr_power
        As in `areas`.
    batch_ratio
        Batch size of adaptation over that of pre-training, if areas are to count tokens and not steps; see `areas`.

    Returns
    -------
    DataFrame
        ``step`` (counted through), ``lr``, ``S1_pt``, ``S2_pt``, ``S1_cpt``, ``S2_cpt``.
    """
    import pandas as pd

    rates = np.asarray(pretraining, float)
    if not len(rates):
        raise ValueError("the pre-training schedule is empty; with unknown pre-training see `open_weights`")
    first = areas(rates, lr_power=lr_power)
    table = {"lr": rates, "S1_pt": first.S1, "S2_pt": first.S2}
    if adaptation is not None:
        second = areas(
            np.asarray(adaptation, float),
            before=rates[-1],
            momentum=first.momentum[-1] if carry_momentum else 0.0,
            lr_power=lr_power,
            batch_ratio=batch_ratio,
        )
        zeros, n = np.zeros(len(rates)), len(second.S1)
        table = {
            "lr": np.concatenate([rates, adaptation]),
            "S1_pt": np.concatenate([first.S1, np.full(n, first.S1[-1])]),
            "S2_pt": np.concatenate([first.S2, np.full(n, first.S2[-1])]),
            "S1_cpt": np.concatenate([zeros, second.S1]),
            "S2_cpt": np.concatenate([zeros, second.S2]),
        }
    steps = np.arange(1, len(table["lr"]) + 1)
    return pd.DataFrame({"step": steps, "S1_cpt": 0.0, "S2_cpt": 0.0, **table}, columns=["step", "lr", *COLUMNS])


# -- tables ----------------------------------------------------------------------------------------------------------


class _Curve(NamedTuple):
    """Areas at the rows of one curve, shape (row, area), and the step up to which a warm-up was assumed, or 0."""

    rows: np.ndarray
    areas: np.ndarray
    assumed: float


def areas_from_table(
    table: pd.DataFrame, *, warmup: int | None = None, adaptation_start: int | None = None, lr_power: float = 0.0
) -> pd.DataFrame:
    """Add the area columns to a table of logged steps.

    Each curve (rows that share ``run``; else ``schedule`` or ``curve``, together with ``N`` and ``domain``; else all
    rows) is filled in to one rate per step: linear between logged steps, and before the first of them the warm-up that
    logs leave out.

    Parameters
    ----------
    table
        Columns ``step``, counted through both phases, and ``lr``.
    warmup
        Steps of the linear ramp from 0 to the first logged rate, which then holds until the first logged step. None
        takes it from a column ``warmup``; where there is none, the ramp goes all the way, with a warning. Of no
        effect where the log starts at step 1 or before.
    adaptation_start
        Last step of pre-training, where a curve goes on into adaptation. 0 if all of it is adaptation of a model whose
        pre-training is unknown: then S1_pt and S2_pt stay empty (see `open_weights`). None takes it from a column
        ``adaptation_start``; where there is none, all is pre-training.
    lr_power
        As in `areas`.

    Returns
    -------
    DataFrame
        The table with ``S1_pt``, ``S2_pt``, ``S1_cpt``, ``S2_cpt``; rows and index as they were.

    Raises
    ------
    RunTableError
        A column is missing, a step is no whole number, or one step has two rates.
    """
    missing = [c for c in ("step", "lr") if c not in table]
    if missing:
        raise RunTableError(f"areas need columns 'step' and 'lr'; the table lacks {missing[0]!r}")
    curves = _curves(table, _curve_columns(table), np.arange(len(table)))
    done = [_curve(table, name, rows, warmup, adaptation_start, lr_power) for name, rows in curves.items()]
    _warn_assumed(done, stacklevel=3)
    return _joined(table, done)


def add_areas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with areas where it tells them: columns ``step`` and ``lr``, curves of several steps, no area yet.

    What cannot be computed is warned about and left empty, since many laws do not read areas.
    """
    if not {"step", "lr"} <= set(table) or set(COLUMNS) & set(table):
        return table
    columns = _curve_columns(table)
    if not columns:
        return table
    curves = _curves(table, columns, np.flatnonzero(table[["step", "lr"]].notna().all(axis=1)))
    done, failed = [], []
    for name, rows in curves.items():
        try:
            done.append(_curve(table, name, rows))
        except RunTableError as error:
            failed.append(str(error))
    if failed:
        message = f"no areas S1, S2 from 'step' and 'lr' for {len(failed)} of {len(curves)} curves: {failed[0]}"
        warnings.warn(message, RunTableWarning, stacklevel=3)
    _warn_assumed(done, stacklevel=4)
    return _joined(table, done) if done else table


def _curve_columns(table: pd.DataFrame) -> list[str]:
    """Columns that tell the curves apart; none where no name was logged at several steps."""
    present = [c for c in CURVES if c in table]
    name = next((c for c in present if (table.groupby(c, observed=True)["step"].nunique() > 1).any()), None)
    return [] if name is None else [name] if name == "run" else [name, *(c for c in WITHIN if c in table)]


def _curves(table: pd.DataFrame, columns: list[str], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Positions of each curve's rows, by a name to speak of it; all of ``rows`` are one curve without columns."""
    if not columns:
        return {"table": rows}
    keys = table.iloc[rows].groupby(columns, sort=False, observed=True).indices.items()
    named = [(key if isinstance(key, tuple) else (key,), rows[at]) for key, at in keys]
    return {", ".join(f"{c} {k}" for c, k in zip(columns, key, strict=True)): at for key, at in named}


def _curve(
    table: pd.DataFrame,
    name: str,
    rows: np.ndarray,
    warmup: float | None = None,
    adaptation_start: float | None = None,
    lr_power: float = 0.0,
) -> _Curve:
    mine = table.iloc[rows]
    warmup, split = _setting(mine, "warmup", warmup, name), _setting(mine, "adaptation_start", adaptation_start, name)
    steps = mine["step"].to_numpy(float)
    rates = fill_in(steps, mine["lr"].to_numpy(float), warmup=warmup, where=name)
    at = np.zeros((len(rates) + 1, len(COLUMNS)))
    if split == 0:
        at[:, :2] = np.nan
        at[1:, 2:] = np.transpose(areas(rates, lr_power=lr_power)[:2])
    else:
        last = len(rates) if split is None else int(min(split, len(rates)))
        adaptation = rates[last:] if last < len(rates) else None
        at[1:] = schedule_areas(rates[:last], adaptation, lr_power=lr_power)[list(COLUMNS)].to_numpy()
    assumed = float(steps.min()) if warmup is None and steps.min() > 1 else 0.0
    return _Curve(rows, at[steps.astype(int)], assumed)


def _setting(rows: pd.DataFrame, column: str, given: float | None, where: str) -> float | None:
    """A number of steps: what was given for all curves, else what the column says about this one."""
    values: Any = [given] if given is not None else rows[column].dropna().unique() if column in rows else []
    if len(values) == 0:
        return None
    try:
        (value,) = map(float, values)
    except (TypeError, ValueError):
        value = np.nan
    if not value >= 0 or value != np.round(value):
        shown = ", ".join(map(str, values[:3]))
        raise RunTableError(f"{where}: {column!r} must be one whole number of steps, at least 0; got {shown}")
    return value


def _warn_assumed(curves: list[_Curve], stacklevel: int) -> None:
    steps = [c.assumed for c in curves if c.assumed]
    if steps:
        first = f"step {min(steps):g}" + (f" to {max(steps):g}" if max(steps) > min(steps) else "")
        warnings.warn(
            f"{len(steps)} of {len(curves)} curves start at {first}: areas S1, S2 take the learning rate to ramp linearly "
            "from 0 to the first row and to be linear between rows; if the warm-up was shorter, say so in a column "
            "'warmup' (steps)",
            RunTableWarning,
            stacklevel=stacklevel,
        )


def _joined(table: pd.DataFrame, curves: list[_Curve]) -> pd.DataFrame:
    values = np.full((len(table), len(COLUMNS)), np.nan)
    for curve in curves:
        values[curve.rows] = curve.areas
    return table.assign(**dict(zip(COLUMNS, values.T, strict=True)))


def fill_in(steps: np.ndarray, rates: np.ndarray, *, warmup: float | None = None, where: str = "table") -> np.ndarray:
    """Learning rate at every step up to the last logged one, shape (step,)."""
    if not np.all(np.isfinite(steps) & np.isfinite(rates) & (steps >= 0) & (rates >= 0) & (steps == np.round(steps))):
        raise RunTableError(f"{where}: steps must be whole numbers and rates finite, neither below 0")
    if steps.max() > MAX_STEPS:
        raise RunTableError(f"{where}: step {steps.max():g}, but areas are summed over at most {MAX_STEPS:,} steps")
    if steps.max() < 1:
        raise RunTableError(f"{where}: no step after step 0, so there is no schedule")
    logged, first = np.unique(steps, return_index=True)
    if np.any(rates != rates[first][np.searchsorted(logged, steps)]):
        twice = steps[rates != rates[first][np.searchsorted(logged, steps)]][0]
        raise RunTableError(f"{where}, step {twice:g}: two learning rates; name the schedules apart in a column 'run'")
    known_steps, known = logged, rates[first]
    if logged[0] > 1:
        ramp = logged[0] if warmup is None else warmup
        if not 0 < ramp <= logged[0]:
            raise RunTableError(f"{where}: warm-up of {ramp:g} steps, but the log starts at step {logged[0]:g}")
        ends = [0.0] if ramp == logged[0] else [0.0, float(ramp)]
        known_steps = np.concatenate([ends, logged])
        known = np.concatenate([[0.0, *[known[0]] * (len(ends) - 1)], known])
    return np.interp(np.arange(1, int(logged[-1]) + 1), known_steps, known)
