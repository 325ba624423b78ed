"""Tables of which a part is another thing: other units, labels exchanged half way, a
drift from the first row to the last. Judged by rows beside one another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from bayeslaw._tables.checks.slopes import surface, surface_misses
from bayeslaw._tables.runs import named_rows

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

CLOSER = 4.0  # times nearer a surface with the shift than without; chance makes it 2
CLOSER_UNIT = 3.0  # with rows in another unit, of which only a few are tried
LEAST_SHIFT = 0.02  # of log loss
FEWEST = 12  # rows by which a mixture is told
ROUNDS = 20
GAP = 5.0  # times between neighbours of a column, on one side of which units may differ
FACTORS = (1e3, 1e6, 1e9)
UNITS = {np.log(1 / np.log(2)): "bits and nats", np.log(10): "a factor of ten"}
NEAR_UNIT = 0.03  # of a shift to that of a unit
CHANCE = 1e-6  # that a table without a drift has one
LEAST_DRIFT = 0.01  # of the loss, from the first row to the last
TOLD_ORDER = 0.9  # share of the order of rows that columns tell, above which it says
# nothing of its own


def mixtures(runs: pd.DataFrame, columns: Collection[str]) -> list[str]:
    """A line for each way in which part of the rows looks unlike the rest.

    Parameters
    ----------
    columns
        Those that laws read.
    """
    if len(runs) < FEWEST or not (runs["loss"] > 0).all():
        return []
    found = [
        _of_columns(runs, columns),
        _of_losses(runs, columns),
        _of_order(runs, columns),
    ]
    return [line for line in found if line is not None]


def _distance(misses: Float[np.ndarray, " run"]) -> float:
    return float(np.median(np.abs(misses)))


# -- units of a part -------------------------------------------------------------------


def _of_columns(runs: pd.DataFrame, columns: Collection[str]) -> str | None:
    """Whether rows of a column on one side of its widest gap fit their neighbours once
    they are in another unit.
    """
    usual = _distance(surface_misses(runs, columns))
    for name in ("N", "D", "ptpp"):
        if name not in columns:
            continue
        values = runs[name].to_numpy(float)
        below = _below_gap(values)
        if below is None and name == "D" and "N" in columns:
            # budgets that follow the size overlap, tokens per parameter do not
            below = _below_gap(values / runs["N"].to_numpy(float))
        if below is None:
            continue
        for factor in FACTORS:
            tried = runs.assign(**{name: np.where(below, factor * values, values)})
            with_factor = _distance(surface_misses(tried, columns))
            if usual > CLOSER_UNIT * with_factor:
                few = below if below.sum() <= len(runs) / 2 else ~below
                return (
                    f"column {name!r} times {factor:g} in {int(below.sum())} of "
                    f"{len(runs)} rows would bring half of the rows from {usual:.2%} to "
                    f"{with_factor:.2%} near a smooth surface: two units in one "
                    f"column? look at {named_rows(runs.index[few])}"
                )
    return None


def _below_gap(values: Float[np.ndarray, " run"]) -> Bool[np.ndarray, " run"] | None:
    levels = np.unique(values)
    if len(levels) < 2 or levels[0] <= 0:
        return None
    steps = levels[1:] / levels[:-1]
    widest = int(np.argmax(steps))
    if steps[widest] < GAP:
        return None
    return values <= levels[widest]


# -- two levels of losses --------------------------------------------------------------


def _of_losses(runs: pd.DataFrame, columns: Collection[str]) -> str | None:
    """Whether losses lie at two levels, one shift apart."""
    design = surface(runs, columns)
    y = np.log(runs["loss"].to_numpy(float))
    usual = _distance(surface_misses(runs, columns))
    shifted = _split(design, y)
    if shifted is None:
        return None
    shift, upper, distance = shifted
    if not (usual > CLOSER * distance and shift > LEAST_SHIFT):
        return None
    unit = [name for size, name in UNITS.items() if abs(shift - size) < NEAR_UNIT]
    what = unit[0] if unit else "other units, domains or tokenizers"
    few = upper if upper.sum() <= len(runs) / 2 else ~upper
    return (
        f"losses lie at two levels, {np.expm1(shift):.1%} apart at like settings "
        f"({int(upper.sum())} and {int((~upper).sum())} rows): {what} in one column? "
        f"look at {named_rows(runs.index[few])}"
    )


def _split(
    design: Float[np.ndarray, "run term"], y: Float[np.ndarray, " run"]
) -> tuple[float, Bool[np.ndarray, " run"], float] | None:
    """The shift between two levels of log loss, which rows are on the upper one, and
    the median distance from either; by turns of assignment and least squares.
    """
    best = None
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    rows = np.arange(len(y))
    half = rows >= len(y) / 2
    starts = [left > np.median(left), half, left > (left.max() + left.min()) / 2]
    for upper in starts:
        shift = 0.0
        rest = left
        for _ in range(ROUNDS):
            if not 2 <= upper.sum() <= len(y) - 2:
                break
            both = np.column_stack([design, upper.astype(float)])
            found, *_ = np.linalg.lstsq(both, y, rcond=None)
            shift = float(found[-1])
            base = y - design @ found[:-1]
            moved = base > shift / 2 if shift > 0 else base < shift / 2
            rest = base - shift * moved
            if (moved == upper).all():
                break
            upper = moved
        if best is None or _distance(rest) < best[2]:
            high = upper if shift > 0 else ~upper
            best = abs(shift), high, _distance(rest)
    return best


# -- the order of rows -----------------------------------------------------------------


def _of_order(runs: pd.DataFrame, columns: Collection[str]) -> str | None:
    """Whether losses drift from the first row to the last, beside their columns."""
    design = surface(runs, columns)
    rows, terms = design.shape
    if rows < terms + FEWEST:
        return None
    order = np.linspace(-0.5, 0.5, rows)
    told, *_ = np.linalg.lstsq(design, order, rcond=None)
    rest = order - design @ told
    if rest.var() < (1 - TOLD_ORDER) * order.var():
        return None
    y = np.log(runs["loss"].to_numpy(float))
    both = np.column_stack([order, design])
    found, *_ = np.linalg.lstsq(both, y, rcond=None)
    left = y - both @ found
    freedom = rows - terms - 1
    error = float(np.sqrt(left @ left / freedom / (rest @ rest)))
    drift = float(found[0])
    if abs(drift) < LEAST_DRIFT or error == 0:
        return None
    if 2 * stats.t.sf(abs(drift) / error, freedom) > CHANCE:
        return None
    way = "rise" if drift > 0 else "fall"
    return (
        f"losses {way} by {abs(drift):.1%} from the first row to the last at like "
        "settings: what changed meanwhile (code, data, evaluation), or what column is "
        "missing?"
    )
