"""Read the question of plans and best mixtures: posteriors by evaluation set, limits, and
bounds of tokens and shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import (
    COUNT,
    KINDS,
    NUMBER,
    POSITIVE,
    SHARE,
    check_count,
    checked,
)
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import Costs
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    LOSSES_BEFORE,
    SOURCE_LOSS_BEFORE,
    share_domains,
)
from bayeslaw._law.columns import SHARE as PREFIX
from bayeslaw._plans.constraint import UNITS, Constraint, UnitName
from bayeslaw._plans.question import MEAN, Budget, Model, Question, check_names
from bayeslaw._plans.reading import (
    check_settings,
    constraint_on,
    read_baseline_run,
    read_mean_limit,
)
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.outcomes import check_covariates
from bayeslaw._posteriors.pairs import fitted_range
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._posteriors.repetition import NO_CORPUS, epochs_allowed

SET = "evaluation set"


@dataclass(frozen=True, eq=False)
class MixtureQuestion:
    """Arguments that `plan_mixture` and `best_mixture` share, documented there."""

    losses: Mapping[str, Posterior | str | Path]
    _: KW_ONLY
    N: float
    max_loss: Mapping[str, float | str] = field(default_factory=dict)
    max_forgetting: Mapping[str, float | str] = field(default_factory=dict)
    max_mean_loss: float | str | None = None
    bytes_per_token: float | Mapping[str, float] | None = None
    confidence: float = 0.9
    weights: Mapping[str, float] | None = None
    bounds: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    unique_tokens: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float = 1.0
    covariates: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    baseline_run: Mapping[str, float] | None = None
    new_run: bool = True
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class MixtureArguments(MixtureQuestion):
    # documented in `plan_mixture`

    _: KW_ONLY
    D: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None


@dataclass(frozen=True, eq=False)
class BestMixtureArguments(MixtureQuestion):
    # documented in `best_mixture`

    _: KW_ONLY
    D: float
    tolerance: float = 0.002


def question_of(arguments: MixtureArguments | BestMixtureArguments) -> Question:
    """Check the arguments of a mixture: at its budget, or without one from ten times
    below to ten times above the fitted budgets.
    """
    runtime.start()
    if not isinstance(arguments.losses, Mapping) or not arguments.losses:
        raise PlanError("give a posterior of at least one evaluation set, by its name")
    posteriors = {name: as_posterior(p) for name, p in arguments.losses.items()}
    if MEAN in posteriors:
        raise PlanError(
            f"no evaluation set can be named {MEAN!r}: that is the limit on the mean"
        )
    domains, sets = _find_domains(posteriors), tuple(posteriors)

    # columns that the plan does not choose: common to all sets, or given for each
    size = checked("N", arguments.N, KINDS["N"])
    weights = _read_weights(arguments.weights, sets)
    limits = _read_limits(arguments, sets, weights)
    is_rise = any(UNITS[c.unit].has_baseline for c in limits)
    set_elsewhere = {"N": "it is given as N", "D": "it is the budget"} | {
        f"{PREFIX}{name}": "bounds say what a plan chooses" for name in domains
    }
    read = {column for p in posteriors.values() for column in columns_read(p)}
    baseline_run = read_baseline_run(arguments.baseline_run, domains)
    if baseline_run is None and is_rise:
        read.add(LOSS_BEFORE)
    check_covariates(arguments.covariates, read, set_elsewhere)
    pieces = {name: tuple(posterior.pieces()) for name, posterior in posteriors.items()}
    check_settings(pieces, arguments.covariates)
    columns = {name: {"N": size} for name in sets}
    for column, value in arguments.covariates.items():
        by_set = value if isinstance(value, Mapping) else dict.fromkeys(sets, value)
        check_names(f"covariates {column}", by_set, sets, SET)
        for name, one in by_set.items():
            columns[name][column] = checked(column, one, KINDS.get(column, POSITIVE))
    check_count("draws", arguments.draws)

    least, largest = _read_bounds(arguments, posteriors, domains)
    given = arguments.unique_tokens
    check_names("unique_tokens", given, domains)
    unique = {
        name: checked(f"unique_tokens of {name}", given[name], COUNT)
        for name in domains
        if name in given
    }
    # how often a token may be seen is decided as by `plan`
    epochs = checked("max_epochs", arguments.max_epochs, KINDS["max_epochs"])
    notes = [] if epochs == MixtureQuestion.max_epochs else [NO_CORPUS]
    if given:
        of_all = [piece for of_set in pieces.values() for piece in of_set]
        epochs, notes = epochs_allowed(epochs, of_all, None)

    max_tokens = getattr(arguments, "max_tokens", None)
    if arguments.D is not None:
        if max_tokens is not None:
            raise PlanError("give D, the budget, or max_tokens, not both")
        fewest = most = checked("D", arguments.D, COUNT)
    else:
        ends = fitted_range(posteriors, "D") or (1e6, 1e13)
        most = 10.0 * ends[1]
        if max_tokens is not None:
            most = checked("max_tokens", max_tokens, COUNT)
        fewest = min(ends[0], most) / 10.0
    if not limits and arguments.D is None:
        raise PlanError(
            "give a limit: max_loss by evaluation set, or max_mean_loss; or a budget D, "
            "at which the mean of the losses is least"
        )
    # in the law of the domain of pre-training, which reads no other loss before, it is
    # the source's
    before: dict[str, str | float | None] = {}
    for name, posterior in posteriors.items():
        is_source = {*columns_read(posterior)} & {*LOSSES_BEFORE} == {
            SOURCE_LOSS_BEFORE
        }
        is_measured = LOSS_BEFORE in columns[name] or not is_source
        before[name] = LOSS_BEFORE if is_measured else SOURCE_LOSS_BEFORE
    question = Question(
        posteriors=posteriors,
        pieces=pieces,
        constraints=limits,
        weights=weights,
        models=(
            Model(
                size,
                None,
                columns,
                before,
                targets=sets,
                baseline_run=baseline_run,
                tokens=(fewest, most),
            ),
        ),
        budget=Budget(
            costs=getattr(arguments, "costs", None) or Costs(),
            supplies=unique,
            epochs=epochs,
            domains=domains,
            least=least,
            largest=largest,
            fitted=tuple(name for name in domains if name not in arguments.bounds),
        ),
        confidence=checked("confidence", arguments.confidence, KINDS["confidence"]),
        new_run=arguments.new_run,
        draws=arguments.draws,
        seed=arguments.seed,
        notes=tuple(notes),
    )
    high = question.budget.most_shares(fewest)
    if high.sum() < 1 - 1e-9:
        raise PlanError(
            f"the domains have {format_count(high.sum() * fewest)} tokens within "
            f"their bounds, and the least budget is {format_count(fewest)}: give "
            "max_epochs, or plan for less"
        )
    is_short = least > high + 1e-9
    if is_short.any():
        raise PlanError(
            f"{domains[int(is_short.argmax())]} has too few tokens for its least share at "
            f"{format_count(fewest)} tokens: lower the share, or give max_epochs"
        )
    return question


def _find_domains(posteriors: Mapping[str, Posterior]) -> tuple[str, ...]:
    # the laws' shares must be of the same domains
    domains_of: dict[str, set[str]] = {}
    for name, posterior in posteriors.items():
        domains_of[name] = set(share_domains(columns_read(posterior)))
        if not domains_of[name]:
            raise PlanError(
                f"the law of {name} reads no shares: fit a law of mixtures "
                "(mixture-coupled) to a table with columns share_NAME"
            )
    first, domains = next(iter(domains_of.items()))
    for name, others in domains_of.items():
        if others != domains:
            apart = ", ".join(sorted(others ^ domains))
            raise PlanError(
                f"the fits of {first} and {name} differ in domains: {apart}"
            )
    return tuple(sorted(domains))


def _read_limits(
    arguments: MixtureQuestion, sets: tuple[str, ...], weights: Mapping[str, float]
) -> tuple[Constraint, ...]:
    limits, in_bytes = {}, arguments.bytes_per_token
    kinds: dict[str, UnitName] = {"max_loss": "loss", "max_forgetting": "relative"}
    for keyword, unit in kinds.items():
        given = getattr(arguments, keyword)
        check_names(keyword, given, sets, SET)
        for name, limit in given.items():
            if name in limits:
                raise PlanError(f"give max_loss or max_forgetting of {name}, not both")
            what = f"{keyword} of {name}"
            limits[name] = constraint_on(name, what, limit, unit, in_bytes)
    if arguments.max_mean_loss is not None:
        limits[MEAN] = read_mean_limit(arguments.max_mean_loss, weights, in_bytes)
    return tuple(limits.values())


def _read_weights(given: Any, sets: tuple[str, ...]) -> dict[str, float]:
    """Compute weights of evaluation sets in a mean; those without are left out."""
    given = dict.fromkeys(sets, 1.0) if given is None else given
    check_names("weights", given, sets, SET)
    by_set = {n: checked(f"weight of {n}", w, NUMBER) for n, w in given.items()}
    total = sum(by_set.values())
    if min(by_set.values(), default=0.0) < 0 or not 0 < total < math.inf:
        raise PlanError("weights must be at least 0, and one of them above")
    return {name: by_set[name] / total for name in sets if by_set.get(name)}


def _read_bounds(
    arguments: MixtureQuestion,
    posteriors: Mapping[str, Posterior],
    domains: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Find the smallest and largest share of each domain: the given ones (one number is
    a fixed share), else the fitted ones.
    """
    check_names("bounds", arguments.bounds, domains)
    pairs = []
    for name in domains:
        if name not in arguments.bounds:
            pairs.append(fitted_range(posteriors, f"{PREFIX}{name}") or (0.0, 1.0))
            continue
        what = f"bounds of {name}"
        given: Any = arguments.bounds[name]
        ends = (given, given) if np.ndim(given) == 0 else tuple(given)
        if len(ends) != 2:
            raise PlanError(
                f"{what}: give the least and the largest share; got {given!r}"
            )
        low, high = (checked(what, end, SHARE) for end in ends)
        if low > high:
            raise PlanError(
                f"{what}: the least, {low:g}, is over the largest, {high:g}"
            )
        pairs.append((low, high))
    low, high = np.array(pairs).T
    if low.sum() > 1 + 1e-9 or high.sum() < 1 - 1e-9:
        raise PlanError(
            f"bounds leave no mixture: least shares sum to {low.sum():.3g} and largest "
            f"to {high.sum():.3g}; 1 must lie between"
        )
    return low, high
