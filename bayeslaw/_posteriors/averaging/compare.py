"""Compare and weigh laws by their forecasts of left-out stages.

The posterior of one law understates the uncertainty, because other laws may hold.
Weights come from stacking (Yao et al. 2018): they give the mixture of laws whose
forecasts of left-out stages have the largest log density. Each stage counts as a few
runs, not as all its rows.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._base.frames import Table, as_frame
from bayeslaw._base.machine import runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._base.shown import Shown
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.table import shared_error
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._law.find import as_law, find_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.judge import Judged, Setting, judge
from bayeslaw._posteriors.fits.candidates import candidate_laws, default_laws
from bayeslaw._posteriors.fits.refits import spread
from bayeslaw._posteriors.posterior import KeptPosterior, is_kept
from bayeslaw._posteriors.prior import choose_priors
from bayeslaw._tables import fitting
from bayeslaw._tables.holdouts import (
    HoldOut,
    check_axis,
    default_axes,
    largest_stages,
)
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Real, Shaped


class Stacking(NamedTuple):
    """Settings of `weigh`: ``witnesses``, independent runs that a left-out stage counts as
    (one for its level, the others for its slopes); ``prior_stages`` on which all laws do
    equally well; ``window``, the share of the best law's weight below which a law is
    dropped; steps and tolerance of EM.
    """

    witnesses: float = 3.0
    prior_stages: float = 0.25
    window: float = 0.05
    steps: int = 1000
    tolerance: float = 1e-6

    @classmethod
    def of(cls, runs: int) -> Stacking:
        """Choose the settings for a number of runs. Stages that are left out of a
        handful have so few runs that the prior counts as a whole stage.
        """
        return cls(prior_stages=1.0) if runs <= fitting.HANDFUL else cls()


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """Arguments of `compare`, which documents each field."""

    reference: Mapping[str, float] | None = None
    hold_out: str | Sequence[str] | None = None
    independent: bool = False
    discrepancy: bool = True
    experience: str | None = None
    seed: int = 0
    executor: Executor | None = None
    progress: Progress | None = None

    def kept(self) -> dict[str, Any]:
        """Convert the arguments that make an average again to JSON types."""
        left_out = self.hold_out
        if left_out is not None and not isinstance(left_out, str):
            left_out = list(left_out)
        return {
            "hold_out": left_out,
            "independent": self.independent,
            "discrepancy": self.discrepancy,
        }


# columns of a comparison, with the law's name
SCORES = {
    "name errors sampler failed_stages": str,
    "reason": (str, "Why a law with a worse score has more weight."),
    "score": (float, "Mean log density of log losses at left-out runs."),
    "weight": (float, "Share in the average."),
    "probability": (float, "That the law forecasts unseen stages best."),
    "coverage": (float, "Share of left-out runs inside their 90% intervals."),
    "mae": (float, "Mean absolute error of medians, as a share of the loss."),
    "bias": (float, "Mean error, as a share of the loss; above 0: too high."),
    "interval_score90": (float, "Mean of width + 20 x miss, as a share of the loss."),
    "drift": (float, "Scale of the drift beyond runs, in log loss per e-fold."),
    "rhat ess divergences draws": float,
}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Laws, with scores of their forecasts of left-out stages.

    ``weights``: stacking weights, shape (law,). ``probabilities``: probability that
    each law forecasts unseen stages best, shape (law,) (`best_probabilities`).
    ``folds``: names of the left-out stages. ``table``: score, weight, probability,
    coverage, mae, bias (above 0: forecasts too high), interval score, drift (per
    e-fold), errors and sampler of each law, in order of weight, and the reason if a law
    with a worse score has more weight.
    """

    judged: tuple[Judged, ...]
    weights: Float[np.ndarray, " law"]
    probabilities: Float[np.ndarray, " law"]
    folds: tuple[str, ...]
    n: int

    @property
    def run_slopes(self) -> dict[str, float]:
        """Root mean square slope of errors along left-out runs, by left-out stage: in
        log loss per e-fold of tokens, averaged over laws by weight. Stages without runs
        of several points are missing.
        """
        counted = [(j, w) for j, w in zip(self.judged, self.weights, strict=True) if w]
        squares = {
            stage: float(np.sum([w * j.held_out[i].slope ** 2 for j, w in counted]))
            for i, stage in enumerate(self.folds)
        }
        return {
            stage: np.sqrt(square) for stage, square in squares.items() if square >= 0
        }

    @property
    def table(self) -> pd.DataFrame:
        """Score, weight, probability, drift and sampler of each law, by weight."""
        laws = [judged.law for judged in self.judged]
        scores = np.array([judged.mean_score("density") for judged in self.judged])
        weights, starts, rows = self.weights, informed(laws), {}
        for i, judged in enumerate(self.judged):
            # Why a law with a worse score has more weight. Left-out stages tell less of
            # checkpoints beyond the table than a checkpoint's own losses do
            # (`informed`). The score is a mean over left-out runs, but weights are of
            # the mixture of laws that forecasts left-out stages best (`weigh`).
            is_rival = (scores < scores[i]) & (weights > weights[i])
            rival = laws[int(np.argmax(np.where(is_rival, weights, 0)))].name
            reason = ""
            if is_rival.any() and starts[i]:
                reason = (
                    f"{rival} adds more to the mixture, where stages of one column count "
                    "as one"
                )
            elif is_rival.any():
                reason = f"does not read the checkpoint's losses, as {rival} does"
            rows[judged.law.name] = {
                "score": scores[i],
                "weight": float(weights[i]),
                "probability": float(self.probabilities[i]),
                "coverage": judged.mean_score("inside"),
                "mae": judged.mean_score("error", np.abs),
                "bias": judged.mean_score("error"),
                "interval_score90": judged.mean_score("interval"),
                "drift": float(np.mean(judged.tau)),
                "errors": judged.errors,
                "sampler": judged.sampler,
                "rhat": judged.rhat,
                "ess": judged.ess,
                "divergences": judged.divergences,
                "draws": judged.draws,
                "failed_stages": "; ".join(judged.failed),
                "reason": reason,
            }
        return (
            pd.DataFrame.from_dict(rows, orient="index")
            .rename_axis("name")
            .sort_values("weight", ascending=False)
        )

    def sentence(self) -> str:
        """Describe in words which law forecasts best."""
        table = self.table
        best, stages = table.index[0], ", ".join(self.folds)
        row = table.loc[best]
        text = (
            f"{best} has weight {row['weight']:.2f} of {len(self.judged)} laws and "
            f"forecasts unseen stages best with probability {row['probability']:.2f}; "
            f"left out in turn ({stages}), its 90% intervals hold "
            f"{row['coverage']:.0%} of the runs"
        )
        # an ideal 90% interval is about four times as wide as the errors
        ratio = row["interval_score90"] / row["mae"]
        if row["coverage"] >= 0.9 and ratio > 10:
            text += (
                f" and are {ratio:.0f} times as wide as its errors, where 4 would do"
            )
        laws = [judged.law for judged in self.judged]
        starts = informed(laws)
        blind = [law.name for law, start in zip(laws, starts, strict=True) if not start]
        if blind:
            text += (
                f"; {', '.join(blind)} do not read the checkpoint's losses, which a law "
                "beside them does, and have no weight"
            )
        return text


