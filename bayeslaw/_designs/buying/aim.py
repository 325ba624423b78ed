"""Define the goal of a sequence of purchases: a forecast, or a plan that is made again
after every batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._designs.buying.campaign import Campaign, as_read
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
from bayeslaw._posteriors.posterior import Posterior, is_prior_only

if TYPE_CHECKING:
    from jaxtyping import Float


def goal_now(
    campaign: Campaign, posteriors: Mapping[str, Posterior], offered: Menu
) -> Goal:
    """Build the goal from the present posteriors, by domain, before the next batch.

    Raises
    ------
    RunTableError
        The goal lacks a column that a law reads.
    PlanError
        The plan's question is ill-posed.
    """
    if isinstance(campaign.goal, pd.DataFrame):
        view = _build_view(posteriors[TARGET], offered, campaign.goal, TARGET)
        # with few runs one law is fitted, so they cannot tell yet which law is right
        is_one_law = len(posteriors[TARGET].pieces()) == 1
        gain = "variance" if campaign.gain == "law" and is_one_law else campaign.gain
        is_begun = not is_prior_only(posteriors[TARGET])
        return asked_of(
            view, posteriors[TARGET], campaign.goal, gain, may_be_settled=is_begun
        )
    # With priors alone no plan is made: the first runs narrow the losses where it may
    # be.
    if not any(is_prior_only(p) for p in posteriors.values()):
        plan = present_plan(posteriors[TARGET], posteriors[FORGETTING], campaign.goal)
        if plan.is_possible:
            domains = domains_of(plan, offered, None)
            is_priced = plan.is_reached and can_save(plan, domains)
            return Goal(domains, "plan" if is_priced else "variance", plan=plan)
        # no draw keeps the limits: perhaps the posterior is still wrong
    region = planned_region(campaign.goal, campaign.candidates)
    views = [
        _build_view(posteriors[name], offered, region, name) for name in posteriors
    ]
    return Goal(views, "variance")


def _build_view(
    posterior: Posterior, offered: Menu, goal: pd.DataFrame, domain: str
) -> Domain:
    menu_of_domain = replace(offered, table=as_read(offered.table, domain))
    view = domain_of(posterior, menu_of_domain, as_read(goal, domain), None)
    return replace(view, name=domain)


def planned_region(
    question: Mapping[str, Any], candidates: pd.DataFrame
) -> pd.DataFrame:
    """Make runs over the range of possible plans: of the planned model, at replays and
    tokens per parameter that span those on offer.

    Raises
    ------
    PlanError
        The plan lacks a keyword, has an unknown one, or is for several models.
    RunTableError
        The table has no sizes or tokens.
    """
    check_keywords(question)
    model = {name: question[name] for name in ("N", "ptpp") if name in question}
    if any(np.ndim(size) for size in model.values()):
        raise PlanError("runs are chosen for the plan of one model: give one N")
    lacking = [column for column in ("N", "D") if column not in candidates]
    if lacking:
        raise RunTableError(
            f"the table of candidates lacks column {lacking[0]!r}, which a plan needs"
        )
    covariates = {
        name: np.mean(x) for name, x in (question.get("covariates") or {}).items()
    }
    if (
        SOURCE_LOSS_BEFORE not in covariates
        and question.get("baseline_loss") is not None
    ):
        covariates[SOURCE_LOSS_BEFORE] = np.mean(question["baseline_loss"])
    # evenly spaced in the logarithm of tokens per parameter, like budgets
    per_parameter = np.log(candidates["D"].to_numpy() / candidates["N"].to_numpy())
    tokens = float(model["N"]) * np.exp(_space_evenly(per_parameter))
    # laws of size and tokens read no replay, so any value will do
    replays = (
        _space_evenly(candidates["replay"].to_numpy())
        if "replay" in candidates
        else [0]
    )
    rows = [model | covariates | {"D": d, "replay": r} for d in tokens for r in replays]
    return pd.DataFrame(rows)


def _space_evenly(
    levels: Float[np.ndarray, " run"], count: int = 3
) -> Float[np.ndarray, " level"]:
    return np.unique(np.linspace(levels.min(), levels.max(), count))
