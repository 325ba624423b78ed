"""Forecast the loss curve of a schedule that nobody has run (Wang 2025, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import CHANCE, checked
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._posteriors.answer import Answer, format_probability
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._schedules.phases import Phases, columns_of, finished, paths, sides_of
from bayeslaw._tables.rates.areas import COLUMNS

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Curve(Answer):
    """Hold the loss along a schedule. ``draws`` are the law's loss at the schedule's
    end.

    Parameters
    ----------
    table
        ``step`` (counted through both phases), ``lr``, the areas, and the columns of
        `forecast`: ``median``, the band ``low``, ``high`` of a new run, the band
        ``law_low``, ``law_high`` of the law (all in nats per token), and ``log_sd``.
    curves
        The law's loss in every draw, shape (draw, step).
    start
        The law's loss at the last step of pre-training, shape (draw,); None without an
        adaptation.
    prob
        Probability inside the bands.
    """

    table: pd.DataFrame
    curves: Float[np.ndarray, "draw step"]
    start: Float[np.ndarray, " draw"] | None
    prob: float

    def statement(self) -> str:
        end = self.table.iloc[-1]
        at_end = (
            f"At step {end['step']:g} the loss of a run is {end['median']:.4g} nats "
            f"per token ({self.prob:.0%} interval {end['low']:.4g} to "
            f"{end['high']:.4g})"
        )
        if self.start is None:
            return f"{at_end}."
        above = float(np.mean(self.draws > self.start))
        return (
            f"{at_end}; the law ends above where adaptation starts with probability "
            f"{format_probability(above)}."
        )


def loss_curve(
    posterior: Posterior,
    phases: Phases,
    *,
    steps: Any = None,
    points: int = 200,
    prob: float | str = 0.9,
    seed: int = 0,
) -> Curve:
    """Forecast the loss at any step of any schedule, with its band (Wang 2025, section
    3.3 and appendix D).

    Parameters
    ----------
    posterior
        A fit of a law of loss curves.
    phases
        The schedule. A curve with adaptation starts at the last step of pre-training; a
        curve without it starts at the first step.
    steps
        Steps to look at, counted through both phases; by default ``points`` steps,
        evenly spaced.
    prob, seed
        Probability inside the bands; seed of the noise of a new run.

    Raises
    ------
    PlanError
        A step is outside the schedule, or the law reads a column that the phases lack.

    Examples
    --------
    >>> curve = bayeslaw.loss_curve(curves, phases, points=5)
    >>> curve.table[["low", "median", "high"]].notna().all().all().item()
    True
    """
    prob = checked("prob", prob, CHANCE)
    adapted = phases.adaptation is not None
    reads = COLUMNS[2:] if adapted else COLUMNS[:2]
    (side,) = sides_of(posterior, None, 1.0, seed, phases.covariates, reads)
    first, second = paths(phases)

    # whole steps to look at, counted through both phases
    before = first.steps if first else 0
    last = before + (second.steps if second else 0)
    if steps is None:
        looked_at = np.linspace(before if second else 1, last, points)
    else:
        looked_at = np.atleast_1d(np.asarray(steps, float))
    looked_at = np.unique(np.round(looked_at))
    lowest = 1 if first else 0
    is_inside = (looked_at >= lowest) & (looked_at <= last)
    if not len(looked_at) or not is_inside.all():
        raise PlanError(
            f"steps must lie between {lowest} and {last}, the last one of the schedule"
        )

    # the learning rate and the areas at each of them
    rates = first.rate(looked_at) if first else np.zeros(len(looked_at))
    pretraining = first.at(np.minimum(looked_at, before)) if first else None
    adaptation: Any = (0.0, 0.0)
    if second:
        steps_adapted = np.maximum(looked_at - before, 0)
        rates = np.where(looked_at > before, second.rate(steps_adapted), rates)
        adaptation = second.at(steps_adapted)
    areas = columns_of(pretraining, adaptation)
    runs = pd.DataFrame({**areas, **phases.covariates}, index=range(len(looked_at)))
    curves = side.loss({str(c): runs[c].to_numpy() for c in runs})
    start = None
    if adapted:
        at_start = columns_of(finished(first)) | dict(phases.covariates)
        start = side.loss(at_start)[:, 0]
    bands = forecast(posterior, runs, prob=prob, seed=seed)
    schedule = pd.DataFrame({"step": looked_at, "lr": rates})
    table = pd.concat([schedule, runs[list(areas)], bands], axis=1)
    return Curve(curves[:, -1], table, curves, start, prob)
