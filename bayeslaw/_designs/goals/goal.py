"""The goal that runs are bought for: what draws say of it, and what runs are worth to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._designs.criteria import (
    Choosing,
    Criterion,
    Information,
    Variance,
)
from bayeslaw._designs.evidence import Domain, Gaussian, domain_of
from bayeslaw._designs.goals.kinds import KINDS, GainName
from bayeslaw._designs.goals.quantities import OptionDraws, laws, optimum, recipes
from bayeslaw._designs.menu import Menu
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.posterior import Posterior

if TYPE_CHECKING:
    from bayeslaw._designs.goals.plan import PlanGoal


@dataclass(frozen=True, eq=False)
class Goal:
    """What runs are to improve: what each domain's draws say of it; the options, if one
    is to be chosen; and the plan, if it is one.
    """

    domains: list[Domain]
    gain: GainName
    options: OptionDraws | None = None
    plan: PlanGoal | None = None

    def criterion(self, approximation: Gaussian) -> Criterion:
        """What runs are worth."""
        rows = approximation.goals
        if self.gain == "plan":
            from bayeslaw._designs.goals.plan import saving

            assert self.plan is not None
            return saving(self.plan, self.domains, rows)
        if self.gain == "best":
            (domain,) = self.domains
            return Choosing.between(rows, domain.goal.mean(axis=0))
        if self.gain == "parameters":
            return Information(None)
        if self.gain == "information":
            noise = [
                np.full(d.goal.shape[1], d.noise.variance.mean()) for d in self.domains
            ]
            # what measuring the goal's runs would add to the precision
            weighted = rows / np.concatenate(noise)[:, None]
            return Information(weighted.T @ rows)
        return Variance(rows)


def gain_for(
    gain: str | None, goal: pd.DataFrame | Mapping[str, Any], has_source: bool
) -> GainName:
    """What gains are, if the goal can be gained so.

    Raises
    ------
    PlanError
        The gain is unknown, or not one of such a goal.
    RunTableError
        The goal has no rows.
    """
    is_plan = isinstance(goal, Mapping)
    wanted = gain or ("plan" if is_plan else "variance")
    if wanted not in KINDS:
        raise PlanError(f"gain must be one of {', '.join(KINDS)}; got {gain!r}")
    if is_plan != has_source:
        raise PlanError(
            "a plan as the goal needs the source's posterior, and runs as the goal "
            "need none"
        )
    if wanted == "plan" and not is_plan:
        raise PlanError(
            "gain 'plan' needs a plan as the goal: the keyword arguments of plan()"
        )
    if wanted in ("best", "law", "optimum") and is_plan:
        raise PlanError(
            f"gain {wanted!r} is of runs to be forecast: give a table as the goal"
        )
    if not is_plan and not len(goal):
        raise RunTableError(
            "the goal's table has no rows: give the runs to be forecast"
        )
    return cast(GainName, wanted)


def goal_of(
    posterior: Posterior,
    goal: pd.DataFrame,
    gain: GainName,
    offered: Menu,
    run_length: float | None,
) -> Goal:
    """What a posterior says of the runs to be forecast, and of what is asked of them.

    Raises
    ------
    RunTableError
        A table lacks a column that a law reads, or is no sweep where one is needed.
    PlanError
        There is nothing to choose between.
    """
    domain = domain_of(posterior, offered, goal, run_length)
    return asked_of(domain, posterior, goal, gain)


def asked_of(
    domain: Domain,
    posterior: Posterior,
    goal: pd.DataFrame,
    gain: GainName,
    *,
    may_be_settled: bool = False,
) -> Goal:
    """What is asked of the runs to be forecast, given their losses; `goal_of` says what
    is refused.

    ``may_be_settled``: whether runs may have told already where the optimum lies.
    """
    parts = all_draws(posterior.pieces())
    if gain == "best":
        of_recipes, options = recipes(domain, parts, goal)
        return Goal([of_recipes], gain, options)
    if gain == "law":
        of_laws, options = laws(domain, parts)
        return Goal([of_laws], gain, options)
    if gain == "optimum":
        place = optimum(domain, parts, goal, may_be_settled=may_be_settled)
        return Goal([place], gain)
    return Goal([domain], gain)


def goal_of_plan(
    posterior: Posterior,
    sources: Mapping[str, Posterior],
    goal: Mapping[str, Any],
    gain: GainName,
    offered: Menu,
    run_length: float | None,
) -> Goal:
    """The plan; while none reaches its confidence, how well its promises are known."""
    from bayeslaw._designs.goals import plan

    cheapest = plan.cheapest_plan(posterior, sources, goal)
    domains = plan.domains_of(cheapest, offered, run_length)
    if gain == "plan" and not cheapest.is_reached:
        gain = "variance"
    return Goal(domains, gain, plan=cheapest)
