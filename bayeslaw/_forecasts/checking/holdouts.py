"""Choose the runs to leave out to test a fit: the largest levels along the axis on
which the plan lies farthest beyond the table, and along other axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_count, format_level
from bayeslaw._forecasts.check import FEW
from bayeslaw._posteriors.averaging.folds import (
    MIN_ROWS,
    axis_values,
    columns_of,
    stage_axis,
)
from bayeslaw._tables.beyond import INSIDE

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

MOST = 3  # most hold-outs of one table
SAME = 0.01  # relative difference up to which levels are equal, because people round
WORDS = {
    "N": "{} parameters",
    "ptpp": "{} tokens per parameter of pre-training",
    "N*ptpp": "{} tokens of pre-training",
    "D": "{} tokens of training",
}


@dataclass(frozen=True)
class HoldOut:
    """Runs left out of a fit: those at and beyond an edge along an axis."""

    axis: str  # a column of the table, or a compound one (`columns.COMPOUND`)
    edge: float  # the smallest level that is left out
    below: float  # the largest level that stays
    top: float  # the largest level of the table
    planned: float | None = None  # the plan's level along the axis, if it has one

    def is_held(self, runs: pd.DataFrame) -> Bool[np.ndarray, " run"]:
        """Select the runs to leave out, shape (run,); runs without a level stay."""
        return axis_values(runs, self.axis) >= (1 - SAME) * self.edge

    @property
    def name(self) -> str:
        """Name the left-out levels."""
        level = words(self.axis, self.edge)
        return level if self.edge == self.top else f"{level} and more"

    @property
    def times_tested(self) -> float:
        """Compute the factor of the farthest left-out run beyond the runs that stay."""
        return self.top / self.below if self.below > 0 else math.inf

    @property
    def is_in_direction(self) -> bool:
        """Tell whether the plan lies beyond the table along this axis."""
        return self.planned is not None and self.planned > INSIDE * self.top

    def at_tokens(self, tokens: float | None) -> HoldOut:
        """Add a plan's tokens, which are unknown before the plan is made."""
        if self.axis != "D" or not tokens:
            return self
        return replace(self, planned=tokens)

    def proves(self) -> str:
        """Describe how far the forecast of these runs supports the plan."""
        tested = (
            f"forecast from {words(self.axis, self.below)} and less, "
            f"{self.times_tested:.2g} times beyond"
        )
        if self.planned is None:
            return tested
        plan = words(self.axis, self.planned)
        if not self.is_in_direction:
            return f"{tested}; the plan's {plan} lie within the table"
        further = self.planned / self.top
        is_near = further <= INSIDE * self.times_tested
        return (
            f"{tested}; the plan's {plan} lie {further:.2g} times beyond the table, "
            f"{'no farther' if is_near else 'farther'} than this tests"
        )


def words(axis: str, level: float) -> str:
    """Format a level along an axis, with its unit."""
    if axis in WORDS:
        return WORDS[axis].format(format_count(level))
    return f"{axis} {format_level(axis, float(level))}"


