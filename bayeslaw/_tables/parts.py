"""Find rows that lie apart from the rest of a table: single rows or a part that would
suit their neighbours in another unit, at another level of losses, or with fewer tokens;
and losses that drift from the first row to the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import stdtr

from bayeslaw._base.numbers import format_count
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.rows.shares import share_columns
from bayeslaw._tables.surface import Surface, fit_slope, surface_terms

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Part = Bool[np.ndarray, " run"]
    Distances = Float[np.ndarray, " run"]
    Terms = Float[np.ndarray, "run term"]
    Way = tuple[float, Part, str, str]

FEWEST = 12  # least number of rows in which a part is looked for


def find_gaps(runs: pd.DataFrame) -> Iterator[str]:
    """Write a line for each column with two parts at least 10,000 times apart (in
    measured tables neighbours are under 100 times apart), or with one or two rows far
    from all others whose losses do not suit it.
    """
    for name in (n for n in ("N", "D", "U", "ptpp", "replay", "cost") if n in runs):
        values = runs[name].to_numpy(float)
        below = _select_below_gap(values, 1e4)
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
    """Select the rows below the widest gap, if it is ``least`` times wide."""
    levels = np.unique(values[values > 0])
    with np.errstate(over="ignore"):
        steps = levels[1:] / levels[:-1]
    if not len(steps) or steps.max() < least:
        return None
    return (values > 0) & (values <= levels[np.argmax(steps)])


def _find_astray(runs: pd.DataFrame, name: str) -> Iterator[str]:
    """Tell of one or two rows with N, D or ptpp at least 30 times beyond all others whose
    losses do not suit it: with more they are no lower, or with less no higher.

    A run that was meant to be so long has a lower loss, and is no fault. Losses on the
    source and of repeated tokens (column ``U``) are not judged: they may rise with D.
    """
    if name not in ("N", "D", "ptpp") or "loss" not in runs or "U" in runs:
        return
    runs = runs[(runs[name] > 0).to_numpy()]
    domains = runs["domain"].astype(str) if "domain" in runs else np.zeros(len(runs))
    suited, odd = set(), {}
    for (domain, part), way in product(runs.groupby(domains), (1, -1)):
        # the rows farthest out come first; one or two of them may lie beyond a gap
        rows = part.sort_values(name, ascending=way < 0, kind="stable")
        times = (rows[name].to_numpy(float)[:2] / rows[name].shift(-1)[:2]) ** way
        beyond = np.flatnonzero(times >= 30)
        if domain == "source" or not len(beyond):
            continue
        few, peers = rows.iloc[: beyond[0] + 1], rows.iloc[beyond[0] + 1 :]
        value, nearest = float(few[name].iloc[-1]), float(peers[name].iloc[0])
        if all(_is_odd(row, peers, way) for _, row in few.iterrows()):
            found, nearest = odd.get(value, ([], nearest))
            odd[value] = [*found, *few.index], nearest
        else:
            suited.add(value)
    for value, (found, nearest) in odd.items():
        if value in suited:
            continue
        times = f"{value / nearest:.3g} times the next largest"
        loss = "no lower than with less"
        if value < nearest:
            times = f"1/{nearest / value:.3g} of the next smallest"
            loss = "no higher than with more"
        yield (
            f"{named_rows(np.sort(found))}, column {name!r}: {format_count(value)} is "
            f"{times}, with nothing between, and the loss is {loss}: a wrong unit? "
            "correct the cell, or leave the row out (--where)"
        )
        return


def _is_odd(row: pd.Series, peers: pd.DataFrame, way: int) -> bool:
    """Tell whether a row with more than the peers (``way`` 1) has no lower loss, or a
    row with less (-1) no higher loss: than rows beyond which it lies in every column, or
    than their surface, by six median errors and 1% of the loss.
    """
    # rows are compared with those alike in their shares, and in words that do not name
    # single runs
    words = [
        column
        for column in peers.select_dtypes(exclude=["number", "bool"])
        if column not in ("run", "checkpoint", "seed")
        and 2 * peers[column].astype(str).nunique() <= len(peers)
    ]
    alike = [*words, *share_columns(peers)]
    peers = peers[(peers[alike].astype(str) == row[alike].map(str)).all(axis=1)]
    # losses fall with more of a resource, and with less replay
    signs = {"N": way, "D": way, "ptpp": way, "replay": -way}
    signs = {column: sign for column, sign in signs.items() if column in peers}
    ahead = pd.DataFrame({c: sign * (row[c] - peers[c]) for c, sign in signs.items()})
    losses = np.sort(way * peers["loss"].to_numpy(float)[(ahead >= 0).all(axis=1)])
    # one of them may have failed, so the second counts
    if len(losses) >= 3 and way * row["loss"] >= losses[1]:
        return True
    # with less of another column than all others, a high loss is no wonder
    if len(peers) < 24 or (ahead.max() < 0).any():
        return False
    # the surface at the peers' end next to the row, where it does not extrapolate
    near = {c: np.clip(row[c], peers[c].min(), peers[c].max()) for c in signs}
    around = Surface.of(peers, list(signs))
    (miss,) = around.misses_at(pd.DataFrame([near | {"loss": row["loss"]}]))
    return bool(way * miss > max(6 * around.usual, 0.01))


def find_misplaced(whole: Surface) -> Iterator[str]:
    """Write a line for each row that fits the others only with its N or D times a power
    of ten, by a surface fitted to the others, as it may bend its own.
    """
    runs, columns = whole.runs, whole.columns
    numbers = [c for c in ("N", "D") if c in columns and (runs[c] > 0).all()]
    if len(runs) < 24 or not numbers:
        return

    def is_alone(row: pd.DataFrame, name: str) -> bool:
        """Tell whether no other row's value, or D / N, is within five times."""
        ratios = [others[name] / row[name].iloc[0]]
        if {"N", "D"} <= set(runs):
            ratios.append(others["D"] / others["N"] * (row["N"] / row["D"]).iloc[0])
        return any(np.abs(np.log(ratio)).min() > np.log(5) for ratio in ratios)

    basis, _ = np.linalg.qr(whole.design)
    leverage = (basis**2).sum(axis=1)
    # the distance of each row from a surface fitted without it
    left = np.abs(whole.y - basis @ (basis.T @ whole.y))
    deleted = left / np.maximum(1 - leverage, 1e-9)
    # four rows farthest off the surface, and as many farthest out
    for place in np.unique([np.argsort(-size)[:4] for size in (deleted, leverage)]):
        others, row = runs.drop(runs.index[place]), runs.iloc[[place]]
        alone = [name for name in numbers if is_alone(row, name)]
        if not alone:
            continue
        around = Surface.of(others, columns)
        off, within = float(np.abs(around.misses_at(row))[0]), 3 * around.usual
        if off < max(12 * around.usual, 0.02):
            continue
        for name, factor in product(alone, (10.0, 100.0, 1000.0, 0.1, 0.01, 0.001)):
            moved = row.assign(**{name: row[name] / factor})
            value = float(moved[name].iloc[0])
            is_inside = others[name].min() <= value <= others[name].max()
            is_near = np.abs(around.misses_at(moved))[0] < within
            if is_inside and is_near and not is_alone(moved, name):
                yield (
                    f"row {row.index[0]}: {name} {format_count(row[name].iloc[0])} lies "
                    f"{off:.1%} off the other rows, and {format_count(value)} within "
                    f"{within:.1%}: a digit too many or too few?"
                )
                break


