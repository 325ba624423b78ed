"""Search for the cheapest tokens and shares whose limits hold together in a stated
share of draws, and for the shares of the least mean loss at a budget.

Many shares are too many for a grid. The quantile at 1 - confidence of the draws' room
below their limits is weighed over neighbouring ranks (Harrell and Davis 1982), so that
it has slopes, by which SLSQP (Kraft 1988) finds mixtures. The plain share of draws then
decides: the search on grids (`_plans.search`) chooses tokens, and a mixture between that
of SLSQP and the most probable one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize, special

from bayeslaw._base.streams import Stream, generator
from bayeslaw._plans.problem import Choice, Problem
from bayeslaw._plans.search import NEAR, search

if TYPE_CHECKING:
    from jaxtyping import Float

    Mixture = Float[np.ndarray, " domain"]
    Points = Float[np.ndarray, "point slope"]  # log tokens, then shares
    Values = Callable[[Points], Any]  # of points, shape (point,) or (point, value)

# of SLSQP, in log tokens, percent of a loss, or a mean loss: an optimum is flat, so shares
# are known to the root of it; at 1e-5 they depended on the last digits of sums
TOLERANCE = 1e-7
STEP = 1e-6  # of log tokens and shares, of the differences that are slopes


def cheapest_mixture(problem: Problem, starts: int = 3, seed: int = 0) -> Choice:
    """Find the cheapest choice that keeps the limits; else the most probable one."""
    safest = [_safest_from(problem, start) for start in _starts(problem, starts, seed)]
    choices = []
    for start in (choice for choice in safest if choice.is_kept):
        limits = _limits(problem)
        _, mixture = _minimise(problem, lambda points: points[:, 0], start, limits)
        between = replace(problem, path=(mixture, start.levers))
        choices.append(search(between, near=NEAR[:2]))
    if not choices:
        return max(safest, key=lambda choice: choice.margin)
    return min(choices, key=lambda choice: choice.log_tokens)


def _starts(problem: Problem, count: int, seed: int, tries: int = 15) -> list[Choice]:
    """Choose the starts: the most probable of some mixtures within the bounds, the
    middle one included, each at its most probable budget. It need not be the largest,
    because far beyond the fitted tokens a law is less sure.
    """
    rng = generator(seed, Stream.STARTS)
    low, high = bounds_of(problem)
    corners = low + rng.dirichlet(np.full(len(low), 0.7), tries) * (1 - low.sum())
    middle = (low + high) / (low + high).sum()
    mixtures = onto_simplex(np.stack([middle, *corners]), low, high)
    rungs = np.linspace(*problem.span, 32)
    _, margins = problem.room(problem.log_losses(rungs, mixtures))
    is_allowed = rungs <= problem.log_cap(mixtures)[:, None] + 1e-12
    margins = np.where(is_allowed | (rungs == rungs[0]), margins, -1.0)
    best = margins.argmax(axis=1)
    choices = [
        Choice(float(rungs[at]), shares, float(of_rungs[at]))
        for at, shares, of_rungs in zip(best, mixtures, margins, strict=True)
    ]
    ranked = sorted(choices[1:], key=lambda choice: -choice.margin)
    return [choices[0], *ranked[: count - 1]]


def bounds_of(problem: Problem) -> tuple[Mixture, Mixture]:
    """Find the least and the largest share of each domain at the smallest budget."""
    return problem.least, problem.most_shares(math.exp(problem.span[0]))


def onto_simplex(
    shares: Float[np.ndarray, "*draw domain"],
    low: Float[np.ndarray, "*#draw domain"],
    high: Float[np.ndarray, "*#draw domain"],
) -> Float[np.ndarray, "*draw domain"]:
    """Project mixtures onto the simplex within bounds: shares are shifted equally and
    clipped so that they sum to one, by bisection (Held, Wolfe and Crowder 1974).
    """
    above = (1 + np.abs(shares)).max(axis=-1, keepdims=True)
    below = -above
    for _ in range(60):
        middle = (below + above) / 2
        shifted = np.clip(shares + middle, low, high)
        is_short = shifted.sum(axis=-1, keepdims=True) < 1
        below, above = (
            np.where(is_short, middle, below),
            np.where(is_short, above, middle),
        )
    return np.clip(shares + (below + above) / 2, low, high)


def _safest_from(problem: Problem, start: Choice, rounds: int = 4) -> Choice:
    """Maximise the probability within the budget.

    At the largest probability p, the largest quantile at 1 - p is 0. So SLSQP maximises
    the quantile in rounds. The level of a round is the probability that the last round
    reached.
    """
    choice, aim = start, problem
    for _ in range(rounds):
        if choice.is_kept:
            break
        room = partial(smooth_room, aim)
        log_tokens, shares = _minimise(aim, lambda points, f=room: -f(points), choice)
        log_tokens = min(log_tokens, float(problem.log_cap(shares)))
        found = problem.judge(log_tokens, shares)
        if found.margin >= choice.margin:
            choice = found
        # a quantile far in a tail rests on few draws
        share = problem.kept(log_tokens, shares).all(axis=0).mean()
        aim = replace(problem, confidence=float(np.clip(share, 0.02, 0.98)))
    return choice


# -- SLSQP -------------------------------------------------------------------------------


def _minimise(
    problem: Problem, objective: Values, start: Choice, further: Sequence[Values] = ()
) -> tuple[float, Mixture]:
    """Minimise an objective over log tokens and shares by SLSQP, from a choice.

    ``further``: functions that are not negative, beside the simplex and the supplies.
    """
    low, high = bounds_of(problem)
    ends = np.column_stack([problem.span, [low, high]])
    finite = 1 + np.array([problem.domains.index(n) for n in problem.seen], int)
    log_supply = np.log([*problem.seen.values()])

    def left(points: Points) -> Float[np.ndarray, "point supply"]:
        shares = np.maximum(points[:, finite], 1e-9)
        return log_supply - points[:, :1] - np.log(shares)

    solution = optimize.minimize(
        partial(_with_slopes, objective),
        np.array([start.log_tokens, *start.levers]),
        jac=True,
        method="SLSQP",
        bounds=optimize.Bounds(*ends),
        constraints=[
            _stated("eq", lambda points: points[:, 1:].sum(axis=1) - 1),
            *(_stated("ineq", function) for function in (left, *further)),
        ],
        options={"maxiter": 60, "ftol": TOLERANCE},
    )
    return float(solution.x[0]), onto_simplex(solution.x[1:], low, high)


def _with_slopes(
    function: Values, point: Float[np.ndarray, " slope"]
) -> tuple[Any, Any]:
    """Compute a function at a point and its slopes, by differences."""
    size = len(point)
    values = function(point + STEP * np.eye(1 + size, size, -1))
    return values[0], (values[1:] - values[0]).T / STEP


def _stated(kind: str, function: Values) -> Any:
    """State a constraint for SLSQP. Its last value is kept, because SLSQP asks for value
    and slopes one after the other.
    """
    last = lru_cache(maxsize=1)(lambda point: _with_slopes(function, np.array(point)))
    return {
        "type": kind,
        "fun": lambda point: last(tuple(point))[0],
        "jac": lambda point: last(tuple(point))[1],
    }


def _limits(problem: Problem) -> list[Values]:
    return [partial(smooth_room, problem)] if problem.limits else []


def smooth_room(problem: Problem, points: Points) -> Float[np.ndarray, " point"]:
    """Compute the smooth quantile of the room of draws, in percent of the loss."""
    # a grid has all: one step is along tokens, the others are along shares
    x, at_x = np.unique(points[:, 0], return_inverse=True)
    mixtures, at = np.unique(points[:, 1:], axis=0, return_inverse=True)
    columns = problem.columns_of(mixtures)
    log_losses = [c.log_losses_on_grid(x, columns) for c in problem.constraints]
    rooms = np.minimum.reduce(problem.below(log_losses))[:, at, at_x]
    weights = rank_weights(len(rooms), 1 - problem.confidences[0])
    # without BLAS: the search follows last digits, which depend on its threads
    return 100 * np.einsum("d,dp->p", weights, np.sort(rooms, axis=0))


def rank_weights(draws: int, q: float) -> Float[np.ndarray, " draw"]:
    """Compute the order statistics' weights in Harrell and Davis' quantile (1982)."""
    ends = np.arange(draws + 1) / draws
    below = special.betainc((draws + 1) * q, (draws + 1) * (1 - q), ends)
    return np.diff(below)


# -- the least mean at a budget ----------------------------------------------------------


def mean_losses(
    problem: Problem, mixtures: Float[np.ndarray, "choice *draw domain"]
) -> Float[np.ndarray, "draw choice"]:
    """Compute the weighted mean of each draw's losses at the budget, at several mixtures
    or at several of each draw's own.
    """
    assert problem.mean is not None
    x, columns = np.array([problem.span[1]]), problem.columns_of(mixtures)
    return np.exp(problem.mean.log_losses_on_grid(x, columns)[..., 0])


def _expected_mean(problem: Problem, points: Points) -> Float[np.ndarray, " point"]:
    # at the budget a step along tokens, the first, changes nothing
    means = mean_losses(problem, points[1:, 1:]).mean(axis=0)
    return np.append(means[0], means)


def least_mixture(problem: Problem, seed: int) -> tuple[Mixture, Mixture]:
    """Find the mixture of the least mean among those that keep the limits, and the most
    probable one; both are the same where none keeps them.
    """
    free = least_mean(problem)
    if not problem.limits:
        return free, free
    sure = replace(problem, confidence=max(problem.confidences[0], 0.999))
    safest = max(
        (_safest_from(sure, first) for first in _starts(sure, 3, seed)),
        key=lambda choice: choice.margin,
    )
    shares = safest.levers
    if not problem.judge(*safest[:2]).is_kept:
        return shares, shares
    objective, limits = partial(_expected_mean, problem), _limits(problem)
    candidates = [free] + [
        _minimise(problem, objective, safest._replace(levers=first), limits)[1]
        for first in (shares, free)
    ]
    kept = [draw_back(problem, mixture, shares).levers for mixture in candidates]
    return _least_of(problem, kept), shares


def least_mean(problem: Problem, starts: int = 4) -> Mixture:
    """Minimise the mean loss over shares, from several mixtures, whatever the limits."""
    objective = partial(_expected_mean, problem)
    minima = [
        _minimise(problem, objective, Choice(problem.span[1], start, 0.0))[1]
        for start in _spread(problem, starts)
    ]
    return _least_of(problem, minima)


def _least_of(problem: Problem, mixtures: Sequence[Mixture]) -> Mixture:
    means = mean_losses(problem, np.stack(mixtures)).mean(axis=0)
    return mixtures[int(means.argmin())]


def draw_back(
    problem: Problem, shares: Mixture, safest: Mixture, rounds: int = 3
) -> Choice:
    """Move a mixture towards the safest one as far as the limits need it, on a ladder
    that is refined round by round; if no rung keeps them, take the most probable rung.
    """
    log_tokens = problem.span[1]
    near, far = 0.0, 1.0
    for _ in range(rounds):
        rungs = np.linspace(near, far, 17)
        mixtures = shares + rungs[:, None] * (safest - shares)
        _, margins = problem.room(problem.log_losses(np.array([log_tokens]), mixtures))
        margins = margins[:, 0]
        is_kept = margins >= 0
        place = int((is_kept if is_kept.any() else margins).argmax())
        if not is_kept.any():
            break
        near, far = rungs[max(place - 1, 0)], rungs[place]
    return Choice(log_tokens, mixtures[place], float(margins[place]))


def reach(
    problem: Problem, domain: int, best: Mixture, most: float
) -> tuple[float, float]:
    """Find the smallest and the largest share of a domain at which some mixture that
    keeps the limits has a mean loss of at most this value.
    """

    def left(points: Points) -> Float[np.ndarray, " point"]:
        return 100 * (1 - _expected_mean(problem, points) / most)

    start, limits = Choice(problem.span[1], best, 0.0), [left, *_limits(problem)]
    ends = []
    for sign in (1.0, -1.0):
        objective = partial(lambda s, points: s * points[:, 1 + domain], sign)
        ends.append(_minimise(problem, objective, start, limits)[1][domain])
    return float(min(ends)), float(max(ends))


def _spread(problem: Problem, count: int) -> Float[np.ndarray, "mixture domain"]:
    """Spread mixtures over the simplex, the middle one first."""
    size = len(problem.domains)
    tilted = generator(0, Stream.STARTS).dirichlet(np.ones(size), count)
    mixtures = np.concatenate([np.full((1, size), 1 / size), tilted])
    return onto_simplex(mixtures, *bounds_of(problem))


def best_of_each(problem: Problem, start: Mixture) -> Float[np.ndarray, "draw domain"]:
    """Find the best shares of each draw within the bounds: from the best of some mixtures
    share moves from one domain to another, by steps that are halved.
    """
    low, high = bounds_of(problem)
    mixtures = np.vstack([start, _spread(problem, 20)])
    means = mean_losses(problem, mixtures)
    shares, losses = mixtures[means.argmin(axis=1)], means.min(axis=1)
    draws, one = np.arange(len(losses)), np.eye(len(low))
    giver, taker = np.nonzero(1 - one)
    ways = (one[taker] - one[giver])[:, None]
    for step in 0.25 * 0.5 ** np.arange(9):
        for _ in range(2):
            room = np.minimum(
                shares[:, giver] - low[giver], high[taker] - shares[:, taker]
            )
            trial = shares + np.minimum(room, step).T[..., None] * ways
            means = mean_losses(problem, trial)
            best = means.argmin(axis=1)
            is_lower = means[draws, best] < losses
            if not is_lower.any():
                break
            shares = np.where(is_lower[:, None], trial[best, draws], shares)
            losses = np.minimum(losses, means[draws, best])
    return shares
