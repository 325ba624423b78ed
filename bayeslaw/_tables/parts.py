"""Find rows that lie apart from the rest of a table: single rows or a part that would
suit their neighbours in another unit, at another level of losses, or with fewer tokens;
and losses that drift from the first row to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy.special import stdtr

from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import is_share
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.surface import Surface, surface_terms

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Part = Bool[np.ndarray, " run"]
    Distances = Float[np.ndarray, " run"]

FEWEST = 12  # least number of rows in which a part is looked for


# -- gaps, whenever a table is read ----------------------------------------------------


def find_gaps(runs: pd.DataFrame, least: float = 1e4) -> Iterator[str]:
    """Write a line for each column with two parts at least ``least`` times apart (in
    measured tables neighbours are under 100 times apart), or with one or two rows far
    from all others whose losses do not suit it.
    """
    for name in (n for n in ("N", "D", "U", "ptpp", "replay", "cost") if n in runs):
        values = runs[name].to_numpy(float)
        below = _select_below_gap(values, least)
        if below is None:
            yield from _find_astray(runs, name)
            continue
        above = (values > 0) & ~below
        fewer = below if below.sum() <= above.sum() else above
        yield (
            f"column {name!r} is at most {values[below].max():g} in {below.sum()} rows "
            f"and at least {values[above].min():g} in {above.sum()}, with nothing "
            f"between: two units in one column? look at {named_rows(runs.index[fewer])}"
        )


def _select_below_gap(values: Distances, least: float) -> Part | None:
    """Select the rows below the widest gap between numbers above 0, if its neighbours
    are at least ``least`` times apart.
    """
    levels = np.unique(values[values > 0])
    with np.errstate(over="ignore"):
        steps = levels[1:] / levels[:-1]
    if not len(steps) or steps.max() < least:
        return None
    return (values > 0) & (values <= levels[np.argmax(steps)])


def _find_astray(runs: pd.DataFrame, name: str, least: float = 30.0) -> Iterator[str]:
    """Tell of one or two rows with N, D or ptpp at least ``least`` times beyond all
    others whose losses do not suit it: with more they are no lower, or with less no
    higher.

    A run that was meant to be so long has a lower loss, and is no fault. Losses on the
    source and of repeated tokens (column ``U``) are not judged: they may rise with D.
    """
    if name not in ("N", "D", "ptpp") or "loss" not in runs or "U" in runs:
        return
    parts = [runs]
    if "domain" in runs:
        domains = runs.groupby(runs["domain"].astype(str))
        parts = [part for domain, part in domains if domain != "source"]
    suited, odd = set(), []
    for part in parts:
        part = part[(part[name] > 0).to_numpy()]
        for way in (1, -1):
            # the rows farthest out come first; one or two of them may lie beyond a gap
            rows = part.iloc[
                np.argsort(-way * part[name].to_numpy(float), kind="stable")
            ]
            values = rows[name].to_numpy(float)
            count = next(
                (
                    count
                    for count in range(1, min(2, len(rows) - 1) + 1)
                    if (values[count - 1] / values[count]) ** way >= least
                ),
                None,
            )
            if count is None:
                continue
            few, peers = rows.iloc[:count], rows.iloc[count:]
            value, nearest = float(values[count - 1]), float(values[count])
            if all(_is_odd(few.iloc[k], peers, way) for k in range(count)):
                odd.append((few.index, value, nearest))
            else:
                suited.add(value)
    odd = [end for end in odd if end[1] not in suited]
    if not odd:
        return
    _, value, nearest = odd[0]
    rows = np.concatenate([rows for rows, other, _ in odd if other == value])
    times = f"{value / nearest:.3g} times the next largest"
    loss = "no lower than with less"
    if value < nearest:
        times = f"1/{nearest / value:.3g} of the next smallest"
        loss = "no higher than with more"
    yield (
        f"{named_rows(np.sort(rows))}, column {name!r}: {format_count(value)} is {times}, "
        f"with nothing between, and the loss is {loss}: a wrong unit? correct the cell, "
        "or leave the row out (--where)"
    )


def _is_odd(
    row: pd.Series,
    peers: pd.DataFrame,
    way: int,
    far: float = 6.0,
    least: float = 0.01,
) -> bool:
    """Tell whether a row with more than the peers (``way`` 1) has no lower loss, or a
    row with less (-1) no higher loss: than rows beyond which it lies in every column, or
    than their surface, by ``far`` median errors and ``least`` in log loss.
    """
    # rows are compared with those alike in their shares, and in words that do not name
    # single runs
    is_alike = np.ones(len(peers), bool)
    for column in map(str, peers):
        is_name = (
            column in ("run", "checkpoint", "seed")
            or is_numeric_dtype(peers[column])
            or 2 * peers[column].astype(str).nunique() > len(peers)
        )
        if is_share(column) or not is_name:
            is_alike &= (peers[column].astype(str) == str(row[column])).to_numpy()
    peers = peers[is_alike]
    # losses fall with more of a resource, and with less replay
    signs = {"N": way, "D": way, "ptpp": way, "replay": -way}
    signs = {column: sign for column, sign in signs.items() if column in peers}
    is_behind = np.ones(len(peers), bool)
    for column, sign in signs.items():
        is_behind &= (sign * (row[column] - peers[column]) >= 0).to_numpy()
    losses = np.sort(way * peers["loss"].to_numpy(float)[is_behind])
    # one of them may have failed, so the second counts
    if len(losses) >= 3 and way * row["loss"] >= losses[1]:
        return True
    # with less of another column than all others, a high loss is no wonder
    if len(peers) < 24 or any(
        sign * row[c] < (sign * peers[c]).min() for c, sign in signs.items()
    ):
        return False
    # the surface at the peers' end next to the row, where it does not extrapolate
    near = {c: np.clip(row[c], peers[c].min(), peers[c].max()) for c in signs}
    around = Surface.of(peers, list(signs))
    (miss,) = around.misses_at(pd.DataFrame([near | {"loss": row["loss"]}]))
    return bool(way * miss > max(far * around.usual, least))


# -- single rows in another unit -------------------------------------------------------


def find_misplaced(
    runs: pd.DataFrame,
    columns: Collection[str],
    suspects: int = 4,
    fewest: int = 24,
    far: tuple[float, float] = (12.0, 0.02),
    near: float = 3.0,
) -> Iterator[str]:
    """Write a line for each row that fits the others only with its N or D times a power
    of ten. It may lie so far out that a surface fitted to all rows passes near it, so
    each row is judged by a surface fitted to the others.

    Parameters
    ----------
    columns
        Columns that laws read.
    suspects
        Number of rows to judge: this many farthest off the surface, and as many
        farthest out.
    fewest
        Least number of rows.
    far
        Least distance of the row from the surface, in median errors and in log loss.
    near
        Largest distance of the corrected row, in median errors.
    """
    numbers = [c for c in ("N", "D") if c in columns and (runs[c] > 0).all()]
    if len(runs) < fewest or not numbers:
        return
    basis, _ = np.linalg.qr(surface_terms(runs, columns))
    leverage = (basis**2).sum(axis=1)
    y = np.log(runs["loss"].to_numpy(float))
    # the distance of each row from a surface fitted without it
    deleted = np.abs(y - basis @ (basis.T @ y)) / np.maximum(1 - leverage, 1e-9)
    farthest = [np.argsort(-size)[:suspects] for size in (deleted, leverage)]
    for place in np.unique(farthest):
        others, row = runs.drop(runs.index[place]), runs.iloc[[place]]
        alone = [name for name in numbers if _is_alone(others, row, name)]
        if not alone:
            continue
        around = Surface.of(others, columns)
        off = float(np.abs(around.misses_at(row))[0])
        if off < max(far[0] * around.usual, far[1]):
            continue
        within = near * around.usual
        for name, factor in product(alone, (10.0, 100.0, 1000.0, 0.1, 0.01, 0.001)):
            moved = row.assign(**{name: row[name] / factor})
            value = float(moved[name].iloc[0])
            is_inside = others[name].min() <= value <= others[name].max()
            is_near = np.abs(around.misses_at(moved))[0] < within
            if is_inside and is_near and not _is_alone(others, moved, name):
                yield (
                    f"row {row.index[0]}: {name} {format_count(row[name].iloc[0])} lies "
                    f"{off:.1%} off the other rows, and {format_count(value)} within "
                    f"{within:.1%}: a digit too many or too few?"
                )
                break


def _is_alone(
    others: pd.DataFrame, row: pd.DataFrame, name: str, least: float = 5.0
) -> bool:
    """Tell whether no other row has a value, or a number of tokens per parameter, within
    ``least`` times of the row's.
    """
    ratios = [others[name] / row[name].iloc[0]]
    if {"N", "D"} <= set(others):
        ratios.append(others["D"] / others["N"] * (row["N"] / row["D"]).iloc[0])
    return any(np.abs(np.log(ratio)).min() > np.log(least) for ratio in ratios)


# -- a part of the rows ----------------------------------------------------------------


def find_parts(
    runs: pd.DataFrame, columns: Collection[str], rough: float = 0.03
) -> list[str]:
    """Write a line for each way in which part of the rows looks unlike the rest; else
    one if half of the rows lie ``rough`` off any smooth surface. In measured tables whose
    columns tell the losses it is 2% at most, over the widest ranges.

    Parameters
    ----------
    columns
        Columns that laws read.
    """
    if len(runs) < FEWEST or not (runs["loss"] > 0).all():
        return []
    whole = Surface.of(runs, columns)
    ways = (_find_units, _find_levels, _find_fewer_tokens, _find_drift)
    lines = [line for way in ways if (line := way(whole))]
    varied = [c for c in columns if c in runs and runs[c].nunique() > 1]
    has_sizes = {"N", "D"} <= {*varied} and runs["N"].nunique() <= len(runs) / 4
    if not lines and has_sizes and whole.usual >= rough:
        lines.append(
            f"half of the rows lie over {whole.usual:.1%} off a smooth surface in "
            f"{', '.join(varied)}, where seeds differ by .05-.6%: a column that slipped by "
            "a row, rows in another unit, or a column that is missing?"
        )
    return lines


def _name_fewer(whole: Surface, part: Part) -> str:
    """Name the rows of a part, or those of the rest if they are fewer."""
    return named_rows(whole.runs.index[part if part.sum() <= (~part).sum() else ~part])


def _find_units(whole: Surface, closer: float = 3.0, least: float = 5.0) -> str | None:
    """Tell whether the rows below a column's widest gap fit their neighbours in another
    unit: they must lie ``closer`` times nearer to a smooth surface.
    """
    runs, columns = whole.runs, whole.columns
    for name in (n for n in ("N", "D", "ptpp") if n in columns):
        values = runs[name].to_numpy(float)
        below = _select_below_gap(values, least)
        if below is None and name == "D" and "N" in columns:
            # if budgets are proportional to size, D has no gap but D / N does
            below = _select_below_gap(values / runs["N"].to_numpy(float), least)
        if below is None:
            continue
        for factor in (1e3, 1e6, 1e9):
            scaled = runs.assign(**{name: np.where(below, factor * values, values)})
            usual = Surface.of(scaled, columns).usual
            if whole.usual > closer * usual:
                return (
                    f"column {name!r} times {factor:g} in {int(below.sum())} of "
                    f"{len(runs)} rows would bring half of the rows from "
                    f"{whole.usual:.2%} to {usual:.2%} near a smooth surface: two units "
                    f"in one column? look at {_name_fewer(whole, below)}"
                )
    return None


def _assign_to_two(
    start: Part,
    fit: Callable[[Part], tuple[Distances, Distances]],
    rounds: int = 20,
) -> tuple[Part, float]:
    """Assign each row to the nearer of two kinds, and fit both kinds, in turns. Returns
    the rows of the second kind, and the median distance of all rows.

    ``fit``: rows of the second kind -> distances of all rows from both kinds.
    """
    kind, distance = start, np.inf
    for _ in range(rounds):
        if not 2 <= kind.sum() <= len(kind) - 2:
            break
        first, second = (np.abs(distances) for distances in fit(kind))
        distance = float(np.median(np.minimum(first, second)))
        nearer = second < first
        if (nearer == kind).all():
            break
        kind = nearer
    return kind, distance


def _find_levels(
    whole: Surface, closer: float = 4.0, least: float = 0.02
) -> str | None:
    """Tell whether losses lie at two levels, one shift apart.

    With a shift of at least ``least`` in log loss, they must lie ``closer`` times
    nearer to a smooth surface. By chance alone this ratio is 2.
    """
    y, design = whole.y, whole.design
    shift = 0.0

    def fit(upper: Part) -> tuple[Distances, Distances]:
        nonlocal shift
        shifted = np.column_stack([design, upper.astype(float)])
        coefficients, *_ = np.linalg.lstsq(shifted, y, rcond=None)
        shift = float(coefficients[-1])
        base = y - design @ coefficients[:-1]
        return base, base - shift

    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    middle = (residual.max() + residual.min()) / 2
    late = np.arange(len(y)) >= len(y) / 2
    tried = []
    for start in (residual > np.median(residual), late, residual > middle):
        upper, distance = _assign_to_two(start, fit)
        tried.append((distance, abs(shift), upper if shift > 0 else ~upper))
    distance, shift, upper = min(tried, key=lambda kinds: kinds[0])
    if not (whole.usual > closer * distance and shift > least):
        return None
    what = "other units, domains or tokenizers"
    if abs(shift - np.log(1 / np.log(2))) < 0.03:
        what = "bits and nats"
    elif abs(shift - np.log(10)) < 0.03:
        what = "a factor of ten"
    return (
        f"losses lie at two levels, {np.expm1(shift):.1%} apart at like settings "
        f"({int(upper.sum())} and {int((~upper).sum())} rows): {what} in one column? "
        f"look at {_name_fewer(whole, upper)}"
    )


def _find_fewer_tokens(
    whole: Surface, closer: float = 4.0, near: float = 0.01
) -> str | None:
    """Tell whether the smaller part of the rows fits the others at a fraction of its D,
    like runs that ended before their planned tokens.

    Half of the rows must come ``closer`` times nearer to the surface (by chance alone
    2), and within ``near`` of it.
    """
    runs, columns, y = whole.runs, whole.columns, whole.y
    if "D" not in columns or runs["D"].nunique() < 2 or not (runs["D"] > 0).all():
        return None
    if whole.usual < 0.5 * near:
        return None

    def assume(factor: float) -> tuple[Part, float]:
        fewer = runs.assign(D=runs["D"] / factor)

        def fit(short: Part) -> tuple[Distances, Distances]:
            assumed = runs.assign(D=runs["D"].where(~short, fewer["D"]))
            terms = surface_terms(assumed, columns)
            coefficients, *_ = np.linalg.lstsq(terms, y, rcond=None)
            told, changed = (
                y - surface_terms(assumed, columns, at) @ coefficients
                for at in (runs, fewer)
            )
            return told, changed

        return _assign_to_two(whole.misses > 0, fit)

    # one of these fractions is near any
    tried = {factor: assume(factor) for factor in (3.0, 10.0, 30.0)}
    factor, (short, distance) = min(tried.items(), key=lambda item: item[1][1])
    is_near = distance < min(whole.usual / closer, near)
    if not is_near or not 2 <= short.sum() <= len(runs) / 2:
        return None
    return (
        f"{int(short.sum())} of {len(runs)} rows fit the others at 1/{factor:g} of their "
        f"D, which would bring half of the rows from {whole.usual:.2%} to {distance:.2%} "
        "near a smooth surface: tokens planned, of runs that ended before? look at "
        f"{named_rows(runs.index[short])}"
    )


def _find_drift(
    whole: Surface, chance: float = 1e-6, least: float = 0.01
) -> str | None:
    """Tell whether losses drift from the first row to the last, given their columns, by
    at least ``least`` of the loss. ``chance`` is the probability that a table without a
    drift is said to have one.
    """
    rows, terms = whole.design.shape
    if rows < terms + FEWEST:
        return None
    order = np.linspace(-0.5, 0.5, rows)
    # the slope given the columns, by regression of residuals (Frisch and Waugh 1933),
    # because terms of the surface may be dependent
    both_axes = np.column_stack([order, whole.y])
    coefficients, *_ = np.linalg.lstsq(whole.design, both_axes, rcond=None)
    order_left, y_left = (both_axes - whole.design @ coefficients).T
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
    if 2 * stdtr(freedom, -abs(drift) / error) > chance:
        return None
    way = "rise" if drift > 0 else "fall"
    return (
        f"losses {way} by {abs(drift):.1%} from the first row to the last at like "
        "settings: what changed meanwhile (code, data, evaluation), or what column is "
        "missing?"
    )
