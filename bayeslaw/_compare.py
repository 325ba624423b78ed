"""Laws judged by forecasts of stages they have not seen, and weighed.

A posterior of one law is not the uncertainty. Each law is fitted with its largest stage, size and budget left out in turn,
and forecasts them: that is its score, and how far its exponents may drift beyond the data (`_discrepancy`). Weights are
those of stacking (Yao et al. 2018): the mixture of laws whose forecasts of runs left out have the largest log density,
over the stages left out and over single runs left out (PSIS).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from bayeslaw import _discrepancy, _engine, _geometry, _runs
from bayeslaw._approximate import starts_near
from bayeslaw._diagnostics import pareto_smoothed
from bayeslaw._discrepancy import Miss, Range, distances, draw_drift, tau_posterior, training_range
from bayeslaw._engine import WARMUP
from bayeslaw._errors import LawError, RunTableError
from bayeslaw._folds import Fold, default_axes, folds
from bayeslaw._formula import find_law
from bayeslaw._law import Law
from bayeslaw._model import log_loss_of
from bayeslaw._padding import Padded, pad
from bayeslaw._posterior import new_run_scale, over_draws
from bayeslaw._refits import NotTrusted, Refit, refit, spread
from bayeslaw._shared_error import NONE, shared_error

MIN_ESS = 400  # effective draws below which importance sampling gives way to NUTS
NUTS = {"chains": 4, "warmup": WARMUP, "draws": 500, "max_draws": 2000}
WHOLE = {"draws": 4000, "min_ess": MIN_ESS, "nuts": NUTS}  # of the whole table
FOLD = {"draws": 1000, "min_ess": 50, "nuts": {"chains": 4, "warmup": WARMUP, "draws": 300}}  # of a stage left out
SHARED, INDEPENDENT = "shared", "independent"  # errors of rows of one checkpoint or run
RESAMPLES = 4000  # of the groups of runs left out, for the probability that a law forecasts them best


@dataclass(frozen=True, eq=False)
class Judged:
    """A law's posterior on the whole table, and how it forecast what was left out.

    ``values``: equally weighted draws, each of shape (draw,); ``tau``: probability of each drift scale of
    `_discrepancy.GRID`; ``score``: mean log density of a run of a stage left out, drift included; ``coverage``: share of
    them inside their 90% intervals; ``mae``: their mean relative error; ``errors``: ``"shared"`` by rows of a checkpoint
    or run, or ``"independent"`` (`_ways`); ``held_out``, ``left_out``: log density of each
    run of the stages left out, and of each run left out by itself; ``sampler``: how the draws were made.
    """

    law: Law
    values: dict[str, np.ndarray]
    tau: np.ndarray
    known: Range
    score: float
    coverage: float
    mae: float
    errors: str
    held_out: np.ndarray
    left_out: np.ndarray
    sampler: str
    rhat: float
    ess: float
    divergences: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """Laws, and how they forecast what was left out.

    ``weights``: of stacking, shape (law,); ``probabilities``: that a law forecasts unseen stages best, shape (law,)
    (`best`); ``folds``: names of the stages left out; ``table``: score, weight, probability, coverage, mae, drift (per
    e-fold), errors and sampler of each law, in order of weight.
    """

    judged: tuple[Judged, ...]
    weights: np.ndarray
    probabilities: np.ndarray
    folds: tuple[str, ...]
    n: int

    @property
    def table(self) -> pd.DataFrame:
        rows = {
            j.law.name: {
                "score": j.score,
                "weight": float(w),
                "probability": float(p),
                "coverage": j.coverage,
                "mae": j.mae,
                "drift": float(j.tau @ _discrepancy.GRID),
                "errors": j.errors,
                "sampler": j.sampler,
                "rhat": j.rhat,
                "ess": j.ess,
                "divergences": j.divergences,
            }
            for j, w, p in zip(self.judged, self.weights, self.probabilities, strict=True)
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("name").sort_values("weight", ascending=False)

    def sentence(self) -> str:
        """Who forecasts best, in words."""
        best, left = self.table.index[0], ", ".join(self.folds)
        weight, coverage = self.table.loc[best, "weight"], self.table.loc[best, "coverage"]
        return (
            f"{best} has weight {weight:.2f} of {len(self.judged)} laws and forecasts unseen stages best with probability "
            f"{self.table.loc[best, 'probability']:.2f}; left out in turn ({left}), its 90% intervals hold "
            f"{coverage:.0%} of the runs"
        )


def default_laws(runs: pd.DataFrame) -> list[str]:
    """Laws that compete by default: those whose columns the table has, the separable and the coupled among them.

    Raises
    ------
    LawError
        No law of the default sets suits the table's columns.
    """
    if {"N", "D", "replay", "ptpp"} <= set(runs):
        return ["dcpt", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor", *_state_laws(runs)]
    if {"N", "D"} <= set(runs):
        return ["chinchilla", "coupled"]
    if {"S1_pt", "S2_pt"} <= set(runs):
        return ["cpt-dynamics", "cpt-dynamics-power"] if "S1_cpt" in runs else ["anneal"]
    raise LawError(
        f"no law is compared by default on columns {', '.join(map(str, runs.columns))}; name laws (--law, --laws)"
    )


def _state_laws(runs: pd.DataFrame) -> list[str]:
    """The law of checkpoint state that suits: a table whose ``loss_before`` is its ``source_loss_before`` is of the source."""
    if "source_loss_before" not in runs:
        return []
    if "loss_before" not in runs or np.allclose(runs["loss_before"], runs["source_loss_before"]):
        return ["state-source"]
    return ["state-target"]


def compare(
    runs: pd.DataFrame,
    laws: Sequence[Law | str] | None = None,
    *,
    reference: Mapping[str, float] | None = None,
    hold_out: str | Sequence[str] | None = None,
    independent: bool = False,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Judge laws by their forecasts of stages left out, and weigh them.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it.
    laws
        Laws, or their names; by default those that suit the table's columns.
    reference
        Columns of the reference run to replace, for the laws that read them.
    hold_out
        Columns whose largest levels are left out in turn (``D/N``: tokens per parameter); by default ptpp, N, D and
        D/N, as far as the table has several levels of them.
    independent
        Take every row's error as its own (see `fit`). By default errors are shared as the table shows; a law that
        starts from the checkpoint's own losses is judged both ways.
    executor
        Where to judge the laws, each in a task of its own; by default here, as many at once as there are cores.
    progress
        Called with posteriors done and to do (where workers are not threads of this process: laws).

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, a law is unknown, or nothing can be left out.
    """
    _engine.start()
    chosen = [find_law(law) if isinstance(law, str) else law for law in laws or default_laws(runs)]
    chosen = _at_reference(chosen, reference or {})
    repeated = {law.name for law in chosen if sum(other.name == law.name for other in chosen) > 1}
    if repeated:
        raise LawError(f"law {min(repeated)!r} is named twice; name each law once")
    for law in chosen:
        _runs.check_fittable(law, runs)
    columns = [hold_out] if isinstance(hold_out, str) else list(hold_out or default_axes(runs))
    missing = [c for c in columns if c not in runs and c != "D/N"]
    if missing:
        raise RunTableError(
            f"column {missing[0]!r} to hold out by is not in the table; it has: {', '.join(runs.columns)}"
        )
    parameters = max(sum(not p.is_fixed for p in law.priors.values()) for law in chosen)
    stages = folds(runs, columns, parameters)
    if not stages and len(chosen) > 1:
        raise RunTableError(
            f"nothing can be left out of {len(runs)} rows by {', '.join(columns) or 'any column'}: add levels or runs, "
            "hold out another column, or name one law"
        )
    ways = [_ways(law, runs, bool(stages), independent) for law in chosen]
    if executor is not None and not isinstance(executor, ThreadPoolExecutor):
        jobs = [(law, runs, stages, own, seed) for law, own in zip(chosen, ways, strict=True)]
        judged = spread(_judge, jobs, executor, progress)
    else:  # compiling and computing leave Python's lock: laws go side by side in threads
        counter = Counter(sum(map(len, ways)) * (1 + len(stages)), progress)
        with contextlib.nullcontext(executor) if executor else _engine.threads() as pool:
            judged = list(pool.map(lambda law, own: judge(law, runs, stages, own, seed, counter.tick), chosen, ways))
    groups = _groups(runs, independent)
    probabilities = best(
        [j.held_out for j in judged], np.concatenate([groups[:0], *(groups[f.held] for f in stages)]), seed
    )
    return Comparison(tuple(judged), weigh(judged), probabilities, tuple(f.name for f in stages), len(runs))


