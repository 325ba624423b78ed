"""Follow one domain's loss along a run, point by point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.diagnostics import TRUSTED_K
from bayeslaw._running.following.course import Course
from bayeslaw._running.following.departure import Departure, Outlook, Scales
from bayeslaw._running.following.shared import middle_and_sd

if TYPE_CHECKING:
    from jaxtyping import Float

SURPRISING, UNUSUAL = 0.01, 0.1


@dataclass(frozen=True)
class TrackRules:
    """Measured constants of followed runs.

    Parameters
    ----------
    remembered, changed
        A run that changes its share of replay ends almost as if it had started with the
        new share. Of the difference it remembers the share ``remembered``, times the
        part of the run that is over. The error of this rule has the sd ``changed`` of
        log loss. Measured on tiny models, docs/microcpt_phases.md.
    latest
        Part of the planned run after which no change of replay was measured.
    switched
        Sd of log loss that is added if a run goes on by another schedule. It is the
        error of loss curves in forecasts of a decay that is still to come. Measured,
        docs/follow.md.
    same_past
        A run may change to another schedule if the losses of both schedules at the last
        point differ by at most this share.
    jumps
        Share of the false alarms that a sudden jump may raise.
    rows_over, least_rise, rise_noises
        A loss has passed its least (`Track.risen`) if this number of points in a row lie
        above it, by at least this log loss and this many sds of the points' noise.
    fewest_draws
        With fewer effective draws, too few explain the run (`Track.is_worn`).
    """

    remembered: float = 0.35
    changed: float = 0.005
    latest: float = 0.5
    switched: float = 0.0025
    same_past: float = 0.002
    jumps: float = 0.1
    rows_over: int = 3
    least_rise: float = 0.003
    rise_noises: float = 4.0
    fewest_draws: int = 100


class Moment(NamedTuple):
    """The forecast after a point was measured. Losses are in nats per token.

    Parameters
    ----------
    at, loss
        Tokens (or steps), and the loss measured there.
    low, median, high
        Forecast of this point by the points before it.
    final_low, final_median, final_high
        Forecast of the loss at the planned end.
    probability
        Probability that the end keeps its limit; NaN without a limit.
    surprise
        Surprise of all points so far, see `Track.surprise`.
    """

    at: float
    loss: float
    low: float
    median: float
    high: float
    final_low: float
    final_median: float
    final_high: float
    probability: float
    surprise: float


class Least(NamedTuple):
    """The least loss of a run that has risen since.

    Parameters
    ----------
    at, loss
        Tokens (or steps), and the loss there in nats per token.
    rise
        Share by which the last loss is higher.
    """

    at: float
    loss: float
    rise: float


@dataclass(frozen=True, eq=False)
class Track:
    """A run's loss on one domain: the posterior from before the run, and the points so
    far.

    Parameters
    ----------
    name
        Name of the domain.
    course
        The law along the run.
    first
        The law from before the run; it differs from ``course`` after a refit.
    until
        Tokens (or steps) at the planned end.
    limit
        Loss that the end may not exceed, nats per token; None without a promise.
    prob
        Probability inside intervals.
    departure
        Posterior of the run's departure from its law.
    stray, strays
        Largest standardised departure from the forecast so far, and its reference
        distribution over simulated runs, shape (draw,).
    slopes
        Slopes of simulated runs against the law, per e-fold of tokens, shape (draw,).
    other_courses
        The law along the run by other schedules, each to its own end.
    least_step
        Smallest tail probability of a point, given the points before it and the error
        of a new run.
    history
        A moment for each point.
    rules
        Measured constants.
    """

    name: str
    course: Course
    first: Course
    until: float
    limit: float | None
    prob: float
    departure: Departure
    stray: float
    strays: Float[np.ndarray, " draw"]
    slopes: Float[np.ndarray, " draw"]
    other_courses: Mapping[str, Course] = field(default_factory=dict)
    least_step: float = 1.0
    history: tuple[Moment, ...] = field(default=())
    rules: TrackRules = TrackRules()

    @classmethod
    def start(
        cls,
        name: str,
        course: Course,
        until: float,
        *,
        limit: float | None = None,
        other_courses: Mapping[str, Course] | None = None,
        prob: float = 0.9,
        seed: int = 0,
    ) -> Track:
        """Start to follow a run, before its first point."""
        error = middle_and_sd(course.error)[1]
        shared = course.shared
        is_measured = shared is not None and shared.own is not None
        scales = Scales.draw(
            error, seed=seed, slopes=course.slopes, measured=is_measured
        )
        departure = Departure.before(scales, course.draws, float(np.log(until)))
        strays = np.zeros(course.draws)
        usual = float(np.median(departure.scales.slope))
        rng = generator(seed, Stream.DETOURS)
        slopes = usual * rng.standard_normal(course.draws)
        return cls(
            name,
            course,
            course,
            until,
            limit,
            prob,
            departure,
            0.0,
            strays,
            slopes,
            other_courses or {},
        )

    @property
    def end(self) -> float:
        """Compute the log of the tokens (or steps) at the planned end."""
        return float(np.log(self.until))

    def after(self, at: float, loss: float) -> Track:
        """Add one point: tokens (or steps), and the loss in nats per token."""
        clock, log_loss = float(np.log(at)), float(np.log(loss))
        law = self.course.at(clock)
        foretold = Outlook.of(self.departure, clock, law)
        # With many points the forecast becomes narrower than the law's own error. So
        # the error of new runs is added before the tail probability of the point is
        # computed.
        error = middle_and_sd(self.first.error)[1]
        below = replace(foretold, sd=np.hypot(foretold.sd, error)).below(log_loss)
        foreseen = self._foreseen(clock)
        middle, sd = middle_and_sd(foreseen)
        now = replace(
            self,
            departure=self.departure.after(clock, log_loss - law),
            stray=max(self.stray, abs(log_loss - middle) / sd),
            strays=np.maximum(self.strays, np.abs(foreseen - middle) / sd),
            least_step=min(self.least_step, 2 * min(below, 1 - below)),
        )
        low, median, high = np.exp(foretold.quantiles(self._tails))
        count = len(self.history) + 1
        final = now.final()
        moment = Moment(
            at,
            loss,
            low,
            median,
            high,
            final["low"],
            final["median"],
            final["high"],
            now.probability(),
            now._surprise(count),
        )
        return replace(now, history=(*self.history, moment))

    def fitted_again(
        self, course: Course, other_courses: Mapping[str, Course]
    ) -> Track:
        """Follow the same points by a law that was also fitted to them.

        Its draws begin with equal weights, because the refit has used the points
        already. The run's departure from each draw is learned from the points as
        before. The forecast from before the run and the history stay.
        """
        scales = self.departure.scales
        departure = Departure.before(scales, course.draws, self.end)
        for moment in self.history:
            clock, log_loss = float(np.log(moment.at)), float(np.log(moment.loss))
            departure = departure.after(clock, log_loss - course.at(clock))
        return replace(
            self,
            course=course,
            other_courses=other_courses,
            departure=departure.with_equal_draws(),
        )

    # -- what is known now -------------------------------------------------------------

    def outlook(self, clock: float) -> Outlook:
        """Forecast a point at this log of tokens, after the last one."""
        law = self.course.at(clock)
        departure = self.departure
        return Outlook.of(departure, clock, law)

    def final(self) -> dict[str, float]:
        """Forecast the loss at the planned end: ``D`` (or ``step``), ``median``,
        ``low``, ``high``.
        """
        row = self._row(self.end)
        # without the last digits, which come from the logarithm
        unit = self.course.unit
        return row | {unit: self.until}

    def path(self, places: int = 24) -> pd.DataFrame:
        """Forecast the loss at a number of points from here to the planned end, with
        the forecast from before the run: ``before_median``, ``before_low``,
        ``before_high``.
        """
        rows = []
        for clock in np.linspace(self.clock, self.end, places):
            now = self._row(clock)
            before = self.before(clock)
            rows.append(now | before)
        return pd.DataFrame(rows)

    def foreseen(self, places: int = 24) -> pd.DataFrame:
        """Compute the forecast from before the run, at a number of points from its
        first point to its planned end.
        """
        first = self.clock
        if self.history:
            first = float(np.log(self.history[0].at))
        rows = []
        for clock in np.linspace(first, self.end, places):
            at = float(np.exp(clock))
            place = {self.course.unit: at}
            before = self.before(clock)
            rows.append(place | before)
        return pd.DataFrame(rows)

    def before(self, clock: float) -> dict[str, float]:
        """Compute the forecast of a point from before the run."""
        law = self.first.at(clock)
        new = law + self.first.error
        quantiles = np.quantile(new, self._tails)
        low, median, high = np.exp(quantiles)
        return {
            "before_median": median,
            "before_low": low,
            "before_high": high,
        }

    def probability(self, clock: float | None = None) -> float:
        """Compute the probability that a point, by default at the planned end, keeps
        the limit; NaN without a limit.
        """
        if self.limit is None:
            return float("nan")
        there = self.end if clock is None else clock
        outlook = self.outlook(there)
        log_limit = float(np.log(self.limit))
        return outlook.below(log_limit)

    def at_replay(self, replay: float) -> Outlook:
        """Forecast the end if the share of replay changes from here on. It is the
        forecast with the new share from the start, corrected for the part that the run
        remembers, plus the run's own departure.
        """
        as_planned = self.outlook(self.end)
        moved = self.course.ends[replay] - self.course.law_at(self.end)
        over = np.exp(self.clock - self.end)
        return Outlook(
            as_planned.mean + (1 - self.rules.remembered * over) * moved,
            np.hypot(as_planned.sd, self.rules.changed),
            as_planned.weight,
        )

    def _end_at(self, outlook: Outlook) -> tuple[float, float, float, float]:
        """Summarise the loss by median, low and high, and compute the probability of
        the limit; NaN without a limit.
        """
        low, median, high = np.exp(outlook.quantiles(self._tails))
        probability = float("nan")
        if self.limit is not None:
            probability = outlook.below(float(np.log(self.limit)))
        return median, low, high, probability

    @cached_property
    def replays(self) -> pd.DataFrame:
        """Forecast the end at other shares of replay from here on, a row each:
        ``replay``, ``median``, ``low``, ``high``, ``probability``. There are no rows if
        no law reads replay, or if the run is past the latest measured change of replay.
        """
        rows = []
        early = self.clock <= self.end + np.log(self.rules.latest)
        for replay in self.course.ends if early else ():
            rows.append([replay, *self._end_at(self.at_replay(replay))])
        columns = ["replay", "median", "low", "high", "probability"]
        return pd.DataFrame(rows, columns=columns, dtype=float)

    @cached_property
    def schedules(self) -> pd.DataFrame:
        """Forecast the end by other schedules from here on, a row each: ``schedule``,
        its end (``D`` or ``step``), ``median``, ``low``, ``high``, ``probability``, and
        ``saved``: tokens (or steps) saved against the plan, below 0 if it takes more.

        The run's own departure is carried over to the end of the other schedule, with a
        larger spread. Schedules are left out if they have ended, or if they differ from
        the run's past.
        """
        unit = self.course.unit
        rows = []
        for name, course in self.other_courses.items():
            if not self._goes_on_by(course):
                continue
            clock = float(course.clock[-1])
            beyond = self.course.beyond_law(self.clock)
            if course.shared is not None:
                beyond = course.beyond_law(clock)
            law = course.law_at(clock) + beyond
            carried = Outlook.of(self.departure, clock, law)
            there = replace(carried, sd=np.hypot(carried.sd, self.rules.switched))
            # the logarithm of a whole number, up to rounding
            at = float(round(np.exp(clock)))
            rows.append([name, at, *self._end_at(there), self.until - at])
        columns = ["schedule", unit, "median", "low", "high", "probability", "saved"]
        return pd.DataFrame(rows, columns=columns)

    def _goes_on_by(self, course: Course) -> bool:
        """Tell whether the run may go on by another schedule."""
        if self.clock >= course.clock[-1]:
            return False
        if not self.history:
            return True
        apart = course.law_at(self.clock) - self.course.law_at(self.clock)
        return abs(float(np.median(apart))) < self.rules.same_past

    def probability_before(self) -> float:
        """Compute the probability that the end keeps the limit, before the first point;
        NaN without a limit.
        """
        if self.limit is None:
            return float("nan")
        law = self.first.at(self.end)
        new = law + self.first.error
        is_kept = new <= np.log(self.limit)
        return float(np.mean(is_kept))

    @property
    def clock(self) -> float:
        """Compute the log of the tokens (or steps) of the last point, or of the run's
        start.
        """
        if self.departure.clock is None:
            return float(self.course.clock[0])
        return self.departure.clock

    @property
    def surprise(self) -> float:
        """Compute the share of simulated runs that stray at least as far from the
        forecast; a small share is surprising.

        It is the smaller of two tail probabilities. One is that of the farthest point,
        among simulated runs from before the first point. The other is that of the least
        expected point given the points before it, over all points (Bonferroni). The
        second gets the share ``rules.jumps`` of the false alarms.
        """
        points = len(self.history)
        return self._surprise(points)

    def _surprise(self, points: int) -> float:
        """Estimate the probability that a run of the usual kind strays as far."""
        if not points:
            return 1.0
        is_as_far = self.strays >= self.stray
        as_far = float(np.mean(is_as_far))
        # with n draws no probability below 1/n can be estimated
        from_band = max(as_far, 1 / len(self.strays))
        from_step = points * self.least_step
        jumps = self.rules.jumps
        return float(min(1.0, from_band / (1 - jumps), from_step / jumps))

    def side(self) -> str:
        """Tell whether the run lies above or below the forecast from before it."""
        last = self.history[-1]
        clock = float(np.log(last.at))
        foreseen = self._foreseen(clock)
        middle, _ = middle_and_sd(foreseen)
        log_loss = np.log(last.loss)
        is_above = log_loss > middle
        return "above" if is_above else "below"

    @property
    def risen(self) -> Least | None:
        """Find the least loss, if the run has clearly risen since and its law does not;
        None otherwise.
        """
        rules = self.rules
        losses = np.log([moment.loss for moment in self.history])
        if len(losses) <= rules.rows_over:
            return None
        place = int(np.argmin(losses))
        over = losses[place + 1 :][-rules.rows_over :] - losses[place]
        by_scale = self.departure.weight.sum(axis=1)
        noise = by_scale @ self.departure.scales.noise_at(self.end - self.clock)
        clear = max(rules.least_rise, rules.rise_noises * float(noise))
        if len(over) < rules.rows_over or over.min() < clear:
            return None
        least = self.history[place]
        law = self.first.law_at(np.array([np.log(least.at), self.clock]))
        before, now = np.median(law, axis=0)
        if now > before:
            return None
        return Least(least.at, least.loss, float(np.expm1(over[-1])))

    def known_from(self, within: float) -> float | None:
        """Find the tokens (or steps) from which on the interval of the end has been at
        most this share of the loss wide to either side; None if it is wider now.
        """
        since = None
        for moment in self.history:
            half = (moment.final_high - moment.final_low) / 2
            is_narrow = half <= within * moment.final_median
            since = (since or moment.at) if is_narrow else None
        return since

    @property
    def is_worn(self) -> bool:
        """Tell whether few draws of the law explain the run."""
        departure = self.departure
        if departure.khat >= TRUSTED_K:
            return True
        return departure.effective < self.rules.fewest_draws

    @property
    def warnings(self) -> tuple[str, ...]:
        """List reasons to distrust the answer."""
        lines = [
            f"{self.name}: schedule {name!r} is over, or had another past: left out"
            for name, course in self.other_courses.items()
            if not self._goes_on_by(course)
        ]
        if not self.is_worn:
            return tuple(lines)
        khat, effective = self.departure.khat, self.departure.effective
        line = (
            f"{self.name}: few draws of the posterior explain this run (k-hat "
            f"{khat:.2f}, {effective:.0f} effective); fit again with its points among "
            "the runs (refit)"
        )
        return (*lines, line)

    # -- its own -----------------------------------------------------------------------

    @property
    def _tails(self) -> list[float]:
        low = 0.5 - self.prob / 2
        high = 0.5 + self.prob / 2
        return [low, 0.5, high]

    def _row(self, clock: float) -> dict[str, Any]:
        """Tabulate the outlook at one clock: the median and the band, in loss."""
        low, median, high = np.exp(self.outlook(clock).quantiles(self._tails))
        at = float(np.exp(clock))
        return {
            self.course.unit: at,
            "median": float(median),
            "low": float(low),
            "high": float(high),
        }

    def _foreseen(self, clock: float) -> Float[np.ndarray, " draw"]:
        """Simulate log losses of runs at one point, by the posterior from before this
        run.
        """
        law = self.first.at(clock)
        error = self.first.error
        after_end = clock - self.end
        line = self.slopes * after_end
        return law + error + line
