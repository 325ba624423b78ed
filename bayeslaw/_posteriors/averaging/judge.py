"""Judge a law by its forecasts of held-out stages.

Each law is refitted, its misfit included, with the largest stage, size and budget held
out in turn. Forecasts of the held-out runs give its score and the scale of its drift
beyond the data (`bayeslaw._inference.discrepancy.drift`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.machine.runtime import WARMUP
from bayeslaw._base.streams import generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.diagnostics import MAX_RHAT, MIN_ESS, interval_score
from bayeslaw._inference.discrepancy.drift import (
    DriftPrior,
    DriftPriors,
    Miss,
    Range,
    directions,
    distances,
    draw_drift,
    draw_scales,
    training_range,
    without_outliers,
)
from bayeslaw._inference.discrepancy.learning import TRIES
from bayeslaw._inference.discrepancy.process import Process
from bayeslaw._inference.importance import Importance, starts_near
from bayeslaw._inference.modes import start_near_mode
from bayeslaw._inference.noise import Effects, RunNoise, find_learned, tokens_of
from bayeslaw._inference.nuts import NUTS
from bayeslaw._inference.table import Padded, pad
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits.misfit import (
    TrainingRuns,
    fitted_errors,
    label_effects,
    learn_misfit,
    with_misfit,
)
from bayeslaw._posteriors.fits.refits import Refit, refit
from bayeslaw._posteriors.posterior import Member
from bayeslaw._tables.holdouts import HoldOut

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

SHARED, INDEPENDENT = "shared", "independent"  # errors within a checkpoint or run


class PosteriorEffort(NamedTuple):
    """Settings of the samplers of a posterior: NUTS where the weights of importance
    sampling fail its limits, and the proposals of the misfit's scales.
    """

    importance: Importance
    chains: NUTS
    tries: int


OF_THE_TABLE = PosteriorEffort(
    Importance(draws=4000, min_ess=MIN_ESS),
    NUTS(chains=4, warmup=WARMUP, draws=500, max_draws=2000),
    TRIES,
)
OF_A_STAGE = PosteriorEffort(
    Importance(draws=1000, min_ess=50, enough=800),
    NUTS(chains=4, warmup=WARMUP, draws=300, max_draws=300),
    TRIES // 2,
)


class Setting(NamedTuple):
    """How laws are judged: errors ``independent``, with a ``discrepancy``."""

    independent: bool = False
    discrepancy: bool = True
    seed: int = 0


class HeldOutScore(NamedTuple):
    """Scores of a law's forecasts of one held-out stage: log density; whether a run is
    inside the 90% interval; relative error of the median, above 0 if it is too high;
    interval score of the 90% interval, relative to the loss (width + 20 x miss; Gneiting
    and Raftery 2007); and the `run_slope` of its errors.
    """

    density: Float[np.ndarray, " run"]
    inside: Bool[np.ndarray, " run"]
    error: Float[np.ndarray, " run"]
    interval: Float[np.ndarray, " run"]
    slope: float = float("nan")


@dataclass(frozen=True, eq=False)
class Judged:
    """A law's posterior on the whole table, and its scores on held-out stages.

    ``tau``: draws of the drift's scale to each side; ``drift_prior`` also gives the mean
    of the drifts. ``held_out``: scores, drift included. ``errors``: of the fit without
    misfit, ``"shared"`` (effects of checkpoints or runs) or ``"independent"``.
    ``failed``: held-out stages whose chains did not converge.
    """

    law: Law
    process: Process | None
    values: Mapping[str, Float[np.ndarray, "draw ..."]]
    tau: Float[np.ndarray, "scale_draw side"]
    drift_prior: DriftPrior
    training_range: Range
    held_out: tuple[HeldOutScore, ...]
    errors: str
    failed: tuple[str, ...]
    sampler: str
    rhat: float
    ess: float
    divergences: int
    draws: int
    effects: Effects = field(default_factory=dict)

    def mean_score(self, name: str, of: Callable = np.asarray) -> float:
        """Average a field of `HeldOutScore`, or ``of`` it, over all held-out runs."""
        parts = [of(getattr(score, name)) for score in self.held_out]
        if not parts:
            return float("nan")
        return float(np.concatenate(parts).mean())


# Laws are judged in parallel. With one BLAS thread each, results are equal to the last
# digit whatever else runs.
@one_thread()
def judge(
    law: Law,
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    stages: Sequence[HoldOut],
    setting: Setting,
    tick: Callable[[], None],
) -> Judged:
    """Fit one law to ``runs[fitted]``, and score its forecasts of each stage from the
    other runs. Masks keep the table's shape, so compiled programs are reused.
    """
    training = TrainingRuns.of(law, runs, setting.independent)
    x, y = training.covariates, training.y
    errors = fitted_errors(law, runs)
    if setting.independent:
        errors = errors.independent
    table = pad(x, y, errors)
    weights = training.row_weights if setting.discrepancy else np.ones(len(y))

    def fit_rows(
        rows: Bool[np.ndarray, " run"],
        effort: PosteriorEffort,
        starts: tuple[list[dict], float] | None = None,
        power: float | None = None,
    ) -> tuple[Refit, Member]:
        """Draw the law's posterior given some rows, and learn its misfit from them."""
        drawn = draw_posterior(
            law, table, x, weights * rows, starts, setting.seed, effort
        )
        misfit = None
        if setting.discrepancy:
            options = {"power": power, "seed": setting.seed, "tries": effort.tries}
            misfit = learn_misfit(law, drawn.values, training, rows, **options)
        process, effects = None, {}
        if misfit is not None:
            process = misfit.process
            shared = training.sharing.only(rows)
            effects = label_effects(misfit, runs[rows], shared)
        values = with_misfit(drawn.values, misfit)
        return drawn, Member(law, 1.0, process, None, values, effects)

    whole, member = fit_rows(fitted, OF_THE_TABLE)
    process = member.process
    power = process.fading.power if process and process.fading else None
    tick()
    # Fits without a stage start from three draws of the whole table's posterior, which
    # lie near the mode: a search from many starts is not needed.
    near = [{name: whole.values[name][i] for name in law.priors} for i in range(3)]
    starts = near, float(np.median(whole.values["sigma"]))
    forecasts, failed = [], []
    for stage in stages:
        kept, held = np.zeros((2, len(runs)), bool)
        kept[fitted] = stage.is_kept(runs[fitted])
        held[fitted] = stage.is_held(runs[fitted])
        below, of_stage = fit_rows(kept, OF_A_STAGE, starts, power)
        if below.note["rhat"] > MAX_RHAT:
            failed.append(stage.name)
        forecasts.append(_forecast_stage(of_stage, runs[held], training, kept, held))
        tick()
    trained = training_range({c: v[fitted] for c, v in x.items()})
    rng = generator(setting.seed)
    misses = [measure_miss(forecast) for forecast in forecasts]
    prior = DriftPriors().of(trained)
    tau = draw_scales(misses, prior, rng)
    return Judged(
        law,
        process,
        member.values,
        tau,
        prior,
        trained,
        tuple(score_stage(forecast, tau, prior, rng) for forecast in forecasts),
        errors=INDEPENDENT if errors.kind is None else SHARED,
        failed=tuple(failed),
        **whole.note,
        effects=member.effects,
    )


