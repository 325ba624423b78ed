"""Follow a run while it trains: forecast its end, and whether promises will hold."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import LawError, PlanError, RunTableError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.limits import (
    COUNT,
    EVEN_CHANCE,
    LOSS,
    POSITIVE,
    RATE,
    Kind,
    checked,
    read_numbers,
)
from bayeslaw._base.numbers import format_count
from bayeslaw._forecasts.forecast import warn_of_distance
from bayeslaw._posteriors.averaging.loading import Posteriors, by_name
from bayeslaw._posteriors.pairs import one_domain, table_of
from bayeslaw._posteriors.posterior import Posterior, is_kept
from bayeslaw._running.following.course import RunSetting, unit_of
from bayeslaw._running.following.decision import decide, together
from bayeslaw._running.following.followed import Following
from bayeslaw._running.following.track import Track
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.suspicions import PastMinimumWarning

if TYPE_CHECKING:
    from jaxtyping import Bool

# one schedule, or several by name; the first is the planned one
Schedules = pd.DataFrame | Mapping[str, pd.DataFrame] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class PromiseArguments:
    """Arguments that `follow` and `Follower.start` share, documented in `follow`."""

    max_loss: float | Mapping[str, float] | None = None
    confidence: float = 0.9
    prob: float = 0.9
    within: float = 0.02
    schedule: Schedules = None
    seed: int = 0

    def __post_init__(self) -> None:
        shares = dict.fromkeys(("confidence", "prob"), EVEN_CHANCE)
        read_numbers(self, {"until": COUNT, **shares, "within": RATE})


@dataclass(frozen=True, eq=False)
class FollowArguments(PromiseArguments):
    # documented in `follow`

    posterior: Posteriors
    curve: Table | str | Path
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


def _by_domain(
    what: str, given: float | Mapping[str, float], domains: Collection[str], kind: Kind
) -> dict[str, float]:
    """Check losses, by domain if there are several."""
    if not isinstance(given, Mapping):
        first, *others = domains
        if others:
            raise PlanError(f"{what}: say of which domain, {{'target': 1.8, ...}}")
        given = {first: given}
    for name in given:
        if name not in domains:
            raise PlanError(f"{what} of {name!r}; followed: {', '.join(domains)}")
    return {n: checked(f"{what} of {n}", x, kind) for n, x in given.items()}


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
        Tokens at the planned end, or steps for laws that read areas of a schedule:
        ``"20B"``.
    max_loss
        Promise: the largest loss at the end, nats per token. By domain if there are
        several.
    confidence
        Probability of keeping all promises together.
    prob
        Probability inside the intervals.
    within
        How well the end is to be known, as a share of the loss, for ``known_from``.
    schedule
        For laws of learning-rate schedules: a table of the run's steps with their
        areas, to its planned end; of several by name the first is the planned one, and
        any other is what may be done from here on. Each has its own end.
    warmup
        Steps of the warm-up, whose points are left out. By default from the columns
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
    curve = _read_curve(arguments.curve)
    shared = {f.name: getattr(arguments, f.name) for f in fields(PromiseArguments)}
    follower = Follower.start(arguments.posterior, curve, arguments.until, **shared)
    return follower.read(curve, arguments.warmup).following()


@dataclass(frozen=True, eq=False)
class Follower:
    """A run that is followed point by point: ``start`` once, then ``after`` each point.

    The same points give an equal follower, whether added one by one or together.
    """

    tracks: Mapping[str, Track]
    question: FollowerArguments

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
        given, schedules = arguments.posterior, arguments.schedule
        posteriors = by_name(given, "")
        if not isinstance(given, Mapping):
            posteriors = {domain_of(alone): alone for alone in posteriors.values()}
        if not isinstance(schedules, Mapping):
            schedules = {"": schedules}
        schedules = dict(schedules) or {"": None}
        limits = arguments.max_loss if arguments.max_loss is not None else {}
        limits = _by_domain("max_loss", limits, posteriors, LOSS)
        units = {unit_of(posterior) for posterior in posteriors.values()}
        if len(units) > 1:
            raise PlanError("one fit counts a run in tokens, another in steps")
        until, seed = arguments.until, arguments.seed
        run = as_frame(arguments.run)
        table = _read_curve(
            run if isinstance(run, pd.DataFrame) else pd.DataFrame([dict(run)])
        )
        tracks = {}
        for name, posterior in posteriors.items():
            rows = table
            if "domain" in table:
                rows = _rows_of(name, table, not isinstance(given, Mapping))
            setting = RunSetting(posterior, rows, until, schedules, seed)
            if arguments.refit and not is_kept(posterior):
                raise LawError(
                    f"{type(posterior).__name__} cannot be fitted again along a run: "
                    "give a fit or an average (`bayeslaw fit`), or leave refit out"
                )
            along, others = setting.courses(posterior)
            warn_of_distance(posterior, rows.tail(1).assign(**{along.unit: until}))
            tracks[name] = Track.start(
                name,
                along,
                until,
                limit=limits.get(name),
                other_courses=others,
                prob=arguments.prob,
                seed=seed,
                fit_warnings=tuple(posterior.warnings),
                again=setting if arguments.refit else None,
            )
        return Follower(tracks, arguments)

    @property
    def unit(self) -> str:
        """Unit of the run's length: ``"D"``, tokens, or ``"step"``."""
        return next(iter(self.tracks.values())).course.unit

    @property
    def is_done(self) -> bool:
        """Tell whether all losses at the planned end are measured."""
        return all(track.measured_end is not None for track in self.tracks.values())

    def after(self, at: float, loss: float | Mapping[str, float]) -> Follower:
        """Add one point: tokens (or steps), and its loss in nats per token, by domain
        if there are several.

        Raises
        ------
        PlanError
            A loss or a position is out of its range, or a domain is not followed.
        """
        losses = _by_domain("loss", loss, self.tracks, POSITIVE)
        place = checked(self.unit, at, POSITIVE)
        if place > self.question.until * (1 + 1e-9):
            raise PlanError(
                f"a point at {format_count(place)}, after the planned end "
                f"{format_count(self.question.until)}"
            )
        tracks = dict(self.tracks)
        for name, value in losses.items():
            tracks[name] = tracks[name].after(place, value)
        return replace(self, tracks=tracks)

    def read(self, curve: pd.DataFrame, warmup: float | None = None) -> Follower:
        """Add the points of a table (see `follow`) that were not added before."""
        curve = _read_curve(curve)
        tracks = {}
        for name, track in self.tracks.items():
            rows = _rows_of(name, curve, len(self.tracks) == 1)
            points, warm = _points_of(rows, self.unit, self.question.until, warmup)
            tracks[name] = track.read(points, warm)
        return replace(self, tracks=tracks)

    def following(self) -> Following:
        """Build the record of the present forecast."""
        question, tracks = self.question, list(self.tracks.values())
        domains = {
            name: track.followed(question.within) for name, track in self.tracks.items()
        }
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


