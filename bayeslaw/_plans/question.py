"""What a planner is asked: records, made of the arguments of `bayeslaw.plan`.

A `Question` is built in one place, `question_of`, and read by the plan, the report's
explorer and the plan as a goal of anchors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import CHANCE, KINDS, LOSS, checked
from bayeslaw._base.machine import runtime
from bayeslaw._law.columns import LOSS_BEFORE, LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._plans.constraint import (
    UNITS,
    Constraint,
    UnitName,
    forgetting_limit,
)
from bayeslaw._posteriors.averaging.checkpoint import losses_at_hand
from bayeslaw._posteriors.chain import models_of
from bayeslaw._posteriors.pairs import check_posteriors, fitted_replays
from bayeslaw._posteriors.posterior import Piece, Posterior

TARGET, FORGETTING = "target", "forgetting"
# columns that a covariate may not set, and what does
OWN = {
    "N": "it is given as N",
    "ptpp": "it is given as ptpp",
    "D": "it is what a plan chooses",
    "replay": "it is what a plan chooses (min_replay and max_replay bound it)",
}


# -- records ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Model:
    """A checkpoint that may be adapted, and what is known of it.

    Parameters
    ----------
    N, ptpp
        Parameters, and pre-training tokens per parameter.
    covariates
        Further columns that the laws read: a number, or draws of shape (draw,);
        ``source_loss_before`` may be by source.
    baseline_loss
        Loss before adaptation in nats per token, by source: a number, draws of shape
        (draw,), or None where it is not measured.
    baseline_tokens
        Tokens of pure replay at which the source's law gives the baseline instead, by
        source; None: 0.
    others
        Domains that are neither target nor source: their loss is limited, and
        ``source_loss_before`` is not theirs.
    """

    N: float
    ptpp: float
    covariates: Mapping[str, Any]
    baseline_loss: Mapping[str, Any]
    baseline_tokens: Mapping[str, float | None]
    others: tuple[str, ...] = ()

    def source_before(self, source: str) -> Any:
        """The source's loss before adaptation, if it was given."""
        measured = self.baseline_loss[source]
        if measured is not None:
            return measured
        of_sources = self.covariates.get(SOURCE_LOSS_BEFORE)
        return of_source(of_sources, source)

    def columns(self, name: str) -> dict[str, Any]:
        """What is known of the run to plan where this constraint's law reads it.

        A source's ``loss_before`` is its own.
        """
        columns = {"N": self.N, "ptpp": self.ptpp} | dict(self.covariates)
        if name == TARGET:
            if isinstance(columns.get(SOURCE_LOSS_BEFORE), Mapping):
                del columns[SOURCE_LOSS_BEFORE]
            return columns
        if name in self.others:
            columns.pop(LOSS_BEFORE, None)
            own = self.baseline_loss[name]
            return columns if own is None else columns | {LOSS_BEFORE: own}
        before = self.source_before(name)
        if before is not None:
            return columns | {LOSS_BEFORE: before, SOURCE_LOSS_BEFORE: before}
        columns.pop(LOSS_BEFORE, None)
        return columns

    def at_means(self) -> Model:
        """The same model, with means in place of draws."""
        covariates = {
            column: given if isinstance(given, Mapping) else np.mean(given)
            for column, given in self.covariates.items()
        }
        baselines = {
            source: None if given is None else np.mean(given)
            for source, given in self.baseline_loss.items()
        }
        return replace(self, covariates=covariates, baseline_loss=baselines)


@dataclass(frozen=True)
class Budget:
    """What may be spent on the adaptation.

    Parameters
    ----------
    max_flops, max_tokens
        Budget of the adaptation; the most probable plan within it is sought if either is
        finite.
    unique_target_tokens, epochs
        Target tokens there are, and how often each may be seen.
    min_replay, max_replay
        Least and largest share of source data.
    fitted
        Which of the two are the ends of the fitted replays, not asked for.
    """

    max_flops: float = math.inf
    max_tokens: float = math.inf
    unique_target_tokens: float = math.inf
    epochs: float = 1.0
    min_replay: float = 0.0
    max_replay: float = 1.0
    fitted: tuple[str, ...] = ()

    def tokens(self, N: float) -> float:
        """The most adaptation tokens of a model of ``N`` parameters, by 6 N D FLOPs."""
        return min(self.max_tokens, self.max_flops / (6 * N))

    @property
    def target_tokens(self) -> float:
        """The most target tokens that may be seen, repetitions included."""
        return self.unique_target_tokens * self.epochs


