"""Read the budget, the costs and the bounds of replay among the arguments of
`bayeslaw.plan`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import KINDS, checked
from bayeslaw._costs.costs import COST_LIMITS, Costs
from bayeslaw._plans.arguments.plan_arguments import PlanArguments
from bayeslaw._plans.question import Budget, Model


def read_budget(arguments: PlanArguments, fitted: tuple[float, float]) -> Budget:
    """Read the budget, epochs and bounds of replay, each checked for its range."""

    def most(name: str) -> float:
        limit = getattr(arguments, name)
        if limit is None:
            return math.inf
        return checked(name, limit, KINDS[name])

    budget = Budget(
        max_flops=most("max_flops"),
        max_tokens=most("max_tokens"),
        cost_limits={
            name: most(name)
            for name in COST_LIMITS
            if getattr(arguments, name) is not None
        },
        unique_target_tokens=most("unique_target_tokens"),
        epochs=1.0
        if arguments.max_epochs is None
        else checked("max_epochs", arguments.max_epochs, KINDS["max_epochs"]),
    )
    return _with_replays(budget, arguments, fitted)


def _with_replays(
    budget: Budget, arguments: PlanArguments, fitted: tuple[float, float]
) -> Budget:
    """Bound replay by the given bounds, else by the fitted replays."""
    bounds = {}
    requests = {"min_replay": arguments.min_replay, "max_replay": arguments.max_replay}
    for (name, share), end in zip(requests.items(), fitted, strict=True):
        bounds[name] = end if share is None else checked(name, share, KINDS[name])
    least, most = bounds.values()
    if least > most:
        reason = f"min_replay {least:.4g} is over max_replay {most:.4g}"
        if arguments.max_replay is None:
            reason = (
                f"min_replay {least:.4g} is over the largest fitted replay, {most:.4g}: "
                "to plan where nothing was checked, give max_replay too"
            )
        elif arguments.min_replay is None:
            reason = (
                f"max_replay {most:.4g} is under the least fitted replay, {least:.4g}: "
                "to plan where nothing was checked, give min_replay too"
            )
        raise PlanError(reason)
    are_fitted = tuple(
        name for name, end in bounds.items() if requests[name] is None and 0 < end < 1
    )
    return replace(budget, **bounds, fitted=are_fitted)


def read_costs(arguments: PlanArguments) -> Costs:
    """Check the costs of training, given the limits on them.

    Raises
    ------
    PlanError
        ``costs`` is not a `Costs`, or it lacks the price or hardware that a limit
        needs.
    """
    costs = Costs() if arguments.costs is None else arguments.costs
    if not isinstance(costs, Costs):
        raise PlanError(f"costs must be bayeslaw.Costs(hardware=...), got {costs!r}")
    for name, limit in COST_LIMITS.items():
        if getattr(arguments, name) is not None and not limit.is_known(costs):
            raise PlanError(f"{name} {limit.needs}")
    return costs


def payable(
    models: tuple[Model, ...], budget: Budget, costs: Costs
) -> tuple[Model, ...]:
    """Keep the models that have budget left after the checkpoint and the fixed cost are
    paid.

    Raises
    ------
    PlanError
        There is no such model.
    """
    payable = tuple(
        model for model in models if min(budget.paid_tokens(model, costs).values()) > 0
    )
    if not payable:
        once = costs.once(models[0].N, models[0].ptpp)
        raise PlanError(
            f"{' and '.join(COST_LIMITS)} do not pay for what comes before the first token "
            f"({once.sentence()}, checkpoint and fixed cost of a run); raise them"
        )
    return payable
