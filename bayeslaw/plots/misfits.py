"""Draw where a law is off, and what makes a forecast wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw.plots.axes import BLACK, COLOURS, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def width_parts(ax: Axes, parts: pd.DataFrame, labels: Sequence[str]) -> Axes:
    """Draw the parts of each forecast's 90% interval, a stacked bar for each run.

    Parameters
    ----------
    parts
        What `bayeslaw.width_parts` returned for a few runs.
    labels
        Names of the runs.
    """
    names = {
        "noise": "noise of a run",
        "parameters": "the law's parameters",
        "misfit": "where the law is off",
        "drift": "drift beyond the data",
        "laws": "laws that differ",
    }
    at, below = np.arange(len(parts)), np.zeros(len(parts))
    for i, (name, label) in enumerate(names.items()):
        height = 100 * parts[name].to_numpy()
        ax.bar(at, height, bottom=below, width=0.7, color=COLOURS[i], label=label)
        below = below + height
    ax.set_xticks(at, labels)
    # matplotlib leaves no margin above a stack whose last part has no height
    ax.set_ylim(0, 1.05 * below.max())
    ax.set_ylabel("width of the 90% interval (% of the loss)")
    return ax


def misfit_curve(ax: Axes, curve: pd.DataFrame) -> Axes:
    """Draw a law's misfit along one column, with its 90% band, in percent of the loss.

    ``curve``: what `bayeslaw.misfit_along` returned.
    """
    axis = str(curve.columns[0])
    x = curve[axis]
    # the misfit is of log loss
    band = 100 * np.expm1(curve[["low", "median", "high"]])
    ax.axhline(0.0, color=GREY, lw=0.8)
    ax.fill_between(x, band["low"], band["high"], color=COLOURS[0], alpha=0.25, lw=0)
    ax.plot(x, band["median"], color=BLACK, lw=1.2)
    if x.min() > 0 and x.max() / x.min() > 5:
        ax.set_xscale("log")
    ax.set(xlabel=axis, ylabel="above the law (% of the loss)")
    return ax