def find_parts(whole: Surface) -> list[str]:
    """Write a line for each way in which part of the rows looks unlike the rest, and for
    a drift; else one if half of the rows lie 3% off any smooth surface. In measured
    tables whose columns tell the losses it is 2% at most, over the widest ranges.
    """
    runs, usual = whole.runs, whole.usual
    if len(runs) < FEWEST or not (runs["loss"] > 0).all():
        return []
    lines = []
    # how many times nearer to the surface rows must come; by chance alone it is 2, where
    # rows are assigned to two kinds
    for list_ways, closer in ((_rescale, 3.0), (_shift, 4.0), (_shorten, 4.0)):
        # a median distance from the surface, the rows that would come nearer by a change,
        # what that is, and what to ask
        way = min(list_ways(whole), key=itemgetter(0), default=None)
        if way is None or not usual > closer * way[0]:
            continue
        nearer, part, what, question = way
        count = int(part.sum())
        fewer = part if count <= len(runs) / 2 else ~part
        lines.append(
            f"{count} of {len(runs)} rows fit the others {what}, which would bring "
            f"half of the rows from {usual:.2%} to {nearer:.2%} near a smooth "
            f"surface: {question}? look at {named_rows(runs.index[fewer])}"
        )
    # a drift from the first row to the last by 1%, given the columns; if these determine
    # the order, it adds nothing
    order = np.linspace(-0.5, 0.5, len(runs))
    drift, error, freedom = fit_slope(order, whole.design, whole.y, least=0.1)
    has_rows = len(runs) >= whole.design.shape[1] + FEWEST
    # of a table without a drift one in a million is said to have one
    is_large = has_rows and abs(drift) >= 0.01 and error > 0
    if is_large and 2 * stdtr(freedom, -abs(drift) / error) < 1e-6:
        way = "rise" if drift > 0 else "fall"
        lines.append(
            f"losses {way} by {abs(np.expm1(drift)):.1%} from the first row to the last at "
            "like settings: what changed meanwhile (code, data, evaluation), or what "
            "column is missing?"
        )
    varied = [c for c in whole.columns if c in runs and runs[c].nunique() > 1]
    has_sizes = {"N", "D"} <= {*varied} and runs["N"].nunique() <= len(runs) / 4
    if not lines and has_sizes and usual >= 0.03:
        lines.append(
            f"half of the rows lie over {usual:.1%} off a smooth surface in "
            f"{', '.join(varied)}, where seeds differ by .05-.6%: a column that slipped by "
            "a row, rows in another unit, or a column that is missing?"
        )
    return lines


