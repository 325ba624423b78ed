"""Compute the cost of confidence: the cheapest budget at several confidences, for one
problem.

The intervals in which draws keep their limits at a replay do not depend on the
confidence. So all confidences evaluate the same replays, on a lattice that is finer
than the scan, and share the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._plans.search import (
    SCAN,
    Choice,
    Problem,
    lowest_minima,
    settle,
)
from bayeslaw._plans.value import NO_CHOICE, budget

if TYPE_CHECKING:
    from bayeslaw._plans.sampled import Intervals
    from bayeslaw._plans.search import Scan

# steps of the lattice between two replays of the scan; a finer lattice would save some
# hundredths of a percent of the tokens
FINER = 16

IntervalsAt = Callable[[int], "list[Intervals]"]


def frontier(
    problem: Problem,
    choice: Choice,
    confidences: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
) -> list[dict]:
    """Find the cheapest budget at each confidence that all constraints are kept.

    A more expensive, safer plan also serves lower confidences.

    Parameters
    ----------
    choice
        The plan at the problem's own confidence.
    confidences
        The confidences; the problem's own is always added.
    """

    @cache
    def intervals_at(place: int) -> list[Intervals]:
        return problem.intervals(_replay(problem, place))

    levels = set(confidences)
    if isinstance(problem.confidence, float):
        levels.add(problem.confidence)
    choices: list[Choice] = []
    for level in sorted(levels):
        if level == problem.confidence and not problem.most_probable:
            choices.append(choice)
        elif choices and choices[-1].margin < 0:
            choices.append(choices[-1])  # higher confidences are not reached either
        else:
            at_level = replace(problem, confidence=level, max_tokens=np.inf)
            choices.append(_cheapest(at_level, problem.quick_scan, intervals_at))
    rows = []
    best = Choice(*NO_CHOICE, -1.0)
    for level, cheapest in zip(
        sorted(levels, reverse=True), reversed(choices), strict=True
    ):
        if cheapest.margin >= 0 and cheapest.log_tokens < best.log_tokens:
            best = cheapest
        row = budget(problem, best.log_tokens, best.replay)
        rows.append({"confidence": level} | row)
    return rows[::-1]


def _replay(problem: Problem, place: int) -> float:
    """Compute the replay at a place of the lattice."""
    last = (len(SCAN) - 1) * FINER
    return float(problem.replay(place / last))


def _cheapest(problem: Problem, scanned: Scan, intervals_at: IntervalsAt) -> Choice:
    """Find the cheapest choice on the lattice, near the scan's minima."""
    best = _descended(problem, scanned, intervals_at)
    was_thinned = len(scanned[0][0][0]) < problem.draws
    if best.margin < 0 and was_thinned:
        full_scan = [intervals_at(place * FINER) for place in range(len(SCAN))]
        best = _descended(problem, full_scan, intervals_at)
    return settle(problem, best)


def _descended(problem: Problem, scanned: Scan, intervals_at: IntervalsAt) -> Choice:
    """Descend from each of the scan's minima in smaller and smaller steps, and return
    the best.
    """

    @cache
    def choice_at(place: int) -> Choice:
        return problem.at(_replay(problem, place), intervals_at(place))

    def score(place: int) -> float:
        return problem.score(choice_at(place))

    last = (len(SCAN) - 1) * FINER
    reached = []
    for minimum in lowest_minima(problem, scanned):
        place = int(minimum) * FINER
        for step in (8, 4, 2, 1):
            beside = [max(place - step, 0), place, min(place + step, last)]
            place = min(beside, key=score)
        reached.append(choice_at(place))
    return min(reached, key=problem.score)
