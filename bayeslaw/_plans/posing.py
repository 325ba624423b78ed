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

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import KINDS, TOKENS, checked
from bayeslaw._base.streams import Stream, generator
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._plans.arguments import Question
from bayeslaw._plans.constraint import UNITS, Constraint
from bayeslaw._plans.question import Model, check_names
from bayeslaw._plans.sampled import SampledConstraint
from bayeslaw._plans.search import Problem
from bayeslaw._posteriors.draws import shuffled
from bayeslaw._posteriors.pairs import coupled
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._posteriors.repetition import UNIQUE

if TYPE_CHECKING:
    from jaxtyping import Float, Int

ATPP_RANGE = (1e-4, 1e4)  # range in which roots are searched; 0 is checked separately


def pose(question: Question, model: Model) -> Problem:
    """Pose the problem of one of the question's models.

    Raises
    ------
    PlanError
        A covariate or a baseline that the laws need is missing or out of range.
    """
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
    return Problem(
        constraints=tuple(constraints),
        confidence=question.confidence,
        N=model.N,
        ptpp=model.ptpp,
        targets=model.targets,
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
    least, most = question.budget.min_replay, question.budget.max_replay
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
    """Resample the draws of one posterior, with limit, baseline and noise.

    ``order``: order of the draws and their noise.
    """
    columns = {
        column: _per_draw(question, column, setting)
        for column, setting in model.columns[name].items()
    }
    for piece in question.pieces[name]:
        for column in piece.columns_in(columns):
            if column not in (*columns, "D", "replay"):
                _refuse_without(column, name, model)
    # a domain that only a mean limits gets an infinite limit of its own
    no_limit = Constraint(name, math.inf, "nats")
    constraint = next((c for c in question.constraints if c.name == name), no_limit)
    has_baseline = any(
        UNITS[c.unit].has_baseline
        for c in question.constraints
        if c.name == name or name in dict(c.weights)
    )
    low, high = (math.log(model.N * atpp) for atpp in ATPP_RANGE)
    sampled = SampledConstraint.resampled(
        constraint,
        [_sorted(piece) for piece in question.pieces[name]],
        columns,
        generator(question.seed, position),
        draws=question.draws,
        new_run=question.new_run,
        span=(low, high),
        order=order,
    )
    if has_baseline:
        sampled = replace(sampled, baseline=_baseline(model, sampled, columns))
    return sampled


# -- draws -----------------------------------------------------------------------------


def _sorted(piece: Piece) -> Piece:
    """Sort the draws of a piece by their values, as numbers.

    The original order of the draws then does not matter. The forecasts of a chain
    (``column:name``) come last among the sort keys: whether a checkpoint is forecast or
    measured, the law's draws have the same order and are paired with the same random
    numbers.
    """
    # lexsort sorts by the last key first
    names = sorted(piece.values, key=lambda name: (":" not in name, name))
    values: dict[str, Float[np.ndarray, "draw ..."]] = {}
    keys = []
    for name in names:
        values[name] = np.asarray(piece.values[name], float)
        columns = values[name].reshape(piece.draws, -1)
        keys.append(columns)
    order = np.lexsort(np.hstack(keys).T)
    return replace(piece, values=values).take(order)


def point_pieces(
    question: Question, points: Mapping[str, Mapping[str, float]]
) -> dict[str, tuple[Piece]]:
    """Make pieces without uncertainty, by constraint: at the given values, else at the
    posterior mean.

    Raises
    ------
    PlanError
        A constraint or a parameter is unknown.
    """
    check_names("point", points, question.pieces)
    certain = {}
    for name, pieces in question.pieces.items():
        # one draw of the formula with most draws, sorted so that sums round in one way
        piece = _sorted(max(pieces, key=lambda p: p.draws))
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
    """Give each draw a value of a covariate, shape (draw,).

    Arrays of the same length are joint draws and stay paired.
    """
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
    """Refuse a question without a column that the law of a domain reads."""
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
        f"the law of {name} reads {column!r}: "
        f"give covariates={{{column!r}: ...}} (--covariate {column}=...){or_tokens}"
    )


def _baseline(
    model: Model,
    sampled: SampledConstraint,
    columns: Mapping[str, Float[np.ndarray, " draw"]],
) -> Float[np.ndarray, " draw"]:
    """Compute the baseline of a rise in nats per token, shape (draw,): the loss before
    adaptation, or the law's loss of another run.
    """
    if model.baseline_run is not None:
        tokens, replay = model.baseline_run
        return np.exp(sampled.of_law.log_losses(math.log(tokens), replay))
    before = model.baselines[sampled.name]
    if isinstance(before, str):
        if before not in columns:
            raise PlanError(
                f"the limit on {sampled.name} is on its rise: give the loss before "
                "adaptation (--covariate loss_before=2.3) or another run to compare with "
                "(--baseline-run D=10B,replay=30%)"
            )
        return columns[before]
    tokens = checked("baseline_tokens", before or 0, TOKENS)
    log_tokens = math.log(tokens) if tokens else -math.inf
    loss = np.exp(sampled.of_law.log_losses(log_tokens, 1.0))
    if not np.isfinite(loss).all():
        raise PlanError(
            f"the source's law has no loss at D = {tokens:g} (it diverges), "
            "so forgetting has no baseline: give baseline_loss, the loss measured "
            "before adaptation (--baseline-loss), or baseline_tokens, a reference budget "
            "of pure replay (--baseline-tokens)"
        )
    return loss
