"""Pack the planner's own draws into small data by which the page explores plans.

Log outcomes of all draws at many places have low rank, because draws differ in a handful
of ways. So a few surfaces, and a few weights for each draw, reproduce them: outcome =
mean + weights @ surfaces, a truncated singular value decomposition. The page
interpolates the surfaces at a point (cubic on a grid of replay and tokens; `mixing`
between mixtures) and multiplies them by the weights. This gives every draw's outcome at
the point, and so the probability that all limits are kept together.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.limits import SUPPLIES
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._plans.constraint import UNITS, Constraint
from bayeslaw._plans.problem import Problem
from bayeslaw._plans.question import FORGETTING, MEAN, TARGET
from bayeslaw._plans.result import Plan
from bayeslaw._plans.sampled import DRAWS, SampledConstraint
from bayeslaw._tables.beyond import values_along

# Points of the map's grid. There are many replays, because losses may bend sharply along
# replay; one call evaluates 16 of them.
REPLAYS, TOKENS = 64, 49
FACTOR = 12.0  # by which the grid's tokens reach below and above the plan's
MORE_FORGETTING = 0.1  # how far the slider of forgetting goes above the limit
QUANTILES = (0.002, 0.998)  # of outcomes, at which a slider ends
LOSS_FACTOR = 1.5  # largest loss that is shown, over the largest of the table
LARGEST_FORGETTING = 1.0  # that is shown; 1 doubles the loss
# Largest mean error of the page's log outcomes, a hundredth of the width of a 90% interval
# of a few percent, and the largest rank. Surfaces are computed from so many draws; as many
# others decide how many surfaces are needed.
TOLERANCE, MOST_RANK, ROWS = 2e-4, 32, 500
# How outcomes are transformed, by the scale of their unit, and back, as ``INTO`` and
# ``BACK`` in `explorer.js` do. A loss becomes its logarithm. A share x becomes log(1 + x),
# because it may be negative but not below -1. Nats of forgetting are unchanged.
SCALES = {
    "log": (np.log, np.exp),
    "log1p": (np.log1p, np.expm1),
    "linear": (np.copy, np.copy),
}


def explorer(problem: Problem, answer: Plan, runs: pd.DataFrame) -> dict[str, Any]:
    """Build the data of the map around a plan as JSON types; arrays are in base64,
    little-endian. The region beyond the target's ``runs`` is hatched.
    """
    choice = choose_middle(answer)
    # Within the factor, and within the range in which the planner searches. If no
    # adaptation is needed, the map is centred at one token per parameter.
    middle = math.log(choice["D"] or problem.N)
    low = max(middle - math.log(FACTOR), problem.span[0])
    high = min(middle + math.log(FACTOR), problem.span[1])
    grid_tokens = np.linspace(low, high, TOKENS)
    # the map also shows replays beyond the fitted ones, but no plan is searched there
    least = 0.0 if "min_replay" in problem.fitted else problem.least
    wide = replace(problem, least=least, largest=1.0)
    # evenly spaced in the planner's search coordinate: dense near 0 and near 1
    grid_replay = wide.at(np.linspace(0, 1, REPLAYS))
    lies_inside = (problem.least <= grid_replay) & (grid_replay <= problem.largest)
    # the largest loss that is shown; beyond it no run was measured
    losses = runs[[c for c in ("loss", *LOSSES_BEFORE) if c in runs]].to_numpy(float)
    finite = losses[np.isfinite(losses)]
    largest = LOSS_FACTOR * float(finite.max()) if len(finite) else None
    packed = problem.by_constraint(
        lambda promise: _pack(promise, grid_tokens, grid_replay, lies_inside)
    )
    rows, sliders = [], []
    for c, promise, surfaces in zip(
        problem.constraints, answer.promises, packed, strict=True
    ):
        unit, (least_outcome, most_outcome) = UNITS[c.unit], surfaces.pop("ends")
        most = None if unit.has_baseline else largest
        most = LARGEST_FORGETTING if unit.is_share else most
        if most is not None:
            most_outcome = min(most_outcome, most)
        if unit.has_baseline:
            # without replay forgetting is very large, so the slider ends near the limit
            near = max(c.limit, 0.0) + MORE_FORGETTING
            most_outcome = min(most_outcome, near)
        sliders.append(
            limit_slider(len(rows), c.constraint, (least_outcome, most_outcome))
        )
        place = {"slider": len(rows), "most": most, "planned": promise}
        rows.append(told_row(c) | surfaces | place)
    assert isinstance(problem.confidence, float)
    # in log tokens; at the upper end there is no cap
    start = min(math.log(problem.max_tokens), high) if problem.most_probable else high
    budget = slider(
        "budget", "Tokens at most", "", ends=(low, high), step=0.01, start=start
    )
    # ranges of the fitted runs; replay may be 0, and counts are positive
    along = {"D": values_along(runs, "D"), "replay": runs.get("replay")}
    costs = problem.costs
    return {
        "N": problem.N,
        "cost": {
            "perToken": costs.of_tokens(problem.N, 1.0).to_dict(),
            "once": costs.once(problem.N, problem.ptpp).to_dict(),
        },
        "draws": problem.draws,
        "confidence": problem.confidence,
        "seeksProbability": problem.most_probable,
        "minReplay": least,
        "plannedReplay": [problem.least, problem.largest],
        "supplies": [
            {"tokens": most, "shares": SUPPLIES[name].shares}
            for name, most in problem.seen.items()
        ],
        "logTokens": grid_tokens.tolist(),
        "replay": grid_replay.tolist(),
        "plan": choice if choice["D"] else None,
        "plugIn": {key: answer.plug_in[key] for key in ("D", "replay")},
        "measured": {
            name: None if x is None else [float(x.min()), float(x.max())]
            for name, x in along.items()
        },
        "rows": rows,
        "sliders": [*sliders, confidence_slider(problem.confidence), budget],
    }


def choose_middle(answer: Plan) -> dict[str, Any]:
    """Choose the plan, or without one the most probable choice, with its numbers."""
    best = answer.most_probable()
    choice = {name: best[name] for name in ("D", "replay", "probability")}
    return choice | {"isPlan": answer.D is not None, "feasible": answer.feasible}


def can_explore(problem: Problem) -> bool:
    """Tell whether the page has sliders for this question: for one confidence of all
    limits together, and for limits on the loss of one domain each.
    """
    is_plain = all(
        not c.constraint.weights and UNITS[c.unit].scale is not None
        for c in problem.constraints
    )
    return is_plain and isinstance(problem.confidence, float)


# -- rows and sliders -----------------------------------------------------------------


def told_row(limit: SampledConstraint) -> dict[str, Any]:
    unit = UNITS[limit.unit]
    return {
        "name": limit.name,
        "label": promise_label(limit.name, limit.unit),
        "isShare": unit.is_share,
        "scale": unit.scale,
    }


def limit_slider(
    place: int, limit: Constraint, ends: Sequence[float]
) -> dict[str, Any]:
    is_share = UNITS[limit.unit].is_share
    scale = 100 if is_share else 1
    return slider(
        f"limit-{place}",
        f"{promise_label(limit.name, limit.unit)} at most",
        "%" if is_share else "nats",
        ends=[scale * end for end in ends],
        step=0.05 if is_share else 0.001,
        start=scale * limit.limit,
    )


def confidence_slider(confidence: float) -> dict[str, Any]:
    name, start = "Probability at least", 100 * confidence
    return slider("confidence", name, "%", ends=(50.0, 99.0), step=0.5, start=start)


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
    ends: Sequence[float],
    step: float,
    start: float,
) -> dict[str, Any]:
    """Build a slider whose ends are whole steps from its start."""
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


def _pack(
    promise: SampledConstraint,
    log_tokens: np.ndarray,
    replay: np.ndarray,
    lies_inside: np.ndarray,
) -> dict[str, Any]:
    """Pack one promise on the grid: mean and surfaces as coefficients of its cells, shape
    (1 + rank, replay x tokens), and each draw's weights, (rank, draw).

    ``ends``: of outcomes at replays at which plans are searched (``lies_inside``, shape
    (replay,)).
    """
    into, back = SCALES[UNITS[promise.unit].scale or "linear"]
    # surfaces from as many draws as one call evaluates
    some = promise.take(np.arange(min(promise.draws, DRAWS)))
    rows = into(some.outcome(some.log_losses_on_grid(log_tokens, replay)))
    mean = rows.mean(axis=0)
    _, surfaces = low_rank((rows - mean).reshape(len(rows), -1))
    # all draws by least squares at every fourth replay and token
    at = np.ix_(_every_fourth(replay), _every_fourth(log_tokens))
    thin = promise.log_losses_on_grid(log_tokens[at[1][0]], replay[at[0][:, 0]])
    deviations = (into(promise.outcome(thin)) - mean[at]).reshape(promise.draws, -1)
    there = surfaces.reshape(-1, *mean.shape)[:, *at].reshape(len(surfaces), -1)
    weights = deviations @ np.linalg.pinv(there)
    return {
        "ends": back(np.quantile(rows[:, lies_inside], QUANTILES)),
        "coefficients": whole_numbers(np.vstack([mean.ravel(), surfaces])),
        "weights": whole_numbers(weights.T),
    }


def _every_fourth(values: np.ndarray) -> np.ndarray:
    return np.linspace(0, len(values) - 1, -(-len(values) // 4)).round().astype(int)


def low_rank(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Approximate a matrix by factors (row, rank) and (rank, column) within `TOLERANCE`,
    or of the largest rank. Some rows give the column space, on which all are projected,
    and others decide the rank.
    """
    # A few hundred rows span the same space as thousands.
    stride = max(1, len(matrix) // ROWS)
    rows, test_rows = matrix[::stride], matrix[stride // 2 :: stride]
    axes = np.linalg.svd(rows, full_matrices=False)[2][:MOST_RANK]
    weights_of_others = test_rows @ axes.T

    def is_near(rank: int) -> bool:
        error = weights_of_others[:, :rank] @ axes[:rank] - test_rows
        return bool(np.abs(error).mean() < TOLERANCE)

    # the error falls with the rank, so bisection finds the least rank
    rank = 1 + bisect_left(range(1, len(axes)), True, key=is_near)
    return matrix @ axes[:rank].T, axes[:rank]


def whole_numbers(rows: np.ndarray) -> dict[str, Any]:
    # avoid a step of 0 for a row of zeros
    largest = np.maximum(np.abs(rows).max(axis=1), 1e-300)
    steps = largest / np.iinfo(np.int16).max
    rounded = np.round(rows / steps[:, None])
    return {"steps": steps.tolist(), "whole": encoded(rounded, "<i2")}


def encoded(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(array, kind).tobytes()).decode()
