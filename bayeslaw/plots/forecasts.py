"""Draw forecasts against measured losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count
from bayeslaw.plots.axes import COLOURS, GREY, coloured_groups, line_in_band

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

    from bayeslaw._forecasts.check import Check


def forecast_curve(
    ax: Axes,
    runs: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    along: str = "D",
    by: str | None = "replay",
    levels: Sequence[float] | None = None,
) -> Axes:
    """Draw forecasts against observations along one column, with a colour for each
    level of another column.

    Parameters
    ----------
    runs
        Table with ``along`` and ``by``, and with ``loss`` for measured runs.
    rows
        Result of `forecast` for this table: the median becomes a line, a new run's
        interval a band.
    levels
        Levels of ``by`` in the order of their colours, so that panels agree; by default
        the levels in ``runs``.
    """
    for level, group, colour in coloured_groups(runs, by, levels):
        ordered = group.sort_values(along)
        x = ordered[along]
        label = None if level is None else f"{by} {level:g}"
        band = rows.loc[ordered.index]
        line_in_band(ax, x, band, colour, label, lw=1.2, ls="--")
        if "loss" in ordered:
            dots = {"ms": 3.5, "mec": "white", "mew": 0.4}
            ax.plot(x, ordered["loss"], "o", color=colour, **dots)
    ax.set_xscale("log")
    measured = runs.dropna(subset="loss") if "loss" in runs else runs
    low, high = ax.get_xlim()
    marks = _take_apart(np.sort(measured[along].unique()), low, high)
    ax.set_xticks(marks, [format_count(mark) for mark in marks])
    ax.set_xticks([], minor=True)
    names = {"D": "adaptation tokens D", "N": "parameters N"}
    ax.set(xlabel=names.get(along, along), ylabel="loss (nats per token)")
    return ax


def _take_apart(
    values: Float[np.ndarray, " value"], low: float, high: float, least: float = 0.2
) -> list[float]:
    """Take values a share of a logarithmic axis apart, so that labels are, too."""
    taken: list[float] = []
    for value in values:
        if not taken or value > taken[-1] * (high / low) ** least:
            taken.append(float(value))
    return taken


def learning_curves(
    ax: Axes,
    runs: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    along: str = "step",
    by: str = "run",
) -> Axes:
    """Draw measured curves as dots and forecast curves as lines in a band, with a
    colour for each run.

    Parameters
    ----------
    runs
        Table with ``along`` and ``by``, and with ``loss`` for measured runs.
    rows
        Result of `forecast` for this table, or the table of `loss_curve`; the band is
        the interval of a new run.
    """
    for name, group, colour in coloured_groups(runs, by):
        ordered = group.sort_values(along)
        label = "forecast" if name is None else str(name)
        x, band = ordered[along], rows.loc[ordered.index]
        line_in_band(ax, x, band, colour, label, lw=1.2, ls="--")
        if "loss" in ordered:
            ax.plot(x, ordered["loss"], ".", ms=4, color=colour)
    ax.set(xlabel=along, ylabel="loss (nats per token)")
    return ax


def observed_against_forecast(
    ax: Axes, runs: pd.DataFrame, rows: pd.DataFrame, *, by: str | None = "N"
) -> Axes:
    """Draw the observed loss over the forecast's median, with its interval. On the
    diagonal the forecast is exact. Levels of ``by`` have no colours if there are more
    of them than colours.
    """
    if by in runs and runs[by].nunique() > len(COLOURS):
        by = None
    for level, group, colour in coloured_groups(runs, by):
        row = rows.loc[group.index]
        below, above = row["median"] - row["low"], row["high"] - row["median"]
        ax.errorbar(
            row["median"],
            group["loss"],
            xerr=np.stack([below, above]),
            fmt="o",
            ms=3,
            lw=0.7,
            color=colour,
            label=None if level is None else f"{by} {format_count(level)}",
        )
    # The diagonal, behind the points.
    low = min(ax.get_xlim()[0], ax.get_ylim()[0])
    high = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([low, high], [low, high], color=GREY, lw=0.8, zorder=0)
    ax.set(xlabel="forecast (nats per token)", ylabel="observed (nats per token)")
    return ax


def coverage(ax: Axes, check: Check) -> Axes:
    """Draw the share of held-out runs inside central intervals, over the stated
    probability.

    The grey band holds 90% of the shares that the same number of independent runs would
    have under a calibrated forecast.
    """
    stated = np.linspace(0.02, 0.98, 49)
    # A central interval of probability p holds the runs whose PIT is within p/2 of .5.
    distance = np.abs(check.pit - 0.5)
    inside = distance[:, None] <= stated[None, :] / 2  # (run, probability)
    low, high = _compute_count_intervals(check.n, stated)
    ax.fill_between(stated, low / check.n, high / check.n, color=GREY, alpha=0.2, lw=0)
    ax.plot([0, 1], [0, 1], color=GREY, lw=0.8)
    ax.plot(stated, inside.mean(axis=0), color=COLOURS[0], lw=1.5)
    for probability, share in check.coverage.items():
        ax.plot(float(probability), share, "o", color=COLOURS[1], ms=5)
    ax.set(xlim=(0, 1), ylim=(0, 1.03))
    ax.set(xlabel="stated probability", ylabel="share of runs inside")
    return ax


def pit(ax: Axes, check: Check, bins: int = 10) -> Axes:
    """Draw a histogram of the probability integral transform. It is flat if the
    forecast is calibrated, and piles up at an end if the forecast is biased. The grey
    band holds 90% of the heights that the same number of independent runs would give
    under a calibrated forecast.
    """
    low, high = _compute_count_intervals(check.n, np.array(1 / bins))
    ax.axhspan(float(low), float(high), color=GREY, alpha=0.2, lw=0)
    # Under a calibrated forecast the transform is uniform: bins are equally full.
    edges = [i / bins for i in range(bins + 1)]
    ax.hist(check.pit, bins=edges, color=COLOURS[0], alpha=0.7, edgecolor="white")
    ax.axhline(check.n / bins, color=GREY, lw=0.8)
    ax.set(xlim=(0, 1), ylabel="held-out runs")
    ax.set_xlabel("probability the forecast gave to a lower loss")
    return ax


def _compute_count_intervals(
    runs: int, probability: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the 90% interval of the count of independent runs."""
    from scipy import stats

    # The number of runs inside is binomial if they are independent.
    low = np.asarray(stats.binom.ppf(0.05, runs, probability))
    high = np.asarray(stats.binom.ppf(0.95, runs, probability))
    return low, high
