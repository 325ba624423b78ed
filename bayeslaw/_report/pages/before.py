"""Write one HTML page before any run is measured, marked as such, with pictures of the
priors' forecasts and the first runs to buy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayeslaw._base.errors import PlanError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.numbers import format_count
from bayeslaw._base.schema import CELLS
from bayeslaw._base.shown import InJson, as_json
from bayeslaw._designs.anchors import Anchors, anchors
from bayeslaw._forecasts.forecast import FORECAST, forecast
from bayeslaw._plans.plan import plan
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._report.pages.single import encode_picture, page_path, write_template
from bayeslaw._tables.runs import as_design
from bayeslaw.plots.axes import COLOURS


@dataclass(frozen=True)
class PriorPage(InJson):
    """The content of the page before the first run.

    Parameters
    ----------
    path
        Path of the HTML file.
    warnings
        Lines that say that nothing is measured, and where the priors come from.
    forecast
        Forecast of the goal's runs, as `forecast` gives it; None if the goal is a plan.
    plan
        The present plan; None without a question.
    first
        The first runs to buy, with the value of each.
    offered
        The runs on offer, by row.
    """

    path: Path
    warnings: tuple[str, ...]
    forecast: pd.DataFrame | None
    plan: Plan | None
    first: Anchors
    offered: pd.DataFrame

    KEYS: ClassVar = {
        "report": str,
        "prior_only": Literal[True],
        "warnings plan": ...,
        "forecast": [FORECAST],
        "first_runs": Anchors,
        "offered": [CELLS],
    }

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        more = {"report": self.path, "prior_only": True, "first_runs": self.first}
        return super().to_dict() | as_json(more)


def prior_page(
    posterior: Posterior,
    runs: Table | None,
    path: str | Path,
    *,
    source: Posterior | None = None,
    question: Mapping[str, Any] | None = None,
) -> PriorPage:
    """Write forecasts of planned runs, or a plan, from priors alone to one HTML file.

    The first runs to buy are chosen within a fiftieth of the cost of the most expensive
    planned run. They are smaller models, or for a plan short runs of its checkpoint.

    Parameters
    ----------
    posterior, source
        Posteriors from priors (`prior_only`); for a plan, of the target and of the
        source.
    runs
        Runs to forecast; None for a plan.
    path
        Path of the HTML file.
    question
        The question of a plan, as `plan` takes it, for one model.

    Raises
    ------
    PlanError
        There is neither a table of runs nor a plan to make, or ``path`` is a folder.

    Examples
    --------
    >>> to_come = pd.DataFrame({"N": [7e9], "D": [1.4e11]})
    >>> nothing = bayeslaw.prior_only("chinchilla", to_come)
    >>> page = bayeslaw.prior_page(nothing, to_come, "before.html")
    >>> len(page.first.picks) > 0
    True
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    file = page_path(path, "before.html")
    planned, goal = None, as_frame(runs)
    if question is not None:
        if source is None:
            raise PlanError("a plan needs what priors say of the source, too")
        planned = plan(posterior, source, **question)
        goal = _make_goal(planned, question)
    if planned is None and goal is not None:
        goal = as_design(goal)
    if goal is None or not len(goal) or not {"N", "D"} <= set(goal):
        raise PlanError("give runs to forecast (with N and D), or what to plan for")
    # On offer are runs of smaller models, or shorter ones of the plan's checkpoint; other
    # columns are those of the goal's most expensive run.
    flops = (6 * goal["N"] * goal["D"]).to_numpy()
    largest = goal.iloc[int(flops.argmax())]
    if planned is not None:
        tokens = [largest["D"] / times for times in (64, 32, 16)]
        changes = [{"D": d, "replay": r} for d in tokens for r in (0.1, 0.25, 0.5)]
    else:
        sizes = [largest["N"] / times for times in (128, 64, 32, 16, 8)]
        changes = [{"N": n, "D": per * n} for n in sizes for per in (5.0, 20.0, 80.0)]
    offered = pd.DataFrame([{**largest, **change} for change in changes])
    budget = 0.02 * float(flops.max())  # for the first runs
    first = anchors(posterior, offered, goal, budget, max_picks=6, checks=0)
    table = None if planned is not None else forecast(posterior, goal, keep=True)
    page = PriorPage(file, posterior.warnings, table, planned, first, offered)
    curves, outcomes = (Figure(figsize=(6.4, 4.2), layout="constrained") for _ in "12")
    prior_curves(curves.subplots(), posterior, largest)
    first_outcomes(outcomes.subplots(), posterior, offered)
    pictures = [
        encode_picture(
            curves,
            f"Losses that the priors expect of the largest model "
            f"({format_count(float(largest['N']))} parameters) "
            "along tokens: forty draws, and the middle 50% and 90%. If most of them look "
            "wrong to you, change the priors",
            "Curves of the loss over tokens drawn from the prior, with bands",
        ),
        encode_picture(
            outcomes,
            "Losses that the priors expect of the runs on offer: the middle 50% and 90% "
            "of a new run. A first run is a surprise if it comes out beyond",
            "Intervals of the loss of each run on offer",
        ),
    ]
    bought = first.table(offered) if first.picks else pd.DataFrame()
    write_template(
        file,
        "before.html.jinja",
        page=page,
        pictures=pictures,
        budget=budget,
        bought=bought,
    )
    return page