def _at_reference(laws: Sequence[Law], reference: Mapping[str, float]) -> list[Law]:
    """The laws with their priors stated at another run; each takes the columns that it reads."""
    unread = [c for c in reference if all(c not in law.covariates for law in laws)]
    if unread:
        raise LawError(f"reference run: none of the laws {', '.join(law.name for law in laws)} reads {unread[0]!r}")
    own = [{c: v for c, v in reference.items() if c in law.covariates} for law in laws]
    return [law.with_reference(at) if at else law for law, at in zip(laws, own, strict=True)]


def _groups(runs: pd.DataFrame, independent: bool) -> np.ndarray:
    """Which runs share their error, shape (run,): the group's number, each its own where none do."""
    shared = shared_error(runs)
    return np.arange(len(runs)) if independent or shared.kind is None else np.asarray(shared.group.code)


def _ways(law: Law, runs: pd.DataFrame, can_choose: bool, independent: bool) -> tuple[str, ...]:
    """The errors to judge a law with: those that rows share, as the table shows them, or independent ones.

    A law that starts from the checkpoint's own losses has in them what an effect of the checkpoint stands for; with the
    effect too, it can lose to it what it should learn between checkpoints (docs/state_laws.md). It is judged both ways,
    by chains the last one only (`judge`).
    """
    shown = shared_error(runs)
    if independent or (shown.kind is None and not shown.along_run):
        return (INDEPENDENT,)
    starts = {"loss_before", "source_loss_before"} & set(law.covariates)
    return (SHARED, INDEPENDENT) if can_choose and starts and shown.kind == "checkpoint" else (SHARED,)


