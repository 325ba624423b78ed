"""Compute the law along one run: its draws at any point of the run, from start to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.averaging.folds import stages_in_direction
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._running.following.shared import (
    Clock,
    SharedCourse,
    middle_and_sd,
    shared_course,
)
from bayeslaw._tables.proposals import it_has
from bayeslaw._tables.rates.areas import COLUMNS as AREAS

if TYPE_CHECKING:
    from jaxtyping import Float

# one schedule, or several by name; the first is the planned one
Schedules = pd.DataFrame | Mapping[str, pd.DataFrame] | None
UNITS = {"D": "tokens", "step": "steps"}  # units of a run's length, in words


@dataclass(frozen=True)
class CourseGrid:
    """Grid of points and draws at which the law along a run is computed."""

    nodes: int = 96  # points of the run, between which the law is interpolated
    early: float = 1000.0  # the first 1/1000 of the planned run is not followed
    longest: float = 4.0  # of longer runs, times the planned end
    replays: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75)  # to change to
    draws: int = 4000  # a longer sample is thinned


@dataclass(frozen=True, eq=False)
class Course:
    """Draws of a law's log loss along a run."""

    unit: str  # unit of the run's length: ``"D"``, tokens, or ``"step"``
    clock: Float[np.ndarray, " node"]  # log of the length at the nodes, ascending
    law: Float[np.ndarray, "draw node"]  # the law's log loss
    # error of a new run around the law, or around the shared course; the same at all
    # its points
    error: Float[np.ndarray, " draw"]
    # the law's log loss at the planned end at other shares of replay, by share; empty
    # if no law reads replay
    ends: Mapping[float, Float[np.ndarray, " draw"]] = field(default_factory=dict)
    # slopes of the law's errors along runs that were left out when it was judged
    # (`slopes_of`)
    slopes: tuple[float, ...] = ()
    # what fitted runs of the same setting did beyond the law; None without such runs
    shared: SharedCourse | None = None

    def at(self, clock: Clock) -> Float[np.ndarray, "draw ..."]:
        """Forecast the log loss at a point, or several: the law's, and what fitted runs
        of the setting did beyond it.
        """
        return self.law_at(clock) + self.beyond_law(clock)

    def beyond_law(self, clock: Clock) -> Float[np.ndarray, "draw ..."] | float:
        """Compute what fitted runs of the setting did beyond each draw of the law."""
        return 0.0 if self.shared is None else self.shared.beyond(clock, self.law_at)

    @cached_property
    def law_at(self) -> PchipInterpolator:
        """Interpolate the law's log loss at a point, or several."""
        # does not overshoot at the kinks where a law begins to drift
        return PchipInterpolator(self.clock, self.law, axis=1)


def unit_of(posterior: Posterior) -> str:
    """Choose the unit of runs: tokens, or steps if no law reads tokens."""
    covariates = columns_read(posterior)
    if "D" in covariates:
        return "D"
    if set(covariates) & set(AREAS):
        return "step"
    raise PlanError(
        f"{posterior.name} reads neither tokens D nor areas of a schedule: "
        "its loss does not change along a run"
    )


def planned(schedule: Schedules) -> pd.DataFrame | None:
    """Choose the planned schedule: the first of several."""
    if isinstance(schedule, Mapping):
        return next(iter(schedule.values()), None)
    return schedule


