"""Build the page's forecasts as numbers, which its panels draw and show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._law.columns import SHARE
from bayeslaw._tables.rows.shares import share_columns


def panels(
    unseen: tuple[pd.DataFrame, pd.DataFrame], fitted: tuple[pd.DataFrame, pd.DataFrame]
) -> dict[str, Any]:
    """Convert runs and their forecasts along tokens to JSON types.

    Parameters
    ----------
    unseen, fitted
        Runs that the forecasting fit had not seen, and runs that it had, each with the
        result of `forecast` for them.
    """
    unseen, fitted = (
        (with_mixture_column(runs), forecasts) for runs, forecasts in (unseen, fitted)
    )
    runs, _ = unseen
    # columns that tell panels or lines apart, if they vary
    names = ("replay", "mixture", "N", "ptpp")
    keys = [key for key in names if key in runs and runs[key].nunique() > 1]
    return {
        "keys": keys,
        "held": _columns(*unseen, keys),
        "fitted": _columns(*fitted, keys),
    }


def with_mixture_column(runs: pd.DataFrame) -> pd.DataFrame:
    """Add a column ``mixture`` with the shares of each run as text, if there are
    shares.
    """
    columns = share_columns(runs)
    if len(columns) < 2:
        return runs
    names = [column.removeprefix(SHARE) for column in columns]
    texts = [
        ", ".join(f"{name} {share:.0%}" for name, share in zip(names, row, strict=True))
        for row in runs[columns].to_numpy(float)
    ]
    return runs.assign(mixture=texts)


def _columns(
    runs: pd.DataFrame, rows: pd.DataFrame, keys: list[str], most_rows: int = 2000
) -> dict[str, list[float | str]]:
    """Convert each column to a list, in the order of tokens, with numbers to six
    digits.
    """
    table = pd.concat(
        [runs[["D", "loss", *keys]], rows[["median", "low", "high"]]], axis=1
    )
    for key in keys:
        table = table[table[key].isin(_some_levels(table[key]))]
    # an even selection of rows, if the table is too large for a picture
    step = -(-len(table) // most_rows)
    table = table.iloc[::step].sort_values("D")
    return {
        str(name): [x if name == "mixture" else float(f"{x:.6g}") for x in column]
        for name, column in table.items()
    }


def _some_levels(column: pd.Series, most: int = 8) -> np.ndarray:
    """Select the levels of a column; of many levels, some from the smallest to the
    largest, because more panels or lines cannot be read.
    """
    levels = np.array(sorted(column.dropna().unique()))
    if len(levels) <= most:
        return levels
    places = np.linspace(0, len(levels) - 1, most).round().astype(int)
    return levels[places]
