"""Follow a run while it trains: forecast its end, and whether its promises will be
kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count, positive
from bayeslaw._posteriors.averaging.loading import Posteriors, as_posterior
from bayeslaw._posteriors.pairs import one_domain, table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._running.following.course import Schedules, unit_of
from bayeslaw._running.following.decision import decide, together
from bayeslaw._running.following.followed import Followed, Following
from bayeslaw._running.following.points import points_of, read_curve
from bayeslaw._running.following.question import LossLimits, RunQuestion, checked
from bayeslaw._running.following.side import (
    CLOSE,
    TrackedDomain,
    rows_of,
    side_of,
)
from bayeslaw._running.following.track import Moment


@dataclass(frozen=True, kw_only=True, eq=False)
class PromiseArguments:
    """Arguments that `follow` and `Follower.start` share, documented in `follow`."""

    max_loss: LossLimits = None
    confidence: float = 0.9
    prob: float = 0.9
    within: float = 0.02
    schedule: Schedules = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class FollowArguments(PromiseArguments):
    # documented in `follow`

    posterior: Posteriors
    curve: pd.DataFrame | str | Path
    until: float
    _: KW_ONLY
    warmup: float | None = None


@dataclass(frozen=True, eq=False)
class FollowerArguments(PromiseArguments):
    # documented in `Follower.start`

    posterior: Posteriors
    run: Mapping[str, float] | pd.DataFrame
    until: float
    _: KW_ONLY
    refit: bool = False


@takes(FollowArguments)
def follow(arguments: FollowArguments) -> Following:
    """Forecast a run's end from the posterior made before it and its points so far.

    A Kalman filter weighs every draw of the law by the likelihood of the points. The
    run may depart from the law by a level, a slope and a wander. If the run follows the
    law, the forecast of the end is the law's. If not, the forecast extrapolates the
    run's own points.

    Parameters
    ----------
    posterior
        A `Fit` or an `Average`; or several by the domain of their losses.
    curve
        The points so far of one run, in the columns of a table of runs. Rows of a
        ``domain`` without a posterior are left out.
    until
        Tokens at the planned end; steps for laws that read areas of a schedule.
    max_loss
        Promises: the largest loss at the end, nats per token, by domain if there are
        several.
    confidence
        Probability with which all promises must be kept.
    prob
        Probability inside intervals.
    within
        Accuracy, as a share of the loss, for ``known_from``.
    schedule
        For laws that read areas of a schedule: the run's steps with their areas, from
        its start to its planned end. If there are several by name, the first is the
        planned one. The run may change to any other from here on, which has its own
        end.
    warmup
        Steps of the warm-up, whose points are left out; by default from the columns
        ``warmup`` or ``lr``.
    seed
        Seed of the noise of a new run and of the scales.

    Raises
    ------
    RunTableError
        The curve cannot be used as it is.
    PlanError
        A limit, the end or the confidence is out of its range.

    Examples
    --------
    >>> so_far = run[run["D"] <= 0.5 * run["D"].max()]
    >>> known = bayeslaw.follow(target, so_far, run["D"].max(), max_loss=2.2)
    >>> known.decision.action in {"go on", "stop early", "stop", "wait"}
    True
    """
    curve = read_curve(arguments.curve)
    shared = {f.name: getattr(arguments, f.name) for f in fields(PromiseArguments)}
    follower = Follower.start(arguments.posterior, curve, arguments.until, **shared)
    return follower.read(curve, arguments.warmup).following()


@dataclass(frozen=True, eq=False)
class Follower:
    """A run that is followed point by point: ``start`` once, then ``after`` each point.

    The same points give an equal follower, whether added one by one or together.
    """

    sides: Mapping[str, TrackedDomain]
    question: RunQuestion

    @staticmethod
    @takes(FollowerArguments)
    def start(arguments: FollowerArguments) -> Follower:
        """Start to follow a run, before its first point.

        Parameters
        ----------
        run
            The columns of the run that the laws read in addition to tokens: ``{"N":
            8.1e9, "replay": 0.3, "ptpp": 279, ...}``; or rows of the run. With several
            domains, each domain has its own rows.
        refit
            If the weights of the draws wear out (k-hat over .7, or fewer than 100
            effective draws), fit the same laws again, with the points so far among the
            rows. This takes as long as the fit did. The next refit comes at twice the
            tokens or later.
        posterior, until, max_loss, confidence, prob, within, schedule, seed
            As for `follow`.
        """
        posteriors = _by_domain(arguments.posterior)
        alone = not isinstance(arguments.posterior, Mapping)
        question = checked(
            list(posteriors),
            arguments.until,
            arguments.max_loss,
            arguments.confidence,
            arguments.prob,
            arguments.within,
        )
        units = {unit_of(posterior) for posterior in posteriors.values()}
        if len(units) > 1:
            raise PlanError("one fit counts a run in tokens, another in steps")
        run = arguments.run
        table = read_curve(run if isinstance(run, pd.DataFrame) else _one_row(run))
        sides = {
            name: side_of(
                posterior,
                name,
                table,
                question,
                arguments.schedule,
                arguments.seed,
                alone,
                arguments.refit,
            )
            for name, posterior in posteriors.items()
        }
        return Follower(sides, question)

    @property
    def unit(self) -> str:
        """Unit of the run's length: ``"D"``, tokens, or ``"step"``."""
        sides = self.sides.values()
        first = next(iter(sides))
        course_of_first = first.track.course
        return course_of_first.unit

    @property
    def is_done(self) -> bool:
        """Tell whether all losses at the planned end are measured."""
        end = np.log(self.question.until)
        sides = self.sides.values()
        clocks = [side.track.clock for side in sides]
        return min(clocks) >= end - CLOSE

    def after(self, at: float, loss: float | Mapping[str, float]) -> Follower:
        """Add one point: tokens (or steps), and its loss in nats per token, by domain
        if there are several.

        Raises
        ------
        PlanError
            A loss or a position is out of its range, or a domain is not followed.
        """
        losses = loss if isinstance(loss, Mapping) else {next(iter(self.sides)): loss}
        if not isinstance(loss, Mapping) and len(self.sides) > 1:
            raise PlanError("the loss: say of which domain, {'target': 1.9, ...}")
        place = positive(self.unit, at)
        if place > self.question.until * (1 + 1e-9):
            raise PlanError(
                f"a point at {format_count(place)}, after the planned end "
                f"{format_count(self.question.until)}"
            )
        sides = dict(self.sides)
        for name, value in losses.items():
            if name not in sides:
                raise PlanError(f"a loss of {name!r}; followed: {', '.join(sides)}")
            sides[name] = sides[name].after(place, positive(f"loss of {name}", value))
        return replace(self, sides=sides)

    def read(self, curve: pd.DataFrame, warmup: float | None = None) -> Follower:
        """Add the points of a table (see `follow`). Points that were added before are
        skipped.
        """
        alone = len(self.sides) == 1
        curve = read_curve(curve)
        sides = {}
        for name, side in self.sides.items():
            rows = rows_of(name, curve, alone)
            used, warm = points_of(rows, self.unit, self.question.until, warmup)
            columns = used[[self.unit, "loss"]].astype(float)
            points = list(columns.itertuples(index=False, name=None))
            sides[name] = side.read(points, warm)
        return replace(self, sides=sides)

    def following(self) -> Following:
        """Build the record of the present forecast."""
        question = self.question
        tracks = [side.track for side in self.sides.values()]
        domains = {name: _followed(side, question) for name, side in self.sides.items()}
        before = [
            record.probability_before
            for record in domains.values()
            if record.max_loss is not None
        ]
        return Following(
            domains=domains,
            until=question.until,
            confidence=question.confidence,
            within=question.within,
            probability=together(tracks),
            probability_before=float(np.prod(before)) if before else float("nan"),
            surprise=min(1.0, len(domains) * min(t.surprise for t in tracks)),
            decision=decide(tracks, question.confidence),
        )