@dataclass(frozen=True, eq=False)
class CompareArguments(Comparing):
    # documented in `compare`

    runs: Table | str | Path | Sequence[KeptPosterior]
    laws: Sequence[Law | str] | None = None


@takes(CompareArguments)
def compare(arguments: CompareArguments) -> Comparison:
    """Judge laws by their forecasts of left-out stages, and weigh them by stacking.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it, or the path of one; or fits of one table,
        whose laws are compared.
    laws
        Laws, or their names; by default those that suit the table's columns.
    hold_out
        Columns whose largest levels are left out in turn (``D/N``: tokens per
        parameter, ``N*D``: compute); by default those of ptpp, N, D, D/N and N*D that
        have several levels in the table.
    independent
        No error shared by rows of one checkpoint or run, as they are by default (see
        `fit`).
    discrepancy
        Learn the smooth misfit of each law; without it, plain laws are judged.
    reference, independent, experience, seed
        As for `fit`; columns of the reference run are for the laws that read them.
    executor
        Where to judge the laws, one law a task; by default in threads of this process,
        as many at once as there are cores.
    progress
        Called with the posteriors done and to do (with laws, if workers are not threads
        of this process).

    Raises
    ------
    RunTableError, LawError
        The table cannot be used, a law is unknown, or nothing can be left out.

    Examples
    --------
    >>> compared = bayeslaw.compare(of_source, ["ptpp-floor", "dcpt"], hold_out="ptpp")
    >>> bool(compared.table["weight"].max() > 0.5)
    True
    """
    runs, laws = as_frame(arguments.runs), arguments.laws
    if not isinstance(runs, pd.DataFrame | str | Path):
        # fits of one table: compare their laws on it
        posteriors = list(runs)
        if not posteriors or not all(map(is_kept, posteriors)):
            raise LawError("compare takes a table of runs, or fits of one table")
        runs = posteriors[0].runs
        for posterior in posteriors[1:]:
            same = fitting.fitted(runs, posterior.runs)
            if len(runs) != len(posterior.runs) or not same.all():
                raise LawError(
                    "these fits are of different losses, whose forecasts cannot be "
                    "compared: give the table, and the laws by name"
                )
        pieces = [piece for p in posteriors for piece in p.pieces()]
        by_name = {piece.log_loss.law.name: piece.log_loss.law for piece in pieces}
        laws = laws or list(by_name.values())
    table = as_runs(runs)
    return compare_part(table, np.ones(len(table), bool), laws, arguments)


