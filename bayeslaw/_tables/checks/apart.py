"""Find rows in another unit by a gap in their column: nothing lies between them and the
other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from bayeslaw._law.columns import is_share
from bayeslaw._tables.checks.slopes import surface, unbent


class Gap(NamedTuple):
    """One or two rows of which a column lies far from all other rows.

    Parameters
    ----------
    rows
        Index of the rows.
    value, nearest
        Value of these rows next to the gap, and the nearest value of the others.
    is_odd
        Whether the losses of these rows do not suit the gap.
    """

    rows: pd.Index
    value: float
    nearest: float
    is_odd: bool


def two_parts(
    column: pd.Series, least: float = 1e4
) -> tuple[pd.Index, pd.Index] | None:
    """Split rows at the widest gap of a column, if neighbours there are at least
    ``least`` times apart (in measured tables they are under 100 times apart); else
    None.
    """
    values = column[column > 0].sort_values()
    logs = np.log(values.to_numpy(float))
    steps = np.diff(logs)
    if not len(steps) or steps.max() < np.log(least):
        return None
    cut = int(np.argmax(steps)) + 1
    small, large = values.index[:cut], values.index[cut:]
    return small.sort_values(), large.sort_values()


def astray(runs: pd.DataFrame, name: str, least: float = 30.0) -> Gap | None:
    """Find one or two rows with N, D or ptpp at least ``least`` times beyond all others
    whose losses do not suit it: with more they are no lower, or with less no higher.

    A run that was meant to be so long has a lower loss, and is no fault. Losses on the
    source and of repeated tokens (column ``U``) are not judged: they may rise with D.
    """
    if name not in ("N", "D", "ptpp") or "loss" not in runs or "U" in runs:
        return None
    parts = [runs]
    if "domain" in runs:
        domains = runs.groupby(runs["domain"].astype(str))
        parts = [part for domain, part in domains if domain != "source"]
    gaps = [gap for part in parts for gap in _gaps(part, name, least)]
    suited = {gap.value for gap in gaps if not gap.is_odd}
    odd = [gap for gap in gaps if gap.value not in suited]
    if not odd:
        return None
    alike = [gap.rows for gap in odd if gap.value == odd[0].value]
    return odd[0]._replace(rows=pd.Index(np.concatenate(alike)).sort_values())


def _gaps(
    part: pd.DataFrame, name: str, least: float, most_rows: int = 2
) -> Iterator[Gap]:
    """Yield the gaps that part a few rows from either end of a column."""
    part = part[(part[name] > 0).to_numpy()]
    for way in (1, -1):
        # the rows farthest out come first
        rows = part.iloc[np.argsort(-way * part[name].to_numpy(float), kind="stable")]
        values = rows[name].to_numpy(float)
        for count in range(1, min(most_rows, len(rows) - 1) + 1):
            value, nearest = values[count - 1], values[count]
            if (value / nearest) ** way >= least:
                few, peers = rows.iloc[:count], rows.iloc[count:]
                is_odd = all(_is_odd(few.iloc[k], peers, way) for k in range(count))
                yield Gap(few.index, float(value), float(nearest), is_odd)
                break


def _is_odd(row: pd.Series, peers: pd.DataFrame, way: int) -> bool:
    """Tell whether a row with more than the peers (``way`` 1) has no lower loss, or a
    row with less (-1) no higher loss.
    """
    is_alike = np.ones(len(peers), bool)
    for column in _settings(peers):
        is_alike &= (peers[column].astype(str) == str(row[column])).to_numpy()
    peers = peers[is_alike]
    # losses fall with more of a resource, and with less replay
    signs = {"N": way, "D": way, "ptpp": way, "replay": -way}
    signs = {column: sign for column, sign in signs.items() if column in peers}
    return _is_outdone(row, peers, signs, way) or _is_off(row, peers, signs, way)


def _is_outdone(
    row: pd.Series,
    peers: pd.DataFrame,
    signs: Mapping[str, int],
    way: int,
    fewest: int = 3,
) -> bool:
    """Compare a row with the rows beyond which it lies in every column. One of these
    may have failed, so the second of them counts.
    """
    is_behind = np.ones(len(peers), bool)
    for column, sign in signs.items():
        is_behind &= (sign * (row[column] - peers[column]) >= 0).to_numpy()
    losses = np.sort(way * peers["loss"].to_numpy(float)[is_behind])
    return len(losses) >= fewest and bool(way * row["loss"] >= losses[1])


def _is_off(
    row: pd.Series,
    peers: pd.DataFrame,
    signs: Mapping[str, int],
    way: int,
    fewest: int = 24,
    far: float = 6.0,
    least: float = 0.01,
) -> bool:
    """Compare a row with the surface of the peers at their end next to it: there the
    surface does not extrapolate. The loss must lie ``far`` median errors and ``least``
    in log loss on the wrong side of it.
    """
    if len(peers) < fewest:
        return False
    nearest = {}
    for column, sign in signs.items():
        values = peers[column].to_numpy(float)
        # with less of another column than all others, a high loss is no wonder
        if not sign * row[column] >= (sign * values).min():
            return False
        nearest[column] = float(np.clip(row[column], values.min(), values.max()))
    y = np.log(peers["loss"].to_numpy(float))
    design = surface(peers, list(signs))
    coefficients = unbent(design, y)
    usual = float(np.median(np.abs(y - design @ coefficients)))
    (foreseen,) = surface(peers, list(signs), pd.DataFrame([nearest])) @ coefficients
    return bool(way * (np.log(row["loss"]) - foreseen) > max(far * usual, least))


def _settings(runs: pd.DataFrame) -> list[str]:
    """List the columns in which rows must be alike to be compared: shares of a mixture,
    and words that do not name single runs.
    """
    names = ("run", "checkpoint", "seed")
    return [
        str(column)
        for column in runs
        if is_share(column)
        or not (
            column in names
            or is_numeric_dtype(runs[column])
            or 2 * runs[column].astype(str).nunique() > len(runs)
        )
    ]
