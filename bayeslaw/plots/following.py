"""Draw a run while it trains: its points, its end, and which limits hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count
from bayeslaw.plots.axes import BLACK, COLOURS, GREY, line_in_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._running.following.followed import Followed, Following


def followed_run(ax: Axes, followed: Followed, *, colour: str = COLOURS[0]) -> Axes:
    """Draw the points so far as dots, and the loss from here to the end with its band.
    Grey is the forecast from before the run; the dotted line is the limit.
    """
    history, path = followed.history, followed.path
    dashed = {"lw": 1.2, "ls": "--"}
    foreseen = followed.foreseen.rename(columns=lambda c: c.removeprefix("before_"))
    x = foreseen[followed.unit]
    line_in_band(ax, x, foreseen, GREY, "before the run", **dashed)
    line_in_band(ax, path[followed.unit], path, colour, "from here", **dashed)
    dots: dict[str, Any] = {"ms": 4, "mec": "white", "mew": 0.4, "label": "measured"}
    ax.plot(history["at"], history["loss"], "o", color=BLACK, **dots)
    _draw_limit(ax, followed)
    token_axis(ax, followed.unit)
    ax.set_ylabel("loss (nats per token)")
    return ax


def closing_forecast(ax: Axes, followed: Followed, *, colour: str = COLOURS[0]) -> Axes:
    """Draw the forecast of the end after each point: median and interval, over tokens
    so far. Grey, at the left, is the forecast from before the run; the dotted line is
    the limit.
    """
    history = followed.history
    ends = {"low": "final_low", "median": "final_median", "high": "final_high"}
    after = history[list(ends.values())].set_axis(list(ends), axis="columns")
    first = pd.DataFrame([followed.final_before])
    start = pd.Series([_place_before_the_run(followed)])
    _draw_bars(ax, start, first, color=GREY, label="before the run")
    _draw_bars(ax, history["at"], after, color=colour, label="after each point")
    _draw_limit(ax, followed)
    token_axis(ax, followed.unit)
    end = format_count(followed.final[followed.unit])
    ax.set_ylabel(f"loss at {end} (nats per token)")
    return ax


def probability_over_time(ax: Axes, following: Following) -> Axes:
    """Draw the probability that the end keeps its limits, over tokens so far. Each
    domain with a limit has a line; a broad line is for all domains together. The left
    end of each line is the probability before the run. Between the dashed lines neither
    answer is sure.

    Raises
    ------
    PlanError
        No limit was given.
    """
    limited = {
        name: followed
        for name, followed in following.domains.items()
        if followed.max_loss is not None
    }
    if not limited:
        raise PlanError("no limit was given, so there is no probability: give max_loss")
    start = min(_place_before_the_run(followed) for followed in limited.values())
    chances = pd.DataFrame(
        {
            name: pd.Series(
                [followed.probability_before, *followed.history["probability"]],
                [start, *followed.history["at"]],
            )
            for name, followed in limited.items()
        }
    )
    # a domain's probability stays the same until its next point
    chances = chances.sort_index().ffill()
    for name, colour in zip(chances, COLOURS, strict=False):
        ax.plot(chances.index, chances[name], ".-", color=colour, label=str(name))
    if len(limited) > 1:
        together = chances.prod(axis="columns")
        style = {"color": BLACK, "lw": 3, "alpha": 0.5, "label": "all limits"}
        ax.plot(chances.index, together, **style)
    for level in (following.confidence, 1 - following.confidence):
        ax.axhline(level, color=GREY, lw=0.8, ls="--", zorder=0)
    token_axis(ax, next(iter(limited.values())).unit)
    ax.set(ylim=(-0.02, 1.02), ylabel="probability that the limit is kept")
    return ax


def _place_before_the_run(followed: Followed) -> float:
    """Place the forecast from before the run left of its first point."""
    first = followed.final[followed.unit]
    if followed.points:
        first = float(followed.history["at"].min())
    return first / 1.6


def _draw_bars(ax: Axes, x: pd.Series, rows: pd.DataFrame, **style: Any) -> None:
    median = rows["median"]
    away = [median - rows["low"], rows["high"] - median]
    ax.errorbar(x, median, yerr=away, fmt="_-", lw=1.2, ms=7, **style)


def _draw_limit(ax: Axes, followed: Followed) -> None:
    if followed.max_loss is not None:
        ax.axhline(followed.max_loss, label="limit", color=COLOURS[1], lw=1.2, ls=":")


def token_axis(ax: Axes, unit: str) -> None:
    """Make the x axis logarithmic, with counts as people say them: 200k, 500k, 1M, ..."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: format_count(x)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel({"D": "adaptation tokens D", "step": "step"}[unit])
