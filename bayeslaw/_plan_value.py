"""What a plan says beyond its two numbers: promises, alternatives, what the truth is worth, why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np
from scipy import optimize

from bayeslaw._feasible import Promise, meet, needed
from bayeslaw._plan_search import Choice, Problem, Scan, refined, search

CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BAND = (0.05, 0.5, 0.95)
STEP = 1e-3  # a promise is relaxed by this share of its loss to see what it is worth
SLACK = 1.25  # a limit that must rise by x is also priced at 1.25 x


def number(x) -> float | None:
    """A float that JSON can hold; None for what is not finite."""
    return float(x) if np.isfinite(x) else None


def budget(problem: Problem, log_tokens: float, replay: float) -> dict:
    """ATPP, tokens, replay and FLOPs (6 N D) of a choice; None where there is none."""
    d = np.exp(log_tokens)
    given = {"atpp": d / problem.N, "D": d, "replay": replay, "flops": 6 * problem.N * d}
    return {k: number(v) for k, v in given.items()} if np.isfinite(d) else dict.fromkeys(given)


def probabilities(problem: Problem, log_tokens: float, replay: float) -> dict:
    """Share of draws that keep all promises, the target's, and those of all sources."""
    kept = problem.kept(log_tokens, replay)
    return {
        "probability": float(kept.all(axis=0).mean()),
        "probability_target": float(kept[0].mean()),
        "probability_forgetting": float(kept[1:].all(axis=0).mean()),
    }


def promises(problem: Problem, choice: Choice) -> list[dict]:
    """Each promise at the plan: its limit, its probability, and the loss or forgetting to expect with 90% interval."""
    return [
        {
            "name": p.name, "limit": p.limit, "unit": p.unit, "probability": float((log <= p.log_limit).mean()),
            "mean": number(p.outcome(log).mean()), "low": number(np.quantile(p.outcome(log), BAND[0])),
            "high": number(np.quantile(p.outcome(log), BAND[-1])),
        }
        for p in problem.promises
        for log in [p.log_losses(choice.log_tokens, choice.replay)]
    ]  # fmt: skip


# -- which promise costs what ----------------------------------------------------------------------------------------


def limit_step(promise: Promise) -> float:
    """A thousandth of the promised loss in the units of the limit."""
    return STEP * {"loss": promise.limit, "relative": 1.0, "nats": float(promise.baseline.mean())}[promise.unit]


def worth(problem: Problem, choice: Choice) -> dict[str, float]:
    """What a limit higher by a thousandth of the loss would give: log tokens saved; within a budget, probability."""
    u = problem.coordinate(choice.replay)
    out = {}
    for p in problem.promises:
        other = refined(problem.relaxed(p.name, p.limit + limit_step(p)), u, 0.03, xatol=5e-4)
        gain = other.margin - choice.margin if problem.most_probable else choice.log_tokens - other.log_tokens
        out[p.name] = max(float(gain), 0.0)
    return out


def binding(problem: Problem, choice: Choice, worths: Mapping[str, float]) -> str:
    """Names of what keeps the plan from being cheaper, joined by "and"."""
    most = max(worths.values())
    names = [name for name, w in worths.items() if w > 0.1 * most]
    if problem.most_probable:
        richer = replace(problem, max_tokens=1.05 * problem.max_tokens)
        if refined(richer, problem.coordinate(choice.replay), 0.03, xatol=5e-4).margin > choice.margin:
            names.append("budget")
    if choice.log_tokens + np.log1p(-min(choice.replay, 1 - 1e-12)) >= np.log(problem.unique_tokens) - 1e-3:
        names.append("unique target tokens")
    if problem.min_replay > 0 and choice.replay < problem.min_replay + 1e-4:
        names.append("least replay")
    return " and ".join(names) or "none"


# -- alternatives ----------------------------------------------------------------------------------------------------


def frontier(problem: Problem, scanned: Scan, choice: Choice) -> list[dict]:
    """The cheapest budget at each confidence that all promises are kept. A dearer, safer plan serves below it too."""
    levels = sorted({*CONFIDENCES, problem.confidence} if isinstance(problem.confidence, float) else CONFIDENCES)
    rows: list[dict] = []
    found = []
    for level in levels:
        own = level == problem.confidence and not problem.most_probable
        hopeless = bool(found) and found[-1].margin < 0
        at_level = replace(problem, confidence=level, max_tokens=np.inf)
        found.append(choice if own else found[-1] if hopeless else search(at_level, scanned, quick=True))
    best = Choice(np.inf, np.nan, -1.0)
    for level, own in zip(reversed(levels), reversed(found), strict=True):
        best = own if own.margin >= 0 and own.log_tokens < best.log_tokens else best
        rows.append({"confidence": level} | budget(problem, best.log_tokens, best.replay))
    return rows[::-1]