def compare_part(
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    laws: Sequence[Law | str] | None,
    settings: Comparing,
) -> Comparison:
    """Compare laws on ``runs[fitted]`` by programs compiled for all runs."""
    runtime.start()
    table = runs[fitted]
    reference = settings.reference or {}
    chosen = _choose_laws(table, laws, reference, settings.experience)
    # one law needs no stages to be left out, so priors may decide for it
    is_alone = len(chosen) == 1
    for law in chosen:
        fitting.check_fittable(law, table, handful=is_alone)
    named = settings.hold_out or default_axes(table)
    axes = [named] if isinstance(named, str) else list(named)
    for axis in axes:
        check_axis(table, axis)
    most = max(len(law.free_priors) for law in chosen)
    stages = largest_stages(table, axes, most)
    if not stages and len(chosen) > 1:
        raise RunTableError(
            f"nothing can be left out of {len(table)} rows by "
            f"{', '.join(axes) or 'any column'}: add levels or runs, "
            "hold out another column, or name one law"
        )
    judged = _judge_all(chosen, runs, fitted, stages, settings)
    weights = weigh(judged, [stage.axis for stage in stages], Stacking.of(len(table)))
    # runs that share an error count as one when it is asked which law is best
    shared = shared_error(runs)
    groups = np.arange(len(runs))
    if shared.kind is not None and not settings.independent:
        groups = np.asarray(shared.group.code)
    groups = groups[fitted]
    none = groups[:0]  # there may be no stages to join
    densities = [
        np.concatenate([none, *(score.density for score in result.held_out)])
        for result in judged
    ]
    blocks = np.concatenate([none, *(groups[stage.is_held(table)] for stage in stages)])
    return Comparison(
        tuple(judged),
        among(informed(chosen), weights),
        best_probabilities(densities, blocks, settings.seed),
        tuple(stage.name for stage in stages),
        len(table),
    )


def informed(laws: Sequence[Law]) -> Bool[np.ndarray, " law"]:
    """Tell which laws start from the checkpoint's losses, shape (law,); if none does,
    all are selected.

    Left-out stages tell little about a checkpoint far beyond them, but its own losses
    tell much. An example is a grid of tiny models whose source loss falls from 2.7 to
    1.8 between two stages. Laws of size and pre-training, fitted below this fall, were
    24% off above it; the law of the checkpoint's losses was 5% off. Both had forecast
    the left-out stages equally well (docs/state_laws.md).
    """
    starts = np.array([starts_from_losses(law.covariates) for law in laws])
    return starts if starts.any() else ~starts


def among(
    kept: Bool[np.ndarray, " law"], weights: Float[np.ndarray, " law"]
) -> Float[np.ndarray, " law"]:
    """Set the weights of all but some laws to 0; the others keep their proportions."""
    weights = np.where(kept, weights, 0.0)
    total = weights.sum()
    return weights / total if total > 0 else kept / kept.sum()


def _choose_laws(
    runs: pd.DataFrame,
    laws: Sequence[Law | str] | None,
    reference: Mapping[str, float],
    experience: str | None,
) -> list[Law]:
    names = [laws] if isinstance(laws, str) else laws
    named = [as_law(law, runs) for law in names or candidate_laws(runs)]
    learned = [
        choose_priors(law, runs, experience, reference=_read(law, reference)).law
        for law in named
    ]
    chosen = list(at_reference(learned, reference))
    counts = Counter(law.name for law in chosen)
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        raise LawError(f"law {min(repeated)!r} is named twice; name each law once")
    return chosen


def law_of_few(runs: pd.DataFrame) -> str | None:
    """Choose the law to fit by itself, if runs are too few to weigh laws by stages that
    are left out; None if they are not.

    It is the coupled law where it suits: with priors learned from other labs it
    forecasts better than the separable one (docs/results/notebook.md). Otherwise it is the
    first that suits.
    """
    names = default_laws(runs)
    most = max(len(find_law(name, runs).free_priors) for name in names)
    can_weigh = len(names) == 1 or largest_stages(runs, default_axes(runs), most)
    if len(runs) >= most and (can_weigh or len(runs) > fitting.HANDFUL):
        return None
    return "coupled" if "coupled" in names else names[0]


