"""Build the page's part about mixtures: the plan, pictures of it, and the data of its
sliders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._costs.costs import Costs
from bayeslaw._law.columns import share_domains
from bayeslaw._plans.mixing.mixture import (
    MixtureArguments,
    MixturePlan,
    posed_and_solved,
)
from bayeslaw._plans.mixing.problem import (
    MixtureProblem,
    MixtureQuestion,
    SetLimits,
    fitted_range,
    pose,
)
from bayeslaw._plans.mixing.search import onto_simplex
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._report.explorer import MAP, confidence_slider, slider
from bayeslaw._report.figures import Picture, mixture_pictures
from bayeslaw._report.mixing.surrogate import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class MixturePart:
    """Mixtures on the page."""

    explorer: Mapping[str, Any]  # data of the sliders, as JSON types
    # the plan, if one was asked for, and pictures of it
    plan: MixturePlan | None = None
    pictures: tuple[Picture, ...] = field(default=())


def mixes(posterior: Posterior) -> bool:
    """Tell whether the laws of a posterior read shares."""
    return all(len(share_domains(piece.covariates)) > 1 for piece in posterior.pieces())


def planned_mixture(
    fits: Mapping[str, Posterior], question: Mapping[str, Any], seed: int, unit: str
) -> MixturePart:
    """Plan the mixture of a question, and explore around it."""
    arguments = MixtureArguments(fits, **{"seed": seed, **question})
    plan, problem = posed_and_solved(arguments)
    x = math.log(plan.D)
    start = _Start(x, np.array(list(plan.shares.values())), problem.confidence)
    costs = arguments.costs or Costs()
    flops_per_token = costs.flops_per_token(plan.N)
    if not plan.limits:
        limits = _at_medians(problem, start)
        return MixturePart(_explorer(problem, limits, start, flops_per_token), plan)
    explorer = _explorer(problem, problem.limits, start, flops_per_token, plan)
    return MixturePart(explorer, plan, mixture_pictures(plan, unit))


def explored_mixture(
    fits: Mapping[str, Posterior], runs: pd.DataFrame, seed: int
) -> MixturePart:
    """Explore mixtures of the largest model of a table, from the middle of the fitted
    mixtures. Each limit starts at the median loss.
    """
    size = float(runs["N"].max())
    most = float(runs["D"].max())
    problem = pose(MixtureQuestion(fits, N=size, seed=seed), most)
    middle = np.full(len(problem.domains), 1 / len(problem.domains))
    shares = onto_simplex(middle, problem.low, problem.largest)
    x = math.log(most)
    start = _Start(x, shares, MixtureArguments.confidence)
    limits = _at_medians(problem, start)
    return MixturePart(_explorer(problem, limits, start, Costs().flops_per_token(size)))


@dataclass(frozen=True, eq=False)
class _Start:
    """Start of the sliders: log tokens, shares, (domain,), and confidence."""

    x: float
    shares: Float[np.ndarray, " domain"]
    confidence: float


def _at_medians(problem: MixtureProblem, start: _Start) -> SetLimits:
    """Limit each loss to its median at the start."""
    log_losses, _ = problem.losses.at(start.x, start.shares)
    sets = problem.losses.sets
    return SetLimits(sets, np.eye(len(sets)), np.exp(np.median(log_losses, axis=1)))


def _explorer(
    problem: MixtureProblem,
    limits: SetLimits,
    start: _Start,
    flops_per_token: float,
    plan: MixturePlan | None = None,
    beyond: float = 3.0,
) -> dict[str, Any]:
    """Build the sliders' data as JSON types; tokens reach ``beyond`` times further than
    the start and the fitted runs.
    """
    fitted = fitted_range(problem.posteriors, "D")
    if fitted is None:
        raise PlanError("the fits keep no table, whose tokens the sliders would span")
    low = min(math.log(fitted[0]), start.x)
    high = max(math.log(fitted[1]), start.x) + math.log(beyond)
    surrogate = Surrogate.of(problem, (low, high))
    losses = problem.losses
    return {
        "N": losses.fixed[0]["N"],
        "draws": losses.noise.shape[1],
        "sets": list(losses.sets),
        "domains": list(losses.domains),
        "low": problem.low.tolist(),
        "high": problem.largest.tolist(),
        "logTokens": [low, high],
        "fittedTokens": list(fitted),
        "start": {"x": start.x, "shares": start.shares.tolist()},
        "probability": plan.probability if plan else None,
        "planned": plan.limits if plan else [],
        "flopsPerToken": flops_per_token,
        "limits": [
            {"name": name, "weights": weights.tolist()}
            for name, weights in zip(limits.names, limits.weights, strict=True)
        ],
        "sliders": _sliders(surrogate, limits, start),
        "error": surrogate.error(problem, (low, high)),
        **surrogate.packed(),
    }


def _sliders(
    surrogate: Surrogate, limits: SetLimits, start: _Start
) -> list[dict[str, Any]]:
    """Build the sliders of the question; a limit's slider has the range of the losses."""
    losses = np.exp(surrogate.at_nodes())
    rows = []
    for i, (name, most) in enumerate(zip(limits.names, limits.most, strict=True)):
        means = np.einsum("s,sdn->dn", limits.weights[i], losses)
        low, high = np.quantile(means, MAP.quantiles)
        rows.append(
            slider(
                f"limit-{i}",
                f"{label(name)} at most",
                "nats",
                ends=(float(low), float(high)),
                step=0.001,
                start=float(most),
            )
        )
    rows.append(confidence_slider(start.confidence))
    return rows


def label(name: str) -> str:
    """Name the quantity of a limit."""
    return "Mean loss" if name == "mean" else f"Loss of {name}"