def _make_goal(planned: Plan, question: Mapping[str, Any]) -> pd.DataFrame:
    """Make the planned run; without a plan, the most probable attempt."""
    choice = planned.most_probable()
    columns = {"N": planned.N, "D": choice["D"], "replay": choice["replay"]}
    columns |= {} if planned.ptpp is None else {"ptpp": planned.ptpp}
    return pd.DataFrame([columns | dict(question.get("covariates") or {})])


def prior_curves(
    ax: Axes, posterior: Posterior, run: pd.Series, count: int = 40
) -> Axes:
    """Plot a posterior's losses along tokens, with one run's other columns."""
    tokens = np.geomspace(run["D"] / 100, run["D"] * 2, 40)
    along = pd.DataFrame([{**run, "D": d} for d in tokens])
    losses = np.exp(posterior.log_loss(along))
    bands = np.quantile(losses, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    ax.fill_between(tokens, bands[0], bands[4], color=COLOURS[0], alpha=0.15, lw=0)
    ax.fill_between(tokens, bands[1], bands[3], color=COLOURS[0], alpha=0.25, lw=0)
    ax.plot(tokens, bands[2], color=COLOURS[0])
    for draw in losses[:: max(len(losses) // count, 1)][:count]:
        ax.plot(tokens, draw, color=COLOURS[1], lw=0.4, alpha=0.6)
    ax.set(xscale="log", xlabel="tokens D", ylabel="loss (nats per token)")
    low, high = bands[0].min(), bands[4].max()
    ax.set_ylim(low - 0.15 * (high - low), high + 0.15 * (high - low))
    return ax


def first_outcomes(ax: Axes, posterior: Posterior, offered: pd.DataFrame) -> Axes:
    losses = np.exp(posterior.log_loss(offered, noise=True))
    bands = np.quantile(losses, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    places = np.arange(len(offered))
    ax.hlines(places, bands[0], bands[4], color=COLOURS[0], lw=1)
    ax.hlines(places, bands[1], bands[3], color=COLOURS[0], lw=3)
    ax.plot(bands[2], places, "o", color=COLOURS[0], ms=3)
    sizes, tokens = (offered[column].map(format_count) for column in ("N", "D"))
    names = sizes + ", " + tokens + " tokens"
    if "replay" in offered:
        names += offered["replay"].map(", {:.0%} replay".format)
    ax.set_yticks(places, names)
    ax.set(xlabel="loss (nats per token)")
    return ax