def _by_domain(posterior: Posteriors) -> dict[str, Posterior]:
    if isinstance(posterior, Mapping):
        return {name: as_posterior(source) for name, source in posterior.items()}
    alone = as_posterior(posterior)
    return {domain_of(alone): alone}


def _one_row(run: Mapping[str, float]) -> pd.DataFrame:
    return pd.DataFrame([dict(run)])


def domain_of(posterior: Posterior) -> str:
    """Name the domain of a posterior's losses; "loss" if it has no name."""
    if table_of(posterior) is None:
        # a domain of a pool keeps no table, but has a name
        return getattr(posterior, "domain", None) or "loss"
    return one_domain(posterior) or "loss"


def _followed(side: TrackedDomain, question: RunQuestion) -> Followed:
    """Build the record of one followed domain from its track."""
    track = side.track
    return Followed(
        unit=track.course.unit,
        points=len(track.history),
        final=track.final(),
        final_before=side.final_before,
        foreseen=track.foreseen(),
        path=track.path(),
        replays=track.replays,
        schedules=track.schedules,
        history=pd.DataFrame(track.history, columns=list(Moment._fields)),
        max_loss=track.limit,
        probability=track.probability(),
        probability_before=track.probability_before(),
        surprise=track.surprise,
        side=track.side() if track.history else "",
        least=None if track.risen is None else track.risen._asdict(),
        known_from=track.known_from(question.within),
        khat=track.departure.khat,
        effective_draws=track.departure.effective,
        notes=side.notes,
    )
