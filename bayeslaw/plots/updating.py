"""Draw a second batch of runs: forecasts and parameters before and after, the new rows
beside their forecasts, and the rows that moved a forecast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.numbers import format_count
from bayeslaw.plots.axes import BLACK, COLOURS, GREY, STAR
from bayeslaw.plots.following import token_axis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bayeslaw._plans.result import Plan
    from bayeslaw._running.updating.plans import PlanChange
    from bayeslaw._running.updating.updated import UpdatedDomain

WHEN = {"before": (GREY, 0.14), "after": (COLOURS[0], -0.14)}  # colour, offset


def updated(ax: Axes, domain: UpdatedDomain) -> Axes:
    """Draw the forecast of each run before and after: the median in its interval."""
    _draw_intervals(ax, domain.forecasts)
    ax.set_xlabel(f"{domain.name} loss (nats per token)")
    return ax


def moved_plan(ax: Axes, change: PlanChange) -> Axes:
    """Draw the cheapest plan at each confidence, before and after. Stars are the plans;
    the cross is the old plan as judged now. The dotted line is the confidence asked
    for. Where no plan reaches any of them, a line says so.
    """
    ax.set(ylim=(-0.04, 1.04), ylabel="probability that all limits are kept")
    plans = change.before, change.after
    if not any(row["D"] for plan in plans for row in plan.frontier):
        ax.set_xticks([])
        said = "no plan reaches a probability of the list yet"
        ax.text(0.5, 0.5, said, ha="center", transform=ax.transAxes)
        return ax
    for when, (colour, _) in WHEN.items():
        plan: Plan = getattr(change, when)
        rows = [row for row in plan.frontier if row["D"]]
        tokens, confidence = ([row[key] for row in rows] for key in ("D", "confidence"))
        ax.plot(tokens, confidence, ".-", color=colour, label=when)
        if plan.D and plan.probability is not None:
            style: dict[str, Any] = STAR | {"color": colour}
            ax.plot([plan.D], [plan.probability], **style)
    if change.kept and change.before.D:
        cross: dict[str, Any] = {"color": COLOURS[1], "ms": 9, "ls": "none"}
        ax.plot(
            [change.before.D],
            [change.kept["probability"]],
            marker="X",
            label="the old plan now",
            **cross,
        )
    wanted = change.after.confidence
    if not isinstance(wanted, dict):
        ax.axhline(wanted, color=GREY, lw=0.8, ls=":", zorder=0)
    token_axis(ax, "D")
    _place_legend(ax)
    return ax


def moved_parameters(ax: Axes, domain: UpdatedDomain) -> Axes:
    """Draw each parameter before and after, as distance from its old median in units of
    its old sd. Dotted lines are half an sd away.
    """
    rows = domain.parameters[domain.parameters["sd"] > 0]
    ends = rows[[c for c in rows if str(c).startswith(("before", "after"))]]
    scaled = ends.sub(rows["before"], axis=0).div(rows["sd"], axis=0)
    _draw_intervals(ax, scaled)
    for edge in (-0.5, 0.5):
        ax.axvline(edge, color=GREY, lw=0.8, ls=":", zorder=0)
    ax.set_xlabel("sds before the new rows")
    return ax


def new_rows(ax: Axes, domain: UpdatedDomain) -> Axes:
    """Draw the distance of each new row from its forecast, over tokens. Rows are
    coloured by the column that distinguishes them best. Grey bars are the 90% intervals
    of the forecasts.

    Raises
    ------
    ValueError
        There are no new rows.
    """
    if domain.surprise is None:
        raise ValueError(f"{domain.name} has no new rows to draw")
    rows = domain.surprise.rows
    along = "D" if "D" in rows else None
    x = rows[along] if along else np.arange(len(rows))
    low, high, miss = (
        100 * (rows[name] / rows["median"] - 1) for name in ("low", "high", "loss")
    )
    ax.vlines(x, low, high, color=GREY, lw=1, alpha=0.35, label="foreseen, 90%")
    by = next((c for c in ("N", "ptpp", "replay") if c in rows), None)
    levels = sorted(rows[by].unique()) if by else [None]
    for i, level in enumerate(levels):
        picked = np.ones(len(rows), bool) if by is None else rows[by] == level
        name = "measured" if by is None else f"{by} {format_count(level)}"
        colour = COLOURS[i % len(COLOURS)]
        style = {"ms": 4, "mec": "white", "mew": 0.3, "color": colour}
        ax.plot(x[picked], miss[picked], "o", label=name, **style)
    ax.axhline(0, color=BLACK, lw=0.8)
    if along:
        token_axis(ax, "D")
    ax.set_ylabel("measured over forecast (%)")
    _place_legend(ax)
    return ax


def what_moved(ax: Axes, domain: UpdatedDomain) -> Axes:
    """Draw the part of each group of new rows in the shift of the first forecast, in
    percent of the loss. At the top are the sum over groups, and the shift of the refit.

    Raises
    ------
    ValueError
        There are no new rows.
    """
    why = domain.attribution
    if why is None:
        raise ValueError(f"{domain.name} has no new rows that could move anything")
    # without single runs, which the table lists; more than fourteen bars cannot be read
    groups = why.groups[why.groups["by"] != "run"].head(14)
    names = ["the refit", "all new rows"]
    names += [f"{g['by']} {g['level']}" for _, g in groups.iterrows()]
    sizes = 100 * np.array([why.shift, why.together, *groups["adds"]])
    colours = [COLOURS[0], GREY, *[COLOURS[4]] * len(groups)]
    ax.barh(-np.arange(len(names)), sizes, color=colours, height=0.7)
    ax.axvline(0, color=BLACK, lw=0.8)
    _write_names(ax, names)
    ax.set_xlabel(f"shift of {domain.name}, {domain.headline.name} (%)")
    return ax


def _draw_intervals(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw the interval of each row before and after, and its median."""
    for when, (colour, offset) in WHEN.items():
        y = offset - np.arange(len(rows))
        style: dict[str, Any] = {"color": colour, "lw": 5, "alpha": 0.45}
        ax.hlines(y, rows[f"{when}_low"], rows[f"{when}_high"], **style)
        ax.plot(rows[when], y, "o", ms=5, color=colour, label=when)
    _write_names(ax, list(map(str, rows.index)))
    _place_legend(ax)


def _write_names(ax: Axes, names: list[str]) -> None:
    ax.set_yticks(-np.arange(len(names)), names)
    ax.set_ylim(-len(names) + 0.4, 0.6)


def _place_legend(ax: Axes) -> None:
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3}
    ax.legend(fontsize=8, frameon=False, columnspacing=1.0, **place)
