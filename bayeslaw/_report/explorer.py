"""Pack the planner's own draws on a grid into small data for the page's map.

Log outcomes of all draws on a grid of replay and tokens have low rank, because draws
differ in a handful of ways. So a few surfaces, and a few weights for each draw,
reproduce them: outcome = mean + weights @ surfaces, a truncated singular value
decomposition. The page interpolates the surfaces at a point (cubic, in the grid's
coordinates) and multiplies them by the weights. This gives every draw's outcome at the
point, and so the probability that all limits are kept together.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import linalg

from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.question import FORGETTING, MEAN, TARGET
from bayeslaw._plans.result import Plan
from bayeslaw._plans.sampled import SampledConstraint
from bayeslaw._plans.search import Problem
from bayeslaw._tables.beyond import values_along


class MapSize(NamedTuple):
    """Extent and resolution of the map and its sliders."""

    # Points of the grid. There are many replays, because losses may bend sharply along
    # replay; one call evaluates 16 of them.
    replays: int = 64
    tokens: int = 49
    # factor by which the grid's tokens reach below and above the plan's
    factor: float = 12.0
    # how far the slider of forgetting goes above the limit
    more_forgetting: float = 0.1
    # quantiles of outcomes at which a slider ends
    quantiles: tuple[float, float] = (0.002, 0.998)
    # largest loss that is shown, over the largest of the table
    loss_factor: float = 1.5
    # largest forgetting that is shown; 1 doubles the loss
    largest_forgetting: float = 1.0


class LowRank(NamedTuple):
    """Accuracy of `low_rank`."""

    # Largest mean error of the page's log outcomes. It is a hundredth of the width of a
    # 90% interval of a few percent.
    tolerance: float = 2e-4
    most: int = 32  # largest rank
    # number of draws from which the surfaces are computed; as many other draws decide
    # how many surfaces are needed
    rows: int = 800


MAP, NEARNESS = MapSize(), LowRank()


def explorer(problem: Problem, answer: Plan, runs: pd.DataFrame) -> dict[str, Any]:
    """Build the map's data as JSON types; arrays are in base64, little-endian.

    ``problem``: the planner's problem. ``answer``: the plan, around which the grid
    lies. ``runs``: the target's runs; the region beyond their tokens and replay is
    hatched.
    """
    # within the factor, and within the range in which the planner searches roots
    middle = _middle(problem, answer)
    low = max(middle - math.log(MAP.factor), problem.span[0])
    high = min(middle + math.log(MAP.factor), problem.span[1])
    grid_tokens = np.linspace(low, high, MAP.tokens)
    # the map also shows replays beyond the fitted ones, but no plan is searched there
    least = 0.0 if "min_replay" in problem.fitted else problem.min_replay
    wide = replace(problem, min_replay=least, max_replay=1.0)
    # evenly spaced in the planner's search coordinate: dense near 0 and near 1
    grid_replay = wide.replay(np.linspace(0, 1, MAP.replays))
    lies_inside = (problem.min_replay <= grid_replay) & (
        grid_replay <= problem.max_replay
    )
    largest = _most(runs)
    promises = problem.by_constraint(
        lambda promise: _packed(promise, grid_tokens, grid_replay, lies_inside, largest)
    )
    return {
        "N": problem.N,
        "cost": _costs(problem),
        "draws": problem.draws,
        "confidence": problem.confidence,
        "seeksProbability": problem.most_probable,
        "minReplay": least,
        "plannedReplay": [problem.min_replay, problem.max_replay],
        "uniqueTokens": _finite(problem.unique_tokens),
        "logTokens": grid_tokens.tolist(),
        "replay": grid_replay.tolist(),
        "plan": _plan(answer),
        "plugIn": {key: answer.plug_in[key] for key in ("D", "replay")},
        "measured": {name: _ends(runs, name) for name in ("D", "replay")},
        "promises": promises,
        "sliders": sliders(problem, promises, (low, high)),
    }


def _costs(problem: Problem) -> dict[str, Any]:
    """Build the cost of a token and the cost that is paid once, for the page."""
    costs = problem.costs
    per_token = costs.of_tokens(problem.N, 1.0)
    return {
        "perToken": per_token.to_dict(),
        "once": costs.once(problem.N, problem.ptpp).to_dict(),
    }


def _plan(answer: Plan) -> dict[str, Any] | None:
    """Build the numbers of the plan, else of the most probable choice, as on the rest
    of the page. The map shows them when the point is there.
    """
    keys = ("mean", "low", "high", "probability")
    choice = _choice(answer)
    if not choice["D"]:
        return None
    return {
        "D": choice["D"],
        "replay": choice["replay"],
        "isPlan": answer.D is not None,
        "feasible": answer.feasible,
        "probability": choice["probability"],
        "promises": [{key: row[key] for key in keys} for row in answer.promises],
    }


def _choice(answer: Plan) -> Mapping[str, Any]:
    """Find the plan, or without one the most probable choice."""
    if answer.D is None:
        return (answer.explanation or {})["best"]
    return {
        "D": answer.D,
        "replay": answer.replay,
        "probability": answer.probability,
    }


def _most(runs: pd.DataFrame) -> float | None:
    """Compute the largest loss that is shown; beyond it no run was measured."""
    columns = [c for c in ("loss", *LOSSES_BEFORE) if c in runs]
    losses = runs[columns].to_numpy(float)
    finite = losses[np.isfinite(losses)]
    return MAP.loss_factor * float(finite.max()) if len(finite) else None


def can_explore(problem: Problem) -> bool:
    """Tell whether the page can plan this question: it has a slider for one confidence
    of all limits together, and for limits on the loss of one domain each.
    """
    is_plain = all(
        not c.constraint.weights and UNITS[c.unit].scale is not None
        for c in problem.constraints
    )
    return is_plain and isinstance(problem.confidence, float)


def _middle(problem: Problem, answer: Plan) -> float:
    """Find the log tokens of the plan; without a plan, of the most probable attempt."""
    tokens = _choice(answer)["D"]
    if tokens:
        return math.log(tokens)
    # If no adaptation is needed, the map is centred at one token per parameter.
    return math.log(problem.N)


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _ends(runs: pd.DataFrame, name: str) -> list[float] | None:
    """Find the range of a column, if it has numbers."""
    # replay may be 0; counts are positive
    if name == "replay" and name in runs:
        return [float(runs[name].min()), float(runs[name].max())]
    values = values_along(runs, name)
    if values is None:
        return None
    return [float(values.min()), float(values.max())]


# -- sliders ---------------------------------------------------------------------------


def sliders(
    problem: Problem, promises: list[dict[str, Any]], log_tokens: tuple[float, float]
) -> list[dict[str, Any]]:
    """Build the sliders: name, label, unit, ends, step and start.

    The ends of a limit's slider follow from the range of the draws and not from the
    question, so the slider does not move.
    """
    assert isinstance(problem.confidence, float)
    rows = [_limit_slider(i, promise) for i, promise in enumerate(promises)]
    rows.append(confidence_slider(problem.confidence))
    # in log tokens; at the upper end there is no cap
    least, most = log_tokens
    start = min(math.log(problem.max_tokens), most) if problem.most_probable else most
    rows.append(
        slider(
            "budget", "Tokens at most", "", ends=(least, most), step=0.01, start=start
        )
    )
    return rows


def confidence_slider(confidence: float) -> dict[str, Any]:
    """Build the slider of the confidence."""
    return slider(
        "confidence",
        "Probability at least",
        "%",
        ends=(50.0, 99.0),
        step=0.5,
        start=100 * confidence,
    )


def _limit_slider(index: int, promise: Mapping[str, Any]) -> dict[str, Any]:
    """Build the slider of one limit, in percent for shares and in nats otherwise."""
    low, high = promise["range"]
    limit, is_share = promise["limit"], promise["isShare"]
    if UNITS[promise["unit"]].has_baseline:
        # without replay forgetting is very large, so the slider ends near the limit
        high = min(high, max(limit, 0.0) + MAP.more_forgetting)
    scale = 100 if is_share else 1
    return slider(
        f"limit-{index}",
        f"{promise['label']} at most",
        "%" if is_share else "nats",
        ends=(scale * low, scale * high),
        step=0.05 if is_share else 0.001,
        start=scale * limit,
    )


def promise_label(name: str, unit: str) -> str:
    """Name the quantity of a limit: "Target loss", "Forgetting of code"."""
    if unit == "error":
        return "Wrong answers"
    if name == TARGET:
        return "Target loss" if unit == "loss" else "Target loss over the checkpoint's"
    if name == MEAN:
        return "Mean loss" if unit == "loss" else "Rise of the mean loss"
    if unit == "loss":
        return f"Loss of {name}"
    return "Forgetting" if name == FORGETTING else f"Forgetting of {name}"


def slider(
    name: str,
    label: str,
    unit: str,
    *,
    ends: tuple[float, float],
    step: float,
    start: float,
) -> dict[str, Any]:
    """Build a slider whose ends are whole steps from its start, so that it can start
    there.
    """
    steps_below = math.ceil(max(start - ends[0], 0) / step)
    steps_above = math.ceil(max(ends[1] - start, 0) / step)
    return {
        "name": name,
        "label": label,
        "unit": unit,
        "step": step,
        "low": f"{start - steps_below * step:.6f}",
        "high": f"{start + steps_above * step:.6f}",
        "value": f"{start:.6f}",
    }


# -- packing ---------------------------------------------------------------------------


def _packed(
    promise: SampledConstraint,
    log_tokens: np.ndarray,
    replay: np.ndarray,
    lies_inside: np.ndarray,
    largest_loss: float | None,
) -> dict[str, Any]:
    """Pack one promise on the grid: a mean surface, surfaces, and each draw's weights.

    The ends of the slider follow from the draws at replays at which plans are searched
    (``lies_inside``, shape (replay,)). Outcomes beyond the largest loss are not shown.

    Shapes: mean (replay x tokens,), surfaces (rank, replay x tokens), weights (rank,
    draw).
    """
    unit = UNITS[promise.unit]
    outcome = promise.outcome(promise.log_losses_on_grid(log_tokens, replay))
    rows = _smooth(outcome, unit.scale).reshape(len(outcome), -1)
    mean = rows.mean(axis=0)
    rows -= mean
    weights, surfaces = low_rank(rows)
    few = outcome[:: _stride(outcome)][:, lies_inside]
    most = None if unit.has_baseline else largest_loss
    if unit.is_share:
        most = MAP.largest_forgetting
    low, high = np.quantile(few, MAP.quantiles)
    return {
        "name": promise.name,
        "label": promise_label(promise.name, promise.unit),
        "unit": promise.unit,
        "isShare": unit.is_share,
        "scale": unit.scale,
        "limit": promise.limit,
        "range": [float(low), float(high if most is None else min(high, most))],
        "most": most,
        "rank": len(surfaces),
        "mean": encoded(mean, "<f4"),
        "surfaces": whole_numbers(surfaces),
        "weights": whole_numbers(weights.T),
    }


def _smooth(outcome: np.ndarray, scale: str | None) -> np.ndarray:
    """Transform outcomes for packing, as ``INTO`` in `planner.js` does for their unit. A
    loss becomes its logarithm. A share x becomes log(1 + x), because it may be negative
    but not below -1. Nats of forgetting are unchanged.
    """
    if scale == "log":
        return np.log(outcome)
    return np.log1p(outcome) if scale == "log1p" else outcome.copy()


def low_rank(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Approximate a matrix by factors (row, rank) and (rank, column).

    The accuracy is that of `LowRank`, or the rank is the largest allowed. The column
    space is computed from a selection of rows, and other rows decide the rank; all rows
    are projected on it.
    """
    # A few hundred rows span the same space as thousands.
    stride = _stride(matrix)
    axes = _principal_axes(matrix[::stride])
    test_rows = matrix[stride // 2 :: stride]
    weights_of_others = test_rows @ axes.T

    def is_near(rank: int) -> bool:
        error = weights_of_others[:, :rank] @ axes[:rank] - test_rows
        return bool(np.abs(error).mean() < NEARNESS.tolerance)

    # the error falls with the rank, so bisection finds the least rank
    rank = 1 + bisect_left(range(1, len(axes)), True, key=is_near)
    return matrix @ axes[:rank].T, axes[:rank]


def _principal_axes(rows: np.ndarray) -> np.ndarray:
    """Compute the first right singular vectors of rows, shape (rank, column),
    orthonormal.

    They come from the small matrix of products of rows. This loses vectors with
    singular values below 1e-8 of the largest, which is far below the tolerance.
    """
    most = len(rows)
    leading = (max(most - NEARNESS.most, 0), most - 1)
    _, mixtures = linalg.eigh(rows @ rows.T, subset_by_index=leading)
    # the largest first
    axes, _ = np.linalg.qr(rows.T @ mixtures[:, ::-1])
    return axes.T


def _stride(rows: np.ndarray) -> int:
    """Compute the step between selected rows."""
    return max(1, len(rows) // NEARNESS.rows)


def whole_numbers(rows: np.ndarray) -> dict[str, Any]:
    """Quantise rows to whole numbers of two bytes, with the step of each row."""
    # avoid a step of 0 for a row of zeros
    largest = np.maximum(np.abs(rows).max(axis=1), 1e-300)
    steps = largest / np.iinfo(np.int16).max
    rounded = np.round(rows / steps[:, None])
    return {"steps": steps.tolist(), "whole": encoded(rounded, "<i2")}


def encoded(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()
