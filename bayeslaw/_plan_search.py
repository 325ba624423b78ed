"""The chance-constrained problem at one model size and stage, and the search over replay that solves it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
from scipy import optimize

from bayeslaw import _engine
from bayeslaw._feasible import Intervals, Promise, cheapest, meet, needed

SCAN = np.linspace(0.0, 1.0, 32)
THIN = 8  # the scan looks at every replay with one draw in eight
SMALL = 1600  # draws below which it looks with all of them
XATOL = 2e-4  # of the search coordinate
CHALLENGERS = (256, 64)  # replays at which a cheaper budget is tried, with few and with many draws
CHEAPER = 5e-4 * 8.0 ** np.arange(3)  # by how much, in log tokens
DEARER = 1e-5 * 4.0 ** np.arange(7)  # by how much a budget whose draws do not keep their promises may rise
LOWER = np.array([0.0, 0.1, 0.3])  # below the budget, where a more probable plan is tried


class Choice(NamedTuple):
    """Log tokens, replay, and the share of draws beyond the confidence asked for (negative: not reached)."""

    log_tokens: float
    replay: float
    margin: float


@dataclass(frozen=True, eq=False)
class Problem:
    """The cheapest (tokens, replay) that keeps all promises in enough draws, for one model.

    Parameters
    ----------
    promises
        The target first, then the sources; draws are paired across promises.
    confidence
        Of all promises together, or one for each by name.
    max_tokens
        Budget of adaptation tokens; if finite, the probability is maximised within it.
    unique_tokens
        The most target tokens that may be seen, repetitions included.
    """

    promises: tuple[Promise, ...]
    confidence: float | Mapping[str, float]
    N: float
    ptpp: float
    max_tokens: float = math.inf
    unique_tokens: float = math.inf
    min_replay: float = 0.0

    @property
    def draws(self) -> int:
        return self.promises[0].draws

    @property
    def most_probable(self) -> bool:
        return math.isfinite(self.max_tokens)

    @property
    def span(self) -> tuple[float, float]:
        return self.promises[0].span

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of draws asked of each group of promises."""
        c = self.confidence
        return tuple(c[p.name] for p in self.promises) if isinstance(c, Mapping) else (c,)

    def replay(self, u):
        """Replay at a search coordinate in [0, 1], dense where replay or the target's share is small."""
        return self.min_replay + (1 - self.min_replay) * np.sin(np.pi / 2 * np.asarray(u)) ** 2

    def coordinate(self, replay: float) -> float:
        """The search coordinate of a replay."""
        return 2 / np.pi * math.asin(math.sqrt((replay - self.min_replay) / max(1 - self.min_replay, 1e-300)))

    def log_cap(self, replay):
        """The most log tokens that budget and unique target tokens allow."""
        target_share = np.maximum(1 - np.asarray(replay), 1e-300)
        return np.minimum(
            min(math.log(self.max_tokens), self.span[1]), math.log(self.unique_tokens) - np.log(target_share)
        )

    def intervals(self, replay) -> list[Intervals]:
        """Intervals in which each draw keeps each promise, at a common or at each draw's own replay."""
        rows = np.broadcast_to(np.asarray(replay, float), self.draws)
        with _engine.threads(len(self.promises)) as pool:  # compiling and computing leave Python's lock
            return list(pool.map(lambda p: p.intervals(rows), self.promises))

    def groups(self, intervals: Sequence[Intervals]) -> list[Intervals]:
        """What must reach a share of the draws: each promise, or all of them together."""
        return list(intervals) if isinstance(self.confidence, Mapping) else [reduce(meet, intervals)]

    def at(self, replay: float, intervals: Sequence[Intervals] | None = None) -> Choice:
        """The best tokens at a replay."""
        groups = self.groups(self.intervals(replay) if intervals is None else intervals)
        return Choice(*_at(self, groups, replay))

    def score(self, choice: Choice) -> float:
        """What the search over replay makes small: log tokens where the confidence is reached, else the shortfall."""
        tokens = min(choice.log_tokens, self.span[1])
        if self.most_probable:
            return 1e-6 * tokens - choice.margin
        return tokens if choice.margin >= 0 else self.span[1] + 1 - 10 * choice.margin

    def kept(self, log_tokens, replay) -> np.ndarray:
        """Whether each draw keeps each promise, shape (promise, draw)."""
        return np.stack([p.log_losses(log_tokens, replay) <= p.log_limit for p in self.promises])

    def margin(self, kept: np.ndarray) -> np.ndarray:
        """Share of draws beyond the confidence, of the group that has least of it; ``kept`` is (promise, draw, ...)."""
        groups = kept if isinstance(self.confidence, Mapping) else np.asarray(kept.all(axis=0, keepdims=True))
        counts = [g.sum(axis=0) - needed(c, self.draws) for g, c in zip(groups, self.shares, strict=True)]
        return np.min(counts, axis=0) / self.draws

    def margin_at(self, log_tokens: float, replay: float) -> float:
        """The margin at one budget and replay."""
        return float(self.margin(self.kept(log_tokens, replay)))

    def relaxed(self, name: str, limit: float) -> Problem:
        """The same problem with another limit in one promise."""
        return replace(self, promises=tuple(replace(p, limit=limit) if p.name == name else p for p in self.promises))


def _at(problem: Problem, groups: Sequence[Intervals], replay: float) -> tuple[float, float, float]:
    tokens, margin = cheapest(groups, problem.shares, float(problem.log_cap(replay)), problem.most_probable)
    return tokens, replay, margin


