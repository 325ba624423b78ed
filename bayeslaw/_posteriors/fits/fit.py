"""Fit a law to runs: sample its posterior, learn its misfit, check diagnostics."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from xarray import DataTree

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import FitWarning, warn
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.progress.time_left import Progress
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference import coordinates, density, nuts, point
from bayeslaw._inference.discrepancy.drift import draw_from_prior, training_range
from bayeslaw._inference.likelihood import (
    constrain_error,
    draw_effects,
    log_prior,
    pointwise,
)
from bayeslaw._inference.modes import Peak, find_peaks, start_near_mode
from bayeslaw._inference.noise import ERROR, RunNoise
from bayeslaw._inference.nuts import NUTS
from bayeslaw._inference.table import (
    Padded,
    at_once,
    group_labels,
    pad,
    shared_error,
)
from bayeslaw._inference.weighted import preview, where_chains_disagree
from bayeslaw._law.law import NATS, Law, log_loss
from bayeslaw._law.priors import Prior
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.artifact import EFFECTS
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._posteriors.fits.goodness import other_signs
from bayeslaw._posteriors.fits.misfit import (
    TrainingRuns,
    fitted_errors,
    learn_misfit,
    to_dataset,
)
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._posteriors.prior import choose_priors
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs
from bayeslaw._tables.surface import outliers

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class SamplingArguments:
    """Arguments that `fit` and `pool` share, documented in `fit`."""

    priors: Mapping[str, Prior | str] | None = None
    reference: Mapping[str, float] | None = None
    chains: int = NUTS.chains
    warmup: int = NUTS.warmup
    draws: int = NUTS.draws
    max_draws: int | None = 4000
    seed: int = 0
    progress: Progress | None = None
    on_failure: str = "raise"

    @property
    def nuts(self) -> NUTS:
        return NUTS(self.chains, self.warmup, self.draws, self.max_draws)

    @property
    def requested(self) -> list[str]:
        """List the parameters whose priors were replaced."""
        return [name.removesuffix(NATS) for name in self.priors or {}]

    def replace_priors(self, law: Law) -> Law:
        if not (self.priors or self.reference):
            return law
        return law.with_priors(self.priors or {}).with_reference(self.reference or {})


@dataclass(frozen=True, eq=False)
class FitArguments(SamplingArguments):
    # documented in `fit`

    runs: Table | str | Path
    law: Law | str | None = None
    _: KW_ONLY
    independent: bool = False
    discrepancy: bool = True
    preview: bool = False
    experience: str | None = None

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
        Columns to replace of the reference run, at which priors are stated in nats:
        those of a run near yours, ``{"N": 100_000, "D": 1_000_000}``.
    independent
        No error shared by rows of one checkpoint or run. By default rows of one
        checkpoint (column ``checkpoint``, else N and ptpp) share an effect, rows of one
        ``run`` share another, and errors of neighbours on a learning curve are
        correlated.
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
        for the law's own; by default, for up to 24 runs, the kind follows from the
        columns. The sources of the priors in ``fit.law.priors`` show which were taken.
    preview
        Draw by importance sampling (`importance`) in place of chains: about a second
        once compiled, and marked as a preview. Its diagnostics fail if k-hat is .7 or
        more, or if fewer than 400 draws are effective.
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
    law = law_for(arguments.law, runs)
    # priors that a user states in nats are stated at the law's own run
    stated = arguments.reference or (law.reference if arguments.priors else None)
    law = choose_priors(law, runs, arguments.experience, reference=stated).law
    law = arguments.replace_priors(law)
    fitting.check_fittable(law, runs, requested=arguments.requested, handful=True)
    runtime.start()
    training = TrainingRuns.of(law, runs, arguments.independent)
    is_plain = not arguments.discrepancy
    errors = shared_error(runs) if is_plain else fitted_errors(law, runs)
    if arguments.independent:
        errors = errors.independent
    table = pad(training.covariates, training.y, errors)
    if not is_plain:
        table = table.weighed(training.row_weights)
    points = coordinates.contrast_points(law, training.covariates)
    start = start_near_mode(law, table, points, seed)
    peaks = find_peaks(law, table, points, start[None])
    problem = nuts.whitened_at(table, points, peaks[0])
    _warn_outliers(law, runs, problem)
    chains, attrs = _sample(law, problem, peaks, arguments)
    attrs["settings"] = json.dumps(arguments.settings)
    attrs |= artifact.provenance(law, seed, "fit")
    tree = to_arviz(law, runs, problem.table, chains, seed, attrs)
    if arguments.discrepancy:
        misfit = learn_misfit(law, artifact.draws_of(tree), training, seed=seed)
        if misfit is not None:
            groups = {}
            for kind in misfit.tau:
                of_rows = group_labels(kind, runs, law.untuned)
                assert of_rows is not None
                groups[kind] = list(np.unique(of_rows.to_numpy(str)))
            saved = to_dataset(misfit, groups)
            # no stage is left out, so drifts are drawn from their prior
            known = training_range(training.covariates)
            rng = generator(seed, Stream.PRIOR_DRIFT)
            drifts = draw_from_prior(known, len(misfit.sigma), rng)
            saved[artifact.NAMES.drift] = (("draw_index", "side"), drifts)
            tree[artifact.NAMES.misfit] = DataTree(saved)
    result = Fit(law, tree)
    doubts = result.goodness.doubts
    artifact.warn_each([*doubts, *other_signs(law, result.posterior, runs)])
    tree.attrs["seconds"] = time.perf_counter() - began
    artifact.raise_or_warn(
        result.warnings, arguments.on_failure, "--accept-diagnostics"
    )
    return result


def _sample(
    law: Law,
    problem: nuts.WhitenedPosterior,
    peaks: Sequence[Peak],
    arguments: FitArguments,
) -> tuple[nuts.Chains, dict[str, Any]]:
    """Draw the posterior; of importance-sampled draws, also their weights' quality."""
    seed = arguments.seed
    if arguments.preview:
        draws = arguments.chains * arguments.draws
        chains, quality = preview(law, problem, peaks, draws, seed)
        return chains, dict(quality.attrs)
    chains = nuts.sample(
        law, problem, arguments.nuts, seed=seed, progress=arguments.progress
    )
    instead = where_chains_disagree(law, problem, peaks, chains, seed)
    if instead is None:
        return chains, {}
    chains, quality = instead
    artifact.warn_each([quality.reason(law.name)])
    return chains, dict(quality.attrs)


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
        # misses are of the law minus the row
        worst = np.abs(np.expm1(-miss[far])).max()
        warn(
            f"{lie} up to {worst:.1%} off law {law.name!r}, where half of the rows lie "
            f"within {usual:.1%}: look at them; the likelihood's heavy tails limit "
            "what they do",
            FitWarning,
        )


