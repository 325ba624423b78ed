"""Measure how far runs lie beyond the table along the user's own columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from bayeslaw._tables.beyond import FAR
from bayeslaw._tables.runs import NUMERIC


def own_beyond(
    table: object,
    runs: pd.DataFrame,
    inputs: Collection[str],
    far: float = FAR,
    units: Mapping[str, str] | None = None,
) -> list[str]:
    """Write a line for each column outside the schema along which runs lie more than
    ``far`` times beyond the table. The unit of distance is half the column's range if
    the column has values of 0 or less, where a factor has no meaning.

    Parameters
    ----------
    inputs
        The columns that laws read.
    units
        Units of these columns, if a formula states them.
    """
    if not isinstance(table, pd.DataFrame):
        return []
    names = [c for c in inputs if c not in NUMERIC and c in table and c in runs]
    said = units or {}
    lines = [
        _line(name, table[name], runs[name], far, said.get(name, ""))
        for name in dict.fromkeys(names)
    ]
    return [line for line in lines if line is not None]


def _line(
    name: str, fitted: pd.Series, new: pd.Series, far: float, unit: str
) -> str | None:
    """Write a line if new values lie too far beyond the fitted ones; None otherwise."""
    low, high = float(fitted.min()), float(fitted.max())
    x = new.to_numpy(float)
    if low > 0:
        # a value of 0 or less lies infinitely far below
        share = np.divide(low, x, out=np.full(len(x), np.inf), where=x > 0)
        times = np.maximum(x / high, share)
        how = "times"
    else:
        half = (high - low) / 2 or 1.0
        times = np.abs(x - (low + high) / 2) / half
        how = "halves of their range"
    worst = int(np.argmax(times))
    if not times[worst] > far:
        return None
    return (
        f"{name} = {x[worst]:g}{unit and f' {unit}'} (a column of your own) lies "
        f"{times[worst]:.3g} {how} "
        f"beyond the runs that were fitted ({low:g} to {high:g})"
    )