@dataclass(frozen=True, eq=False)
class Question:
    """What the planner is asked.

    Parameters
    ----------
    pieces
        Posteriors by constraint, the target first.
    constraints
        In the order of ``pieces``.
    models
        The models planned for; the one that is cheapest in FLOPs is chosen.
    confidence
        Confidence of all constraints together, or of each by name.
    budget
        What may be spent.
    new_run
        Whether the limits are on the loss of the run that will be made, with its noise,
        or on the law's mean.
    draws, seed
        Pairs of draws to work with, and the seed that pairs them and draws the noise.
    warnings
        What makes the posteriors less than trustworthy.
    notes
        What was not asked but taken from the tables that the fits kept.
    """

    pieces: Mapping[str, tuple[Piece, ...]]
    constraints: tuple[Constraint, ...]
    models: tuple[Model, ...]
    confidence: float | Mapping[str, float] = 0.9
    budget: Budget = Budget()
    new_run: bool = True
    draws: int = 4000
    seed: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# -- arguments -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanArguments:
    """Arguments of `bayeslaw.plan`, which says what they are, before they are checked."""

    target: Posterior
    source: Posterior | Mapping[str, Posterior]
    _: KW_ONLY
    N: float | Sequence[float]
    ptpp: float | Sequence[float]
    max_target_loss: float
    max_forgetting: float | str | Mapping[str, float | str]
    max_loss: Mapping[str, float] | None = None
    confidence: float | Mapping[str, float] = 0.9
    forgetting_unit: Literal["relative", "nats"] = "relative"
    baseline_loss: Any = None
    baseline_tokens: float | Mapping[str, float] | None = None
    covariates: Mapping[str, Any] | None = None
    max_flops: float | None = None
    max_tokens: float | None = None
    unique_target_tokens: float | None = None
    max_epochs: float = 1.0
    min_replay: float | None = None
    max_replay: float | None = None
    new_run: bool = True
    point: Mapping[str, Mapping[str, float]] | None = None
    draws: int = 4000
    seed: int = 0

    @property
    def sources(self) -> dict[str, Posterior]:
        """Posteriors of sources by name; of one without a name, the forgetting's."""
        if isinstance(self.source, Mapping):
            return dict(self.source)
        return {FORGETTING: self.source}


NAMES = tuple(f.name for f in fields(PlanArguments) if f.kw_only)
REQUIRED = tuple(
    f.name for f in fields(PlanArguments) if f.kw_only and f.default is MISSING
)


