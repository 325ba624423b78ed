"""Check the arguments of `bayeslaw.plan` and read them into a `Question`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from bayeslaw._base.draws import Draws
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import CHANCE, COUNT, LOSS, SHARE, checked
from bayeslaw._base.machine import runtime
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._plans.arguments.covariates import check_covariates
from bayeslaw._plans.arguments.limits import read_constraints, read_excess_prices
from bayeslaw._plans.arguments.plan_arguments import PlanArguments
from bayeslaw._plans.arguments.spending import payable, read_budget, read_costs
from bayeslaw._plans.arguments.tables import with_kept_losses, with_repetition
from bayeslaw._plans.question import (
    MEAN,
    TARGET,
    Model,
    Question,
    setting_for,
    setting_of_model,
)
from bayeslaw._posteriors.accuracy import (
    ACCURACY,
    AccuracyLink,
    accuracy_link,
)
from bayeslaw._posteriors.chain import models_of
from bayeslaw._posteriors.pairs import (
    check_posteriors,
    error_correlation,
    fitted_replays,
)
from bayeslaw._posteriors.posterior import Piece, Posterior


def question_of(arguments: PlanArguments) -> Question:
    """Check the arguments of `bayeslaw.plan`, and complete them from the fits' tables.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    targets, sources = arguments.targets, arguments.sources
    _check_names(targets, sources)
    posteriors = targets | sources
    first, *further = targets
    check_posteriors(
        targets[first], {name: posteriors[name] for name in further} | sources
    )
    runtime.start()
    pieces = {name: tuple(p.pieces()) for name, p in posteriors.items()}
    _check_read(arguments.covariates or {}, pieces)
    # checked before losses from the tables are added
    baseline_run = _baseline_run(arguments)
    arguments, notes = with_kept_losses(arguments, targets, sources, pieces)
    arguments, repeats = with_repetition(arguments, targets, pieces)
    budget, costs = (
        read_budget(arguments, fitted_replays(posteriors)),
        read_costs(arguments),
    )
    constraints = read_constraints(arguments, list(targets), list(sources))
    link = _link(arguments)
    return Question(
        pieces=pieces,
        constraints=constraints,
        models=payable(
            _models(arguments, list(targets), list(sources), baseline_run),
            budget,
            costs,
        ),
        confidence=_confidence(arguments.confidence, [c.name for c in constraints]),
        budget=budget,
        costs=costs,
        new_run=arguments.new_run,
        draws=_draws(arguments, pieces),
        seed=arguments.seed,
        warnings=tuple(
            f"{name}: {line}" for name, p in posteriors.items() for line in p.warnings
        )
        + repeats
        + (link.warnings if link is not None else ()),
        notes=notes,
        errors=error_correlation(posteriors, arguments.correlation),
        link=link,
        excess_prices=read_excess_prices(arguments, constraints),
    )


def _check_names(
    targets: Mapping[str, Posterior], sources: Mapping[str, Posterior]
) -> None:
    """Refuse domains without a distinct name."""
    if not targets:
        raise PlanError("name at least one target")
    if not sources or TARGET in sources:
        raise PlanError(
            f"name at least one source, and none {TARGET!r}; got {list(sources)}"
        )
    twice = [name for name in targets if name in sources]
    if twice:
        raise PlanError(
            f"{twice[0]!r} is a target and a source; give each its own name"
        )
    if MEAN in {*targets, *sources}:
        raise PlanError(
            f"no domain can be named {MEAN!r}: that is the limit on their mean"
        )


def _check_read(
    covariates: Mapping[str, Any], pieces: Mapping[str, tuple[Piece, ...]]
) -> None:
    """Refuse laws of mixtures, which do not read replay, and covariates that are not the
    user's to set.
    """
    # the planner itself reads a source's loss before adaptation
    columns = {LOSS_BEFORE, SOURCE_LOSS_BEFORE}
    for piece in itertools.chain.from_iterable(pieces.values()):
        columns.update(piece.covariates)
    shares = sorted(filter(is_share, columns))
    if shares:
        raise PlanError(
            f"the laws read {', '.join(shares)}, and a plan chooses tokens and one "
            "replay: plan the shares of a mixture with bayeslaw.plan_mixture (bayeslaw "
            "mixture)"
        )
    set_elsewhere = {
        "N": "it is given as N",
        "ptpp": "it is given as ptpp",
        "D": "it is what a plan chooses",
        "replay": "it is what a plan chooses (min_replay and max_replay bound it)",
    }
    check_covariates(covariates, columns, set_elsewhere)


