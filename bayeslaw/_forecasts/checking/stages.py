"""Leave out the stages of the training runs in turn, forecast each from the stages below,
and conclude about the next stage by split conformal prediction (Vovk, Gammerman and
Shafer 2005), with a stage in place of a row. The score of a stage is the factor by which
its 90% intervals would have had to be wider. No distribution is assumed.

If the next stage is exchangeable with m left-out stages, its factor is below the
largest of theirs with probability m / (m + 1). A statement at 90% needs nine stages.
This is a check, not a promise: in an extrapolation stages may not be exchangeable.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.errors import FitWarning, LawError, RunTableError, RunTableWarning
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_level
from bayeslaw._base.progress.time_left import Progress, Stages
from bayeslaw._base.shown import Shown
from bayeslaw._forecasts.check import standardised_misses, widening_factor
from bayeslaw._law.columns import powers_of
from bayeslaw._posteriors.averaging.loading import as_posterior, refit_like
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior, is_kept
from bayeslaw._tables import fitting
from bayeslaw._tables.holdouts import (
    FEW,
    MIN_ROWS,
    HoldOut,
    axis_values,
    check_axis,
    default_axes,
    has_axis,
    upper_stages,
)
from bayeslaw._tables.runs import as_runs

# with nine stages m / (m + 1) is .9, so a statement at 90% is possible
NEEDED = 9


@dataclass(frozen=True)
class Stage:
    """A stage that was forecast from the stages below it.

    ``n``: number of its runs. ``coverage90``: share of the runs inside 90% intervals.
    ``stretch``: factor by which the intervals would have had to widen to hold 90% of
    the runs. ``failed``: whether the posterior that made the forecast failed its
    diagnostics.
    """

    name: str
    n: int
    coverage90: float
    stretch: float
    failed: bool = False


@dataclass(frozen=True, repr=False)
class StagesCheck(Shown):
    """Left-out stages, and the conclusion about the next one.

    Parameters
    ----------
    column
        Column of the stages; None if the runs have one stage only.
    stages
        The stages, each forecast from all stages below it.
    skipped
        Stages that could not be left out, with the reason, a line each.
    """

    column: str | None
    stages: tuple[Stage, ...]
    skipped: tuple[str, ...] = ()

    KEYS: ClassVar = {
        "column stages skipped": ...,
        "largest factor probability factor90": float,
        "stages_for_90": int,
        "reason": str,
    }

    @property
    def largest(self) -> float | None:
        """The largest stretch; None without stages."""
        return max((stage.stretch for stage in self.stages), default=None)

    @property
    def factor(self) -> float | None:
        """Factor that makes 90% intervals hold 90% of the next stage's runs with
        `probability`: the largest stretch, at least 1; None without stages.
        """
        return None if self.largest is None else max(1.0, self.largest)

    @property
    def probability(self) -> float | None:
        """Probability that the next stage's stretch is below the largest, if it is
        exchangeable with the left-out stages; None without stages.
        """
        m = len(self.stages)
        return m / (m + 1) if m else None

    @property
    def factor90(self) -> float | None:
        """Like `factor`, at 90% or more; None with fewer than nine stages."""
        m = len(self.stages)
        if m < NEEDED:
            return None
        # of m + 1 exchangeable stretches the last is the k-th smallest or below with
        # probability k / (m + 1)
        k = math.ceil(0.9 * (m + 1) - 1e-9)
        ordered = sorted(stage.stretch for stage in self.stages)
        return max(1.0, ordered[k - 1])

    @property
    def table(self) -> pd.DataFrame:
        """Make a table with a row for each stage, by name."""
        rows = [asdict(stage) for stage in self.stages]
        columns = ["name", "n", "coverage90", "stretch", "failed"]
        return pd.DataFrame(rows, columns=columns).set_index("name")

    @property
    def lines(self) -> tuple[str, ...]:
        """Describe the result in words, line by line."""
        if self.column is None:
            why = "the fitted runs have one stage only, so there is nothing to say"
            return (f"stages left out: {why}",)
        if self.factor is None:
            return (
                f"stages left out: none can be left out along {self.column}, so there "
                f"is nothing to say of the next one ({'; '.join(self.skipped)})",
            )
        m = len(self.stages)
        these = "this one" if m == 1 else f"these {m}"
        stretches = ", ".join(
            f"{s.stretch:.2f} ({s.name}, {s.n} runs)" for s in self.stages
        )
        chance = f"{m}/{m + 1} = {self.probability:.0%}"
        if self.factor > 1:
            wide = f"{self.factor:.2f} times as wide"
        else:
            wide, chance = "as they are", f"at least {chance}"
        lines = [
            f"stages left out along {self.column}, each forecast from those below: to "
            f"hold 90% of its runs, 90% intervals would have had to be {stretches} times as "
            "wide",
            f"if the next stage is exchangeable with {these}, 90% intervals {wide} "
            f"hold 90% of its runs with probability {chance}",
        ]
        if self.factor90 is None:
            lines.append(
                "that is all that can be said without assuming a distribution: a "
                f"statement at 90% takes {NEEDED} stages, and here are {m}"
            )
        else:
            lines.append(f"and {self.factor90:.2f} times as wide with 90% at least")
        lines.append(
            "this is a check and no promise: a next stage that lies further beyond the "
            "runs than the stages left out did is not exchangeable with them"
        )
        failed = [stage.name for stage in self.stages if stage.failed]
        if failed:
            lines.append(f"diagnostics failed in forecasting {', '.join(failed)}")
        return (*lines, *(f"not left out: {why}" for why in self.skipped))

    def sentence(self) -> str:
        """Describe the result in one line."""
        return "; ".join(self.lines)

    reason, stages_for_90 = sentence, NEEDED  # as they are called in JSON


def check_stages(
    posterior: Posterior | str | Path,
    runs: Table | str | Path | None = None,
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
    column = _choose_column(table, new, column)
    if column is None:
        return StagesCheck(None, ())
    left_out = upper_stages(table, column)
    share = Stages(progress, dict.fromkeys(range(len(left_out)), 1.0) or {0: 1.0})
    stages, skipped = [], []
    for i, (name, hold_out) in enumerate(left_out):
        try:
            below = _refit_below(posterior, hold_out, seed, share.of(i))
            held = table[hold_out.is_held(table)]
            stages.append(_score_stage(name, below, held, seed))
        except (RunTableError, LawError) as error:
            why = str(error).split(";")[0]  # without the advice after the semicolon
            skipped.append(f"{name} ({why})")
        share.finish(i)
    if new is not None and _lies_beyond(table, new, column):
        x = axis_values(new, column)
        ends = [format_level(column, float(end)) for end in (x.min(), x.max())]
        name = f"{column} {' to '.join(dict.fromkeys(ends))}"
        stages.append(_score_stage(name, posterior, new, seed))
    return StagesCheck(column, tuple(stages), tuple(skipped))


def _choose_column(
    table: pd.DataFrame, new: pd.DataFrame | None, asked: str | None
) -> str | None:
    """Choose the axis of the stages; None if the runs have one stage only."""
    if asked is not None:
        check_axis(table, asked)
        columns = powers_of(asked)
        if not all(pd.api.types.is_numeric_dtype(table[c]) for c in columns):
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
    if len(new) < FEW or not has_axis(new, column):
        return False
    return bool(axis_values(new, column).min() > axis_values(table, column).max())


def _refit_below(
    posterior: KeptPosterior, stage: HoldOut, seed: int, progress: Progress
) -> KeptPosterior:
    runs = posterior.runs
    kept, held = runs[stage.is_kept(runs)], int(stage.is_held(runs).sum())
    if held < FEW:
        raise RunTableError(f"{held} runs, and {FEW} are the fewest that tell")
    if len(kept) < MIN_ROWS:
        raise RunTableError(f"{len(kept)} runs below it, and {MIN_ROWS} are needed")
    if len(np.unique(axis_values(kept, stage.axis))) < 2:
        raise RunTableError(f"column {stage.axis!r} has one level only below it")
    with warnings.catch_warnings():
        # warnings about a part of the table do not concern the whole table
        warnings.simplefilter("ignore", RunTableWarning)
        warnings.simplefilter("ignore", FitWarning)
        return refit_like(
            posterior, kept, seed=seed, on_failure="ignore", progress=progress
        )


def _score_stage(
    name: str, below: KeptPosterior, held: pd.DataFrame, seed: int
) -> Stage:
    new = below.log_loss(held, noise=True, seed=seed)
    misses = standardised_misses(new, fitting.log_losses(held))
    return Stage(
        name,
        n=len(held),
        coverage90=float(np.mean(misses <= 1.0)),
        stretch=widening_factor(misses),
        failed=bool(below.warnings),
    )
