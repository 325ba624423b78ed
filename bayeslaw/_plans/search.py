"""Search tokens and levers on grids that zoom in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._plans.problem import Choice, Grid, Problem
from bayeslaw._plans.sampled import SampledConstraint, along_draws

if TYPE_CHECKING:
    from jaxtyping import Float


MANY = (16, 9)  # replays and tokens of the smaller grids of a search
# with few draws the score is rougher, so more points are looked at
FEW, FEW_DRAWS = (64, 17), 600
# each grid covers what is within this of the lowest score of the one before
NEAR = (0.1, 0.015, 0.002, 3e-4)


# -- the search ------------------------------------------------------------------------

Scores = tuple["Float[np.ndarray, 'replay point']", "Float[np.ndarray, 'replay point']"]
"""Scores of points, infinite for those that are not allowed, and their log tokens."""
Score = Callable[["Problem", Grid], Scores]
"""What a search minimises: the scores on a grid, by the problem of the grid's draws."""


def search(
    problem: Problem, scan: Grid | None = None, near: Sequence[float] = NEAR
) -> Choice:
    """Find the cheapest tokens and replay; where none reach the confidence, or within a
    budget, the most probable ones.

    ``scan``: that of a problem with the same draws and replays, which saves it here;
    ``near``: as in `zoom`.
    """
    scan = scan or problem.scan
    best = Choice(math.inf, 0.0, -math.inf)
    if not problem.most_probable:
        best = _settled(problem, *zoom(problem, scan, _cheapest, near))
        if best.margin >= 0:
            return best
    safest = _settled(problem, *zoom(problem, scan, _most_probable, near))
    best = max(safest, best, key=lambda choice: choice.margin)
    if not np.isfinite(best.log_tokens):
        return best
    is_by_limit = isinstance(problem.confidence, Mapping)
    is_kept = problem.kept(*best[:2])
    if not (is_kept if is_by_limit else is_kept.all(axis=0)).any():
        return best._replace(log_tokens=math.inf, margin=-max(problem.confidences))
    if is_by_limit or problem.draws >= FEW_DRAWS:
        return best
    # few draws make steps of probability, across which only the room leads: is there a
    # choice that one draw more keeps?
    for _ in range(8):
        count = int(problem.kept(*best[:2]).all(axis=0).sum()) + 1
        aim = replace(problem, confidence=min(count / problem.draws, 1.0))
        found = _settled(aim, *zoom(aim, scan, _cheapest, near))
        if found.margin < 0:
            break
        best = found._replace(margin=problem.margin_at(*found[:2]))
    return best


def zoom(
    problem: Problem, grid: Grid, score: Score, near: Sequence[float] = NEAR
) -> tuple[float, float, float]:
    """Find the lowest score on a grid, then on smaller ones around all that is near it,
    by a smaller difference each time. Returns the score, its search coordinate of the
    levers, and its log tokens.
    """
    replays, tokens = FEW if problem.draws < FEW_DRAWS else MANY
    ends = problem.span[0], min(problem.span[1], math.log(problem.max_tokens))
    rounds, spare = list(near), 4
    evaluated: Grid | None = None
    while True:
        some = problem.with_draws(np.arange(grid.few)) if grid.few else problem
        scores, x = score(some, grid)
        place = np.unravel_index(np.argmin(scores), scores.shape)
        u = np.broadcast_to(grid.u[:, None], scores.shape)
        best = float(scores[place]), float(u[place]), float(x[place])
        if not rounds or not np.isfinite(best[0]):
            return best
        is_near = scores <= best[0] + rounds[0]
        of_replay, is_cut = _around(grid.u, u[is_near], best[1], (0.0, 1.0))
        of_tokens, is_cut_too = _around(grid.x, x[is_near], best[2], ends)
        if spare and (is_cut or is_cut_too):
            spare -= 1  # the same again, on a grid that reaches further
        else:
            rounds.pop(0)
        (least_u, most_u), (least_x, most_x) = of_replay, of_tokens
        u = np.linspace(least_u, most_u, replays)
        x = np.linspace(least_x, most_x, tokens)
        # a smaller grid lies within one that was evaluated, where losses are smooth
        between = None if evaluated is None else evaluated.between(u, x)
        if between is None:
            grid = evaluated = problem.grid(u, x)
        else:
            grid = between


def _around(
    values: Float[np.ndarray, " value"],
    near: Float[np.ndarray, " near"],
    best: float,
    ends: tuple[float, float],
) -> tuple[Float[np.ndarray, " end"], bool]:
    """Bound the next grid along one axis: a step beyond all that is near. Where the best
    is at an end of this grid, a lower one may be beyond: then the whole width.
    """
    low, high = float(values[0]), float(values[-1])
    step = (high - low) / (len(values) - 1)
    is_cut = bool(best <= low > ends[0] or best >= high < ends[1])
    pad = high - low if is_cut else step
    return np.clip([near.min() - pad, near.max() + pad], *ends), is_cut