def _judge_all(
    laws: Sequence[Law],
    runs: pd.DataFrame,
    fitted: Bool[np.ndarray, " run"],
    stages: Sequence[HoldOut],
    settings: Comparing,
) -> list[Judged]:
    executor, progress = settings.executor, settings.progress
    setting = Setting(settings.independent, settings.discrepancy, settings.seed)
    jobs = [(law, runs, fitted, stages, setting) for law in laws]
    if executor is not None and not isinstance(executor, ThreadPoolExecutor):
        return spread(_judge_one, jobs, executor, progress)
    # compiling and computing release Python's lock, so laws run in parallel threads
    total, lock, done = len(laws) * (1 + len(stages)), Lock(), count(1)

    def tick() -> None:
        with lock:
            now = next(done)
            if progress:
                progress(now, total)

    here = contextlib.nullcontext(executor) if executor else runtime.threads()
    with here as pool:
        return spread(partial(_judge_one, tick=tick), jobs, pool)


def _judge_one(*job: Any, tick: Callable[[], None] = lambda: None) -> list[Judged]:
    runtime.start()
    return [judge(*job, tick=tick)]


def at_reference(laws: Sequence[Law], reference: Mapping[str, float]) -> list[Law]:
    """Restate the laws' priors at another run; each takes the columns it reads."""
    unread = [c for c in reference if all(c not in law.covariates for law in laws)]
    if unread:
        raise LawError(
            f"reference run: none of the laws {', '.join(law.name for law in laws)} "
            f"reads {unread[0]!r}"
        )
    placed = []
    for law in laws:
        at = _read(law, reference)
        placed.append(law.with_reference(at) if at else law)
    return placed


def _read(law: Law, reference: Mapping[str, float]) -> dict[str, float]:
    return {c: v for c, v in reference.items() if c in law.covariates}


def weigh(
    judged: Sequence[Judged], columns: Sequence[str], stacking: Stacking = Stacking()
) -> Float[np.ndarray, " law"]:
    """Compute regularised stacking weights over left-out stages, shape (law,).

    A law's forecast is right or wrong for all runs of a stage together. So a stage
    counts as ``witnesses`` runs at the mean log density of its runs. Stages along one
    column overlap and count as one. The prior is a quarter of a stage on which all laws
    do equally well (Dirichlet; for Bayesian stacking see Yao et al. 2022). Laws far
    behind the best are dropped, because in the mixture they would decide the tails of
    the intervals (Occam's window: Madigan and Raftery 1994).

    Parameters
    ----------
    columns
        The column by which each stage was left out.
    """
    laws = len(judged)
    if not columns:
        return np.full(laws, 1 / laws)
    means = [[score.density.mean() for score in result.held_out] for result in judged]
    log_p = stacking.witnesses * np.array(means).T  # (stage, law)
    p = np.exp(log_p - log_p.max(axis=1, keepdims=True))
    counts = np.array([1 / columns.count(column) for column in columns])
    weight = np.full(laws, 1 / laws)
    for _ in range(stacking.steps):
        # EM for the weights of a mixture with fixed components: compute the share of
        # each law in each stage, then its weight as the mean of its shares. The problem
        # is concave, so the start does not matter (Yao et al. 2018).
        share = weight * p
        share = share / share.sum(axis=1, keepdims=True)
        before, weight = weight, counts @ share + stacking.prior_stages / laws
        weight = weight / weight.sum()
        if np.abs(weight - before).max() < stacking.tolerance:
            break
    # in a mixture, even a small weight of a wide forecast decides the outer quantiles
    weight = np.where(weight < stacking.window * weight.max(), 0.0, weight)
    return weight / weight.sum()


def best_probabilities(
    held_out: Sequence[Real[np.ndarray, " run"]],
    group: Shaped[np.ndarray, " run"],
    seed: int = 0,
    resamples: int = 4000,
) -> Float[np.ndarray, " law"]:
    """Estimate the probability that each law forecasts unseen stages best, by the Bayesian
    bootstrap (Rubin 1981), from its log density of each left-out run.

    Groups of runs (checkpoints or curves) get random weights. The probability is the
    share of resamples in which the law's log density is the largest.
    """
    if not len(group):
        return np.full(len(held_out), 1 / len(held_out))
    code = np.unique(group, return_inverse=True)[1]
    # a group has one weight, so its log densities are summed
    totals = np.stack([np.bincount(code, density) for density in held_out])
    # Exponentials divided by their sum are a flat Dirichlet. The sum is the same for
    # all laws, so it does not change which law is best.
    weights = generator(seed, Stream.RESAMPLED_STAGES).standard_exponential(
        (resamples, totals.shape[1])
    )
    winner = np.argmax(weights @ totals.T, axis=1)
    return np.bincount(winner, minlength=len(totals)) / resamples
