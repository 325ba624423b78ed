"""Define the chance-constrained problem of one model, and solve it on grids of tokens and
replay that zoom in.

A plan keeps its promises if enough draws keep all limits. The room of a point is the log
loss by which as many draws as are needed are below their limits: it is 0 or more where
the confidence is reached, changes smoothly, and tells the way where it is not. Every
question here is a reduction of the draws' losses on one grid, repeated on smaller ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.interpolate import CubicSpline

from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.machine import runtime
from bayeslaw._plans.question import Budget
from bayeslaw._plans.sampled import DRAWS, SampledConstraint, draws_needed

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

Result = TypeVar("Result")

ALL_REPLAY = 1 - 1e-9  # no target token is seen
AT_A_BOUND = 1e-4  # distance at which a plan counts as at a bound of replay


class Zoom(NamedTuple):
    """Grids of a search."""

    scan: tuple[int, int] = (32, 33)  # replays and tokens of the first grid
    many: tuple[int, int] = (16, 9)  # of the smaller grids
    # with few draws the score is rougher, so more points are looked at
    few: tuple[int, int] = (64, 17)
    few_draws: int = 600
    # each grid covers what is within this of the lowest score of the one before
    near: tuple[float, ...] = (0.1, 0.015, 0.002, 3e-4)


ZOOM = Zoom()


class Choice(NamedTuple):
    """Log tokens, replay, and margin: share of draws that keep the constraints, minus
    confidence. With a negative margin the confidence is not reached.
    """

    log_tokens: float
    replay: float
    margin: float


class Grid(NamedTuple):
    """Log losses at search coordinates of replay and log tokens.

    ``u``: coordinates (`Problem.replay`), (replay,); ``x``: log tokens, (tokens,);
    ``log_losses``: of each constraint, (draw, replay, tokens); ``few``: the first draws
    only, as many as these; 0: all.
    """

    u: Float[np.ndarray, " replay"]
    x: Float[np.ndarray, " tokens"]
    log_losses: list[Float[np.ndarray, "draw replay tokens"]]
    few: int = 0

    def between(
        self, u: Float[np.ndarray, " replay"], x: Float[np.ndarray, " tokens"]
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
    """The cheapest (tokens, replay) that keeps all constraints in enough draws, within a
    budget, whose ``max_tokens`` are those of all its limits; if they are finite, the
    probability is maximised within them.

    Parameters
    ----------
    constraints
        The target first, then the sources; draws are paired across constraints.
    confidence
        Confidence of all constraints together, or one for each by name.
    N, ptpp
        The model: parameters, and pre-training tokens per parameter; None: not known.
    cap
        Origin of ``max_tokens``: a budget, or the limit of `COST_LIMITS` that binds.
    targets
        Names of the constraints on domains that are adapted to.
    """

    constraints: tuple[SampledConstraint, ...]
    confidence: float | Mapping[str, float]
    N: float
    ptpp: float | None
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
        width = max(self.max_replay - self.min_replay, 1e-300)
        share = (replay - self.min_replay) / width
        angle = math.asin(math.sqrt(min(max(share, 0.0), 1.0)))
        return 2 / np.pi * angle

    def bounds_met(self, replay: float) -> list[str]:
        met = []
        if self.min_replay > 0 and replay < self.min_replay + AT_A_BOUND:
            met.append("min_replay")
        if self.max_replay < 1 and replay > self.max_replay - AT_A_BOUND:
            met.append("max_replay")
        return met

    def log_cap(
        self, replay: Float[np.ndarray, "*point"] | float
    ) -> Float[Any, "*point"]:
        """Compute the largest log tokens within budget and supplies, of the shape of
        ``replay``; -inf at 100% replay, which has no target tokens.
        """
        replay = np.asarray(replay)
        cap = np.full(replay.shape, min(math.log(self.max_tokens), self.span[1]))
        for name, most in self.seen.items():
            share = np.maximum(SUPPLIES[name].share(replay), 1e-300)
            cap = np.minimum(cap, math.log(most) - np.log(share))
        return np.where(replay < ALL_REPLAY, cap, -np.inf)

    def supplies_met(self, log_tokens: float, replay: float) -> list[str]:
        """Name the supplies that a choice uses up, to a thousandth, in words."""
        met = []
        for name, most in self.seen.items():
            share = max(SUPPLIES[name].share(replay), 1e-12)
            if log_tokens + math.log(share) >= math.log(most) - 1e-3:
                met.append(SUPPLIES[name].words)
        return met

    def allows(
        self,
        u: Float[np.ndarray, " replay"],
        x: Float[np.ndarray, "one_or_replay point"],
    ) -> Bool[np.ndarray, "replay point"]:
        """Tell which log tokens are within the budget and the target tokens at search
        coordinates of replay.
        """
        return x <= self.log_cap(self.replay(u))[:, None] + 1e-12

    # -- shares of draws ---------------------------------------------------------------

    def by_constraint(
        self, function: Callable[[SampledConstraint], Result]
    ) -> list[Result]:
        """Apply a function to each constraint, in parallel threads."""
        # compiled programs, and the compiler, release Python's lock
        with runtime.threads(min(len(self.constraints), runtime.cores())) as pool:
            return list(pool.map(function, self.constraints))

    def grid(
        self, u: Float[np.ndarray, " replay"], x: Float[np.ndarray, " tokens"]
    ) -> Grid:
        replay = self.replay(u)
        return Grid(u, x, self.by_constraint(lambda c: c.log_losses_on_grid(x, replay)))

    @cached_property
    def scan(self) -> Grid:
        """Grid over all replays and tokens that starts a search: of as many draws as one
        call evaluates. It does not depend on limits and confidence.
        """
        few = min(self.draws, DRAWS)
        replays, tokens = ZOOM.scan
        u, x = np.linspace(0, 1, replays), np.linspace(*self.span, tokens)
        return self.with_draws(np.arange(few)).grid(u, x)._replace(few=few)

    def room(
        self, log_losses: Sequence[Float[np.ndarray, " draw *point"]]
    ) -> tuple[Float[Any, "*point"], Float[Any, "*point"]]:
        """Compute the room of points, in log loss, and the margin: the share of draws that
        keep the limits, minus confidence; the least of both over groups.

        ``log_losses``: of each constraint.
        """
        below = [c.below(x) for c, x in zip(self.constraints, log_losses, strict=True)]
        if not isinstance(self.confidence, Mapping):
            # One chance constraint for all: a draw counts only if it keeps every limit.
            below = [reduce(np.minimum, below)]
        rooms, margins = [], []
        for group, share in zip(below, self.shares, strict=True):
            draws = len(group)
            needed = draws_needed(share, draws)
            last = draws - needed
            rooms.append(np.partition(group, last, axis=0)[last])
            margins.append(((group >= 0).sum(axis=0) - needed) / draws)
        return np.min(rooms, axis=0), np.min(margins, axis=0)

    def kept(
        self,
        log_tokens: float,
        replay: Float[np.ndarray, " draw"] | float,
    ) -> Bool[np.ndarray, "constraint draw"]:
        """Tell whether each draw keeps each constraint, shape (constraint, draw)."""
        return np.stack(
            [c.log_losses(log_tokens, replay) <= c.log_limit for c in self.constraints]
        )

    def margin_at(self, log_tokens: float, replay: float) -> float:
        _, margin = self.room(
            [c.log_losses(log_tokens, replay) for c in self.constraints]
        )
        return float(margin)

    def at_finite_tokens(self, choice: Choice) -> Choice:
        """Move a choice to where pictures can be drawn: a finite, positive number of
        tokens.
        """
        low, high = self.span
        x = choice.log_tokens
        if x == math.inf:
            x = (low + high) / 2
        return choice._replace(log_tokens=max(x, low))

    # -- other problems ----------------------------------------------------------------

    def relaxed(self, name: str, limit: float) -> Problem:
        constraints = tuple(
            c.with_limit(limit) if c.name == name else c for c in self.constraints
        )
        return replace(self, constraints=constraints)

    def with_draws(self, index: Int[np.ndarray, " taken"]) -> Problem:
        """Restrict the problem to the draws ``index``, shape (taken,)."""
        return replace(self, constraints=tuple(c.take(index) for c in self.constraints))


# -- the search ------------------------------------------------------------------------

Scores = tuple["Float[np.ndarray, 'replay point']", "Float[np.ndarray, 'replay point']"]
"""Scores of points, infinite for those that are not allowed, and their log tokens."""
Score = Callable[["Problem", Grid], Scores]
"""What a search minimises: the scores on a grid, by the problem of the grid's draws."""


