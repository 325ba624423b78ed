"""Fit a law to a table of runs: sample its posterior, learn its misfit, and check the
diagnostics.
"""

from __future__ import annotations

import json
import time
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from xarray import DataTree

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import FitWarning, warn
from bayeslaw._base.machine import runtime
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference import coordinates, density, nuts, point
from bayeslaw._inference.discrepancy.drift import draw_from_prior, training_range
from bayeslaw._inference.table import Padded, pad, shared_error
from bayeslaw._inference.weighted import preview, where_chains_disagree
from bayeslaw._law.law import Law
from bayeslaw._posteriors.experience import choose_priors
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.arviz_tree import to_arviz
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._posteriors.fits.misfit import (
    TrainingRuns,
    fitted_errors,
    group_names,
    learn_misfit,
    to_dataset,
)
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.fits.sampling import SamplingArguments
from bayeslaw._posteriors.fits.signs import other_signs
from bayeslaw._tables import fitting
from bayeslaw._tables.fitting import HANDFUL
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.surface import outliers


@dataclass(frozen=True, eq=False)
class FitArguments(SamplingArguments):
    # documented in `fit`

    runs: pd.DataFrame | str | Path
    law: Law | str | None = None
    _: KW_ONLY
    independent: bool = False
    discrepancy: bool = True
    preview: bool = False
    experience: str | None = None

    def find(self, law: Law | str | None, runs: pd.DataFrame) -> Law:
        """Find the law with learned priors, and replace the priors that the user names."""
        record = law_for(law, runs)
        # priors that a user states in nats are stated at the law's own run
        reference = self.reference or (record.reference if self.priors else None)
        chosen = choose_priors(record, runs, self.experience, reference=reference)
        return super().find(chosen.law, runs)

    @property
    def settings(self) -> dict[str, Any]:
        """Collect the settings that a fit keeps, so that it can be made again."""
        return asdict(self.nuts) | {
            "preview": self.preview,
            "independent": self.independent,
            "discrepancy": self.discrepancy,
        }


@takes(FitArguments)
def fit(arguments: FitArguments) -> Fit:
    """Sample the posterior of a law on a table of runs.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it, or the path of one.
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    priors
        Priors to replace, by name: a `Prior` or its text.
    reference
        Columns of the reference run to replace.
    independent
        Whether the errors of rows are independent. By default rows of one checkpoint
        (column ``checkpoint``, else N and ptpp) share an effect, rows of one ``run``
        share another, and errors of neighbours on a learning curve are correlated.
    discrepancy
        Also learn the law's smooth misfit; the noise is then the remaining error. With
        up to 24 runs, the law also drifts beyond them by the drift prior of averages.
        With it, a law that reads the checkpoint's losses is fitted with independent
        errors. Without ``discrepancy``, the fit is the plain posterior of the law as if
        it were exact: intervals leave out its misfit and its drift, so that they are
        too narrow for new models and stages (they have held 35% where 90% was stated);
        a forecast of a new size warns.
    seed
        Same seed, same machine: same numbers.
    chains, warmup, draws, max_draws
        Iterations of each chain. While R-hat or ESS fail, ``draws`` more are added, up
        to ``max_draws``. While too many draws diverge, they are drawn again with half
        the step size.
    experience
        Priors learned from fits of other tables: a kind of them (``"web-text"``,
        ``"code"``, ``"adaptation"``, ``"fine-tuning"``), a lab, a table, or ``"none"``
        for the law's own. By default, for up to 24 runs, the kind follows from the
        columns. The sources of the priors in ``fit.law.priors`` show which were taken.
    preview
        Draw by importance sampling (`importance`), without chains: about a second once
        compiled. The result says that it is a preview. Its diagnostics fail if k-hat is
        .7 or more, or if fewer than 400 draws are effective.
    progress
        Called with iterations done and to do.
    on_failure
        ``"raise"``, ``"warn"`` or ``"ignore"`` when the diagnostics fail.

    Raises
    ------
    RunTableError, LawError
        The table or a prior cannot be used.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.

    Examples
    --------
    >>> fitted = bayeslaw.fit(pretrained, "chinchilla", preview=True)
    >>> fitted.parameters().index[:3].tolist()
    ['E', 'A', 'B']
    """
    began = time.perf_counter()
    seed = arguments.seed
    runs = as_runs(arguments.runs)
    law = arguments.find(arguments.law, runs)
    fitting.check_fittable(
        law, runs, requested=arguments.requested, handful=len(runs) <= HANDFUL
    )
    runtime.start()
    training = TrainingRuns.of(law, runs, arguments.independent)
    problem = nuts.prepare(
        law,
        _table(law, runs, training, arguments),
        coordinates.contrast_points(law, training.covariates),
        seed,
    )
    _warn_outliers(law, runs, problem)
    chains, attrs = _sample(law, problem, arguments)
    attrs["settings"] = json.dumps(arguments.settings)
    attrs |= artifact.provenance(law, seed, "fit")
    result = Fit(law, to_arviz(law, runs, problem.table, chains, seed, attrs))
    if arguments.discrepancy:
        _add_misfit(result, runs, training, seed)
    doubts = result.goodness.doubts
    artifact.warn_each([*doubts, *other_signs(law, result.posterior, runs)])
    result.inference_data.attrs["seconds"] = time.perf_counter() - began
    artifact.raise_or_warn(
        result.warnings, arguments.on_failure, "--accept-diagnostics"
    )
    return result