def region(problem: Problem, log_tokens: float, size: int = 31) -> dict:
    """Probability that all promises are kept over replay and ATPP, a decade around the plan; [replay][ATPP]."""
    x = np.linspace(log_tokens - np.log(10), log_tokens + np.log(10), size)
    replay = np.linspace(problem.min_replay, 1, size)
    kept = np.all([p.kept_on_grid(x, replay) for p in problem.promises], axis=0)
    return {
        "atpp": (np.exp(x) / problem.N).tolist(),
        "replay": replay.tolist(),
        "probability": np.mean(kept, axis=0).tolist(),
    }


def tradeoff(problem: Problem, log_tokens: float, size: int = 49) -> dict:
    """Target loss and forgetting along replay at one budget, with 90% bands (Goffinet 2025, fig. 2)."""
    replay = np.linspace(max(problem.min_replay, 0.01), 0.99, size)
    bands = {}
    for p in problem.promises:
        outcome = p.outcome(p.log_losses_on_grid(np.array([log_tokens]), replay)[:, :, 0])
        low, median, high = np.quantile(outcome, BAND, axis=0)
        bands[p.name] = {"limit": p.limit, "unit": p.unit} | {
            k: [number(v) for v in values] for k, values in {"low": low, "median": median, "high": high}.items()
        }
    return {"atpp": float(np.exp(log_tokens) / problem.N), "replay": replay.tolist(), "bands": bands}


# -- knowing the truth -----------------------------------------------------------------------------------------------


def cheapest_if_known(problem: Problem, start: Choice) -> tuple[np.ndarray, np.ndarray]:
    """Log tokens and replay that one would choose if a draw were the truth, shape (draw,); +inf where none will do.

    Replay is searched for all draws at once: a scan, then ever closer neighbours of each draw's best.
    """
    u = np.full(problem.draws, problem.coordinate(start.replay) if np.isfinite(start.log_tokens) else 0.5)
    x = log_tokens_needed(problem, problem.replay(u))
    grid = np.linspace(0, 1, 17)
    steps = [np.full(problem.draws, at) for at in grid]
    for at in steps:
        u, x = _better(problem, u, x, at)
    width = grid[1]
    for _ in range(5):
        center = u
        for offset in (-2 / 3, -1 / 3, 1 / 3, 2 / 3):
            u, x = _better(problem, u, x, np.clip(center + offset * width, 0, 1))
        width /= 3
    return x, problem.replay(u)


def log_tokens_needed(problem: Problem, replay: np.ndarray) -> np.ndarray:
    """The fewest log tokens with which each draw keeps all promises at its own replay, shape (draw,)."""
    starts = reduce(meet, problem.intervals(replay))[0].min(axis=1)
    return np.where(starts <= problem.log_cap(replay), starts, np.inf)


