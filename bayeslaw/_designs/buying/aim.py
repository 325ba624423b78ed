"""What a sequence buys runs for: a forecast, or a plan that is made again after every
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._designs.buying.asked import Asked, as_read
from bayeslaw._designs.buying.knowledge import PriorKnowledge
from bayeslaw._designs.evidence import Domain, domain_of
from bayeslaw._designs.goals.goal import Goal, asked_of
from bayeslaw._designs.goals.plan import (
    can_save,
    check_keywords,
    domains_of,
    present_plan,
)
from bayeslaw._designs.menu import Menu
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.posterior import Posterior

if TYPE_CHECKING:
    from jaxtyping import Float

LEVELS = 3  # of replay and of tokens, at which a plan may be before anything is known


def goal_now(asked: Asked, known: Mapping[str, Posterior], offered: Menu) -> Goal:
    """The goal as it is seen with what is known, by domain, before the next batch.

    Raises
    ------
    RunTableError
        The goal lacks a column that a law reads.
    PlanError
        The plan's question is ill-posed.
    """
    if isinstance(asked.goal, pd.DataFrame):
        view = _forecast(known[TARGET], offered, asked.goal, TARGET)
        # with few runs one law is fitted: which is right they do not tell yet
        is_one_law = len(known[TARGET].pieces()) == 1
        gain = "variance" if asked.gain == "law" and is_one_law else asked.gain
        is_begun = not isinstance(known[TARGET], PriorKnowledge)
        return asked_of(view, known[TARGET], asked.goal, gain, may_be_settled=is_begun)
    # priors are too wide for a plan: first is learned what its losses may be at all
    if not any(isinstance(p, PriorKnowledge) for p in known.values()):
        plan = present_plan(known[TARGET], known[FORGETTING], asked.goal)
        if plan.is_possible:
            domains = domains_of(plan, offered, None)
            is_priced = plan.is_reached and can_save(plan, domains)
            return Goal(domains, "plan" if is_priced else "variance", plan=plan)
        # no draw keeps the promises: perhaps what is known so far is wrong
    region = where_a_plan_may_be(asked.goal, asked.candidates)
    views = [_forecast(known[name], offered, region, name) for name in known]
    return Goal(views, "variance")


def _forecast(
    posterior: Posterior, offered: Menu, goal: pd.DataFrame, domain: str
) -> Domain:
    """A domain's view of runs to be forecast."""
    read = replace(offered, table=as_read(offered.table, domain))
    view = domain_of(posterior, read, as_read(goal, domain), None)
    return replace(view, name=domain)


def where_a_plan_may_be(
    asked: Mapping[str, Any], candidates: pd.DataFrame
) -> pd.DataFrame:
    """Runs of the model to be planned, at replays and tokens per parameter that span
    those on offer.

    Raises
    ------
    PlanError
        The plan lacks a keyword, has one too many, or is of several models.
    RunTableError
        The table has no sizes or tokens.
    """
    check_keywords(asked)
    model = {name: asked[name] for name in ("N", "ptpp")}
    if any(np.ndim(size) for size in model.values()):
        raise PlanError("runs are chosen for the plan of one model: give one N")
    lacking = [column for column in ("N", "D") if column not in candidates]
    if lacking:
        raise RunTableError(
            f"the table of candidates lacks column {lacking[0]!r}, which a plan is made of"
        )
    known = {name: np.mean(x) for name, x in (asked.get("covariates") or {}).items()}
    if SOURCE_LOSS_BEFORE not in known and asked.get("baseline_loss") is not None:
        known[SOURCE_LOSS_BEFORE] = np.mean(asked["baseline_loss"])
    # evenly in the logarithm of tokens per parameter, as budgets are
    per_parameter = np.log(candidates["D"].to_numpy() / candidates["N"].to_numpy())
    tokens = float(model["N"]) * np.exp(_spread(per_parameter))
    # laws of size and tokens read no replay: any will do
    replays = (
        _spread(candidates["replay"].to_numpy()) if "replay" in candidates else [0]
    )
    rows = [model | known | {"D": d, "replay": r} for d in tokens for r in replays]
    return pd.DataFrame(rows)


def _spread(levels: Float[np.ndarray, " run"]) -> Float[np.ndarray, " level"]:
    """A few numbers from the least to the most."""
    return np.unique(np.linspace(levels.min(), levels.max(), LEVELS))
