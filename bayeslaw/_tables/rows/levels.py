"""Find the levels of a column: values that differ by rounding are one level.

One run really saw 12000034816 tokens and the next 12000165888; ``pretrain_tokens / N``
is 100 in one row and 99.99999999999999 in another. A table of measured runs takes each
level's value once, where it is read, so that whatever counts, groups or leaves out by a
column may compare its values exactly.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._law.columns import is_share
from bayeslaw._tables.rows.naming import unnamed_curves

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Distinct = Float[np.ndarray, " value"]

# what is set before a run, and last the tokens, which differ along it
COLUMNS = ("N", "U", "ptpp", "pretrain_tokens", "replay", "D")
TOLERANCE = 1e-3  # of tokens and sizes, and of what is computed from them
# of what is chosen, such as a learning rate, and of shares, which sum to one: single
# precision holds seven digits
ROUNDING = 1e-6
SAME = 0.01  # of what people write by hand, such as a plan's size


def with_common_levels(
    left: pd.DataFrame, right: pd.DataFrame, columns: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give two tables common levels in these columns, to look up rows of either."""
    columns = list(dict.fromkeys(columns))
    both = pd.concat([left[columns], right[columns]], ignore_index=True)
    levels = with_levels(both, of_design=True)
    of_left, of_right = levels.iloc[: len(left)], levels.iloc[len(left) :]
    return (
        left.assign(**{c: of_left[c].to_numpy() for c in columns}),
        right.assign(**{c: of_right[c].to_numpy() for c in columns}),
    )


def number_alike(
    left: pd.DataFrame, right: pd.DataFrame, columns: Collection[str]
) -> tuple[Int[np.ndarray, " left"], Int[np.ndarray, " right"]]:
    """Number the rows of two tables, so that rows which are equal in these columns, up
    to levels and ten digits, have one number.
    """

    def write(cell: object) -> str:
        return f"{cell:.10g}" if isinstance(cell, int | float) else str(cell)

    both = pd.concat(with_common_levels(left, right, [*columns]), ignore_index=True)
    texts = [both[column].map(write) for column in columns] or [np.zeros(len(both))]
    numbers = both.groupby(texts, sort=False).ngroup().to_numpy()
    return numbers[: len(left)], numbers[len(left) :]


def find_checkpoints(
    runs: pd.DataFrame, checkpoints: pd.DataFrame
) -> Int[np.ndarray, " run"]:
    """Find the position of each run's checkpoint in a table of checkpoints, shape (run,);
    -1 if there is none. It is the nearest one in all columns of that table (N, or N and
    ptpp), up to what people round by hand.
    """
    columns = [*checkpoints]
    if not len(checkpoints) or not set(columns) <= set(runs):
        return np.full(len(runs), -1)
    wanted = runs[columns].to_numpy(float)[:, None]
    apart = np.abs(wanted / checkpoints.to_numpy(float) - 1).max(axis=2)
    nearest = np.where(apart < SAME, apart, np.inf).argmin(axis=1)
    return np.where((apart < SAME).any(axis=1), nearest, -1)


def is_of_model(
    runs: pd.DataFrame, N: float, ptpp: float | None
) -> Bool[np.ndarray, " run"]:
    """Tell which runs are of a model, at its stage if that is known; shape (run,)."""
    model = {"N": N} if ptpp is None else {"N": N, "ptpp": ptpp}
    return find_checkpoints(runs, pd.DataFrame([model])) == 0


def with_levels(runs: pd.DataFrame, of_design: bool = False) -> pd.DataFrame:
    """Replace values by those of their levels; points of one run stay apart. A table
    without losses is a design, and stays as it is unless ``of_design``.
    """
    if "loss" not in runs and not of_design:
        return runs
    for name in [*filter(is_share, runs), *(c for c in COLUMNS if c in runs)]:
        of_share = name == "replay" or is_share(name)
        within = ROUNDING if is_share(name) else TOLERANCE
        values = runs[name].to_numpy(float)
        levels = at_levels(values, within, of_share=of_share)
        if not np.array_equal(levels, values, equal_nan=True):
            curve = _number_curves(runs)
            levels = at_levels(values, within, of_share=of_share, curve=curve)
            runs = runs.assign(**{str(name): levels})
    return runs


