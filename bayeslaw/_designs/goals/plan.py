"""Use the plan as a goal: what new runs are worth to the cheapest adaptation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._designs.criteria import Saving
from bayeslaw._designs.evidence import Domain, checkpoints_of, view_candidates
from bayeslaw._designs.menu import Menu
from bayeslaw._law.columns import LOSS_BEFORE
from bayeslaw._plans import value
from bayeslaw._plans.arguments import NAMES, PlanArguments
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.posing import pose
from bayeslaw._plans.question import TARGET
from bayeslaw._plans.reading import question_of
from bayeslaw._plans.search import Choice, Problem, search
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.before import of_source

if TYPE_CHECKING:
    from jaxtyping import Float

REQUIRED = ("N", "max_target_loss", "max_forgetting")
# keywords of `plan` that a goal cannot have -> advice
NOT_OF_A_GOAL = {
    ("max_flops", "max_tokens", *COST_LIMITS): "runs are chosen for the "
    "cheapest plan: leave the budget out",
    ("max_mean_loss", "mean_weights"): "limit each source in place of their mean: "
    "max_forgetting=web=2%,code=1%",
    ("min_accuracy", "accuracy"): "give the loss that has this accuracy as "
    "max_target_loss",
    ("excess_price",): "a limit with a price is kept with no stated confidence, which "
    "runs would make cheaper: leave the price out",
    ("point",): "a point has no uncertainty that runs would lower: leave it out",
}


class PlanGoal(NamedTuple):
    """A planning problem and its plan."""

    problem: Problem
    choice: Choice

    @property
    def tokens(self) -> float:
        return math.exp(self.choice.log_tokens)

    @property
    def flops(self) -> float:
        return self.flops_of(self.choice)

    @property
    def price(self) -> float:
        """Compute the cost of the plan's tokens, in the unit of the runs."""
        bill = self.problem.costs.of_tokens(self.problem.N, self.tokens)
        return bill.money if self.problem.costs.has_money else bill.flops

    @property
    def is_reached(self) -> bool:
        """Tell whether there is a plan; if not, the choice is the most probable one."""
        return self.choice.margin >= 0

    @property
    def is_possible(self) -> bool:
        """Tell whether any draw keeps the limits somewhere."""
        return math.isfinite(self.choice.log_tokens)

    def flops_of(self, choice: Choice) -> float:
        """Compute the FLOPs of a choice, infinite if it does not reach the confidence."""
        tokens = math.exp(choice.log_tokens) if choice.margin >= 0 else math.inf
        return self.problem.costs.flops_per_token(self.problem.N) * tokens

    def describe_now(self) -> dict[str, Any]:
        """Describe the present choice, and how far it reaches the confidence."""
        return {
            "tokens": self.tokens,
            "replay": float(self.choice.replay),
            "flops": self.flops_of(self.choice._replace(margin=0.0)),
            "reaches": self.is_reached,
            "margin": float(self.choice.margin),
        }

    def describe_saving(self, saved: float) -> dict[str, float]:
        """Describe the plan's cost now, and after runs save so much of its price."""
        after = self.flops * (1 - saved / self.price)
        record = {"flops_before": self.flops, "flops_after": after}
        if self.problem.costs.has_money:
            record |= {"money_before": self.price, "money_after": self.price - saved}
        return record


def cheapest_plan(
    target: Posterior,
    source: Posterior | Mapping[str, Posterior],
    keywords: Mapping[str, Any],
) -> PlanGoal:
    """Find the plan by `present_plan`, and check that runs can be chosen for it."""
    goal = present_plan(target, source, keywords)
    if not goal.is_possible:
        raise PlanError(
            "no draw keeps the limits with any tokens and replay, so that no run "
            "leads to a plan; loosen the limits"
        )
    if goal.is_reached and goal.choice.log_tokens <= goal.problem.span[0]:
        raise PlanError(
            "the limits are kept without adapting at all: no run can make that cheaper"
        )
    return goal


def present_plan(
    target: Posterior,
    source: Posterior | Mapping[str, Posterior],
    keywords: Mapping[str, Any],
) -> PlanGoal:
    """Pose and solve the question of `bayeslaw.plan`, for one model without a budget.
    If no plan reaches the confidence, the most probable choice is returned.

    ``keywords``: keyword arguments of `plan`.
    """
    check_keywords(keywords)
    question = question_of(PlanArguments(target, source, **keywords))
    first, *others = question.models
    if others:
        raise PlanError("anchors are chosen for the plan of one model: give one N")
    problem = pose(question, first)
    return PlanGoal(problem, search(problem))