def _link(arguments: PlanArguments) -> AccuracyLink | None:
    """Take the link from loss to accuracy, or fit it to its table.

    Raises
    ------
    PlanError
        Guessing keeps the limit on the accuracy.
    """
    link, least = arguments.accuracy, arguments.min_accuracy
    if link is None:
        return None
    if not isinstance(link, AccuracyLink):
        link = accuracy_link(link, seed=arguments.seed)
    if checked("min_accuracy", least, ACCURACY) <= link.chance:
        raise PlanError(
            f"min_accuracy {least} is at most the accuracy of guessing, "
            f"{link.chance:.0%}, which any model has: give a larger one"
        )
    return link


def _models(
    arguments: PlanArguments,
    targets: Sequence[str],
    sources: Sequence[str],
    baseline_run: tuple[float, float] | None,
) -> tuple[Model, ...]:
    """Build the candidate models, with covariates, baselines and domains of each."""
    loss, tokens = arguments.baseline_loss, arguments.baseline_tokens
    if loss is not None and tokens is not None:
        raise PlanError("give baseline_loss or baseline_tokens, not both")
    sizes = models_of(arguments.N, arguments.ptpp)
    count = len(sizes)
    covariates = arguments.covariates or {}
    further = tuple(arguments.max_loss or ())

    def of_domain(setting: Any, name: str) -> Any:
        """Find a domain's value; a number without a name belongs to the sources, not to
        other domains.
        """
        if name not in further:
            return setting_for(setting, name)
        return setting.get(name) if isinstance(setting, Mapping) else None

    return tuple(
        Model(
            N=N,
            ptpp=ptpp,
            covariates={
                column: setting_of_model(column, value, k, count)
                for column, value in covariates.items()
            },
            baseline_loss={
                name: _possible(
                    "baseline_loss",
                    setting_of_model("baseline_loss", of_domain(loss, name), k, count),
                )
                for name in sources
            },
            baseline_tokens={
                name: setting_of_model(
                    "baseline_tokens", of_domain(tokens, name), k, count
                )
                for name in sources
            },
            further_domains=further,
            targets=tuple(targets),
            baseline_run=baseline_run,
        )
        for k, (N, ptpp) in enumerate(sizes)
    )


def _baseline_run(arguments: PlanArguments) -> tuple[float, float] | None:
    """Check tokens and replay of the baseline run of limits on a rise."""
    run = arguments.baseline_run
    if run is None:
        return None
    if arguments.baseline_loss is not None or arguments.baseline_tokens is not None:
        raise PlanError("give baseline_run, or a baseline of the checkpoint, not both")
    if not isinstance(run, Mapping) or set(run) != {"D", "replay"}:
        raise PlanError(
            f"baseline_run is another run's tokens and replay, D=10B,replay=30%; got {run!r}"
        )
    tokens = checked("baseline_run D", run["D"], COUNT)
    return tokens, checked("baseline_run replay", run["replay"], SHARE)


def _possible(name: str, loss: Any) -> Any:
    """Check that a number, or all draws of an array, can be losses."""
    if isinstance(loss, Draws):
        for end in (float(loss.min()), float(loss.max())):
            checked(name, end, LOSS)
        return loss
    return None if loss is None else checked(name, loss, LOSS)


def _confidence(confidence: Any, names: Sequence[str]) -> float | dict[str, float]:
    """Check the confidence: one number for all promises together, or one for each by
    name.
    """
    by_name: Mapping[str, Any] = {name: confidence for name in names}
    if isinstance(confidence, Mapping):
        by_name = confidence
    if set(by_name) != set(names):
        raise PlanError(
            f"confidence by promise needs exactly {', '.join(names)}; "
            f"got {', '.join(by_name)}"
        )
    shares = {name: checked("confidence", x, CHANCE) for name, x in by_name.items()}
    return shares if isinstance(confidence, Mapping) else shares[names[0]]


def _draws(arguments: PlanArguments, pieces: Mapping[str, tuple[Piece, ...]]) -> int:
    """Choose the number of draws."""
    draws = arguments.draws
    if draws < 1:
        raise PlanError(f"draws must be at least 1, got {draws!r}")
    if arguments.new_run:
        return draws
    # without noise, more draws than the posteriors have would only repeat draws in
    # other pairs
    counts = [sum(p.draws for p in of_law) for of_law in pieces.values()]
    return min(draws, max(counts))
