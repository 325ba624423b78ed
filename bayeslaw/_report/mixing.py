"""Build the page's part about mixtures: the plan, its pictures, and sliders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.columns import is_share, share_domains
from bayeslaw._plans.constraint import UNITS, Constraint
from bayeslaw._plans.mixing.mixture import MixturePlan
from bayeslaw._plans.mixing.question import MixtureArguments, question_of
from bayeslaw._plans.mixing.search import onto_simplex
from bayeslaw._plans.posing import pose
from bayeslaw._plans.problem import Problem
from bayeslaw._posteriors.pairs import fitted_range
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._report.explorer import (
    QUANTILES,
    SCALES,
    confidence_slider,
    encoded,
    limit_slider,
    low_rank,
    told_row,
    whole_numbers,
)
from bayeslaw._tables.rows.settings import cells_of

if TYPE_CHECKING:
    from jaxtyping import Float


NODES = 384  # mixtures of the interpolation, at which draws are taken
TESTS = 64  # others, at which its error is measured
ALONG_TOKENS = 0.25  # scale of a nat of log tokens relative to the root of a share


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Outcomes of draws, interpolated between mixtures.

    Those of all draws at some hundred mixtures have low rank, as on the map of replay
    (`explorer`): each draw is a weighted sum of a few surfaces. A simplex of many domains
    is too large for a grid. So mean and surfaces are interpolated between scattered
    mixtures by cubic radial functions with a quadratic tail (Duchon 1977), in the square
    roots of the shares and the logarithm of the tokens.
    """

    # positions of the mixtures (`places_of`), (node, axis)
    places: Float[np.ndarray, "node axis"]
    # coefficients of the radial functions and the tail, for the mean and each surface,
    # by constraint
    coefficients: tuple[Float[np.ndarray, "basis surface"], ...]
    # weights of each draw, by constraint
    weights: tuple[Float[np.ndarray, "draw rank"], ...]

    @classmethod
    def of(
        cls, problem: Problem, log_tokens: tuple[float, float], seed: int = 0
    ) -> Surrogate:
        """Take draws at mixtures within the bounds, and interpolate between them."""
        places, outcomes = scattered(problem, log_tokens, NODES, seed)
        # radial functions orthogonal to the tail
        tail = _tail(places)
        corner = np.zeros((tail.shape[1], tail.shape[1]))
        system = np.block([[_radial(places, places), tail], [tail.T, corner]])
        coefficients, weights = [], []
        for of_draw in outcomes:
            mean = of_draw.mean(axis=0)
            of_draws, surfaces = low_rank(of_draw - mean)
            heights = np.column_stack([mean, surfaces.T])
            nothing = np.zeros((tail.shape[1], heights.shape[1]))
            # least squares, because the matrix is singular if mixtures repeat (corners
            # of the problem) or if a share is fixed
            solution, *_ = np.linalg.lstsq(system, np.vstack([heights, nothing]))
            coefficients.append(solution)
            weights.append(of_draws)
        return cls(places, tuple(coefficients), tuple(weights))

    def at(
        self, places: Float[np.ndarray, "run axis"]
    ) -> Float[np.ndarray, "constraint draw run"]:
        """Compute outcomes of all draws at positions (`places_of`), as the page does."""
        basis = np.hstack([_radial(places, self.places), _tail(places)])
        sets = []
        for coefficients, weights in zip(self.coefficients, self.weights, strict=True):
            mean, *surfaces = (basis @ coefficients).T
            sets.append(mean + weights @ np.array(surfaces))
        return np.stack(sets)

    def error(
        self, problem: Problem, log_tokens: tuple[float, float], seed: int = 1
    ) -> float:
        """Measure the largest error of an outcome's median or of an end of its 90%
        interval, at mixtures that are not nodes, as a share of the loss.
        """
        places, outcomes = scattered(problem, log_tokens, TESTS, seed)
        tails = [0.05, 0.5, 0.95]
        exact = np.quantile(outcomes, tails, axis=1)
        near = np.quantile(self.at(places), tails, axis=1)
        return float(np.abs(np.expm1(near - exact)).max())


