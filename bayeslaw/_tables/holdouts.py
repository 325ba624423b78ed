"""Leave runs out of a table, to judge by them what forecasts the others make: the
largest stages, sizes and budgets, which a law is not fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_count, format_level
from bayeslaw._law.columns import axis_product, is_share, powers_of
from bayeslaw._tables.beyond import INSIDE
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.rows.levels import SAME, TOLERANCE, at_levels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Levels = Float[np.ndarray, " level"]

MIN_ROWS = 8  # least rows to fit
FEW = 5  # with fewer held-out runs, coverage says nothing
MOST = 3  # most hold-outs of one table that test a plan
FROM = " >= "  # in a stage's name, between the axis and the smallest held-out level
WORDS = {
    "N": "{} parameters",
    "ptpp": "{} tokens per parameter of pre-training",
    "N*ptpp": "{} tokens of pre-training",
    "D": "{} tokens of training",
}


@dataclass(frozen=True)
class HoldOut:
    """Runs left out of a fit: those from an edge along an axis on."""

    axis: str  # a column of the table, or a compound one (`columns.COMPOUND`)
    edge: float  # the smallest level that is left out
    below: float  # the largest level that stays
    top: float  # the largest level that is left out
    planned: float | None = None  # a plan's level along the axis, if it has one
    end: float = math.inf  # levels from here on neither stay nor are left out

    @classmethod
    def at(
        cls, axis: str, levels: Levels, edge: float, end: float = math.inf
    ) -> HoldOut:
        """Leave out the levels of an axis from an edge on, up to an end."""
        below, top = levels[levels < edge].max(), levels[levels < end].max()
        return cls(axis, float(edge), float(below), float(top), end=end)

    def is_held(self, runs: pd.DataFrame) -> Bool[np.ndarray, " run"]:
        """Select the runs to leave out and forecast, shape (run,)."""
        x = axis_values(runs, self.axis)
        return (x >= self.edge) & (x < self.end)

    def is_kept(self, runs: pd.DataFrame) -> Bool[np.ndarray, " run"]:
        """Select the runs to fit, shape (run,); those without a level are among them."""
        return ~(axis_values(runs, self.axis) >= self.edge)

    @property
    def name(self) -> str:
        """Name the stage as files do, in which `stages_named` finds it again."""
        return f"{self.axis}{FROM}{_format_edge(self.edge)}"

    @property
    def words(self) -> str:
        level = describe_level(self.axis, self.edge)
        return level if self.edge == self.top else f"{level} and more"

    @property
    def times_tested(self) -> float:
        """Compute the factor of the farthest left-out run beyond the runs that stay."""
        return self.top / self.below if self.below > 0 else math.inf

    def reach(self, runs: pd.DataFrame, axis: str) -> float:
        """Compute how many times beyond the others the left-out runs lie; 1 if not."""
        x = axis_values(runs, axis)
        largest = x[self.is_kept(runs)].max()
        return float(x[self.is_held(runs)].max(initial=largest) / largest)

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
            f"forecast from {describe_level(self.axis, self.below)} and less, "
            f"{self.times_tested:.2g} times beyond"
        )
        if self.planned is None:
            return tested
        plan = f"{tested}; the plan's {describe_level(self.axis, self.planned)} lie"
        if not self.is_in_direction:
            return f"{plan} within the table"
        further = self.planned / self.top
        how = "no farther" if further <= INSIDE * self.times_tested else "farther"
        return f"{plan} {further:.2g} times beyond the table, {how} than this tests"


def describe_level(axis: str, level: float) -> str:
    if axis in WORDS:
        return WORDS[axis].format(format_count(level))
    return f"{axis} {format_level(axis, float(level))}"


def _format_edge(level: float) -> str:
    return f"{level:.2g}" if level >= 1e15 else format_count(level)


# -- axes and their levels -------------------------------------------------------------


def has_axis(runs: pd.DataFrame, axis: str) -> bool:
    return set(powers_of(axis)) <= set(runs)


def check_axis(runs: pd.DataFrame, axis: str) -> None:
    check_columns(runs, powers_of(axis), ", by which to hold out")


def axis_values(runs: pd.DataFrame, axis: str) -> Float[np.ndarray, " run"]:
    """Compute a column to hold out by, or the levels of a compound one, shape (run,)."""
    columns = {name: runs[name].to_numpy(float) for name in powers_of(axis)}
    values = axis_product(axis, columns)
    return at_levels(values) if len(columns) > 1 else values


def stage_axis(runs: pd.DataFrame) -> str:
    """Choose the axis of pre-training stages: ``ptpp``, or ``N*ptpp`` if each stage is
    a number of tokens that several sizes share, so that ptpp has a level for each size.
    """
    if not has_axis(runs, "N*ptpp"):
        return "ptpp"
    levels = []
    for axis in ("N*ptpp", "ptpp"):
        x = axis_values(runs, axis)
        # three digits, as budgets are written
        levels.append(len({f"{v:.3g}" for v in x[np.isfinite(x) & (x > 0)]}))
    return "N*ptpp" if 1 < levels[0] < levels[1] else "ptpp"


def default_axes(runs: pd.DataFrame) -> list[str]:
    """List the axes of budgets, and of shares, of which a table has levels."""
    axes = [axis for axis in ("ptpp", "N", "D", "D/N", "N*D") if has_axis(runs, axis)]
    axes += (str(column) for column in runs if is_share(column))
    return [axis for axis in axes if len(np.unique(axis_values(runs, axis))) > 1]


def levels_of(tables: Iterable[pd.DataFrame], axis: str) -> Levels:
    """List the levels of an axis in some tables, ascending; near ones are one."""
    values = [axis_values(runs, axis) for runs in tables if has_axis(runs, axis)]
    x = np.concatenate([np.zeros(0), *values])
    levels = np.unique(x[np.isfinite(x)])
    # levels of products differ in their last digits
    is_new = np.diff(levels, prepend=-np.inf) > SAME * np.abs(levels)
    return levels[is_new]


def _cut(x: Float[np.ndarray, " run"]) -> tuple[Levels, bool]:
    """Find the levels of an axis, and tell whether they are true levels: of more than
    twelve, the starts of six groups of equal counts are returned instead.
    """
    x = x[np.isfinite(x)]
    levels = np.unique(x)
    if len(levels) <= 12:
        return levels, True
    return np.unique(np.quantile(x, np.linspace(0, 1, 7)[:-1])), False


# -- stages of one table ---------------------------------------------------------------


def largest_stages(
    runs: pd.DataFrame, axes: Iterable[str], parameters: int = 0
) -> list[HoldOut]:
    """Leave out the largest level of each axis, if enough rows are left to fit the
    parameters: at least three in ten.

    On a single curve the largest level is one point, one level beyond the others. It
    shows little of the errors farther on, so the two and the three largest levels are
    left out, too.
    """
    enough = max(parameters, MIN_ROWS, 0.3 * len(runs))

    def leave_out(axis: str, most: int) -> list[HoldOut]:
        """Leave out a number of the largest levels of an axis, if that can be."""
        x = axis_values(runs, axis)
        levels, _ = _cut(x)
        stage = [HoldOut.at(axis, x, levels[-most])] if len(levels) > most else []
        return [one for one in stage if one.is_kept(runs).sum() >= enough]

    # of axes that leave out the same runs, the first
    by_rows: dict[bytes, HoldOut] = {}
    for axis in axes:
        for stage in leave_out(axis, 1):
            by_rows.setdefault(stage.is_held(runs).tobytes(), stage)
    stages = [*by_rows.values()]
    if len(stages) == 1 and stages[0].is_held(runs).sum() == 1:
        stages += [one for most in (2, 3) for one in leave_out(stages[0].axis, most)]
    return stages


def stages_named(runs: pd.DataFrame, names: Collection[str]) -> list[HoldOut]:
    """Find the stages of these names, in a table of which they were left out before."""
    axes = dict.fromkeys(name.partition(FROM)[0] for name in names if name)
    return [stage for stage in largest_stages(runs, axes) if stage.name in names]


def upper_stages(runs: pd.DataFrame, axis: str) -> list[tuple[str, HoldOut]]:
    """Leave out each level above the first, to be forecast from those below it."""
    x = axis_values(runs, axis)
    levels, are_levels = _cut(x)
    stages = []
    for low, high in pairwise([*levels[1:], math.inf]):
        stage = HoldOut.at(axis, x, low, high)
        start, end = _format_edge(low), _format_edge(high)
        name = f"{axis} {start}" if are_levels else f"{axis} {start} to {end}"
        stages.append((name if are_levels or high < math.inf else stage.name, stage))
    return stages


def stages_in_direction(
    names: Iterable[str], table: pd.DataFrame, run: pd.DataFrame
) -> list[str]:
    """Choose the names of the stages along the axes on which a run extrapolates, or all
    if it lies inside the table. Stages of tokens hold only the ends of runs, and are
    ignored.
    """
    axes = {name: name.partition(FROM)[0] for name in names}
    stages = [
        n for n, a in axes.items() if "D" not in powers_of(a) and has_axis(run, a)
    ]

    def is_beyond(axis: str) -> bool:
        most = axis_values(table, axis).max()
        return bool(axis_values(run.head(1), axis)[0] > (1 + TOLERANCE) * most)

    return [name for name in stages if is_beyond(axes[name])] or stages


# -- what tests a plan -----------------------------------------------------------------


def hold_outs(
    parts: Mapping[str, pd.DataFrame],
    named: str | None = None,
    question: Mapping[str, Any] | None = None,
    most: int = MOST,
) -> tuple[HoldOut, ...]:
    """Choose the hold-outs of the runs of each domain (``parts``), the main one first.

    ``named``: axis of the main one. By default it is that along which the plan lies
    farthest beyond the table; without a plan the first of stage, size and tokens that
    leaves two levels to fit in every domain, else one. ``question``: the question of
    the plan, with ``N`` and, unless it is about a mixture, ``ptpp``. ``most``: most
    hold-outs; without a plan there is one.
    """
    tables = list(parts.values())
    places = planned_places(question or {})
    axes = (stage_axis(pd.concat(tables)), "N", "D")
    every = axes if named is None else (*axes, named)
    levels = {axis: levels_of(tables, axis) for axis in every}
    # levels in the domain with fewest; 0 if a domain lacks the axis
    fewest = {
        axis: min(len(levels_of([runs], axis)) for runs in tables) for axis in every
    }

    def leave_out(axis: str, first: int = -1) -> HoldOut:
        """Hold out all levels from an index on."""
        hold_out = HoldOut.at(axis, levels[axis], levels[axis][first])
        return replace(hold_out, planned=places.get(axis))

    def times_beyond(axis: str) -> float:
        """Tell how far the plan lies beyond the table; 0 inside."""
        times = places.get(axis, 0.0) / max(levels[axis], default=math.inf)
        return times if times > INSIDE else 0.0

    # the axes, those along which the plan lies farthest first; of each, the fewest of
    # the largest levels that have enough rows in every domain, if they leave enough rows
    # to fit
    order = sorted(axes, key=times_beyond, reverse=True)
    possible = []
    for axis in (axis for axis in order if fewest[axis] >= 2):
        for first in range(len(levels[axis]) - 1, 0, -1):
            hold_out = leave_out(axis, first)
            held = [hold_out.is_held(runs) for runs in tables]
            if min(np.sum(~of_domain) for of_domain in held) < MIN_ROWS:
                break
            if min(map(np.sum, held)) >= FEW:
                possible.append(hold_out)
                break
    if named is not None:
        for runs in tables:
            check_axis(runs, named)
        if fewest[named] < 2:
            raise RunTableError(
                f"column {named!r} has one level only: nothing to hold out; "
                "name another (--hold-out)"
            )
        main = leave_out(named)
    else:
        # two levels left to fit; if there are few rows or levels, any level
        main = next((one for one in possible if fewest[one.axis] > 2), None)
        few = [axis for least in (3, 2) for axis in order if fewest[axis] >= least]
        if main is None and not few:
            raise RunTableError(
                f"none of {', '.join(axes)} has two levels: nothing to hold out; "
                "name another column (--hold-out)"
            )
        main = main or leave_out(few[0])
    others = [one for one in possible if one.axis != main.axis and question is not None]
    return (main, *others)[:most]


def planned_places(question: Mapping[str, Any]) -> dict[str, float]:
    """Find the level of the largest planned model, by axis."""
    names = [name for name in ("N", "ptpp") if name in question]
    places = {name: np.atleast_1d(question[name]) for name in names}
    if len(places) == 2:
        places["N*ptpp"] = places["N"] * places["ptpp"]
    return {axis: float(np.max(x)) for axis, x in places.items()}


def untested(
    question: Mapping[str, Any],
    parts: Mapping[str, pd.DataFrame],
    tested: Sequence[HoldOut],
) -> tuple[str, ...]:
    """List the plan's stage and size beyond all held-out runs, and what tests them."""
    places, tables = planned_places(question), list(parts.values())
    rows = pd.concat([runs[one.is_held(runs)] for runs in tables for one in tested])
    beyond = []
    for axis in (stage_axis(pd.concat(tables)), "N"):
        can_tell = has_axis(rows, axis) and len(rows)
        most = axis_values(rows, axis).max() if can_tell else math.nan
        # an axis that hold-outs do not have is untested, too
        if axis not in places or places[axis] <= (1 + SAME) * most:
            continue
        how = "" if math.isnan(most) else f" (tested up to {format_count(most)})"
        levels = levels_of(tables, axis)
        if axis not in [hold_out.axis for hold_out in tested] and len(levels) > 1:
            how = f" (--hold-out {axis} tests it up to {format_count(levels[-1])})"
        beyond.append(describe_level(axis, places[axis]) + how)
    return tuple(beyond)