def _table(
    law: Law, runs: pd.DataFrame, training: TrainingRuns, arguments: FitArguments
) -> Padded:
    """Build the training runs with their shared errors and their weights."""
    is_plain = not arguments.discrepancy
    errors = shared_error(runs) if is_plain else fitted_errors(law, runs)
    if arguments.independent:
        errors = errors.independent
    table = pad(training.covariates, training.y, errors)
    return table if is_plain else table.weighed(training.row_weights)


def _sample(
    law: Law, problem: nuts.WhitenedPosterior, arguments: FitArguments
) -> tuple[nuts.Chains, dict[str, Any]]:
    """Draw the posterior. Also returns the quality of the weights of importance-sampled
    draws.
    """
    seed = arguments.seed
    if arguments.preview:
        draws = arguments.chains * arguments.draws
        chains, quality = preview(law, problem, draws, seed)
        return chains, dict(quality.attrs)
    chains = nuts.sample(
        law, problem, arguments.nuts, seed=seed, progress=arguments.progress
    )
    instead = where_chains_disagree(law, problem, chains, seed)
    if instead is None:
        return chains, {}
    chains, quality = instead
    artifact.warn_each([quality.reason(law.name)])
    return chains, dict(quality.attrs)


def _add_misfit(
    result: Fit, runs: pd.DataFrame, training: TrainingRuns, seed: int
) -> None:
    """Learn the misfit of a fit's draws, and keep it and its drift in the fit's tree."""
    draws = artifact.draws_of(result.inference_data)
    misfit = learn_misfit(result.law, draws, training, seed=seed)
    if misfit is None:
        return
    saved = to_dataset(misfit, group_names(misfit, result.law, runs))
    # no stage is left out, so drifts are drawn from their prior
    known = training_range(training.covariates)
    rng = generator(seed, Stream.PRIOR_DRIFT)
    drifts = draw_from_prior(known, len(misfit.sigma), rng)
    saved[artifact.NAMES.drift] = (("draw_index", "side"), drifts)
    result.inference_data[artifact.NAMES.misfit] = DataTree(saved)


def _warn_outliers(law: Law, runs: pd.DataFrame, problem) -> None:
    """Warn of rows far off the law at the mode, in multiples of the median distance."""
    z = density.from_vector(law, problem.table.shared, np.asarray(problem.centre))
    n = len(runs)
    miss = point.misses(law, problem.table, problem.points, z)[:n]
    size = np.abs(miss)
    usual = np.median(size)
    row_sd = problem.table.shared.row_sd
    # a row may lie off by its stated error, in addition to the median distance
    allowed = 1.0 if row_sd is None else np.hypot(1.0, row_sd[:n] / usual)
    far = outliers(miss / allowed, 8.0)  # multiples of the median distance
    if far.any():
        rows = ", ".join(str(row) for row in runs.index[far][:5])
        lie = f"row {rows} lies" if far.sum() == 1 else f"rows {rows} lie"
        worst = float(size[far].max())
        warn(
            f"{lie} up to {worst:.1%} off law {law.name!r}, where half of the rows lie "
            f"within {usual:.1%}: look at them; the likelihood's heavy tails limit "
            "what they do",
            FitWarning,
        )
