"""Hold the arguments of `bayeslaw.plan` in one record, and complete them from the tables
of the fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from bayeslaw._base.frames import Table
from bayeslaw._base.limits import KINDS, checked
from bayeslaw._costs.costs import Costs
from bayeslaw._law.columns import (
    LOSS_BEFORE,
    LOSSES_BEFORE,
    SOURCE_LOSS_BEFORE,
    starts_from_losses,
)
from bayeslaw._plans.constraint import says_rise
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.accuracy import AccuracyLink
from bayeslaw._posteriors.averaging.checkpoint import forecast_losses, losses_at_hand
from bayeslaw._posteriors.averaging.loading import Posteriors, by_name
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Piece, Posterior, columns_read
from bayeslaw._posteriors.repetition import (
    NO_CORPUS,
    UNIQUE,
    epochs_allowed,
    repeating,
)


@dataclass(frozen=True, eq=False)
class PlanArguments:
    # raw arguments, documented in `bayeslaw.plan`

    target: Posteriors
    source: Posteriors
    _: KW_ONLY
    N: float | Sequence[float]
    ptpp: float | Sequence[float] | None = None
    max_target_loss: float | str | Mapping[str, float | str] | None = None
    min_accuracy: float | str | None = None
    accuracy: AccuracyLink | Table | str | Path | None = None
    max_forgetting: float | str | Mapping[str, float | str] | None = None
    max_loss: Mapping[str, float | str] | None = None
    max_mean_loss: float | str | None = None
    mean_weights: Mapping[str, float] | None = None
    excess_price: Mapping[str, float] | None = None
    confidence: float | Mapping[str, float] = 0.9
    forgetting_unit: Literal["relative", "nats"] = "relative"
    baseline_loss: Any = None
    baseline_tokens: float | Mapping[str, float] | None = None
    baseline_run: Mapping[str, float] | None = None
    correlation: float | None = None
    covariates: Mapping[str, Any] | None = None
    max_flops: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None
    max_cost: float | None = None
    max_days: float | None = None
    unique_target_tokens: float | None = None
    max_epochs: float | None = None
    bytes_per_token: float | Mapping[str, float] | None = None
    min_replay: float | None = None
    max_replay: float | None = None
    new_run: bool = True
    point: Mapping[str, Mapping[str, float]] | None = None
    draws: int = 4000
    seed: int = 0

    @property
    def targets(self) -> dict[str, Posterior]:
        """Collect the posteriors of targets by name; one without a name is ``target``."""
        return by_name(self.target, TARGET)

    @property
    def sources(self) -> dict[str, Posterior]:
        """Collect the sources' posteriors by name; one without is ``forgetting``."""
        return by_name(self.source, FORGETTING)


NAMES = tuple(f.name for f in fields(PlanArguments) if f.kw_only)


class Known(NamedTuple):
    """Arguments with the losses before adaptation that the fits' tables have, the columns
    to ``forecast`` from other checkpoints there, and a note on the origin of each loss.
    """

    arguments: PlanArguments
    forecast: tuple[str, ...]
    notes: tuple[str, ...]


