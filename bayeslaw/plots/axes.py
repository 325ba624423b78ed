"""Provide colours and axes that the pictures share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Okabe and Ito 2008; colour-blind readers can distinguish them
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
    "#000000",
)
GREY, BLACK = "#767676", "#000000"
STAR = {
    "marker": "*",
    "markersize": 14,
    "markeredgecolor": "white",
    "linestyle": "none",
    "color": BLACK,
    "zorder": 5,
}


def plain_log(ax: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers as ticks: .1, .2, .5, 1, ..."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def name_rows(ax: Axes, names: Sequence[str], beside: Sequence[str]) -> None:
    """Name rows from the top, with a text ``beside`` each, where no label is cut."""
    right = ax.secondary_yaxis("right")
    right.set_yticks(range(len(names)), beside)
    right.tick_params(length=0)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()


def coloured_groups(
    runs: pd.DataFrame, by: str | None, levels: Sequence[float] | None = None
) -> Iterator[tuple[Any, pd.DataFrame, str]]:
    """Group runs: level, rows and colour of each group; without the column, one group
    without a level. ``levels``: all levels that have colours, in order, if there are
    more than in the runs.
    """
    groups: list[tuple[Any, pd.DataFrame]] = [(None, runs)]
    if by is not None and by in runs:
        groups = list(runs.groupby(by, sort=True))
    order = list(levels) if levels is not None else [level for level, _ in groups]
    for level, group in groups:
        yield level, group, COLOURS[order.index(level) % len(COLOURS)]


def line_in_band(
    ax: Axes,
    x: Any,
    band: Any,
    colour: str,
    label: str | None = None,
    **style: Any,
) -> None:
    """Draw ``band["median"]`` as a line in a band from ``low`` to ``high``."""
    ax.fill_between(x, band["low"], band["high"], color=colour, alpha=0.2, lw=0)
    ax.plot(x, band["median"], color=colour, label=label, **style)
