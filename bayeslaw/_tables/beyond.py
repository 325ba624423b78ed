"""How far runs lie beyond those that a posterior was fitted to, in words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableWarning
from bayeslaw._base.numbers import format_count

if TYPE_CHECKING:
    from jaxtyping import Float

# times the largest fitted, or under the smallest: where no stage that was left out says
# how far a law may be trusted (the papers forecast 9 times their largest stage)
FAR = 10.0
AXES = {
    "N": "parameters",
    "D": "tokens",
    "ptpp": "pre-training tokens per parameter",
    "D/N": "adaptation tokens per parameter",
}


def far_beyond(table: object, runs: pd.DataFrame, far: float = FAR) -> list[str]:
    """A line for each axis along which runs lie so many times beyond the table.

    Parameters
    ----------
    table
        The runs that were fitted; where it is no table, nothing is known.
    runs
        Those that are asked about. Columns that either lacks are passed over.
    """
    if not isinstance(table, pd.DataFrame):
        return []
    lines = []
    for name, unit in AXES.items():
        known, asked = _axis(table, name), _axis(runs, name)
        if known is not None and asked is not None:
            lines += _line(name, unit, known, asked, far)
    return lines


def warn_far(table: object, runs: pd.DataFrame) -> None:
    """Warn of each axis along which runs lie far beyond the table."""
    for line in far_beyond(table, runs):
        text = f"{line}: nothing measured says how far a law holds there"
        warnings.warn(text, RunTableWarning, stacklevel=3)


def _axis(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"] | None:
    """The positive finite values of an axis; None where there are none."""
    above, _, below = name.partition("/")
    x = _numbers(columns, above)
    if below:
        x = x / _numbers(columns, below)
    known = np.isfinite(x) & (x > 0)
    if not known.any():
        return None
    return x[known]


def _numbers(columns: pd.DataFrame, name: str) -> Float[np.ndarray, " run"]:
    """A column; NaN where it is no number, or missing."""
    if name not in columns:
        return np.full(len(columns), np.nan)
    values = pd.to_numeric(columns[name], errors="coerce")
    return values.to_numpy(float)


def _line(
    name: str,
    unit: str,
    known: Float[np.ndarray, " run"],
    asked: Float[np.ndarray, " other_run"],
    far: float,
) -> list[str]:
    low, high = known.min(), known.max()
    over = asked / high
    under = low / asked
    times = np.maximum(over, under)
    beyond = int(np.sum(times > far))
    if not beyond:
        return []
    worst = int(np.argmax(times))
    value = format_count(asked[worst])
    ends = f"{format_count(low)} to {format_count(high)}"
    rows = f" in {beyond} of {len(asked)} rows" if len(asked) > 1 else ""
    return [
        f"{name} = {value} ({unit}){rows} lies {times[worst]:.3g} times beyond the runs "
        f"that were fitted ({ends})"
    ]
