"""Follow one domain's loss along a run, point by point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.diagnostics import TRUSTED_K
from bayeslaw._running.following.course import UNITS, Course, RunSetting, middle_and_sd
from bayeslaw._running.following.departure import Departure, Outlook, Scales
from bayeslaw._running.following.followed import Followed

if TYPE_CHECKING:
    from jaxtyping import Float

END = ("median", "low", "high", "probability")  # columns of a forecast
CLOSE = 0.005  # e-folds of tokens; a point nearer to the last used one is not used
PLACES = 24  # points of a forecast along the run
LATER = 2.0  # times the tokens of a refit at which the next one may come


# A run that changes its share of replay ends almost as if it had started with the new
# share. Of the difference it remembers this share, times the part of the run that is
# over. The error of this rule has the sd ``CHANGED`` of log loss. Measured on tiny
# models, docs/microcpt_phases.md, up to the part ``LATEST`` of the run.
REMEMBERED = 0.35
CHANGED = 0.005
LATEST = 0.5
# Sd of log loss that is added if a run goes on by another schedule: the error of loss
# curves in forecasts of a decay that is still to come. Measured, docs/follow.md.
SWITCHED = 0.0025
SAME_PAST = 0.002  # largest difference of both schedules' losses at the last point
JUMPS = 0.1  # share of the false alarms that a sudden jump may raise
# A loss has passed its least if this number of points in a row lie above it, by at least
# this log loss and this many sds of the points' noise.
ROWS_OVER = 3
LEAST_RISE = 0.003
RISE_NOISES = 4.0
FEWEST_DRAWS = 100  # effective; with fewer, too few explain the run


class Moment(NamedTuple):
    """The forecast after a point was measured. Losses are in nats per token."""

    # tokens (or steps), and the loss measured there
    at: float
    loss: float
    # forecast of this point by the points before it
    low: float
    median: float
    high: float
    # forecast of the loss at the planned end
    final_low: float
    final_median: float
    final_high: float
    probability: float  # probability that the end keeps its limit; NaN without a limit
    surprise: float  # surprise of all points so far, see `Track.surprise`


@dataclass(frozen=True, eq=False)
class Track:
    """A run's loss on one domain: the posterior before it, and its points."""

    name: str
    course: Course  # the law along the run
    until: float  # tokens (or steps) at the planned end
    departure: Departure  # posterior of the run's departure from its law
    # largest standardised departure from the forecast so far, of simulated runs, and of
    # this run
    strays: Float[np.ndarray, " draw"]
    # slopes of simulated runs against the law, per e-fold of tokens
    slopes: Float[np.ndarray, " draw"]
    # loss that the end may not exceed, nats per token; None without a promise
    limit: float | None = None
    prob: float = 0.9  # probability inside intervals
    # the law along the run by other schedules, each to its own end
    other_courses: Mapping[str, Course] = field(default_factory=dict)
    fit_warnings: tuple[str, ...] = ()  # warnings of the posterior
    # how the laws are fitted again if the weights wear out; None: they are not
    again: RunSetting | None = None
    # the track before the first point; None if it is this one
    start_of_run: Track | None = None
    stray: float = 0.0
    # smallest tail probability of a point, given the points before it and the error of
    # a new run
    least_step: float = 1.0
    # all points (tokens, loss) in order, also those that are not used; and the number
    # of points of the warm-up that were left out
    points: tuple[tuple[float, float], ...] = ()
    warm: int = 0
    history: tuple[Moment, ...] = ()  # one for each point that is used
    # tokens of the last refit, and the points that were fitted
    refitted: tuple[float, int] | None = None

    @classmethod
    def start(
        cls, name: str, course: Course, until: float, *, seed: int = 0, **more: Any
    ) -> Track:
        """Start to follow a run, before its first point; ``more``: further fields."""
        draws = len(course.error)
        scales = Scales.draw(
            middle_and_sd(course.error)[1],
            seed=seed,
            slopes=course.slopes,
            measured=course.shared is not None and course.shared.own is not None,
        )
        usual_slope = float(np.median(scales.slope))
        rng = generator(seed, Stream.DETOURS)
        return cls(
            name=name,
            course=course,
            until=until,
            departure=Departure.before(scales, draws, float(np.log(until))),
            strays=np.zeros(draws),
            slopes=usual_slope * rng.standard_normal(draws),
            **more,
        )

    # -- points ------------------------------------------------------------------------

    def read(self, points: list[tuple[float, float]], warm: int) -> Track:
        """Add all points of a run, (tokens, loss), that were not added before."""
        goes_on = tuple(points[: len(self.points)]) == self.points
        track = self if goes_on else self.started
        for at, loss in points[len(track.points) :]:
            track = track.after(at, loss)
        return replace(track, warm=warm)

    def after(self, at: float, loss: float) -> Track:
        """Add one point: tokens (or steps), and the loss in nats per token. A point
        that is too early, or too near the last one, is ignored.
        """
        track = replace(
            self,
            points=(*self.points, (at, loss)),
            start_of_run=self.started,
        )
        clock, log_loss = float(np.log(at)), float(np.log(loss))
        is_near = self.departure.clock is not None and clock - self.clock < CLOSE
        if clock < self.course.clock[0] or is_near:
            return track
        law = self.course.at(clock)
        foretold = Outlook.of(self.departure, clock, law)
        # With many points the forecast becomes narrower than the law's own error. So
        # the error of new runs is added before the tail probability of the point is
        # computed.
        error = middle_and_sd(self.first.error)[1]
        below = replace(foretold, sd=np.hypot(foretold.sd, error)).below(log_loss)
        foreseen = self._simulate_foreseen(clock)
        middle, sd = middle_and_sd(foreseen)
        track = replace(
            track,
            departure=self.departure.after(clock, log_loss - law),
            stray=max(self.stray, abs(log_loss - middle) / sd),
            strays=np.maximum(self.strays, np.abs(foreseen - middle) / sd),
            least_step=min(self.least_step, 2 * min(below, 1 - below)),
        )
        final = track.outlook(track.end)
        end = track._interval_of(final)
        moment = Moment(
            at=at,
            loss=loss,
            **self._interval_of(foretold),
            **{f"final_{name}": x for name, x in end.items()},
            probability=track._probability_of(final),
            surprise=track._find_surprise(len(self.history) + 1),
        )
        track = replace(track, history=(*self.history, moment))
        return track._fit_again() if track.is_worn else track

    def _fit_again(self) -> Track:
        """Follow the same points by laws that were also fitted to them; if the last
        refit was not long ago, nothing changes.

        The draws begin with equal weights, because the refit has used the points
        already. The run's departure from each draw is learned from the points as
        before. The forecast from before the run and the history stay.
        """
        at = self.history[-1].at
        since = 0.0 if self.refitted is None else self.refitted[0]
        if self.again is None or at < LATER * since:
            return self
        learned = [(moment.at, moment.loss) for moment in self.history]
        course, other_courses, warnings = self.again.fit(learned)
        departure = Departure.before(self.departure.scales, len(course.error), self.end)
        for clock, log_loss in np.log(learned).tolist():
            departure = departure.after(clock, log_loss - course.at(clock))
        return replace(
            self,
            course=course,
            other_courses=other_courses,
            departure=departure.with_equal_draws(),
            refitted=(at, len(learned)),
            fit_warnings=warnings,
        )

    # -- what is known now -------------------------------------------------------------

    @property
    def started(self) -> Track:
        """The track before the first point."""
        return self.start_of_run or self

    @property
    def first(self) -> Course:
        """The law from before the run; it differs from ``course`` after a refit."""
        return self.started.course

    @property
    def end(self) -> float:
        """Compute the log of the tokens (or steps) at the planned end."""
        return float(np.log(self.until))

    @property
    def clock(self) -> float:
        """Log of the tokens (or steps) of the last point, or of the start."""
        if self.departure.clock is None:
            return float(self.course.clock[0])
        return self.departure.clock

    @property
    def measured_end(self) -> float | None:
        """Find the log loss that was measured at the planned end; None before."""
        if not self.points:
            return None
        at, loss = self.points[-1]
        return float(np.log(loss)) if np.log(at) >= self.end - CLOSE else None

    def outlook(self, clock: float) -> Outlook:
        """Forecast a later point; the planned end is known once it is measured."""
        outlook = Outlook.of(self.departure, clock, self.course.at(clock))
        measured = self.measured_end
        if measured is None or clock > self.end:
            return outlook
        mean, sd = np.full_like(outlook.mean, measured), np.zeros_like(outlook.sd)
        return Outlook(mean, sd, outlook.weight)

    def final(self) -> dict[str, float]:
        """Forecast the planned end: ``D`` (or ``step``), ``median``, ends."""
        end = self._interval_of(self.outlook(self.end))
        return {self.course.unit: self.until} | end

    def before(self, clock: float) -> dict[str, float]:
        """Compute the forecast of a point from before the run."""
        new = self.first.at(clock) + self.first.error
        return self._name_ends(np.quantile(new, self._tails))

    @property
    def final_before(self) -> dict[str, float]:
        """Compute the forecast of the end from before the run, as in `final`."""
        return {self.course.unit: self.until} | self.before(self.end)

    def probability(self, clock: float | None = None) -> float:
        """Compute the probability that a point, else the end, keeps the limit."""
        return self._probability_of(self.outlook(self.end if clock is None else clock))

    @cached_property
    def replays(self) -> pd.DataFrame:
        """Forecast the end at other shares of replay from here on, a row each:
        ``replay``, ``median``, ``low``, ``high``, ``probability``. There are no rows if
        no law reads replay, or if the run is past the latest measured change of replay.

        It is the forecast with the new share from the start, corrected for the part
        that the run remembers, plus the run's own departure.
        """
        rows = []
        planned, law_planned = self.outlook(self.end), self.course.law_at(self.end)
        over = np.exp(self.clock - self.end)
        is_early = self.clock <= self.end + np.log(LATEST)
        for replay, law in self.course.ends.items() if is_early else ():
            mean = planned.mean + (1 - REMEMBERED * over) * (law - law_planned)
            sd = np.hypot(planned.sd, CHANGED)
            rows.append([replay, *self._list_end(replace(planned, mean=mean, sd=sd))])
        return pd.DataFrame(rows, columns=["replay", *END], dtype=float)

    @cached_property
    def schedules(self) -> pd.DataFrame:
        """Forecast the end by other schedules from here on, a row each: ``schedule``,
        its end (``D`` or ``step``), ``median``, ``low``, ``high``, ``probability``, and
        ``saved``: tokens (or steps) saved against the plan, below 0 if it takes more.

        The run's own departure is carried over to the end of the other schedule, with a
        larger spread. Schedules are left out if they have ended, or if they differ from
        the run's past.
        """
        rows = []
        for name, course in self.other_courses.items():
            clock = float(course.clock[-1])
            apart = course.law_at(self.clock) - self.course.law_at(self.clock)
            is_other = self.history and abs(float(np.median(apart))) >= SAME_PAST
            if self.clock >= clock or is_other:
                continue
            beyond = self.course.beyond_law(self.clock)
            if course.shared is not None:
                beyond = course.beyond_law(clock)
            carried = Outlook.of(self.departure, clock, course.law_at(clock) + beyond)
            there = replace(carried, sd=np.hypot(carried.sd, SWITCHED))
            # the logarithm of a whole number, up to rounding
            at = float(round(np.exp(clock)))
            rows.append([name, at, *self._list_end(there), self.until - at])
        columns = ["schedule", self.course.unit, *END, "saved"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def surprise(self) -> float:
        """Compute the share of simulated runs that stray at least as far from the
        forecast; a small share is surprising.

        It is the smaller of two tail probabilities. One is that of the farthest point,
        among simulated runs from before the first point. The other is that of the least
        expected point given the points before it, over all points (Bonferroni). The
        second gets the share ``JUMPS`` of the false alarms.
        """
        return self._find_surprise(len(self.history))

    def _find_surprise(self, points: int) -> float:
        if not points:
            return 1.0
        as_far = float(np.mean(self.strays >= self.stray))
        # with n draws no probability below 1/n can be estimated
        from_band = max(as_far, 1 / len(self.strays))
        from_step = points * self.least_step
        return float(min(1.0, from_band / (1 - JUMPS), from_step / JUMPS))

    @property
    def risen(self) -> dict[str, float] | None:
        """Find the least loss, if the run has risen since and its law does not: tokens
        (or steps) ``at``, the ``loss`` there, and ``rise``, the share by which the last
        loss is higher.
        """
        losses = np.log([moment.loss for moment in self.history])
        place = int(np.argmin(losses)) if len(losses) else 0
        over = losses[place + 1 :][-ROWS_OVER:] - losses[place : place + 1]
        by_scale = self.departure.weight.sum(axis=1)
        noise = by_scale @ self.departure.scales.noise_at(self.end - self.clock)
        clear = max(LEAST_RISE, RISE_NOISES * float(noise))
        if len(over) < ROWS_OVER or over.min() < clear:
            return None
        least = self.history[place]
        law = self.first.law_at(np.array([np.log(least.at), self.clock]))
        before, now = np.median(law, axis=0)
        if now > before:
            return None
        rise = float(np.expm1(over[-1]))
        return {"at": least.at, "loss": least.loss, "rise": rise}

    @property
    def is_worn(self) -> bool:
        """Tell whether few draws of the law explain the run."""
        departure = self.departure
        return departure.khat >= TRUSTED_K or departure.effective < FEWEST_DRAWS

    def followed(self, within: float) -> Followed:
        """Build the record of the present forecast.

        Parameters
        ----------
        within
            Accuracy, as a share of the loss, from which on the end is known.
        """
        unit = self.course.unit
        begin = float(np.log(self.history[0].at)) if self.history else self.clock

        def foresee(clock: float) -> dict[str, float]:
            before = self.before(clock).items()
            at = {unit: float(np.exp(clock))}
            return at | {f"before_{name}": loss for name, loss in before}

        foreseen = map(foresee, np.linspace(begin, self.end, PLACES))
        path = [
            foresee(clock) | self._interval_of(self.outlook(clock))
            for clock in np.linspace(self.clock, self.end, PLACES)
        ]
        side, known_from = "", None
        for moment in self.history:
            half = (moment.final_high - moment.final_low) / 2
            is_narrow = half <= within * moment.final_median
            known_from = (known_from or moment.at) if is_narrow else None
        if self.history:
            last = self.history[-1]
            foreseen_there = self._simulate_foreseen(float(np.log(last.at)))
            is_above = np.log(last.loss) > middle_and_sd(foreseen_there)[0]
            side = "above" if is_above else "below"
        probability_before = float("nan")
        if self.limit is not None:
            new = self.first.at(self.end) + self.first.error
            probability_before = float(np.mean(new <= np.log(self.limit)))
        return Followed(
            unit=unit,
            points=len(self.history),
            final=self.final(),
            final_before=self.final_before,
            foreseen=pd.DataFrame([*foreseen]),
            path=pd.DataFrame(path),
            replays=self.replays,
            schedules=self.schedules,
            history=pd.DataFrame(self.history, columns=list(Moment._fields)),
            max_loss=self.limit,
            probability=self.probability(),
            probability_before=probability_before,
            surprise=self.surprise,
            side=side,
            known_from=known_from,
            least=self.risen,
            khat=self.departure.khat,
            effective_draws=self.departure.effective,
            notes=tuple(self._list_notes()),
        )

    def _list_notes(self) -> list[str]:
        lines = []
        if self.warm:
            lines.append(f"{self.warm} points of the warm-up left out")
        passed = len(self.points) - len(self.history)
        if passed:
            start = format_count(float(np.exp(self.course.clock[0])))
            lines.append(
                f"{passed} points passed over: within {CLOSE:.1%} of another, or before "
                f"{start} {UNITS[self.course.unit]}, from where on the law holds"
            )
        if self.refitted is not None:
            at, fitted = self.refitted
            lines.append(
                f"few draws explained the run: its laws were fitted again at "
                f"{format_count(at)} {UNITS[self.course.unit]}, with its {fitted} "
                "points among the rows"
            )
        lines += self.fit_warnings
        lines += [
            f"{self.name}: schedule {name!r} is over, or had another past: left out"
            for name in self.other_courses
            if name not in {*self.schedules["schedule"]}
        ]
        if self.is_worn:
            departure = self.departure
            lines.append(
                f"{self.name}: few draws of the posterior explain this run (k-hat "
                f"{departure.khat:.2f}, {departure.effective:.0f} effective); fit again "
                "with its points among the runs (refit)"
            )
        return lines

    # -- its own -----------------------------------------------------------------------

    @property
    def _tails(self) -> list[float]:
        return [0.5, 0.5 - self.prob / 2, 0.5 + self.prob / 2]

    def _name_ends(self, log_losses: Float[np.ndarray, " end"]) -> dict[str, float]:
        return dict(zip(END[:3], np.exp(log_losses).tolist(), strict=True))

    def _interval_of(self, outlook: Outlook) -> dict[str, float]:
        return self._name_ends(outlook.quantiles(self._tails))

    def _probability_of(self, outlook: Outlook) -> float:
        if self.limit is None:
            return float("nan")
        return outlook.below(float(np.log(self.limit)))

    def _list_end(self, outlook: Outlook) -> list[float]:
        """List a forecast and the probability of keeping the limit, as in `END`."""
        return [*self._interval_of(outlook).values(), self._probability_of(outlook)]

    def _simulate_foreseen(self, clock: float) -> Float[np.ndarray, " draw"]:
        """Simulate log losses at one point, by the posterior from before the run."""
        line = self.slopes * (clock - self.end)
        return self.first.at(clock) + self.first.error + line
