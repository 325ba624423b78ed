"""Compute the law along one run: its draws at any point of the run, from start to end,
what fitted runs of its setting did beyond it, and refits with the run's own points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.forecast import ONE_SD
from bayeslaw._law.columns import is_share
from bayeslaw._posteriors.averaging.loading import refit_like
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import LawPosterior, Posterior, columns_read
from bayeslaw._tables.holdouts import stages_in_direction
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.rates.areas import COLUMNS as AREAS
from bayeslaw._tables.rows.levels import TOLERANCE, with_common_levels
from bayeslaw._tables.rows.naming import SETTINGS
from bayeslaw._tables.runs import TEXT

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


Clock = float | np.ndarray  # log tokens (or steps), one or several
CURVE = 3  # fewest points of a run whose course is read between its points
# power of tokens by which an excess wanes after the last point, as the wander of a
# departure does (`DeparturePriors.waning`)
WANING = 0.6
# columns that name the model and the checkpoint of a run
IDENTITY = ("N", "ptpp", "replay", "checkpoint", "seed")
BEYOND = 0.1  # e-folds of tokens after its last point up to which a course holds


class SharedCourse(NamedTuple):
    """Excess over the law that fitted runs of one setting share (seeds of one recipe): a
    bump, or the decay of a learning rate that the law does not know. At each step the
    mean excess is shrunk by the variance of runs around it (James and Stein 1961).
    """

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

    ``run``: Rows of the run. Fitted rows of a run of the same name are left out.
    ``along``: the columns that the law reads along the run. ``until``: tokens (or
    steps) at the planned end. ``mean_law``: the law's log loss along the run by log
    tokens, averaged over draws. ``error``: sd of a new run around the law, by the
    posterior.
    """
    if fitted is None or not {unit, "loss"} <= set(fitted):
        return None
    rows = fitted[_are_of_setting(fitted, run, along, unit)]
    if rows.empty:
        return None
    clock = np.log(rows[unit].to_numpy(float))
    excess = np.log(rows["loss"].to_numpy(float)) - mean_law(clock)
    # without names, the second row at a length is another run's
    name = rows.groupby(unit).cumcount()
    if "run" in rows and rows["run"].notna().all():
        name = rows["run"]
    points = pd.DataFrame({"clock": clock, "excess": excess, "name": name.astype(str)})

    # each run's excess at the points of all; NaN before its first point and after its
    # last; a place that only one run covers counts if that is a curve
    by_run = points.pivot_table("excess", "clock", "name")
    by_run = by_run.interpolate("index", limit_area="inside")
    is_curve = points.groupby("name").size() >= CURVE
    is_alone = by_run.count(axis=1) == 1
    is_covered = by_run.loc[:, is_curve].notna().any(axis=1) | ~is_alone
    if not is_covered.any():
        return None
    by_run = by_run[is_covered]
    places, count = by_run.index.to_numpy(), by_run.count(axis=1).to_numpy()
    mean, freedom = by_run.mean(axis=1).to_numpy(), float(count.mean()) - 1

    # variance of runs around their mean, shared or in general where runs are few
    squares = by_run.sub(mean, axis=0).to_numpy() ** 2
    within = np.nansum(squares) / max((count - 1).sum(), 1)
    of_mean = _average_variances(np.mean(mean**2) / 2, within, freedom) / count
    shared = max(float(np.mean(mean**2 - of_mean)), 0.0)
    weight = shared / (shared + of_mean)
    own_sd = None
    if count[-1] > 1 and np.log(until) <= places[-1] + BEYOND:
        variance = _average_variances(error**2, within, freedom)
        own_sd = float(np.sqrt(variance * (1 + np.mean(weight / count))))
    return SharedCourse(places, mean, weight, own_sd)


def _average_variances(
    prior: float, measured: float, freedom: float, least: float = 1e-8
) -> float:
    """Average two variances on the log scale, by degrees of freedom."""
    logs = np.log(np.maximum([prior, measured], least))
    return float(np.exp((logs[0] + freedom * logs[1]) / (1 + freedom)))