def domain_of(posterior: Posterior) -> str:
    """Name the domain of a posterior's losses; "loss" if it has no name."""
    # a domain of a pool may keep no table, but has a name
    named = getattr(posterior, "domain", None)
    return (named if table_of(posterior) is None else one_domain(posterior)) or "loss"


# -- the points of a run ---------------------------------------------------------------


def _read_curve(curve: Table | str | Path) -> pd.DataFrame:
    """Read the points of a run. That its loss passed its least is told by the decision,
    which knows what the law foresees, and not by the reader.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PastMinimumWarning)
        return as_runs(curve)


def _rows_of(name: str, table: pd.DataFrame, alone: bool) -> pd.DataFrame:
    """Select a domain's rows; all, if it is the only one and none is named."""
    if alone and "domain" not in table:
        return table
    check_columns(table, ["domain"], ", which tells losses apart", "the curve")
    of_domain = table[table["domain"].astype(str) == name]
    if len(of_domain) or alone:
        return of_domain if len(of_domain) else table
    have = ", ".join(map(str, table["domain"].unique()[:5]))
    raise RunTableError(f"the curve has no rows of domain {name!r}; it has: {have}")


def _points_of(
    curve: pd.DataFrame, unit: str, until: float, warmup: float | None
) -> tuple[list[tuple[float, float]], int]:
    """Read the points of one domain of one run in order, each its tokens (or steps) and
    loss. Also returns how many points of the warm-up were left out.

    ``curve``: columns ``loss`` and ``unit``; the columns ``run``, ``step``, ``lr`` and
    ``warmup`` are read if they exist. ``until``: planned end of the run. ``warmup``:
    Steps over which the rate rises. By default they follow from the column ``warmup``,
    or from the rates.
    """
    check_columns(curve, (unit, "loss"), what="the curve")
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
    is_warming = _are_in_warmup(ordered, warmup)
    used = ordered.loc[~is_warming, [unit, "loss"]].astype(float)
    return [*used.itertuples(index=False, name=None)], int(is_warming.sum())


def _are_in_warmup(
    points: pd.DataFrame, warmup: float | None, peak_share: float = 0.99
) -> Bool[np.ndarray, " row"]:
    """Tell which points lie in the warm-up, below this share of the peak rate."""
    if warmup is None and "warmup" in points:
        steps = points["warmup"].dropna()
        warmup = float(steps.max()) if len(steps) else None
    if warmup is not None:
        check_columns(points, ["step"], ", in which warmup is", "the curve")
        return points["step"].to_numpy(float) < warmup
    rates = points["lr"].to_numpy(float) if "lr" in points else np.zeros(len(points))
    high = rates >= peak_share * np.max(rates, initial=0.0, where=np.isfinite(rates))
    first = int(np.argmax(high)) if high.any() else 0
    # a rate that falls before it rises is not a warm-up
    only_rises = np.all(np.diff(rates[: first + 1]) >= 0)
    return np.arange(len(points)) < (first if only_rises else 0)
