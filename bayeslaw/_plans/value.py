"""Report on a plan: probabilities of its constraints, shadow prices, alternatives, value
of perfect information, and the limits that an infeasible plan needs.

Each function takes a problem and a choice, and returns rows that JSON can hold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.shown import as_json
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.problem import ALL_REPLAY, Choice, Grid, Problem
from bayeslaw._plans.sampled import SampledConstraint, along_draws, draws_needed
from bayeslaw._plans.search import NEAR, Scores, search, zoom

if TYPE_CHECKING:
    from jaxtyping import Float

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BAND = (0.05, 0.5, 0.95)
NO_CHOICE = (np.inf, np.nan)


def budget(problem: Problem, log_tokens: float, replay: float) -> dict:
    """Compute what a choice takes; all None if tokens are infinite."""
    tokens = np.exp(log_tokens)
    costs = problem.costs
    row: dict[str, Any] = {
        "atpp": tokens / problem.N,
        "D": tokens,
        "replay": replay,
        "flops": costs.flops_per_token(problem.N) * tokens,
    }
    if not np.isfinite(tokens):
        return dict.fromkeys([*row, "cost"] if costs.has_time else row)
    row = as_json(row)
    if costs.has_time:
        row["cost"] = costs.of_run(problem.N, float(tokens), problem.ptpp).to_dict()
    return row


def probabilities(problem: Problem, log_tokens: float, replay: float) -> dict:
    """Compute the share of draws that keep all constraints, the targets' constraints, and
    all constraints on forgetting (None if there are none); 0 where no tokens were found.
    """
    if log_tokens == math.inf:
        return {"probability": 0.0}
    is_kept = problem.kept(log_tokens, replay)
    of_targets = [
        c.name in problem.targets or c.unit == "error" for c in problem.constraints
    ]
    of_forgetting = [
        UNITS[c.unit].has_baseline and c.name not in problem.targets
        for c in problem.constraints
    ]

    def share(rows: Any) -> float:
        return float(is_kept[rows].all(axis=0).mean())

    return {
        "probability": share(slice(None)),
        "probability_target": share(of_targets),
        "probability_forgetting": share(of_forgetting) if any(of_forgetting) else None,
    }


def stretched_probability(
    problem: Problem,
    log_tokens: float,
    replay: float,
    stretch: Mapping[str, float],
) -> float:
    """Compute the share of draws that keep all constraints, after stretching their log
    losses about the median, each by its factor if it is named.
    """
    is_kept = []
    for c in problem.constraints:
        log_loss = c.log_losses(log_tokens, replay)
        middle = np.median(log_loss)
        further = middle + stretch.get(c.name, 1.0) * (log_loss - middle)
        is_kept.append(further <= c.log_limit)
    return float(np.all(is_kept, axis=0).mean())


def promises(
    problem: Problem, choice: Choice, worths: Mapping[str, float] = MappingProxyType({})
) -> list[dict]:
    """Describe each constraint at the plan: limit, probability, mean and 90% interval of
    the limited loss or forgetting, and what a looser limit saves: of ``worths`` the
    share of the tokens (within a budget the probability gained).
    """
    rows = []
    for c in problem.constraints:
        log_loss = c.log_losses(*choice[:2])
        outcome = c.outcome(log_loss)
        gain = worths.get(c.name)
        if gain is not None and not problem.most_probable:
            gain = 1 - math.exp(-gain)
        rows.append(
            {
                "name": c.name,
                "limit": c.limit,
                "unit": c.unit,
                "probability": float((log_loss <= c.log_limit).mean()),
                "mean": as_json(outcome.mean()),
                "low": as_json(np.quantile(outcome, BAND[0])),
                "high": as_json(np.quantile(outcome, BAND[-1])),
                "worth": gain,
            }
        )
    return rows


def quantiles(outcomes: Float[np.ndarray, " draw *point"]) -> dict[str, Any]:
    """Summarise a loss, or a rise, by its median and 90% interval, numbers or lists."""
    low, median, high = as_json(np.quantile(outcomes, BAND, axis=0))
    return {"median": median, "low": low, "high": high}


# -- which constraint costs what -------------------------------------------------------


def limit_step(constraint: SampledConstraint) -> float:
    return 1e-3 * constraint.size


def worth(problem: Problem, choice: Choice) -> dict[str, float]:
    """Compute the shadow price of each limit, by finite difference: the gain if the
    limit rises by a thousandth of the loss (Boyd and Vandenberghe 2004, section 5.6).

    The gain is in log tokens saved; within a budget, in probability.
    """
    gains = {}
    for c in problem.constraints:
        looser = problem.relaxed(c.name, c.limit + limit_step(c))
        relaxed = search(looser, problem.scan)
        if problem.most_probable:
            gain = relaxed.margin - choice.margin
        else:
            gain = choice.log_tokens - relaxed.log_tokens
        gains[c.name] = max(float(gain), 0.0)
    return gains


def binding(problem: Problem, choice: Choice, worths: Mapping[str, float]) -> str:
    """Name the binding constraints, joined by "and"."""
    most = max(worths.values())
    # a limit binds if its shadow price is over a tenth of the largest
    names = [name for name, gain in worths.items() if gain > 0.1 * most]
    if problem.most_probable:
        richer = replace(problem, max_tokens=1.05 * problem.max_tokens)
        if search(richer, problem.scan).margin > choice.margin:
            names.append(problem.cap)
    names += problem.supplies_met(*choice[:2])
    for name in problem.bounds_met(choice.replay):
        end = "least" if name == "min_replay" else "largest"
        fitted = "fitted " if name in problem.fitted else ""
        names.append(f"{end} {fitted}replay")
    return " and ".join(names) or "none"


# -- alternatives ----------------------------------------------------------------------


def region(problem: Problem, log_tokens: float, size: int = 31) -> dict:
    """Compute the probability that all constraints are kept on a grid of replay and
    ATPP, a factor of ten around the plan: ``probability[replay][atpp]``.
    """
    x = np.linspace(log_tokens - np.log(10), log_tokens + np.log(10), size)
    replay = np.linspace(problem.least, problem.largest, size)
    probability = problem.probabilities(x, replay)
    probability[replay >= ALL_REPLAY] = 0.0
    return {
        "atpp": (np.exp(x) / problem.N).tolist(),
        "replay": replay.tolist(),
        "probability": probability.tolist(),
    }


def tradeoff(problem: Problem, log_tokens: float, size: int = 49) -> dict:
    """Compute both losses along replay at one budget (as Goffinet 2025, fig. 2)."""
    ends = max(problem.least, 0.01), min(problem.largest, 0.99)
    replay = np.linspace(*ends, size)
    log_losses = problem.log_losses(np.array([log_tokens]), replay)
    bands = {
        c.name: {"limit": c.limit, "unit": c.unit} | quantiles(c.outcome(x[..., 0]))
        for c, x in zip(problem.constraints, log_losses, strict=True)
    }
    return {
        "atpp": float(np.exp(log_tokens) / problem.N),
        "replay": replay.tolist(),
        "bands": bands,
    }


def frontier(
    problem: Problem,
    choice: Choice,
    confidences: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
) -> list[dict]:
    """Find the cheapest budget at each confidence that all constraints are kept, the
    problem's own among them, at which ``choice`` is the plan. A more expensive, safer
    plan also serves lower confidences.
    """
    levels = set(confidences)
    if isinstance(problem.confidence, float):
        levels.add(problem.confidence)
    choices: list[Choice] = []
    for level in sorted(levels):
        if level == problem.confidence and not problem.most_probable:
            choices.append(choice)
        elif choices and choices[-1].margin < 0:
            choices.append(choices[-1])  # higher confidences are not reached either
        else:
            at_level = replace(problem, confidence=level, max_tokens=np.inf)
            choices.append(search(at_level, problem.scan, NEAR[:3]))
    rows = []
    best = Choice(*NO_CHOICE, -1.0)
    for level, cheapest in zip(
        sorted(levels, reverse=True), reversed(choices), strict=True
    ):
        if cheapest.margin >= 0 and cheapest.log_tokens < best.log_tokens:
            best = cheapest
        row = budget(problem, *best[:2])
        rows.append({"confidence": level} | row)
    return rows[::-1]


# -- perfect information ---------------------------------------------------------------


def cheapest_if_known(
    problem: Problem, start: Choice
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
    """Find the cheapest log tokens (+inf where no plan exists) and replay given each draw
    as the truth, for all draws at once: a scan, then steps around each draw's best that
    are halved.
    """

    def better(
        u: Float[np.ndarray, " draw"],
        x: Float[np.ndarray, " draw"],
        trial: Float[np.ndarray, " draw"],
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
        # for each draw the better of coordinate u, with log tokens x, and the trial
        trial = np.clip(trial, 0, last)
        tokens = log_tokens_needed(problem, problem.at(trial))
        return np.where(tokens < x, trial, u), np.minimum(tokens, x)

    has_start = np.isfinite(start.log_tokens)
    u = np.full(problem.draws, problem.coordinate(start.replay) if has_start else 0.5)
    x = log_tokens_needed(problem, problem.at(u))
    # a plan cannot have 100% replay, so a point just below is evaluated
    last = 1.0 if problem.at(1.0) < ALL_REPLAY else 0.999
    for at in np.linspace(0, 1, 17):
        u, x = better(u, x, np.full(problem.draws, at))
    # then on both sides of each draw's best, by half the step each time
    for step in 0.5 ** np.arange(5, 14):
        middle = u
        for side in (-step, step):
            u, x = better(u, x, middle + side)
    return x, problem.at(u)


def log_tokens_needed(
    problem: Problem, replay: Float[np.ndarray, " draw"], rungs: int = 33
) -> Float[np.ndarray, " draw"]:
    """Find the fewest log tokens with which each draw keeps all constraints at a replay of
    its own, between two rungs of a ladder of log tokens by a parabola.
    """
    x = np.linspace(*problem.span, rungs)
    starts, ends = np.zeros((2, rungs - 1, problem.draws))
    ends += 1
    for rooms in problem.below(problem.log_losses(x, replay[None])):
        below = rooms[:, 0].T  # (rung, draw)
        is_kept = below >= 0
        with np.errstate(invalid="ignore", divide="ignore"):
            step = np.diff(below, axis=0)
            straight = -below[:-1] / step
            # the bend is that of the rungs around, and pulls the root of the chord
            bend = np.diff(step, axis=0, prepend=step[:1]) / 2
            bend[1:-1] = (bend[1:-1] + bend[2:]) / 2
            root = straight - bend * straight * (straight - 1) / step
        root = np.clip(np.where(np.isfinite(root), root, straight), 0, 1)
        root = np.where(np.isfinite(root), root, 1.0)
        start = np.where(is_kept[:-1], 0.0, np.where(is_kept[1:], root, np.inf))
        end = np.where(is_kept[1:], 1.0, np.where(is_kept[:-1], root, -np.inf))
        starts, ends = np.maximum(starts, start), np.minimum(ends, end)
    is_kept = starts <= ends  # somewhere between two rungs
    first = np.argmax(is_kept, axis=0)
    draws = np.arange(problem.draws)
    earliest = x[first] + starts[first, draws] * (x[1] - x[0])
    is_possible = is_kept[first, draws] & (earliest <= problem.log_cap(replay))
    return np.where(is_possible, earliest, np.inf)


def perfect_information(problem: Problem, choice: Choice) -> dict:
    """Compare the plan with the cheapest plan for each draw, and compute the value of
    perfect information in tokens.

    ``regret``: mean excess of the plan's tokens over those of the cheapest plan, over
    draws that keep all constraints. ``perfect_information``: the plan's tokens minus
    the mean tokens of the cheapest plans. This mean is over as many draws as the
    confidence asks for, the cheapest ones, so that both plans are equally reliable.

    References
    ----------
    Raiffa and Schlaifer 1961, section 4.5: expected value of perfect information, here
    for a constrained cost.
    """
    x, replay = cheapest_if_known(problem, choice)
    needs_none = problem.kept(-np.inf, problem.least).all(axis=0)
    is_kept = problem.kept(*choice[:2]).all(axis=0)
    plan_tokens, count = np.exp(choice.log_tokens), int(is_kept.sum())
    # a draw that keeps its limits at the plan needs at most the plan's tokens
    most = np.where(is_kept, plan_tokens, np.inf)
    tokens = np.where(needs_none, 0.0, np.minimum(np.exp(x), most))
    replay = np.where(np.exp(x) > most, choice.replay, replay)
    replay = np.where(needs_none, problem.least, replay)
    has_plan = np.isfinite(tokens)
    row = {"share_with_a_plan": float(has_plan.mean()), "quantiles": list(QUANTILES)}
    for name, values in {"atpp": tokens / problem.N, "replay": replay}.items():
        possible = values[has_plan]
        row[name] = np.quantile(possible, QUANTILES).tolist() if len(possible) else None
    if count == 0 or not np.isfinite(plan_tokens):
        return row | {"regret": None, "perfect_information": None}
    if not problem.most_probable and len(problem.confidences) == 1:
        count = draws_needed(problem.confidences[0], problem.draws)
    cheapest = np.sort(tokens)[:count]
    return row | {
        "regret": float((plan_tokens - tokens[is_kept]).mean()),
        "perfect_information": float((plan_tokens - cheapest).mean()),
    }


# -- why there is none -----------------------------------------------------------------


def limit_needed(
    problem: Problem, name: str, log_losses: list[Float[np.ndarray, " draw *point"]]
) -> Float[Any, "*point"]:
    """Find the lowest limit of one constraint at which the confidence is reached: an
    order statistic of its outcome over draws that keep the other constraints; +inf
    where no limit suffices. ``log_losses``: by constraint.
    """
    draws = problem.draws
    pairs = list(zip(problem.constraints, log_losses, strict=True))
    by_others = {
        c.name: log_loss <= along_draws(c.log_limit, log_loss.ndim)
        for c, log_loss in pairs
        if c.name != name
    }
    (outcome,) = [c.outcome(x) for c, x in pairs if c.name == name]
    confidence = problem.confidence
    if not isinstance(confidence, Mapping):
        is_possible = np.all(list(by_others.values()), axis=0)
        possible = np.where(is_possible, outcome, np.inf)
        return _smallest(possible, draws_needed(confidence, draws))
    enough = [
        is_kept.sum(axis=0) >= draws_needed(confidence[other_name], draws)
        for other_name, is_kept in by_others.items()
    ]
    limit = _smallest(outcome, draws_needed(confidence[name], draws))
    return np.where(np.all(enough, axis=0), limit, np.inf)


def _smallest(
    values: Float[np.ndarray, " draw *point"], count: int
) -> Float[Any, "*point"]:
    return np.partition(values, count - 1, axis=0)[count - 1]


def relaxations(problem: Problem) -> list[dict]:
    """Find, for each limit, the lowest value at which a plan exists with the other
    limits fixed, and the plan's cost; with the plans at a round limit above it and at
    1.25 times the rise.
    """
    scan = problem.scan
    some = problem.with_draws(np.arange(scan.few)).constraints
    is_allowed = problem.allows(scan.u, scan.x[None])

    def plan_at(name: str, limit: float) -> tuple[Choice, dict]:
        choice = search(problem.relaxed(name, limit), scan)
        return choice, budget(problem, *choice[:2])

    rows = []
    for c, thin, log_loss in zip(
        problem.constraints, some, scan.log_losses, strict=True
    ):
        alone = (thin.below(log_loss) >= 0).mean(axis=0)[is_allowed].max(initial=0.0)
        row = {"promise": c.name, "limit": c.limit, "unit": c.unit}
        row |= {"probability_alone": float(alone)}
        rows.append(row)
        # ten times the limit over the loss: as far apart as log tokens are
        scale = 10 / c.size

        def score(
            some: Problem, grid: Grid, name: str = c.name, scale: float = scale
        ) -> Scores:
            limits = scale * limit_needed(some, name, grid.log_losses)
            x = np.broadcast_to(grid.x, limits.shape)
            return np.where(some.allows(grid.u, x), limits, np.inf), x

        lowest, u, x = zoom(problem, scan, score, near=(*NEAR, 4e-5))
        if not np.isfinite(lowest):
            row |= dict.fromkeys(("needed", "enough", "comfortable"))
            row |= budget(problem, *NO_CHOICE)
            continue
        needed = lowest / scale
        rise = needed - c.limit
        row |= budget(problem, x, float(problem.at(u))) | {"needed": needed}
        # a plan that only one choice of tokens and replay allows is easily missed
        for times in (1.0, 1.05, 1.25, 2.0):
            most = needed if times == 1 else c.limit + times * rise
            loosened = c.constraint.loosened(most)
            found, at_enough = plan_at(c.name, loosened.limit)
            if found.margin >= 0:
                break
        row["enough"] = {"limit": loosened.limit, "words": loosened.words} | at_enough
        # also plan with a comfortable limit, 1.25 times the smallest rise
        higher = c.limit + 1.25 * rise
        row["comfortable"] = {"limit": higher} | plan_at(c.name, higher)[1]
    return rows


def caps_in_the_way(problem: Problem) -> list[dict]:
    """Find the limits on data, each of which alone prevents a plan: supplies and the
    bounds of replay; with the plan without it.
    """
    # name, limit, and what is lifted
    free: list[tuple[str, float, dict[str, Any]]] = []
    for name, unique in problem.supplies.items():
        others = {k: v for k, v in problem.supplies.items() if k != name}
        free.append((name, unique, {"supplies": others}))
    if problem.least > 0:
        free.append(("least replay", problem.least, {"least": 0.0}))
    if problem.largest < 1:
        free.append(("largest replay", problem.largest, {"largest": 1.0}))
    rows = []
    for name, limit, lifted in free:
        choice = search(replace(problem, **lifted))
        if choice.margin < 0:
            continue
        row = budget(problem, *choice[:2])
        words, needed = name, choice.replay
        if name in SUPPLIES:
            words = SUPPLIES[name].words
            seen = math.exp(choice.log_tokens) * SUPPLIES[name].share(choice.replay)
            needed = limit * seen / problem.seen[name]  # unique, as the limit is
        rows.append({"cap": words, "limit": limit, "needed": needed} | row)
    return rows
