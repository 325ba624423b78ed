"""Complete the arguments of `bayeslaw.plan` from the tables of the fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from bayeslaw._base.limits import KINDS, checked
from bayeslaw._law.columns import LOSS_BEFORE, LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._plans.arguments.limits import read_loss_limits
from bayeslaw._plans.arguments.plan_arguments import PlanArguments
from bayeslaw._plans.constraint import says_rise
from bayeslaw._posteriors.averaging.checkpoint import forecast_losses, losses_at_hand
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Piece, Posterior
from bayeslaw._posteriors.repetition import (
    NO_CORPUS,
    UNIQUE,
    epochs_allowed,
    repeating,
)


def with_kept_losses(
    arguments: PlanArguments,
    targets: Mapping[str, Posterior],
    sources: Mapping[str, Posterior],
    pieces: Mapping[str, tuple[Piece, ...]],
) -> tuple[PlanArguments, tuple[str, ...]]:
    """Complete the arguments with losses of the checkpoint before adaptation that are
    not given: those in the tables of the fits, else forecasts from the other checkpoints
    there. Also returns notes, a line for each origin of a loss.
    """
    covariates, notes = dict(arguments.covariates or {}), []
    models = arguments.N, arguments.ptpp

    def loss_in_table(posterior: Posterior, column: str, *columns: str) -> Any:
        """Look up a loss in a table, by the first of these columns that it has."""
        runs = getattr(posterior, "runs", None)
        if not isinstance(runs, pd.DataFrame) or not {column, *columns} & set(runs):
            return None
        # the one table is that of the target and that of the source
        tables = dict.fromkeys(LOSSES_BEFORE.values(), runs)
        losses = losses_at_hand(tables, [column], *models)
        notes.extend(line for line in losses.told if line not in notes)
        return losses.measured.get(column)

    baselines: Any = arguments.baseline_loss
    has_baseline = baselines is not None or arguments.baseline_tokens is not None
    if not has_baseline and SOURCE_LOSS_BEFORE not in covariates:
        limits = read_loss_limits(arguments, list(sources))
        kept_losses = {}
        for name, posterior in sources.items():
            # in rows of a source or of a further domain, loss_before is that domain's
            is_further_domain = name in limits
            columns = (
                (LOSS_BEFORE,)
                if is_further_domain
                else (SOURCE_LOSS_BEFORE, LOSS_BEFORE)
            )
            kept_losses[name] = loss_in_table(posterior, *columns)
        if any(loss is not None for loss in kept_losses.values()):
            baselines = kept_losses
    by_source = baselines if isinstance(baselines, Mapping) else {"": baselines}
    target_columns = {
        column
        for name in targets
        for piece in pieces[name]
        for column in piece.covariates
    }
    target_columns |= {LOSS_BEFORE} & _read_by_limits(arguments)
    missing = [c for c in LOSSES_BEFORE if c in target_columns and c not in covariates]
    for column in missing:
        loss = None
        # a given baseline of the one source also holds for the target's law
        if column == SOURCE_LOSS_BEFORE and len(by_source) == len(sources) == 1:
            (loss,) = by_source.values()
        if loss is None:
            losses = {name: loss_in_table(p, column) for name, p in targets.items()}
            loss = _one_or_by_name(losses, column)
        if loss is not None:
            covariates[column] = loss
    completed = replace(arguments, covariates=covariates, baseline_loss=baselines)
    if len(targets) > 1 or len(sources) > 1:
        return completed, tuple(notes)
    (target,), (source,) = targets.values(), sources.values()
    wanted = {column for column in missing if column not in covariates}
    reads_before = any(
        set(LOSSES_BEFORE) & set(piece.covariates)
        for piece in pieces[next(iter(sources))]
    )
    if reads_before and not has_baseline and baselines is None:
        wanted.add(SOURCE_LOSS_BEFORE)
    forecasts, lines = _forecasts(completed, target, source, wanted - set(covariates))
    completed = replace(completed, covariates=covariates | forecasts)
    return completed, (*notes, *lines)


def _forecasts(
    arguments: PlanArguments, target: Posterior, source: Posterior, wanted: set[str]
) -> tuple[dict[str, Any], list[str]]:
    """Forecast losses before adaptation from the checkpoints in the tables of the fits,
    where there are enough. Also returns a line for each.
    """
    tables = {
        domain: runs
        for domain, posterior in (("target", target), ("source", source))
        if isinstance(runs := getattr(posterior, "runs", None), pd.DataFrame)
    }
    if len(tables) < 2:
        return {}, []
    models = arguments.N, arguments.ptpp
    columns = [column for column in LOSSES_BEFORE if column in wanted]
    columns = list(losses_at_hand(tables, columns, *models).forecast)
    return forecast_losses(tables, columns, *models, seed=arguments.seed)


def _read_by_limits(arguments: PlanArguments) -> set[str]:
    """List the columns that limits on targets read in addition to the laws: a rise
    reads its baseline.
    """
    limits = arguments.max_target_loss
    limits = limits.values() if isinstance(limits, Mapping) else [limits]
    is_rise = any(says_rise(limit) for limit in limits)
    return {LOSS_BEFORE} if is_rise and arguments.baseline_run is None else set()


def _one_or_by_name(losses: Mapping[str, Any], column: str) -> Any:
    """Collect the targets' losses by name, or one loss if they share it; None if there
    is none.
    """
    present = {name: loss for name, loss in losses.items() if loss is not None}
    if not present:
        return None
    shared = next(iter(present.values()))
    return shared if len(losses) == 1 or column == SOURCE_LOSS_BEFORE else present


def with_repetition(
    arguments: PlanArguments,
    targets: Mapping[str, Posterior],
    pieces: dict[str, tuple[Piece, ...]],
) -> tuple[PlanArguments, tuple[str, ...]]:
    """Complete the arguments with the allowed epochs, with notes about them. Laws of
    repetition among the target's ``pieces`` get the number of unique target tokens.
    """
    unique, epochs = arguments.unique_target_tokens, arguments.max_epochs
    if unique is None:
        return arguments, () if epochs is None else (NO_CORPUS,)
    unique = checked("unique_target_tokens", unique, KINDS["unique_target_tokens"])
    if epochs is not None:
        epochs = checked("max_epochs", epochs, KINDS["max_epochs"])
    first = next(iter(targets))
    allowed, lines = epochs_allowed(epochs, pieces[first], table_of(targets[first]))
    if UNIQUE not in (arguments.covariates or {}):
        pieces.update({name: repeating(pieces[name], unique) for name in targets})
    return replace(arguments, max_epochs=allowed), tuple(lines)
