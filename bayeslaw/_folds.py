"""Stages left out in turn: a law is judged by forecasting the largest budgets, sizes and stages it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._words import people_number

LEVELS = 12  # a column with more is cut into bins of equal counts
BINS = 6
MIN_ROWS, MIN_SHARE = 8, 0.3  # of rows that must be left to fit


class Fold(NamedTuple):
    """``held`` and ``kept``: shape (run,), which runs are forecast and which fitted; ``name``: what is held out."""

    name: str
    column: str
    kept: np.ndarray
    held: np.ndarray


def axis_values(runs: pd.DataFrame, column: str) -> np.ndarray:
    """A column to hold out by; ``D/N`` is tokens per parameter."""
    return (runs["D"] / runs["N"] if column == "D/N" else runs[column]).to_numpy(float)


def default_axes(runs: pd.DataFrame) -> list[str]:
    """Columns along which budgets grow, where the table has several levels of them."""
    have = [c for c in ("ptpp", "N", "D") if c in runs]
    if {"N", "D"} <= set(runs):
        have.append("D/N")
    return [c for c in have if len(np.unique(axis_values(runs, c))) > 1]


def folds(runs: pd.DataFrame, columns: Sequence[str], parameters: int = 0) -> list[Fold]:
    """Leave out the largest level of each column, and the two largest, as long as enough is left to fit as many parameters."""
    found = []
    for column in columns:
        x = axis_values(runs, column)
        levels = np.unique(x)
        edges = levels if len(levels) <= LEVELS else np.unique(np.quantile(x, np.linspace(0, 1, BINS + 1)[:-1]))
        for out in (1, 2):
            if len(edges) <= out:
                continue
            held = x >= edges[-out]
            if (~held).sum() < max(parameters, MIN_ROWS, MIN_SHARE * len(x)):
                continue
            if any(np.array_equal(held, f.held) for f in found):
                continue
            found.append(Fold(f"{column} >= {people_number(edges[-out])}", column, ~held, held))
    return found
