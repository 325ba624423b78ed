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
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import optimize

from bayeslaw._base.streams import Stream, generator
from bayeslaw._plans.mixing.problem import MixtureChoice, MixtureProblem

if TYPE_CHECKING:
    from jaxtyping import Float

FINE = 1e-7  # tolerance of SLSQP where a mean loss is compared with others


def search(problem: MixtureProblem, starts: int = 3, seed: int = 0) -> MixtureChoice:
    """Find the cheapest choice that keeps the limits; else the most probable one."""
    firsts = _starts(problem, starts, seed)
    safest = [_safest_from(problem, first) for first in firsts]
    candidates = [
        _cheapest_from(problem, start) for start in (*firsts, *safest) if start.is_kept
    ]
    choices = [choice for choice in candidates if choice is not None]
    if choices:
        return min(choices, key=lambda choice: choice.log_tokens)
    return max(safest, key=lambda choice: choice.probability)


def most_probable(problem: MixtureProblem, seed: int, starts: int = 3) -> MixtureChoice:
    """Find the most probable choice; one that keeps the limits is probable enough."""
    safest = [_safest_from(problem, first) for first in _starts(problem, starts, seed)]
    return max(safest, key=lambda choice: choice.probability)


def _starts(
    problem: MixtureProblem, count: int, seed: int, tries: int = 15
) -> list[MixtureChoice]:
    """Choose the starts: the most probable of some mixtures within the bounds, the
    middle one included, each at its most probable budget.
    """
    rng = generator(seed, Stream.STARTS)
    low, high = problem.low, problem.high
    corners = low + rng.dirichlet(np.full(len(low), 0.7), tries) * (1 - low.sum())
    middle = (low + high) / (low + high).sum()
    mixtures = onto_simplex(np.stack([middle, *corners]), low, high)
    choices = [problem.safest(shares) for shares in mixtures]
    ranked = sorted(choices[1:], key=lambda choice: -choice.probability)
    return [choices[0], *ranked[: count - 1]]


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
    problem: MixtureProblem,
    start: MixtureChoice,
    reserves: Sequence[float] = (0.0, 0.01, 0.02),
) -> MixtureChoice | None:
    """Minimise tokens by SLSQP from a choice, then find the tokens on a ladder at the
    resulting shares.

    Where a domain's supply ends, the plain share of draws may be just short of the
    confidence, and there are no more tokens. SLSQP then aims higher by a reserve.
    """
    slope = np.eye(1 + len(start.shares))[0]
    for reserve in reserves:
        aim = replace(problem, confidence=min(problem.confidence + reserve, 0.999))
        _, mixture = minimise(
            problem, lambda point: (point[0], slope), start[:2], keeps_limits(aim)
        )
        log_tokens = problem.cheapest(mixture)
        if log_tokens is not None:
            return problem.choice(log_tokens, mixture)._replace(is_kept=True)
    return None


def _safest_from(
    problem: MixtureProblem, start: MixtureChoice, rounds: int = 4
) -> MixtureChoice:
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
            margin, slopes = aim.quantile(point)
            return -100 * margin, -100 * slopes

        log_tokens, shares = minimise(aim, loss, choice[:2])
        found = problem.choice(min(log_tokens, aim.most_tokens(shares)), shares)
        if found.probability >= choice.probability:
            choice = found
        # a quantile far in a tail rests on few draws
        share = float(np.clip(found.probability, 0.02, 0.98))
        aim = replace(problem, confidence=share)
    return choice


def minimise(
    problem: MixtureProblem,
    objective: Callable,
    start: tuple[float, Float[np.ndarray, " domain"]],
    further: Sequence[Any] = (),
    ftol: float = 1e-5,
) -> tuple[float, Float[np.ndarray, " domain"]]:
    """Minimise an objective over log tokens and shares by SLSQP, from a choice.

    Parameters
    ----------
    objective
        Value and slopes at a point: log tokens, then shares.
    further
        Constraints in addition to the simplex and the supply.
    """
    log_low, log_high = map(math.log, problem.tokens)
    solution = optimize.minimize(
        objective,
        np.array([start[0], *start[1]]),
        jac=True,
        method="SLSQP",
        bounds=optimize.Bounds(
            np.array([log_low, *problem.low]), np.array([log_high, *problem.high])
        ),
        constraints=[*_of_supply(problem), *further],
        options={"maxiter": 60, "ftol": ftol},
    )
    mixture = onto_simplex(solution.x[1:], problem.low, problem.high)
    return float(solution.x[0]), mixture


def _of_supply(problem: MixtureProblem) -> list[Any]:
    """Build constraints for SLSQP: shares sum to one, and no domain gives more tokens
    than it has.
    """
    total = np.append(0.0, np.ones(len(problem.low)))
    whole = {"type": "eq", "fun": lambda x: total @ x - 1, "jac": lambda x: total}
    finite = np.flatnonzero(np.isfinite(problem.supply))
    if not len(finite):
        return [whole]

    def left(x):
        shares = np.maximum(x[1 + finite], 1e-9)
        slopes = np.zeros((len(finite), len(x)))
        slopes[:, 0] = -1.0
        slopes[np.arange(len(finite)), 1 + finite] = -1 / shares
        return np.log(problem.supply[finite]) - x[0] - np.log(shares), slopes

    return [whole, at_least_0(left)]


