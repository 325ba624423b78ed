"""Read the points of one run, in order, without its warm-up."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._tables.suspicions import PastMinimumWarning
from bayeslaw._tables.proposals import it_has
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool


def read_curve(curve: pd.DataFrame | str | Path) -> pd.DataFrame:
    """Read the points of a run. That its loss passed its least is told by the decision,
    which knows what the law foresees, and not by the reader.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PastMinimumWarning)
        return as_runs(curve)


def points_of(
    curve: pd.DataFrame, unit: str, until: float, warmup: float | None = None
) -> tuple[pd.DataFrame, int]:
    """Read the points of one domain of one run, in order. Also returns how many points
    of the warm-up were left out.

    Parameters
    ----------
    curve
        Columns ``loss`` and ``unit``; the columns ``run``, ``step``, ``lr`` and
        ``warmup`` are read if they exist.
    unit
        Unit of the run's length, ``"D"`` or ``"step"``.
    until
        Planned end of the run.
    warmup
        Steps over which the rate rises. By default they follow from the column
        ``warmup``, or from the rates.

    Raises
    ------
    RunTableError
        The table has several runs, no loss, two losses at one position, or points after
        the end.
    """
    for name in (unit, "loss"):
        if name not in curve:
            raise RunTableError(f"the curve lacks column {name!r}; {it_has(curve)}")
    if "run" in curve and curve["run"].nunique() > 1:
        names = ", ".join(map(str, curve["run"].unique()[:3]))
        raise RunTableError(
            f"the curve has {curve['run'].nunique()} runs ({names}): select one with "
            "where \"run == '...'\""
        )
    ordered = curve.sort_values(unit, kind="stable")
    losses = ordered.groupby(unit)["loss"].nunique()
    if (losses > 1).any():
        where = format_count(losses.index[losses > 1][0])
        raise RunTableError(
            f"two losses at {unit} = {where}: select one run and one domain with where"
        )
    ordered = ordered.drop_duplicates(unit)
    last = ordered[unit].max()
    if last > until * (1 + 1e-9):
        raise RunTableError(
            f"the curve has points after the planned end, {unit} = "
            f"{format_count(until)}: the last at {format_count(last)}"
        )
    rises = _rises(ordered, warmup)
    return ordered[~rises], int(rises.sum())


def _rises(
    points: pd.DataFrame, warmup: float | None, peak_share: float = 0.99
) -> Bool[np.ndarray, " row"]:
    """Tell which points lie in the warm-up, where the rate is below this share of its
    peak.
    """
    if warmup is None and "warmup" in points:
        steps = points["warmup"].dropna()
        warmup = float(steps.max()) if len(steps) else None
    if warmup is not None:
        if "step" not in points:
            raise RunTableError("warmup is in steps, and the curve lacks column 'step'")
        return points["step"].to_numpy(float) < warmup
    nowhere = np.zeros(len(points), bool)
    if "lr" not in points or len(points) < 2:
        return nowhere
    rates = points["lr"].to_numpy(float)
    peak = np.nanmax(rates)
    if not (np.isfinite(peak) and rates[0] < peak_share * peak):
        return nowhere
    first = int(np.argmax(rates >= peak_share * peak))
    # a rate that falls before it rises is not a warm-up
    only_rises = np.all(np.diff(rates[: first + 1]) >= 0)
    return np.arange(len(points)) < first if only_rises else nowhere
