"""Define `Fit`: the posterior of one law on one table, its diagnostics, and its file.

`bayeslaw.fit` makes it. Loading one and forecasting with it imports no sampler.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.machine import runtime
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.diagnostics import MIN_ESS, TRUSTED_K
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._inference.discrepancy.learning import Misfit
from bayeslaw._inference.noise import NOISE, RunNoise, draw_new_effects
from bayeslaw._inference.table import KINDS, group_labels
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.artifact import EFFECTS, NAMES
from bayeslaw._posteriors.fits.goodness import Goodness, goodness
from bayeslaw._posteriors.fits.misfit import from_dataset, with_misfit
from bayeslaw._posteriors.fits.narrowing import narrowed
from bayeslaw._posteriors.posterior import DRIFT, LogLoss, Piece, row_sds
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float
    from xarray import DataTree


@dataclass(frozen=True, eq=False)
class Fit:
    """A posterior of one law on one table.

    Parameters
    ----------
    law
        The law as fitted, with its priors.
    inference_data
        ArviZ data (a DataTree): ``posterior`` (contributions in nats, exponents, noise,
        and the paper's own parameters; chain x draw), ``sample_stats``,
        ``log_likelihood``, ``log_prior``, ``posterior_predictive``, ``observed_data``
        (log loss) and ``constant_data`` (the run table).
    """

    law: Law
    inference_data: DataTree

    def __repr__(self) -> str:
        size = f"{len(self.runs)} runs, {len(self.posterior['sigma'])} draws"
        return f"Fit({self.law.name!r} on {size})"

    @property
    def name(self) -> str:
        """Name of the law."""
        return self.law.name

    @property
    def posterior(self) -> dict[str, Float[np.ndarray, "draw ..."]]:
        """The draws by name, each of shape (draw, ...), chains one after another.

        With a misfit, they include its weights, and the noise is that beside the
        misfit.
        """
        draws = artifact.draws_of(self.inference_data)
        drifts = {} if self.drift is None else {DRIFT: self.drift}
        return with_misfit(draws, self.misfit) | drifts

    @cached_property
    def drift(self) -> Float[np.ndarray, "draw side"] | None:
        """Drifts beyond the runs, drawn from the prior (an average learns their scales
        from left-out stages). None for a plain fit.
        """
        if NAMES.misfit not in self.inference_data.children:
            return None
        saved = self.inference_data[NAMES.misfit]
        return saved[NAMES.drift].to_numpy() if NAMES.drift in saved else None

    @cached_property
    def misfit(self) -> Misfit | None:
        """The law's learned smooth misfit; None for a plain fit."""
        if NAMES.misfit not in self.inference_data.children:
            return None
        return from_dataset(self.inference_data[NAMES.misfit].to_dataset())

    @property
    def is_plain(self) -> bool:
        """Whether the fit was asked to leave out the misfit (``discrepancy=False``)."""
        settings = json.loads(self.inference_data.attrs.get("settings", "{}"))
        return not settings.get("discrepancy", True)

    @property
    def runs(self) -> pd.DataFrame:
        """The table the law was fitted to."""
        return artifact.runs_of(self.inference_data)

    @property
    def seconds(self) -> float:
        seconds = self.inference_data.attrs["seconds"]
        return float(seconds)

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each parameter in the paper's units, the noise and the misfit by
        mean, sd and central interval. The misfit is its root mean square over the runs,
        in log loss.
        """
        draws = self.parameter_draws()
        tail = (1 - prob) / 2
        rows = {
            n: {
                "mean": d.mean(),
                "sd": d.std(ddof=1),
                "low": np.quantile(d, tail),
                "high": np.quantile(d, 1 - tail),
            }
            for n, d in draws.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def narrowed(self) -> pd.DataFrame:
        """Show how far the runs narrowed the priors. Each sampled value (contributions
        in nats at ``law.reference``, exponents) has a row with the 90% intervals of
        prior and posterior, the share ``narrowed``, and ``whose`` the value is:
        ``"runs"``, ``"both"`` or ``"prior"``.

        Examples
        --------
        >>> two = bayeslaw.simulate("chinchilla").iloc[[0, 20]]
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     few = bayeslaw.fit(two, "chinchilla", preview=True)
        >>> few.narrowed()["whose"]["alpha"]
        'prior'
        """
        return narrowed(self.law, artifact.draws_of(self.inference_data))

    def parameter_draws(self) -> dict[str, Float[np.ndarray, " draw"]]:
        """Draws of the numbers that `parameters` summarises, by name, each of shape
        (draw,).
        """
        posterior = self.posterior
        names = [n for n in (*self.law.parameters, *NOISE) if n in posterior]
        draws = {name: posterior[name] for name in names}
        if self.misfit is not None:
            columns = fitting.covariates(self.law, self.runs)
            at_runs = self.misfit.at(columns)
            draws["misfit"] = np.sqrt(np.mean(at_runs**2, axis=1))
        return draws

    def draws(self) -> pd.DataFrame:
        """Draws of each parameter in the paper's units, and of the noise: a row for each
        draw, a column for each name of `parameters`.

        Examples
        --------
        >>> from bayeslaw import fit, simulate
        >>> preview = fit(simulate("chinchilla"), "chinchilla", preview=True)
        >>> list(preview.draws().columns[:3])
        ['E', 'A', 'B']
        """
        return pd.DataFrame(self.parameter_draws()).rename_axis("draw")

    def _repr_html_(self) -> str:
        """Show the law, the number of runs and each parameter in notebooks."""
        return paragraphs(repr(self)) + table_html(self.parameters())

    @cached_property
    def goodness(self) -> Goodness:
        """Goodness of fit of the law by itself, with reasons against it."""
        draws = artifact.draws_of(self.inference_data)
        return goodness(self.law, draws, self.runs)

    @property
    def is_preview(self) -> bool:
        """Whether the draws come from importance sampling, not from chains: because a
        preview was asked for, or because the chains disagreed.
        """
        return "preview_khat" in self.inference_data.attrs

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Largest R-hat, smallest bulk ESS over all sampled sites, divergences,
        leapfrog steps a draw, seconds.

        A preview has no R-hat; it has the effective draws and the ``khat`` of its
        weights.
        """
        if self.is_preview:
            attrs = self.inference_data.attrs
            stats = self.inference_data["sample_stats"]
            return {
                "rhat": float("nan"),
                "ess": float(attrs["preview_ess"]),
                "khat": float(attrs["preview_khat"]),
                "divergences": 0,
                "divergent_share": 0.0,
                "steps_per_draw": 0.0,
                "draws": int(stats["diverging"].size),
                "seconds": self.seconds,
            }
        posterior = self.inference_data["posterior"]
        sampled = [
            n
            for n in (*self.law.priors, *NOISE, *EFFECTS.values())
            if n in posterior and not self._is_fixed(n)
        ]
        return artifact.diagnostics_of(self.inference_data, sampled)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The failed diagnostics of this posterior, a line each; empty if all pass."""
        if self.is_preview:
            return self._doubts_of_preview()
        remedy = (
            "the posterior has a corner the sampler cannot enter; give the weakest "
            "exponent a tighter prior, or take a smaller law"
        )
        return artifact.failed_diagnostics(
            f"law {self.law.name}", self.diagnostics, remedy, dash="--"
        )

    def _doubts_of_preview(self) -> tuple[str, ...]:
        """List reasons to distrust the weights of a preview."""
        khat, ess = self.diagnostics["khat"], self.diagnostics["ess"]
        if khat < TRUSTED_K and ess >= MIN_ESS:
            return ()
        line = (
            f"law {self.law.name}: a preview not to be trusted "
            f"(k-hat {khat:.2f}, {ess:.0f} effective draws); fit it without preview"
        )
        return (line,)

    def _is_fixed(self, name: str) -> bool:
        prior = self.law.priors.get(name)
        return prior is not None and prior.is_fixed

    def pieces(self) -> tuple[Piece, ...]:
        """All draws of the one law. A new run's noise includes the effects of a new
        checkpoint and a new run; their scales are also given.
        """
        process = None if self.misfit is None else self.misfit.process
        beyond = None
        if self.drift is not None:
            beyond = training_range(fitting.covariates(self.law, self.runs))
        formula = LogLoss(self.law, process, beyond)
        return (formula.piece(self.posterior),)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run): of the law, or with ``noise`` of a new
        run.

        Rows of a checkpoint or run that the fit has seen have its learned effect; other
        rows draw a new one.

        Raises
        ------
        RunTableError
            The table lacks a column the law reads.
        """
        runtime.start()
        (piece,) = self.pieces()
        columns = fitting.covariates(self.law, runs)
        log_loss = piece.at(columns)
        if not noise:
            return log_loss
        rng = generator(seed, Stream.NEW_RUN)
        error = RunNoise.of(self.posterior)
        size = error.size_with(piece.error_size(columns), row_sds(runs, log_loss))
        return log_loss + size * error.draw(len(runs), rng) + self.effects(runs, rng)

    def effects(
        self, runs: pd.DataFrame, rng: np.random.Generator
    ) -> Float[np.ndarray, "draw run"] | float:
        """Draw the effects that rows of one checkpoint or run share, shape (draw, run):
        learned effects if the fit has seen them, else new ones; 0 if rows share
        nothing.
        """
        shared = sum(self._effect(kind, runs, rng) for kind in KINDS)
        if not np.ndim(shared):
            return shared
        (piece,) = self.pieces()
        return piece.error_size(fitting.covariates(self.law, runs)) * shared

    def _effect(
        self, kind: str, runs: pd.DataFrame, rng: np.random.Generator
    ) -> Float[np.ndarray, "draw row"] | float:
        """Draw the effect of each row's checkpoint or run, shape (draw, row)."""
        names, learned = self._known_effects(kind)
        if learned is None:
            return 0.0
        tau, at = self.posterior[f"tau_{kind}"], {n: i for i, n in enumerate(names)}
        labels_of_rows = group_labels(kind, runs, self.law.covariates)
        # without the column, every row has its own effect
        wanted = (
            np.arange(len(runs))
            if labels_of_rows is None
            else labels_of_rows.to_numpy()
        )
        codes, groups = pd.factorize(wanted)
        new_effects = draw_new_effects(tau, len(groups), rng)
        for i, group in enumerate(map(str, groups)):
            if labels_of_rows is not None and group in at:
                new_effects[:, i] = learned[:, at[group]]
        return new_effects[:, codes]

    def _known_effects(
        self, kind: str
    ) -> tuple[list[str], Float[np.ndarray, "draw group"] | None]:
        """List the checkpoints or runs that the fit has seen, with their effects, shape
        (draw, group).
        """
        if self.misfit is not None:
            if kind not in self.misfit.effects:
                return [], None
            names = self.inference_data[NAMES.misfit][NAMES.group + kind].to_numpy()
            return list(map(str, names)), self.misfit.effects[kind]
        name, posterior = EFFECTS.get(kind, ""), self.inference_data["posterior"]
        if name not in posterior:
            return [], None
        names = posterior[name][f"{kind}_label"].to_numpy()
        return list(map(str, names)), self.posterior[name]

    def save(self, path: str | Path) -> Path:
        """Write the fit to a netCDF file; an interrupted write leaves the old file."""
        return artifact.write(self.inference_data, path)

    @classmethod
    def load(cls, path: str | Path, *, trust_law_file: bool = False) -> Fit:
        """Load a saved fit. ``trust_law_file``: as for `load`.

        Raises
        ------
        FitFileError
            The file is missing, is not a saved fit, or its law has changed since.
        """
        make = f"make it with `bayeslaw fit RUNS --law NAME -o {path}`"
        tree = artifact.read(path, ["fit"], make)
        return cls.from_tree(tree, path, trust_law_file)

    @classmethod
    def from_tree(cls, tree: DataTree, path: str | Path, trust_law_file: bool) -> Fit:
        """Read a fit from the netCDF file's groups; raises as `load` does."""
        with artifact.readable(path):
            fit = cls(artifact.law_of_tree(tree, path, trust_law_file), tree)
            artifact.check_draws(fit.posterior, (*fit.law.priors, "sigma", "dof"))
            fitting.covariates(fit.law, fit.runs)
            _ = fit.misfit
            stats = tree["sample_stats"]
            _ = fit.diagnostics if fit.is_preview else (fit.seconds, stats["n_steps"])
        return fit