def question_of(arguments: PlanArguments) -> Question:
    """Check the arguments of `bayeslaw.plan`, and complete them from the fits' tables.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    target, sources = arguments.target, arguments.sources
    if not sources or TARGET in sources:
        raise PlanError(
            f"name at least one source, and none {TARGET!r}; got {list(sources)}"
        )
    check_posteriors(target, sources)
    runtime.start()
    posteriors = {TARGET: target} | sources
    pieces = {name: tuple(p.pieces()) for name, p in posteriors.items()}
    _check_read(arguments.covariates or {}, pieces)
    given, notes = _with_kept_losses(arguments, target, sources, pieces)
    return Question(
        pieces=pieces,
        constraints=_constraints(given, list(sources)),
        models=_models(given, list(sources)),
        confidence=_confidence(given.confidence, list(posteriors)),
        budget=_budget(given, fitted_replays(posteriors)),
        new_run=given.new_run,
        draws=_draws(given, pieces),
        seed=given.seed,
        warnings=tuple(
            f"{name}: {line}" for name, p in posteriors.items() for line in p.warnings
        ),
        notes=notes,
    )


def _check_read(
    covariates: Mapping[str, Any], pieces: Mapping[str, tuple[Piece, ...]]
) -> None:
    """Refuse covariates that no law reads: most often a name is misspelt."""
    read = {c for some in pieces.values() for piece in some for c in piece.covariates}
    # the planner itself reads what a source had before adaptation
    read |= {LOSS_BEFORE, SOURCE_LOSS_BEFORE}
    unknown = [column for column in covariates if column not in read | set(OWN)]
    if unknown:
        raise PlanError(
            f"no law reads the covariate {unknown[0]!r}; "
            f"they read {', '.join(sorted(read))}"
        )


def _with_kept_losses(
    given: PlanArguments,
    target: Posterior,
    sources: Mapping[str, Posterior],
    pieces: Mapping[str, tuple[Piece, ...]],
) -> tuple[PlanArguments, tuple[str, ...]]:
    """The keywords with the checkpoint's losses before adaptation that are not given
    but in the tables that the fits kept; and where each comes from, a line each.
    """
    covariates, notes = dict(given.covariates or {}), []
    models = given.N, given.ptpp

    def kept(posterior: Posterior, column: str, *columns: str) -> Any:
        """What a table says of a column, if it has it or one of the others."""
        runs = getattr(posterior, "runs", None)
        if not isinstance(runs, pd.DataFrame) or not {column, *columns} & set(runs):
            return None
        parts = dict.fromkeys(LOSSES_BEFORE.values(), runs)
        found = losses_at_hand(parts, [column], *models)
        notes.extend(line for line in found.told if line not in notes)
        return found.measured.get(column)

    baselines: Any = given.baseline_loss
    has_baseline = baselines is not None or given.baseline_tokens is not None
    if not has_baseline and SOURCE_LOSS_BEFORE not in covariates:
        others = _others(given, list(sources))
        # a source's loss_before is its own; so is that of a domain that is none
        found = {
            name: kept(p, LOSS_BEFORE)
            if name in others
            else kept(p, SOURCE_LOSS_BEFORE, LOSS_BEFORE)
            for name, p in sources.items()
        }
        if any(loss is not None for loss in found.values()):
            baselines = found
    known = list(baselines.values()) if isinstance(baselines, Mapping) else [baselines]
    read = {column for piece in pieces[TARGET] for column in piece.covariates}
    for column in [c for c in LOSSES_BEFORE if c in read and c not in covariates]:
        # a baseline that was given is the one source's for the target's law, too
        is_baseline = column == SOURCE_LOSS_BEFORE and len(known) == len(sources) == 1
        loss = known[0] if is_baseline else None
        loss = kept(target, column) if loss is None else loss
        if loss is not None:
            covariates[column] = loss
    return replace(given, covariates=covariates, baseline_loss=baselines), tuple(notes)


def _constraints(
    given: PlanArguments, sources: Sequence[str]
) -> tuple[Constraint, ...]:
    most = checked("max_target_loss", given.max_target_loss, LOSS)
    unit = given.forgetting_unit
    if unit not in UNITS or not UNITS[unit].has_baseline:
        raise PlanError(f"forgetting_unit must be 'relative' or 'nats', got {unit!r}")
    others = _others(given, sources)
    of_sources = [
        Constraint(name, others[name], "loss")
        if name in others
        else _forgetting(name, of_source(given.max_forgetting, name), unit)
        for name in sources
    ]
    return Constraint(TARGET, most, "loss"), *of_sources


def _others(given: PlanArguments, sources: Sequence[str]) -> dict[str, float]:
    """The most loss of the domains whose loss is limited, by name."""
    limits = given.max_loss or {}
    if not isinstance(limits, Mapping):
        raise PlanError(
            f"max_loss is by domain, {{'code': 1.2}}; got {limits!r} "
            "(the target's limit is max_target_loss)"
        )
    unknown = [name for name in limits if name not in sources]
    if unknown:
        raise PlanError(
            f"max_loss names {unknown[0]!r}, which has no posterior; "
            f"sources: {', '.join(sources)}"
        )
    return {name: checked(f"max_loss of {name}", x, LOSS) for name, x in limits.items()}


def _forgetting(source: str, limit: Any, unit: UnitName) -> Constraint:
    """A source's limit: a number in this unit, or text that says its own."""
    return Constraint(source, *forgetting_limit("max_forgetting", limit, unit))


