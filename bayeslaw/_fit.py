"""``fit``: a table of runs and a law to a posterior, its diagnostics, and a file that outlives the session."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _artifact, _engine, _geometry, _runs
from bayeslaw._diagnostics import MIN_ESS, TRUSTED_K
from bayeslaw._engine import WARMUP
from bayeslaw._errors import FitWarning, LawError
from bayeslaw._formula import find_law
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, constrain_error, draw_effects, log_loss, log_loss_of, log_prior, pointwise
from bayeslaw._padding import Padded, at_once, pad
from bayeslaw._posterior import Piece, new_run_scale, over_draws
from bayeslaw._priors import Prior
from bayeslaw._shared_error import NONE, labels, shared_error

if TYPE_CHECKING:
    from xarray import DataTree

    from bayeslaw import _sampler

OUTLIER_SD, OUTLIER_LOG = 8.0, 0.02  # warned about: this many noise scales and this far in log loss off the law
POINTWISE_LIMIT = 2e7  # draws x runs beyond which the pointwise arrays (kept in float32) are thinned
NOISE = ("sigma", "dof", "tau_checkpoint", "tau_run", "run_length")  # of the error, beside the law's parameters
EFFECTS = {"checkpoint": "checkpoint_effect", "run": "run_effect"}  # of each group of rows that share one
REMEDY = "the posterior has a corner the sampler cannot enter; give the weakest exponent a tighter prior, or take a smaller law"


@dataclass(frozen=True, eq=False)
class Fit:
    """A posterior of one law on one table.

    Parameters
    ----------
    law
        The law as fitted, with its priors.
    inference_data
        ArviZ data (a DataTree): ``posterior`` (contributions in nats, exponents, noise, and the paper's own
        parameters; chain x draw), ``sample_stats``, ``log_likelihood``, ``log_prior``, ``posterior_predictive``,
        ``observed_data`` (log loss) and ``constant_data`` (the run table).
    """

    law: Law
    inference_data: DataTree

    def __repr__(self) -> str:
        return f"Fit({self.law.name!r} on {len(self.runs)} runs, {len(self.posterior['sigma'])} draws)"

    @property
    def name(self) -> str:
        """Name of the law."""
        return self.law.name

    @property
    def posterior(self) -> dict[str, np.ndarray]:
        """Draws by name, each of shape (draw, ...), chains one after another."""
        return _artifact.draws_of(self.inference_data)

    @property
    def runs(self) -> pd.DataFrame:
        """The table the law was fitted to."""
        return _artifact.runs_of(self.inference_data)

    @property
    def seconds(self) -> float:
        return float(self.inference_data.attrs["seconds"])

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Mean, sd and central interval of each parameter in the paper's units, and of the noise."""
        posterior = self.posterior
        draws = {n: posterior[n] for n in (*self.law.parameters, *NOISE) if n in posterior}
        tail = (1 - prob) / 2
        rows = {
            n: {"mean": d.mean(), "sd": d.std(ddof=1), "low": np.quantile(d, tail), "high": np.quantile(d, 1 - tail)}
            for n, d in draws.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def is_preview(self) -> bool:
        """Whether it was drawn without chains, by importance sampling."""
        return "preview_khat" in self.inference_data.attrs

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Largest R-hat, smallest bulk ESS over all sampled sites, divergences, leapfrog steps a draw, seconds.

        Of a preview: no R-hat, effective draws of its weights, and their ``khat``.
        """
        if self.is_preview:
            a, stats = self.inference_data.attrs, self.inference_data["sample_stats"]
            known = {"rhat": float("nan"), "ess": float(a["preview_ess"]), "khat": float(a["preview_khat"])}
            none = {"divergences": 0, "divergent_share": 0.0, "steps_per_draw": 0.0}
            return known | none | {"draws": int(stats["diverging"].size), "seconds": self.seconds}
        posterior = self.inference_data["posterior"]
        sampled = [n for n in (*self.law.priors, *NOISE, *EFFECTS.values()) if n in posterior and not self._is_fixed(n)]
        return _artifact.diagnostics_of(self.inference_data, sampled)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the diagnostics hold against this posterior, a line each; empty when they pass."""
        if self.is_preview:
            d = self.diagnostics
            good = d["khat"] < TRUSTED_K and d["ess"] >= MIN_ESS
            line = f"law {self.law.name}: a preview not to be trusted (k-hat {d['khat']:.2f}, {d['ess']:.0f} effective draws); "
            return () if good else (line + "fit it without preview",)
        return _artifact.doubts(f"law {self.law.name}", self.diagnostics, REMEDY, dash="--")

    def _is_fixed(self, name: str) -> bool:
        return name in self.law.priors and self.law.priors[name].is_fixed

    def pieces(self) -> tuple[Piece, ...]:
        """All draws, under the one law; a new run's noise includes the effects of a new checkpoint and a new run, whose
        scales are told beside it.
        """
        draws = self.posterior
        values = {n: draws[n] for n in (*self.law.priors, *NOISE) if n in draws}
        values["sigma"] = new_run_scale(draws)
        return (Piece(log_loss_of(self.law), values, self.law.covariates),)

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run.

        Rows of a checkpoint or a run that the fit has seen have its effect, those of another a new one.

        Raises
        ------
        RunTableError
            The table lacks a column the law reads.
        """
        _engine.start()
        (piece,) = self.pieces()
        out = np.asarray(over_draws(piece.log_loss)(piece.values, _runs.covariates(self.law, runs)))
        if not noise:
            return out
        rng = np.random.default_rng(seed)
        out = out + new_run_noise(self.posterior, len(runs), rng)
        return out + sum(self._effect(kind, runs, rng) for kind in EFFECTS)

    def _effect(self, kind: str, runs: pd.DataFrame, rng: np.random.Generator) -> np.ndarray | float:
        """Draws of the effect of each row's checkpoint or run, shape (draw, row)."""
        name = EFFECTS[kind]
        if name not in self.inference_data["posterior"]:
            return 0.0
        known, tau = self.posterior[name], self.posterior[f"tau_{kind}"]
        at = {str(v): i for i, v in enumerate(self.inference_data["posterior"][name][f"{kind}_label"].to_numpy())}
        given = labels(kind, runs)
        wanted = np.arange(len(runs)) if given is None else given.to_numpy()  # untold, every row has its own
        codes, groups = pd.factorize(wanted)
        drawn = tau[:, None] * rng.standard_normal((len(tau), len(groups)))
        for i, group in enumerate(map(str, groups)):
            if given is not None and group in at:
                drawn[:, i] = known[:, at[group]]
        return drawn[:, codes]

    def save(self, path: str | Path) -> Path:
        """Write the fit to a netCDF file, whole or not at all."""
        return _artifact.write(self.inference_data, path)

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read a fit back.

        Raises
        ------
        FitFileError
            The file is missing, is not a saved fit, or its law is no longer what it was.
        """
        return cls(*_artifact.read(path, "fit", f"make it with `bayeslaw fit RUNS --law NAME -o {path}`"))


def new_run_noise(values: Mapping[str, np.ndarray], runs: int, rng: np.random.Generator) -> np.ndarray:
    """Student-t noise of a new run on log loss, shape (draw, run)."""
    dof, sigma = values["dof"][:, None], values["sigma"][:, None]
    return sigma * rng.standard_t(dof, size=(len(sigma), runs))


def fit(
    runs: pd.DataFrame,
    law: Law | str,
    *,
    priors: Mapping[str, Prior | str] | None = None,
    reference: Mapping[str, float] | None = None,
    independent: bool = False,
    seed: int = 0,
    chains: int = 4,
    warmup: int = WARMUP,
    draws: int = 1000,
    max_draws: int = 4000,
    preview: bool = False,
    progress: Callable[[int, int], None] | None = None,
    on_failure: str = "raise",
) -> Fit:
    """Sample the posterior of a law on a table of runs.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it.
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    priors
        Priors to replace, by name: a `Prior` or its text. Naming an exponent also allows one level of its column.
    reference
        Columns of the reference run to replace.
    independent
        Take every row's error as its own. By default rows of one checkpoint (column ``checkpoint``, else N and ptpp)
        share an effect, those of one ``run`` another, and neighbours on a learning curve are correlated.
    seed
        Same seed, same machine: same numbers.
    chains, warmup, draws, max_draws
        Iterations per chain. While R-hat or ESS fail, ``draws`` more are added, up to ``max_draws``; while too many
        diverge, they are drawn again at half the step size.
    preview
        Draw without chains, by importance sampling (`_approximate`): about a second once compiled. The result says that
        it is a preview, and its diagnostics fail where k-hat is .7 or more or fewer than 400 draws are effective.
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
    """
    began = time.perf_counter()
    law = find_law(law) if isinstance(law, str) else law
    law = law.with_priors(priors or {}).with_reference(reference or {}) if priors or reference else law
    _runs.check_fittable(law, runs, requested=[n.removesuffix("_nats") for n in priors or {}])
    _engine.start()
    from bayeslaw import _sampler

    x, y = _runs.covariates(law, runs), np.log(_runs.losses(runs))
    table, at = pad(x, y, NONE if independent else shared_error(runs)), _geometry.anchors(law, x)
    problem = _sampler.prepare(law, table, at, seed)
    _warn_outliers(law, runs, problem)
    attrs = _artifact.provenance(law, seed, "fit")
    if preview:
        drawn, quality = _previewed(law, problem, chains * draws, seed)
        attrs |= quality
    else:
        drawn = _sampler.sample(
            law,
            problem,
            seed=seed,
            chains=chains,
            warmup=warmup,
            draws=draws,
            max_draws=max_draws,
            progress=progress,
        )
    result = Fit(law, _to_arviz(law, runs, table, drawn, seed, attrs))
    result.inference_data.attrs["seconds"] = time.perf_counter() - began
    _artifact.settle(result.warnings, on_failure, "--accept-diagnostics")
    return result


def _previewed(law: Law, problem, draws: int, seed: int) -> tuple[_sampler.Chains, dict[str, float]]:
    """Draws by importance sampling as if of one chain, and how good their weights are."""
    from bayeslaw import _sampler
    from bayeslaw._approximate import approximate, sites_at

    found = approximate(law, problem.table, problem.at, problem.centre[None], seed=seed)
    if not len(found.weight):
        raise LawError(f"law {law.name!r}: no posterior mode was found to preview around; fit it without preview")
    sites = sites_at(law, problem.table, problem.at, found.vectors[found.chosen(draws, seed)])
    stats = {"n_steps": np.zeros((1, draws), int), "diverging": np.zeros((1, draws), bool)}
    chains = _sampler.Chains({n: np.asarray(v)[None] for n, v in sites.items()}, stats)
    return chains, {"preview_khat": found.k, "preview_ess": found.ess}


def _warn_outliers(law: Law, runs: pd.DataFrame, problem) -> None:
    from bayeslaw import _density, _point

    z = _density.from_vector(law, problem.table.shared, problem.centre)
    n = len(runs)
    miss = _point.misses(law, problem.table, problem.at, z)[:n]
    far = np.abs(miss) > max(OUTLIER_SD * np.median(np.abs(miss)), OUTLIER_LOG)
    if 0 < far.sum() <= max(5, n // 20):
        rows = ", ".join(str(r) for r in runs.index[far][:5])
        lie = "row {} lies" if far.sum() == 1 else "rows {} lie"
        worst = float(np.abs(miss[far]).max())
        warnings.warn(
            f"{lie.format(rows)} up to {worst:.1%} off law {law.name!r}, where half of the rows lie within "
            f"{np.median(np.abs(miss)):.1%}: look at them; the likelihood's heavy tails limit what they do",
            FitWarning,
            stacklevel=3,
        )


# -- the artifact ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _derived(law: Law, batch: int) -> Callable:
    """Compiled: unconstrained sites of draws, and keys, to what the artifact keeps about each draw."""

    def one(u, key, table: Padded):
        values, error = _geometry.constrain(law, u), constrain_error(u, table.shared)
        drawn, kind = {}, table.shared.kind
        if kind is not None:
            mean = log_loss(law, table.covariates, values)
            drawn[EFFECTS[kind]] = draw_effects(key, mean, table.y, table.weight, error, table.shared)
        scalars = {k: jnp.abs(v) for k, v in error.items()} | {"dof": DOF_MIN + error["dof_above_2"]}
        return {
            "posterior": law.to_paper(values) | values | scalars | drawn,
            "log_prior": log_prior(law, values, error, table.shared),
        }

    return jax.jit(lambda u, keys, table: jax.lax.map(lambda d: one(d[0], d[1], table), (u, keys), batch_size=batch))


@lru_cache(maxsize=64)
def _at_runs(law: Law, batch: int) -> Callable:
    """Compiled: sites of draws, and effects of their groups, to mean and log likelihood of every row, in float32."""

    def one(u, effects, table: Padded):
        values, error = _geometry.constrain(law, u), constrain_error(u, table.shared)
        mean = log_loss(law, table.covariates, values)
        effect = jnp.zeros(()) if effects is None else effects[table.shared.group.code]
        likelihood = pointwise(mean, table.y, effect, error, table.shared)
        return (mean + effect).astype(jnp.float32), likelihood.astype(jnp.float32)

    return jax.jit(
        lambda u, effects, table: jax.lax.map(lambda d: one(d[0], d[1], table), (u, effects), batch_size=batch)
    )


def _to_arviz(law: Law, runs: pd.DataFrame, table: Padded, drawn, seed: int, attrs: dict) -> DataTree:
    from arviz_base import from_dict

    shape, n = drawn.stats["n_steps"].shape, len(runs)
    draws, batch = shape[0] * shape[1], at_once(table)
    u = {k: v.reshape(-1) for k, v in drawn.sites.items()}
    kept = jax.tree.map(np.asarray, _derived(law, batch)(u, jax.random.split(jax.random.PRNGKey(seed), draws), table))
    posterior = {k: v.reshape(*shape, *v.shape[1:]) for k, v in kept["posterior"].items()}
    thin = max(1, int(np.ceil(draws * n / POINTWISE_LIMIT)))
    few = np.arange(draws).reshape(shape)[:, ::thin]
    at = few.ravel()
    effects = kept["posterior"].get(EFFECTS.get(table.shared.kind or "", ""))
    mean, likelihood = _at_runs(law, batch)(
        {k: v[at] for k, v in u.items()}, None if effects is None else effects[at], table
    )
    noise = new_run_noise({k: kept["posterior"][k][at] for k in ("sigma", "dof")}, n, np.random.default_rng(seed))
    predictive = (np.asarray(mean)[:, :n] + noise).astype(np.float32).reshape(*few.shape, n)
    columns = _artifact.columns_of(runs)
    groups = {
        "posterior": posterior,
        "sample_stats": dict(drawn.stats),
        "log_prior": {k: v.reshape(*shape, *v.shape[1:]) for k, v in kept["log_prior"].items()},
        "log_likelihood": {"log_loss": np.asarray(likelihood)[:, :n].reshape(*few.shape, n)},
        "posterior_predictive": {"log_loss": predictive},
        "observed_data": {"log_loss": table.y[:n]},
        "constant_data": columns,
    }
    dims = {"log_loss": ["run_row"]} | {c: ["run_row"] for c in columns}
    coords: dict[str, Any] = {"run_row": runs.index.to_numpy()}
    if (kind := table.shared.kind) is not None:
        named, label = labels(kind, runs), f"{kind}_label"
        assert named is not None
        levels = np.unique(named.to_numpy(str))  # in the order of `SharedError`'s codes
        posterior[EFFECTS[kind]] = posterior[EFFECTS[kind]][..., : len(levels)]
        dims, coords = dims | {EFFECTS[kind]: [label]}, coords | {label: np.asarray(levels, object)}
    tree = from_dict(groups, dims=dims, coords=coords)
    tree.attrs.update(attrs)
    return tree
