"""``fit``: a table of runs and a law to a posterior, its diagnostics, and a file that outlives the session."""

from __future__ import annotations

import json
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _engine, _geometry, _runs
from bayeslaw._errors import DiagnosticsError, FitFileError, FitWarning, LawError
from bayeslaw._files import whole
from bayeslaw._formula import find_law, law_from_origin
from bayeslaw._law import Law
from bayeslaw._model import DOF_MIN, DOF_RATE, DOF_SHAPE, NOISE_SITES, SIGMA, log_loss
from bayeslaw._padding import pad
from bayeslaw._posterior import Piece
from bayeslaw._priors import Prior

if TYPE_CHECKING:
    from xarray import DataTree

MAX_RHAT, MIN_ESS, MAX_DIVERGENT = 1.01, 400, 0.001
OUTLIER_SD, OUTLIER_LOG = 8.0, 0.02  # warned about: this many noise scales and this far in log loss off the law
POINTWISE_LIMIT = 2e7  # draws x runs beyond which the pointwise arrays (kept in float32) are thinned
PACKAGES = ("bayeslaw", "numpyro", "jax", "numpy", "arviz-base", "arviz-stats")


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

    @property
    def posterior(self) -> dict[str, np.ndarray]:
        """Draws by name, each of shape (draw,), chains one after another."""
        return {str(k): v.to_numpy().reshape(-1) for k, v in self.inference_data["posterior"].data_vars.items()}

    @property
    def runs(self) -> pd.DataFrame:
        """The table the law was fitted to."""
        data = self.inference_data["constant_data"].to_dataset()
        return pd.DataFrame({str(k): v.to_numpy() for k, v in data.data_vars.items()}, index=data["run_row"].to_index())

    @property
    def seconds(self) -> float:
        return float(self.inference_data.attrs["seconds"])

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Mean, sd and central interval of each parameter in the paper's units, and of the noise."""
        names = [*self.law.parameters, "sigma", "dof"]
        draws = {n: self.posterior[n] for n in names}
        tail = (1 - prob) / 2
        rows = {
            n: {"mean": d.mean(), "sd": d.std(ddof=1), "low": np.quantile(d, tail), "high": np.quantile(d, 1 - tail)}
            for n, d in draws.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Largest R-hat, smallest bulk ESS over all sampled sites, divergences, leapfrog steps a draw, seconds."""
        posterior, stats = self.inference_data["posterior"], self.inference_data["sample_stats"]
        names = [str(n) for n in posterior.data_vars if _is_sampled(self.law, str(n))]
        sites = {n: posterior[n].to_numpy() for n in names}
        rhat, ess = rhat_and_ess(sites)
        divergent = stats["diverging"].to_numpy()
        return {
            "rhat": max(rhat.values()),
            "ess": min(ess.values()),
            "divergences": int(divergent.sum()),
            "divergent_share": float(divergent.mean()),
            "steps_per_draw": float(stats["n_steps"].to_numpy().mean()),
            "draws": int(divergent.size),
            "seconds": self.seconds,
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the diagnostics hold against this posterior, a line each; empty when they pass."""
        d, found = self.diagnostics, []
        if not d["rhat"] <= MAX_RHAT:
            found.append(
                f"R-hat {d['rhat']:.3f} is over {MAX_RHAT}: the chains disagree; draw more (--warmup, --draws)"
            )
        if not d["ess"] >= MIN_ESS:
            found.append(f"bulk ESS {d['ess']:.0f} is under {MIN_ESS}: too few effective draws; draw more (--draws)")
        if d["divergent_share"] > MAX_DIVERGENT:
            found.append(
                f"{d['divergences']} of {d['draws']} draws diverged: the posterior has a corner the sampler cannot "
                "enter; give the weakest exponent a tighter prior, or take a smaller law"
            )
        return tuple(f"law {self.law.name}: {line}" for line in found)

    def pieces(self) -> tuple[Piece, ...]:
        """All draws, under the one law."""
        names = [*self.law.priors, "sigma", "dof"]
        draws = self.posterior
        return (Piece(_log_loss_of(self.law), {n: draws[n] for n in names}, self.law.covariates),)

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run.

        Raises
        ------
        RunTableError
            The table lacks a column the law reads.
        """
        _engine.start()
        (piece,) = self.pieces()
        out = np.asarray(_over_draws(self.law)(piece.values, _runs.covariates(self.law, runs)))
        return out + new_run_noise(piece.values, out.shape[1], seed) if noise else out

    def save(self, path: str | Path) -> Path:
        """Write the fit to a netCDF file, whole or not at all."""
        path = Path(path)
        encoding = {
            f"/{group}": {
                str(v): {"zlib": True, "complevel": 4} for v, a in node.data_vars.items() if a.dtype.kind in "fib"
            }
            for group, node in self.inference_data.children.items()
        }
        with whole(path) as part:
            self.inference_data.to_netcdf(part, engine="h5netcdf", encoding=encoding)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Fit:
        """Read a fit back.

        Raises
        ------
        FitFileError
            The file is missing, is not a saved fit, or its law is no longer what it was.
        """
        import xarray

        if not Path(path).is_file():
            raise FitFileError(f"{path}: no such file; make it with `bayeslaw fit RUNS --law NAME -o {path}`")
        try:
            data = xarray.open_datatree(path, engine="h5netcdf").load()
            data.close()
            recipe = json.loads(data.attrs["law_recipe"])
        except (OSError, KeyError, ValueError) as error:
            raise FitFileError(f"{path}: not a fit saved by bayeslaw ({type(error).__name__})") from None
        return cls(_law_from_recipe(recipe, path), data)


def _is_sampled(law: Law, name: str) -> bool:
    return name in NOISE_SITES or (name in law.priors and not law.priors[name].is_fixed)


def _draw_log_loss(law: Law, draw, covariates):
    return log_loss(law, covariates, draw)


@lru_cache(maxsize=64)
def _log_loss_of(law: Law) -> Callable:
    """The law's log loss of one draw; one function for each law, so that what is compiled over it is found again."""
    return partial(_draw_log_loss, law)


@lru_cache(maxsize=64)
def _over_draws(law: Law) -> Callable:
    """Compiled map over draws of the law's log loss at a table, shape (draw, run)."""
    return jax.jit(jax.vmap(_log_loss_of(law), in_axes=(0, None)))


def new_run_noise(values: Mapping[str, np.ndarray], runs: int, seed: int) -> np.ndarray:
    """Student-t noise of a new run on log loss, shape (draw, run)."""
    dof, sigma = values["dof"][:, None], values["sigma"][:, None]
    return sigma * np.random.default_rng(seed).standard_t(dof, size=(len(sigma), runs))


def rhat_and_ess(sites: Mapping[str, np.ndarray]) -> tuple[dict[str, float], dict[str, float]]:
    """Rank-normalised R-hat and bulk ESS of each site (chain, draw), as ArviZ computes them (Vehtari 2021)."""
    import arviz_stats.base

    stats: Any = arviz_stats.base.array_stats  # type: ignore[attr-defined]
    rhat = {k: float(stats.rhat(v, method="rank", chain_axis=0, draw_axis=1)) for k, v in sites.items()}
    return rhat, {k: float(stats.ess(v, method="bulk", chain_axis=0, draw_axis=1)) for k, v in sites.items()}


def fit(
    runs: pd.DataFrame,
    law: Law | str,
    *,
    priors: Mapping[str, Prior | str] | None = None,
    reference: Mapping[str, float] | None = None,
    seed: int = 0,
    chains: int = 4,
    warmup: int = 1000,
    draws: int = 1000,
    max_draws: int = 4000,
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
    seed
        Same seed, same machine: same numbers.
    chains, warmup, draws, max_draws
        Iterations per chain. While R-hat or ESS fail, ``draws`` more are added, up to ``max_draws``; while too many
        diverge, they are drawn again at half the step size.
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
    table, at = pad(x, y), _geometry.anchors(law, x)
    problem = _sampler.prepare(law, table, at, seed)
    _warn_outliers(law, runs, problem)
    total = warmup + draws

    def enough(sites: dict[str, np.ndarray]) -> bool:
        rhat, ess = rhat_and_ess(sites)
        return max(rhat.values()) <= MAX_RHAT and min(ess.values()) >= MIN_ESS

    chains_drawn = _sampler.sample(
        law,
        problem,
        seed=seed,
        chains=chains,
        warmup=warmup,
        draws=draws,
        max_draws=max_draws,
        max_divergent=MAX_DIVERGENT,
        is_enough=enough,
        progress=lambda done: progress(done, max(total, done)) if progress else None,
    )
    attrs = _provenance(law, seed, chains_drawn.stats["n_steps"].shape)
    result = Fit(law, _to_arviz(law, runs, y, chains_drawn, seed, attrs))
    result.inference_data.attrs["seconds"] = time.perf_counter() - began
    if result.warnings and on_failure == "raise":
        raise DiagnosticsError("; ".join(result.warnings) + "; or accept as it is (--accept-diagnostics)")
    if result.warnings and on_failure == "warn":
        for line in result.warnings:
            warnings.warn(line, FitWarning, stacklevel=2)
    return result


def _warn_outliers(law: Law, runs: pd.DataFrame, problem) -> None:
    from bayeslaw import _point, _sampler

    z = dict(zip(_sampler.site_names(law), problem.centre, strict=True))
    n = len(runs)
    miss = np.asarray(_point.misses(law, problem.table, problem.at, z))[:n]
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


def _provenance(law: Law, seed: int, shape: tuple[int, ...]) -> dict:
    recipe = {
        "name": law.name,
        "version": law.version,
        "origin": law.origin,
        "priors": {n: str(p) for n, p in law.priors.items()},
        "reference": dict(law.reference),
    }
    return {
        "law": law.name,
        "law_version": law.version,
        "law_recipe": json.dumps(recipe),
        "seed": seed,
        "versions": json.dumps({p: version(p) for p in PACKAGES} | {"python": platform.python_version()}),
    }


def _law_from_recipe(recipe: dict, path: str | Path) -> Law:
    try:
        base = law_from_origin(recipe["name"], recipe["origin"])
    except LawError as error:
        raise FitFileError(f"{path}: was fitted with a law that is not here: {error}") from None
    if base.version != recipe["version"]:
        raise FitFileError(
            f"{path}: was fitted with version {recipe['version']} of law {base.name!r}, here is version {base.version}; "
            "fit again"
        )
    changed = {n: p for n, p in recipe["priors"].items() if str(base.priors.get(n)) != p}
    moved = {c: v for c, v in recipe["reference"].items() if base.reference[c] != v}
    return base.with_priors(changed).with_reference(moved) if changed or moved else base


@lru_cache(maxsize=64)
def _derived(law: Law) -> Callable:
    """Compiled: unconstrained sites of one draw to everything the artifact keeps about it."""

    def one(u, covariates, y):
        values = _geometry.constrain(law, u)
        noise = {"sigma": jnp.exp(u["sigma"]), "dof_above_2": jnp.exp(u["dof_above_2"])}
        dof = DOF_MIN + noise["dof_above_2"]
        mean = log_loss(law, covariates, values)
        z = (y - mean) / noise["sigma"]
        log_norm = jax.scipy.special.gammaln((dof + 1) / 2) - jax.scipy.special.gammaln(dof / 2)
        log_norm = log_norm - 0.5 * jnp.log(dof * jnp.pi) - jnp.log(noise["sigma"])
        density = {n: p.distribution().log_prob(values[n]) for n, p in law.priors.items() if not p.is_fixed}
        density["sigma"] = SIGMA.distribution().log_prob(noise["sigma"])
        density["dof_above_2"] = jax.scipy.stats.gamma.logpdf(noise["dof_above_2"], DOF_SHAPE, scale=1 / DOF_RATE)
        return {
            "posterior": law.to_paper(values) | values | noise | {"dof": dof},
            "log_prior": density,
            "mean": mean,
            "log_likelihood": log_norm - (dof + 1) / 2 * jnp.log1p(z**2 / dof),
        }

    return jax.jit(jax.vmap(one, in_axes=(0, None, None)))


def _to_arviz(law: Law, runs: pd.DataFrame, y: np.ndarray, drawn, seed: int, attrs: dict) -> DataTree:
    from arviz_base import from_dict

    shape = drawn.stats["n_steps"].shape
    flat = {k: v.reshape(-1) for k, v in drawn.sites.items()}
    kept = _derived(law)(flat, _runs.covariates(law, runs), y)

    def by_chain(a) -> np.ndarray:
        a = np.asarray(a)
        return a.reshape(*shape, *a.shape[1:])

    posterior = {k: by_chain(v) for k, v in kept["posterior"].items()}
    noise = new_run_noise({k: np.asarray(kept["posterior"][k]) for k in ("sigma", "dof")}, len(y), seed)
    thin = max(1, int(np.ceil(noise.size / POINTWISE_LIMIT)))
    predictive = by_chain(np.asarray(kept["mean"]) + noise)[:, ::thin].astype(np.float32)
    table = {str(c): _storable(runs[c]) for c in runs.columns}
    groups = {
        "posterior": posterior,
        "sample_stats": dict(drawn.stats),
        "log_prior": {k: by_chain(v) for k, v in kept["log_prior"].items()},
        "log_likelihood": {"log_loss": by_chain(kept["log_likelihood"])[:, ::thin].astype(np.float32)},
        "posterior_predictive": {"log_loss": predictive},
        "observed_data": {"log_loss": y},
        "constant_data": table,
    }
    dims = {"log_loss": ["run_row"]} | {c: ["run_row"] for c in table}
    tree = from_dict(groups, dims=dims, coords={"run_row": runs.index.to_numpy()})
    tree.attrs.update(attrs)
    return tree


def _storable(column: pd.Series) -> np.ndarray:
    return column.to_numpy(float) if pd.api.types.is_numeric_dtype(column) else column.astype(str).to_numpy(object)
