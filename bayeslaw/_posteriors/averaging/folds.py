"""Choose the stages to leave out in turn. A law is judged by its forecasts of the
largest budgets, sizes and stages, to which it was not fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import axis_product, is_share, powers_of
from bayeslaw._tables.rows.levels import TOLERANCE, at_levels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FROM = " >= "  # in a fold's name, between the column and the smallest held-out level
MIN_ROWS = 8  # least rows to fit


class Fold(NamedTuple):
    """A left-out stage. ``held`` and ``kept``: masks of the runs to forecast and to
    fit, shape (run,); ``name``: the stage that is held out.
    """

    name: str
    column: str
    kept: Bool[np.ndarray, " run"]
    held: Bool[np.ndarray, " run"]

    def among(self, part: Bool[np.ndarray, " all"]) -> Fold:
        """Extend the masks to a larger table. ``part`` marks these runs in it, shape
        (all,); its other runs are neither kept nor held.
        """
        is_kept, is_held = np.zeros((2, len(part)), bool)
        is_kept[part], is_held[part] = self.kept, self.held
        return self._replace(kept=is_kept, held=is_held)

    def reach(self, runs: pd.DataFrame, axis: str | None = None) -> float:
        """Compute the factor by which the held-out runs reach beyond the largest of the
        others, by default along the axis of the stage.
        """
        x = axis_values(runs, axis or self.column)
        largest = x[self.kept].max()
        return float(x[self.held].max(initial=largest) / largest)


def columns_of(axis: str) -> list[str]:
    """List the columns of a table that make up an axis to hold out by."""
    return list(powers_of(axis))


def axis_values(runs: pd.DataFrame, column: str) -> Float[np.ndarray, " run"]:
    """Compute a column to hold out by, or the levels of a compound one, shape (run,)."""
    columns = {name: runs[name].to_numpy(float) for name in columns_of(column)}
    values = axis_product(column, columns)
    return at_levels(values) if len(columns) > 1 else values


def stage_axis(runs: pd.DataFrame) -> str:
    """Choose the axis of pre-training stages: ``ptpp``, or ``N*ptpp`` if each stage is
    a number of tokens that several sizes share.

    In the second case ``ptpp`` has a level for each size, and its largest level is not
    a stage.
    """
    if not {"N", "ptpp"} <= set(runs):
        return "ptpp"
    levels = []
    for axis in ("N*ptpp", "ptpp"):
        x = axis_values(runs, axis)
        positive = x[np.isfinite(x) & (x > 0)]
        # three digits, as budgets are written
        size = 10.0 ** (np.floor(np.log10(positive)) - 2)
        levels.append(len(np.unique(np.round(positive / size) * size)))
    return "N*ptpp" if 1 < levels[0] < levels[1] else "ptpp"


def default_axes(runs: pd.DataFrame) -> list[str]:
    """List the columns along which budgets grow, and shares of a mixture's domains, if
    the table has several levels of them.
    """
    have = [c for c in ("ptpp", "N", "D") if c in runs]
    if {"N", "D"} <= set(runs):
        have += ("D/N", "N*D")
    have += (str(c) for c in runs if is_share(c))
    return [c for c in have if len(np.unique(axis_values(runs, c))) > 1]


def folds(
    runs: pd.DataFrame,
    columns: Sequence[str],
    parameters: int = 0,
    least_share: float = 0.3,
) -> list[Fold]:
    """Leave out the largest level of each column, if enough rows are left to fit the
    parameters: at least ``least_share`` of the rows.

    On a single curve the largest level is one point, one level beyond the others. It
    shows little of the errors farther on, so the two and the three largest levels are
    left out, too.
    """

    def leave_out(columns: Sequence[str], most: int) -> list[Fold]:
        """Leave out a number of the largest levels of each column."""
        stages: list[Fold] = []
        for column in columns:
            x = axis_values(runs, column)
            levels, _ = _find_levels(x)
            if len(levels) <= most:
                continue
            held = x >= levels[-most]
            is_double = any(np.array_equal(held, stage.held) for stage in stages)
            if not is_double and (~held).sum() >= enough:
                name = f"{column}{FROM}{_format_edge(levels[-most])}"
                stages.append(Fold(name, column, ~held, held))
        return stages

    enough = max(parameters, MIN_ROWS, least_share * len(runs))
    stages = leave_out(columns, 1)
    if len(stages) == 1 and stages[0].held.sum() == 1:
        column = stages[0].column
        stages += leave_out([column], 2) + leave_out([column], 3)
    return stages


def upper_stages(runs: pd.DataFrame, column: str) -> list[Fold]:
    """Make a fold for each level of a column above the first, to be forecast from all
    lower levels.
    """
    x = axis_values(runs, column)
    levels, exact = _find_levels(x)
    stages = []
    for low, high in pairwise([*levels[1:], np.inf]):
        name = f"{column}{FROM}{_format_edge(low)}"
        if exact:
            name = f"{column} {_format_edge(low)}"
        elif high < np.inf:
            name = f"{column} {_format_edge(low)} to {_format_edge(high)}"
        stages.append(Fold(name, column, x < low, (low <= x) & (x < high)))
    return stages


def _find_levels(
    x: Float[np.ndarray, " run"], most: int = 12, bins: int = 6
) -> tuple[Float[np.ndarray, " level"], bool]:
    """Find the levels of a column, and tell whether they are true levels. If there are
    more than ``most``, the starts of ``bins`` groups of equal counts are returned
    instead.
    """
    levels = np.unique(x)
    if len(levels) <= most:
        return levels, True
    return np.unique(np.quantile(x, np.linspace(0, 1, bins + 1)[:-1])), False


def stages_in_direction(
    names: Sequence[str], table: pd.DataFrame, run: pd.DataFrame
) -> list[str]:
    """Choose the hold-out stages along the axes on which a run extrapolates, or all if
    it lies inside the table.

    Stages of tokens are ignored, because they hold only the ends of runs.
    """
    columns = {name: name.partition(FROM)[0] for name in names}
    stages = {
        name: column
        for name, column in columns.items()
        if "D" not in columns_of(column) and set(columns_of(column)) <= set(run)
    }
    beyond = [
        name
        for name, column in stages.items()
        if axis_values(run.head(1), column)[0]
        > (1 + TOLERANCE) * axis_values(table, column).max()
    ]
    return beyond or list(stages)


def folds_named(runs: pd.DataFrame, names: Sequence[str]) -> list[Fold]:
    """Find the folds with these names, in a table from which they were left out before."""
    columns = dict.fromkeys(name.partition(FROM)[0] for name in names if name)
    return [stage for stage in folds(runs, list(columns)) if stage.name in names]


def _format_edge(value: float) -> str:
    """Format the lower end of a stage: counts as people write them, compute in powers
    of ten.
    """
    return f"{value:.2g}" if value >= 1e15 else format_count(value)
