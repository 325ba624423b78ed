"""Draw choices: recipes side by side, and the best value of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._base.numbers import format_chance
from bayeslaw.plots.axes import COLOURS, GREY, STAR, line_in_band, name_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bayeslaw._forecasts.choosing import RecipeChoice
    from bayeslaw._forecasts.recipes import Recipes
    from bayeslaw._schedules.optimum import BestValue


def recipe_losses(ax: Axes, compared: Recipes | RecipeChoice) -> Axes:
    """Draw the loss of a new run of each recipe (dot) with its interval, and the
    probability that the recipe is the best.

    Parameters
    ----------
    compared
        What `bayeslaw.recipes` or `bayeslaw.choose_recipe` returned.
    """
    rows = compared.rows
    domains = list(rows[0].get("losses", {"loss": None}))
    for i, domain in enumerate(domains):
        # domains of a recipe lie beside each other
        places = np.arange(len(rows)) + 0.15 * (i - (len(domains) - 1) / 2)
        losses = [row["losses"][domain] if "losses" in row else row for row in rows]
        low, median, high = (
            np.array([loss[end] for loss in losses])
            for end in ("low", "median", "high")
        )
        away = [median - low, high - median]
        ax.errorbar(median, places, xerr=away, fmt="o", color=COLOURS[i], label=domain)
    if len(domains) > 1:
        ax.legend(fontsize=8)
    # intervals overlap where recipes differ for sure: the probabilities are beside them
    chances = [f"best {format_chance(row['probability'])}" for row in rows]
    name_rows(ax, [row["recipe"] for row in rows], chances)
    ax.margins(y=0.2)
    ax.set_xlabel("loss of a new run (nats per token)")
    return ax


def best_value(ax: Axes, best: BestValue) -> Axes:
    """Draw the loss along a setting with its 90% interval, the value of least expected
    loss (star), and the 90% interval of the best value (grey).

    Parameters
    ----------
    best
        What `bayeslaw.best_settings` returned of a setting, or `bayeslaw.best_replay`.
    """
    table = best.table.rename(columns={"mean": "median"})
    x = table["value"]
    ax.axvspan(*best.interval, color=GREY, alpha=0.2, lw=0)
    line_in_band(ax, x, table, COLOURS[0])
    ax.plot([best.best], [np.interp(best.best, x, table["median"])], **STAR)
    if x.min() > 0 and x.max() / x.min() > 5:
        ax.set_xscale("log")
    ax.set(xlabel=best.name, ylabel=f"{best.about} (nats per token)")
    return ax