def _rescale(whole: Surface) -> Iterator[Way]:
    """Try another unit for the rows below a column's widest gap, of five times."""
    runs, columns = whole.runs, whole.columns
    for name in (n for n in ("N", "D", "ptpp") if n in columns):
        values = runs[name].to_numpy(float)
        below = _select_below_gap(values, 5.0)
        if below is None and name == "D" and "N" in columns:
            # if budgets are proportional to size, D has no gap but D / N does
            below = _select_below_gap(values / runs["N"].to_numpy(float), 5.0)
        if below is None:
            continue
        for factor in (1e3, 1e6, 1e9):
            scaled = runs.assign(**{name: np.where(below, factor * values, values)})
            usual = Surface.of(scaled, columns).usual
            what = f"with {name!r} times {factor:g}"
            yield usual, below, what, "two units in one column"


def _shift(whole: Surface) -> Iterator[Way]:
    """Try two levels of losses, one shift of at least .02 in log loss apart."""
    y, design = whole.y, whole.design
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    middle = (residual.max() + residual.min()) / 2
    late = np.arange(len(y)) >= len(y) / 2
    known = {"bits and nats": -np.log(np.log(2)), "a factor of ten": np.log(10)}
    for start in (residual > np.median(residual), late, residual > middle):
        part, usual, coefficients = _split(
            y, lambda part: np.column_stack([design, part]), start
        )
        shift = float(coefficients[-1])
        alike = [k for k, size in known.items() if abs(abs(shift) - size) < 0.03]
        question = (alike or ["other units, domains or tokenizers"])[0]
        way, size = "lower" if shift > 0 else "higher", abs(np.expm1(-shift))
        if abs(shift) > 0.02:
            what = f"with losses {way} by {size:.1%}"
            yield usual, part, what, f"{question} in one column"


def _shorten(whole: Surface) -> Iterator[Way]:
    """Try a fraction of D for fewer rows, if that brings half of all within 1%."""
    runs, columns = whole.runs, whole.columns
    has_tokens = "D" in columns and runs["D"].nunique() > 1 and (runs["D"] > 0).all()
    # one of these fractions is near any
    for factor in (3.0, 10.0, 30.0) if has_tokens and whole.usual >= 0.005 else ():

        def terms_of(short: Part, factor: float = factor) -> Terms:
            seen = runs["D"].where(~short, runs["D"] / factor)
            return surface_terms(runs, columns, runs.assign(D=seen))

        part, usual, _ = _split(whole.y, terms_of, whole.misses > 0)
        if usual < 0.01 and 2 <= part.sum() <= len(runs) / 2:
            what = f"at 1/{factor:g} of their D"
            yield usual, part, what, "tokens planned, of runs that ended before"


def _split(
    y: Distances, terms_of: Callable[[Part], Terms], start: Part
) -> tuple[Part, float, Float[np.ndarray, " term"]]:
    """Assign each row to the nearer of two kinds, and fit both kinds, in turns. Returns
    the rows of the second kind, the median distance of all rows, and the coefficients.

    ``terms_of``: rows of the second kind -> the terms of the surface of all rows.
    """
    part, distance, coefficients = start, np.inf, np.zeros(1)
    kinds = np.zeros(len(y), bool), np.ones(len(y), bool)
    for _ in range(20):
        if not 2 <= part.sum() <= len(y) - 2:
            break
        coefficients, *_ = np.linalg.lstsq(terms_of(part), y, rcond=None)
        first, second = (np.abs(y - terms_of(kind) @ coefficients) for kind in kinds)
        distance = float(np.median(np.minimum(first, second)))
        nearer = second < first
        if (nearer == part).all():
            break
        part = nearer
    return part, distance, coefficients