# -- the artifact ----------------------------------------------------------------------


@compiled(static_argnums=(0, 1))
def _derived(law: Law, batch: int, u, seed, table: Padded):
    """Compute what the artifact keeps about each draw, from its unconstrained sites."""
    shared = table.shared

    def one(draw):
        u, key = draw
        values = coordinates.constrain(law, u)
        error = constrain_error(u, shared)
        effects = {}
        if shared.kind is not None:
            mean = log_loss(law, table.covariates, values)
            name = EFFECTS[shared.kind]
            effects[name] = draw_effects(
                key, mean, table.y, table.weight, error, shared
            )
        # the sampler's scales of errors may be negative
        scalars = {name: jnp.abs(v) for name, v in error.items()}
        scalars["dof"] = ERROR.dof_min + error["dof_above_2"]
        return {
            "posterior": law.to_paper(values) | values | scalars | effects,
            "log_prior": log_prior(law, values, error, shared),
        }

    draws = len(next(iter(u.values())))
    keys = jax.random.split(jax.random.PRNGKey(seed), draws)
    return jax.lax.map(one, (u, keys), batch_size=batch)


# for thinned draws the faster program would gain less than its compilation costs
@compiled(static_argnums=(0, 1), many=60_000)
def _at_runs(law: Law, batch: int, u, effects, table: Padded):
    """Compute the mean and log likelihood of every row in float32."""
    shared = table.shared

    def one(draw):
        u, effects = draw
        values = coordinates.constrain(law, u)
        error = constrain_error(u, shared)
        mean = log_loss(law, table.covariates, values)
        effect = jnp.zeros(())
        if effects is not None:
            effect = effects[shared.group.code]
        likelihood = pointwise(mean, table.y, effect, error, shared)
        centre = mean + effect
        return centre.astype(jnp.float32), likelihood.astype(jnp.float32)

    return jax.lax.map(one, (u, effects), batch_size=batch)


