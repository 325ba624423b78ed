"""Bethune 2025 again: its grid of runs, extrapolation set-ups and mean relative errors,
each with its uncertainty over posterior draws or, as in the paper, over bootstrap
resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._inference.point import point_fit
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.simulate import simulate

if TYPE_CHECKING:
    from jaxtyping import Float


def finetuning_grid(models: pd.DataFrame) -> pd.DataFrame:
    """List the runs of Bethune 2025 on one domain, without losses.

    Every model at every ``D`` (unique fine-tuning tokens) and ``replay`` (share of
    pre-training data) of the grid of section 3.1. ``models`` has a row per model:
    ``N``, ``loss_before`` and what else is to be kept.

    Examples
    --------
    >>> models = pd.DataFrame({"N": [41e6, 1270e6], "loss_before": [3.1, 2.4]})
    >>> len(bayeslaw.finetuning_grid(models)) // len(models)
    25
    """
    tokens = (300e3, 900e3, 3e6, 9e6, 30e6)
    replays = (0.0, 0.001, 0.005, 0.01, 0.05)
    cells = list(product(tokens, replays))
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

    Examples
    --------
    >>> values = bayeslaw.law("chinchilla").plausible
    >>> parameters = pd.DataFrame([values, values], index=["web", "code"])
    >>> noise = {"web": 0.004, "code": 0.006}
    >>> runs = bayeslaw.simulate_domains("chinchilla", pretrained, parameters, noise)
    >>> runs["domain"].unique().tolist()
    ['web', 'code']
    """
    law = as_law(law)
    seeds = np.random.default_rng(seed).integers(2**31, size=len(parameters))
    # mean size of a standard normal: the MRE of noise over its sd
    normal_mre = math.sqrt(2 / math.pi)
    domains = []
    for (name, row), domain_seed in zip(parameters.iterrows(), seeds, strict=True):
        runs = simulate(
            law,
            design=design,
            seed=int(domain_seed),
            noise=mre[str(name)] / normal_mre,
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

    Examples
    --------
    >>> small, large = bayeslaw.extrapolation(pretrained, "A")
    >>> bool(small["N"].max() < large["N"].min())
    True
    """
    left_out = {"A": 1, "B": 2}[setup]
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


@dataclass(frozen=True, eq=False)
class RelativeError:
    """Mean of |forecast - loss| / loss over runs.

    Parameters
    ----------
    mre
        Error of the point forecast, or the mean over resamples.
    draws
        Error of each draw or resample, shape (draw,).
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
    """Score the posterior's median forecast, and each of its draws.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.

    Examples
    --------
    >>> error = bayeslaw.mean_relative_error(target, large)
    >>> bool(0 < error.mre < 0.1)
    True
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
    law: Law | str | None = None,
    *,
    resamples: int = 128,
    delta: float = 1e-4,
    left_out: bool = False,
    seed: int = 0,
) -> RelativeError:
    """Mean over bootstrap resamples of the error of a point fit to the resample.

    As Bethune 2025, table 2 and appendix C.

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

    Examples
    --------
    >>> error = bayeslaw.bootstrapped_mre(pretrained, "chinchilla", resamples=4)
    >>> error.draws.shape
    (4,)
    """
    law = as_law(law)
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
    """Relative misses of forecasts, shape (..., run), of losses of shape (run,)."""
    miss = np.abs(forecast - loss)
    return miss / loss
