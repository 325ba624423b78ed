"""What a planner is asked, checked, and the chance-constrained problem it becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from bayeslaw._errors import PlanError
from bayeslaw._feasible import Part, Promise
from bayeslaw._plan_search import Problem
from bayeslaw._posterior import Piece

FEWEST = 1000  # parameters of a model
TARGET, FORGETTING = "target", "forgetting"
ATPP_RANGE = (1e-4, 1e4)  # between which roots are sought; 0 is looked at separately
BEFORE, SOURCE_BEFORE = "loss_before", "source_loss_before"


@dataclass(frozen=True, eq=False)
class Question:
    """What `plan` was asked, for one model."""

    pieces: Mapping[str, tuple[Piece, ...]]  # by promise, the target first
    N: float
    ptpp: float
    max_target_loss: float
    max_forgetting: Mapping[str, float]  # by source
    unit: str
    baseline_loss: Mapping[str, Any]
    baseline_tokens: Mapping[str, float | None]
    covariates: Mapping[str, Any]
    confidence: float | Mapping[str, float]
    max_tokens: float
    unique_tokens: float
    min_replay: float
    new_run: bool
    draws: int
    seed: int


# -- what was asked --------------------------------------------------------------------------------------------------


def positive(name: str, given: Any) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise PlanError(f"{name} must be a positive number, got {given!r}")
    return number


def check_names(sources: Mapping, confidence: Any, point: Mapping | None) -> None:
    if not sources or TARGET in sources:
        raise PlanError(f"name at least one source, and none {TARGET!r}; got {list(sources)}")
    names = [TARGET, *sources]
    if isinstance(confidence, Mapping) and set(confidence) != set(names):
        raise PlanError(f"confidence by promise needs exactly {', '.join(names)}; got {', '.join(confidence)}")
    unknown = [n for n in point or {} if n not in names]
    if unknown:
        raise PlanError(f"point names no promise {unknown[0]!r}; promises: {', '.join(names)}")


def check_settings(confidence, min_replay, unit, draws, baseline_loss, baseline_tokens) -> None:
    for c in confidence.values() if isinstance(confidence, Mapping) else [confidence]:
        if isinstance(c, str) or not 0 < c <= 1:
            raise PlanError(f"confidence must be a probability in (0, 1], got {c!r}")
    if not 0 <= min_replay <= 1:
        raise PlanError(f"min_replay must be a share in [0, 1], got {min_replay!r}; write 10% as 0.1")
    if unit not in ("relative", "nats"):
        raise PlanError(f"forgetting_unit must be 'relative' or 'nats', got {unit!r}")
    if draws < 1:
        raise PlanError(f"draws must be at least 1, got {draws!r}")
    if baseline_loss is not None and baseline_tokens is not None:
        raise PlanError("give baseline_loss or baseline_tokens, not both")


def models_of(N: Any, ptpp: Any) -> list[tuple[float, float]]:
    """The candidate models, as (N, ptpp)."""
    n, s = np.atleast_1d(np.asarray(N, float)), np.atleast_1d(np.asarray(ptpp, float))
    if 1 != len(n) != len(s) != 1:
        raise PlanError(
            f"N and ptpp must have one length, or one of them be a single number; got {len(n)} and {len(s)}"
        )
    pairs = np.broadcast_arrays(n, s)
    models = [(positive("N", a), positive("ptpp", b)) for a, b in zip(*pairs, strict=True)]
    small = [a for a, _ in models if a < FEWEST]
    if small:
        raise PlanError(f"N = {small[0]:g} is too few parameters for a model; in billions? write {small[0]:g}B")
    return models


def of_source(given: Any, source: str) -> Any:
    """What was given for one source, or for all."""
    if isinstance(given, Mapping) and source not in given:
        raise PlanError(f"nothing given for source {source!r}; given: {', '.join(map(str, given))}")
    return given[source] if isinstance(given, Mapping) else given


def of_model(given: Any, model: int, models: int) -> Any:
    """What was given for one model, or for all."""
    one_each = models > 1 and isinstance(given, Sequence | np.ndarray) and not isinstance(given, str)
    if one_each and len(given) != models:
        raise PlanError(f"{models} models, but {len(given)} values given: one for each, or one number for all")
    return given[model] if one_each else given


def forgetting_limit(given: Any, source: str) -> float:
    limit = of_source(given, source)
    if isinstance(limit, str) or not math.isfinite(limit) or limit <= -1:
        raise PlanError(f"max_forgetting must be a number over -1 (0.02 is 2%), got {limit!r}")
    return float(limit)


# -- posteriors to promises ------------------------------------------------------------------------------------------


def pose(question: Question, pieces: Mapping[str, tuple[Piece, ...]]) -> Problem:
    promises = [_promise(question, name, own, position) for position, (name, own) in enumerate(pieces.items())]
    return Problem(
        promises=tuple(promises), confidence=question.confidence, N=question.N, ptpp=question.ptpp,
        max_tokens=question.max_tokens, unique_tokens=question.unique_tokens, min_replay=question.min_replay,
    )  # fmt: skip


def _promise(question: Question, name: str, pieces: tuple[Piece, ...], position: int) -> Promise:
    """Draws of one posterior, resampled, with limit, baseline and noise."""
    q, rng = question, np.random.default_rng([question.seed, position])
    order = _resample(rng, sum(p.draws for p in pieces), q.draws)
    columns = _columns(q, name)
    parts, noise, offset = [], np.zeros(q.draws), 0
    for piece in pieces:
        rows = np.flatnonzero((order >= offset) & (order < offset + piece.draws))
        local = _canonical(piece)[order[rows] - offset]
        offset += piece.draws
        if not rows.size:
            continue
        draw = {k: np.asarray(v, float)[local] for k, v in piece.values.items()}
        noise[rows] = _noise(draw, rng) if q.new_run else 0.0
        fixed = {c: jnp.asarray(columns[c][rows]) for c in _read(piece, name, columns)}
        parts.append(Part(piece.log_loss, {k: jnp.asarray(v) for k, v in draw.items()}, fixed, rows))
    span = tuple(math.log(q.N * a) for a in ATPP_RANGE)
    target = name == TARGET
    limit = q.max_target_loss if target else q.max_forgetting[name]
    bare = Promise(name, limit, "loss" if target else q.unit, tuple(parts), np.ones(q.draws), noise, span)  # pyright: ignore
    return (bare if target else replace(bare, baseline=_baseline(q, bare, columns))).with_shape_checked()


def _resample(rng: np.random.Generator, total: int, draws: int) -> np.ndarray:
    """Indices of draws: permutations of all, one after the other."""
    return rng.permuted(np.tile(np.arange(total), (-(-draws // total), 1)), axis=1).ravel()[:draws]


def _canonical(piece: Piece) -> np.ndarray:
    """Indices that put the draws in an order of their own, so that the order they come in does not matter.

    What a chain forecasts (``column:name``) decides between equals only: with a checkpoint forecast or measured, the
    law's draws come in one order, so that they meet the same random numbers.
    """
    names = sorted(piece.values, key=lambda name: (":" not in name, name))  # the last one decides first
    columns = [np.asarray(piece.values[name], float).reshape(piece.draws, -1) for name in names]
    return np.lexsort(np.hstack(columns).T)


def _noise(draw: Mapping[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Student-t noise of a new run on log loss, shape (draw,); zeros for a posterior that has none."""
    if "sigma" not in draw:
        return np.zeros(len(next(iter(draw.values()))))
    sigma = draw["sigma"]
    return sigma * (rng.standard_t(draw["dof"]) if "dof" in draw else rng.standard_normal(len(sigma)))


