"""Search for the cheapest tokens and shares whose limits hold together in a stated
share of draws.

The draws are fixed. The margin of a draw is its distance below the nearest of its
limits, in log loss. A plan keeps its promise if the margin's quantile at 1 - confidence
is not negative (the sample approximation of Luedtke and Ahmed 2008). The quantile is
weighed over neighbouring ranks (Harrell and Davis 1982), so it has slopes. SLSQP (Kraft
1988) uses them to search tokens and shares, from several mixtures. At the shares that
it finds, the cheapest tokens are found on a ladder, by the plain share of draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import optimize, special

from bayeslaw._base.streams import Stream, generator
from bayeslaw._plans.mixing.sampled import SampledLosses

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class SetLimits:
    """Upper limits on losses, and on weighted means of them.

    ``weights``: weight of each evaluation set in each limit, shape (limit, set); rows
    sum to one. ``most``: the limits in nats per token, shape (limit,). ``names``: names
    of the limits.
    """

    names: tuple[str, ...]
    weights: Float[np.ndarray, "limit set"]
    most: Float[np.ndarray, " limit"]

    def margins(
        self, log_losses: Float[np.ndarray, "set draw"]
    ) -> Float[np.ndarray, "limit draw"]:
        """Compute the distance of each draw below each limit, in log loss."""
        means = self.weights @ np.exp(log_losses)
        return np.log(self.most)[:, None] - np.log(means)

    def slopes(
        self,
        log_losses: Float[np.ndarray, "set draw"],
        slopes: Float[np.ndarray, "set draw slope"],
    ) -> Float[np.ndarray, "limit draw slope"]:
        """Compute the slopes of `margins`."""
        losses = np.exp(log_losses)
        means = self.weights @ losses
        rises = np.einsum("ls,sd,sdk->ldk", self.weights, losses, slopes)
        return -rises / means[..., None]


class MixtureChoice(NamedTuple):
    """A budget and its mixture; ``is_kept`` tells whether the confidence is reached."""

    log_tokens: float
    shares: Float[np.ndarray, " domain"]
    probability: float
    is_kept: bool


def kept_share(margins: Float[np.ndarray, "limit draw"]) -> float:
    """Compute the share of draws that keep all limits."""
    return float((margins >= 0).all(axis=0).mean())


@dataclass(frozen=True, eq=False)
class SimplexProblem:
    """The search problem: fixed draws, limits, and bounds of tokens and shares.

    ``low``, ``high``: bounds of each domain's share, (domain,); ``tokens``: bounds of the
    budget; ``supply``: tokens of each domain that may be seen, repetitions included,
    (domain,).
    """

    losses: SampledLosses
    limits: SetLimits
    confidence: float
    low: Float[np.ndarray, " domain"]
    high: Float[np.ndarray, " domain"]
    tokens: tuple[float, float]
    supply: Float[np.ndarray, " domain"]

    def margins(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> Float[np.ndarray, "limit draw"]:
        """Compute the distance of each draw below each limit."""
        log_losses, _ = self.losses.at(log_tokens, shares)
        return self.limits.margins(log_losses)

    def kept(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> Bool[np.ndarray, "limit draw"]:
        """Tell which draws keep each limit."""
        return self.margins(log_tokens, shares) >= 0

    def probability(
        self, log_tokens: float, shares: Float[np.ndarray, " domain"]
    ) -> float:
        """Compute the share of draws that keep all limits."""
        return kept_share(self.margins(log_tokens, shares))

    def probabilities(
        self,
        log_tokens: Float[np.ndarray, " run"],
        shares: Float[np.ndarray, "run domain"],
    ) -> Float[np.ndarray, " run"]:
        """Compute the probability at each budget with its own mixture."""
        log_losses = np.moveaxis(self.losses.over(log_tokens, shares), -1, 0)
        return np.array([kept_share(self.limits.margins(run)) for run in log_losses])

    def quantile(
        self, point: Float[np.ndarray, " slope"]
    ) -> tuple[float, Float[np.ndarray, " slope"]]:
        """Compute the smooth quantile of the margin at log tokens and shares, and its
        slopes.
        """
        log_losses, slopes = self.losses.at(point[0], point[1:])
        margins = self.limits.margins(log_losses)
        nearest = margins.argmin(axis=0)
        draws = np.arange(margins.shape[1])
        of_margins = self.limits.slopes(log_losses, slopes)[nearest, draws]
        margin = margins[nearest, draws]
        order = np.argsort(margin)
        weights = np.empty(len(draws))
        weights[order] = rank_weights(len(draws), 1 - self.confidence)
        return float(weights @ margin), weights @ of_margins

    def most_tokens(self, shares: Float[np.ndarray, " domain"]) -> float:
        """Compute the largest log budget at these shares, limited by the budget and by
        each domain's supply.
        """
        needed = np.maximum(shares, 1e-12)
        return float(min(np.log(self.tokens[1]), np.log(self.supply / needed).min()))

    def ladder(
        self, low: float, high: float, shares: Float[np.ndarray, " domain"]
    ) -> tuple[Float[np.ndarray, " rung"], Float[np.ndarray, " rung"]]:
        """Compute probabilities of a mixture at evenly spaced log tokens, and return
        both.
        """
        rungs = np.linspace(low, high, 32 if high > low else 1)
        mixtures = np.tile(shares, (len(rungs), 1))
        return rungs, self.probabilities(rungs, mixtures)

    def cheapest(
        self, shares: Float[np.ndarray, " domain"], rounds: int = 3
    ) -> float | None:
        """Find the fewest log tokens at which these shares keep the limits, on a ladder
        that is refined round by round; None if no rung keeps them.
        """
        low, high = math.log(self.tokens[0]), self.most_tokens(shares)
        if high < low:
            return None
        for _ in range(rounds):
            rungs, probabilities = self.ladder(low, high, shares)
            safe_rungs = np.flatnonzero(probabilities >= self.confidence)
            if not len(safe_rungs):
                return None
            first = int(safe_rungs[0])
            high, low = float(rungs[first]), float(rungs[max(first - 1, 0)])
        return high

    def safest(self, shares: Float[np.ndarray, " domain"]) -> MixtureChoice:
        """Find the most probable budget of a mixture on a ladder. It need not be the
        largest, because far beyond the fitted tokens a law is less sure.
        """
        high = self.most_tokens(shares)
        low = min(math.log(self.tokens[0]), high)
        rungs, probabilities = self.ladder(low, high, shares)
        best = int(probabilities.argmax())
        probability = float(probabilities[best])
        return MixtureChoice(
            float(rungs[best]), shares, probability, probability >= self.confidence
        )


def limit_rows(problem: SimplexProblem, choice: MixtureChoice) -> list[dict[str, Any]]:
    """Describe each limit at the plan."""
    margins = problem.margins(choice.log_tokens, choice.shares)
    rows = []
    limits = problem.limits
    for name, most, margin in zip(limits.names, limits.most, margins, strict=True):
        rows.append(
            {
                "name": name,
                "limit": float(most),
                "probability": float((margin >= 0).mean()),
                **quantiles(most * np.exp(-margin)),
            }
        )
    return rows


def quantiles(
    losses: Float[np.ndarray, " draw"], tail: float = 0.05
) -> dict[str, float]:
    """Summarise a loss by its median and 90% interval."""
    low, median, high = np.quantile(losses, [tail, 0.5, 1 - tail])
    return {"median": float(median), "low": float(low), "high": float(high)}


def chances(limits: Sequence[Mapping[str, Any]], probability: float) -> str:
    """Say how probable it is that limits are kept: together, and each by itself."""
    of_each = ", ".join(f"{row['name']} {row['probability']:.1%}" for row in limits)
    return f"All limits are kept with probability {probability:.1%} ({of_each})"


def rank_weights(draws: int, q: float) -> Float[np.ndarray, " draw"]:
    """Compute the weights of the order statistics in the quantile of Harrell and Davis
    1982.
    """
    ends = np.arange(draws + 1) / draws
    below = special.betainc((draws + 1) * q, (draws + 1) * (1 - q), ends)
    return np.diff(below)


def search(problem: SimplexProblem, starts: int = 3, seed: int = 0) -> MixtureChoice:
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


def most_probable(problem: SimplexProblem, seed: int, starts: int = 3) -> MixtureChoice:
    """Find the most probable choice; one that keeps the limits is probable enough."""
    safest = [_safest_from(problem, first) for first in _starts(problem, starts, seed)]
    return max(safest, key=lambda choice: choice.probability)


def _starts(
    problem: SimplexProblem, count: int, seed: int, tries: int = 15
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
    low: Float[np.ndarray, " domain"],
    high: Float[np.ndarray, " domain"],
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
    problem: SimplexProblem,
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
            problem, lambda point: (point[0], slope), start[:2], [keeps_limits(aim)]
        )
        log_tokens = problem.cheapest(mixture)
        if log_tokens is not None:
            probability = problem.probability(log_tokens, mixture)
            return MixtureChoice(log_tokens, mixture, probability, True)
    return None


def _safest_from(
    problem: SimplexProblem, start: MixtureChoice, rounds: int = 4
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
        log_tokens = min(log_tokens, aim.most_tokens(shares))
        chance = problem.probability(log_tokens, shares)
        if chance >= choice.probability:
            is_kept = chance >= problem.confidence
            choice = MixtureChoice(log_tokens, shares, chance, is_kept)
        # a quantile far in a tail rests on few draws
        aim = replace(problem, confidence=float(np.clip(chance, 0.02, 0.98)))
    return choice


def minimise(
    problem: SimplexProblem,
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


def _of_supply(problem: SimplexProblem) -> list[Any]:
    """Build constraints for SLSQP: shares sum to one, and no domain gives more tokens
    than it has.
    """
    size = len(problem.low)
    total = np.concatenate([[0.0], np.ones(size)])
    constraints = [
        {"type": "eq", "fun": lambda x: x[1:].sum() - 1, "jac": lambda x: total}
    ]
    finite = np.flatnonzero(np.isfinite(problem.supply))
    if not len(finite):
        return constraints

    def left(x):
        needed = np.log(np.maximum(x[1 + finite], 1e-9))
        return np.log(problem.supply[finite]) - x[0] - needed

    def slopes(x):
        rows = np.zeros((len(finite), 1 + size))
        rows[:, 0] = -1.0
        rows[np.arange(len(finite)), 1 + finite] = -1 / np.maximum(x[1 + finite], 1e-9)
        return rows

    return [*constraints, {"type": "ineq", "fun": left, "jac": slopes}]


def keeps_limits(problem: SimplexProblem) -> dict[str, Any]:
    """State for SLSQP that the limits hold with the confidence, in percent of the loss."""

    def margin(point: Float[np.ndarray, " slope"]) -> tuple:
        value, slopes = problem.quantile(point)
        return 100 * value, 100 * slopes

    return at_least_0(margin)


def at_least_0(function: Callable) -> dict[str, Any]:
    """State for SLSQP that a function with slopes is not negative. Its last value is
    kept, because SLSQP evaluates each point twice.
    """
    last: dict[bytes, Any] = {}

    def of_point(point: Float[np.ndarray, " slope"]) -> Any:
        key = point.tobytes()
        if key not in last:
            last.clear()
            last[key] = function(point)
        return last[key]

    return {
        "type": "ineq",
        "fun": lambda point: of_point(point)[0],
        "jac": lambda point: of_point(point)[1],
    }
