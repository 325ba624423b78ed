"""What Bethune 2025 measures of forgetting: extrapolation set-ups, mean relative errors, the cost of forgetting.

Each with its uncertainty: over posterior draws, or over bootstrap resamples where the paper has those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from bayeslaw import _engine, _runs
from bayeslaw._errors import RunTableError
from bayeslaw._formula import find_law
from bayeslaw._law import Law
from bayeslaw._point import point_fit
from bayeslaw._posterior import Posterior
from bayeslaw._simulate import simulate
from bayeslaw._words import people_number

# The grid of Bethune 2025, section 3.1: unique fine-tuning tokens and share of pre-training data.
TOKENS, REPLAYS = (300e3, 900e3, 3e6, 9e6, 30e6), (0.0, 0.001, 0.005, 0.01, 0.05)
SETUPS = {"A": 1, "B": 2}  # its table 4: how many of the largest sizes and sets are left out of the fit
DELTA, RESAMPLES = 1e-4, 128  # its appendix C and table 2
NORMAL_MRE = math.sqrt(2 / math.pi)  # mean size of a standard normal: the MRE of noise over its sd
LADDER, EARLIEST = 400, 1e-4  # points of a forecast curve of pre-training, from this share of its tokens on


# -- runs ------------------------------------------------------------------------------------------------------------


def finetuning_grid(models: pd.DataFrame) -> pd.DataFrame:
    """The runs of Bethune 2025 on one domain, without losses: every model at every ``D`` and ``replay`` of the grid.

    ``models`` has a row per model: ``N``, ``loss_before`` and what else is to be kept.
    """
    grid = pd.DataFrame(list(product(TOKENS, REPLAYS)), columns=["D", "replay"])
    return models.merge(grid, how="cross")


def simulate_domains(
    law: Law | str, design: pd.DataFrame, parameters: pd.DataFrame, mre: Mapping[str, float], *, seed: int = 0
) -> pd.DataFrame:
    """Runs of several domains from one law.

    Parameters
    ----------
    design
        The runs of each domain, without losses.
    parameters
        The law's parameters in the paper's units, a column each; a row per domain, which its index names.
    mre
        Mean relative error of a run around the law, by domain: normal noise on log loss of that mean size.

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
    found = []
    for (name, row), own in zip(parameters.iterrows(), seeds, strict=True):
        noise = mre[str(name)] / NORMAL_MRE
        values = {n: float(row[n]) for n in law.parameters}
        runs = simulate(law, design=design, seed=int(own), noise=noise, parameters=values)
        found.append(runs.assign(domain=str(name)))
    return pd.concat(found, ignore_index=True)


