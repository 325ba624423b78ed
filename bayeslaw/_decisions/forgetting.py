"""What Bethune 2025 measures of forgetting: extrapolation set-ups, mean relative
errors, the cost of forgetting.

Each with its uncertainty: over posterior draws, or over bootstrap resamples where the
paper has those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base import runtime
from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._inference.point import point_fit
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.simulate import simulate

if TYPE_CHECKING:
    from jaxtyping import Float

# The grid of Bethune 2025, section 3.1: unique fine-tuning tokens and share of
# pre-training data.
TOKENS, REPLAYS = (300e3, 900e3, 3e6, 9e6, 30e6), (0.0, 0.001, 0.005, 0.01, 0.05)
# its table 4: how many of the largest sizes and sets are left out of the fit
SETUPS = {"A": 1, "B": 2}
DELTA, RESAMPLES = 1e-4, 128  # its appendix C and table 2
# mean size of a standard normal: the MRE of noise over its sd
NORMAL_MRE = math.sqrt(2 / math.pi)
# points of a forecast curve of pre-training, from this share of its tokens on
LADDER, EARLIEST = 400, 1e-4


# -- runs ------------------------------------------------------------------------------


def finetuning_grid(models: pd.DataFrame) -> pd.DataFrame:
    """The runs of Bethune 2025 on one domain, without losses.

    Every model at every ``D`` and ``replay`` of the grid. ``models`` has a row per
    model: ``N``, ``loss_before`` and what else is to be kept.
    """
    cells = list(product(TOKENS, REPLAYS))
    grid = pd.DataFrame(cells, columns=["D", "replay"])
    return models.merge(grid, how="cross")


def simulate_domains(
    law: Law | str,
    design: pd.DataFrame,
    parameters: pd.DataFrame,
    mre: Mapping[str, float],
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Runs of several domains from one law.

    Parameters
    ----------
    design
        The runs of each domain, without losses.
    parameters
        The law's parameters in the paper's units, a column each; a row per domain,
        which its index names.
    mre
        Mean relative error of a run around the law, by domain: normal noise on log loss
        of that mean size.

    Returns
    -------
    DataFrame
        All runs, with a column ``domain``.

    Raises
    ------
    LawError
        Parameters at which a loss is not positive.
    """
    law = find_law(law) if isinstance(law, str) else law
    seeds = np.random.default_rng(seed).integers(2**31, size=len(parameters))
    domains = []
    for (name, row), domain_seed in zip(parameters.iterrows(), seeds, strict=True):
        runs = simulate(
            law,
            design=design,
            seed=int(domain_seed),
            noise=mre[str(name)] / NORMAL_MRE,
            parameters={n: float(row[n]) for n in law.parameters},
        )
        domains.append(runs.assign(domain=str(name)))
    return pd.concat(domains, ignore_index=True)


