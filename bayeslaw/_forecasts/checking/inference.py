"""Check an inference at the user's own runs by posterior simulation-based calibration
(Sailynoja, Schmitt, Burkner and Vehtari 2025, arXiv 2502.03279).

Parameters are drawn from the posterior given the table. New losses of the same runs are
simulated from them. Then the posterior given both tables is drawn. If both posteriors
are right, the share of its draws below the simulated parameters is uniform, for any
table. This does not test whether the law is right.

The second posterior is drawn from the prior and the likelihood of all rows. It would be
cheaper to weigh the draws of the first posterior by the likelihood of the new losses,
but that would check nothing: the first posterior, right or wrong, would be the prior of
its own simulation, and shares would always be uniform.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.machine import runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.checking.replicates import (
    InferenceCheck,
    Ranked,
    Truth,
    replicate,
)
from bayeslaw._inference import coordinates
from bayeslaw._inference.importance import starts_near
from bayeslaw._inference.noise import draw_errors, error_names
from bayeslaw._inference.ranks import shares_below
from bayeslaw._inference.table import SharedError, pad, shared_error, twice
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import draws_of
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.fits.refits import refit
from bayeslaw._posteriors.posterior import LogLoss, Posterior, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

    RunColumns = dict[str, Float[np.ndarray, " run"]]
    DrawsByName = Mapping[str, Float[np.ndarray, " draw"]]

MEAN_LOSS = "log loss, mean of the runs"


def check_inference(
    posterior: Posterior | str | Path,
    runs: pd.DataFrame | str | Path | None = None,
    *,
    replicates: int = 40,
    seed: int = 0,
    progress: Progress | None = None,
) -> InferenceCheck:
    """Check at the fitted runs that a fit's draws are those of its posterior, by
    posterior simulation-based calibration.

    Parameters
    ----------
    posterior
        A fit of one law. The check concerns the law with its priors and errors, as it
        was fitted by itself. Its misfit is learned in a second step, which is a cut and
        not Bayes' rule, so its shares could not be uniform.
    runs
        Runs whose log losses are ranked, too: up to eight, from the lowest forecast to
        the highest, and the mean of all. A table, or the path of one. Rows of other
        domains than the fitted one are left out.
    replicates
        Number of simulated tables. Forty find gross faults, hundreds find small ones.
    seed
        Same seed, same machine: same numbers.
    progress
        Called with replicates done and to do.

    Raises
    ------
    LawError
        The posterior is not a fit of one law, or there are too few replicates.
    RunTableError
        The runs lack a column that the law reads.

    Examples
    --------
    >>> result = bayeslaw.check_inference(pretraining, replicates=10)
    >>> result.replicates
    10
    """
    began = time.perf_counter()
    fit = _checked(as_posterior(posterior), replicates)
    runtime.start()
    rows = None if runs is None else fitting.own_rows(fit.runs, as_runs(runs))
    inference = FittedLaw.of(fit, rows)
    ranked = replicate(inference, replicates, seed=seed, progress=progress)
    names = ranked[0].shares
    misfit = (
        "the law's misfit, which is learned in a second step, and forecasts with it"
    )
    return InferenceCheck(
        law=fit.law.name,
        shares={n: np.array([rank.shares[n] for rank in ranked]) for n in names},
        by_chains=sum(rank.by_chains for rank in ranked),
        not_converged=sum(not rank.converged for rank in ranked),
        left_out="" if fit.misfit is None else misfit,
        seconds=time.perf_counter() - began,
    )


def _checked(posterior: object, replicates: int, fewest: int = 10) -> Fit:
    """Refuse posteriors without replicates, and too few replicates."""
    if isinstance(posterior, Average):
        name = posterior.heaviest.law.name
        raise LawError(
            "an average weighs laws by forecasts of stages left out, which is no "
            "posterior that replicates could be drawn from: check a law by itself, as "
            f"`bayeslaw fit RUNS --law {name} -o law.nc` draws it"
        )
    if not isinstance(posterior, Fit):
        raise LawError(
            f"replicates are drawn from a fit of one law (`bayeslaw fit`), not from a "
            f"{type(posterior).__name__}"
        )
    if replicates < fewest:
        raise LawError(
            f"{replicates} replicates tell nothing: draw {fewest} or more "
            "(40 find gross faults)"
        )
    return posterior


# -- the inference of a fit ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """A law with the error structure of its own fit, before the misfit.

    Parameters
    ----------
    covariates, y
        Columns and log losses of the fitted runs, (row,).
    shared
        Groups of rows with a common error.
    draws
        Draws of the law's values and of the error, given these runs, by name.
    covariates_forecast, named
        Columns of the runs whose mean log loss is ranked, or None; and the indices of
        runs whose own log loss is ranked, by their names.
    """

    law: Law
    covariates: dict[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    shared: SharedError
    draws: DrawsByName
    covariates_forecast: dict[str, Float[np.ndarray, " held"]] | None
    named: dict[str, int]

    @classmethod
    def of(cls, fit: Fit, runs: pd.DataFrame | None) -> FittedLaw:
        """Build the problem from a fit and the runs whose log losses are ranked, or
        None.
        """
        law, all_draws = fit.law, draws_of(fit.inference_data)
        shared = _shared_as_fitted(fit.runs, all_draws)
        draws = {name: all_draws[name] for name in (*law.priors, *error_names(shared))}
        columns, named = None, {}
        if runs is not None:
            columns = fitting.covariates(law, runs)
            named = _some_runs(runs, _log_losses(law, draws, columns))
        return cls(
            law,
            fitting.covariates(law, fit.runs),
            fitting.log_losses(fit.runs),
            shared,
            draws,
            columns,
            named,
        )

    def draw(self, rng: np.random.Generator) -> Truth:
        at = rng.integers(len(self.draws["sigma"]))
        return {name: float(values[at]) for name, values in self.draws.items()}

    def simulate(
        self, truth: Truth, rng: np.random.Generator
    ) -> Float[np.ndarray, " row"]:
        """Simulate new runs of the same design, from new checkpoints."""
        draw = {name: np.array([value]) for name, value in truth.items()}
        (mean,) = _log_losses(self.law, draw, self.covariates)
        return mean + draw_errors(len(mean), truth, self.shared, rng)

    def rank(self, truth: Truth, new: Float[np.ndarray, " row"], seed: int) -> Ranked:
        """Draw the posterior given the table and new losses, and rank the truth among
        its draws.
        """
        law, draws = self.law, self.draws
        covariates = {
            column: np.tile(values, 2) for column, values in self.covariates.items()
        }
        table = pad(covariates, np.concatenate([self.y, new]), twice(self.shared))
        points = coordinates.contrast_points(law, covariates)
        # three starts, drawn from the posterior of the first table
        rng = generator(seed, Stream.TWICE_STARTS)
        near = rng.integers(len(draws["sigma"]), size=3)
        values = [{name: draws[name][i] for name in law.priors} for i in near]
        starts = starts_near(law, table, points, values, np.median(draws["sigma"]))
        posterior = refit(law, table, points, starts, seed=seed)
        number = len(posterior.values["sigma"])
        alike = np.full(number, 1 / number)
        shares = shares_below(law, table, posterior.values, alike, truth)
        shares |= self._shares_of_losses(posterior.values, truth)
        rhat = posterior.note["rhat"]  # NaN without chains
        return Ranked(shares, by_chains=bool(rhat == rhat), converged=not rhat >= 1.05)

    def _shares_of_losses(self, values: DrawsByName, truth: Truth) -> dict[str, float]:
        """Compute the share of draws whose log losses at the runs are below the
        truth's.
        """
        if self.covariates_forecast is None:
            return {}
        with_truth = {
            name: np.append(values[name], truth[name]) for name in self.law.priors
        }
        log_losses = _log_losses(self.law, with_truth, self.covariates_forecast)
        ranked = {MEAN_LOSS: log_losses.mean(axis=1)} if len(self.named) > 1 else {}
        ranked |= {name: log_losses[:, at] for name, at in self.named.items()}
        return {name: float(np.mean(v[:-1] < v[-1])) for name, v in ranked.items()}


def _shared_as_fitted(runs: pd.DataFrame, draws: DrawsByName) -> SharedError:
    """Find the error structure used in the fit, dropping effects without draws."""
    shared = shared_error(runs)
    if shared.kind is not None and f"tau_{shared.kind}" not in draws:
        shared = shared._replace(checkpoint=None, run=None)
    if "run_length" not in draws:
        shared = shared._replace(previous=None, gap=None)
    return shared


def _log_losses(
    law: Law, draws: DrawsByName, columns: RunColumns
) -> Float[np.ndarray, "draw run"]:
    of_law = {name: np.asarray(draws[name]) for name in law.priors}
    return np.asarray(over_draws(LogLoss(law))(of_law, columns))


def _some_runs(
    runs: pd.DataFrame, log_losses: Float[np.ndarray, "draw run"], most: int = 8
) -> dict[str, int]:
    """Select a few runs from the lowest forecast to the highest: their names and
    indices.
    """
    order = np.argsort(np.median(log_losses, axis=0), kind="stable")
    places = np.linspace(0, len(order) - 1, min(most, len(order)))
    chosen = order[np.unique(places.round().astype(int))]
    return {f"log loss of row {runs.index[at]}": int(at) for at in chosen}