def at_levels(
    values: Float[np.ndarray, " row"],
    within: float = TOLERANCE,
    *,
    of_share: bool = False,
    curve: Int[np.ndarray, " row"] | None = None,
) -> Float[np.ndarray, " row"]:
    """Replace each value by that of its level, shape (row,); values not above 0 stay.

    Values are of one level if all of them lie within a relative distance (``within``)
    of each other, and thirty times farther from any other value. So a fine grid, the
    steps of a curve and values drawn at random keep all their levels. A level's value
    is the roundest in it, and of those the most frequent.

    ``of_share``: whether distances are also relative to one minus the value, as .999
    and .9995 are different shares. ``curve``: the run of each row, as numbers: two
    values of one run are two levels, unless they differ by the rounding of arithmetic.
    """
    levels = np.array(values, float)
    has_level = np.isfinite(levels) & (levels > 0)
    if of_share:
        has_level &= levels < 1
    distinct, code, count = np.unique(
        levels[has_level], return_inverse=True, return_counts=True
    )
    position = np.log(distinct)
    if of_share:
        position = position - np.log1p(-distinct)
    following = np.full(len(distinct), len(distinct))
    if curve is not None:
        # the next larger value in any run that has a value; values nearer than the
        # rounding of arithmetic are no next ones
        pairs = np.unique(np.column_stack([curve[has_level], code]), axis=0)
        runs, codes = pairs.T
        is_next = (runs[1:] == runs[:-1]) & (np.diff(position[codes]) > 1e-9)
        np.minimum.at(following, codes[:-1][is_next], codes[1:][is_next])
    for first, last in _find_clusters(position, following, within):
        inside = slice(first, last + 1)
        values = distinct[inside]
        # fewest significant digits, then the most frequent, then the least
        mantissas = [repr(float(value)).split("e")[0] for value in values]
        digits = [len(text.replace(".", "").strip("0")) for text in mantissas]
        order = np.lexsort(np.array([values, -count[inside], digits]))
        distinct[inside] = float(values[order[0]])
    levels[has_level] = distinct[code]
    return levels


def _find_clusters(
    position: Distinct, following: Int[np.ndarray, " value"], within: float
) -> list[tuple[int, int]]:
    """List the first and last value of each level of several values, for sorted
    positions. A level has no value's ``following`` one in it.

    A level's gaps are all smaller than those around it, so that it stays whole where
    what is no level is parted at its widest gap.
    """
    gaps = np.diff(position)
    around = np.concatenate([[np.inf], gaps, [np.inf]])
    clusters: list[tuple[int, int]] = []
    is_end, some = gaps > within, len(position) > 0
    starts, ends = np.append(some, is_end), np.append(is_end, some)
    pending = [*zip(np.flatnonzero(starts), np.flatnonzero(ends), strict=True)]
    while pending:
        first, last = pending.pop()
        if first == last:
            continue
        span = position[last] - position[first]
        is_alone = min(around[first], around[last + 1]) >= 30 * span
        if span <= within and is_alone and following[first : last + 1].min() > last:
            clusters.append((int(first), int(last)))
        else:
            widest = first + int(gaps[first:last].argmax())
            pending += [(first, widest), (widest + 1, last)]
    return clusters


def _number_curves(runs: pd.DataFrame) -> Int[np.ndarray, " row"] | None:
    """Number the run of each row, by domain; None if rows are no points of runs."""
    names = ["run"]
    if "run" not in runs and {"schedule", "step"} <= set(runs):
        names = [c for c in ("N", "schedule") if c in runs]
    keys = [runs[c] for c in (*names, "domain") if c in runs]
    if names[0] not in runs:
        unnamed = unnamed_curves(runs)
        if unnamed is None:
            return None
        keys.append(unnamed.names)
    return runs.groupby(keys, dropna=False).ngroup().to_numpy()
