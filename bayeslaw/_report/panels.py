"""Build the page's forecasts as numbers, which its panels draw and show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._law.columns import SHARE
from bayeslaw._tables.rows.shares import share_columns

ENOUGH = 4  # runs at so many tokens draw a line by themselves
POINTS = 12  # along a line that is drawn for fewer
MOST_LINES = 100


def curves(runs: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Make rows without a loss along tokens, for lines with too few runs to draw one:
    like the first run of a line in all but tokens, which are among the table's and
    within a factor of ten of the line's own.
    """
    of_lines = with_mixture_column(runs)
    keys = _list_keys(of_lines)
    for key in keys:
        of_lines = of_lines[of_lines[key].isin(_choose_levels(of_lines[key]))]
    groups = [line for _, line in of_lines.groupby(keys)] if keys else [of_lines]
    thin = [line for line in groups if line["D"].nunique() < ENOUGH]
    step = max(1, -(-len(thin) // MOST_LINES))
    rows = []
    for line in thin[::step]:
        low = max(table["D"].min(), line["D"].min() / 10)
        high = min(table["D"].max(), 10 * line["D"].max())
        if low == high:
            low, high = low / 2, 2 * high
        tokens = np.geomspace(low, high, POINTS)
        rows.append(line.iloc[[0] * POINTS].assign(D=tokens).drop(columns="loss"))
    return pd.concat(rows) if rows else of_lines.iloc[:0]


def panels(
    unseen: tuple[pd.DataFrame, pd.DataFrame], fitted: tuple[pd.DataFrame, pd.DataFrame]
) -> dict[str, Any]:
    """Convert runs and their forecasts along tokens to JSON types.

    Parameters
    ----------
    unseen, fitted
        Runs that the forecasting fit had not seen, and runs that it had, each with the
        result of `forecast` for them. Rows of `curves` have no loss.
    """
    unseen, fitted = (
        (with_mixture_column(runs), forecasts) for runs, forecasts in (unseen, fitted)
    )
    runs, _ = unseen
    keys = _list_keys(runs)
    return {
        "keys": keys,
        "held": _convert_columns(*unseen, keys),
        "fitted": _convert_columns(*fitted, keys),
    }


def _list_keys(runs: pd.DataFrame) -> list[str]:
    """List the columns that tell panels or lines apart, if they vary."""
    names = ("replay", "mixture", "N", "ptpp")
    return [key for key in names if key in runs and runs[key].nunique() > 1]


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


def _convert_columns(
    runs: pd.DataFrame, rows: pd.DataFrame, keys: list[str], most_rows: int = 2000
) -> dict[str, list[float | str | None]]:
    """Convert each column to a list, in the order of tokens, with numbers to six
    digits.
    """
    table = pd.concat(
        [runs[["D", "loss", *keys]], rows[["median", "low", "high"]]], axis=1
    )
    for key in keys:
        table = table[table[key].isin(_choose_levels(table[key]))]
    # an even selection of rows, if the table is too large for a picture
    step = -(-len(table) // most_rows)
    table = table.iloc[::step].sort_values("D")
    return {
        str(name): list(map(_convert_cell, column)) for name, column in table.items()
    }


def _convert_cell(x: float | str) -> float | str | None:
    """Convert a cell to a JSON type; None if a run was not measured."""
    if isinstance(x, str):
        return x
    return None if np.isnan(x) else float(f"{x:.6g}")


def _choose_levels(column: pd.Series, most: int = 8) -> np.ndarray:
    """Select the levels of a column; of many levels, some from the smallest to the
    largest, because more panels or lines cannot be read.
    """
    levels = np.array(sorted(column.dropna().unique()))
    if len(levels) <= most:
        return levels
    places = np.linspace(0, len(levels) - 1, most).round().astype(int)
    return levels[places]
