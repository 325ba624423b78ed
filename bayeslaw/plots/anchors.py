"""Draw runs to buy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslaw.plots.axes import COLOURS, plain_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._designs.anchors import Anchors


def picks(
    ax: Axes,
    made: Anchors,
    *,
    label: str | None = None,
    colour: str = COLOURS[0],
    unit: float = 1.0,
) -> Axes:
    """Draw the goal's expected sd as runs are bought, over cost in ``unit``."""
    cost = np.cumsum([pick["cost"] for pick in made.picks]) / unit
    goal_sd = [100 * pick["goal_sd"] for pick in made.picks]
    ax.plot(cost, goal_sd, "o-", ms=3, lw=1, color=colour, label=label)
    ax.set_xscale("log")
    plain_log(ax)
    ax.set(xlabel="cost of the runs", ylabel="expected sd of the goal's log loss (%)")
    return ax
