"""The page's forecasts as numbers: what its panels draw and read out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

KEYS = ("replay", "N", "ptpp")  # that panels or lines may be told apart by
MOST_LEVELS = 8  # levels of a column: more panels or lines cannot be read
MOST_ROWS = 2000
DIGITS = 6  # significant, of what is read out in four


def panels(
    held: tuple[pd.DataFrame, pd.DataFrame], fitted: tuple[pd.DataFrame, pd.DataFrame]
) -> dict[str, Any]:
    """Runs and their forecasts along tokens, as JSON types.

    Parameters
    ----------
    held, fitted
        Runs that the forecast had not seen, and that it had; each with what `forecast`
        returned for them.
    """
    runs, _ = held
    # What does not vary tells nothing apart.
    keys = [key for key in KEYS if key in runs and runs[key].nunique() > 1]
    return {
        "keys": keys,
        "held": _columns(*held, keys),
        "fitted": _columns(*fitted, keys),
    }


def _columns(
    runs: pd.DataFrame, rows: pd.DataFrame, keys: list[str]
) -> dict[str, list[float]]:
    """Each column as a list, in the order of tokens."""
    shown = pd.concat(
        [runs[["D", "loss", *keys]], rows[["median", "low", "high"]]], axis=1
    )
    for key in keys:
        shown = shown[shown[key].isin(_some_levels(shown[key]))]
    # Every so-manieth row of a table too large for a picture.
    shown = shown.iloc[:: -(-len(shown) // MOST_ROWS)].sort_values("D")
    return {
        str(name): [float(f"{x:.{DIGITS}g}") for x in column]
        for name, column in shown.items()
    }


def _some_levels(column: pd.Series) -> np.ndarray:
    """The levels of a column, or some from the least to the most."""
    levels = np.sort(column.dropna().unique())
    if len(levels) <= MOST_LEVELS:
        return levels
    places = np.linspace(0, len(levels) - 1, MOST_LEVELS).round().astype(int)
    return levels[places]
