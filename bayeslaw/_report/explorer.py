"""What the page's explorer plans with: the planner's own draws on a grid, packed small.

Log outcomes of all draws on a grid of replay and tokens are of low rank (a handful of
ways in which draws differ), so that a few numbers a draw and a few surfaces give them
back: outcome = mean + weights @ surfaces, a truncated singular value decomposition. The
page multiplies it out once and then only counts.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayeslaw._decisions.planning.sampled import SampledConstraint
from bayeslaw._decisions.planning.search import Problem

REPLAYS, TOKENS = 41, 64  # of the grid
REACH = 12.0  # the grid's tokens are within this factor of the plan's
FORGETTING_REACH = 0.1  # the forgetting slider goes this far above the limit asked for
TOLERANCE = 2e-4  # of a log outcome, between the draws and what the page multiplies out
MAX_RANK = 40
BASIS_ROWS = 400  # from which the surfaces are found
REACHED = (0.002, 0.998)  # quantiles of outcomes at which a slider ends


def explorer(problem: Problem, log_tokens: float) -> dict[str, Any]:
    """The explorer's data as JSON types; arrays are float32, little-endian, in base64.

    Parameters
    ----------
    problem
        The planner's problem, with one promise for a source.
    log_tokens
        Of the plan, around which the grid lies.
    """
    # Within the factor, and where the planner itself looks for roots.
    low = max(log_tokens - math.log(REACH), problem.span[0])
    high = min(log_tokens + math.log(REACH), problem.span[1])
    grid_tokens = np.linspace(low, high, TOKENS)
    grid_replay = np.linspace(problem.min_replay, 1.0, REPLAYS)
    return {
        "N": problem.N,
        "ptpp": problem.ptpp,
        "draws": problem.draws,
        "logTokens": grid_tokens.tolist(),
        "replay": grid_replay.tolist(),
        "promises": [
            _packed(promise, grid_tokens, grid_replay)
            for promise in problem.constraints
        ],
    }


def can_explore(problem: Problem, choice: Mapping[str, Any]) -> bool:
    """Whether the page can plan this.

    It can with one source, forgetting relative to its baseline, one confidence, and a
    plan to start at.
    """
    units = [promise.unit for promise in problem.constraints]
    has_one_confidence = isinstance(problem.confidence, float)
    return units == ["loss", "relative"] and bool(choice["D"]) and has_one_confidence


# -- sliders ---------------------------------------------------------------------------


def sliders(problem: Problem, packed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sliders: name, label, ends, step and start. Ends are what the draws reach."""
    assert isinstance(problem.confidence, float)
    target, source = (promise.limit for promise in problem.constraints)
    reached_target, reached_source = (p["range"] for p in packed["promises"])
    most_forgetting = min(reached_source[1], max(source, 0.0) + FORGETTING_REACH)
    # The budget's slider is in log tokens per parameter.
    log_n = math.log(problem.N)
    least_tokens = packed["logTokens"][0] - log_n
    most_tokens = packed["logTokens"][-1] - log_n
    return [
        _slider(
            "target",
            "Target loss at most",
            ends=tuple(reached_target),
            step=0.001,
            start=target,
        ),
        _slider(
            "forgetting",
            "Forgetting at most (%)",
            ends=(100 * reached_source[0], 100 * most_forgetting),
            step=0.05,
            start=100 * source,
        ),
        _slider(
            "confidence",
            "Probability (%)",
            ends=(50.0, 99.0),
            step=0.5,
            start=100 * problem.confidence,
        ),
        _slider(
            "budget",
            "Budget",
            ends=(least_tokens, most_tokens),
            step=0.01,
            start=most_tokens,
        ),
    ]


def _slider(
    name: str, label: str, *, ends: tuple[float, float], step: float, start: float
) -> dict[str, Any]:
    """A slider whose ends are whole steps from its start, so that it starts there."""
    steps_below = math.ceil(max(start - ends[0], 0) / step)
    steps_above = math.ceil(max(ends[1] - start, 0) / step)
    return {
        "name": name,
        "label": label,
        "step": step,
        "low": f"{start - steps_below * step:.6f}",
        "high": f"{start + steps_above * step:.6f}",
        "value": f"{start:.6f}",
    }


# -- packing ---------------------------------------------------------------------------


def _packed(
    promise: SampledConstraint, log_tokens: np.ndarray, replay: np.ndarray
) -> dict[str, Any]:
    """One promise on the grid: a mean surface, surfaces, and each draw's weights.

    Shapes: mean (replay x tokens,), surfaces (rank, replay x tokens), weights (draw,
    rank).
    """
    outcome = promise.outcome(promise.log_losses_on_grid(log_tokens, replay))
    # Forgetting may be negative, but not below -1: its logarithm is that of 1 + it.
    is_share = promise.unit == "relative"
    log_outcome = np.log1p(outcome) if is_share else np.log(outcome)
    rows = log_outcome.reshape(len(outcome), -1)
    mean = rows.mean(axis=0)
    weights, surfaces = low_rank(rows - mean)
    return {
        "name": promise.name,
        "unit": promise.unit,
        "limit": promise.limit,
        "range": [float(end) for end in np.quantile(outcome, REACHED)],
        "rank": len(surfaces),
        "mean": _encoded(mean),
        "surfaces": _encoded(surfaces),
        "weights": _encoded(weights),
    }


def low_rank(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors (row, rank) and (rank, column) whose product is near a matrix.

    Within `TOLERANCE` everywhere, or of rank `MAX_RANK`. The column space is that of
    every few rows, found quickly; all rows are projected on it.
    """
    # A few hundred rows span the same space as thousands.
    few = matrix[:: max(1, len(matrix) // BASIS_ROWS)]
    axes = np.linalg.svd(few, full_matrices=False)[2][:MAX_RANK]
    weights = matrix @ axes.T

    def is_near(rank: int) -> bool:
        error = weights[:, :rank] @ axes[:rank] - matrix
        return bool(np.abs(error).max() < TOLERANCE)

    # The error falls with the rank, so that the least rank is found by halving.
    rank = 1 + bisect_left(range(1, len(axes)), True, key=is_near)
    return weights[:, :rank], axes[:rank]


def _encoded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()
