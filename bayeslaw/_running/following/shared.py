"""Find what fitted runs of a run's setting did beyond their law, step by step.

The runs of one setting (seeds of one recipe) share the law's misfit: a bump, or the
decay of a learning rate that the law does not know. At each step the mean of their
excess over the law is shrunk by the variance of runs around it (James and Stein 1961).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._forecasts.forecast import ONE_SD
from bayeslaw._law.columns import is_share
from bayeslaw._tables.rows.levels import TOLERANCE, with_common_levels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Clock = float | np.ndarray  # log tokens (or steps), one or several
CURVE = 3  # fewest points of a run whose course is read between its points
# power of tokens by which an excess wanes after the last point, as the wander of a
# departure does (`DeparturePriors.waning`)
WANING = 0.6
BEYOND = 0.1  # e-folds of tokens after its last point up to which a course holds


class SharedCourse(NamedTuple):
    """Excess over the law that fitted runs of one setting share."""

    # log tokens (or steps) of the runs' points, ascending
    clock: Float[np.ndarray, " place"]
    excess: Float[np.ndarray, " place"]  # mean log loss of the runs minus the law's
    # share of the excess that a new run is expected to have
    weight: Float[np.ndarray, " place"]
    # sd of a new run's log loss around the shared course; None where it is not known:
    # one run, or the planned end lies beyond the runs' last points
    own: float | None

    def beyond(
        self, clock: Clock, law_at: Callable[[Clock], np.ndarray]
    ) -> Float[np.ndarray, "draw ..."]:
        """Compute what the runs did beyond each draw of the law. Before their first
        point it is as there; after their last it wanes with tokens.
        """
        there = np.clip(clock, self.clock[0], self.clock[-1])
        excess = np.interp(there, self.clock, self.excess)
        weight = np.interp(there, self.clock, self.weight)
        left = np.exp(-WANING * np.maximum(clock - self.clock[-1], 0.0))
        law = law_at(there)
        return left * weight * (excess + law.mean(axis=0) - law)


def shared_course(
    fitted: pd.DataFrame | None,
    run: pd.DataFrame,
    along: pd.DataFrame,
    unit: str,
    until: float,
    mean_law: Callable[[np.ndarray], np.ndarray],
    error: float,
) -> SharedCourse | None:
    """Average the excess of fitted runs of a run's setting; None without any.

    Parameters
    ----------
    run
        Rows of the run. Fitted rows of a run of the same name are left out.
    along
        The columns that the law reads along the run.
    until
        Tokens (or steps) at the planned end.
    mean_law
        The law's log loss along the run by log tokens, averaged over draws.
    error
        Sd of a new run around the law, by the posterior.
    """
    if fitted is None or not {unit, "loss"} <= set(fitted):
        return None
    rows = fitted[_are_of_setting(fitted, run, along, unit)]
    if rows.empty:
        return None
    clock = np.log(rows[unit].to_numpy(float))
    excess = np.log(rows["loss"].to_numpy(float)) - mean_law(clock)
    # without names, the second row at a length is another run's
    name = rows.groupby(unit).cumcount().to_numpy()
    if "run" in rows and rows["run"].notna().all():
        name = rows["run"].to_numpy()

    # each run's excess at the points of all; NaN before its first point and after its
    # last; a place that only one run covers counts if that is a curve
    places = np.unique(clock)
    by_run = np.full((len(pd.unique(name)), len(places)), np.nan)
    is_covered = np.zeros(len(places), bool)
    for row, one in zip(by_run, pd.unique(name), strict=True):
        own = name == one
        order = np.argsort(clock[own])
        at, off = clock[own][order], excess[own][order]
        row[:] = np.interp(places, at, off, left=np.nan, right=np.nan)
        is_covered |= np.isfinite(row) & (own.sum() >= CURVE)
    is_covered |= np.isfinite(by_run).sum(axis=0) > 1
    if not is_covered.any():
        return None
    places, by_run = places[is_covered], by_run[:, is_covered]
    count = np.isfinite(by_run).sum(axis=0)
    mean = np.nanmean(by_run, axis=0)
    runs = float(count.mean())

    # variance of runs around their mean, shared or in general where runs are few
    squares = np.nansum((by_run - mean) ** 2, axis=0)
    within = squares.sum() / max((count - 1).sum(), 1)
    half_of_excess = np.mean(mean**2) / 2
    of_mean = _average_variances(half_of_excess, within, runs - 1) / count
    shared = max(float(np.mean(mean**2 - of_mean)), 0.0)
    weight = shared / (shared + of_mean)
    own_sd = None
    if count[-1] > 1 and np.log(until) <= places[-1] + BEYOND:
        variance = _average_variances(error**2, within, runs - 1)
        own_sd = float(np.sqrt(variance * (1 + np.mean(weight / count))))
    return SharedCourse(places, mean, weight, own_sd)


def _average_variances(
    prior: float, measured: float, freedom: float, least: float = 1e-8
) -> float:
    """Average a prior and a measured variance, on the log scale, by the latter's
    degrees of freedom.
    """
    logs = np.log(np.maximum([prior, measured], least))
    return float(np.exp((logs[0] + freedom * logs[1]) / (1 + freedom)))


def _are_of_setting(
    fitted: pd.DataFrame, run: pd.DataFrame, along: pd.DataFrame, unit: str
) -> Bool[np.ndarray, " row"]:
    """Tell which fitted rows have the setting that the run has at their step."""

    def is_setting(column: str) -> bool:
        """Tell whether a column is set before a run, and so has levels."""
        return column in ("N", "U", "replay", "ptpp") or is_share(column)

    lengths = along[unit].to_numpy(float)
    tokens = fitted[unit].to_numpy(float)
    after = np.searchsorted(lengths, tokens).clip(1, len(lengths) - 1)
    is_nearer = tokens - lengths[after - 1] < lengths[after] - tokens
    there = along.drop(columns=unit).iloc[after - is_nearer]
    columns = [str(c) for c in run if c in fitted and c not in along]
    there = there.assign(**{c: run[c].iloc[-1] for c in columns if is_setting(c)})
    same = (tokens > 0) & (tokens >= (1 - TOLERANCE) * lengths[0])
    if not set(there) <= set(fitted):
        return np.zeros_like(same)
    names = list(there)
    rows, there = with_common_levels(
        fitted[names].astype(float), there.astype(float), names
    )
    for name in names:
        # areas and losses have no levels
        within = 0.0 if is_setting(name) else TOLERANCE
        same &= np.isclose(rows[name], there[name], rtol=within, equal_nan=True)
    if {"run"} <= set(run) & set(fitted):
        same &= ~fitted["run"].isin(run["run"].dropna()).to_numpy()
    return same


def middle_and_sd(values: Float[np.ndarray, " draw"]) -> tuple[float, float]:
    """Compute the median and a robust sd, from the quantiles of one sd."""
    low, high = np.quantile(values, ONE_SD)
    return float(np.median(values)), float(high - low) / 2
