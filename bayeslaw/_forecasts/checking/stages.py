"""Leave out the stages of the training runs in turn, and forecast each from the stages
below.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from bayeslaw._base.errors import FitWarning, LawError, RunTableError, RunTableWarning
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_level
from bayeslaw._base.progress.time_left import Progress, Stages
from bayeslaw._forecasts.check import FEW, standardised_misses, widening_factor
from bayeslaw._forecasts.checking.exchangeable import Stage, StagesCheck
from bayeslaw._posteriors.averaging.folds import (
    MIN_ROWS,
    Fold,
    axis_values,
    columns_of,
    default_axes,
    upper_stages,
)
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.averaging.refitting import refit_like
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior, is_kept
from bayeslaw._tables import fitting
from bayeslaw._tables.proposals import it_has
from bayeslaw._tables.runs import as_runs


def check_stages(
    posterior: Posterior | str | Path,
    runs: pd.DataFrame | str | Path | None = None,
    *,
    column: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> StagesCheck:
    """Leave out the upper stages of the training runs in turn, forecast each from the
    stages below, and conclude about the next stage.

    Parameters
    ----------
    posterior
        A fit or an average. It is made again with the same settings for each left-out
        stage.
    runs
        Measured runs beyond the training runs, or the path of a table; they are one
        more stage. Rows of other domains than the fitted one are left out.
    column
        Axis of the stages: a column, ``D/N`` or ``N*D``. By default the first of ptpp,
        N, D, tokens per parameter and compute along which ``runs`` lie beyond the
        training runs, else the first with two levels.
    seed
        Same seed, same machine: same numbers.
    progress
        Called with the stages done and to do.

    Raises
    ------
    LawError
        The posterior is neither a fit nor an average.
    RunTableError
        There is no such column, or no losses.

    Examples
    --------
    >>> stages = bayeslaw.check_stages(pretraining, column="N")
    >>> stages.column
    'N'
    """
    posterior = as_posterior(posterior)
    if not is_kept(posterior):
        raise LawError(
            "stages are left out of a fit or an average (`bayeslaw fit`), not of a "
            f"{type(posterior).__name__}"
        )
    runtime.start()
    table = posterior.runs
    new = None if runs is None else fitting.own_rows(table, as_runs(runs))
    column = _column(table, new, column)
    if column is None:
        return StagesCheck(None, ())
    below = upper_stages(table, column)
    share = Stages(progress, dict.fromkeys(range(len(below)), 1.0) or {0: 1.0})
    stages, skipped = [], []
    for i, stage in enumerate(below):
        try:
            forecast = _forecast(posterior, stage, seed, share.of(i))
            stages.append(forecast)
        except (RunTableError, LawError) as error:
            why = str(error).split(";")[0]  # without the advice after the semicolon
            skipped.append(f"{stage.name} ({why})")
        share.finish(i)
    if new is not None and _lies_beyond(table, new, column):
        stages.append(_stage(f"{column} {_span(new, column)}", posterior, new, seed))
    return StagesCheck(column, tuple(stages), tuple(skipped))


def _column(
    table: pd.DataFrame, new: pd.DataFrame | None, asked: str | None
) -> str | None:
    """Choose the axis of the stages; None if the runs have one stage only."""
    if asked is not None:
        needed = columns_of(asked)
        if not set(needed) <= set(table):
            raise RunTableError(
                f"column {asked!r} to hold out by is not among the fitted runs'; "
                f"{it_has(table)}"
            )
        if not all(pd.api.types.is_numeric_dtype(table[c]) for c in needed):
            raise RunTableError(
                f"column {asked!r} has no numbers: hold out by one of "
                f"{', '.join(default_axes(table))}"
            )
        is_one = len(np.unique(axis_values(table, asked))) == 1
        return None if is_one else asked
    columns = default_axes(table)
    beyond = [c for c in columns if new is not None and _lies_beyond(table, new, c)]
    return next(iter([*beyond, *columns]), None)


def _lies_beyond(table: pd.DataFrame, new: pd.DataFrame, column: str) -> bool:
    """Tell whether new runs are a stage above all training runs, with enough rows."""
    if len(new) < FEW or not set(columns_of(column)) <= set(new):
        return False
    return bool(axis_values(new, column).min() > axis_values(table, column).max())


def _span(runs: pd.DataFrame, column: str) -> str:
    x = axis_values(runs, column)
    ends = [format_level(column, float(end)) for end in (x.min(), x.max())]
    return " to ".join(dict.fromkeys(ends))


def _forecast(
    posterior: KeptPosterior, fold: Fold, seed: int, progress: Progress
) -> Stage:
    """Forecast a stage by the same laws, fitted to the runs below it.

    Raises
    ------
    RunTableError, LawError
        The stage is too small, or the laws cannot be fitted to the rest.
    """
    runs = posterior.runs
    kept, held = int(fold.kept.sum()), int(fold.held.sum())
    if held < FEW:
        raise RunTableError(f"{held} runs, and {FEW} are the fewest that tell")
    if kept < MIN_ROWS:
        raise RunTableError(f"{kept} runs below it, and {MIN_ROWS} are needed")
    if len(np.unique(axis_values(runs[fold.kept], fold.column))) < 2:
        raise RunTableError(f"column {fold.column!r} has one level only below it")
    with warnings.catch_warnings():
        # warnings about a part of the table do not concern the whole table
        warnings.simplefilter("ignore", RunTableWarning)
        warnings.simplefilter("ignore", FitWarning)
        below = refit_like(
            posterior,
            runs[fold.kept],
            seed=seed,
            on_failure="ignore",
            progress=progress,
        )
    return _stage(fold.name, below, runs[fold.held], seed)


def _stage(name: str, below: KeptPosterior, held: pd.DataFrame, seed: int) -> Stage:
    """Score the forecast of a stage."""
    y = fitting.log_losses(held)
    new = below.log_loss(held, noise=True, seed=seed)
    low, point, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
    misses = standardised_misses(y, low, point, high)
    return Stage(
        name,
        n=len(y),
        coverage90=float(np.mean(misses <= 1.0)),
        stretch=widening_factor(misses),
        failed=bool(below.warnings),
    )