def search(
    problem: Problem, scan: Grid | None = None, near: Sequence[float] = ZOOM.near
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
        return best._replace(log_tokens=math.inf, margin=-max(problem.shares))
    if is_by_limit or problem.draws >= ZOOM.few_draws:
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
    problem: Problem, grid: Grid, score: Score, near: Sequence[float] = ZOOM.near
) -> tuple[float, float, float]:
    """Find the lowest score on a grid, then on smaller ones around all that is near it,
    by a smaller difference each time.

    Returns
    -------
    The score, its search coordinate of replay, and its log tokens.
    """
    replays, tokens = ZOOM.few if problem.draws < ZOOM.few_draws else ZOOM.many
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
    score = np.where(margin > -min(problem.shares), score, score - np.minimum(room, 0))
    return np.where(np.isfinite(room), score, np.inf), x


def _between(
    problem: Problem, grid: Grid, merit: Float[np.ndarray, "replay tokens"]
) -> tuple[Float[np.ndarray, "replay finer"], ...]:
    """Look between the three tokens around the first of the most merit at each replay:
    log tokens, room and margin there; without room where they are not allowed.

    Between the tokens losses follow a parabola: so a plan is found also where the limits
    leave it less than a step.
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
    replay = float(problem.replay(u))
    if not np.isfinite(lowest):
        return Choice(math.inf, replay, -max(problem.shares))
    rounding = 1e-14 * 4.0 ** np.arange(12) * abs(x)
    steps = np.array([0.0, *rounding, *1e-5 * 4.0 ** np.arange(7)])
    tried = np.minimum(x + steps, max(float(problem.log_cap(replay)), x))
    along = problem.by_constraint(lambda c: c.log_losses_along(tried, replay).T)
    _, margins = problem.room(along)
    first = int(np.argmax(margins >= 0))
    return Choice(float(tried[first]), replay, float(margins[first]))
