"""Pose a question as a problem: pair the draws, and set limits, baselines and noise.

This file knows no law. It reads only the pieces of a posterior, and the log loss of one
draw of a piece at given covariates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import KINDS, TOKENS, checked
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.noise import (
    CHANGE_BY_TOKENS,
    Learned,
    RunNoise,
    draw_new_effects,
    find_learned,
)
from bayeslaw._inference.table import OF_CHECKPOINT
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._plans.constraint import UNITS, Constraint
from bayeslaw._plans.problem import Problem
from bayeslaw._plans.question import MEAN, Model, Question, check_names
from bayeslaw._plans.sampled import Part, SampledConstraint
from bayeslaw._posteriors.draws import shuffled, take_draws
from bayeslaw._posteriors.pairs import coupled
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._posteriors.repetition import UNIQUE

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def pose(question: Question, model: Model | None = None) -> Problem:
    """Pose the problem of one of the question's models, by default of the first; raises
    where a covariate or a baseline that the laws need is missing or out of range.
    """
    model = model or question.models[0]
    domains = _domains(question, model)
    budget = question.budget
    budget = replace(budget, max_tokens=budget.tokens(model.N))
    constraints = []
    for constraint in question.constraints:
        if constraint.unit == "error":
            ((name, _),) = constraint.weights
            link = question.link
            assert link is not None
            rng = generator(question.seed, Stream.PLAN_ACCURACY)
            by_draw = link.take(shuffled(rng, link.draws, question.draws))
            if question.new_run:
                by_draw = by_draw.of_new_evaluation(rng)
            of_accuracy = replace(domains[name], constraint=constraint, link=by_draw)
            constraints.append(of_accuracy)
        elif constraint.weights:
            constraints.append(SampledConstraint.of_mean(constraint, domains))
        else:
            constraints.append(domains[constraint.name])
    mean = None
    if question.weights:
        no_limit = Constraint(MEAN, math.inf, "loss", tuple(question.weights.items()))
        mean = SampledConstraint.of_mean(no_limit, domains)
        constraints = constraints or [mean]
    return Problem(
        constraints=tuple(constraints),
        confidence=question.confidence,
        N=model.N,
        ptpp=model.ptpp,
        targets=model.targets,
        sets=domains,
        mean=mean,
        **vars(budget),
    )


def _domains(question: Question, model: Model) -> dict[str, SampledConstraint]:
    """Resample the draws of every domain, paired by the correlation of their errors."""
    domains = {
        name: _sampled(question, model, name, position)
        for position, name in enumerate(question.pieces)
    }
    errors = question.errors
    if errors is None:
        return domains
    low, high = next(iter(domains.values())).span
    log_tokens = float(np.clip(math.log(model.N * errors.atpp), low, high))
    least, most = question.budget.least, question.budget.largest
    replay = float(np.clip(errors.replay, least, most))
    scores = [d.log_losses(log_tokens, replay) for d in domains.values()]
    rng = generator(question.seed, Stream.PLAN_PAIRS)
    orders = coupled(np.stack(scores), errors, rng)
    return {
        name: _sampled(question, model, name, position, order)
        for position, (name, order) in enumerate(zip(domains, orders, strict=True))
    }


def _sampled(
    question: Question,
    model: Model,
    name: str,
    position: int,
    order: Int[np.ndarray, " draw"] | None = None,
) -> SampledConstraint:
    """Resample the draws of one posterior, with limit, baseline and noise; draws and noise
    in an ``order``, if there is one.
    """
    columns = {
        column: _per_draw(question, column, setting)
        for column, setting in model.columns[name].items()
    }
    pieces, chosen = question.pieces[name], {"D", "replay"}
    for piece in pieces:
        for column in piece.columns_in(columns):
            if column not in columns and column not in chosen and not is_share(column):
                _refuse_without(column, name, model)
    rng = generator(question.seed, position)
    index = shuffled(rng, sum(piece.draws for piece in pieces), question.draws)
    known, noise = np.zeros((2, question.draws))
    changes: dict[float, Float[np.ndarray, " draw"]] = {}
    for drawn in take_draws(pieces, index):
        if question.new_run and "sigma" in drawn.piece.values:
            effects = _find_effects(drawn.piece, model)
            # open at tokens as fitted; beyond, as they change
            left = {kind: e.open_share(kind, 0.0) for kind, e in effects.items()}
            new = RunNoise.of_piece(drawn.piece.values, left)
            known[drawn.rows] = sum(effect.draws for effect in effects.values())
            noise[drawn.rows] = new.draw(1, rng)[:, 0]
            for kind, effect in effects.items():
                scale = math.sqrt(CHANGE_BY_TOKENS) * drawn.piece.values[f"tau_{kind}"]
                change = changes.setdefault(effect.tokens, np.zeros(question.draws))
                change[drawn.rows] += draw_new_effects(scale, 1, rng)[:, 0]
    if order is not None:
        # the columns, which all domains share, keep their order
        index, known, noise = index[order], known[order], noise[order]
        changes = {tokens: change[order] for tokens, change in changes.items()}
    parts = []
    for drawn in take_draws(pieces, index):
        # a chain takes what was measured in place of what it forecasts
        replaced = getattr(drawn.piece.log_loss, "forecast", ())
        read = [c for c in (*drawn.piece.covariates, *replaced) if c in columns]
        fixed = {column: columns[column][drawn.rows] for column in read}
        # anchors ask which effects are learned; other effects would only be copied
        kept = {k: e for k, e in drawn.piece.effects.items() if k in OF_CHECKPOINT}
        parts.append(Part(replace(drawn.piece, effects=kept), drawn.rows, fixed))
    # a domain that only a mean limits gets an infinite limit of its own
    no_limit = Constraint(name, math.inf, "nats")
    constraint = next((c for c in question.constraints if c.name == name), no_limit)
    sampled = SampledConstraint(
        constraint,
        tuple(parts),
        baseline=np.ones(question.draws),
        noise=known + noise,
        span=(math.log(model.tokens[0]), math.log(model.tokens[1])),
        changes=tuple(changes.items()),
    )
    has_baseline = any(
        UNITS[c.unit].has_baseline
        for c in question.constraints
        if c.name == name or name in dict(c.weights)
    )
    if has_baseline:
        # the law's loss before has the checkpoint's effects, too
        before = replace(sampled, noise=known, changes=())
        baseline = _baseline(question, model, before, columns)
        sampled = replace(sampled, baseline=baseline)
    return sampled


# -- draws -----------------------------------------------------------------------------


def _find_effects(piece: Piece, model: Model) -> dict[str, Learned]:
    run = pd.DataFrame([{"N": model.N, "ptpp": model.ptpp, "replay": 0.0}], dtype=float)
    learned = {k: find_learned(piece.effects, k, run, ()) for k in OF_CHECKPOINT}
    return {kind: by_row[0] for kind, by_row in learned.items() if by_row}


def point_pieces(
    question: Question, points: Mapping[str, Mapping[str, float]]
) -> dict[str, tuple[Piece]]:
    """Make pieces without uncertainty, by constraint: at the given values, else at the
    posterior mean.
    """
    check_names("point", points, question.pieces)
    certain = {}
    for name, pieces in question.pieces.items():
        # one draw of the formula with most draws
        piece = max(pieces, key=lambda p: p.draws)
        given = points.get(name, {})
        unknown = [k for k in given if k not in piece.values]
        if unknown:
            raise PlanError(
                f"point of {name}: no parameter {unknown[0]!r}; "
                f"there are: {', '.join(piece.values)}"
            )
        draw = {k: np.mean(v, axis=0, keepdims=True) for k, v in piece.values.items()}
        for k, v in given.items():
            draw[k] = np.reshape(np.asarray(v, float), draw[k].shape)
        certain[name] = (Piece(piece.log_loss, draw, piece.covariates),)
    return certain


# -- covariates and baselines ----------------------------------------------------------


def _per_draw(
    question: Question, name: str, setting: object
) -> Float[np.ndarray, " draw"]:
    """Give each draw a value of a covariate; arrays of the same length stay paired."""
    try:
        values = np.atleast_1d(np.asarray(setting, float))
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    is_positive = np.isfinite(values) & (values > 0)
    if values.ndim != 1 or not is_positive.all():
        line = (
            f"{name} must be a positive number, or bayeslaw.Draws(values) of it; "
            f"got {setting!r}"
        )
        raise PlanError(line[:200])
    if name in KINDS:
        for end in (values.min(), values.max()):
            checked(name, end, KINDS[name])
    rng = generator(question.seed, Stream.PLAN_COVARIATES)
    return values[shuffled(rng, len(values), question.draws)]


def _refuse_without(column: str, name: str, model: Model) -> NoReturn:
    if name in model.further_domains and column == LOSS_BEFORE:
        raise PlanError(
            f"the law of {name} reads loss_before: give its own, "
            f"baseline_loss={{{name!r}: ...}}"
        )
    is_source = name not in (*model.targets, *model.further_domains)
    if is_source and column in (LOSS_BEFORE, SOURCE_LOSS_BEFORE):
        raise PlanError(
            f"the source's law reads {column}: "
            "give baseline_loss, its loss before adaptation (--baseline-loss)"
        )
    if column == "ptpp":
        raise PlanError(
            f"the law of {name} reads the tokens of pre-training: give ptpp, for each "
            "parameter (--ptpp 43, or --pretrain-tokens 300B)"
        )
    or_tokens = ", or unique_target_tokens" if column == UNIQUE else ""
    raise PlanError(
        f"the law of {name} reads {column!r}: give covariates={{{column!r}: ...}} "
        f"(--covariate {column}=...), or by set {{{column!r}: {{{name!r}: ...}}}} "
        f"(--covariate {column}={name}=...){or_tokens}"
    )


def _baseline(
    question: Question,
    model: Model,
    sampled: SampledConstraint,
    columns: Mapping[str, Float[np.ndarray, " draw"]],
) -> Float[np.ndarray, " draw"]:
    """Compute the baseline of a rise in nats per token, shape (draw,): the loss before
    adaptation, or the law's loss of another run.
    """
    if model.baseline_run is not None:
        tokens, levers = model.baseline_run
        chosen = question.budget.columns_of(levers)
        return np.exp(sampled.log_losses(math.log(tokens), chosen))
    before = model.baselines[sampled.name]
    if isinstance(before, str):
        if before not in columns:
            raise PlanError(
                f"the limit on {sampled.name} is on its rise: give the loss before "
                f"adaptation, covariates={{'loss_before': {{{sampled.name!r}: 2.3}}}} "
                f"(--covariate loss_before={sampled.name}=2.3), or another run to compare "
                "with, baseline_run (--baseline-run)"
            )
        return columns[before]
    tokens = checked("baseline_tokens", before or 0, TOKENS)
    log_tokens = math.log(tokens) if tokens else -math.inf
    loss = np.exp(sampled.log_losses(log_tokens, 1.0))
    if not np.isfinite(loss).all():
        raise PlanError(
            f"the source's law has no loss at D = {tokens:g} (it diverges), "
            "so forgetting has no baseline: give baseline_loss, the loss measured "
            "before adaptation (--baseline-loss), or baseline_tokens, a reference budget "
            "of pure replay (--baseline-tokens)"
        )
    return loss
