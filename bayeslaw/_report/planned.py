"""What the page says of the plan: the plan, its sliders, and the runs to buy first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import pandas as pd
from markupsafe import Markup

from bayeslaw._base.numbers import format_count
from bayeslaw._decisions.anchors.anchors import anchors
from bayeslaw._decisions.anchors.menu import candidates
from bayeslaw._decisions.planning.plan import plan, problem_of
from bayeslaw._decisions.planning.record import Plan
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.record import Fit
from bayeslaw._report.explorer import can_explore, explorer, sliders

ANCHOR_SHARE = 0.03  # of the plan's cost, to be spent on runs that improve it
MOST_ANCHORS = 12

Fits = Mapping[str, Fit | Average]  # by domain


@dataclass(frozen=True)
class Planned:
    """The plan, what the page's sliders need, and which runs to buy, where there are.

    ``explorer`` and ``bought`` hold what the page's template reads.
    """

    plan: Plan | None = None
    explorer: dict[str, Any] | None = None
    bought: dict[str, Any] | None = None


def make_plan(
    fits: Fits, question: Mapping[str, Any], runs: pd.DataFrame, hold_out: str
) -> Planned:
    """Plan from the fits of ``target`` and ``source``.

    Parameters
    ----------
    question
        Checked keyword arguments of `plan`.
    runs
        The target's, from whose checkpoints runs are on offer.
    hold_out
        The column whose largest level the fits have not seen.
    """
    answer = plan(fits["target"], fits["source"], **question)
    return Planned(
        answer,
        _explorer(fits, question, answer),
        _bought(fits, question, answer, _offered(runs, answer, hold_out)),
    )


def _explorer(
    fits: Fits, question: Mapping[str, Any], answer: Plan
) -> dict[str, Any] | None:
    """What the page's sliders need, where they can plan this question."""
    problem = problem_of(fits["target"], fits["source"], **question)
    if not can_explore(problem, answer.to_dict()) or answer.D is None:
        return None
    # The page's grid lies around the plan.
    packed = explorer(problem, math.log(answer.D))
    script = files("bayeslaw._report").joinpath("templates/explorer.js")
    return {
        "draws": problem.draws,
        "size": format_count(problem.N),
        "ptpp": problem.ptpp,
        "sliders": sliders(problem, packed),
        "data": Markup(json.dumps(packed)),
        "script": Markup(script.read_text(encoding="utf-8")),
    }


def _offered(runs: pd.DataFrame, answer: Plan, hold_out: str) -> pd.DataFrame | None:
    """Runs of models smaller than the plan's, at the stage held out."""
    # Costs are those of checkpoints by stage, for a plan that costs something.
    can_be_priced = hold_out == "ptpp" and {"N", "replay"} <= set(runs)
    if not can_be_priced or not answer.feasible or not answer.D:
        return None
    smaller = sorted(n for n in runs["N"].unique() if n < answer.N)
    if not smaller:
        return None
    return candidates(runs, N=smaller, ptpp=[float(runs["ptpp"].max())])


def _bought(
    fits: Fits,
    question: Mapping[str, Any],
    answer: Plan,
    offered: pd.DataFrame | None,
) -> dict[str, Any] | None:
    """Runs worth their cost before the plan is carried out, for a share of its cost."""
    budget = ANCHOR_SHARE * float(answer.flops or 0)
    if offered is None or budget < offered["cost"].min():
        return None
    # Anchors have a seed of their own.
    goal = {name: given for name, given in question.items() if name != "seed"}
    picked = anchors(
        fits["target"],
        offered,
        goal,
        budget,
        source=fits["source"],
        max_picks=MOST_ANCHORS,
        checks=0,
    )
    lines = []
    if picked.picks:
        lines = picked.table(offered).drop(columns="row").to_dict(orient="records")
    return {"sentence": picked.sentence(), "lines": lines, "share": ANCHOR_SHARE}
