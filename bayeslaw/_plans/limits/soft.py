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
from scipy import optimize

from bayeslaw._plans.sampled import SampledConstraint, along_draws
from bayeslaw._plans.search import Choice, Problem

if TYPE_CHECKING:
    from jaxtyping import Float


def excess(
    constraint: SampledConstraint, log_loss: Float[np.ndarray, " draw *point"]
) -> Float[np.ndarray, " draw *point"]:
    """Compute by how many nats each draw exceeds a limit, shape (draw, ...)."""
    axes = log_loss.ndim
    most = np.exp(constraint.log_limit + constraint.noise)
    loss = np.exp(log_loss + along_draws(constraint.noise, axes))
    return np.maximum(loss - along_draws(most, axes), 0.0)


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


def hard(problem: Problem, prices: Mapping[str, float]) -> Problem:
    """Restrict the problem to limits without a price; None if all have one."""
    constraints = tuple(c for c in problem.constraints if c.name not in prices)
    return replace(problem, constraints=constraints)


def hard_margin(
    problem: Problem, prices: Mapping[str, float], log_tokens: float, replay: float
) -> float:
    """Compute the share of draws that keep the limits without a price, minus the
    confidence.
    """
    strict = hard(problem, prices)
    return strict.margin_at(log_tokens, replay) if strict.constraints else 0.0


def least_expected_cost(
    problem: Problem, prices: Mapping[str, float], size: int = 33
) -> Choice:
    """Minimise the expected cost over tokens and replay, among choices that keep the
    limits without a price with the confidence.

    A grid with a quarter of the draws gives the start of Nelder and Mead's search
    (1965) with all draws.
    """
    few = problem.draws // 4 if problem.draws >= 1000 else problem.draws
    thin = problem.with_draws(np.arange(few))
    u, x = np.linspace(0, 1, size), np.linspace(*problem.span, 2 * size)
    replay = thin.replay(u)
    tokens_cost = [
        problem.costs.of_run(problem.N, math.exp(log_token), problem.ptpp).price
        for log_token in x
    ]
    cost = np.broadcast_to(np.array(tokens_cost), (size, len(x))).copy()
    is_kept = []
    for c in thin.constraints:
        if c.name in prices:
            nats = excess(c, c.log_losses_on_grid(x, replay)).mean(axis=0)
            cost += prices[c.name] * nats
        else:
            is_kept.append(c.kept_on_grid(x, replay))
    strict = hard(thin, prices)
    margin = strict.margin(np.stack(is_kept)) if is_kept else np.zeros(cost.shape)
    is_allowed = x[None, :] <= problem.log_cap(replay)[:, None]
    place = np.where(is_allowed & (margin >= 0), cost, np.inf)
    if not np.isfinite(place).any():  # no feasible tokens: take the nearest ones
        place = np.where(is_allowed, -margin, np.inf)
    i, j = np.unravel_index(np.argmin(place), place.shape)
    return _polished(problem, prices, float(u[i]), float(x[j]))


def _polished(
    problem: Problem, prices: Mapping[str, float], u: float, x: float
) -> Choice:
    """Descend from a search coordinate and log tokens."""
    low = problem.span[0]

    def score(point: Float[np.ndarray, " 2"]) -> float:
        coordinate, log_tokens = map(float, point)
        replay = float(problem.replay(np.clip(coordinate, 0, 1)))
        is_inside = 0 <= coordinate <= 1 and low <= log_tokens <= problem.log_cap(
            replay
        )
        if not is_inside:
            return math.inf
        short = -hard_margin(problem, prices, log_tokens, replay)
        if (
            short > 0
        ):  # a penalty above all feasible costs, which grows with the shortfall
            return 1e6 * (1 + short)
        expected = expected_cost(problem, prices, log_tokens, replay)
        return math.log(max(expected["cost"], 1e-300))

    inward = 0.03 if u < 0.5 else -0.03
    down = -0.3 if x - 0.3 > low else 0.3
    found = optimize.minimize(
        score,
        (u, x),
        method="Nelder-Mead",
        options={
            "initial_simplex": [(u, x), (u + inward, x), (u, x + down)],
            "maxfev": 160,
            "xatol": 1e-4,
            "fatol": 1e-8,
        },
    )
    replay = float(problem.replay(np.clip(found.x[0], 0, 1)))
    log_tokens = float(found.x[1])
    margin = hard_margin(problem, prices, log_tokens, replay)
    return Choice(log_tokens, replay, margin)