def with_kept_losses(arguments: PlanArguments, *, of_diverging: bool = False) -> Known:
    """Complete the arguments with losses of the checkpoint before adaptation that are
    not given, and that the tables of the fits have. ``of_diverging``: as in
    `lacks_baseline`.
    """
    targets, sources = arguments.targets, arguments.sources
    covariates, notes = dict(arguments.covariates or {}), []
    models = arguments.N, arguments.ptpp

    def loss_in_table(posterior: Posterior, column: str, *columns: str) -> Any:
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
        is_named = isinstance(arguments.max_loss, Mapping)
        further: Any = arguments.max_loss if is_named else ()
        kept_losses = {}
        for name, posterior in sources.items():
            # in rows of a source or of a further domain, loss_before is that domain's
            own = (LOSS_BEFORE,)
            columns = own if name in further else (SOURCE_LOSS_BEFORE, *own)
            kept_losses[name] = loss_in_table(posterior, *columns)
        if any(loss is not None for loss in kept_losses.values()):
            baselines = kept_losses
    by_source = baselines if isinstance(baselines, Mapping) else {"": baselines}
    target_columns = {*columns_read(*targets.values())}
    limit = arguments.max_target_loss
    limits = limit.values() if isinstance(limit, Mapping) else [limit]
    if arguments.baseline_run is None and any(map(says_rise, limits)):
        target_columns.add(LOSS_BEFORE)  # a rise reads its baseline
    missing = [c for c in LOSSES_BEFORE if c in target_columns and c not in covariates]
    for column in missing:
        loss = None
        # a given baseline of the one source also holds for the target's law
        if column == SOURCE_LOSS_BEFORE and len(by_source) == len(sources) == 1:
            (loss,) = by_source.values()
        if loss is None:
            losses = {name: loss_in_table(p, column) for name, p in targets.items()}
            present = [x for x in losses.values() if x is not None]
            is_one = len(losses) == 1 or column == SOURCE_LOSS_BEFORE
            if present and is_one:
                loss = present[0]
            elif present:
                loss = {name: x for name, x in losses.items() if x is not None}
        if loss is not None:
            covariates[column] = loss
    known = replace(arguments, covariates=covariates, baseline_loss=baselines)
    tables = _tables_of(known)
    columns = [column for column in missing if column not in covariates]
    if tables and lacks_baseline(known, of_diverging=of_diverging):
        columns = [*dict.fromkeys([*columns, SOURCE_LOSS_BEFORE])]
    forecast = losses_at_hand(tables, columns if tables else (), *models).forecast
    return Known(known, forecast, tuple(notes))


def with_losses(
    arguments: PlanArguments, *, of_diverging: bool = False
) -> tuple[PlanArguments, tuple[str, ...]]:
    """Complete the arguments with losses before adaptation that are not given: those in
    the tables of the fits, else forecasts from the other checkpoints there. Also returns
    a note on the origin of each loss. ``of_diverging``: as in `lacks_baseline`.
    """
    known, columns, notes = with_kept_losses(arguments, of_diverging=of_diverging)
    forecasts, lines = forecast_losses(
        _tables_of(known), columns, known.N, known.ptpp, seed=known.seed
    )
    covariates = {**(known.covariates or {}), **forecasts}
    return replace(known, covariates=covariates), (*notes, *lines)


def lacks_baseline(arguments: PlanArguments, *, of_diverging: bool) -> bool:
    """Tell whether the source's loss before adaptation is not given, and its laws read
    it. ``of_diverging``: or have no loss of their own before the first token.
    """
    is_given = SOURCE_LOSS_BEFORE in (arguments.covariates or {})
    if arguments.baseline_loss is not None or is_given:
        return False
    pieces = next(iter(arguments.sources.values())).pieces()
    if any(starts_from_losses(piece.covariates) for piece in pieces):
        return True
    is_asked = of_diverging and arguments.baseline_tokens is None
    return is_asked and any(piece.diverges_at_start for piece in pieces)


def _tables_of(arguments: PlanArguments) -> dict[str, pd.DataFrame]:
    """Find the tables of one target and one source, by domain, if both keep one."""
    posteriors = [*arguments.targets.values(), *arguments.sources.values()]
    runs = [getattr(posterior, "runs", None) for posterior in posteriors]
    tables = [table for table in runs if isinstance(table, pd.DataFrame)]
    is_pair = len(arguments.targets) == len(arguments.sources) == 1
    if not is_pair or len(tables) < 2:
        return {}
    return dict(zip(LOSSES_BEFORE.values(), tables, strict=True))


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
        pieces.update({name: repeating(pieces[name], unique) for name in pieces})
    return replace(arguments, max_epochs=allowed), tuple(lines)