def extrapolation(runs: pd.DataFrame, setup: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs to fit, and the runs to forecast: larger models on larger sets than any of the fit's.

    Set-up A leaves out the largest model and the largest set, B the two largest of each (Bethune 2025, table 4). Runs of
    a large model on a small set, or the reverse, are in neither.

    Raises
    ------
    RunTableError
        There are too few sizes or sets.
    """
    left_out, large, small = SETUPS[setup], np.ones(len(runs), bool), np.ones(len(runs), bool)
    for name in ("N", "D"):
        levels = np.unique(runs[name])
        if len(levels) < left_out + 2:
            raise RunTableError(
                f"set-up {setup} leaves out the {left_out} largest of {name!r} and needs 2 more, but the table has "
                f"{len(levels)}"
            )
        beyond = runs[name].to_numpy() >= levels[-left_out]
        large, small = large & beyond, small & ~beyond
    return runs[small], runs[large]


# -- errors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RelativeError:
    """Mean of |forecast - loss| / loss over runs: ``mre``; and that of each draw or resample, shape (draw,)."""

    mre: float
    draws: np.ndarray

    @property
    def interval(self) -> tuple[float, float]:
        """The central 90% of the draws."""
        low, high = np.quantile(self.draws, [0.05, 0.95])
        return float(low), float(high)


def mean_relative_error(posterior: Posterior, runs: pd.DataFrame) -> RelativeError:
    """Of the posterior's median forecast, and of each of its draws.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.
    """
    loss, log_loss = _runs.losses(runs), posterior.log_loss(runs)
    median = np.exp(np.median(log_loss, axis=0))
    return RelativeError(float(_miss(median, loss).mean()), _miss(np.exp(log_loss), loss).mean(-1))


def bootstrapped_mre(
    runs: pd.DataFrame,
    law: Law | str,
    *,
    resamples: int = RESAMPLES,
    delta: float = DELTA,
    left_out: bool = False,
    seed: int = 0,
) -> RelativeError:
    """Mean over bootstrap resamples of the error of a point fit to the resample (Bethune 2025, table 2).

    Parameters
    ----------
    delta
        Where the Huber loss of the fit turns linear, in log loss.
    left_out
        Score each fit on the runs that its resample left out; otherwise, as the paper does, on the resample itself, which
        has seen them.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.
    """
    law = find_law(law) if isinstance(law, str) else law
    fitted, n = point_fit(runs, law, delta=delta, bootstrap=resamples, seed=seed), len(runs)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)  # as `point_fit` draws them
    weight = (times == 0) if left_out else times
    draws = (_miss(fitted.bootstrap_loss(runs), _runs.losses(runs)) * weight).sum(1) / weight.sum(1)
    return RelativeError(float(draws.mean()), draws)


def _miss(forecast: np.ndarray, loss: np.ndarray) -> np.ndarray:
    return np.abs(forecast - loss) / loss


# -- the cost of forgetting ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Cost:
    """Share of pre-training progress that fine-tuning undoes (Bethune 2025, figure 14).

    Parameters
    ----------
    lost
        1 less the share of its tokens at which pre-training had the source loss that is left, shape (draw, run).
    runs
        The runs, with ``N`` and the tokens of pre-training ``pretraining_tokens``.
    """

    lost: np.ndarray
    runs: pd.DataFrame

    def table(self, prob: float = 0.9) -> pd.DataFrame:
        """A row per run: ``median``, ``low``, ``high`` of the share lost, and ``flops``: the median share of 6 N D."""
        tail = (1 - prob) / 2
        low, median, high = np.quantile(self.lost, [tail, 0.5, 1 - tail], axis=0)
        flops = 6 * self.runs["N"] * self.runs["pretraining_tokens"] * median
        return pd.DataFrame({"median": median, "low": low, "high": high, "flops": flops}, index=self.runs.index)

    def statements(self) -> tuple[str, ...]:
        """One line a run."""
        rows = zip(self.runs.itertuples(), self.table().itertuples(), strict=True)
        return tuple(
            f"{people_number(run.N)} parameters, fine-tuned on {people_number(run.D)} tokens: {row.median:.0%} of "
            f"pre-training is lost (90%: {row.low:.0%} to {row.high:.0%}), {row.flops:.2g} FLOPs"
            for run, row in rows
        )


def progress_lost(after: np.ndarray, tokens: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Share of pre-training progress lost by a model whose source loss has risen to ``after``, shape (draw,).

    1 - t/T, where pre-training had that loss, or less for the first time, at t of its T tokens: between two points, by
    interpolation in log tokens. 0 where the loss is no higher than at the end; a loss above the curve's first point
    counts as that point.

    Parameters
    ----------
    tokens, losses
        The curve of pre-training: increasing tokens, shape (point,); losses of shape (point,) or (draw, point).
    """
    lowest = np.minimum.accumulate(np.broadcast_to(losses, (len(after), len(tokens))), axis=1)[:, ::-1]
    log_tokens = np.log(np.asarray(tokens, float))[::-1]
    reached = [np.interp(a, curve, log_tokens) for a, curve in zip(after, lowest, strict=True)]
    return -np.expm1(np.asarray(reached) - log_tokens[0])


def cost_of_forgetting(
    posterior: Posterior, runs: pd.DataFrame, pretraining: Posterior | pd.DataFrame, *, seed: int = 0
) -> Cost:
    """Share of pre-training progress lost in each run, in every draw.

    Parameters
    ----------
    posterior
        Of the source loss after fine-tuning, for instance a fit of `forgetting`.
    runs
        The columns its law reads, and N.
    pretraining
        The measured curves of pre-training, rows of ``N``, ``D`` and ``loss``: the loss is looked up as it is, so that
        what warming up again costs is lost too. Or a posterior of a law in N and D, of which the shape is taken: the
        curve of ``ptpp`` N tokens is moved to end at the run's ``loss_before``.
    seed
        Pairs the draws of the two posteriors, which are independent.

    Raises
    ------
    RunTableError
        A column is missing, or no curve is that of a run's model.
    """
    _engine.start()
    after = np.exp(posterior.log_loss(runs))
    lost, total = [], []
    for i in range(len(runs)):
        if isinstance(pretraining, pd.DataFrame):
            tokens, losses = _measured_curve(pretraining, runs, i)
        else:
            tokens, losses = _forecast_curve(pretraining, runs, i, len(after), seed)
        lost.append(progress_lost(after[:, i], tokens, losses))
        total.append(tokens[-1])
    return Cost(np.stack(lost, axis=1), runs.assign(pretraining_tokens=total))


def _measured_curve(curves: pd.DataFrame, runs: pd.DataFrame, i: int) -> tuple[np.ndarray, np.ndarray]:
    size = _column(runs, "N", "the model's parameters")[i]
    missing = [c for c in ("N", "D", "loss") if c not in curves]
    if missing:
        raise RunTableError(f"the curves of pre-training have no column {missing[0]!r}; they need N, D and loss")
    own = curves[np.isclose(curves["N"], size, rtol=1e-6)].sort_values("D")
    if len(own) < 2:
        known = ", ".join(people_number(n) for n in np.unique(curves["N"]))
        raise RunTableError(
            f"row {runs.index[i]}: no curve of pre-training of a model of {people_number(size)}; there are: {known}"
        )
    return own["D"].to_numpy(float), own["loss"].to_numpy(float)


def _forecast_curve(
    posterior: Posterior, runs: pd.DataFrame, i: int, draws: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    size, end = _column(runs, "N", "the model's parameters")[i], _column(runs, "loss_before", "where its curve ends")[i]
    tokens = _column(runs, "ptpp", "pre-training tokens per parameter")[i] * size * np.geomspace(EARLIEST, 1.0, LADDER)
    curve = np.exp(posterior.log_loss(pd.DataFrame({"N": size, "D": tokens})))
    chosen = np.resize(np.random.default_rng(seed).permutation(len(curve)), draws)
    return tokens, (curve - curve[:, -1:] + end)[chosen]


def _column(runs: pd.DataFrame, name: str, what: str) -> np.ndarray:
    if name not in runs:
        raise RunTableError(
            f"the cost of forgetting needs column {name!r} ({what}); the table has: {', '.join(map(str, runs.columns))}"
        )
    return runs[name].to_numpy(float)