def _cheapest(problem: Problem, grid: Grid) -> Scores:
    """Score each replay by the log tokens at which the confidence is just reached;
    replays at which it is not come after all others, by their largest room.
    """
    room, _ = problem.room(grid.log_losses)
    is_allowed = problem.allows(grid.u, grid.x[None])
    merit = np.where(is_allowed, np.where(room >= 0, np.inf, room), -np.inf)
    x, room, _ = _between(problem, grid, merit)
    is_reached = room >= 0
    place = np.where(
        is_reached.any(axis=1), is_reached.argmax(axis=1), room.argmax(axis=1)
    )
    rows = np.arange(len(x))
    before, after = room[rows, np.maximum(place - 1, 0)], room[rows, place]
    is_reached = after >= 0
    is_crossing = is_reached & (before < 0) & np.isfinite(before)
    share = after[is_crossing] / (after[is_crossing] - before[is_crossing])
    tokens = x[rows, place]
    tokens[is_crossing] -= share * (x[0, 1] - x[0, 0])
    if not is_reached.any():
        score = problem.span[1] + 1 - 10 * after
    else:
        # just beside a replay that is short by little there may be one that is not
        best = tokens[is_reached].min()
        score = np.where(is_reached, tokens, np.maximum(tokens, best) - 20 * after)
    return score[:, None], tokens[:, None]


def _most_probable(problem: Problem, grid: Grid) -> Scores:
    """Score by the probability. Of equally probable points those that are short of the
    confidence have their room compared first, which tells the way across the steps of
    few draws; the cheapest is lowest. Where no draw keeps the limits, the room leads.
    """
    room, margin = problem.room(grid.log_losses)
    is_allowed = problem.allows(grid.u, grid.x[None])
    # the room decides between equal probabilities, but is less than a draw's share
    merit = margin + 1e-9 * np.clip(room, -1, 1)
    x, room, margin = _between(problem, grid, np.where(is_allowed, merit, -np.inf))
    score = 1e-6 * x - margin - 1e-4 * np.clip(room, -1, 0)
    score = np.where(
        margin > -min(problem.confidences), score, score - np.minimum(room, 0)
    )
    return np.where(np.isfinite(room), score, np.inf), x


def _between(
    problem: Problem, grid: Grid, merit: Float[np.ndarray, "replay tokens"]
) -> tuple[Float[np.ndarray, "replay finer"], ...]:
    """Look between the three tokens around the first of the most merit at each replay:
    log tokens, room and margin there; without room where they are not allowed. Between
    the tokens losses follow a parabola: so a plan is found also where the limits leave
    it less than a step.
    """
    first = np.clip(merit.argmax(axis=1) - 1, 0, len(grid.x) - 3)
    three = first[:, None] + np.arange(3)
    t = np.linspace(0, 2, 17)
    parabola = np.stack([(t - 1) * (t - 2) / 2, t * (2 - t), t * (t - 1) / 2])
    rows = np.arange(len(first))[:, None]
    # of losses that are no numbers the parabola is none, and no limit is kept
    with np.errstate(invalid="ignore"):
        # draws stay next to each other in memory, by which they are counted faster
        around = [losses.transpose(1, 2, 0)[rows, three] for losses in grid.log_losses]
        room, margin = problem.room(
            [(parabola.T @ losses).transpose(2, 0, 1) for losses in around]
        )
    x = grid.x[first][:, None] + t * (grid.x[1] - grid.x[0])
    return x, np.where(problem.allows(grid.u, x), room, -np.inf), margin


def _settled(problem: Problem, lowest: float, u: float, x: float) -> Choice:
    """Raise log tokens until all draws' losses there reach the confidence: by rounding
    errors first, then by up to 4%.
    """
    levers = problem.at(u)
    if not np.isfinite(lowest):
        return Choice(math.inf, levers, -max(problem.confidences))
    rounding = 1e-14 * 4.0 ** np.arange(12) * abs(x)
    steps = np.array([0.0, *rounding, *1e-5 * 4.0 ** np.arange(7)])
    tried = np.minimum(x + steps, max(float(problem.log_cap(levers)), x))
    _, margins = problem.room(problem.log_losses(tried, levers[None]))
    first = int(np.argmax(margins[0] >= 0))
    return Choice(float(tried[first]), levers, float(margins[0, first]))


# -- soft limits -----------------------------------------------------------------------
# An excess has a price, and the expected cost is minimised. The cost of training grows
# with tokens, and the expected excess mostly falls. So the sum has an inner minimum,
# where one more token costs as much as it saves: the newsvendor problem (Arrow, Harris
# and Marschak 1951) in tokens and replay.


def excess(
    constraint: SampledConstraint, log_loss: Float[np.ndarray, " draw *point"]
) -> Float[np.ndarray, " draw *point"]:
    most = along_draws(np.exp(constraint.log_limit), log_loss.ndim)
    return np.maximum(np.exp(log_loss) - most, 0.0)


def expected_cost(
    problem: Problem, prices: Mapping[str, float], log_tokens: float, replay: float
) -> dict[str, Any]:
    """Compute the ``cost`` of a run (``training``) and of its expected ``excess`` over
    limits, in nats by limit.
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
    """Minimise expected cost among choices that keep the unpriced limits."""

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
    levers, strict = problem.at(u), _without_price(problem, prices)
    margin = strict.margin_at(log_tokens, levers) if strict.constraints else 0.0
    return Choice(log_tokens, levers, margin)


def _without_price(problem: Problem, prices: Mapping[str, float]) -> Problem:
    constraints = tuple(c for c in problem.constraints if c.name not in prices)
    return replace(problem, constraints=constraints)