def _models(given: PlanArguments, sources: Sequence[str]) -> tuple[Model, ...]:
    loss, tokens = given.baseline_loss, given.baseline_tokens
    if loss is not None and tokens is not None:
        raise PlanError("give baseline_loss or baseline_tokens, not both")
    sizes = models_of(given.N, given.ptpp)
    count = len(sizes)
    covariates = given.covariates or {}
    for column, what in OWN.items():
        if column in covariates:
            raise PlanError(f"covariates cannot set {column!r}: {what}")
    others = tuple(given.max_loss or ())

    def own(given: Any, name: str) -> Any:
        """A number without a name is the sources', not another domain's."""
        if name not in others:
            return of_source(given, name)
        return given.get(name) if isinstance(given, Mapping) else None

    return tuple(
        Model(
            N=N,
            ptpp=ptpp,
            covariates={
                column: of_model(value, k, count)
                for column, value in covariates.items()
            },
            baseline_loss={
                name: _possible("baseline_loss", of_model(own(loss, name), k, count))
                for name in sources
            },
            baseline_tokens={name: own(tokens, name) for name in sources},
            others=others,
        )
        for k, (N, ptpp) in enumerate(sizes)
    )


def _possible(name: str, given: Any) -> Any:
    """A loss, or draws of it, if all of them can be one."""
    for loss in () if given is None else {np.min(given), np.max(given)}:
        checked(name, loss, LOSS)
    return given


def _confidence(given: Any, names: Sequence[str]) -> float | dict[str, float]:
    by_name: Mapping[str, Any] = {name: given for name in names}
    if isinstance(given, Mapping):
        by_name = given
    if set(by_name) != set(names):
        raise PlanError(
            f"confidence by promise needs exactly {', '.join(names)}; "
            f"got {', '.join(by_name)}"
        )
    shares = {name: checked("confidence", x, CHANCE) for name, x in by_name.items()}
    return shares if isinstance(given, Mapping) else shares[TARGET]


def _budget(given: PlanArguments, fitted: tuple[float, float]) -> Budget:
    def most(name: str) -> float:
        limit = getattr(given, name)
        if limit is None:
            return math.inf
        return checked(name, limit, KINDS[name])

    budget = Budget(
        max_flops=most("max_flops"),
        max_tokens=most("max_tokens"),
        unique_target_tokens=most("unique_target_tokens"),
        epochs=checked("max_epochs", given.max_epochs, KINDS["max_epochs"]),
    )
    return _with_replays(budget, given, fitted)


def _with_replays(
    budget: Budget, given: PlanArguments, fitted: tuple[float, float]
) -> Budget:
    """The budget with the replays that were asked for, else those that were fitted."""
    bounds, asked = {}, {"min_replay": given.min_replay, "max_replay": given.max_replay}
    for (name, share), end in zip(asked.items(), fitted, strict=True):
        bounds[name] = end if share is None else checked(name, share, KINDS[name])
    least, most = bounds.values()
    if least > most:
        told = f"min_replay {least:.4g} is over max_replay {most:.4g}"
        if given.max_replay is None:
            told = (
                f"min_replay {least:.4g} is over the largest fitted replay, {most:.4g}: "
                "to plan where nothing was checked, give max_replay too"
            )
        elif given.min_replay is None:
            told = (
                f"max_replay {most:.4g} is under the least fitted replay, {least:.4g}: "
                "to plan where nothing was checked, give min_replay too"
            )
        raise PlanError(told)
    are_fitted = tuple(
        name for name, end in bounds.items() if asked[name] is None and 0 < end < 1
    )
    return replace(budget, **bounds, fitted=are_fitted)


def _draws(given: PlanArguments, pieces: Mapping[str, tuple[Piece, ...]]) -> int:
    """Draws to work with."""
    draws = given.draws
    if draws < 1:
        raise PlanError(f"draws must be at least 1, got {draws!r}")
    if given.new_run:
        return draws
    # without noise, more draws than the posteriors have would only pair them again
    return min(draws, max(sum(p.draws for p in some) for some in pieces.values()))


# -- what was given for one, or for all ------------------------------------------------


def of_source(given: Any, source: str) -> Any:
    """What was given for one source, or for all."""
    if not isinstance(given, Mapping):
        return given
    if source not in given:
        raise PlanError(
            f"nothing given for source {source!r}; given: {', '.join(map(str, given))}"
        )
    return given[source]


def of_model(given: Any, model: int, models: int) -> Any:
    """What was given for one model, or for all."""
    is_sequence = isinstance(given, Sequence | np.ndarray)
    if models == 1 or not is_sequence or isinstance(given, str):
        return given
    if len(given) != models:
        raise PlanError(
            f"{models} models, but {len(given)} values given: "
            "one for each, or one number for all"
        )
    return given[model]
