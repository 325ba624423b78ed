"""Whether an inference is right at the user's own runs: posterior simulation-based
calibration (Sailynoja, Schmitt, Burkner and Vehtari 2025, arXiv 2502.03279).

Parameters are drawn from the posterior given the table, new losses of the same runs from
the parameters, and the posterior given both tables is drawn again: the share of its draws
below the parameters that made the new losses is uniform if both posteriors are right,
whatever the table is. It says nothing of whether the law is.

The second posterior is drawn from prior and likelihood of all rows. To weigh the draws
of the first by the likelihood of the new losses would be cheaper, and would check
nothing: the first posterior, wrong or not, would be the prior of its own simulation, and
shares would be uniform whatever it is.
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
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import draws_of
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.fits.refits import refit
from bayeslaw._posteriors.posterior import LogLoss, Posterior, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

    Columns = dict[str, Float[np.ndarray, " run"]]
    Draws = Mapping[str, Float[np.ndarray, " draw"]]

REPLICATES = 40
FEWEST = 10  # replicates below which shares tell nothing
CONVERGED = 1.05  # R-hat above which chains are counted as not converged
AT_RUNS = 8  # whose log loss is ranked, of a table with more
STARTS = 3  # draws near which the mode of a posterior is searched
MEAN_LOSS = "log loss, mean of the runs"


def check_inference(
    posterior: Posterior,
    runs: pd.DataFrame | str | Path | None = None,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
    progress: Progress | None = None,
) -> InferenceCheck:
    """Check at the fitted runs that a fit's draws are those of its posterior, by
    posterior simulation-based calibration.

    Parameters
    ----------
    posterior
        A fit of one law. What is checked is the law with its priors and errors as it
        was fitted by itself; its misfit is learned in a second step, a cut and not
        Bayes' rule, of which no simulation could be uniform.
    runs
        Runs whose log losses are ranked too: up to eight, from the one forecast lowest
        to the one forecast highest, and the mean of all. A table, or the path of one.
    replicates
        How often new losses are drawn. Forty find gross faults, hundreds find small
        ones.
    seed
        Same seed, same machine: same numbers.
    progress
        Called with replicates done and to do.

    Raises
    ------
    LawError
        It is no fit of one law, or there are too few replicates.
    RunTableError
        The runs lack a column that the law reads.
    """
    began = time.perf_counter()
    fit = _checked(posterior, replicates)
    runtime.start()
    rows = None if runs is None else as_runs(runs)
    inference = FittedLaw.of(fit, rows)
    ranked = replicate(inference, replicates, seed=seed, progress=progress)
    names = ranked[0].shares
    misfit = (
        "the law's misfit, which is learned in a second step, and forecasts with it"
    )
    return InferenceCheck(
        law=fit.law.name,
        shares={n: np.array([one.shares[n] for one in ranked]) for n in names},
        by_chains=sum(one.by_chains for one in ranked),
        not_converged=sum(not one.converged for one in ranked),
        left_out="" if fit.misfit is None else misfit,
        seconds=time.perf_counter() - began,
    )


def _checked(posterior: object, replicates: int) -> Fit:
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
    if replicates < FEWEST:
        raise LawError(
            f"{replicates} replicates tell nothing: draw {FEWEST} or more "
            f"({REPLICATES} find gross faults)"
        )
    return posterior


# -- the inference of a fit ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """A law with the errors that it was fitted with by itself, before its misfit.

    Parameters
    ----------
    covariates, y
        Columns and log losses of the fitted runs, (row,).
    shared
        Which of them share their error.
    draws
        Draws of the law's values and of the error given these runs, by name.
    held, named
        Columns of the runs whose mean log loss is ranked; None for none. Places of
        those whose own is ranked too, by what they are called.
    """

    law: Law
    covariates: dict[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    shared: SharedError
    draws: Draws
    held: dict[str, Float[np.ndarray, " held"]] | None
    named: dict[str, int]

    @classmethod
    def of(cls, fit: Fit, runs: pd.DataFrame | None) -> FittedLaw:
        """Read a fit, and the runs whose log losses are ranked; None for none."""
        law, given = fit.law, draws_of(fit.inference_data)
        shared = _shared_as_fitted(fit.runs, given)
        draws = {name: given[name] for name in (*law.priors, *error_names(shared))}
        held, named = None, {}
        if runs is not None:
            held = fitting.covariates(law, runs)
            named = _some_runs(runs, _log_losses(law, draws, held))
        return cls(
            law,
            fitting.covariates(law, fit.runs),
            np.log(fitting.losses(fit.runs)),
            shared,
            draws,
            held,
            named,
        )

    def draw(self, rng: np.random.Generator) -> Truth:
        at = rng.integers(len(self.draws["sigma"]))
        return {name: float(values[at]) for name, values in self.draws.items()}

    def simulate(
        self, truth: Truth, rng: np.random.Generator
    ) -> Float[np.ndarray, " row"]:
        """New runs of the same design, from new checkpoints."""
        one = {name: np.array([value]) for name, value in truth.items()}
        (mean,) = _log_losses(self.law, one, self.covariates)
        return mean + draw_errors(len(mean), truth, self.shared, rng)

    def rank(self, truth: Truth, new: Float[np.ndarray, " row"], seed: int) -> Ranked:
        law, draws = self.law, self.draws
        both = {
            column: np.tile(values, 2) for column, values in self.covariates.items()
        }
        table = pad(both, np.concatenate([self.y, new]), twice(self.shared))
        points = coordinates.contrast_points(law, both)
        # starts that know of the first table only
        rng = np.random.default_rng(seed)
        near = rng.integers(len(draws["sigma"]), size=STARTS)
        values = [{name: draws[name][i] for name in law.priors} for i in near]
        starts = starts_near(law, table, points, values, np.median(draws["sigma"]))
        posterior = refit(law, table, points, starts, seed=seed)
        number = len(posterior.values["sigma"])
        alike = np.full(number, 1 / number)
        shares = shares_below(law, table, posterior.values, alike, truth)
        shares |= self._shares_of_losses(posterior.values, truth)
        rhat = posterior.note["rhat"]  # not a number without chains
        return Ranked(shares, bool(rhat == rhat), not rhat >= CONVERGED)

    def _shares_of_losses(self, values: Draws, truth: Truth) -> dict[str, float]:
        """Share of the log losses of the runs below those of the truth."""
        if self.held is None:
            return {}
        both = {name: np.append(values[name], truth[name]) for name in self.law.priors}
        log_losses = _log_losses(self.law, both, self.held)
        ranked = {MEAN_LOSS: log_losses.mean(axis=1)} if len(self.named) > 1 else {}
        ranked |= {name: log_losses[:, at] for name, at in self.named.items()}
        return {name: float(np.mean(v[:-1] < v[-1])) for name, v in ranked.items()}


def _shared_as_fitted(runs: pd.DataFrame, draws: Draws) -> SharedError:
    """What the rows shared while the law was fitted: of what the table shows, that of
    which there are draws.
    """
    shown = shared_error(runs)
    if shown.kind is not None and f"tau_{shown.kind}" not in draws:
        shown = shown._replace(checkpoint=None, run=None)
    if "run_length" not in draws:
        shown = shown._replace(previous=None, gap=None)
    return shown


def _log_losses(
    law: Law, draws: Draws, columns: Columns
) -> Float[np.ndarray, "draw run"]:
    of_law = {name: np.asarray(draws[name]) for name in law.priors}
    return np.asarray(over_draws(LogLoss(law))(of_law, columns))


def _some_runs(
    runs: pd.DataFrame, log_losses: Float[np.ndarray, "draw run"]
) -> dict[str, int]:
    """Names and places of a few runs, from the one forecast lowest to the highest."""
    order = np.argsort(np.median(log_losses, axis=0), kind="stable")
    places = np.linspace(0, len(order) - 1, min(AT_RUNS, len(order)))
    chosen = order[np.unique(places.round().astype(int))]
    return {f"log loss of row {runs.index[at]}": int(at) for at in chosen}