def hold_outs(
    parts: Mapping[str, pd.DataFrame],
    named: str | None = None,
    question: Mapping[str, Any] | None = None,
    most: int = MOST,
) -> tuple[HoldOut, ...]:
    """Choose the hold-outs, the main one first.

    ``parts``: the runs of each domain. ``named``: Axis of the main hold-out. By default
    the axis along which the plan lies farthest beyond the table. Without a plan it is
    the first of stage, size and tokens that leaves two levels to fit in every domain,
    else the first that leaves one. ``question``: the question of the plan, with ``N``
    and, unless it is about a mixture, ``ptpp``. ``most``: most hold-outs; without a
    plan there is one.
    """
    places = planned_places(question or {})
    axes = (stage_axis(pd.concat(parts.values())), "N", "D")
    every = axes if named is None else (*axes, named)
    levels = {axis: levels_of(parts, axis) for axis in every}
    # levels in the domain with fewest; 0 if a domain lacks the axis
    fewest = {
        axis: min(len(levels_of({name: runs}, axis)) for name, runs in parts.items())
        for axis in every
    }

    def leave_out(axis: str, first: int) -> HoldOut:
        """Hold out all levels from an index on."""
        edge, below, top = (float(levels[axis][i]) for i in (first, first - 1, -1))
        return HoldOut(axis, edge, below, top, places.get(axis))

    def leave_out_enough(axis: str) -> HoldOut | None:
        """Hold out the fewest of the largest levels that have enough rows in every
        domain and leave enough rows to fit; None if that is impossible.
        """
        for first in range(len(levels[axis]) - 1, 0, -1):
            hold_out = leave_out(axis, first)
            held = [int(np.sum(hold_out.is_held(runs))) for runs in parts.values()]
            sizes = [len(runs) for runs in parts.values()]
            if min(n - h for n, h in zip(sizes, held, strict=True)) < MIN_ROWS:
                return None
            if min(held) >= FEW:
                return hold_out
        return None

    if named is not None:
        _check_axis(parts, named, fewest[named])
        main = leave_out(named, len(levels[named]) - 1)
    # the axes by how far the plan lies beyond the table, farthest first
    beyond = {}
    for axis in axes:
        times = places.get(axis, 0.0) / levels[axis][-1] if len(levels[axis]) else 0.0
        beyond[axis] = times if times > INSIDE else 0.0
    order = sorted(beyond, key=lambda axis: -beyond[axis])
    held = [leave_out_enough(axis) for axis in order if fewest[axis] >= 2]
    possible = [hold_out for hold_out in held if hold_out is not None]
    if named is None:
        # two levels left to fit; if there are few rows or levels, any level
        main = next((one for one in possible if fewest[one.axis] > 2), None)
        few = [axis for least in (3, 2) for axis in order if fewest[axis] >= least]
        if main is None and not few:
            raise RunTableError(
                f"none of {', '.join(axes)} has two levels: nothing to hold out; "
                "name another column (--hold-out)"
            )
        main = main or leave_out(few[0], len(levels[few[0]]) - 1)
    if question is None:
        return (main,)
    return (main, *(one for one in possible if one.axis != main.axis))[:most]


def planned_places(question: Mapping[str, Any]) -> dict[str, float]:
    """Find the level of the largest planned model, by axis."""
    names = [name for name in ("N", "ptpp") if name in question]
    places = {name: np.atleast_1d(question[name]) for name in names}
    if len(places) == 2:
        places["N*ptpp"] = places["N"] * places["ptpp"]
    return {axis: float(np.max(x)) for axis, x in places.items()}


def _check_axis(parts: Mapping[str, pd.DataFrame], axis: str, fewest: int) -> None:
    for runs in parts.values():
        missing = [column for column in columns_of(axis) if column not in runs]
        if missing:
            raise RunTableError(
                f"cannot hold out column {missing[0]!r}; the table has: "
                f"{', '.join(map(str, runs.columns))}"
            )
    if fewest < 2:
        raise RunTableError(
            f"column {axis!r} has one level only: nothing to hold out; "
            "name another (--hold-out)"
        )


def levels_of(
    parts: Mapping[str, pd.DataFrame], axis: str
) -> Float[np.ndarray, " level"]:
    """List the levels of an axis over all domains, ascending; nearly equal levels are
    one.
    """
    tables = [runs for runs in parts.values() if set(columns_of(axis)) <= set(runs)]
    if not tables:
        return np.zeros(0)
    x = np.concatenate([axis_values(runs, axis) for runs in tables])
    levels = np.unique(x[np.isfinite(x)])
    # levels of products differ in their last digits
    is_new = np.diff(levels, prepend=-np.inf) > SAME * np.abs(levels)
    return levels[is_new]


def untested(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    tested: Sequence[HoldOut],
) -> tuple[str, ...]:
    """List the plan's stage and size if they lie beyond all held-out runs, with the
    distance that the table could test.
    """
    places = planned_places(question)
    rows = pd.concat(
        [runs[hold_out.is_held(runs)] for runs in parts.values() for hold_out in tested]
    )
    beyond = []
    for axis in (stage_axis(pd.concat(parts.values())), "N"):
        has_axis = set(columns_of(axis)) <= set(rows)
        most = axis_values(rows, axis).max() if has_axis and len(rows) else math.nan
        # an axis that hold-outs do not have is untested, too
        if axis not in places or places[axis] <= (1 + SAME) * most:
            continue
        how = "" if math.isnan(most) else f" (tested up to {format_count(most)})"
        levels = levels_of(parts, axis)
        if axis not in [hold_out.axis for hold_out in tested] and len(levels) > 1:
            how = f" (--hold-out {axis} tests it up to {format_count(levels[-1])})"
        beyond.append(words(axis, places[axis]) + how)
    return tuple(beyond)
