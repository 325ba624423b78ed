"""Search for the cheapest tokens and shares whose limits hold together in a stated
share of draws, and for the shares of the least mean loss at a budget.

The draws are fixed. The margin of a draw is its distance below the nearest of its
limits, in log loss. A plan keeps its promise if the margin's quantile at 1 - confidence
is not negative (the sample approximation of Luedtke and Ahmed 2008). The quantile is
weighed over neighbouring ranks (Harrell and Davis 1982), so it has slopes. SLSQP (Kraft
1988) uses them to search tokens and shares, from several mixtures. The plain share of
draws then decides: at the shares that SLSQP finds, the cheapest tokens are found on a
ladder; at a budget, shares that are short are drawn back towards the most probable ones.
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

if TYPE_CHECKING:
    from jaxtyping import Float

    Mixture = Float[np.ndarray, " domain"]
    Mixtures = Float[np.ndarray, "mixture domain"]
    Point = Float[np.ndarray, " slope"]  # log tokens, then shares; or slopes along them

# of SLSQP, in log tokens, percent of a loss, or a mean loss: an optimum is flat, so shares
# are known to the root of it; at 1e-5 they depended on the last digits of sums
TOLERANCE = 1e-7


def search(problem: Problem, starts: int = 3, seed: int = 0) -> Choice:
    """Find the cheapest choice that keeps the limits; else the most probable one."""
    firsts = _starts(problem, starts, seed)
    safest = [_safest_from(problem, first) for first in firsts]
    candidates = [_cheapest_from(problem, start) for start in safest if start.is_kept]
    choices = [choice for choice in candidates if choice is not None]
    if choices:
        return min(choices, key=lambda choice: choice.log_tokens)
    return max(safest, key=lambda choice: choice.margin)


def _starts(problem: Problem, count: int, seed: int, tries: int = 15) -> list[Choice]:
    """Choose the starts: the most probable of some mixtures within the bounds, the
    middle one included, each at its most probable budget.
    """
    rng = generator(seed, Stream.STARTS)
    low, high = bounds_of(problem)
    corners = low + rng.dirichlet(np.full(len(low), 0.7), tries) * (1 - low.sum())
    middle = (low + high) / (low + high).sum()
    mixtures = onto_simplex(np.stack([middle, *corners]), low, high)
    choices = [_safest_tokens(problem, shares) for shares in mixtures]
    ranked = sorted(choices[1:], key=lambda choice: -choice.margin)
    return [choices[0], *ranked[: count - 1]]


def bounds_of(problem: Problem) -> tuple[Mixture, Mixture]:
    """Find the least and the largest share of each domain at the smallest budget."""
    return problem.least, problem.most_shares(math.exp(problem.span[0]))


def onto_simplex(
    shares: Float[np.ndarray, "*draw domain"],
    low: Float[np.ndarray, "*#draw domain"],
    high: Float[np.ndarray, "*#draw domain"],
    scale: Float[np.ndarray, "*draw domain"] | float = 1.0,
    halvings: int = 60,
) -> Float[np.ndarray, "*draw domain"]:
    """Project mixtures onto the simplex within bounds: shares are shifted and clipped so
    that they sum to one, by bisection (Held, Wolfe and Crowder 1974).

    ``scale``: squares of distances are divided by it, so that shifts grow with it; by
    default all shares are shifted equally.
    """
    far = (1 + np.abs(shares)) / scale
    above = far.max(axis=-1, keepdims=True)
    below = -above
    for _ in range(halvings):
        middle = (below + above) / 2
        shifted = np.clip(shares + scale * middle, low, high)
        is_short = shifted.sum(axis=-1, keepdims=True) < 1
        below, above = (
            np.where(is_short, middle, below),
            np.where(is_short, above, middle),
        )
    return np.clip(shares + scale * (below + above) / 2, low, high)


def _cheapest_from(
    problem: Problem, start: Choice, reserves: Sequence[float] = (0.0, 0.01, 0.02)
) -> Choice | None:
    """Minimise tokens by SLSQP from a choice, then find the tokens on a ladder at the
    resulting shares.

    Where a domain's supply ends, the plain share of draws may be just short of the
    confidence, and there are no more tokens. SLSQP then aims higher by a reserve.
    """
    slope, asked = np.eye(1 + len(start.levers))[0], problem.confidences[0]
    for reserve in reserves:
        aim = replace(problem, confidence=min(asked + reserve, 0.999))
        _, mixture = minimise(
            problem, lambda point: (point[0], slope), start[:2], keeps_limits(aim)
        )
        log_tokens = fewest_tokens(problem, mixture)
        if log_tokens is not None:
            return Choice(log_tokens, mixture, 0.0)
    return None


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

        def loss(point, aim=aim):
            margin, slopes = smooth_quantile(aim, point)
            return -100 * margin, -100 * slopes

        log_tokens, shares = minimise(aim, loss, choice[:2])
        log_tokens = min(log_tokens, float(problem.log_cap(shares)))
        found = problem.judge(log_tokens, shares)
        if found.margin >= choice.margin:
            choice = found
        # a quantile far in a tail rests on few draws
        share = problem.kept(log_tokens, shares).all(axis=0).mean()
        aim = replace(problem, confidence=float(np.clip(share, 0.02, 0.98)))
    return choice


# -- tokens of a mixture -----------------------------------------------------------------


def fewest_tokens(problem: Problem, shares: Mixture, rounds: int = 3) -> float | None:
    """Find the fewest log tokens at which these shares keep the limits, on a ladder that
    is refined round by round; None if no rung keeps them.
    """
    low, high = problem.span[0], float(problem.log_cap(shares))
    if high < low:
        return None
    for _ in range(rounds):
        rungs, margins = _climb(problem, low, high, shares)
        safe_rungs = np.flatnonzero(margins >= 0)
        if not len(safe_rungs):
            return None
        first = int(safe_rungs[0])
        high, low = float(rungs[first]), float(rungs[max(first - 1, 0)])
    return high


def _safest_tokens(problem: Problem, shares: Mixture) -> Choice:
    """Find the most probable budget of a mixture on a ladder. It need not be the
    largest, because far beyond the fitted tokens a law is less sure.
    """
    high = float(problem.log_cap(shares))
    rungs, margins = _climb(problem, min(problem.span[0], high), high, shares)
    best = int(margins.argmax())
    return Choice(float(rungs[best]), shares, float(margins[best]))


def _climb(
    problem: Problem, low: float, high: float, shares: Mixture
) -> tuple[Float[np.ndarray, " rung"], Float[np.ndarray, " rung"]]:
    """Compute margins of a mixture on a ladder of evenly spaced log tokens."""
    rungs = np.linspace(low, high, 32 if high > low else 1)
    return rungs, margins_of(problem, rungs, shares[None])[0]


def margins_of(
    problem: Problem, log_tokens: Float[np.ndarray, " tokens"], mixtures: Mixtures
) -> Float[np.ndarray, "mixture tokens"]:
    _, margins = problem.room(problem.log_losses(log_tokens, mixtures))
    return margins


def minimise(
    problem: Problem,
    objective: Callable,
    start: tuple[float, Mixture],
    further: Sequence[Any] = (),
) -> tuple[float, Mixture]:
    """Minimise an objective over log tokens and shares by SLSQP, from a choice.

    Parameters
    ----------
    objective
        Value and slopes at a point: log tokens, then shares.
    further
        Constraints in addition to the simplex and the supply.
    """
    log_low, log_high = problem.span
    low, high = bounds_of(problem)
    solution = optimize.minimize(
        objective,
        np.array([start[0], *start[1]]),
        jac=True,
        method="SLSQP",
        bounds=optimize.Bounds(np.array([log_low, *low]), np.array([log_high, *high])),
        constraints=[*_of_supply(problem), *further],
        options={"maxiter": 60, "ftol": TOLERANCE},
    )
    mixture = onto_simplex(solution.x[1:], low, high)
    return float(solution.x[0]), mixture


def _of_supply(problem: Problem) -> list[Any]:
    """Constrain SLSQP: shares sum to one, and no supply is exceeded."""
    total = np.append(0.0, np.ones(len(problem.domains)))
    whole = {"type": "eq", "fun": lambda x: total @ x - 1, "jac": lambda x: total}
    finite = np.array([problem.domains.index(name) for name in problem.seen], int)
    supply = np.array([*problem.seen.values()])
    if not len(finite):
        return [whole]

    def left(x):
        shares = np.maximum(x[1 + finite], 1e-9)
        slopes = np.zeros((len(finite), len(x)))
        slopes[:, 0] = -1.0
        slopes[np.arange(len(finite)), 1 + finite] = -1 / shares
        return np.log(supply) - x[0] - np.log(shares), slopes

    return [whole, at_least_0(left)]


def keeps_limits(problem: Problem) -> list[Any]:
    """State for SLSQP that the limits hold with the confidence, in percent of the loss."""

    def margin(point: Point) -> tuple:
        value, slopes = smooth_quantile(problem, point)
        return 100 * value, 100 * slopes

    return [at_least_0(margin)] if problem.limits else []


def smooth_quantile(problem: Problem, point: Point) -> tuple[float, Point]:
    """Compute the smooth quantile of the margin at log tokens and shares, and its slopes."""
    columns = tuple(problem.columns_of(point[1:]))
    losses = [c.with_slopes(columns, point) for c in problem.constraints]
    margins = np.stack(problem.below([log_loss for log_loss, _ in losses]))
    # of each draw its nearest limit
    nearest, draws = margins.argmin(axis=0), np.arange(margins.shape[1])
    margin = margins[nearest, draws]
    falls = -np.stack([slopes for _, slopes in losses])[nearest, draws]
    weights = np.empty(len(draws))
    ranks = rank_weights(len(draws), 1 - problem.confidences[0])
    weights[np.argsort(margin)] = ranks
    # without BLAS: the search follows last digits, which depend on its threads
    return float((weights * margin).sum()), np.einsum("d,dk->k", weights, falls)


def rank_weights(draws: int, q: float) -> Float[np.ndarray, " draw"]:
    """Compute the order statistics' weights in Harrell and Davis' quantile (1982)."""
    ends = np.arange(draws + 1) / draws
    below = special.betainc((draws + 1) * q, (draws + 1) * (1 - q), ends)
    return np.diff(below)


def at_least_0(function: Callable) -> dict[str, Any]:
    """State for SLSQP that a function with slopes is not negative. Its last value is
    kept, because SLSQP evaluates each point twice.
    """
    last = lru_cache(maxsize=1)(lambda point: function(np.array(point)))
    return {
        "type": "ineq",
        "fun": lambda point: last(tuple(point))[0],
        "jac": lambda point: last(tuple(point))[1],
    }


# -- the least mean at a budget ----------------------------------------------------------


def mean_losses(
    problem: Problem, log_tokens: float, mixtures: Mixtures
) -> Float[np.ndarray, "draw mixture"]:
    """Compute the weighted mean of each draw's losses at several mixtures."""
    assert problem.mean is not None
    x, columns = np.array([log_tokens]), problem.columns_of(mixtures)
    return np.exp(problem.mean.log_losses_on_grid(x, columns)[..., 0])


