"""Plan with soft limits: an excess has a price, and the expected cost is minimised.

The cost of training grows with tokens, and the expected excess mostly falls. So the sum
has an inner minimum, where one more token costs as much as it saves: the newsvendor
problem (Arrow, Harris and Marschak 1951) in tokens and replay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._plans.sampled import SampledConstraint, along_draws
from bayeslaw._plans.search import Choice, Grid, Problem, Scores, zoom

if TYPE_CHECKING:
    from jaxtyping import Float


def excess(
    constraint: SampledConstraint, log_loss: Float[np.ndarray, " draw *point"]
) -> Float[np.ndarray, " draw *point"]:
    """Compute by how many nats each draw exceeds a limit, shape (draw, ...)."""
    most = along_draws(np.exp(constraint.log_limit), log_loss.ndim)
    return np.maximum(np.exp(log_loss) - most, 0.0)


def expected_cost(
    problem: Problem, prices: Mapping[str, float], log_tokens: float, replay: float
) -> dict[str, Any]:
    """Compute the cost of a run and of its expected excess over limits.

    Returns
    -------
    ``cost``: both together; ``training``; ``excess``: expected nats, by limit.
    """
    bill = problem.costs.of_run(problem.N, math.exp(log_tokens), problem.ptpp)
    by_name = {
        c.name: float(excess(c, c.log_losses(log_tokens, replay)).mean())
        for c in problem.constraints
        if c.name in prices
    }
    priced = sum(prices[name] * nats for name, nats in by_name.items())
    return {"cost": bill.price + priced, "training": bill.price, "excess": by_name}


def least_expected_cost(problem: Problem, prices: Mapping[str, float]) -> Choice:
    """Minimise the expected cost over tokens and replay, among choices that keep the
    limits without a price with the confidence.
    """

    def score(some: Problem, grid: Grid) -> Scores:
        price = [
            problem.costs.of_run(problem.N, math.exp(x), problem.ptpp).price
            for x in grid.x
        ]
        strict = _without_price(some, prices)
        cost = np.broadcast_to(np.array(price), (len(grid.u), len(grid.x))).copy()
        hard = []
        for c, log_loss in zip(some.constraints, grid.log_losses, strict=True):
            if c.name in prices:
                cost += prices[c.name] * excess(c, log_loss).mean(axis=0)
            else:
                hard.append(log_loss)
        scores = np.log(cost)
        if hard:  # a point that breaks a hard limit is worse than all that keep them
            room, _ = strict.room(hard)
            scores = np.where(room >= 0, scores, 1e3 - 10 * room)
        x = np.broadcast_to(grid.x, scores.shape)
        return np.where(some.allows(grid.u, x), scores, np.inf), x

    _, u, log_tokens = zoom(problem, problem.scan, score)
    replay = float(problem.replay(u))
    strict = _without_price(problem, prices)
    margin = strict.margin_at(log_tokens, replay) if strict.constraints else 0.0
    return Choice(log_tokens, replay, margin)


def _without_price(problem: Problem, prices: Mapping[str, float]) -> Problem:
    constraints = tuple(c for c in problem.constraints if c.name not in prices)
    return replace(problem, constraints=constraints)
