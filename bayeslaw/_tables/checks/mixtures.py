"""Find tables in which one part of the rows differs from the rest: by other units, by
exchanged labels, or by a drift from the first row to the last. Rows are judged by their
neighbours.
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

FEWEST = 12  # least number of rows in which a mixture is looked for


def mixtures(runs: pd.DataFrame, columns: Collection[str]) -> list[str]:
    """Write a line for each way in which part of the rows looks unlike the rest.

    Parameters
    ----------
    columns
        Columns that laws read.
    """
    if len(runs) < FEWEST or not (runs["loss"] > 0).all():
        return []
    checks = (_of_columns, _of_losses, _of_tokens, _of_order)
    lines = [check(runs, columns) for check in checks]
    told = [line for line in lines if line is not None]
    return told or _of_roughness(runs, columns)


def _distance(misses: Float[np.ndarray, " run"]) -> float:
    return float(np.median(np.abs(misses)))


def _of_roughness(
    runs: pd.DataFrame, columns: Collection[str], rough: float = 0.03
) -> list[str]:
    """Tell whether half of the rows lie ``rough`` off any smooth surface. In measured
    tables whose columns tell the losses it is 2% at most, over the widest ranges.
    """
    varied = [c for c in columns if c in runs and runs[c].nunique() > 1]
    if "N" not in varied or "D" not in varied or runs["N"].nunique() > len(runs) / 4:
        return []
    distance = _distance(surface_misses(runs, columns))
    if distance < rough:
        return []
    return [
        f"half of the rows lie over {distance:.1%} off a smooth surface in "
        f"{', '.join(varied)}, where seeds differ by .05-.6%: a column that slipped by "
        "a row, rows in another unit, or a column that is missing?"
    ]


# -- units of a part -------------------------------------------------------------------


def _of_columns(
    runs: pd.DataFrame, columns: Collection[str], closer: float = 3.0
) -> str | None:
    """Tell whether the rows on one side of a column's widest gap fit their neighbours
    in another unit: they must lie ``closer`` times nearer to a smooth surface.
    """
    usual = _distance(surface_misses(runs, columns))
    for name in ("N", "D", "ptpp"):
        if name not in columns:
            continue
        values = runs[name].to_numpy(float)
        below = _below_gap(values)
        if below is None and name == "D" and "N" in columns:
            # if budgets are proportional to size, D has no gap but D / N does
            below = _below_gap(values / runs["N"].to_numpy(float))
        if below is None:
            continue
        for factor in (1e3, 1e6, 1e9):
            scaled = np.where(below, factor * values, values)
            misses = surface_misses(runs.assign(**{name: scaled}), columns)
            with_factor = _distance(misses)
            if usual > closer * with_factor:
                few = below if below.sum() <= len(runs) / 2 else ~below
                return (
                    f"column {name!r} times {factor:g} in {int(below.sum())} of "
                    f"{len(runs)} rows would bring half of the rows from {usual:.2%} to "
                    f"{with_factor:.2%} near a smooth surface: two units in one "
                    f"column? look at {named_rows(runs.index[few])}"
                )
    return None


def _below_gap(
    values: Float[np.ndarray, " run"], least: float = 5.0
) -> Bool[np.ndarray, " run"] | None:
    """Select the rows below the widest gap, if its neighbours are at least ``least``
    times apart.
    """
    levels = np.unique(values)
    if len(levels) < 2 or levels[0] <= 0:
        return None
    steps = levels[1:] / levels[:-1]
    widest = int(np.argmax(steps))
    if steps[widest] < least:
        return None
    return values <= levels[widest]


# -- two levels of losses --------------------------------------------------------------


def _of_losses(
    runs: pd.DataFrame,
    columns: Collection[str],
    closer: float = 4.0,
    least: float = 0.02,
) -> str | None:
    """Tell whether losses lie at two levels, one shift apart.

    With a shift of at least ``least`` in log loss, they must lie ``closer`` times
    nearer to a smooth surface. By chance alone this ratio is 2.
    """
    design = surface(runs, columns)
    y = np.log(runs["loss"].to_numpy(float))
    usual = _distance(surface_misses(runs, columns))
    shifted = _split(design, y)
    if shifted is None:
        return None
    shift, upper, distance = shifted
    if not (usual > closer * distance and shift > least):
        return None
    what = "other units, domains or tokenizers"
    if abs(shift - np.log(1 / np.log(2))) < 0.03:
        what = "bits and nats"
    elif abs(shift - np.log(10)) < 0.03:
        what = "a factor of ten"
    few = upper if upper.sum() <= len(runs) / 2 else ~upper
    return (
        f"losses lie at two levels, {np.expm1(shift):.1%} apart at like settings "
        f"({int(upper.sum())} and {int((~upper).sum())} rows): {what} in one column? "
        f"look at {named_rows(runs.index[few])}"
    )


def _split(
    design: Float[np.ndarray, "run term"], y: Float[np.ndarray, " run"]
) -> tuple[float, Bool[np.ndarray, " run"], float] | None:
    """Split log losses into two levels, by alternating assignment and least squares.
    Returns the shift, the rows on the upper level, and the median distance from the
    nearer level.
    """
    best = None
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    rows = np.arange(len(y))
    middle = (residual.max() + residual.min()) / 2
    starts = [
        residual > np.median(residual),
        rows >= len(y) / 2,
        residual > middle,
    ]
    for upper in starts:
        shift = 0.0
        distances = residual
        for _ in range(20):
            if not 2 <= upper.sum() <= len(y) - 2:
                break
            shifted = np.column_stack([design, upper.astype(float)])
            coefficients, *_ = np.linalg.lstsq(shifted, y, rcond=None)
            shift = float(coefficients[-1])
            base = y - design @ coefficients[:-1]
            moved = base > shift / 2 if shift > 0 else base < shift / 2
            distances = base - shift * moved
            if (moved == upper).all():
                break
            upper = moved
        if best is None or _distance(distances) < best[2]:
            high = upper if shift > 0 else ~upper
            best = abs(shift), high, _distance(distances)
    return best


# -- tokens that were not seen ---------------------------------------------------------


def _of_tokens(
    runs: pd.DataFrame,
    columns: Collection[str],
    closer: float = 4.0,
    near: float = 0.01,
    factors: tuple[float, ...] = (3.0, 10.0, 30.0),
) -> str | None:
    """Tell whether the smaller part of the rows fits the others at a fraction of its D,
    like runs that ended before their planned tokens.

    Half of the rows must come ``closer`` times nearer to the surface (by chance alone
    2), and within ``near`` of it. ``factors`` are the fractions to try; one of them is
    near any fraction.
    """
    if "D" not in columns or runs["D"].nunique() < 2 or not (runs["D"] > 0).all():
        return None
    usual = _distance(surface_misses(runs, columns))
    if usual < 0.5 * near:
        return None
    tried = [(factor, *_shortened(runs, columns, factor)) for factor in factors]
    factor, short, distance = min(tried, key=lambda row: row[-1])
    is_near = distance < min(usual / closer, near)
    if not is_near or not 2 <= short.sum() <= len(runs) / 2:
        return None
    return (
        f"{int(short.sum())} of {len(runs)} rows fit the others at 1/{factor:g} of their "
        f"D, which would bring half of the rows from {usual:.2%} to {distance:.2%} near a "
        "smooth surface: tokens planned, of runs that ended before? look at "
        f"{named_rows(runs.index[short])}"
    )


def _shortened(
    runs: pd.DataFrame, columns: Collection[str], factor: float, rounds: int = 20
) -> tuple[Bool[np.ndarray, " run"], float]:
    """Assign each row to its D or to a fraction of it, by alternating assignment and a
    fit of the surface. Returns the rows that are nearer at the fraction, and the median
    distance of all rows.
    """
    y = np.log(runs["loss"].to_numpy(float))
    tokens = runs["D"].to_numpy(float)
    fewer = runs.assign(D=tokens / factor)
    short = surface_misses(runs, columns) > 0
    near = np.abs(y)
    for _ in range(rounds):
        assumed = runs.assign(D=np.where(short, tokens / factor, tokens))
        coefficients, *_ = np.linalg.lstsq(surface(assumed, columns), y, rcond=None)
        as_told, as_fewer = (
            np.abs(y - surface(assumed, columns, at) @ coefficients)
            for at in (runs, fewer)
        )
        near = np.minimum(as_told, as_fewer)
        nearer = as_fewer < as_told
        if (nearer == short).all():
            break
        short = nearer
    return short, _distance(near)


# -- the order of rows -----------------------------------------------------------------


def _of_order(
    runs: pd.DataFrame,
    columns: Collection[str],
    chance: float = 1e-6,
    least: float = 0.01,
) -> str | None:
    """Tell whether losses drift from the first row to the last, given their columns, by
    at least ``least`` of the loss. ``chance`` is the probability that a table without a
    drift is said to have one.
    """
    design = surface(runs, columns)
    rows, terms = design.shape
    if rows < terms + FEWEST:
        return None
    order = np.linspace(-0.5, 0.5, rows)
    y = np.log(runs["loss"].to_numpy(float))
    # the slope given the columns, by regression of residuals (Frisch and Waugh 1933),
    # because terms of the surface may be dependent
    both_axes = np.column_stack([order, y])
    coefficients, *_ = np.linalg.lstsq(design, both_axes, rcond=None)
    order_left, y_left = (both_axes - design @ coefficients).T
    # if the columns determine the order, the order adds nothing
    if order_left.var() < 0.1 * order.var():
        return None
    square = order_left @ order_left
    drift = float(order_left @ y_left / square)
    residual = y_left - drift * order_left
    freedom = rows - terms - 1
    error = float(np.sqrt(residual @ residual / freedom / square))
    if abs(drift) < least or error == 0:
        return None
    if 2 * stats.t.sf(abs(drift) / error, freedom) > chance:
        return None
    way = "rise" if drift > 0 else "fall"
    return (
        f"losses {way} by {abs(drift):.1%} from the first row to the last at like "
        "settings: what changed meanwhile (code, data, evaluation), or what column is "
        "missing?"
    )