def scattered(
    problem: Problem, log_tokens: tuple[float, float], count: int, seed: int
) -> tuple[Float[np.ndarray, "run axis"], Float[np.ndarray, "constraint draw run"]]:
    """Scatter mixtures within the bounds, half of them on the edges, over sixteen
    budgets: positions (`places_of`) and outcomes in their scales. A fourth of them have
    the smallest budget, a fourth the largest.
    """
    rng = generator(seed, Stream.SCATTERED)
    low, high = problem.least, problem.largest
    inside = low + rng.dirichlet(np.full(len(low), 0.7), count) * (1 - low.sum())
    beyond = rng.dirichlet(np.full(len(low), 0.3), count) * 1.3 - 0.3 / len(low)
    is_inside = np.arange(count) % 2 == 0
    mixtures = np.where(is_inside[:, None], inside, beyond)
    shares = onto_simplex(mixtures, low, high)
    levels, level = np.linspace(*log_tokens, 16), rng.integers(16, size=count)
    place = rng.integers(4, size=count)
    level = np.select([place == 0, place == 1], [0, 15], level)
    outcomes = np.zeros((len(problem.constraints), problem.draws, count))
    for i, log_budget in enumerate(levels):
        at = np.flatnonzero(level == i)
        if len(at):
            losses = problem.log_losses(np.array([log_budget]), shares[at])
            for row, c, log_losses in zip(
                outcomes, problem.constraints, losses, strict=True
            ):
                into, _ = SCALES[UNITS[c.unit].scale or "linear"]
                row[:, at] = into(c.outcome(log_losses[..., 0]))
    return places_of(levels[level], shares), outcomes


def places_of(
    log_tokens: Float[np.ndarray, " run"], shares: Float[np.ndarray, "run domain"]
) -> Float[np.ndarray, "run axis"]:
    """Place runs at log tokens and the roots of shares, in which laws bend little."""
    places = np.column_stack([ALONG_TOKENS * log_tokens, np.sqrt(shares)])
    return places.astype(np.float32).astype(float)  # rounded as in the page's data


def _radial(
    places: Float[np.ndarray, "run axis"], nodes: Float[np.ndarray, "node axis"]
) -> Float[np.ndarray, "run node"]:
    apart = places[:, None] - nodes[None]
    return (apart**2).sum(axis=2) ** 1.5


def _tail(places: Float[np.ndarray, "run axis"]) -> Float[np.ndarray, "run tail"]:
    """Build the tail: one, each axis, and products of axes. Squared roots sum to one,
    so the last share's square is left out.
    """
    axes = places.shape[1]
    rows, columns = np.triu_indices(axes)
    products = (places[:, rows] * places[:, columns])[:, :-1]
    return np.hstack([np.ones((len(places), 1)), places, products])


def mixes(posterior: Posterior) -> bool:
    return all(len(share_domains(piece.covariates)) > 1 for piece in posterior.pieces())


def explored_mixture(
    fits: Mapping[str, Posterior], runs: pd.DataFrame, seed: int
) -> dict[str, Any]:
    """Build sliders for mixtures of the largest model of a table, from the middle of the
    fitted mixtures, at its best settings. Each limit starts at the median loss.
    """
    size, most = float(runs["N"].max()), float(runs["D"].max())
    best = _find_best_levels(fits, runs[runs["N"] == size])
    covariates = _read_last_checkpoint(fits, runs) | best
    arguments = MixtureArguments(fits, N=size, D=most, covariates=covariates, seed=seed)
    problem = pose(question_of(arguments))
    middle = np.full(len(problem.domains), 1 / len(problem.domains))
    shares = onto_simplex(middle, problem.least, problem.largest)
    settings = ", ".join(f"{column} {value:g}" for column, value in best.items())
    return build_sliders(fits, problem, math.log(most), shares, settings=settings)


def _find_best_levels(
    fits: Mapping[str, Posterior], runs: pd.DataFrame
) -> dict[str, float]:
    """Find the level of each tuned setting at which losses are least on average beside
    those of runs that are alike in all else: a run has one for all evaluation sets.
    """
    log_loss = runs["loss"].map(math.log)
    away = log_loss - log_loss.groupby(cells_of(runs)).transform("mean")
    tuned = {c for fit in fits.values() for piece in fit.pieces() for c in piece.tuned}
    of_levels = {c: away.groupby(runs[c]).mean() for c in sorted(tuned)}
    return {
        c: float(means.index.to_numpy(float)[means.to_numpy().argmin()])
        for c, means in of_levels.items()
    }