def _columns(question: Question, name: str) -> dict[str, np.ndarray]:
    """What is known of the run to plan, per draw: shape (draw,). A source's ``loss_before`` is its own."""
    q = question
    given = {"N": q.N, "ptpp": q.ptpp} | dict(q.covariates)
    own = _source_before(q, name) if name != TARGET else None
    if own is not None:
        given |= {BEFORE: own, SOURCE_BEFORE: own}
    elif name != TARGET:
        given.pop(BEFORE, None)
    elif isinstance(given.get(SOURCE_BEFORE), Mapping):
        given.pop(SOURCE_BEFORE)
    return {c: _per_draw(q, c, v) for c, v in given.items()}


def _source_before(question: Question, name: str) -> Any:
    """The source's loss before adaptation, if it was given."""
    measured = question.baseline_loss[name]
    return of_source(question.covariates.get(SOURCE_BEFORE), name) if measured is None else measured


def _per_draw(question: Question, name: str, given: Any) -> np.ndarray:
    """A covariate per draw. Arrays of one length are joint draws and stay paired."""
    values = np.atleast_1d(np.asarray(given, float))
    if values.ndim != 1 or not np.isfinite(values).all() or (values <= 0).any():
        raise PlanError(f"{name} must be a positive number, or draws of it in one dimension; got {given!r}"[:200])
    return values[_resample(np.random.default_rng([question.seed, 1000]), len(values), question.draws)]


def _read(piece: Piece, name: str, columns: Mapping[str, np.ndarray]) -> list[str]:
    """The covariates that a plan does not choose."""
    read = [c for c in piece.covariates if c not in ("D", "replay")]
    missing = [c for c in read if c not in columns]
    if missing and name != TARGET and missing[0] in (BEFORE, SOURCE_BEFORE):
        raise PlanError(f"the source's law reads {missing[0]}: give baseline_loss, its loss before adaptation")
    if missing:
        raise PlanError(f"the law of {name} reads {missing[0]!r}: give covariates={{{missing[0]!r}: ...}}")
    return read


def _baseline(question: Question, promise: Promise, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """Source loss before adaptation in nats per token, shape (draw,)."""
    if question.baseline_loss[promise.name] is not None:
        return columns[SOURCE_BEFORE]
    tokens = question.baseline_tokens[promise.name]
    if tokens is None and SOURCE_BEFORE in columns:
        return columns[SOURCE_BEFORE]
    if isinstance(tokens, str) or not 0 <= (tokens or 0) < math.inf:
        raise PlanError(f"baseline_tokens must be a number of tokens, got {tokens!r}")
    loss = np.exp(promise.log_losses(math.log(tokens) if tokens else -math.inf, 1.0))
    if not np.isfinite(loss).all():
        raise PlanError(
            f"the source's law has no loss at D = {tokens or 0:g} (it diverges), so forgetting has no baseline: give "
            "baseline_loss, the loss measured before adaptation, or baseline_tokens, a reference budget of pure replay"
        )
    return loss


def point_piece(pieces: tuple[Piece, ...], values: Mapping[str, float] | None, name: str) -> Piece:
    """One draw: the values given, else the posterior mean, of the formula with most draws."""
    piece = max(pieces, key=lambda p: p.draws)
    unknown = [k for k in values or {} if k not in piece.values]
    if unknown:
        raise PlanError(f"point of {name}: no parameter {unknown[0]!r}; there are: {', '.join(piece.values)}")
    order = _canonical(piece)
    mean = {k: np.mean(np.asarray(v, float)[order], axis=0, keepdims=True) for k, v in piece.values.items()}
    given = {k: np.reshape(np.asarray(v, float), mean[k].shape) for k, v in (values or {}).items()}
    return Piece(piece.log_loss, mean | given, piece.covariates)