Scan = list[list[Intervals]]
"""Intervals at every replay of `SCAN`: by replay, then by promise."""


def scan(problem: Problem, thin: int) -> Scan:
    """Intervals at every replay of `SCAN`, of one draw in ``thin``.

    Several replays go into one call, so that every call has the shape of all draws and nothing is compiled twice.
    """
    few = problem.draws // thin
    index = np.tile(np.arange(few), thin)
    rows = replace(problem, promises=tuple(p.take(index) for p in problem.promises)) if thin > 1 else problem
    out: Scan = []
    for block in SCAN.reshape(-1, thin):
        whole = rows.intervals(np.repeat(problem.replay(block), few))
        cuts = [slice(k * few, (k + 1) * few) for k in range(thin)]
        out += [[(start[c], end[c]) for start, end in whole] for c in cuts]
    return out


def quick_scan(problem: Problem) -> Scan:
    """The scan that a search starts from."""
    return scan(problem, THIN if problem.draws >= SMALL else 1)


def search(problem: Problem, scanned: Scan | None = None, *, quick: bool = False) -> Choice:
    """The best tokens and replay; ``quick``: without the challenges, some tenths of a percent dearer.

    A scan of all replays; scipy's bounded search around its best minima; then, because an order statistic of draws
    has many small local minima along replay, challenges by cheaper budgets at all replays that come near.
    """
    scanned = scanned or quick_scan(problem)
    best, window = _searched(problem, scanned)
    if best.margin < 0 and len(scanned[0][0][0]) < problem.draws:
        best, window = _searched(problem, scan(problem, 1))
    if quick:
        return settled(problem, best)
    better = challenged(problem, best, window)
    if problem.score(better) >= problem.score(best):
        return settled(problem, refined(problem, problem.coordinate(best.replay), 10 * XATOL))
    for _ in range(6):
        best, better = better, challenged(problem, better, window)
        if problem.score(better) >= problem.score(best):
            break
    return settled(problem, best)


def _searched(problem: Problem, scanned: Scan) -> tuple[Choice, np.ndarray]:
    """The best choice around the scan's minima, and the search coordinates that come near it."""
    pairs = zip(problem.replay(SCAN), scanned, strict=True)
    scores = np.array([problem.score(problem.at(float(r), intervals)) for r, intervals in pairs])
    padded = np.concatenate([[np.inf], scores, [np.inf]])
    near = scores < scores.min() + 0.1
    lowest = np.flatnonzero((scores <= padded[:-2]) & (scores <= padded[2:]) & near)
    lowest = lowest[np.argsort(scores[lowest], kind="stable")][:3]
    step = float(SCAN[1] - SCAN[0])
    best = min((refined(problem, float(SCAN[i]), step, 10 * XATOL) for i in lowest), key=problem.score)
    inside = [*SCAN[near], problem.coordinate(best.replay)]
    window = np.clip([min(inside) - step / 2, max(inside) + step / 2], 0, 1)
    return best, np.linspace(window[0], window[1], CHALLENGERS[problem.draws >= SMALL])


def challenged(problem: Problem, best: Choice, u: np.ndarray) -> Choice:
    """The best choice near the search coordinate, of all ``u``, that beats the best so far by most."""
    replay, cheaper = problem.replay(u), best.margin >= 0 and not problem.most_probable
    top = best.log_tokens if cheaper else min(math.log(problem.max_tokens), best.log_tokens + 0.3, problem.span[1])
    x = top - (CHEAPER if cheaper else LOWER)
    margin = problem.margin(np.stack([p.kept_on_grid(x, replay) for p in problem.promises]))
    margin = np.where(x <= problem.log_cap(replay)[:, None] + 1e-12, margin, -1.0)
    if cheaper:
        reached = np.flatnonzero((margin >= 0).any(axis=0))
        margin = margin[:, reached[-1]] if reached.size else np.full(len(u), -1.0)
    else:
        margin = margin.max(axis=1)
    if margin.max() <= (-0.5 / problem.draws if cheaper else best.margin):
        return best
    return refined(problem, float(u[np.argmax(margin)]), float(u[1] - u[0]))


def refined(problem: Problem, u: float, width: float, xatol: float = XATOL) -> Choice:
    """The best choice with a search coordinate within ``width`` of ``u``."""
    seen: list[Choice] = []

    def score(coordinate: float) -> float:
        seen.append(problem.at(float(problem.replay(coordinate))))
        return problem.score(seen[-1])

    score(u)
    bounds = (max(u - width, 0.0), min(u + width, 1.0))
    optimize.minimize_scalar(score, bounds=bounds, method="bounded", options={"xatol": xatol, "maxiter": 40})
    return min(seen, key=problem.score)


def settled(problem: Problem, choice: Choice) -> Choice:
    """The choice moved up, until its draws keep the promises when evaluated: by rounding errors as a rule, by up to 4% where
    a draw's loss has a dip between the rungs on which roots were sought.
    """
    if not np.isfinite(choice.log_tokens):
        return choice
    tried = []
    for step in (0.0, *(1e-14 * 4.0**k * abs(choice.log_tokens) for k in range(12)), *DEARER):
        x = choice.log_tokens + step
        tried.append(Choice(x, choice.replay, problem.margin_at(x, choice.replay)))
        if tried[-1].margin >= choice.margin:
            return tried[-1]
    return max(tried, key=lambda c: c.margin)