def to_arviz(
    law: Law, runs: pd.DataFrame, table: Padded, chains, seed: int, attrs: dict
) -> DataTree:
    """Build the tree of a fit. ``chains`` has the draws' unconstrained sites and the
    sampler's statistics, each of shape (chain, draw).
    """
    shape, n = chains.stats["n_steps"].shape, len(runs)
    draws, batch = shape[0] * shape[1], at_once(table)
    u = {name: v.reshape(-1) for name, v in chains.sites.items()}
    derived = jax.tree.map(np.asarray, _derived(law, batch, u, seed, table))
    posterior = derived["posterior"]

    # the pointwise arrays (float32) keep at most 5e6 values, draws x runs
    thin = max(1, int(np.ceil(draws * n / 5e6)))
    kept = np.arange(draws).reshape(shape)[:, ::thin]
    at = kept.ravel()
    effects = posterior.get(EFFECTS.get(table.shared.kind or "", ""))
    mean, likelihood = _at_runs(
        law,
        batch,
        {name: v[at] for name, v in u.items()},
        None if effects is None else effects[at],
        table,
    )
    run_noise = RunNoise.of({name: v[at] for name, v in posterior.items()})
    new_errors = run_noise.draw(n, generator(seed, Stream.REPLICATED))
    if table.shared.row_sd is not None:
        new_errors *= run_noise.size_with(
            np.ones(n), np.asarray(table.shared.row_sd)[:n]
        )
    predictive = np.asarray(mean)[:, :n] + new_errors
    pointwise_shape = (*kept.shape, n)
    groups = {
        "posterior": _by_chain(posterior, shape),
        "sample_stats": dict(chains.stats),
        "log_prior": _by_chain(derived["log_prior"], shape),
        "log_likelihood": {
            "log_loss": np.asarray(likelihood)[:, :n].reshape(pointwise_shape)
        },
        "posterior_predictive": {
            "log_loss": predictive.astype(np.float32).reshape(pointwise_shape)
        },
        "observed_data": {"log_loss": table.y[:n]},
    }
    dims = {"log_loss": ["run_row"]}
    coords: dict[str, Any] = {"run_row": runs.index.to_numpy()}
    kind = table.shared.kind
    if kind is not None:
        name, label = EFFECTS[kind], f"{kind}_label"
        row_labels = group_labels(kind, runs, law.untuned)
        assert row_labels is not None
        # sorted, which is the order of `SharedError`'s codes
        levels = np.unique(row_labels.to_numpy(str))
        posterior_group = groups["posterior"]
        posterior_group[name] = posterior_group[name][..., : len(levels)]
        dims[name] = [label]
        coords[label] = np.asarray(levels, object)
    tree = artifact.tree_of(groups, dims, coords)
    tree["constant_data"] = artifact.constant_data(runs)
    tree.attrs.update(attrs)
    return tree


def _by_chain(
    draws: dict[str, Float[np.ndarray, "sample ..."]], shape: tuple[int, int]
) -> dict[str, Float[np.ndarray, "chain draw ..."]]:
    """Reshape draws from (chain x draw, ...) to (chain, draw, ...)."""
    return {name: v.reshape(*shape, *v.shape[1:]) for name, v in draws.items()}
