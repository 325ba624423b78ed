"""Review how far the goal lies beyond the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._forecasts.review.findings import Finding, Verdict, worst
from bayeslaw._posteriors.averaging.folds import Fold
from bayeslaw._tables.beyond import (
    AXES,
    Reach,
    reaches_beyond,
    replay_outside,
    values_along,
)

INSIDE = 1.05  # values up to this factor beyond the range count as inside; people round


def tested(runs: pd.DataFrame, stages: Sequence[Fold]) -> dict[str, float]:
    """Compute the factor by which left-out stages lie beyond the rest, by the axis
    along which they were left out.
    """
    times = {}
    for stage in stages:
        beyond = tested_by(runs[stage.kept], runs[stage.held])
        if stage.column in beyond:
            times[stage.column] = beyond[stage.column]
    return times


def tested_by(runs: pd.DataFrame, held_out: pd.DataFrame) -> dict[str, float]:
    """Compute the factor by which held-out runs go beyond the largest of ``runs``, by
    axis.
    """
    times = {}
    for axis in AXES:
        fitted_values = values_along(runs, axis)
        values = values_along(held_out, axis)
        if fitted_values is not None and values is not None:
            times[axis] = float(values.max() / fitted_values.max())
    return times


def review_reach(
    runs: pd.DataFrame,
    goal: pd.DataFrame,
    times_tested: Mapping[str, float],
    fit: str | None = None,
) -> Finding:
    """Check how far a goal lies beyond runs, along the axis on which it lies farthest.

    It passes inside the runs' range, and beyond it as far as held-out runs tested.

    Parameters
    ----------
    goal
        Runs to forecast.
    times_tested
        Factors by axis, from `tested` and `tested_by`.
    fit
        Name of a fit of the runs in a command, if there is one.
    """
    reached = reaches_beyond(runs, goal)
    outside = [reach for reach in reached if reach.times > INSIDE]
    lines: list[str] = []
    verdicts: list[Verdict] = []
    for reach in outside:
        tests = times_tested.get(reach.axis, 1.0)
        words = "nothing held out tests that"
        if tests > INSIDE and reach.is_above:
            words = f"runs held out test {math.log(tests):.1f}"
        ends = f"{format_count(reach.low)} to {format_count(reach.high)}"
        lines.append(
            f"{reach.axis} = {format_count(reach.worst)} lies {math.log(reach.times):.1f} "
            f"e-folds ({reach.times:.3g} times) beyond the runs ({ends}); {words}"
        )
        # At 100 times the range a law says little more than its prior. Papers have
        # checked forecasts at up to 9 times.
        if reach.times > 100.0:
            verdicts.append("fail")
        else:
            is_tested = reach.is_above and reach.times <= INSIDE * tests
            verdicts.append("pass" if is_tested else "look")
    replay = replay_outside(runs, goal)
    if replay is not None:
        lines.append(replay)
        verdicts.append("look")
    if not reached:
        axes = ", ".join(AXES)
        reason = f"the goal has none of {axes} in common with the runs"
        return Finding("extrapolation", "look", reason, "say what it is: --at N=...")
    if not lines:
        axes = ", ".join(reach.axis for reach in reached)
        return Finding("extrapolation", "pass", f"inside the runs' range of {axes}")
    verdict = worst(verdicts)
    todo = "" if verdict == "pass" else _advise_runs(outside, fit)
    return Finding("extrapolation", verdict, "; ".join(lines), todo)


def told_range(runs: pd.DataFrame, fit: str) -> Finding:
    """Report the runs' range if no goal was named."""
    ends = []
    for name in AXES:
        values = values_along(runs, name)
        if values is not None:
            low, high = format_count(values.min()), format_count(values.max())
            ends.append(f"{name} {low} to {high}")
    reason = f"runs reach {', '.join(ends) or 'no known axis'}; no goal was named"
    todo = f"bayeslaw review {fit} --at N=8.1B,D=70B,ptpp=279"
    return Finding("extrapolation", "pass", reason, todo)


def _advise_runs(outside: Sequence[Reach], fit: str | None) -> str:
    """Advise runs half-way to the goal, in logs; if there is a fit, as an offer to
    `anchors`.
    """
    # name of an axis in `anchors --offer`
    names = {"N": "N", "ptpp": "ptpp", "D/N": "atpp"}
    offers = []
    for reach in outside:
        if reach.axis in names:
            end = reach.high if reach.is_above else reach.low
            middle = format_count(math.sqrt(end * reach.worst))
            offers.append(f"{names[reach.axis]}={middle}")
    if not offers:
        return "measure runs nearer to it"
    if fit is None:
        return f"measure runs on the way, at {', '.join(offers)}"
    options = " ".join(f"--offer {offer}" for offer in offers)
    return (
        f"bayeslaw anchors {fit} --candidates RUNS {options} --goal GOAL --budget FLOPS"
    )
