"""Draw the rows of `anchors_study`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from bayeslaw._base.numbers import Z90
from bayeslaw.plots.axes import COLOURS, GREY, STAR, plain_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lists of a study, and the place of their colours.
DESIGNS = {"chosen": 0, "random": 4, "D-optimal": 2, "few": 5}

MEASURES = {
    "rmse": "RMSE of log loss (%)",
    "width": "width of the 90% interval (%)",
    "sd": "sd of log loss (%)",
    "coverage": "coverage of the 90% interval (%)",
}


def design_curves(ax: Axes, rows: pd.DataFrame, *, measure: str = "width") -> Axes:
    """Draw a study's forecasts against the cost of their runs. Points are means over
    worlds, with 90% intervals of the mean.

    Parameters
    ----------
    rows
        What `anchors_study` returned. Costs are shares of the cost of the paper's grid
        (the star). The line at the top is the forecast with nothing bought.
    measure
        A column: ``rmse``, ``width``, ``sd`` or ``coverage``.
    """
    # Percent; the standard error of the mean is over worlds.
    groups = rows.groupby(["list", "share"])[measure]
    means = groups.agg(["mean", "sem"]).mul(100).reset_index()
    by_list = {name: means[means["list"] == name] for name in means["list"].unique()}
    if "none" in by_list:
        level = by_list["none"]["mean"].iloc[0]
        ax.axhline(
            level,
            color=GREY,
            ls="--",
            lw=0.8,
            label="nothing bought",
        )
    for name, place in DESIGNS.items():
        if name not in by_list:
            continue
        curve = by_list[name].sort_values("share")
        ax.errorbar(
            curve["share"],
            curve["mean"],
            yerr=Z90 * curve["sem"],
            fmt="o-",
            ms=4,
            lw=1.2,
            color=COLOURS[place],
            label="chosen, at most 20 runs" if name == "few" else name,
        )
    if "paper" in by_list:
        paper = by_list["paper"]
        ax.plot(paper["share"], paper["mean"], label="the paper's grid", **STAR)
    ax.set_xscale("log")
    shares = sorted(set(means["share"]) - {0.0})
    ax.set_xticks(shares, [f"{share:g}" for share in shares], minor=False)
    ax.set_xticks([], minor=True)
    # coverage is near 1, so it needs no logarithmic axis
    if measure != "coverage":
        plain_log(ax)
    ax.set_xlabel("cost of the runs (share of the paper's)")
    ax.set_ylabel(MEASURES.get(measure, measure))
    return ax


def foretold(ax: Axes, rows: pd.DataFrame) -> Axes:
    """Draw a study's realised reductions of the goal's sd over the expected ones. On
    the diagonal they are equal.
    """
    with_expected = rows.dropna(subset=["sd_expected"])
    groups = with_expected.groupby("law", sort=False)
    for i, (law, group) in enumerate(groups):
        expected = 100 * (group["sd_before"] - group["sd_expected"])
        realised = 100 * (group["sd_before"] - group["sd"])
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(
            expected,
            realised,
            "o",
            ms=3,
            alpha=0.6,
            color=colour,
            label=str(law),
        )
    # the diagonal, over the range of the points
    ends = ax.get_xlim()
    ax.plot(
        ends,
        ends,
        color=GREY,
        lw=0.8,
        zorder=0,
    )
    ax.set_xlabel("expected fall of the goal's sd (% of the loss)")
    ax.set_ylabel("realised fall (% of the loss)")
    return ax