def draw_posterior(
    law: Law,
    table: Padded,
    x: Mapping[str, Float[np.ndarray, " row"]],
    weights: Float[np.ndarray, " row"],
    starts: tuple[list[dict], float] | None,
    seed: int,
    effort: PosteriorEffort,
) -> Refit:
    """Draw the posterior given rows of positive weight. The mode is searched from
    ``starts`` (values of the law, and the noise scale), by default from many points.
    """
    part = table.weighed(weights)
    has_weight = weights > 0
    at = coordinates.contrast_points(law, {c: v[has_weight] for c, v in x.items()})
    if starts is None:
        vectors = start_near_mode(law, part, at, seed)[None]
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


class Forecast(NamedTuple):
    """Forecast of a held-out stage: ``mean`` log loss without drift, noise and the
    effects of new groups; ``draws``, all leaves; ``away``, distances beyond the training
    runs; ``groups``, each run's group by kind; ``y``, measured log loss; ``size`` of a
    run's error relative to the longest run; ``row_sd``, standard errors that the table
    states; ``left``, by kind, the share of an effect's variance that is open for each run:
    1 of groups that were not learned.
    """

    mean: Float[np.ndarray, "draw run"]
    draws: Mapping[str, Float[np.ndarray, "draw ..."]]
    away: Float[np.ndarray, "run side"]
    groups: Mapping[str, Int[np.ndarray, " run"]]
    y: Float[np.ndarray, " run"]
    size: Float[np.ndarray, " run"]
    row_sd: Float[np.ndarray, " run"]
    tokens: Float[np.ndarray, " run"] | None = None
    left: Mapping[str, Float[np.ndarray, " run"]] = {}


