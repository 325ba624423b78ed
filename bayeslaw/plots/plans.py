"""Draw plans: cost against confidence, and the landscape around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._plans.constraint import UNITS
from bayeslaw.plots.axes import BLACK, COLOURS, STAR, line_in_band, name_rows, plain_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import ContourSet

    from bayeslaw._plans.result import Plan
    from bayeslaw._plans.whatif import WhatIf
    from bayeslaw._posteriors.posterior import Posterior

ATPP = "adaptation tokens per parameter"


def frontier(ax: Axes, plan: Plan) -> Axes:
    """Draw cost against confidence: the cheapest plan at each confidence, the plan
    (star) and the plug-in plan (cross). The cost is in money if known, else in days,
    else in ATPP.
    """
    rows = [row for row in plan.frontier if row["atpp"] is not None]
    price, unit = _choose_price(plan.cost)
    ax.plot(
        [row["confidence"] for row in rows],
        [price(row) for row in rows],
        "o-",
        color=COLOURS[0],
        label="cheapest plan",
    )
    if plan.atpp is not None and plan.probability is not None:
        at = price({"atpp": plan.atpp, "cost": plan.cost})
        ax.plot([plan.probability], [at], label="this plan", **STAR)
    point, chance = plan.plug_in["atpp"], plan.plug_in["probability"]
    if point is not None and chance is not None:
        style = {"color": COLOURS[1], "markersize": 9, "label": "plug-in plan"}
        ax.plot([chance], [price(plan.plug_in)], "X", **style)
    # A plan without adaptation costs zero, which has no logarithm.
    if plan.atpp != 0:
        plain_log(ax)
    ax.set(xlabel="probability that all limits are kept", ylabel=unit)
    ax.legend()
    return ax


def _choose_price(
    cost: Mapping[str, float] | None,
) -> tuple[Callable[[Mapping[str, Any]], float], str]:
    """Choose the cost of a plan's rows, and its unit, by the costs that it has."""
    cost = cost or {}
    if "money" in cost:
        return (lambda row: row["cost"]["money"]), "cost of the plan"
    if cost:
        return (lambda row: row["cost"]["days"]), "days to train"
    return (lambda row: row["atpp"]), ATPP


def region(ax: Axes, plan: Plan) -> Axes:
    """Draw the probability of all limits over replay and ATPP; line: confidence."""
    percent = 100 * np.array(plan.region["replay"])
    atpp = np.array(plan.region["atpp"])
    chance = np.array(plan.region["probability"]).T  # (atpp, replay)
    filled = _draw_landscape(ax, percent, atpp, chance, np.linspace(0, 1, 11))
    ax.figure.colorbar(filled, ax=ax, label="probability that all limits are kept")
    if isinstance(plan.confidence, float):
        _draw_line(ax, percent, atpp, chance, plan.confidence, "white")
    if plan.atpp is not None and plan.replay is not None:
        ax.plot([100 * plan.replay], [plan.atpp], label="this plan", **STAR)
    return ax


def beyond(ax: Axes, plan: Plan, runs: pd.DataFrame) -> Axes:
    """Hatch the part of a `region` that lies beyond the runs: in one direction beyond
    their replay, in the other beyond their tokens.

    Parameters
    ----------
    runs
        The fitted table, with ``replay`` and ``D``.
    """
    right, top = max(plan.region["replay"]), max(plan.region["atpp"])
    left, bottom = min(plan.region["replay"]), min(plan.region["atpp"])
    style = {"facecolor": "none", "edgecolor": "white", "linewidth": 0.0}
    if "replay" in runs:
        ends = 100 * runs["replay"].min(), 100 * runs["replay"].max()
        for start, stop in ((100 * left, ends[0]), (ends[1], 100 * right)):
            if stop > start:
                ax.axvspan(start, stop, hatch="\\\\\\", **style)
    if "D" in runs:
        ends = runs["D"].min() / plan.N, runs["D"].max() / plan.N
        for start, stop in ((bottom, ends[0]), (ends[1], top)):
            if stop > start:
                ax.axhspan(max(start, bottom), stop, hatch="///", **style)
    ax.set(xlim=(100 * left, 100 * right), ylim=(bottom, top))
    return ax


def forgetting_landscape(
    ax: Axes,
    source: Posterior,
    checkpoint: Mapping[str, float],
    baseline_loss: float,
    *,
    limit: float | None = None,
    confidence: float = 0.9,
    atpp: tuple[float, float] = (0.25, 40.0),
    size: int = 41,
) -> Axes:
    """Draw the median forgetting of a checkpoint over replay and ATPP, with a line
    around the part that stays within a limit.

    Parameters
    ----------
    source
        Posterior of the source loss.
    checkpoint
        ``N`` and the other columns that the law reads, except D and replay (``ptpp``,
        ``source_loss_before``, ...).
    baseline_loss
        Source loss before adaptation, nats per token.
    limit, confidence
        On the line, forgetting is within ``limit`` (0.02 is 2%) with this probability.
        Without a limit there is no line.
    atpp, size
        Lowest and highest adaptation tokens per parameter; number of points along each
        axis.
    """
    replay, tokens = np.linspace(0.01, 1, size), np.geomspace(*atpp, size)
    at_replay, at_tokens = np.meshgrid(replay, tokens)  # (atpp, replay)
    grid = pd.DataFrame({"replay": at_replay.ravel()})
    grid["D"] = at_tokens.ravel() * checkpoint["N"]
    grid = grid.assign(**checkpoint)
    # Draws of forgetting, shape (draw, atpp x replay).
    forgetting = np.exp(source.log_loss(grid)) / baseline_loss - 1

    median = 100 * np.median(forgetting, axis=0).reshape(size, size)
    most = float(np.abs(median).max())  # zero forgetting gets the middle colour
    levels = np.linspace(-most, most, 21)
    filled = _draw_landscape(ax, 100 * replay, tokens, median, levels, "PuOr_r")
    ax.figure.colorbar(filled, ax=ax, label="median forgetting (%)", format="%.2g")
    if limit is not None:
        share_kept = (forgetting <= limit).mean(axis=0).reshape(size, size)
        _draw_line(ax, 100 * replay, tokens, share_kept, confidence, BLACK)
    return ax