def _judge(law: Law, runs: pd.DataFrame, stages: Sequence[Fold], ways: Sequence[str], seed: int) -> list[Judged]:
    _engine.start()
    return [judge(law, runs, stages, ways, seed, lambda: None)]


class Counter:
    """Counts posteriors done by all threads."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None):
        self.total, self.progress, self.done, self.lock = total, progress, 0, Lock()

    def tick(self) -> None:
        with self.lock:
            self.done += 1
            if self.progress:
                self.progress(self.done, self.total)


def judge(
    law: Law, runs: pd.DataFrame, stages: Sequence[Fold], ways: Sequence[str], seed: int, tick: Callable[[], None]
) -> Judged:
    """A law with the errors that forecast the stages left out best.

    Of several ways all but the last must do with importance sampling: where that fails, an effect of the checkpoint and
    the law's own start stand for the same, and chains took minutes to an R-hat of 1.8 (docs/state_laws.md).
    """
    found = []
    for errors in ways[:-1]:
        with contextlib.suppress(NotTrusted):
            found.append(_judged(law, runs, stages, errors, False, seed, lambda: None))
        for _ in range(1 + len(stages)):
            tick()
    found.append(_judged(law, runs, stages, ways[-1], True, seed, tick))
    return max(found, key=lambda j: j.score)


def _judged(
    law: Law, runs: pd.DataFrame, stages: Sequence[Fold], errors: str, chains: bool, seed: int, tick: Callable[[], None]
) -> Judged:
    """One law's posterior, and its forecasts of each stage from the runs that are left."""
    whole_table, fold = (WHOLE, FOLD) if chains else (WHOLE | {"nuts": None}, FOLD | {"nuts": None})
    x, y = _runs.covariates(law, runs), np.log(_runs.losses(runs))
    table = pad(x, y, shared_error(runs) if errors == SHARED else NONE)
    whole, notes = _posterior(law, table, x, np.ones(len(y), bool), None, seed, **whole_table)
    tick()
    starts = [{n: whole[n][i] for n in law.priors} for i in range(3)]
    forecasts, misses = [], []
    for stage in stages:
        draws, _ = _posterior(law, table, x, stage.kept, starts, seed, **fold)
        held = {c: v[stage.held] for c, v in x.items()}
        mean = over_draws(log_loss_of(law))({n: draws[n] for n in law.priors}, held)
        away = np.asarray(distances(held, training_range({c: v[stage.kept] for c, v in x.items()})))
        away = np.broadcast_to(away, (mean.shape[1], away.shape[1]))
        forecasts.append(Forecast(np.asarray(mean), draws, away, y[stage.held]))
        misses.append(_miss(forecasts[-1], table, stage))
        tick()
    tau, rng = tau_posterior(misses), np.random.default_rng(seed)
    seen = [_held_out(forecast, tau, rng) for forecast in forecasts]
    held = np.concatenate([np.stack(s) for s in seen], axis=1) if seen else np.full((3, 0), np.nan)
    score, coverage, mae = (float(v.mean()) if v.size else float("nan") for v in held)
    return Judged(
        law,
        whole,
        tau,
        training_range(x),
        score=score,
        coverage=coverage,
        mae=mae,
        errors=errors,
        held_out=held[0],
        left_out=_left_out(law, whole, x, y),
        **notes,
    )


