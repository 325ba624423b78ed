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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import runtime
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._base.shown import Shown
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.importance import starts_near
from bayeslaw._inference.noise import draw_errors, error_names
from bayeslaw._inference.ranks import ALPHA, shares_below, uniformity
from bayeslaw._inference.table import SharedError, pad, shared_error, twice
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import draws_of
from bayeslaw._posteriors.fits.misfit import TrainingRuns, fitted_errors
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.fits.refits import refit, spread
from bayeslaw._posteriors.posterior import LogLoss, Posterior, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float

    RunColumns = dict[str, Float[np.ndarray, " run"]]
    DrawsByName = Mapping[str, Float[np.ndarray, " draw"]]

MEAN_LOSS = "log loss, mean of the runs"
FEWEST = 10  # replicates, of which fewer tell nothing
Truth = Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class InferenceCheck(Shown):
    """Posterior simulation-based calibration of a fit.

    Parameters
    ----------
    law
        Name of the law.
    shares
        Shares of the posterior below the true parameters, from which the new losses
        were simulated, by quantity, each of shape (replicate,). They are uniform if the
        inference is right.
    by_chains, not_converged
        Number of posteriors that were drawn by NUTS because importance sampling failed,
        and number of these that did not converge. ``shares`` includes all of them.
    left_out
        Parts of the fit that were not checked, in words; empty if there are none.
    seconds
        Duration in seconds.
    """

    law: str
    shares: Mapping[str, Float[np.ndarray, " replicate"]]
    by_chains: int
    not_converged: int
    left_out: str
    seconds: float

    KEYS: ClassVar = {
        "shares by_chains not_converged left_out seconds": ...,
        "replicates": int,
        "uniform": (bool, "Whether the shares of every quantity are uniform."),
        "limit": (float, "P-value below which a quantity is not."),
        "p_values": dict[str, float],
        "reason": str,
    }

    @property
    def replicates(self) -> int:
        return len(next(iter(self.shares.values())))

    @property
    def p_values(self) -> dict[str, float]:
        """Test that shares are uniform, by quantity."""
        return {name: uniformity(shares) for name, shares in self.shares.items()}

    @property
    def limit(self) -> float:
        """P-value below which a quantity is not uniform, 1% over all of them."""
        return ALPHA / len(self.shares)

    @property
    def wrong(self) -> tuple[str, ...]:
        """List the quantities whose shares are not uniform, the least uniform first."""
        p = self.p_values
        return tuple(sorted((n for n in p if p[n] < self.limit), key=lambda n: p[n]))

    @property
    def is_uniform(self) -> bool:
        return not self.wrong

    @property
    def table(self) -> pd.DataFrame:
        """Make a table of the quantities, the least uniform first: p-value, mean share,
        and the number of truths in the middle 90%.
        """
        rows = {
            name: {
                "p": p,
                "mean": float(self.shares[name].mean()),
                "middle90": float(np.mean(np.abs(self.shares[name] - 0.5) < 0.45)),
            }
            for name, p in self.p_values.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").sort_values("p")

    @property
    def lines(self) -> tuple[str, ...]:
        """Describe the result in words, line by line."""
        p = self.p_values
        head = (
            f"posterior SBC, {self.replicates} replicates of the fitted runs, "
            f"{len(p)} quantities"
        )
        if self.is_uniform:
            least = min(p, key=lambda name: p[name])
            verdict = (
                f"truths lie among the draws as they should (least uniform: {least}, "
                f"p {p[least]:.2g}), so that no fault of the inference shows"
            )
        else:
            named = ", ".join(f"{name} (p {p[name]:.2g})" for name in self.wrong)
            verdict = (
                f"truths do NOT lie among the draws as they should: {named}, where "
                f"p is to be over {self.limit:.2g}; the fit's draws, or those given "
                "the replicates too, are not their posterior's: fit it again with more "
                "draws, or take a smaller law"
            )
        lines = [
            f"{head}: {verdict}",
            "this is about the sampler at these runs, not about whether the law is right",
        ]
        if self.by_chains:
            of_these = f", {self.not_converged} of which did not converge"
            lines.append(
                f"{self.by_chains} posteriors were drawn by NUTS, as importance sampling "
                f"would not do{of_these if self.not_converged else ''}"
            )
        if self.left_out:
            lines.append(f"not checked: {self.left_out}")
        return tuple(lines)

    def sentence(self) -> str:
        """Describe the result in one line."""
        return "; ".join(self.lines)

    uniform, reason = is_uniform, sentence  # as they are called in JSON


def check_inference(
    posterior: Posterior | str | Path,
    runs: Table | str | Path | None = None,
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
    fit = as_posterior(posterior)
    if isinstance(fit, Average):
        name = fit.heaviest.law.name
        raise LawError(
            "an average weighs laws by forecasts of stages left out, which is no "
            "posterior that replicates could be drawn from: check a law by itself, as "
            f"`bayeslaw fit RUNS --law {name} -o law.nc` draws it"
        )
    if not isinstance(fit, Fit):
        raise LawError(
            f"replicates are drawn from a fit of one law (`bayeslaw fit`), not from a "
            f"{type(fit).__name__}"
        )
    if replicates < FEWEST:
        raise LawError(
            f"{replicates} replicates tell nothing: draw {FEWEST} or more "
            "(40 find gross faults)"
        )
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


# -- the inference of a fit ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """A law with the error structure of its own fit, before the misfit."""

    law: Law
    # columns and log losses of the fitted runs, and groups of rows with a common error
    covariates: dict[str, Float[np.ndarray, " row"]]
    y: Float[np.ndarray, " row"]
    shared: SharedError
    # weights of the fitted rows in their likelihood
    weights: Float[np.ndarray, " row"]
    # draws of the law's values and of the error, given these runs
    draws: DrawsByName
    # columns of the runs whose mean log loss is ranked
    covariates_forecast: dict[str, Float[np.ndarray, " held"]] | None
    named: dict[str, int]  # indices of runs whose own log loss is ranked

    @classmethod
    def of(cls, fit: Fit, runs: pd.DataFrame | None) -> FittedLaw:
        """Build the problem from a fit, and the runs to rank, or None."""
        law, all_draws = fit.law, draws_of(fit.inference_data)
        # effects without draws were not in the fit
        find_errors = shared_error if fit.is_plain else partial(fitted_errors, law)
        shared = find_errors(fit.runs)
        if shared.kind is not None and f"tau_{shared.kind}" not in all_draws:
            shared = shared._replace(checkpoint=None, run=None, setting=None)
        if "run_length" not in all_draws:
            shared = shared._replace(previous=None, gap=None)
        draws = {name: all_draws[name] for name in (*law.priors, *error_names(shared))}
        independent = bool(fit.settings.get("independent"))
        training = TrainingRuns.of(law, fit.runs, independent)
        covariates, y = dict(training.covariates), training.y
        weights = np.ones(len(y)) if fit.is_plain else training.row_weights
        if runs is None:
            return cls(law, covariates, y, shared, weights, draws, None, {})
        # a few runs, from the lowest forecast to the highest
        columns = fitting.covariates(law, runs)
        medians = np.median(_log_losses(law, draws, columns), axis=0)
        order = np.argsort(medians, kind="stable")
        places = np.linspace(0, len(order) - 1, min(8, len(order)))
        chosen = order[np.unique(places.round().astype(int))]
        named = {f"log loss of row {runs.index[at]}": int(at) for at in chosen}
        return cls(law, covariates, y, shared, weights, draws, columns, named)

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
        """Draw the posterior given new losses, and rank the truth in it."""
        law, draws = self.law, self.draws
        covariates = {
            column: np.tile(values, 2) for column, values in self.covariates.items()
        }
        table = pad(covariates, np.concatenate([self.y, new]), twice(self.shared))
        # new losses follow the likelihood itself, so each counts whole
        table = table.weighed(np.concatenate([self.weights, np.ones(len(new))]))
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
        if self.covariates_forecast is not None:
            with_truth = {
                name: np.append(posterior.values[name], truth[name])
                for name in law.priors
            }
            losses = _log_losses(law, with_truth, self.covariates_forecast)
            ranked = {MEAN_LOSS: losses.mean(axis=1)} if len(self.named) > 1 else {}
            ranked |= {name: losses[:, at] for name, at in self.named.items()}
            shares |= {n: float(np.mean(v[:-1] < v[-1])) for n, v in ranked.items()}
        rhat = posterior.note["rhat"]  # NaN without chains
        return Ranked(shares, by_chains=bool(rhat == rhat), converged=not rhat >= 1.05)


def _log_losses(
    law: Law, draws: DrawsByName, columns: RunColumns
) -> Float[np.ndarray, "draw run"]:
    return over_draws(LogLoss(law), draws, columns)


# -- replicates of any inference -------------------------------------------------------


class Ranked(NamedTuple):
    """Rank of the true parameters in a posterior: the share of draws below the truth by
    quantity, and how the draws were made.
    """

    shares: dict[str, float]
    by_chains: bool = False
    converged: bool = True


class Inference(Protocol):
    """An inference given a table, to check: it draws parameters from the posterior,
    simulates new log losses of the table's runs, and ranks the parameters in the
    posterior given both.
    """

    def draw(self, rng: np.random.Generator) -> Truth: ...

    def simulate(
        self, truth: Truth, rng: np.random.Generator
    ) -> Float[np.ndarray, " row"]: ...

    def rank(
        self, truth: Truth, new: Float[np.ndarray, " row"], seed: int
    ) -> Ranked: ...


def replicate(
    inference: Inference,
    replicates: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Ranked]:
    """Draw parameters, new losses and posteriors ``replicates`` times. After an error
    or an interruption no further replicate is begun.
    """

    def replicate_once(seed: np.random.SeedSequence) -> list[Ranked]:
        rng = np.random.default_rng(seed)
        truth = inference.draw(rng)
        new = inference.simulate(truth, rng)
        return [inference.rank(truth, new, int(rng.integers(2**31)))]

    seeds = np.random.SeedSequence(seed).spawn(replicates)
    # compiled programs release Python's lock, so replicates can run in threads
    with runtime.threads() as pool:
        return spread(replicate_once, [(child,) for child in seeds], pool, progress)