def _forecast_stage(
    member: Member,
    runs: pd.DataFrame,
    training: TrainingRuns,
    kept: Bool[np.ndarray, " run"],
    held: Bool[np.ndarray, " run"],
) -> Forecast:
    """Evaluate a law, its misfit and effects, learned without a left-out stage, at its
    ``runs``.
    """
    x = training.covariates
    rows = {c: v[held] for c, v in x.items()}
    piece = member.piece
    trained = training_range({c: v[kept] for c, v in x.items()})
    away = np.asarray(distances(rows, trained, np))
    groups = {k: code[held] for k, code in training.sharing.groups.items()}
    left = {kind: np.ones(len(runs)) for kind in member.effects}
    tokens = tokens_of(runs)
    for kind, of_runs in left.items():
        for row, effect in find_learned(member.effects, kind, runs, ()).items():
            of_runs[row] = effect.open_share(kind, tokens[row])
    size = np.broadcast_to(piece.error_size(rows), len(runs))
    row_sd = np.zeros(len(training.y)) if training.row_sd is None else training.row_sd
    return Forecast(
        piece.at(rows) + member.known_effects(runs, list(left)),
        member.values,
        np.broadcast_to(away, (len(runs), away.shape[1])),
        groups,
        training.y[held],
        size,
        row_sd[held],
        rows.get("D"),
        left,
    )


def measure_miss(forecast: Forecast) -> Miss:
    """Compute held-out residuals and the predictive covariance (posterior, noise and
    effects of new groups), in the directions in which drifts move the runs.
    """
    mean, draws, away, groups, y, size, row_sd, _, left = forecast
    basis = directions(away)
    residual = without_outliers(y - mean.mean(0))
    own = np.median(RunNoise.of(draws).capped_variance) * size**2 + row_sd**2
    covariance = np.atleast_2d(np.cov(mean @ basis, rowvar=False))
    covariance = covariance + (basis.T * own) @ basis
    sized = pd.DataFrame((basis.T * size).T)
    for kind, code in groups.items():
        if f"tau_{kind}" in draws:
            is_open = np.sqrt(left.get(kind, np.ones(len(y))))
            of_groups = sized.mul(is_open, axis=0).groupby(code).sum().to_numpy()
            variance = np.mean(draws[f"tau_{kind}"] ** 2)
            covariance = covariance + variance * of_groups.T @ of_groups
    return Miss(basis.T @ residual, covariance, basis.T @ away)


def score_stage(
    forecast: Forecast,
    tau: Float[np.ndarray, "scale_draw side"],
    prior: DriftPrior,
    rng: np.random.Generator,
) -> HeldOutScore:
    """Score the forecast of a held-out stage, with noise and drift."""
    mean, draws, away, groups, y, size, row_sd, tokens, left = forecast
    centre = mean + draw_drift(tau, prior, len(mean), rng) @ away.T
    of_run = RunNoise.of(draws)
    new, densities = np.empty_like(centre), np.empty_like(centre)
    # rows of which as much of the effects is open have the same noise
    shares = np.reshape([*left.values()], (len(left), len(y))).T.round(2)
    patterns, of_row = np.unique(shares, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        rows = np.flatnonzero(of_row.ravel() == i)
        noise = of_run.given(dict(zip(left, pattern, strict=True))).of_new_run()
        scale = noise.size_with(size[rows], row_sd[rows])
        error = (y[rows] - centre[:, rows]) / scale
        densities[:, rows] = noise.density(error) / scale
        new[:, rows] = centre[:, rows] + scale * noise.draw(len(rows), rng)
    low, middle, high = np.quantile(new, [0.05, 0.5, 0.95], axis=0)
    return HeldOutScore(
        # The predictive density is the mean of the draws' densities.
        density=np.log(np.mean(densities, axis=0) + 1e-300),
        inside=(low <= y) & (y <= high),
        error=np.exp(middle - y) - 1,
        interval=interval_score(low, high, y),
        slope=run_slope(y - mean.mean(0), groups.get("run"), tokens),
    )


def run_slope(
    residual: Float[np.ndarray, " row"],
    run: Int[np.ndarray, " row"] | None,
    tokens: Float[np.ndarray, " row"] | None,
    least_points: int = 4,
) -> float:
    """Compute the root mean square slope of residuals of log loss along log tokens, over
    the runs with enough points at different tokens; NaN if there are none.

    ``run``: index of each row's run.
    """
    if run is None or tokens is None:
        return float("nan")
    slopes = []
    for points in pd.Series(run).groupby(run, sort=False).indices.values():
        if len(np.unique(tokens[points])) >= least_points:
            slope, _ = np.polyfit(np.log(tokens[points]), residual[points], 1)
            slopes.append(slope)
    return float(np.sqrt(np.mean(np.square(slopes)))) if slopes else float("nan")
