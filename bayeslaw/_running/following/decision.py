"""Decide what to do with a run: go on, stop early, stop, or wait for its next points.

A promise is a limit on a loss at the end of the run. Several promises must be kept
together; their posteriors are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._running.following.course import UNITS, CourseGrid
from bayeslaw._running.following.followed import Decision
from bayeslaw._running.following.track import Track

PLACES = 48  # where a run may stop, between now and the end, and beyond it
LEAST_GAIN = 0.05  # in probability, from which a change is named
ALIKE = 0.01  # difference in probability of equally good schedules
LOOKS = 24  # where one may look again, between now and the end
SURE_ENOUGH = 0.5  # probability of being sure that makes looking worth it


def together(tracks: Sequence[Track], clock: float | None = None) -> float:
    """Compute the probability of keeping all limits at a point; NaN without a limit."""
    chances = [track.probability(clock) for track in tracks if track.limit is not None]
    return float(np.prod(chances)) if chances else float("nan")


def decide(tracks: Sequence[Track], confidence: float) -> Decision:
    """Decide what to do with a run whose losses are followed in one or more domains."""
    chance = together(tracks)
    is_over = all(track.measured_end is not None for track in tracks)
    end = tracks[0].end
    now = end if is_over else max(track.clock for track in tracks)
    unit = UNITS[tracks[0].course.unit]
    length, at = float(np.exp(end)), float(np.exp(now))
    stopped: dict[str, Any] = {"stop_at": at, "saved": 1 - at / length}
    end_keeps = (
        f"the planned end keeps its limits with probability {format_chance(chance)}"
    )
    risen = {track.name: track.risen for track in tracks}
    past = {name: least for name, least in risen.items() if least is not None}

    # a loss that has passed its least: keep its checkpoint
    if past:
        words = [
            f"the loss of {name} was least, {least['loss']:.4g} nats, at "
            f"{format_count(least['at'])} {unit} and has risen by "
            f"{least['rise']:.1%} since"
            for name, least in past.items()
        ]
        first = min(least["at"] for least in past.values())
        reason = (
            f"{'; '.join(words)}, where the law still falls; keep the checkpoint of "
            f"{format_count(first)} {unit}, and look at why before going on"
        )
        decision = Decision("stop", reason, least_at=first, **stopped)
    elif np.isnan(chance):
        return Decision("go on", "no limit was given, so there is nothing to decide")

    # nothing is left to decide but what another run would take
    elif is_over and chance > 0.5:
        decision = Decision("go on", "the run is over, and its end keeps its limits")
    elif is_over:
        changes, words = _find_changes(tracks, chance, confidence)
        reason = f"the run is over, and its end breaks its limits{words}"
        decision = Decision("stop", reason, **stopped, **changes)

    # the limits are kept with the confidence at the end, or before it
    elif (early := _find_first(tracks, confidence, now, end)) is not None:
        decision = Decision("go on", end_keeps)
        if early < end - 1e-9:
            at = float(np.exp(early))
            saved = 1 - at / length
            reason = (
                f"stopped at {format_count(at)} {unit} it keeps its limits with "
                f"probability {format_chance(together(tracks, early))}, which saves "
                f"{saved:.0%} of the run"
            )
            decision = Decision("stop early", reason, stop_at=at, saved=saved)

    # they are not: what would keep them, and when is it sure?
    else:
        changes, words = _find_changes(tracks, chance, confidence)
        if chance <= 1 - confidence:
            broken = format_chance(1 - chance)
            reason = (
                f"the planned end breaks its limits with probability {broken}{words}"
            )
            decision = Decision("stop", reason, **stopped, **changes)
        else:
            look, sure = _look_again(tracks, confidence, now, end)
            when = ""
            if look is not None:
                when = (
                    f"; look again at {format_count(look)} {unit}, where it is sure "
                    f"with probability {sure:.0%}"
                )
            reason = f"{end_keeps}: neither sure{when}{words}"
            decision = Decision(
                "wait", reason, look_again=look, sure_by_then=sure, **changes
            )
    if np.isnan(chance):
        return decision
    regret = {
        "go on": (1 - chance) * (length - float(np.exp(now))),
        "stop": 0.0 if is_over else chance * length,
    }
    return replace(decision, regret=regret)


def _find_first(
    tracks: Sequence[Track], confidence: float, start: float, end: float
) -> float | None:
    """Find the fewest log tokens at which all limits are kept at the confidence."""
    places = np.linspace(start, end, PLACES).tolist()
    return next((c for c in places if together(tracks, c) >= confidence), None)


def _find_changes(
    tracks: Sequence[Track], chance: float, confidence: float
) -> tuple[dict[str, Any], str]:
    """Look for a longer run, another replay and another schedule by which a run would
    keep its limits. Returns fields of a `Decision`, and the end of its reason.
    """
    changes: dict[str, Any] = {}
    limited = [track for track in tracks if track.limit is not None]
    unit = UNITS[tracks[0].course.unit]
    end = tracks[0].end
    # a schedule says nothing of a run beyond its end
    known = min(track.course.clock[-1] for track in tracks)
    longest = min(end + np.log(CourseGrid.longest), known)
    beyond = _find_first(tracks, confidence, end, longest)
    words = ""
    if longest > end + 1e-9:
        times = np.exp(longest - end)
        words = f"; nor does a run up to {times:.3g} times as long keep them for sure"
    if beyond is not None:
        changes["needed"] = float(np.exp(beyond))
        words = f"; {format_count(changes['needed'])} {unit} would keep them"

    # Replay trades one domain for the other. If only one domain is followed there is no
    # advice, because it would always be the smallest or the largest replay.
    tables = [track.replays for track in limited]
    if len(tables) > 1 and all(len(table) for table in tables):
        odds = np.prod([table["probability"] for table in tables], axis=0)
        best = int(np.argmax(odds))
        if odds[best] >= chance + LEAST_GAIN:
            replay = float(tables[0]["replay"].iloc[best])
            changes |= {"replay": replay, "replay_probability": float(odds[best])}
            words += (
                f"; with {replay:.0%} replay from here on the planned end would keep "
                f"them with probability {format_chance(float(odds[best]))}"
            )

    # of schedules that all laws can follow the most probable, the shortest among
    # equally good ones
    tables = [track.schedules.set_index("schedule") for track in limited]
    odds = pd.concat([table["probability"] for table in tables], axis=1, join="inner")
    odds = odds.prod(axis=1)
    if odds.empty or odds.max() < chance + LEAST_GAIN:
        return changes, words
    saved_by = tables[0]["saved"].loc[odds.index[odds >= odds.max() - ALIKE]]
    name, saved = str(saved_by.idxmax()), float(saved_by.max())
    probability = float(odds.to_dict()[name])
    changes |= {"schedule": name, "schedule_probability": probability}
    cost = f"{format_count(abs(saved))} {unit} {'fewer' if saved >= 0 else 'more'}"
    words += (
        f"; by schedule {name!r} from here on, {cost}, its end would keep them with "
        f"probability {format_chance(probability)}"
    )
    return changes, words


def _look_again(
    tracks: Sequence[Track], confidence: float, now: float, end: float
) -> tuple[float | None, float | None]:
    """Find the point between now and the end at which one more measurement makes the
    answer sure with a probability of about a half, and that probability.

    The least certain promise decides. In the normal approximation, a point with
    correlation rho to the end lowers the end's variance by the factor 1 - rho^2. The
    end's mean then moves with rho^2 of the variance.
    """
    limited = [track for track in tracks if track.limit is not None]
    doubts = [abs(track.probability() - 0.5) for track in limited]
    track = limited[int(np.argmin(doubts))]
    last = track.outlook(track.end)
    mean = last.average(last.mean)
    margin = np.log(track.limit or 1.0) - mean
    off_last = last.mean - mean
    # variance of a mixture: between its parts and within them
    sd = np.sqrt(last.average(off_last**2 + last.sd[:, None] ** 2))
    for clock in np.linspace(now, end, LOOKS)[1:-1].tolist():
        first = track.outlook(clock)
        shared = track.departure.covariance_ahead(clock, track.end)
        off_first = first.mean - first.average(first.mean)
        var_first = first.average(off_first**2 + first.sd[:, None] ** 2)
        covariance = last.average(off_first * off_last + shared[:, None])
        rho = np.clip(covariance / (sd * np.sqrt(var_first)), -1.0, 1.0)
        moved = max(sd * abs(rho), 1e-12)
        needed = norm.ppf(confidence) * sd * np.sqrt(1 - rho**2)
        # surely kept, or surely broken
        chance = float(norm.cdf((np.array([margin, -margin]) - needed) / moved).sum())
        if chance >= SURE_ENOUGH:
            return float(np.exp(clock)), chance
    return None, None
