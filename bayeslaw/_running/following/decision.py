"""Decide what to do with a run: go on, stop early, stop, or wait for its next points.

A promise is a limit on a loss at the end of the run. Several promises must be kept
together; their posteriors are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._running.following.course import UNITS, CourseGrid
from bayeslaw._running.following.departure import Outlook
from bayeslaw._running.following.track import Track

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class DecisionRules:
    """Settings of the search for a decision.

    Parameters
    ----------
    places
        Number of points between now and the end, and beyond it, at which a run may
        stop.
    longest
        Factor of the planned end up to which longer runs are considered.
    least_gain
        Gain in probability from which another replay or schedule is named.
    alike
        Difference in probability below which two schedules count as equally good.
    looks
        Number of points between now and the end at which one may look again.
    sure_enough
        Probability of being sure at which looking again is worth it.
    """

    places: int = 48
    longest: float = CourseGrid.longest
    least_gain: float = 0.05
    alike: float = 0.01
    looks: int = 24
    sure_enough: float = 0.5


@dataclass(frozen=True)
class Decision:
    """What to do, and why.

    Parameters
    ----------
    action
        ``"go on"``: the planned end keeps the promises with the confidence asked for.
        ``"stop early"``: a run that stops at ``stop_at`` keeps them with this
        confidence, too. ``"stop"``: the planned end breaks a promise with this
        confidence, or a loss has passed its least. ``"wait"``: neither is sure yet.
    reason
        Reason for the action, in words.
    stop_at, saved
        Tokens (or steps) at which to stop, and the share of the planned run that is
        saved; None if it goes to its end.
    needed
        Tokens (or steps) of a longer run that would keep the promises, the fewest that
        were found; None if none were found, or no longer run is needed.
    replay, replay_probability
        Another share of replay from here on that keeps the promises more probably, and
        that probability; None if there is none, or the run goes well.
    schedule, schedule_probability
        Another schedule from here on that keeps the promises more probably, and that
        probability; None if there is none, or the run goes well.
    look_again, sure_by_then
        Tokens (or steps) at which the answer is sure with a probability of about a
        half, and that probability; None if it is sure now.
    least_at
        Tokens (or steps) of the least loss, if it has risen since and its law does not
        (`Track.risen`): the checkpoint to keep. None otherwise.
    regret
        Expected waste in tokens (or steps). Going on wastes the tokens still to come if
        a promise breaks. Stopping wastes the whole run if it would have kept the
        promises, because it must then be made again.
    """

    action: str
    reason: str
    stop_at: float | None = None
    saved: float = 0.0
    needed: float | None = None
    replay: float | None = None
    replay_probability: float | None = None
    schedule: str | None = None
    schedule_probability: float | None = None
    look_again: float | None = None
    sure_by_then: float | None = None
    least_at: float | None = None
    regret: dict[str, float] | None = None


def together(tracks: Sequence[Track], clock: float | None = None) -> float:
    """Compute the probability of keeping all limits at a point; NaN without a limit."""
    chances = [track.probability(clock) for track in tracks if track.limit is not None]
    if not chances:
        return float("nan")
    return float(np.prod(chances))


def decide(
    tracks: Sequence[Track], confidence: float, rules: DecisionRules = DecisionRules()
) -> Decision:
    """Decide what to do with a run whose losses are followed in one or more domains."""
    chance = together(tracks)
    now, end = max(track.clock for track in tracks), tracks[0].end
    past_least = _past_least(tracks, now)
    if np.isnan(chance):
        nothing = "no limit was given, so there is nothing to decide"
        return past_least or Decision("go on", nothing)
    early = _first(tracks, confidence, now, end, rules.places)
    if past_least is not None:
        decision = past_least
    elif early is not None and early < end - 1e-9:
        decision = _stopped_early(tracks, early)
    elif early is not None:
        decision = Decision("go on", _end_keeps(chance))
    elif chance <= 1 - confidence:
        changes = _changes(tracks, chance, confidence, rules)
        decision = _stopped(tracks, chance, now, changes)
    else:
        changes = _changes(tracks, chance, confidence, rules)
        decision = _waiting(tracks, chance, confidence, now, changes, rules)
    remaining = float(np.exp(end) - np.exp(now))
    regret = {
        "go on": (1 - chance) * remaining,
        "stop": chance * float(np.exp(end)),
    }
    return replace(decision, regret=regret)


def _past_least(tracks: Sequence[Track], now: float) -> Decision | None:
    """Decide to stop a run of which a loss has passed its least; None otherwise."""
    risen = {track.name: track.risen for track in tracks}
    past = {name: least for name, least in risen.items() if least is not None}
    if not past:
        return None
    unit = UNITS[tracks[0].course.unit]
    words = [
        f"the loss of {name} was least, {least.loss:.4g} nats, at "
        f"{format_count(least.at)} {unit} and has risen by {least.rise:.1%} since"
        for name, least in past.items()
    ]
    first = min(least.at for least in past.values())
    reason = (
        f"{'; '.join(words)}, where the law still falls; keep the checkpoint of "
        f"{format_count(first)} {unit}, and look at why before going on"
    )
    saved = 1 - float(np.exp(now - tracks[0].end))
    at = float(np.exp(now))
    return Decision("stop", reason, stop_at=at, saved=saved, least_at=first)


def _end_keeps(chance: float) -> str:
    return f"the planned end keeps its limits with probability {format_chance(chance)}"


def _stopped_early(tracks: Sequence[Track], clock: float) -> Decision:
    """Decide to stop at the first point that keeps all limits."""
    at, end = float(np.exp(clock)), float(np.exp(tracks[0].end))
    saved = 1 - at / end
    chance = format_chance(together(tracks, clock))
    reason = (
        f"stopped at {format_count(at)} {UNITS[tracks[0].course.unit]} it keeps its limits "
        f"with probability {chance}, which saves {saved:.0%} of the run"
    )
    return Decision("stop early", reason, stop_at=at, saved=saved)


def _stopped(
    tracks: Sequence[Track], chance: float, now: float, changes: Changes
) -> Decision:
    """Decide to stop now, because the planned end breaks a limit."""
    at, end = float(np.exp(now)), float(np.exp(tracks[0].end))
    reason = (
        "the planned end breaks its limits with probability "
        f"{format_chance(1 - chance)}{changes.words}"
    )
    saved = 1 - at / end
    return Decision("stop", reason, stop_at=at, saved=saved, **changes.fields())


def _waiting(
    tracks: Sequence[Track],
    chance: float,
    confidence: float,
    now: float,
    changes: Changes,
    rules: DecisionRules,
) -> Decision:
    """Decide to wait for the next points, because neither keeping nor breaking is sure."""
    look, sure = _look_again(tracks, confidence, now, tracks[0].end, rules)
    when = ""
    if look is not None:
        unit = UNITS[tracks[0].course.unit]
        when = (
            f"; look again at {format_count(look)} {unit}, where it is sure with "
            f"probability {sure:.0%}"
        )
    reason = f"{_end_keeps(chance)}: neither sure{when}{changes.words}"
    fields = changes.fields()
    return Decision("wait", reason, look_again=look, sure_by_then=sure, **fields)


class Changes(NamedTuple):
    """Changes by which a run would keep its limits, as fields of a `Decision` and in
    words.
    """

    needed: float | None
    replay: float | None
    replay_probability: float | None
    schedule: str | None
    schedule_probability: float | None
    words: str

    def fields(self) -> dict[str, Any]:
        fields = self._asdict()
        del fields["words"]
        return fields


def _changes(
    tracks: Sequence[Track], chance: float, confidence: float, rules: DecisionRules
) -> Changes:
    """Look for a longer run, another replay and another schedule."""
    end = tracks[0].end
    longest = end + np.log(rules.longest)
    beyond = _first(tracks, confidence, end, longest, rules.places)
    if beyond is None:
        needed = None
        words = (
            f"; nor does a run up to {rules.longest:g} times as long keep them for sure"
        )
    else:
        needed = float(np.exp(beyond))
        words = (
            f"; {format_count(needed)} {UNITS[tracks[0].course.unit]} would keep them"
        )
    replay, odds = _other_replay(tracks, chance + rules.least_gain)
    if replay is not None and odds is not None:
        words += (
            f"; with {replay:.0%} replay from here on the planned end would keep them "
            f"with probability {format_chance(odds)}"
        )
    schedule, odds_by_schedule, line = _other_schedule(tracks, chance, rules)
    return Changes(needed, replay, odds, schedule, odds_by_schedule, words + line)


def _first(
    tracks: Sequence[Track],
    confidence: float,
    start: float,
    end: float,
    places: int,
) -> float | None:
    """Find the log of the fewest tokens, among a number of points, at which all limits
    are kept with this confidence.
    """
    last = min(track.course.clock[-1] for track in tracks)
    for clock in np.linspace(start, min(end, last), places):
        if together(tracks, float(clock)) >= confidence:
            return float(clock)
    return None


def _other_replay(
    tracks: Sequence[Track], least: float
) -> tuple[float | None, float | None]:
    """Find the share of replay from here on that keeps all limits most probably, with
    its probability, if that is high enough (`Track.replays`).

    Replay trades one domain for the other. If only one domain is followed there is no
    advice, because it would always be the smallest or the largest replay.
    """
    tables = [track.replays for track in tracks if track.limit is not None]
    has_both = len(tables) > 1
    if not has_both or not all(len(table) for table in tables):
        return None, None
    together_at = np.prod([table["probability"] for table in tables], axis=0)
    best = int(np.argmax(together_at))
    if together_at[best] < least:
        return None, None
    return float(tables[0]["replay"].iloc[best]), float(together_at[best])


def _other_schedule(
    tracks: Sequence[Track], chance: float, rules: DecisionRules
) -> tuple[str | None, float | None, str]:
    """Find the schedule from here on that keeps all limits most probably, the shortest
    among equally good ones, if its probability is clearly higher than now
    (`Track.schedules`). Returns the schedule, its probability, and both in words.
    """
    tables = [track.schedules for track in tracks if track.limit is not None]
    by_name = [table.set_index("schedule") for table in tables]
    odds = by_name[0]["probability"]
    for table in by_name[1:]:
        # only schedules that all laws can follow
        odds = (odds * table["probability"]).dropna()
    if odds.empty or odds.max() < chance + rules.least_gain:
        return None, None, ""
    as_good = odds[odds >= odds.max() - rules.alike]
    saved_by = {str(k): v for k, v in by_name[0]["saved"].items() if k in as_good}
    best = max(saved_by, key=saved_by.__getitem__)
    saved = saved_by[best]
    unit = UNITS[tracks[0].course.unit]
    cost = f"{format_count(abs(saved))} {unit} {'fewer' if saved >= 0 else 'more'}"
    probability = float(odds.to_dict()[best])
    words = (
        f"; by schedule {best!r} from here on, {cost}, its end would keep them with "
        f"probability {format_chance(probability)}"
    )
    return best, probability, words


def _look_again(
    tracks: Sequence[Track],
    confidence: float,
    now: float,
    end: float,
    rules: DecisionRules,
) -> tuple[float | None, float | None]:
    """Find the point between now and the end at which one more measurement makes the
    answer sure with a probability of about a half, and that probability.

    The least certain promise decides. In the normal approximation, a point with
    correlation rho to the end lowers the end's variance by the factor 1 - rho^2. The
    end's mean then moves with rho^2 of the variance.
    """
    limited = [track for track in tracks if track.limit is not None]
    doubts = [abs(track.probability() - 0.5) for track in limited]
    doubtful = limited[int(np.argmin(doubts))]
    for clock in np.linspace(now, end, rules.looks)[1:-1]:
        chance = _sure_after(doubtful, float(clock), confidence)
        if chance >= rules.sure_enough:
            return float(np.exp(clock)), chance
    return None, None


def _sure_after(track: Track, clock: float, confidence: float) -> float:
    """Compute the probability that a point there decides whether the limit is kept."""
    mean, sd, rho = _moments(track, clock)
    sd_after = sd * np.sqrt(1 - rho**2)
    moved = max(sd * abs(rho), 1e-12)
    margin = np.log(track.limit or 1.0) - mean
    needed = norm.ppf(confidence) * sd_after
    surely_kept = norm.cdf((margin - needed) / moved)
    surely_broken = norm.cdf((-margin - needed) / moved)
    return float(surely_kept + surely_broken)


def _moments(track: Track, clock: float) -> tuple[float, float, float]:
    """Compute the mean and sd of the log loss at the end, and its correlation with a
    point's.
    """
    first = track.outlook(clock)
    last = track.outlook(track.end)
    shared = track.departure.covariance_ahead(clock, track.end)
    mean = _average(last, last.mean)
    off_first = first.mean - _average(first, first.mean)
    off_last = last.mean - mean
    # variance of a mixture: between its parts and within them
    var_first = _average(first, off_first**2 + first.sd[:, None] ** 2)
    var_last = _average(last, off_last**2 + last.sd[:, None] ** 2)
    covariance = _average(last, off_first * off_last + shared[:, None])
    sd = np.sqrt(var_last)
    rho = covariance / (sd * np.sqrt(var_first))
    bounded = min(max(rho, -1.0), 1.0)
    return mean, float(sd), float(bounded)


def _average(outlook: Outlook, values: Float[np.ndarray, "scale draw"]) -> float:
    """Average values over the parts of a mixture."""
    weighted = outlook.weight * values
    return float(weighted.sum())
