"""Find the planned checkpoint's losses before adaptation if the question does not give
them: take them from the table, else forecast them from its other checkpoints.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import warn
from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import LOSS_BEFORE, LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._posteriors.chain import checkpoints, losses_before, models_of
from bayeslaw._tables.rows.levels import is_of_model

if TYPE_CHECKING:
    from bayeslaw._posteriors.averaging.record import Average

LAW = "chinchilla"  # the law of pre-training
FEWEST = 6  # least number of checkpoints for its five parameters


class Before(NamedTuple):
    """Losses before adaptation: those ``measured``, by column in nats per token (or a loss
    for each model), the columns that must be ``forecast``, and lines that tell the origin
    of each loss.
    """

    measured: dict[str, Any]
    forecast: tuple[str, ...]
    told: tuple[str, ...]


def losses_at_hand(
    parts: Mapping[str, pd.DataFrame], columns: Collection[str], N: Any, ptpp: Any
) -> Before:
    """Look up the losses ``columns`` of planned models in the domains' tables."""
    models = [(size, stage) for size, stage in models_of(N, ptpp) if stage is not None]
    if not models:  # without its stage no checkpoint can be looked up
        return Before({}, (), ())
    measured, forecast, lines = {}, [], []
    for column in columns:
        runs = _find_rows(parts, column)
        if runs is None:
            continue
        losses = _find_measured(runs, column, models)
        if None not in losses:
            measured[column] = losses if len(models) > 1 else losses[0]
            values = ", ".join(f"{loss:.4g}" for loss in losses)
            lines.append(f"{column} is the table's own checkpoint's: {values}")
        elif can_fill(runs, column):
            forecast.append(column)
    return Before(measured, tuple(forecast), tuple(lines))


def _find_measured(
    runs: pd.DataFrame, column: str, models: Sequence[tuple[float, float | None]]
) -> list[float | None]:
    """Find the loss of each model: the mean over checkpoints of its size and stage."""
    there = [runs[is_of_model(runs, *model)][column].dropna() for model in models]
    return [float(x.unique().mean()) if len(x) else None for x in there]


def _find_rows(parts: Mapping[str, pd.DataFrame], column: str) -> pd.DataFrame | None:
    """Select the runs that have the column. In rows of the source, ``loss_before``
    counts as ``source_loss_before``.
    """
    runs = parts[LOSSES_BEFORE[column]]
    if column not in runs and column == SOURCE_LOSS_BEFORE and LOSS_BEFORE in runs:
        runs = runs.rename(columns={LOSS_BEFORE: column})
    has_all = {column, "N", "ptpp"} <= set(runs)
    return runs if has_all else None


def forecast_losses(
    parts: Mapping[str, pd.DataFrame],
    columns: Sequence[str],
    N: Any,
    ptpp: Any,
    *,
    seed: int,
) -> tuple[dict[str, Any], list[str]]:
    """Draw the losses of checkpoints that the table does not have, as `plan` takes
    them, with a line about each column. Of several models, those that the table has keep
    their measured losses.
    """
    fits, measured, lines = {}, {}, []
    models = models_of(N, ptpp)
    for column in columns:
        runs = _find_rows(parts, column)
        assert runs is not None, "looked up in losses_at_hand"
        fits[column] = _fit_checkpoints(runs, column, seed)
        measured[column] = _find_measured(runs, column, models)
    draws: dict[str, Any] = {**losses_before(fits, N, ptpp, seed=seed)}
    for column, losses in draws.items():
        by_model = losses if isinstance(losses, list) else [losses]
        missing = [k for k, loss in enumerate(measured[column]) if loss is None]
        quantiles = [np.quantile(by_model[k], [0.05, 0.5, 0.95]) for k in missing]
        intervals = "; ".join(
            f"{middle:.3g} ({low:.3g} to {high:.3g} with 90%)"
            for low, middle, high in quantiles
        )
        sizes, stages = (
            ", ".join(dict.fromkeys(format_count(models[k][i]) for k in missing))
            for i in range(2)
        )
        lines.append(
            f"{column} of the model planned for (N {sizes}, ptpp {stages}) is not in the "
            f"table; forecast from {len(fits[column].runs)} checkpoints by {LAW}: {intervals}"
        )
        if isinstance(losses, list):
            pairs = zip(measured[column], losses, strict=True)
            draws[column] = [x if known is None else known for known, x in pairs]
    return draws, lines


def fill_losses(
    offered: pd.DataFrame, runs: pd.DataFrame, columns: Collection[str], *, seed: int
) -> tuple[pd.DataFrame, list[str]]:
    """Fill in the losses of checkpoints that do not exist yet in runs on offer, with
    medians of a forecast from existing checkpoints (at least `FEWEST`). Also returns a
    line about each column.

    A checkpoint is evaluated before a run starts from it. So the value of a run is
    computed as if the checkpoint's loss were known, at its median.
    """
    lines = []
    for column in columns:
        if column not in offered or not can_fill(runs, column):
            continue
        is_new = offered[column].isna()
        if not is_new.any():
            continue
        fit = _fit_checkpoints(runs, column, seed)
        new = offered.loc[is_new, ["N", "ptpp"]]
        log_losses = fit.log_loss(new.assign(D=new["N"] * new["ptpp"]))
        losses = np.exp(np.median(log_losses, axis=0))
        offered = offered.copy()
        offered.loc[is_new, column] = losses
        lines.append(
            f"{column} of {len(new.drop_duplicates())} checkpoints on offer that do not "
            f"exist yet is forecast from {len(fit.runs)} that do, by {LAW}: "
            f"{losses.min():.3g} to {losses.max():.3g}; measure it when they do"
        )
    return offered, lines


def can_fill(runs: pd.DataFrame, column: str) -> bool:
    """Tell whether enough checkpoints have the column measured to forecast others."""
    if not {column, "N", "ptpp"} <= set(runs):
        return False
    measured = runs.dropna(subset=[column])[["N", "ptpp"]]
    return len(measured.drop_duplicates()) >= FEWEST


def _fit_checkpoints(runs: pd.DataFrame, column: str, seed: int) -> Average:
    # imported here, because this loads samplers
    from bayeslaw._posteriors.averaging.average import average

    table = checkpoints(runs, column)
    # priors in nats are stated at the median checkpoint
    middle = {name: float(table[name].median()) for name in ("N", "D")}
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        fit = average(table, [LAW], reference=middle, seed=seed, on_failure="warn")
    for message in messages:
        # otherwise a reader would take it for a warning about the adapted runs
        line = f"{column} of {len(table)} checkpoints: {message.message}"
        warn(line, message.category)
    return fit
