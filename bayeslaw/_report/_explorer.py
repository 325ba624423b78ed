"""What the page's explorer plans with: the planner's own draws on a grid of replay and tokens, packed small.

Log outcomes of all draws on the grid are of low rank (a handful of ways in which draws differ), so that a few numbers a
draw and a few surfaces give them back; the page multiplies them out once and then only counts.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayeslaw._feasible import Promise
from bayeslaw._plan_search import Problem

REPLAYS, TOKENS = 41, 64  # of the grid
REACH = 30.0  # the grid's tokens are within this factor of the plan's
FORGETTING_REACH = 0.1  # the forgetting slider goes this far above the limit asked for
TOLERANCE = 2e-4  # of a log outcome, between the draws and what the page multiplies out
MAX_RANK = 24
BASIS_ROWS = 400  # from which the surfaces are found


def explorer(problem: Problem, log_tokens: float) -> dict[str, Any]:
    """The explorer's data as JSON types; arrays are float32, little-endian, in base64.

    Parameters
    ----------
    problem
        The planner's problem, with one promise for a source.
    log_tokens
        Of the plan, around which the grid lies.
    """
    low, high = log_tokens - math.log(REACH), log_tokens + math.log(REACH)
    x = np.linspace(max(low, problem.span[0]), min(high, problem.span[1]), TOKENS)
    replay = np.linspace(problem.min_replay, 1.0, REPLAYS)
    return {
        "N": problem.N,
        "ptpp": problem.ptpp,
        "draws": problem.draws,
        "logTokens": x.tolist(),
        "replay": replay.tolist(),
        "promises": [_packed(p, x, replay) for p in problem.promises],
    }


def sliders(problem: Problem, packed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sliders: name, label, ends, step and start. Ends are what the draws reach."""
    (_, target_high), (forget_low, forget_high) = (p["range"] for p in packed["promises"])
    target, source = (p.limit for p in problem.promises)
    target_low = packed["promises"][0]["range"][0]
    forget_high = min(forget_high, max(source, 0.0) + FORGETTING_REACH)
    assert isinstance(problem.confidence, float)
    return [
        _slider("target", "Target loss at most", target_low, target_high, 0.001, target),
        _slider("forgetting", "Forgetting at most (%)", 100 * forget_low, 100 * forget_high, 0.05, 100 * source),
        _slider("confidence", "Probability (%)", 50.0, 99.0, 0.5, 100 * problem.confidence),
        _slider("budget", "Budget", packed["logTokens"][0] - math.log(problem.N),
                packed["logTokens"][-1] - math.log(problem.N), 0.01, packed["logTokens"][-1] - math.log(problem.N)),
    ]  # fmt: skip


def _slider(name: str, label: str, low: float, high: float, step: float, value: float) -> dict[str, Any]:
    """Ends on whole steps from the start, so that the slider starts exactly where it should."""
    below, above = math.ceil(max(value - low, 0) / step), math.ceil(max(high - value, 0) / step)
    ends = {"low": value - below * step, "high": value + above * step, "value": value}
    return {"name": name, "label": label, "step": step} | {k: f"{v:.6f}" for k, v in ends.items()}


def _packed(promise: Promise, x: np.ndarray, replay: np.ndarray) -> dict[str, Any]:
    """One promise: surfaces (rank, replay, tokens), weights (draw, rank), and the mean surface."""
    outcome = promise.outcome(promise.log_losses_on_grid(x, replay))
    value = (np.log1p(outcome) if promise.unit == "relative" else np.log(outcome)).reshape(len(outcome), -1)
    mean = value.mean(axis=0)
    weights, surfaces = low_rank(value - mean)
    return {
        "name": promise.name,
        "unit": promise.unit,
        "limit": promise.limit,
        "range": [float(v) for v in np.quantile(outcome, [0.002, 0.998])],
        "rank": len(surfaces),
        "mean": _encoded(mean),
        "surfaces": _encoded(surfaces),
        "weights": _encoded(weights),
    }


def low_rank(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (row, rank) and (rank, column) whose product is within `TOLERANCE` of a matrix, or of rank `MAX_RANK`.

    The column space is that of every few rows, found quickly; all rows are projected on it.
    """
    few = matrix[:: max(1, len(matrix) // BASIS_ROWS)]
    axes = np.linalg.svd(few, full_matrices=False)[2][:MAX_RANK]
    weights = matrix @ axes.T

    def is_near(rank: int) -> bool:
        return bool(np.abs(weights[:, :rank] @ axes[:rank] - matrix).max() < TOLERANCE)

    rank = 1 + bisect_left(range(1, len(axes)), True, key=is_near)
    return weights[:, :rank], axes[:rank]


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def can_explore(problem: Problem, choice: Mapping[str, Any]) -> bool:
    """Whether the page can plan: one source, forgetting relative to its baseline, one confidence, and a plan to start at."""
    units = [p.unit for p in problem.promises]
    return units == ["loss", "relative"] and bool(choice["D"]) and isinstance(problem.confidence, float)