def _read_last_checkpoint(
    fits: Mapping[str, Posterior], runs: pd.DataFrame
) -> dict[str, dict[str, float]]:
    """Read what laws read beside size, tokens and shares, by column and evaluation set:
    values of the largest model at its last stage.
    """
    along = [column for column in ("N", "ptpp") if column in runs]
    last = runs.sort_values(along, kind="stable").groupby("domain").last()
    values = last.to_dict()
    read = [c for c in columns_read(*fits.values()) if not is_share(c)]
    return {
        column: {
            name: values[column][name]
            for name, fit in fits.items()
            if column in columns_read(fit)
        }
        for column in read
        if column not in ("N", "D")
    }


def build_sliders(
    fits: Mapping[str, Posterior],
    problem: Problem,
    log_tokens: float,
    shares: Float[np.ndarray, " domain"],
    plan: MixturePlan | None = None,
    settings: str = "",
) -> dict[str, Any]:
    """Build the sliders' data as JSON types, which start at these tokens and shares;
    tokens reach three times further than the start and the fitted runs. Without limits
    each loss is limited to its median.
    """
    fitted = fitted_range(fits, "D")
    if fitted is None:
        raise PlanError("the fits keep no table, whose tokens the sliders would span")
    low = min(math.log(fitted[0]), log_tokens)
    high = max(math.log(fitted[1]), log_tokens) + math.log(3.0)
    told, columns = {}, problem.columns_of(shares)
    for name, of_set in problem.sets.items():
        median = float(np.exp(np.median(of_set.log_losses(log_tokens, columns))))
        told[name] = replace(of_set, constraint=Constraint(name, median, "loss"))
    limits = problem.limits or list(told.values())
    told |= {limit.name: limit for limit in limits}
    limited = [limit.name for limit in limits]
    planned = {row["name"]: row for row in plan.limits} if plan else {}
    of_told = replace(problem, constraints=tuple(told.values()))
    surrogate, rows = Surrogate.of(of_told, (low, high)), {}
    for limit, coefficients, weights in zip(
        told.values(), surrogate.coefficients, surrogate.weights, strict=True
    ):
        # a loss is ``minus`` and ``per`` times the outcome: baselines are equal in all
        # draws
        has_baseline = UNITS[limit.unit].has_baseline
        rows[limit.name] = told_row(limit) | {
            "coefficients": encoded(coefficients.T, "<f4"),
            "weights": whole_numbers(weights.T),
            "minus": limit.baseline[0] if has_baseline else 0.0,
            "per": limit.baseline[0] if limit.unit == "relative" else 1.0,
            "most": None,
            "slider": limited.index(limit.name) if limit.name in limited else None,
            "planned": planned.get(limit.name),
        }
    # a limit's slider has the range of the outcomes at the nodes of the interpolation
    outcomes = dict(zip(told, surrogate.at(surrogate.places), strict=True))
    sliders = []
    for i, limit in enumerate(limits):
        _, back = SCALES[UNITS[limit.unit].scale or "linear"]
        ends = back(np.quantile(outcomes[limit.name], QUANTILES)).tolist()
        sliders.append(limit_slider(i, limit.constraint, ends))
    return {
        "N": problem.N,
        "draws": problem.draws,
        "settings": settings,
        "rows": list(rows.values()),
        "domains": list(problem.domains),
        "low": problem.least.tolist(),
        "high": problem.largest.tolist(),
        "logTokens": [low, high],
        "fittedTokens": list(fitted),
        "start": {"x": log_tokens, "shares": shares.tolist()},
        "probability": plan.probability if plan else None,
        "flopsPerToken": problem.costs.flops_per_token(problem.N),
        "sliders": [*sliders, confidence_slider(problem.confidences[0])],
        "error": surrogate.error(of_told, (low, high)),
        "alongTokens": ALONG_TOKENS,
        "places": encoded(surrogate.places, "<f4"),
    }