def _are_of_setting(
    fitted: pd.DataFrame, run: pd.DataFrame, along: pd.DataFrame, unit: str
) -> Bool[np.ndarray, " row"]:
    """Tell which fitted rows have the setting that the run has at their step."""
    lengths = along[unit].to_numpy(float)
    tokens = fitted[unit].to_numpy(float)
    after = np.searchsorted(lengths, tokens).clip(1, len(lengths) - 1)
    is_nearer = tokens - lengths[after - 1] < lengths[after] - tokens
    there = along.drop(columns=unit).iloc[after - is_nearer]
    columns = [str(c) for c in run if c in fitted and c not in along]
    settings = [c for c in columns if c in SETTINGS or is_share(c)]
    there = there.assign(**{c: run[c].iloc[-1] for c in settings})
    same = (tokens > 0) & (tokens >= (1 - TOLERANCE) * lengths[0])
    if not set(there) <= set(fitted):
        return np.zeros_like(same)
    names = list(there)
    rows, there = with_common_levels(
        fitted[names].astype(float), there.astype(float), names
    )
    for name in names:
        # areas and losses have no levels
        within = 0.0 if name in SETTINGS or is_share(name) else TOLERANCE
        same &= np.isclose(rows[name], there[name], rtol=within, equal_nan=True)
    if {"run"} <= set(run) & set(fitted):
        same &= ~fitted["run"].isin(run["run"].dropna()).to_numpy()
    return same


def middle_and_sd(values: Float[np.ndarray, " draw"]) -> tuple[float, float]:
    """Compute the median and a robust sd, from the quantiles of one sd."""
    low, high = np.quantile(values, ONE_SD)
    return float(np.median(values)), float(high - low) / 2


UNITS = {"D": "tokens", "step": "steps"}  # units of a run's length, in words