def _draw_landscape(
    ax: Axes, percent: Any, atpp: Any, heights: Any, levels: Any, colours="cividis"
) -> ContourSet:
    """Fill contours of heights, shape (atpp, replay)."""
    plain_log(ax)
    ax.set(xlabel="replay (%)", ylabel=ATPP)
    return ax.contourf(percent, atpp, heights, levels=levels, cmap=colours)


def _draw_line(
    ax: Axes, percent: Any, atpp: Any, share: Any, level: float, colour: str
) -> None:
    """Draw the line at a level of a share, if there is one."""
    if share.min() < level < share.max():
        style = {"levels": [level], "colors": colour, "linewidths": 1.5}
        ax.contour(percent, atpp, share, **style)


def tradeoff(ax: Axes, plan: Plan) -> Axes:
    """Draw forgetting (left axis) and losses (right axis) along replay at the plan's
    ATPP, with 90% bands and dashed limits (after Goffinet 2025, fig. 2). The losses'
    axis is the twin of ``ax``. For a limit on accuracy, the share of wrong answers is
    on the left.
    """
    percent = 100 * np.array(plan.tradeoff["replay"])
    bands = plan.tradeoff["bands"]
    twin = ax.twinx()
    units = {name: band["unit"] for name, band in bands.items()}
    # The second colour is the target's.
    others = cycle((COLOURS[0], *COLOURS[2:]))
    for name, unit in units.items():
        is_target = name == "target" and unit == "loss"
        scale = 100 if UNITS[unit].is_share else 1
        colour = COLOURS[1] if is_target else next(others)
        label = "target loss" if is_target else name
        on = twin if unit == "loss" else ax
        keys = ("low", "median", "high")
        band = {key: scale * np.array(bands[name][key], float) for key in keys}
        line_in_band(on, percent, band, colour, label)
        limit = scale * bands[name]["limit"]
        on.axhline(limit, color=colour, linestyle="--", linewidth=1)
    if plan.replay is not None:
        ax.axvline(100 * plan.replay, color=BLACK, linewidth=1)
    ax.set_xlabel(f"replay (%) at {plan.tradeoff['atpp']:.3g} tokens per parameter")
    on_left = [UNITS[name] for name in UNITS if name in {*units.values()} - {"loss"}]
    quantities = dict.fromkeys(unit.quantity for unit in on_left)
    scale = "%" if all(unit.is_share for unit in on_left) else "nats per token"
    ax.set_ylabel(f"{', '.join(quantities) or 'forgetting'} ({scale})")
    losses = [name for name, unit in units.items() if unit == "loss"]
    twin.set_ylabel(
        f"{'target loss' if losses == ['target'] else 'loss'} (nats per token)"
    )
    # One legend for both axes; limits and the plan's replay have no name.
    lines = [*ax.get_lines(), *twin.get_lines()]
    labels = {str(line.get_label()): line for line in lines}
    named = {name: line for name, line in labels.items() if not name.startswith("_")}
    ax.legend(list(named.values()), list(named))
    return ax


def scenarios(ax: Axes, looked_at: WhatIf) -> Axes:
    """Draw the cost of each scenario's plan, with the probability that it keeps its
    limits.

    Parameters
    ----------
    looked_at
        What `what_if` returned. A scenario without a plan has a hollow point at its
        most probable choice.
    """
    shown = [answer.most_probable() for answer in looked_at.plans.values()]
    possible = [choice for choice in shown if choice["D"] is not None]
    price, unit = _choose_price(possible[0].get("cost") if possible else None)
    labels, plans = [], zip(looked_at.plans.values(), shown, strict=True)
    for place, (answer, choice) in enumerate(plans):
        words = f"{choice['probability']:.0%}"
        if answer.D is None:
            words = f"at best {words}"
        if choice["D"] is not None:
            words = f"{words}, replay {choice['replay']:.0%}"
            colour = COLOURS[0] if answer.feasible else COLOURS[1]
            fill = "none" if answer.D is None else colour
            at = price(choice)
            ax.plot([at], [place], "o", color=colour, markerfacecolor=fill)
        labels.append(words)
    name_rows(ax, list(looked_at.plans), labels)
    ax.margins(x=0.1, y=0.15)
    ax.set(xlabel=unit, ylabel="scenario")
    return ax