def keeps_limits(problem: MixtureProblem) -> list[Any]:
    """State for SLSQP that the limits hold with the confidence, in percent of the loss."""

    def margin(point: Float[np.ndarray, " slope"]) -> tuple:
        value, slopes = problem.quantile(point)
        return 100 * value, 100 * slopes

    return [at_least_0(margin)] if problem.limits else []


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


def least_mixture(
    problem: MixtureProblem,
) -> tuple[Float[np.ndarray, " domain"], Float[np.ndarray, " domain"]]:
    """Find the mixture of the least mean among those that keep the limits, and the most
    probable one; both are the same where none keeps them.
    """
    free = least_mean(problem)
    if not problem.limits:
        return free, free
    sure = replace(problem, confidence=max(problem.confidence, 0.999))
    safest = most_probable(sure, problem.question.seed)
    if safest.probability < problem.confidence:
        return safest.shares, safest.shares
    candidates = [free]
    for start in (safest.shares, free):
        at = safest.log_tokens, start
        limits = keeps_limits(problem)
        candidates.append(minimise(problem, problem.mean_loss, at, limits, FINE)[1])
    kept = [draw_back(problem, p, safest.shares).shares for p in candidates]
    return _least_of(problem, kept), safest.shares


def least_mean(
    problem: MixtureProblem, starts: int = 4
) -> Float[np.ndarray, " domain"]:
    """Minimise the mean loss over shares, from several mixtures, whatever the limits."""
    x = math.log(problem.tokens[1])
    minima = [
        minimise(problem, problem.mean_loss, (x, start), ftol=FINE)[1]
        for start in _spread(problem, starts)
    ]
    return _least_of(problem, minima)


def _least_of(
    problem: MixtureProblem, mixtures: Sequence[Float[np.ndarray, " domain"]]
) -> Float[np.ndarray, " domain"]:
    x = math.log(problem.tokens[1])
    return min(mixtures, key=lambda shares: problem.mean_losses(x, shares).mean())


def draw_back(
    problem: MixtureProblem,
    shares: Float[np.ndarray, " domain"],
    safest: Float[np.ndarray, " domain"],
    rounds: int = 3,
) -> MixtureChoice:
    """Move a mixture towards the safest one as far as the limits need it, on a ladder
    that is refined round by round; if no rung keeps them, take the most probable rung.
    """
    log_tokens = math.log(problem.tokens[1])
    near, far = 0.0, 1.0
    for _ in range(rounds):
        rungs = np.linspace(near, far, 17)
        mixtures = shares + rungs[:, None] * (safest - shares)
        chances = problem.probabilities(np.array([log_tokens]), mixtures)[:, 0]
        is_kept = chances >= problem.confidence
        place = int((is_kept if is_kept.any() else chances).argmax())
        if not is_kept.any():
            break
        near, far = rungs[max(place - 1, 0)], rungs[place]
    return MixtureChoice(
        log_tokens, mixtures[place], float(chances[place]), bool(is_kept[place])
    )


def reach(
    problem: MixtureProblem,
    domain: int,
    best: Float[np.ndarray, " domain"],
    most: float,
) -> tuple[float, float]:
    """Find the smallest and the largest share of a domain at which some mixture that
    keeps the limits has a mean loss of at most this value.
    """

    def left(point: Float[np.ndarray, " slope"]) -> tuple:
        mean, slopes = problem.mean_loss(point)
        return 100 * (most - mean) / most, -100 * slopes / most

    limits, start = keeps_limits(problem), (math.log(problem.tokens[1]), best)
    ends = []
    for sign in (1.0, -1.0):
        slope = sign * np.eye(1 + len(best))[1 + domain]
        _, shares = minimise(
            problem,
            lambda point, slope=slope: (slope @ point, slope),
            start,
            [at_least_0(left), *limits],
            FINE,
        )
        ends.append(float(shares[domain]))
    return min(ends), max(ends)


def _spread(problem: MixtureProblem, count: int) -> Float[np.ndarray, "mixture domain"]:
    """Spread mixtures over the simplex, the middle one first."""
    size = len(problem.low)
    tilted = generator(0, Stream.STARTS).dirichlet(np.ones(size), count)
    mixtures = np.concatenate([np.full((1, size), 1 / size), tilted])
    return onto_simplex(mixtures, problem.low, problem.high)


def best_of_each(
    problem: MixtureProblem,
    start: Float[np.ndarray, " domain"],
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

    log_tokens = math.log(problem.tokens[1])

    def each(
        shares: Float[np.ndarray, "draw domain"],
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw domain"]]:
        points = np.array([np.full(len(shares), log_tokens), *shares.T])
        log_losses, slopes = problem.mean.with_slopes(problem.share_columns, points)
        losses = np.exp(log_losses)
        return losses, losses[:, None] * slopes[:, 1:]

    # from the best of some mixtures for each draw
    mixtures = np.vstack([start, _spread(problem, 20)])
    means = problem.over(problem.mean, np.array([log_tokens]), mixtures)[..., 0]
    shares = mixtures[means.argmin(axis=1)]
    losses, slopes = each(shares)
    rate = np.ones((len(shares), 1))
    for _ in range(steps):
        scale = np.maximum(shares, least_share)
        trial = onto_simplex(
            shares - rate * scale * slopes,
            problem.low,
            problem.high,
            scale,
        )
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