@dataclass(frozen=True)
class CourseGrid:
    """Grid of points and draws at which the law along a run is computed."""

    nodes: int = 96  # points of the run, between which the law is interpolated
    early: float = 1000.0  # the first 1/1000 of the planned run is not followed
    # of the planned run, the most that is passed over as a law's `Law.first_steps`
    most_first_steps: float = 0.125
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
        """Forecast the log loss: the law's, and what fitted runs did beyond it."""
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

    ``run``: the columns that the law reads in addition to tokens, one value each; or
    rows of the run. ``until``: tokens, or steps, at the planned end. ``schedule``: The
    run's steps with the columns that change along it (areas of a schedule). It begins
    before the run's first point and ends at the planned end. ``fitted``: the fitted
    runs, by default those that the posterior keeps.
    """
    unit = unit_of(posterior)
    table = _tabulate(run, schedule, unit, posterior, until, grid)
    clock = np.log(table[unit].to_numpy(float))
    end = int(np.argmin(np.abs(clock - np.log(until))))
    # the effects of the run's model and checkpoint, where fitted runs told them
    own = {c: run[c].iloc[-1] for c in IDENTITY if c in run and c not in table}
    named = table.assign(**own)
    log_loss, known = posterior.log_loss(table), np.zeros(len(table))
    if isinstance(posterior, LawPosterior):
        known = posterior.known_effects(named, ("model", "checkpoint"))
    log_loss = log_loss + known
    new = posterior.log_loss(named, noise=True, seed=seed)
    error = new[:, end] - log_loss[:, end]
    ends: dict[float, np.ndarray] = {}
    if "replay" in table:
        planned_end = table.iloc[[end] * len(grid.replays)].assign(**{unit: until})
        elsewhere = posterior.log_loss(planned_end.assign(replay=grid.replays))
        elsewhere = elsewhere + known[..., end : end + 1]
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
    posterior: Posterior,
    until: float,
    grid: CourseGrid,
) -> pd.DataFrame:
    """List the nodes of the run, or all steps by a schedule, as laws read them."""
    columns = sorted(set(columns_read(posterior, there=run)) - {unit})
    # swept settings, of which a law reads one for the whole run
    settings = set(columns) - set(columns_read(posterior, there=()))
    if schedule is None:
        start = until / grid.early
        first_steps = max(piece.first_steps for piece in posterior.pieces())
        if first_steps and unit == "D" and "N" in columns:
            first_tokens = first_steps * _find_constant(run, "N", "N" in settings)
            passed_over = min(first_tokens, grid.most_first_steps * until)
            start = max(start, passed_over * (1 - TOLERANCE))
        places = np.geomspace(start, grid.longest * until, grid.nodes)
        schedule = pd.DataFrame({unit: places})
    check_columns(schedule, [unit], what="the schedule")
    table = pd.DataFrame({unit: schedule[unit].astype(float)})
    for name in columns:
        if name in schedule and name not in settings:
            table[name] = schedule[name].astype(float)
        else:
            rows = schedule if name in schedule else run
            table[name] = _find_constant(rows, name, name in settings)
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


def _find_constant(run: pd.DataFrame, name: str, is_setting: bool) -> float:
    if name in AREAS:
        raise RunTableError(
            f"the law reads {name}, an area of the schedule: give the run's "
            "steps with their areas (--schedule FILE, in Python schedule=table)"
        )
    check_columns(run, [name], ", which the law reads", "the curve")
    values = run[name].astype(float).unique()
    if len(values) > 1 or not np.isfinite(values).all():
        examples = ", ".join(f"{value:g}" for value in values[:3])
        advice = "select a run with where, or say how it goes on (--schedule FILE)"
        if is_setting:
            advice = (
                "write that of the run's peak in all rows, or leave the column out, and "
                "the run counts as tuned"
            )
        raise RunTableError(
            f"column {name!r} changes along the run ({examples}): one run has one value; "
            f"{advice}"
        )
    return float(values[0])


# -- refits along a run ----------------------------------------------------------------


class RunSetting(NamedTuple):
    """A run that is followed by a posterior.

    ``rows``: rows of the run, with the columns that the laws read; ``until`` and
    ``seed``: as for `follow`; ``schedules``: by name, the planned one first, which is
    None for laws that read none.
    """

    posterior: Posterior
    rows: pd.DataFrame
    until: float
    schedules: Mapping[str, pd.DataFrame | None]
    seed: int

    def courses(
        self, posterior: Posterior, fitted: pd.DataFrame | None = None
    ) -> tuple[Course, dict[str, Course]]:
        """Compute the law along the run by its planned schedule (`course`), and by each
        further one up to that schedule's end. ``fitted``: the runs that were fitted
        before this one, which is no other run of its setting.
        """
        unit, courses = unit_of(posterior), {}
        for name, schedule in self.schedules.items():
            end = self.until
            if courses and schedule is not None:
                check_columns(schedule, [unit], what=f"schedule {name!r}")
                end = float(schedule[unit].max())
            courses[name] = course(
                posterior, self.rows, end, schedule, self.seed, fitted=fitted
            )
        return courses.pop(next(iter(courses))), courses

    def fit(
        self, points: Sequence[tuple[float, float]]
    ) -> tuple[Course, dict[str, Course], tuple[str, ...]]:
        """Fit again with these points of the run, (tokens or steps, loss), among the
        rows. Returns the law along the run, by its schedule and by others, and the
        warnings of the fit.

        Raises
        ------
        RunTableError
            The laws cannot be fitted to these rows.
        """
        before, unit = table_of(self.posterior), unit_of(self.posterior)
        assert before is not None
        # the columns of the run at its points
        at, loss = np.asarray(points, float).T
        rows = self.rows.iloc[[-1] * len(at)].reset_index(drop=True)
        if {"D", "step"} <= set(rows):
            # tables are sorted along a run by steps first, so points need steps, too
            rows["step"] = at * rows["step"] / rows["D"]
        schedule = next(iter(self.schedules.values()))
        if schedule is not None:
            steps = schedule[unit].to_numpy(float)
            nearest = np.argmin(np.abs(steps[:, None] - at), axis=0)
            there = schedule.iloc[nearest].reset_index(drop=True)
            rows = rows.assign(**{str(name): there[name] for name in there})
        rows = rows.assign(**{unit: at, "loss": loss})
        # a run without a name has its own, so that its points are known to be of one;
        # any unit of steps will do, because only their ratios matter
        missing = dict.fromkeys(TEXT, "followed") | {"step": at}
        rows = rows.assign(**{c: x for c, x in missing.items() if c not in rows})
        if "domain" in before:
            rows["domain"] = before["domain"].iloc[0]
        rows = rows.reindex(columns=before.columns)
        table = pd.concat([before, rows], ignore_index=True)
        # If the diagnostics fail, the run is still followed; `warnings` say so.
        new = refit_like(self.posterior, table, seed=self.seed, on_failure="ignore")
        return *self.courses(new, fitted=before), tuple(new.warnings)