def extrapolation(runs: pd.DataFrame, setup: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs to fit, and the runs to forecast: larger models on larger sets.

    Set-up A leaves out the largest model and the largest set, B the two largest of each
    (Bethune 2025, table 4). Runs of a large model on a small set, or the reverse, are
    in neither.

    Raises
    ------
    RunTableError
        There are too few sizes or sets.
    """
    left_out = SETUPS[setup]
    is_large, is_small = np.ones(len(runs), bool), np.ones(len(runs), bool)
    for name in ("N", "D"):
        levels = np.unique(runs[name])
        if len(levels) < left_out + 2:
            raise RunTableError(
                f"set-up {setup} leaves out the {left_out} largest of {name!r} "
                f"and needs 2 more, but the table has {len(levels)}"
            )
        is_beyond = runs[name].to_numpy() >= levels[-left_out]
        is_large &= is_beyond
        is_small &= ~is_beyond
    return runs[is_small], runs[is_large]


# -- errors ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RelativeError:
    """Mean of |forecast - loss| / loss over runs.

    Parameters
    ----------
    mre
        Of the point forecast, or the mean over resamples.
    draws
        Of each draw or resample, shape (draw,).
    """

    mre: float
    draws: Float[np.ndarray, " draw"]

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90% of the draws."""
        ends = np.quantile(self.draws, [0.05, 0.95])
        low, high = map(float, ends)
        return low, high


def mean_relative_error(posterior: Posterior, runs: pd.DataFrame) -> RelativeError:
    """Of the posterior's median forecast, and of each of its draws.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.
    """
    runs = as_runs(runs)
    loss = fitting.losses(runs)
    log_loss = posterior.log_loss(runs)  # (draw, run)
    median = np.exp(np.median(log_loss, axis=0))
    return RelativeError(
        mre=float(_relative_miss(median, loss).mean()),
        draws=_relative_miss(np.exp(log_loss), loss).mean(-1),
    )


def bootstrapped_mre(
    runs: pd.DataFrame,
    law: Law | str,
    *,
    resamples: int = RESAMPLES,
    delta: float = DELTA,
    left_out: bool = False,
    seed: int = 0,
) -> RelativeError:
    """Mean over bootstrap resamples of the error of a point fit to the resample.

    As Bethune 2025, table 2.

    Parameters
    ----------
    delta
        Where the Huber loss of the fit turns linear, in log loss.
    left_out
        Score each fit on the runs that its resample left out; otherwise, as the paper
        does, on the resample itself, which has seen them. Resamples that left none out
        are passed over.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.
    """
    law = find_law(law) if isinstance(law, str) else law
    runs = as_runs(runs)
    point = point_fit(runs, law, delta=delta, bootstrap=resamples, seed=seed)
    # as `point_fit` draws them: how often each run is in each resample, (resample, run)
    n = len(runs)
    rng = np.random.default_rng(seed)
    times = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    weight = (times == 0) if left_out else times
    miss = _relative_miss(point.bootstrap_loss(runs), fitting.losses(runs))
    # a resample of few runs may have drawn each of them, and so has left none out
    scored = weight.sum(1) > 0
    if not scored.any():
        raise RunTableError(
            f"{n} runs: every resample has drawn each, and has none to be scored on; "
            "add runs, or score without left_out"
        )
    draws = (miss * weight)[scored].sum(1) / weight[scored].sum(1)
    return RelativeError(float(draws.mean()), draws)


def _relative_miss(
    forecast: Float[np.ndarray, "*draw run"], loss: Float[np.ndarray, " run"]
) -> Float[np.ndarray, "*draw run"]:
    """Of forecasts, shape (..., run), of losses of shape (run,)."""
    miss = np.abs(forecast - loss)
    return miss / loss


# -- the cost of forgetting ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cost:
    """Share of pre-training progress that fine-tuning undoes (Bethune 2025, figure 14).

    Parameters
    ----------
    lost
        1 less the share of its tokens at which pre-training had the source loss that is
        left, shape (draw, run).
    runs
        The runs, with ``N`` and the tokens of pre-training ``pretraining_tokens``.
    """

    lost: Float[np.ndarray, "draw run"]
    runs: pd.DataFrame

    def table(self, prob: float = 0.9) -> pd.DataFrame:
        """A row per run: ``median``, ``low``, ``high`` of the share lost.

        And ``flops``: the median share of 6 N D.
        """
        tail = (1 - prob) / 2
        low, median, high = np.quantile(self.lost, [tail, 0.5, 1 - tail], axis=0)
        pretraining = 6 * self.runs["N"] * self.runs["pretraining_tokens"]
        flops = pretraining * median
        columns = {"median": median, "low": low, "high": high, "flops": flops}
        return pd.DataFrame(columns, index=self.runs.index)

    def statements(self) -> tuple[str, ...]:
        """One line a run."""
        rows = zip(self.runs.itertuples(), self.table().itertuples(), strict=True)
        return tuple(
            f"{format_count(run.N)} parameters, "
            f"fine-tuned on {format_count(run.D)} tokens: "
            f"{row.median:.0%} of pre-training is lost "
            f"(90%: {row.low:.0%} to {row.high:.0%}), {row.flops:.2g} FLOPs"
            for run, row in rows
        )


def progress_lost(
    after: Float[np.ndarray, " draw"],
    tokens: Float[np.ndarray, " point"],
    losses: Float[np.ndarray, " point"] | Float[np.ndarray, "draw point"],
) -> Float[np.ndarray, " draw"]:
    """Share of pre-training progress lost by a model whose source loss has risen.

    1 - t/T, where pre-training had that loss, or less for the first time, at t of its T
    tokens: between two points, by interpolation in log tokens. 0 where the loss is no
    higher than at the end; a loss above the curve's first point counts as that point.

    Parameters
    ----------
    after
        The loss it has risen to, shape (draw,).
    tokens, losses
        The curve of pre-training: increasing tokens, shape (point,); losses of shape
        (point,) or (draw, point).
    """
    curves = np.broadcast_to(losses, (len(after), len(tokens)))
    # The lowest loss so far never rises; backwards it never falls, as `interp` needs.
    lowest = np.minimum.accumulate(curves, axis=1)[:, ::-1]
    log_tokens = np.log(np.asarray(tokens, float))[::-1]
    reached = [
        np.interp(loss, curve, log_tokens)
        for loss, curve in zip(after, lowest, strict=True)
    ]
    return -np.expm1(np.asarray(reached) - log_tokens[0])


def cost_of_forgetting(
    posterior: Posterior,
    runs: pd.DataFrame,
    pretraining: Posterior | pd.DataFrame,
    *,
    seed: int = 0,
) -> Cost:
    """Share of pre-training progress lost in each run, in every draw.

    Parameters
    ----------
    posterior
        Of the source loss after fine-tuning, for instance a fit of `forgetting`.
    runs
        The columns its law reads, and N.
    pretraining
        The measured curves of pre-training, rows of ``N``, ``D`` and ``loss``: the loss
        is looked up as it is, so that what warming up again costs is lost too. Or a
        posterior of a law in N and D, of which the shape is taken: the curve of
        ``ptpp`` N tokens is moved to end at the run's ``loss_before``.
    seed
        Pairs the draws of the two posteriors, which are independent.

    Raises
    ------
    RunTableError
        A column is missing, or no curve is that of a run's model.
    """
    runs = as_runs(runs)
    if isinstance(pretraining, pd.DataFrame):
        pretraining = as_runs(pretraining)
    runtime.start()
    after = np.exp(posterior.log_loss(runs))  # (draw, run)
    lost, last_tokens = [], []
    for i in range(len(runs)):
        if isinstance(pretraining, pd.DataFrame):
            tokens, losses = _measured_curve(pretraining, runs, i)
        else:
            tokens, losses = _forecast_curve(pretraining, runs, i, len(after), seed)
        lost.append(progress_lost(after[:, i], tokens, losses))
        last_tokens.append(tokens[-1])
    return Cost(np.stack(lost, axis=1), runs.assign(pretraining_tokens=last_tokens))


def _measured_curve(
    curves: pd.DataFrame, runs: pd.DataFrame, i: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Tokens and losses of the run's model, shape (point,) both."""
    size = _column(runs, "N", "the model's parameters")[i]
    missing = [c for c in ("N", "D", "loss") if c not in curves]
    if missing:
        raise RunTableError(
            f"the curves of pre-training have no column {missing[0]!r}; "
            "they need N, D and loss"
        )
    is_model = np.isclose(curves["N"], size, rtol=1e-6)
    points = curves[is_model].sort_values("D")
    if len(points) < 2:
        known = ", ".join(format_count(n) for n in np.unique(curves["N"]))
        raise RunTableError(
            f"row {runs.index[i]}: no curve of pre-training of a model of "
            f"{format_count(size)}; there are: {known}"
        )
    return points["D"].to_numpy(float), points["loss"].to_numpy(float)


def _forecast_curve(
    posterior: Posterior, runs: pd.DataFrame, i: int, draws: int, seed: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "draw point"]]:
    """Tokens, shape (point,), and losses, shape (draw, point), that end as measured."""
    size = _column(runs, "N", "the model's parameters")[i]
    end = _column(runs, "loss_before", "where its curve ends")[i]
    ptpp = _column(runs, "ptpp", "pre-training tokens per parameter")[i]
    tokens = ptpp * size * np.geomspace(EARLIEST, 1.0, LADDER)
    curve = np.exp(posterior.log_loss(pd.DataFrame({"N": size, "D": tokens})))
    ends_as_measured = curve - curve[:, -1:] + end
    order = np.random.default_rng(seed).permutation(len(curve))
    return tokens, ends_as_measured[np.resize(order, draws)]


def _column(runs: pd.DataFrame, name: str, what: str) -> Float[np.ndarray, " run"]:
    if name not in runs:
        raise RunTableError(
            f"the cost of forgetting needs column {name!r} ({what}); "
            f"the table has: {', '.join(map(str, runs.columns))}"
        )
    return runs[name].to_numpy(float)
