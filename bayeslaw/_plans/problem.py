"""Define the chance-constrained problem of one model: limits over fixed draws, with what a
plan chooses, tokens and levers.

A plan keeps its promises if enough draws keep all limits. The room of a point is the log
loss by which as many draws as are needed are below their limits: it is 0 or more where
the confidence is reached, changes smoothly, and tells the way where it is not. Every
question here is a reduction of the draws' losses at several levers and tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.interpolate import CubicSpline

from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.machine import runtime
from bayeslaw._plans.question import Budget, Levers
from bayeslaw._plans.sampled import DRAWS, SampledConstraint, draws_needed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

Result = TypeVar("Result")

ALL_REPLAY = 1 - 1e-9  # no target token is seen
SCAN, PATH = (32, 33), 8  # replays and tokens of a search's first grid; on a path
AT_A_BOUND = 1e-4  # distance at which a plan counts as at a bound of replay


class Choice(NamedTuple):
    """Log tokens, levers (replay, or shares), and margin: share of draws that keep the
    constraints, minus confidence. With a negative margin the confidence is not reached.
    """

    log_tokens: float
    levers: Levers
    margin: float

    @property
    def replay(self) -> float:
        return float(self.levers)

    @property
    def is_kept(self) -> bool:
        return self.margin >= 0


class Grid(NamedTuple):
    """Log losses at search coordinates of the levers and log tokens.

    ``u``: coordinates (`Problem.at`), (choice,); ``x``: log tokens, (tokens,);
    ``log_losses``: of each constraint, (draw, choice, tokens); ``few``: the first draws
    only, as many as these; 0: all.
    """

    u: Float[np.ndarray, " choice"]
    x: Float[np.ndarray, " tokens"]
    log_losses: list[Float[np.ndarray, "draw choice tokens"]]
    few: int = 0

    def between(
        self, u: Float[np.ndarray, " choice"], x: Float[np.ndarray, " tokens"]
    ) -> Grid | None:
        """Interpolate the log losses at points within the grid, which are smooth there;
        None if a point lies outside, or not all log losses are numbers.
        """
        is_within = self.u[0] <= u[0] < u[-1] <= self.u[-1]
        is_within &= self.x[0] <= x[0] < x[-1] <= self.x[-1]
        is_finite = all(np.isfinite(loss).all() for loss in self.log_losses)
        if not (is_within and is_finite):
            return None
        # a cubic spline is linear in the values: those of unit vectors are its matrix
        along_u = CubicSpline(self.u, np.eye(len(self.u)))(u)
        along_x = CubicSpline(self.x, np.eye(len(self.x)))(x)
        return Grid(u, x, [along_u @ (loss @ along_x.T) for loss in self.log_losses])


@dataclass(frozen=True, eq=False)
class Problem(Budget):
    """The cheapest tokens and levers that keep all constraints in enough draws, within a
    budget, whose ``max_tokens`` are those of all its limits; if they are finite, the
    probability is maximised within them.
    """

    # the target first, then the sources; draws are paired across constraints. Of a
    # mixture without limits the mean, limited to infinity
    constraints: tuple[SampledConstraint, ...]
    confidence: float | Mapping[str, float]  # of all together, or of each by name
    N: float
    ptpp: float | None
    cap: str = "budget"  # origin of ``max_tokens``, or the limit on the bill that binds
    targets: tuple[str, ...] = ("target",)
    # draws of all domains, limited or not, and their weighted mean, of which the least is
    # sought at the budget of a mixture
    sets: Mapping[str, SampledConstraint] = field(default_factory=dict)
    mean: SampledConstraint | None = None
    # two mixtures between which a search on grids chooses
    path: tuple[Levers, Levers] | None = None

    @property
    def draws(self) -> int:
        return self.constraints[0].draws

    @property
    def limits(self) -> list[SampledConstraint]:
        """The constraints; none of a mixture at a budget that only its mean decides."""
        return [c for c in self.constraints if math.isfinite(c.limit)]

    @property
    def most_probable(self) -> bool:
        return math.isfinite(self.max_tokens)

    @property
    def span(self) -> tuple[float, float]:
        """Range of log tokens that is searched."""
        return self.constraints[0].span

    @property
    def confidences(self) -> tuple[float, ...]:
        confidence = self.confidence
        if isinstance(confidence, Mapping):
            return tuple(confidence[c.name] for c in self.constraints)
        return (confidence,)

    # -- levers ------------------------------------------------------------------------

    def at(self, u: Float[np.ndarray, "*point"] | float) -> Levers:
        """Map search coordinates in [0, 1], of any shape, to replay, or to mixtures on the
        path, by the inverse arcsine transform: equal steps are fine near both bounds.
        """
        # u = 2 / pi asin(sqrt(share)).
        share = np.sin(np.pi / 2 * np.asarray(u)) ** 2
        start, end = self.path or (self.least, self.largest)
        return start + np.multiply.outer(share, end - start)

    def coordinate(self, replay: float) -> float:
        width = max(self.largest - self.least, 1e-300)
        share = (replay - self.least) / width
        angle = math.asin(math.sqrt(min(max(share, 0.0), 1.0)))
        return 2 / np.pi * angle

    def bounds_met(self, replay: float) -> list[str]:
        met = []
        if self.least > 0 and replay < self.least + AT_A_BOUND:
            met.append("min_replay")
        if self.largest < 1 and replay > self.largest - AT_A_BOUND:
            met.append("max_replay")
        return met

    def log_cap(self, levers: Levers) -> Any:
        """Compute the largest log tokens within budget and supplies, at replays of any
        shape or shares of shape (..., domain); -inf at 100% replay, which has no target
        tokens.
        """
        levers = np.asarray(levers)
        shape = levers.shape[:-1] if self.domains else levers.shape
        most = np.full(shape, min(math.log(self.max_tokens), self.span[1]))
        for name, seen in self.seen.items():
            share = np.maximum(self.taken(name, levers), 1e-300)
            most = np.minimum(most, math.log(seen) - np.log(share))
        if self.domains:
            return most
        return np.where(levers < ALL_REPLAY, most, -np.inf)

    def supplies_met(
        self, log_tokens: float, levers: Levers, within: float = 1e-3
    ) -> list[str]:
        met = []
        for name, most in self.seen.items():
            share = max(self.taken(name, levers), 1e-12)
            if log_tokens + math.log(share) >= math.log(most) - within:
                words = f"tokens of {name}"
                met.append(SUPPLIES[name].words if name in SUPPLIES else words)
        return met

    def allows(
        self,
        u: Float[np.ndarray, " choice"],
        x: Float[np.ndarray, "one_or_choice point"],
    ) -> Bool[np.ndarray, "choice point"]:
        """Tell which log tokens the budget and the supplies allow at coordinates."""
        return x <= self.log_cap(self.at(u))[:, None] + 1e-12

    # -- shares of draws ---------------------------------------------------------------

    def by_constraint(
        self, function: Callable[[SampledConstraint], Result]
    ) -> list[Result]:
        """Apply a function to each constraint, in parallel threads."""
        # compiled programs, and the compiler, release Python's lock
        with runtime.threads(min(len(self.constraints), runtime.cores())) as pool:
            return list(pool.map(function, self.constraints))

    def log_losses(
        self, log_tokens: Float[np.ndarray, " tokens"], levers: Levers
    ) -> list[Float[np.ndarray, "draw choice tokens"]]:
        columns = self.columns_of(levers)
        return self.by_constraint(lambda c: c.log_losses_on_grid(log_tokens, columns))

    def probabilities(
        self, log_tokens: Float[np.ndarray, " tokens"], levers: Levers
    ) -> Float[np.ndarray, "choice tokens"]:
        return self.kept_share(self.log_losses(log_tokens, levers))

    def grid(
        self, u: Float[np.ndarray, " choice"], x: Float[np.ndarray, " tokens"]
    ) -> Grid:
        return Grid(u, x, self.log_losses(x, self.at(u)))

    @cached_property
    def scan(self) -> Grid:
        """Grid over all replays and tokens that starts a search: of as many draws as one
        call evaluates. It does not depend on limits and confidence.
        """
        few, choices = min(self.draws, DRAWS), SCAN[0] if self.path is None else PATH
        u, x = np.linspace(0, 1, choices), np.linspace(*self.span, SCAN[1])
        return self.with_draws(np.arange(few)).grid(u, x)._replace(few=few)

    def below(
        self, log_losses: Sequence[Float[np.ndarray, " draw *point"]]
    ) -> list[Float[np.ndarray, " draw *point"]]:
        pairs = zip(self.constraints, log_losses, strict=True)
        return [constraint.below(of_limit) for constraint, of_limit in pairs]

    def kept_share(
        self, log_losses: Sequence[Float[np.ndarray, " draw *point"]]
    ) -> Float[Any, "*point"]:
        return (reduce(np.minimum, self.below(log_losses)) >= 0).mean(axis=0)

    def room(
        self, log_losses: Sequence[Float[np.ndarray, " draw *point"]]
    ) -> tuple[Float[Any, "*point"], Float[Any, "*point"]]:
        """Compute the room of points, in log loss, and the margin: the share of draws that
        keep the limits, minus confidence; the least of both over groups.
        """
        below = self.below(log_losses)
        if not isinstance(self.confidence, Mapping):
            # One chance constraint for all: a draw counts only if it keeps every limit.
            below = [reduce(np.minimum, below)]
        rooms, margins = [], []
        for group, share in zip(below, self.confidences, strict=True):
            draws = len(group)
            needed = draws_needed(share, draws)
            last = draws - needed
            rooms.append(np.partition(group, last, axis=0)[last])
            margins.append(((group >= 0).sum(axis=0) - needed) / draws)
        return np.min(rooms, axis=0), np.min(margins, axis=0)

    def log_losses_at(
        self, log_tokens: float, levers: Levers
    ) -> list[Float[np.ndarray, " draw"]]:
        """Compute each constraint's log losses at a choice, or at a replay a draw."""
        columns = self.columns_of(levers)
        return [c.log_losses(log_tokens, columns) for c in self.constraints]

    def kept(
        self, log_tokens: float, levers: Levers
    ) -> Bool[np.ndarray, "constraint draw"]:
        return np.stack(self.below(self.log_losses_at(log_tokens, levers))) >= 0

    def margin_at(self, log_tokens: float, levers: Levers) -> float:
        _, margin = self.room(self.log_losses_at(log_tokens, levers))
        return float(margin)

    def judge(self, log_tokens: float, levers: Levers) -> Choice:
        return Choice(log_tokens, levers, self.margin_at(log_tokens, levers))

    def at_finite_tokens(self, choice: Choice) -> Choice:
        """Move a choice to finite, positive tokens, where pictures can be drawn."""
        x = choice.log_tokens
        x = sum(self.span) / 2 if x == math.inf else max(x, self.span[0])
        return choice._replace(log_tokens=x)

    # -- other problems ----------------------------------------------------------------

    def relaxed(self, name: str, limit: float) -> Problem:
        constraints = tuple(
            c.with_limit(limit) if c.name == name else c for c in self.constraints
        )
        return replace(self, constraints=constraints)

    def with_draws(self, index: Int[np.ndarray, " taken"]) -> Problem:
        return replace(self, constraints=tuple(c.take(index) for c in self.constraints))


class PosedPlan(NamedTuple):
    """A plan, and the problem over the draws that gave its probability."""

    plan: Any
    problem: Problem
