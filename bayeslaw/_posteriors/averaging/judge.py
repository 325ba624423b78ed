"""A law judged by forecasts of stages that it has not seen.

Each law is fitted, and its misfit learned, with its largest stage, size and budget left
out in turn, and forecasts them: that is its score, and how far it may drift beyond the
data (`bayeslaw._inference.discrepancy.drift`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.machine.runtime import WARMUP
from bayeslaw._inference import coordinates
from bayeslaw._inference.diagnostics import MAX_RHAT, MIN_ESS, interval_score
from bayeslaw._inference.discrepancy.drift import (
    Miss,
    Range,
    distances,
    draw_drift,
    draw_scales,
    scale_prior,
    training_range,
)
from bayeslaw._inference.discrepancy.learning import TRIES
from bayeslaw._inference.discrepancy.process import Process
from bayeslaw._inference.importance import Importance, starts_near
from bayeslaw._inference.noise import RunNoise
from bayeslaw._inference.nuts import NUTS, prepare
from bayeslaw._inference.table import NONE, Padded, pad
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.folds import Fold
from bayeslaw._posteriors.fits.misfit import (
    TrainingRuns,
    fitted_errors,
    learn_misfit,
    with_misfit,
)
from bayeslaw._posteriors.fits.refits import Refit, refit
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, over_draws

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

SHARED, INDEPENDENT = "shared", "independent"  # errors of rows of one checkpoint or run


class Effort(NamedTuple):
    """How a posterior is drawn.

    Parameters
    ----------
    importance
        Draws by weight.
    chains
        What takes over where the weights are poorer than ``importance`` allows.
    tries
        Tries of the misfit's scales.
    """

    importance: Importance
    chains: NUTS
    tries: int


OF_THE_TABLE = Effort(
    Importance(draws=4000, min_ess=MIN_ESS),
    NUTS(chains=4, warmup=WARMUP, draws=500, max_draws=2000),
    TRIES,
)
OF_A_STAGE = Effort(
    Importance(draws=1000, min_ess=50, enough=800),
    NUTS(chains=4, warmup=WARMUP, draws=300, max_draws=300),
    TRIES // 2,
)


class Setting(NamedTuple):
    """How laws are judged.

    ``independent``: take every row's error as its own; ``discrepancy``: learn each
    law's misfit; ``seed``.
    """

    independent: bool = False
    discrepancy: bool = True
    seed: int = 0


class HeldOutScore(NamedTuple):
    """How a law forecast the runs of one stage left out, each of shape (run,).

    ``density``: log density; ``inside``: whether inside the 90% interval; ``error``:
    relative error of the median; ``interval``: interval score of the 90% interval over
    the loss (width + 20 x miss; Gneiting and Raftery 2007).
    """

    density: Float[np.ndarray, " run"]
    inside: Bool[np.ndarray, " run"]
    error: Float[np.ndarray, " run"]
    interval: Float[np.ndarray, " run"]


@dataclass(frozen=True, eq=False)
class Judged:
    """A law's posterior on the whole table, and how it forecast what was left out.

    Parameters
    ----------
    law, process
        The law and the basis of its misfit (None without one).
    values
        Equally weighted draws, by name, each of shape (draw, ...).
    tau
        Draws of the drift's scale to each side, shape (draw, side).
    known
        Range of the runs.
    held_out
        The forecasts of each stage left out, drift included.
    errors
        How the law itself was fitted: ``"shared"`` by rows of a checkpoint or run, or
        ``"independent"``.
    sampler, rhat, ess, divergences, draws
        How the draws were made.
    failed
        Stages left out whose chains did not converge.
    """

    law: Law
    process: Process | None
    values: dict[str, Float[np.ndarray, "draw ..."]]
    tau: Float[np.ndarray, "scale_draw side"]
    known: Range
    held_out: tuple[HeldOutScore, ...]
    errors: str
    failed: tuple[str, ...]
    sampler: str
    rhat: float
    ess: float
    divergences: int
    draws: int

    def mean_score(self, name: str) -> float:
        """Mean of a field of `HeldOutScore` over all runs left out."""
        parts = [getattr(score, name) for score in self.held_out]
        if not parts:
            return float("nan")
        return float(np.concatenate(parts).mean())


# other laws are judged at the same time, and whether one of them limits the threads of
# linear algebra must not change last digits
@one_thread()
def judge(
    law: Law,
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    stages: Sequence[Fold],
    setting: Setting,
    tick: Callable[[], None],
) -> Judged:
    """One law's posterior, and its forecasts of each stage from the runs left.

    Parameters
    ----------
    fitted
        Which runs are known, shape (run,); the law sees no other. A part of a table
        shares the programs that are compiled for the whole.
    """
    training = TrainingRuns.of(law, runs, setting.independent)
    x, y = training.covariates, training.y
    errors = NONE if setting.independent else fitted_errors(law, runs)
    table = pad(x, y, errors)
    weights = training.row_weights if setting.discrepancy else np.ones(len(y))
    whole, notes = _posterior(
        law, table, x, weights * fitted, None, setting.seed, OF_THE_TABLE
    )
    process, values = _with_misfit(
        law, whole, training, fitted, setting, OF_THE_TABLE.tries
    )
    power = process.fading.power if process and process.fading else None
    tick()
    # With a stage left out the mode is near the draws of the whole table, which saves
    # the search from many starts.
    starts = [{n: whole[n][i] for n in law.priors} for i in range(3)]
    noise = float(np.median(whole["sigma"]))
    forecasts, failed = [], []
    for stage in stages:
        draws, fold_notes = _posterior(
            law,
            table,
            x,
            weights * stage.kept,
            (starts, noise),
            setting.seed,
            OF_A_STAGE,
        )
        if fold_notes["rhat"] > MAX_RHAT:
            failed.append(stage.name)
        forecasts.append(_forecast(law, draws, training, stage, setting, power))
        tick()
    trained = training_range({c: v[fitted] for c, v in x.items()})
    rng = np.random.default_rng(setting.seed)
    misses = [_miss(forecast) for forecast in forecasts]
    tau = draw_scales(misses, 2 * len(trained.axes), rng, scale_prior(trained))
    return Judged(
        law,
        process,
        values,
        tau,
        trained,
        tuple(_scored(forecast, tau, rng) for forecast in forecasts),
        errors=INDEPENDENT if errors is NONE else SHARED,
        failed=tuple(failed),
        **notes,
    )


def _posterior(
    law: Law,
    table: Padded,
    x: Mapping[str, Float[np.ndarray, " row"]],
    weights: Float[np.ndarray, " row"],
    starts: tuple[list[dict], float] | None,
    seed: int,
    effort: Effort,
) -> Refit:
    """The posterior given rows of positive weight; its mode is searched near ``starts``
    (values of the law, and the scale of the noise), or from anywhere.
    """
    part = table.weighed(weights)
    has_weight = weights > 0
    at = coordinates.contrast_points(law, {c: v[has_weight] for c, v in x.items()})
    if starts is None:
        vectors = prepare(law, part, at, seed).centre[None]
    else:
        vectors = starts_near(law, part, at, *starts)
    return refit(
        law,
        part,
        at,
        vectors,
        seed=seed,
        importance=effort.importance,
        nuts=effort.chains,
    )


def _with_misfit(
    law: Law,
    draws: dict[str, Float[np.ndarray, " draw"]],
    training: TrainingRuns,
    kept: Bool[np.ndarray, " row"],
    setting: Setting,
    tries: int,
    power: float | None = None,
) -> tuple[Process | None, dict[str, Float[np.ndarray, "draw ..."]]]:
    """The draws with the misfit that they learn from the rows that are kept; ``power``:
    by which errors fade, learned by default.
    """
    if not setting.discrepancy:
        return None, draws
    misfit = learn_misfit(
        law, draws, training, kept, power=power, seed=setting.seed, tries=tries
    )
    process = None if misfit is None else misfit.process
    return process, with_misfit(draws, misfit)


class Forecast(NamedTuple):
    """Forecast of a held-out stage.

    ``mean``: log loss without noise and drift, (draw, run); ``draws``: all leaves;
    ``away``: distances beyond the runs kept, (run, side); ``same``: by kind of
    group, whether two runs share their error, (run, run); ``y``: what was measured, (run,);
    ``size``: of a run's error over that of the longest runs, (run,).
    """

    mean: Float[np.ndarray, "draw run"]
    draws: dict[str, Float[np.ndarray, "draw ..."]]
    away: Float[np.ndarray, "run side"]
    same: Mapping[str, Bool[np.ndarray, "run run"]]
    y: Float[np.ndarray, " run"]
    size: Float[np.ndarray, " run"]


def _forecast(
    law: Law,
    draws: dict[str, Float[np.ndarray, " draw"]],
    training: TrainingRuns,
    stage: Fold,
    setting: Setting,
    power: float | None,
) -> Forecast:
    process, values = _with_misfit(
        law, draws, training, stage.kept, setting, OF_A_STAGE.tries, power
    )
    x = training.covariates
    of_law = {name: values[name] for name in law.priors}
    mean = np.asarray(over_draws(LogLoss(law))(of_law, dict(x)))[:, stage.held]
    rows = {c: v[stage.held] for c, v in x.items()}
    if process is not None:
        mean = mean + values[WEIGHTS] @ process.features(rows, np).T
    trained = training_range({c: v[stage.kept] for c, v in x.items()})
    away = np.asarray(distances(rows, trained, np))
    away = np.broadcast_to(away, (mean.shape[1], away.shape[1]))
    same = {}
    for kind, code in training.sharing.groups.items():
        held_code = code[stage.held]
        same[kind] = held_code[:, None] == held_code
    size = LogLoss(law, process).error_size(rows)
    return Forecast(mean, values, away, same, training.y[stage.held], size)


def _miss(forecast: Forecast) -> Miss:
    """Residuals and covariance of the forecast of a stage: of the law's draws, of
    noise, of what checkpoints share.
    """
    mean, draws, away, same, y, size = forecast
    variance = np.median(RunNoise.of(draws).capped_variance)
    # np.cov of one run is a number
    of_law = np.cov(mean.T).reshape(len(y), len(y))
    covariance = of_law + variance * np.diag(size**2)
    for kind, pairs in same.items():
        if f"tau_{kind}" in draws:
            variance = np.mean(draws[f"tau_{kind}"] ** 2)
            covariance = covariance + variance * pairs * np.outer(size, size)
    residual = y - mean.mean(0)
    return Miss(residual, covariance, away)


def _scored(
    forecast: Forecast,
    tau: Float[np.ndarray, "scale_draw side"],
    rng: np.random.Generator,
) -> HeldOutScore:
    """The forecast of a stage left out, with noise and drift, against what came."""
    mean, draws, away, _, y, size = forecast
    centre = mean + draw_drift(tau, len(mean), rng) @ away.T
    noise = RunNoise.of(draws).of_new_run()
    # Density of the predictive mixture: the mean over draws of their densities.
    densities = noise.density((y - centre) / size) / size
    new = centre + size * noise.draw(len(y), rng)
    low, middle, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
    return HeldOutScore(
        density=np.log(np.mean(densities, axis=0) + 1e-300),
        inside=(low <= y) & (y <= high),
        error=np.abs(np.exp(middle - y) - 1),
        interval=interval_score(low, high, y),
    )
