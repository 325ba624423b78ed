"""Replicate Bethune 2025: its grid of runs, extrapolation set-ups and mean relative
errors, each with its uncertainty over posterior draws or, as in the paper, over
bootstrap resamples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from point_fits import resampled_losses

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._inference.point import point_fit
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_design, as_runs
from bayeslaw._tables.simulate import simulate

if TYPE_CHECKING:
    from jaxtyping import Float


# models of Bethune 2025
MODELS = pd.DataFrame(
    {
        "N": [41e6, 109e6, 334e6, 665e6, 1.27e9],
        "loss_before": [3.19, 2.92, 2.60, 2.39, 2.27],
    }
)


def read_domains(path: Path) -> pd.DataFrame:
    """Read the paper's parameters and errors of forgetting of the twelve domains."""
    table = pd.read_csv(path).head(12).set_index("domain").filter(like="fg_")
    return table.rename(columns=lambda c: c.removeprefix("fg_")).astype(float)


def finetuning_grid(models: pd.DataFrame) -> pd.DataFrame:
    """List the runs of Bethune 2025 on one domain, without losses.

    The grid of section 3.1 has every model at every ``D`` (unique fine-tuning tokens)
    and ``replay`` (share of pre-training data). ``models`` has a row for each model:
    ``N``, ``loss_before``, and further columns, which are kept.
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
    """Simulate runs of several domains from one law.

    Parameters
    ----------
    design
        The runs of each domain, without losses.
    parameters
        The law's parameters in the paper's units: a column for each parameter, and a
        row for each domain, named by the index.
    mre
        Mean relative error of a run around the law, by domain. The noise on log loss is
        normal with this mean absolute value.

    Returns
    -------
    DataFrame
        All runs, with a column ``domain``.

    Raises
    ------
    LawError
        At the parameters of a domain, a loss is not positive.
    """
    law = as_law(law)
    seeds = np.random.default_rng(seed).integers(2**31, size=len(parameters))
    # mean absolute value of a standard normal: the MRE of noise with an sd of 1
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
    """Split runs into those to fit and those to forecast, larger models on larger sets.

    Set-up A leaves out the largest model and the largest set, B the two largest of each
    (Bethune 2025, table 4). Runs of a large model on a small set, and of a small model
    on a large set, are in neither part.

    Raises
    ------
    RunTableError
        There are too few sizes or sets.
    """
    if setup not in ("A", "B"):
        raise RunTableError(f"setup is 'A' or 'B' (Bethune 2025), got {setup!r}")
    runs = as_design(runs)
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
        """Compute the central 90% interval of the draws."""
        ends = np.quantile(self.draws, [0.05, 0.95])
        low, high = map(float, ends)
        return low, high


def mean_relative_error(posterior: Posterior, runs: pd.DataFrame) -> RelativeError:
    """Score the posterior's median forecast, and each of its draws.

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
    law: Law | str | None = None,
    *,
    resamples: int = 128,
    delta: float = 1e-4,
    left_out: bool = False,
    seed: int = 0,
) -> RelativeError:
    """Compute the mean error of point fits to bootstrap resamples (Bethune 2025, table
    2 and appendix C).

    Parameters
    ----------
    delta
        Residual at which the Huber loss of the fit turns linear, in log loss.
    left_out
        True: score each fit on the runs that its resample left out; resamples that left
        none out are skipped. False: score each fit on its own resample, as in the
        paper.

    Raises
    ------
    RunTableError
        The table lacks the losses or a column the law reads.
    """
    if resamples < 1:
        raise PlanError(f"resamples must be at least 1, got {resamples!r}")
    law = as_law(law)
    runs = as_runs(runs)
    point = point_fit(runs, law, delta=delta, bootstrap=resamples, seed=seed)
    # counts of each run in each resample, (resample, run), the same as in `point_fit`
    n = len(runs)
    rng = np.random.default_rng(seed)
    times = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    weight = (times == 0) if left_out else times
    miss = _relative_miss(resampled_losses(point, runs), fitting.losses(runs))
    # with few runs, a resample may contain all of them
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
    """Compute relative errors of forecasts, shape (..., run), of losses, shape (run,)."""
    miss = np.abs(forecast - loss)
    return miss / loss
