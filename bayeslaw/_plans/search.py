"""Define the chance-constrained problem of one model, and solve it by a search over
replay.

At a given replay the cheapest tokens are found exactly (`cheapest`). Along replay the
cost is nearly smooth, but with many small local minima, because it is an order
statistic of draws. Therefore the search is a scan, a bounded search, and challenges by
cheaper budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy import optimize

from bayeslaw._base.machine import runtime
from bayeslaw._costs.costs import Costs
from bayeslaw._plans.sampled import (
    SampledConstraint,
    cheapest,
    draws_needed,
    intersect,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from bayeslaw._plans.sampled import Intervals

    Scan = list[list[Intervals]]
    """Intervals at every replay of `SCAN`: by replay, then by constraint."""

Result = TypeVar("Result")

SCAN = np.linspace(0.0, 1.0, 32)


class ReplaySearch(NamedTuple):
    """Settings of the search over replay."""

    thin: int = 8  # the scan uses one draw in eight
    small: int = 1600  # below this number of draws it uses all of them
    xatol: float = 2e-4  # accuracy of the search coordinate
    all_replay: float = 1 - 1e-9  # no target token is seen
    at_a_bound: float = 1e-4  # distance at which a plan counts as at a bound


SEARCH = ReplaySearch()


class Choice(NamedTuple):
    """Log tokens, replay, and margin: share of draws that keep the constraints, minus
    confidence. With a negative margin the confidence is not reached.
    """

    log_tokens: float
    replay: float
    margin: float


@dataclass(frozen=True, eq=False)
class Problem:
    """The cheapest (tokens, replay) that keeps all constraints in enough draws.

    Parameters
    ----------
    constraints
        The target first, then the sources; draws are paired across constraints.
    confidence
        Confidence of all constraints together, or one for each by name.
    N, ptpp
        The model: parameters, and pre-training tokens per parameter; None: not known.
    max_tokens
        Budget of adaptation tokens; if finite, the probability is maximised within it.
    unique_tokens
        Maximum of target tokens, repetitions included.
    min_replay, max_replay
        Least and largest share of source data.
    fitted
        Names of the replay bounds that come from the fitted runs, not from the user.
    costs
        Costs of training.
    cap
        Origin of ``max_tokens``: a budget, or the limit of `COST_LIMITS` that binds.
    targets
        Names of the constraints on domains that are adapted to.
    """

    constraints: tuple[SampledConstraint, ...]
    confidence: float | Mapping[str, float]
    N: float
    ptpp: float | None
    max_tokens: float = math.inf
    unique_tokens: float = math.inf
    min_replay: float = 0.0
    max_replay: float = 1.0
    fitted: tuple[str, ...] = ()
    costs: Costs = field(default_factory=Costs)
    cap: str = "budget"
    targets: tuple[str, ...] = ("target",)

    @property
    def draws(self) -> int:
        return self.constraints[0].draws

    @property
    def most_probable(self) -> bool:
        return math.isfinite(self.max_tokens)

    @property
    def span(self) -> tuple[float, float]:
        """Range of log tokens that is searched."""
        return self.constraints[0].span

    @property
    def shares(self) -> tuple[float, ...]:
        """Confidence of each group of constraints."""
        confidence = self.confidence
        if isinstance(confidence, Mapping):
            return tuple(confidence[c.name] for c in self.constraints)
        return (confidence,)

    # -- replay ------------------------------------------------------------------------

    def replay(self, u: Float[np.ndarray, "*point"] | float) -> Float[Any, "*point"]:
        """Map search coordinates in [0, 1], of any shape, to replay.

        The map is the inverse arcsine transform; equal steps of u are fine steps of
        replay near both bounds.
        """
        # u = 2 / pi asin(sqrt(share)).
        share = np.sin(np.pi / 2 * np.asarray(u)) ** 2
        return self.min_replay + (self.max_replay - self.min_replay) * share

    def coordinate(self, replay: float) -> float:
        """Compute the search coordinate of a replay."""
        width = max(self.max_replay - self.min_replay, 1e-300)
        share = (replay - self.min_replay) / width
        angle = math.asin(math.sqrt(min(max(share, 0.0), 1.0)))
        return 2 / np.pi * angle

    def bounds_met(self, replay: float) -> list[str]:
        """Name the bounds of replay that this replay meets."""
        met = []
        if self.min_replay > 0 and replay < self.min_replay + SEARCH.at_a_bound:
            met.append("min_replay")
        if self.max_replay < 1 and replay > self.max_replay - SEARCH.at_a_bound:
            met.append("max_replay")
        return met

    def log_cap(
        self, replay: Float[np.ndarray, "*point"] | float
    ) -> Float[Any, "*point"]:
        """Compute the largest log tokens within budget and unique target tokens, of the
        shape of ``replay``; -inf at 100% replay, which has no target tokens.
        """
        target_share = np.maximum(1 - np.asarray(replay), 1e-300)
        # D (1 - replay) <= unique tokens.
        by_target_tokens = math.log(self.unique_tokens) - np.log(target_share)
        by_budget = min(math.log(self.max_tokens), self.span[1])
        cap = np.minimum(by_budget, by_target_tokens)
        return np.where(np.asarray(replay) < SEARCH.all_replay, cap, -np.inf)

    # -- shares of draws ---------------------------------------------------------------

    def intervals(self, replay: Float[np.ndarray, " draw"] | float) -> list[Intervals]:
        """Find the intervals in which each draw keeps each constraint.

        ``replay``: one number, or one for each draw, shape (draw,).
        """
        rows = np.broadcast_to(np.asarray(replay, float), self.draws)
        return self.by_constraint(lambda c: c.intervals(rows))

    def by_constraint(
        self, function: Callable[[SampledConstraint], Result]
    ) -> list[Result]:
        """Apply a function to each constraint, in parallel threads."""
        # compiled programs, and the compiler, release Python's lock
        with runtime.threads(min(len(self.constraints), runtime.cores())) as pool:
            return list(pool.map(function, self.constraints))

    @cached_property
    def quick_scan(self) -> Scan:
        """Scan that starts a search, with one draw in eight if there are many."""
        return scan(self, 1 if self.draws < SEARCH.small else SEARCH.thin)

    def groups(self, intervals: Sequence[Intervals]) -> list[Intervals]:
        """Group intervals by confidence: one group per constraint, or one of all."""
        if isinstance(self.confidence, Mapping):
            return list(intervals)
        return [reduce(intersect, intervals)]

    def at(self, replay: float, intervals: Sequence[Intervals] | None = None) -> Choice:
        """Find the best tokens at a replay."""
        if intervals is None:
            intervals = self.intervals(replay)
        tokens, margin = cheapest(
            self.groups(intervals),
            self.shares,
            float(self.log_cap(replay)),
            self.most_probable,
        )
        return Choice(tokens, replay, margin)

    def score(self, choice: Choice) -> float:
        """Compute the objective that the search over replay minimises.

        It is log tokens if the confidence is reached, else a penalty of the shortfall.
        """
        tokens = min(choice.log_tokens, self.span[1])
        if self.most_probable:
            return 1e-6 * tokens - choice.margin
        return tokens if choice.margin >= 0 else self.span[1] + 1 - 10 * choice.margin

    def kept(
        self,
        log_tokens: float,
        replay: Float[np.ndarray, " draw"] | float,
    ) -> Bool[np.ndarray, "constraint draw"]:
        """Tell whether each draw keeps each constraint, shape (constraint, draw)."""
        return np.stack(
            [c.log_losses(log_tokens, replay) <= c.log_limit for c in self.constraints]
        )

    def margin(
        self, is_kept: Bool[np.ndarray, "constraint draw *point"]
    ) -> Float[Any, "*point"]:
        """Compute the margin: share of draws minus confidence, the least over groups.

        Shape (constraint, draw, ...) -> (...).
        """
        groups = is_kept
        if not isinstance(self.confidence, Mapping):
            # One chance constraint for all: a draw counts only if it keeps every limit.
            groups = np.all(is_kept, axis=0)[None]
        surplus = [
            group.sum(axis=0) - draws_needed(share, self.draws)
            for group, share in zip(groups, self.shares, strict=True)
        ]
        return np.min(surplus, axis=0) / self.draws

    def margin_at(self, log_tokens: float, replay: float) -> float:
        """Compute the margin at one budget and replay."""
        is_kept = self.kept(log_tokens, replay)
        margin = self.margin(is_kept)
        return float(margin)

    # -- other problems ----------------------------------------------------------------

    def relaxed(self, name: str, limit: float) -> Problem:
        """Replace the limit of one constraint."""
        constraints = tuple(
            c.with_limit(limit) if c.name == name else c for c in self.constraints
        )
        return replace(self, constraints=constraints)

    def with_draws(self, index: Int[np.ndarray, " taken"]) -> Problem:
        """Restrict the problem to the draws ``index``, shape (taken,)."""
        return replace(self, constraints=tuple(c.take(index) for c in self.constraints))


# -- the scan --------------------------------------------------------------------------


def scan(problem: Problem, thin: int) -> Scan:
    """Compute the intervals at every replay of `SCAN`, for one draw in ``thin``.

    One call evaluates ``thin`` replays. So it has the shape of a call with all draws,
    and the scan needs no compiled program of its own.
    """
    few = problem.draws // thin
    rows = problem
    if thin > 1:
        rows = problem.with_draws(np.tile(np.arange(few), thin))
    out: Scan = []
    for block in SCAN.reshape(-1, thin):
        together = rows.intervals(np.repeat(problem.replay(block), few))
        for k in range(thin):
            cut = slice(k * few, (k + 1) * few)
            out.append([(start[cut], end[cut]) for start, end in together])
    return out


# -- the search ------------------------------------------------------------------------


def search(problem: Problem, most_challenges: int = 6) -> Choice:
    """Find the best tokens and replay.

    Scan all replays, then refine the best minima by scipy's bounded search. The cost has
    many small local minima along replay, because it is an order statistic of draws:
    `challenge` therefore tries cheaper budgets at all replays with a near-best score.
    """
    scanned = problem.quick_scan
    best, window = _search_scan(problem, scanned)
    was_thinned = len(scanned[0][0][0]) < problem.draws
    if best.margin < 0 and was_thinned:
        best, window = _search_scan(problem, scan(problem, 1))
    better = challenge(problem, best, window)
    if problem.score(better) >= problem.score(best):
        near = refine(problem, problem.coordinate(best.replay), 10 * SEARCH.xatol)
        return settle(problem, near)
    for _ in range(most_challenges):
        best, better = better, challenge(problem, better, window)
        if problem.score(better) >= problem.score(best):
            break
    return settle(problem, best)


def lowest_minima(problem: Problem, scanned: Scan) -> Int[np.ndarray, " minimum"]:
    """Find the indices in the scan of the minima that a search refines, lowest first."""
    return _lowest(_scores(problem, scanned))


def _scores(problem: Problem, scanned: Scan) -> Float[np.ndarray, " replay"]:
    """Compute the score of the best choice at each replay of the scan, shape (replay,)."""
    choices = [
        problem.at(float(replay), intervals)
        for replay, intervals in zip(problem.replay(SCAN), scanned, strict=True)
    ]
    return np.array([problem.score(choice) for choice in choices])


def _lowest(scores: Float[np.ndarray, " replay"]) -> Int[np.ndarray, " minimum"]:
    """Find up to three local minima of the scan, endpoints included, near the lowest."""
    padded = np.concatenate([[np.inf], scores, [np.inf]])
    is_minimum = (scores <= padded[:-2]) & (scores <= padded[2:])
    minima = np.flatnonzero(is_minimum & _is_near(scores))
    return minima[np.argsort(scores[minima], kind="stable")][:3]


def _is_near(scores: Float[np.ndarray, " replay"]) -> Bool[np.ndarray, " replay"]:
    """Tell which scores are within .1 (log tokens) of the lowest."""
    return scores < scores.min() + 0.1


def _search_scan(
    problem: Problem, scanned: Scan
) -> tuple[Choice, Float[np.ndarray, " coordinate"]]:
    """Refine the scan's minima.

    Returns
    -------
    The best choice, and search coordinates at which to `challenge`, shape (coordinate,).
    """
    scores = _scores(problem, scanned)
    lowest = _lowest(scores)
    step = float(SCAN[1] - SCAN[0])
    refinements = [
        refine(problem, float(SCAN[i]), step, 10 * SEARCH.xatol) for i in lowest
    ]
    best = min(refinements, key=problem.score)
    inside = [*SCAN[_is_near(scores)], problem.coordinate(best.replay)]
    low, high = np.clip([min(inside) - step / 2, max(inside) + step / 2], 0, 1)
    # with few draws the cost along replay is rougher, so more replays are tried
    challengers = 256 if problem.draws < SEARCH.small else 64
    return best, np.linspace(low, high, challengers)


def challenge(
    problem: Problem, best: Choice, u: Float[np.ndarray, " coordinate"]
) -> Choice:
    """Refine around the coordinate that is better than the best choice by most; if
    there is none, return the best choice.

    Every ``u``, shape (coordinate,), is evaluated at three budgets: cheaper ones, or
    budgets up to the cap if the probability is maximised.
    """
    replay = problem.replay(u)
    is_cost = best.margin >= 0 and not problem.most_probable
    if is_cost:
        # If the confidence is reached at a lower budget at any replay, the best so far
        # was a local minimum.
        x = best.log_tokens - 5e-4 * 8.0 ** np.arange(3)
    else:
        top = min(math.log(problem.max_tokens), best.log_tokens + 0.3, problem.span[1])
        x = top - np.array([0.0, 0.1, 0.3])
    is_kept = np.stack(problem.by_constraint(lambda c: c.kept_on_grid(x, replay)))
    is_allowed = x <= problem.log_cap(replay)[:, None] + 1e-12
    margin = np.where(is_allowed, problem.margin(is_kept), -1.0)  # (coordinate, budget)
    if is_cost:
        # margins at the cheapest budget at which any replay reaches the confidence
        reached = np.flatnonzero((margin >= 0).any(axis=0))
        margin = margin[:, reached[-1]] if reached.size else np.full(len(u), -1.0)
        # Any margin of 0 or more is enough; half a draw guards against rounding.
        to_beat = -0.5 / problem.draws
    else:
        margin = margin.max(axis=1)
        to_beat = best.margin
    if margin.max() <= to_beat:
        return best
    return refine(problem, float(u[np.argmax(margin)]), float(u[1] - u[0]))


def refine(
    problem: Problem, u: float, width: float, xatol: float = SEARCH.xatol
) -> Choice:
    """Find the best choice with a search coordinate within ``width`` of ``u``.

    Brent's bounded search (1973, chapter 5); returns the best of all evaluations.
    """
    choices: list[Choice] = []

    def score(coordinate: float) -> float:
        replay = float(problem.replay(coordinate))
        choice = problem.at(replay)
        choices.append(choice)
        return problem.score(choice)

    score(u)
    bounds = (max(u - width, 0.0), min(u + width, 1.0))
    optimize.minimize_scalar(
        score, bounds=bounds, method="bounded", options={"xatol": xatol, "maxiter": 40}
    )
    return min(choices, key=problem.score)


def settle(problem: Problem, choice: Choice) -> Choice:
    """Raise log tokens until the margin, evaluated directly, is that of the roots.

    The rise is usually that of rounding errors. It is up to 4% of tokens if the roots
    missed a dip of a draw's loss between two rungs.
    """
    if not np.isfinite(choice.log_tokens):
        return choice
    choices = []
    rounding = 1e-14 * 4.0 ** np.arange(12) * abs(choice.log_tokens)
    dearer = 1e-5 * 4.0 ** np.arange(7)
    for step in (0.0, *rounding, *dearer):
        x = choice.log_tokens + step
        margin = problem.margin_at(x, choice.replay)
        choices.append(Choice(x, choice.replay, margin))
        if margin >= choice.margin:
            return choices[-1]
    return max(choices, key=lambda c: c.margin)