def _better(problem: Problem, u: np.ndarray, x: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates ``other`` where they need fewer tokens than ``u`` with its ``x``."""
    tokens = log_tokens_needed(problem, problem.replay(other))
    return np.where(tokens < x, other, u), np.minimum(tokens, x)


def knowing_the_truth(problem: Problem, choice: Choice) -> dict:
    """Distribution of the plan one would choose knowing the truth, and what not knowing it costs.

    ``regret`` is the mean number of tokens the plan spends beyond need where it keeps its promises.
    ``perfect_information`` is the plan's tokens minus the mean tokens of the plans made with known truth in the
    cheapest share of draws that makes up the confidence: the saving at equal reliability.
    """
    x, replay = cheapest_if_known(problem, choice)
    tokens, some = np.exp(x), np.isfinite(x)
    out = {"share_with_a_plan": float(some.mean()), "quantiles": list(QUANTILES)}
    for name, values in {"atpp": tokens / problem.N, "replay": replay}.items():
        out[name] = np.quantile(values[some], QUANTILES).tolist() if some.any() else None
    kept = problem.kept(choice.log_tokens, choice.replay).all(axis=0)
    plan_tokens, count = np.exp(choice.log_tokens), int(kept.sum())
    if count == 0 or not np.isfinite(plan_tokens):
        return out | {"regret": None, "perfect_information": None}
    sure = np.sort(tokens)[:count] if problem.most_probable else np.sort(tokens)[: _asked(problem, count)]
    return out | {
        "regret": float(plan_tokens - tokens[kept].mean()),
        "perfect_information": float(plan_tokens - sure.mean()),
    }


def _asked(problem: Problem, kept: int) -> int:
    """How many draws the joint confidence asks for; with one confidence per promise, as many as the plan keeps."""
    return needed(problem.shares[0], problem.draws) if len(problem.shares) == 1 else kept


# -- why there is none -----------------------------------------------------------------------------------------------


def limit_needed(problem: Problem, name: str, log_losses: list[np.ndarray]) -> np.ndarray:
    """The lowest limit of one promise at which the confidence is reached, given log losses (draw, ...) by promise."""
    at = [p.name for p in problem.promises].index(name)
    p = problem.promises[at]
    shape = (-1,) + (1,) * (log_losses[0].ndim - 1)
    kept = [x <= q.log_limit.reshape(shape) for q, x in zip(problem.promises, log_losses, strict=True)]
    outcome, draws = p.outcome(log_losses[at]), problem.draws
    others = kept[:at] + kept[at + 1 :]
    if not isinstance(problem.confidence, Mapping):
        possible = np.where(np.all(others, axis=0), outcome, np.inf) if others else outcome
        count = needed(problem.confidence, draws)
        return np.partition(possible, count - 1, axis=0)[count - 1]
    names = [q.name for q in problem.promises if q.name != name]
    enough = [k.sum(axis=0) >= needed(problem.confidence[n], draws) for n, k in zip(names, others, strict=True)]
    count = needed(problem.confidence[name], draws)
    return np.where(np.all(enough, axis=0), np.partition(outcome, count - 1, axis=0)[count - 1], np.inf)


def relaxations(problem: Problem, size: int = 33) -> list[dict]:
    """For each promise: how far its limit alone must rise for a plan to exist, and what that would cost.

    The best point of a grid over replay and tokens is polished by scipy's Nelder-Mead search.
    """
    few = problem.draws // 4 if problem.draws >= 1000 else problem.draws
    thin = replace(problem, promises=tuple(p.take(np.arange(few)) for p in problem.promises))
    u, x = np.linspace(0, 1, size), np.linspace(*problem.span, size)
    allowed = x[None, :] <= problem.log_cap(problem.replay(u))[:, None]
    grid = [p.log_losses_on_grid(x, problem.replay(u)) for p in thin.promises]
    rows = []
    for p, log_loss in zip(thin.promises, grid, strict=True):
        limits = np.where(allowed, limit_needed(thin, p.name, grid), np.inf)
        alone = (log_loss <= p.log_limit[:, None, None]).mean(axis=0)[allowed].max(initial=0.0)
        order = np.argsort(limits, axis=None, kind="stable")[:20]
        starts = [(float(u[i]), float(x[j])) for i, j in zip(*np.unravel_index(order, limits.shape), strict=True)]
        row = {"promise": p.name, "limit": p.limit, "unit": p.unit, "probability_alone": float(alone)}
        rows.append(row | _relaxed(problem, p.name, starts))
    return rows


def _relaxed(problem: Problem, name: str, starts: list[tuple[float, float]]) -> dict:
    """The limit that one promise needs, searched from the first start where there is one, and the plans it buys."""

    def limit(point) -> float:
        at = float(problem.replay(np.clip(point[0], 0, 1)))
        if not (0 <= point[0] <= 1 and problem.span[0] <= point[1] <= problem.log_cap(at)):
            return np.inf
        return float(limit_needed(problem, name, [p.log_losses(point[1], at) for p in problem.promises]))

    start = next((s for s in starts if np.isfinite(limit(s))), None)
    if start is None:
        return {"needed": None, "comfortable": None} | budget(problem, np.inf, np.nan)
    u, x = start
    simplex = [(u, x), (u + 0.02 if u < 0.5 else u - 0.02, x), (u, x - 0.2)]
    found = optimize.minimize(
        limit,
        start,
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "maxfev": 80, "xatol": 1e-4, "fatol": 1e-7},
    )
    now = next(p.limit for p in problem.promises if p.name == name)
    higher = now + SLACK * (found.fun - now)
    easy = search(problem.relaxed(name, higher))
    at_limit = budget(problem, found.x[1], float(problem.replay(found.x[0])))
    return at_limit | {
        "needed": float(found.fun),
        "comfortable": {"limit": higher} | budget(problem, easy.log_tokens, easy.replay),
    }
