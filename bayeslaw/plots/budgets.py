"""Draw budgets: the best model along curves of equal compute, and when to stop a run."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._forecasts.optimum import sweeps_of
from bayeslaw.plots.axes import BLACK, COLOURS, STAR, line_in_band, plain_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._forecasts.optimum import Optimum
    from bayeslaw._forecasts.stopping import BestStop


def isoflops(
    ax: Axes, best: Optimum, runs: pd.DataFrame | None = None, reach: float = 12.0
) -> Axes:
    """Draw IsoFLOP curves. Each budget has the law's loss along model size with its
    interval, the optimum (star) with the interval of its position, and the sweeps' runs
    (dots). ``reach``: factor below and above the best size up to which sizes are shown.
    """
    sweeps = [] if runs is None else sweeps_of(runs)
    for row, curve, colour in zip(
        best.rows, best.curves, cycle(COLOURS[:-2]), strict=False
    ):
        band = pd.DataFrame(curve)
        middle = row["N"] or band["N"].iloc[band["median"].argmin()]
        band = band[(band["N"] > middle / reach) & (band["N"] < middle * reach)]
        line_in_band(ax, band["N"], band, colour, f"{row['budget']:.2g}")
        for sweep in sweeps:
            if abs(np.log(sweep.attrs["flops"] / row["budget"])) < np.log(1.3):
                ax.plot(sweep["N"], sweep["loss"], "o", color=colour, markersize=3.5)
        if row["N"] is not None:
            ends = [row["N_low"], row["N_high"]]
            ax.plot(ends, [row["loss"]] * 2, color="black", linewidth=1)
            ax.plot([row["N"]], [row["loss"]], **STAR)
    ax.set_xscale("log")
    plain_log(ax)
    ax.set(xlabel="model size N (parameters)", ylabel="loss (nats per token)")
    ax.legend(title=f"budget ({best.unit})", fontsize=8)
    return ax


def stopping(ax: Axes, best: BestStop, runs: pd.DataFrame | None = None) -> Axes:
    """Draw the loss of a run along its epochs with its interval, the stop with the least
    expected loss (star) with the interval of the best tokens (bar), and points of this
    run among ``runs`` (dots).
    """
    unique = best.run["U"]
    band = pd.DataFrame(best.curve)
    line_in_band(ax, band["D"] / unique, band, COLOURS[0])
    if runs is not None:
        of_run = {c: runs[c] == value for c, value in best.run.items() if c in runs}
        points = runs[pd.DataFrame(of_run).all(axis=1)]
        ax.plot(points["D"] / unique, points["loss"], "o", color=BLACK, markersize=3)
    ends = np.array([best.best_D["low"], best.best_D["high"]]) / unique
    inside = np.clip(ends, None, band["D"].max() / unique)
    ax.plot(inside, [best.loss["median"]] * 2, color=BLACK, linewidth=1)
    ax.plot([best.epochs], [best.loss["median"]], **STAR)
    ax.set(xscale="log", xlim=(band["D"].min() / unique, band["D"].max() / unique))
    ax.set_ylim(top=band["median"].iloc[0])
    ax.set(xlabel="epochs (D / U)", ylabel="loss (nats per token)")
    return ax