def check_keywords(keywords: Mapping[str, Any]) -> None:
    """Refuse keywords of a plan for which runs cannot be chosen."""
    unknown = [name for name in keywords if name not in NAMES]
    if unknown:
        raise PlanError(
            f"{unknown[0]!r} is not part of a question that plan() is asked"
        )
    for names, instead in NOT_OF_A_GOAL.items():
        refused = [name for name in names if name in keywords]
        if refused:
            raise PlanError(
                f"{refused[0]} is no part of a plan that runs are chosen for: {instead}"
            )
    # a limit on the sources' losses may replace the limit on forgetting
    given = {*keywords} | ({"max_forgetting"} if "max_loss" in keywords else set())
    missing = [name for name in REQUIRED if name not in given]
    if missing:
        raise PlanError(
            f"the plan as a goal needs {', '.join(missing)}, as plan() does; got "
            f"{', '.join(keywords) or 'nothing'}"
        )


def domains_of(goal: PlanGoal, offered: Menu, run_length: float | None) -> list[Domain]:
    """Build each constraint's view: the draws at the candidates, and the log loss at
    the plan above its limit (without a new run's noise).
    """
    problem, choice = goal.problem, goal.choice
    model = pd.DataFrame([{"N": problem.N, "ptpp": problem.ptpp}], dtype=float)
    at = checkpoints_of(offered, model)
    planned = {"D": goal.tokens, "replay": choice.replay}
    domains = []
    for constraint in problem.constraints:
        means = {
            name: float(np.mean(np.asarray(column)))  # of draws of a covariate
            for part in constraint.parts
            for name, column in part.fixed.items()
        }
        table, run = offered.table, model.assign(**means | planned)
        if constraint.name != TARGET and UNITS[constraint.unit].has_baseline:
            table = of_source(table)
        elif constraint.name != TARGET:
            table = table.drop(columns=LOSS_BEFORE, errors="ignore")
        log_loss = constraint.of_law.log_losses(*choice[:2])
        excess = (log_loss - constraint.log_limit)[:, None]
        view = view_candidates(
            constraint.parts, table, offered, run, excess, at, run_length
        )
        domains.append(view)
    return domains


# -- what runs are worth to it ---------------------------------------------------------


def saving(
    goal: PlanGoal,
    domains: Sequence[Domain],
    rows: Float[np.ndarray, "constraint coordinate"],
) -> Saving:
    """Build the criterion of savings from lower variance of the constrained losses, by
    the shadow price of each limit.

    ``rows``: loadings of the domains' goals, shape (constraint, coordinate).
    """
    worth, choice = value.worth(goal.problem, goal.choice), goal.choice
    per_constraint = []
    for constraint, domain in zip(goal.problem.constraints, domains, strict=True):
        # variance that no run lowers: the noise of the planned run, without the learned
        # effect of its checkpoint, or the whole of it if runs on offer start from it
        new = float(domain.new_of_goal[0]) * (domain.at[0] >= 0)
        shared = np.mean(domain.noise.tau_checkpoint**2) * new
        log_loss = constraint.log_losses(*choice[:2])
        law = constraint.of_law.log_losses(*choice[:2])
        new_run = log_loss - law - domain.learned[:, 0]
        unlearnable = max(float(new_run.var() - shared), 0.0)
        # log tokens saved for each unit of log loss by which the limit is raised; a
        # step of the limit saves its worth
        looser = constraint.limit + value.limit_step(constraint)
        raised = constraint.with_limit(looser).log_limit - constraint.log_limit
        price = worth[constraint.name] / float(np.mean(raised))
        # mean margin to the limit at the plan, in sds
        margin = constraint.log_limit - log_loss
        z = float(margin.mean() / margin.std())
        per_constraint.append((unlearnable, price, z))
    return Saving(rows, *np.array(per_constraint).T, cost=goal.price)


def can_save(goal: PlanGoal, domains: Sequence[Domain]) -> bool:
    """Tell whether certainty would make the plan cheaper, by the shadow prices of its
    limits. It may not: the prices are wrong far from the plan, so they fail if the plan
    is very uncertain; and at a confidence near a half there is little to save.
    """
    sds = np.array([domain.goal.std() for domain in domains])
    certain = np.zeros(len(sds))
    after = saving(goal, domains, np.diag(sds)).expected_cost(certain)
    return bool(after < goal.price)