def mean_loss(
    problem: Problem, point: Float[np.ndarray, " slope *draw"]
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw slope"]]:
    """Compute the weighted mean of each draw's losses at log tokens and shares, common
    or of each draw's own, and its slopes.
    """
    assert problem.mean is not None
    columns = tuple(problem.columns_of(point[1:].T))
    log_losses, slopes = problem.mean.with_slopes(columns, point)
    losses = np.exp(log_losses)
    return losses, losses[:, None] * slopes


def expected_mean(problem: Problem, point: Point) -> tuple[float, Point]:
    losses, slopes = mean_loss(problem, point)
    return float(losses.mean()), slopes.mean(axis=0)


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
    at, shares = safest[:2]
    if not problem.judge(at, shares).is_kept:
        return shares, shares
    limits = keeps_limits(problem)
    candidates = [free] + [
        minimise(problem, partial(expected_mean, problem), (at, first), limits)[1]
        for first in (shares, free)
    ]
    kept = [draw_back(problem, mixture, shares).levers for mixture in candidates]
    return _least_of(problem, kept), shares


def least_mean(problem: Problem, starts: int = 4) -> Mixture:
    """Minimise the mean loss over shares, from several mixtures, whatever the limits."""
    x, objective = problem.span[1], partial(expected_mean, problem)
    minima = [
        minimise(problem, objective, (x, start))[1]
        for start in _spread(problem, starts)
    ]
    return _least_of(problem, minima)


def _least_of(problem: Problem, mixtures: Sequence[Mixture]) -> Mixture:
    means = mean_losses(problem, problem.span[1], np.stack(mixtures)).mean(axis=0)
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
        margins = margins_of(problem, np.array([log_tokens]), mixtures)[:, 0]
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

    def left(point: Point) -> tuple:
        mean, slopes = expected_mean(problem, point)
        return 100 * (most - mean) / most, -100 * slopes / most

    limits, start = keeps_limits(problem), (problem.span[1], best)
    ends = []
    for sign in (1.0, -1.0):
        slope = sign * np.eye(1 + len(best))[1 + domain]
        _, shares = minimise(
            problem,
            lambda point, slope=slope: (slope @ point, slope),
            start,
            [at_least_0(left), *limits],
        )
        ends.append(float(shares[domain]))
    return min(ends), max(ends)


def _spread(problem: Problem, count: int) -> Mixtures:
    """Spread mixtures over the simplex, the middle one first."""
    size = len(problem.domains)
    tilted = generator(0, Stream.STARTS).dirichlet(np.ones(size), count)
    mixtures = np.concatenate([np.full((1, size), 1 / size), tilted])
    return onto_simplex(mixtures, *bounds_of(problem))


def best_of_each(
    problem: Problem,
    start: Mixture,
    steps: int = 150,
    least_share: float = 0.02,
    near: float = 3e-5,
) -> Float[np.ndarray, "draw domain"]:
    """Find the best shares of each draw within the bounds, shape (draw, domain), by
    projected gradients (Bertsekas 1976).

    Gradients are scaled by the shares, because laws bend most where a share is
    small. A step and the projection have the same scale; so a mixture stays where it
    is only if it is a minimum, also where bounds bind. A step that does not lower
    the loss is taken back, and halved.
    """

    low, high = bounds_of(problem)

    def each(
        shares: Float[np.ndarray, "draw domain"],
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw domain"]]:
        log_tokens = np.full(len(shares), problem.span[1])
        losses, slopes = mean_loss(problem, np.array([log_tokens, *shares.T]))
        return losses, slopes[:, 1:]

    # from the best of some mixtures for each draw
    mixtures = np.vstack([start, _spread(problem, 20)])
    means = mean_losses(problem, problem.span[1], mixtures)
    shares = mixtures[means.argmin(axis=1)]
    losses, slopes = each(shares)
    rate = np.ones((len(shares), 1))
    for _ in range(steps):
        scale = np.maximum(shares, least_share)
        trial = onto_simplex(shares - rate * scale * slopes, low, high, scale)
        moved = np.abs(trial - shares).max()
        trial_losses, trial_slopes = each(trial)
        is_lower = (trial_losses <= losses)[:, None]
        shares = np.where(is_lower, trial, shares)
        slopes = np.where(is_lower, trial_slopes, slopes)
        losses = np.minimum(losses, trial_losses)
        rate = np.where(is_lower, 1.5 * rate, 0.5 * rate)
        if moved < near:
            break
    return shares
