"""Define `Fit`: the posterior of one law on one table, its diagnostics, and its file.

`bayeslaw.fit` makes it. Loading one and forecasting with it imports no sampler.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.shown import paragraphs, table_html
from bayeslaw._inference.diagnostics import MIN_ESS, TRUSTED_K
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._inference.discrepancy.learning import Misfit
from bayeslaw._inference.noise import NOISE
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.artifact import EFFECTS, NAMES
from bayeslaw._posteriors.fits.goodness import Goodness, goodness, narrowed
from bayeslaw._posteriors.fits.misfit import (
    add_short_names,
    from_dataset,
    name_learned,
    with_misfit,
)
from bayeslaw._posteriors.posterior import DRIFT, LawPosterior, Member, summarize
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float
    from xarray import DataTree


@dataclass(frozen=True, eq=False)
class Fit(LawPosterior):
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

    def _repr_html_(self) -> str:
        return paragraphs(repr(self)) + table_html(self.parameters())

    @property
    def name(self) -> str:
        """Name of the law."""
        return self.law.name

    @property
    def runs(self) -> pd.DataFrame:
        """The table the law was fitted to."""
        return artifact.runs_of(self.inference_data)

    @property
    def seconds(self) -> float:
        return float(self.inference_data.attrs["seconds"])

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of the fit, so that it can be made again; empty if not kept."""
        return json.loads(self.inference_data.attrs.get("settings", "{}"))

    @property
    def is_plain(self) -> bool:
        """Whether the fit was asked to leave out the misfit (``discrepancy=False``)."""
        return not self.settings.get("discrepancy", True)

    @property
    def is_preview(self) -> bool:
        """Whether the draws come from importance sampling, not from chains: because a
        preview was asked for, or because the chains disagreed.
        """
        return "preview_khat" in self.inference_data.attrs

    # -- draws -------------------------------------------------------------------------

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
        saved = self.inference_data.children.get(NAMES.misfit)
        if saved is None or NAMES.drift not in saved:
            return None
        return saved[NAMES.drift].to_numpy()

    @cached_property
    def misfit(self) -> Misfit | None:
        """The law's learned smooth misfit; None for a plain fit."""
        saved = self.inference_data.children.get(NAMES.misfit)
        return None if saved is None else from_dataset(saved.to_dataset())

    @cached_property
    def members(self) -> tuple[Member]:
        """The law, its draws, and effects of the runs that the fit has seen."""
        misfit, tree, draws = self.misfit, self.inference_data, self.posterior
        if misfit is None:
            in_posterior = tree["posterior"]
            learned = {
                kind: (in_posterior[name][f"{kind}_label"], draws[name])
                for kind, name in EFFECTS.items()
                if name in in_posterior
            }
        else:
            saved = tree[NAMES.misfit]
            learned = {
                kind: (saved[NAMES.group + kind], effects)
                for kind, effects in misfit.effects.items()
            }
        effects = {
            kind: name_learned(kind, self.runs, groups.to_numpy(), by_draw.T)
            for kind, (groups, by_draw) in learned.items()
        }
        effects = add_short_names(effects, self.runs)
        process = None if misfit is None else misfit.process
        beyond = None
        if self.drift is not None:
            beyond = training_range(fitting.covariates(self.law, self.runs))
        return (Member(self.law, 1.0, process, beyond, draws, effects),)

    def parameter_draws(self) -> dict[str, Float[np.ndarray, " draw"]]:
        """Draws of the numbers that `parameters` summarises, by name."""
        posterior = self.posterior
        names = [n for n in (*self.law.parameters, *NOISE) if n in posterior]
        draws = {name: posterior[name] for name in names}
        if self.misfit is not None:
            columns = fitting.covariates(self.law, self.runs)
            at_runs = self.misfit.at(columns)
            draws["misfit"] = np.sqrt(np.mean(at_runs**2, axis=1))
        return draws

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each parameter in the paper's units, the noise and the misfit by
        mean, sd and central interval. The misfit is its root mean square over the runs,
        in log loss.
        """
        return summarize(self.parameter_draws(), prob)

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

    # -- checks ------------------------------------------------------------------------

    @cached_property
    def goodness(self) -> Goodness:
        """Goodness of fit of the law by itself, with reasons against it."""
        draws = artifact.draws_of(self.inference_data)
        return goodness(self.law, draws, self.runs)

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Largest R-hat, smallest bulk ESS over all sampled sites, divergences,
        leapfrog steps a draw, seconds.

        A preview has no R-hat; it has the effective draws and the ``khat`` of its
        weights.
        """
        tree = self.inference_data
        if self.is_preview:
            return {
                "rhat": float("nan"),
                "ess": float(tree.attrs["preview_ess"]),
                "khat": float(tree.attrs["preview_khat"]),
                "divergences": 0,
                "divergent_share": 0.0,
                "steps_per_draw": 0.0,
                "draws": int(tree["sample_stats"]["diverging"].size),
                "seconds": self.seconds,
            }
        fixed = {name for name, prior in self.law.priors.items() if prior.is_fixed}
        sites = (*self.law.priors, *NOISE, *EFFECTS.values())
        sampled = [n for n in sites if n in tree["posterior"] and n not in fixed]
        return artifact.diagnostics_of(tree, sampled)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The failed diagnostics of this posterior, a line each; empty if all pass."""
        what = f"law {self.law.name}"
        if self.is_preview:
            khat, ess = self.diagnostics["khat"], self.diagnostics["ess"]
            if khat < TRUSTED_K and ess >= MIN_ESS:
                return ()
            quality = f"k-hat {khat:.2f}, {ess:.0f} effective draws"
            line = f"a preview not to be trusted ({quality}); fit it without preview"
            return (f"{what}: {line}",)
        remedy = (
            "the posterior has a corner the sampler cannot enter; give the weakest "
            "exponent a tighter prior, or take a smaller law"
        )
        return artifact.failed_diagnostics(what, self.diagnostics, remedy, dash="--")

    # -- the file ----------------------------------------------------------------------

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
            recipe = json.loads(tree.attrs["law_recipe"])
            fit = cls(artifact.law_from_recipe(recipe, path, trust_law_file), tree)
            artifact.check_draws(fit.posterior, fit.law)
            fitting.covariates(fit.law, fit.runs)
            _ = fit.misfit
            stats = tree["sample_stats"]
            _ = fit.diagnostics if fit.is_preview else (fit.seconds, stats["n_steps"])
        return fit