def _posterior(
    law: Law,
    table: Padded,
    x: dict[str, np.ndarray],
    kept: np.ndarray,
    starts: list[dict] | None,
    seed: int,
    **settings,
) -> Refit:
    """The posterior given the rows that are kept; its mode is searched near ``starts``, or from anywhere."""
    from bayeslaw import _sampler

    weight = np.zeros(len(table.weight))
    weight[: len(kept)] = kept
    part, at = table._replace(weight=weight), _geometry.anchors(law, {c: v[kept] for c, v in x.items()})
    if starts is None:
        vectors = _sampler.prepare(law, part, at, seed).centre[None]
    else:
        vectors = starts_near(law, part, at, starts, 0.005)
    return refit(law, part, at, vectors, seed=seed, **settings)


def _scale(draws: dict[str, np.ndarray]) -> np.ndarray:
    """Scale of a new run's noise, shape (draw, 1)."""
    return new_run_scale(draws)[:, None]


class Forecast(NamedTuple):
    """Of a stage left out: the law's draws of log loss (draw, run), all draws, distances (run, side), what was measured."""

    mean: np.ndarray
    draws: dict[str, np.ndarray]
    away: np.ndarray
    y: np.ndarray


def _miss(forecast: Forecast, table: Padded, stage: Fold) -> Miss:
    """Residuals and covariance of the forecast of a stage: of the law's draws, of noise, of what checkpoints share."""
    mean, draws, away, y = forecast
    variance = np.median(draws["sigma"] ** 2 * np.minimum(draws["dof"] / (draws["dof"] - 2), 2.0))
    covariance = np.cov(mean.T).reshape(len(y), len(y)) + variance * np.eye(len(y))
    if table.shared.kind is not None:
        code = np.asarray(table.shared.group.code)[: len(stage.held)][stage.held]
        covariance = covariance + np.mean(draws[f"tau_{table.shared.kind}"] ** 2) * (code[:, None] == code)
    return Miss(y - mean.mean(0), covariance, away)


def _held_out(
    forecast: Forecast, tau: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log density, whether inside the 90% interval, and relative error, of each run of a stage left out."""
    mean, draws, away, y = forecast
    centre = mean + draw_drift(tau, (len(mean), away.shape[1]), rng) @ away.T
    scale, dof = _scale(draws), draws["dof"][:, None]
    density = np.log(np.mean(stats.t.pdf((y - centre) / scale, dof) / scale, axis=0) + 1e-300)
    low, high = np.quantile(centre + scale * rng.standard_t(dof, size=centre.shape), [0.05, 0.95], axis=0)
    return density, (low <= y) & (y <= high), np.abs(np.exp(np.median(centre, axis=0) - y) - 1)


def _left_out(law: Law, draws: dict[str, np.ndarray], x: dict[str, np.ndarray], y: np.ndarray) -> np.ndarray:
    """Log density of each run given the others, by Pareto-smoothed importance sampling (Vehtari et al. 2017)."""
    scale = _scale(draws)
    mean = np.asarray(over_draws(log_loss_of(law))({n: draws[n] for n in law.priors}, x))
    density = stats.t.logpdf((y - mean) / scale, draws["dof"][:, None]) - np.log(scale)
    weights = np.stack([pareto_smoothed(-d)[0] for d in density.T], axis=1)
    return np.log(np.sum(weights * np.exp(density), axis=0))


def weigh(judged: Sequence[Judged]) -> np.ndarray:
    """Stacking weights: largest mean log density of the mixture over runs and stages left out, by EM."""
    log_p = np.stack([np.concatenate([j.left_out, j.held_out]) for j in judged], axis=1)
    p, weight = np.exp(log_p - log_p.max(axis=1, keepdims=True)), np.full(len(judged), 1 / len(judged))
    for _ in range(5000):
        share = weight * p
        weight = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    return weight


def best(held_out: Sequence[np.ndarray], group: np.ndarray, seed: int = 0) -> np.ndarray:
    """Probability that each law forecasts unseen stages best, shape (law,).

    How often its log density of the runs left out is the largest when their groups (checkpoints or curves) get random
    weights, as in the Bayesian bootstrap (Rubin 1981); runs of one checkpoint are one witness, not many.

    Parameters
    ----------
    held_out
        Log density of each run left out, shape (run,), for each law.
    group
        Which of them share their error, shape (run,).
    """
    if not len(group):
        return np.full(len(held_out), 1 / len(held_out))
    code = np.unique(group, return_inverse=True)[1]
    totals = np.stack([np.bincount(code, density) for density in held_out])
    weights = np.random.default_rng(seed).standard_exponential((RESAMPLES, totals.shape[1]))
    return np.bincount(np.argmax(weights @ totals.T, axis=1), minlength=len(totals)) / RESAMPLES
