"""Follow one domain of a run: its track, its points, and its refits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._running.following.course import (
    UNITS,
    Schedules,
    course,
    other_courses,
    planned,
)
from bayeslaw._running.following.question import RunQuestion
from bayeslaw._running.following.track import Track
from bayeslaw._running.following.worn import Again, Refitted
from bayeslaw._tables.fitting import warn_other_domain

INTERVAL = ("median", "low", "high")
CLOSE = 0.005  # e-folds of tokens; a point nearer to the last used one is not used


class TrackedDomain(NamedTuple):
    """One domain of a followed run.

    Parameters
    ----------
    track
        The track now.
    start
        The track before the first point.
    final_before
        Forecast of the end, before the first point.
    warnings
        Warnings of the posterior.
    points
        All points (tokens, loss) in order, also those that are not used.
    warm
        Number of points of the warm-up that were left out.
    again
        How the laws are fitted again if the weights wear out; None: they are not.
    refitted
        Tokens of the last refit, and its result.
    """

    track: Track
    start: Track
    final_before: dict[str, float]
    warnings: tuple[str, ...]
    points: tuple[tuple[float, float], ...] = ()
    warm: int = 0
    again: Again | None = None
    refitted: tuple[float, Refitted] | None = None

    def after(self, at: float, loss: float) -> TrackedDomain:
        """Add one point; a point that is too early, or too near the last one, is
        ignored.
        """
        points = (*self.points, (at, loss))
        track = self.track
        clock = np.log(at)
        early = clock < track.course.clock[0]
        near = track.departure.clock is not None and clock - track.clock < CLOSE
        if early or near:
            return self._replace(points=points)
        side = self._replace(points=points, track=track.after(at, loss))
        return side._fitted_again(at) if side.track.is_worn else side

    def _fitted_again(self, at: float) -> TrackedDomain:
        """Fit the laws again with the run's points, and follow the run by them. If the
        last refit was not long ago, nothing changes.
        """
        since = 0.0 if self.refitted is None else self.refitted[0]
        if self.again is None or at < self.again.later * since:
            return self
        learned = [(moment.at, moment.loss) for moment in self.track.history]
        refitted = self.again.fitted(learned)
        track = self.track.fitted_again(refitted.course, refitted.other_courses)
        return self._replace(track=track, refitted=(at, refitted))

    def read(self, points: list[tuple[float, float]], warm: int) -> TrackedDomain:
        """Add all points of a run, (tokens, loss) in order; points that were added
        before are skipped.
        """
        count = len(self.points)
        goes_on = tuple(points[:count]) == self.points
        begun = self._replace(track=self.start, points=(), refitted=None)
        side = self if goes_on else begun
        for at, loss in points[len(side.points) :]:
            side = side.after(at, loss)
        return side._replace(warm=warm)

    @property
    def notes(self) -> tuple[str, ...]:
        """List points that were left out, and reasons to distrust the answer."""
        lines = []
        if self.warm:
            lines.append(f"{self.warm} points of the warm-up left out")
        passed = len(self.points) - len(self.track.history)
        if passed:
            lines.append(
                f"{passed} points passed over: within {CLOSE:.1%} of another, or in "
                "the first thousandth of the run"
            )
        warnings = self.warnings
        if self.refitted is not None:
            at, refitted = self.refitted
            unit = UNITS[self.track.course.unit]
            lines.append(
                f"few draws explained the run: its laws were fitted again at "
                f"{format_count(at)} {unit}, with its {refitted.points} points among "
                "the rows"
            )
            warnings = refitted.warnings
        return (*lines, *warnings, *self.track.warnings)


def rows_of(name: str, table: pd.DataFrame, alone: bool) -> pd.DataFrame:
    """Select the rows of a domain. If only one domain is followed and the rows have no
    domain, it is all rows.
    """
    if "domain" not in table:
        if alone:
            return table
        raise RunTableError("the curve lacks column 'domain', which tells losses apart")
    of_domain = table[table["domain"].astype(str) == name]
    if len(of_domain) or alone:
        return of_domain if len(of_domain) else table
    have = ", ".join(map(str, table["domain"].unique()[:5]))
    raise RunTableError(f"the curve has no rows of domain {name!r}; it has: {have}")


def side_of(
    posterior: Posterior,
    name: str,
    run: pd.DataFrame,
    question: RunQuestion,
    schedule: Schedules,
    seed: int,
    alone: bool,
    refit: bool,
) -> TrackedDomain:
    """Start to follow one domain, before the first point; ``alone``: no other domain is
    followed.
    """
    rows = rows_of(name, run, alone) if "domain" in run else run
    warn_other_domain(table_of(posterior), rows)
    by_plan = planned(schedule)
    along = course(posterior, rows, question.until, by_plan, seed)
    limit = question.limits.get(name)
    track = Track.start(
        name,
        along,
        question.until,
        limit=limit,
        other_courses=other_courses(posterior, rows, schedule, seed),
        prob=question.prob,
        seed=seed,
    )
    before = {along.unit: question.until}
    if along.shared is not None:
        of_setting = track.before(track.end)
        before |= {key: of_setting[f"before_{key}"] for key in INTERVAL}
    else:
        end = _at_end(rows, by_plan, along.unit, question.until)
        row = forecast(posterior, end, prob=question.prob, seed=seed).iloc[0]
        before |= {key: float(row[key]) for key in INTERVAL}
    side = TrackedDomain(track, track, before, tuple(posterior.warnings))
    if not refit:
        return side
    again = Again.of(posterior, rows, question.until, schedule, seed)
    return side._replace(again=again)


def _at_end(
    rows: pd.DataFrame, schedule: pd.DataFrame | None, unit: str, until: float
) -> pd.DataFrame:
    """Build the run's covariates at its planned end, one row."""
    last = rows.tail(1)
    if schedule is None:
        return last.assign(**{unit: until})
    steps = schedule[unit].to_numpy(float)
    off = np.abs(steps - until)
    nearest = int(np.argmin(off))
    at_end = schedule.iloc[[nearest]]
    (columns,) = at_end.to_dict("records")
    named = {str(name): value for name, value in columns.items()}
    return last.assign(**named)
