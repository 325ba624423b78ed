"""Define the goal of purchases: its draws, and the value of runs for it."""

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
    """The goal that runs improve: the draws of each domain, and the options if it is a
    choice, or the plan if it is a plan.
    """

    domains: list[Domain]
    gain: GainName
    options: OptionDraws | None = None
    plan: PlanGoal | None = None

    def criterion(self, approximation: Gaussian) -> Criterion:
        """Choose the criterion that values runs."""
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
            # precision that measuring the goal's runs would add
            weighted = rows / np.concatenate(noise)[:, None]
            return Information(weighted.T @ rows)
        return Variance(rows)


def gain_for(
    gain: str | None, goal: pd.DataFrame | Mapping[str, Any], has_source: bool
) -> GainName:
    """Find the kind of gain, and check that it suits the goal.

    Raises
    ------
    PlanError
        The gain is unknown, or does not suit the goal.
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
    """Build the goal from a posterior at the runs to forecast, for the given kind of
    gain.

    Raises
    ------
    RunTableError
        A table lacks a column that a law reads, or the goal must be a sweep and is not.
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
    """Compute the quantity that a kind of gain is about from the losses of the runs to
    forecast. Raises the errors of `goal_of`.

    ``may_be_settled``: whether earlier runs may have fixed the optimum already.
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
    """Build the goal of a plan; while no plan reaches its confidence, the goal is the
    variance of its limited losses.
    """
    from bayeslaw._designs.goals import plan

    cheapest = plan.cheapest_plan(posterior, sources, goal)
    domains = plan.domains_of(cheapest, offered, run_length)
    if gain == "plan" and not cheapest.is_reached:
        gain = "variance"
    return Goal(domains, gain, plan=cheapest)