def course(
    posterior: Posterior,
    run: pd.DataFrame,
    until: float,
    schedule: pd.DataFrame | None = None,
    seed: int = 0,
    grid: CourseGrid = CourseGrid(),
    fitted: pd.DataFrame | None = None,
) -> Course:
    """Compute the law along a run.

    Parameters
    ----------
    run
        The columns that the law reads in addition to tokens, one value each; or rows of
        the run.
    until
        Tokens, or steps, at the planned end.
    schedule
        The run's steps with the columns that change along it (areas of a schedule). It
        begins before the run's first point and ends at the planned end.
    fitted
        The fitted runs, by default those that the posterior keeps.
    """
    unit = unit_of(posterior)
    table = _tabulate(run, schedule, unit, columns_read(posterior), until, grid)
    clock = np.log(table[unit].to_numpy(float))
    end = int(np.argmin(np.abs(clock - np.log(until))))
    log_loss = posterior.log_loss(table)
    new = posterior.log_loss(table, noise=True, seed=seed)
    error = new[:, end] - log_loss[:, end]
    ends: dict[float, np.ndarray] = {}
    if "replay" in table:
        planned_end = table.iloc[[end] * len(grid.replays)].assign(**{unit: until})
        elsewhere = posterior.log_loss(planned_end.assign(replay=grid.replays))
        ends = dict(zip(grid.replays, elsewhere.T, strict=True))
    if len(error) > grid.draws:
        order = generator(seed, Stream.THINNED).permutation(len(error))
        thinned = order[: grid.draws]
        log_loss, error = log_loss[thinned], error[thinned]
        ends = {replay: draws[thinned] for replay, draws in ends.items()}
    slopes = slopes_of(posterior, run)
    fitted = table_of(posterior) if fitted is None else fitted
    mean_law = PchipInterpolator(clock, log_loss.mean(axis=0))
    sd = middle_and_sd(error)[1]
    shared = shared_course(fitted, run, table, unit, until, mean_law, sd)
    if shared is not None and shared.own is not None:
        # the other runs of the setting replace what is known of new runs in general
        error = error * (shared.own / max(sd, 1e-12))
        slopes = ()
    return Course(unit, clock, log_loss, error, ends, slopes, shared)


def slopes_of(posterior: Posterior, run: pd.DataFrame) -> tuple[float, ...]:
    """Find the slopes of an average's errors along left-out runs
    (`Average.run_slopes`), for the stages in whose direction the run lies.
    """
    slopes: Mapping[str, float] = getattr(posterior, "run_slopes", {})
    table = table_of(posterior)
    if table is None:
        return ()
    return tuple(slopes[name] for name in stages_in_direction(list(slopes), table, run))


def _tabulate(
    run: pd.DataFrame,
    schedule: pd.DataFrame | None,
    unit: str,
    covariates: Sequence[str],
    until: float,
    grid: CourseGrid,
) -> pd.DataFrame:
    """List the nodes of the run in order, or all its steps by a schedule, with the
    columns that the law reads.
    """
    columns = sorted(set(covariates) - {unit})
    if schedule is None:
        places = np.geomspace(until / grid.early, grid.longest * until, grid.nodes)
        table = pd.DataFrame({unit: places})
        return table.assign(**{name: _find_constant(run, name) for name in columns})
    if unit not in schedule:
        raise RunTableError(f"the schedule lacks column {unit!r}")
    table = pd.DataFrame({unit: schedule[unit].astype(float)})
    for name in columns:
        along = schedule[name].astype(float) if name in schedule else None
        table[name] = _find_constant(run, name) if along is None else along
    table = table[table[unit] > 0].drop_duplicates(unit).sort_values(unit)
    last = table[unit].max() if len(table) else 0.0
    if not last >= until:
        raise RunTableError(
            f"the schedule ends at {unit} = {format_count(last)}, before the planned "
            f"end {format_count(until)}"
        )
    if table.isna().any(axis=None):
        raise RunTableError("the schedule has an empty cell that the law reads")
    return table


def _find_constant(run: pd.DataFrame, name: str) -> float:
    if name in AREAS:
        raise RunTableError(
            f"the law reads {name}, an area of the schedule: give the run's "
            "steps with their areas (--schedule FILE, in Python schedule=table)"
        )
    if name not in run:
        raise RunTableError(
            f"the law reads column {name!r}, which the curve lacks; {it_has(run)}"
        )
    values = run[name].astype(float).unique()
    if len(values) > 1 or not np.isfinite(values).all():
        examples = ", ".join(f"{value:g}" for value in values[:3])
        raise RunTableError(
            f"column {name!r} changes along the run ({examples}): one run has one value; "
            "select a run with where, or say how it goes on (--schedule FILE)"
        )
    return float(values[0])
