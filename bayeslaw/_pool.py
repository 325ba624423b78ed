"""``pool``: one law fitted to several domains at once, each with its own parameters, drawn from one population.

A domain with few runs borrows strength from the others and says how much; a domain without runs is forecast from the
population alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw import _artifact, _engine, _runs
from bayeslaw._engine import WARMUP
from bayeslaw._errors import FitWarning, LawError, RunTableError
from bayeslaw._fit import new_run_noise
from bayeslaw._formula import find_law
from bayeslaw._law import NATS, Law
from bayeslaw._model import DOF_MIN, log_loss_of
from bayeslaw._padding import pad
from bayeslaw._pool_sampler import POOLED, Domains, own_shares, pooled_priors, prepare, values_of
from bayeslaw._posterior import Piece, over_draws
from bayeslaw._priors import Prior
from bayeslaw._sampler import sample
from bayeslaw._shared_error import shared_error

if TYPE_CHECKING:
    from xarray import DataTree

FEW_DOMAINS = 4  # below which the spread between domains is hardly told
BORROWED = 0.5  # weight of its own runs below which a domain's parameter is said to be borrowed
REMEDY = "give the population a tighter prior (priors, spread), or take a smaller law"  # of divergences
SHARE_DRAWS = 200  # of the spreads, over which the weight of a domain's own runs is averaged


@dataclass(frozen=True, eq=False)
class DomainPosterior:
    """One domain's share of a `Pool`: forecast, check and plan take it like a `Fit`.

    Parameters
    ----------
    values
        Draws of the law's values, ``sigma`` and ``dof``, each of shape (draw,).
    domain, runs
        Its name and how many runs it has; no name and no runs for a domain not seen.
    own
        Weight of its own runs in what is known of each parameter, by name; the population has the rest.
    """

    law: Law
    values: Mapping[str, np.ndarray]
    domain: str | None
    runs: int
    own: Mapping[str, float]
    others: int
    warnings: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.law.name} ({self.domain or 'another domain'})"

    def pieces(self) -> tuple[Piece, ...]:
        """All draws, under the one law."""
        return (Piece(log_loss_of(self.law), self.values, self.law.covariates),)

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run.

        Raises
        ------
        RunTableError
            The table lacks a column the law reads.
        """
        _engine.start()
        out = np.asarray(over_draws(log_loss_of(self.law))(dict(self.values), _runs.covariates(self.law, runs)))
        return out + new_run_noise(self.values, len(runs), np.random.default_rng(seed)) if noise else out

    def statement(self) -> str:
        """What it knows from its own runs, and what it borrows."""
        if not self.runs:
            return f"A domain without runs: all that is known of it is borrowed from {self.others} domains."
        whose = f"Domain {self.domain!r} has {self.runs} run{'s' * (self.runs > 1)}: they carry"
        mean = float(np.mean(list(self.own.values())))
        borrowed = [f"{n} ({v:.0%} own)" for n, v in self.own.items() if v < BORROWED]
        rest = f"the other {self.others} domain{'s' * (self.others > 1)}"
        if not borrowed:
            return f"{whose} {mean:.0%} of what is known of its parameters, and most of each; the rest is from {rest}."
        what = ", ".join(borrowed)
        return f"{whose} {mean:.0%} of what is known of its parameters; mostly borrowed from {rest}: {what}."


@dataclass(frozen=True, eq=False)
class Pool:
    """A posterior of one law on several domains.

    Parameters
    ----------
    law
        The law as fitted; its priors are those of the population's means.
    by
        Column that names the domains.
    inference_data
        ArviZ data (a DataTree). ``posterior``, chain x draw (x domain): each site of the law and ``sigma``, the paper's
        own parameters, ``population_NAME`` and ``spread_NAME`` (mean and sd between domains of the log, or the logit, of
        a site), and ``dof``. ``own``: weight of each domain's own runs. ``sample_stats``, ``observed_data`` (log loss),
        ``constant_data`` (the run table).
    """

    law: Law
    by: str
    inference_data: DataTree

    def __repr__(self) -> str:
        return f"Pool({self.law.name!r} on {len(self.runs)} runs of {len(self.domains)} domains)"

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(str(d) for d in self.inference_data["posterior"]["domain"].to_numpy())

    @property
    def posterior(self) -> dict[str, np.ndarray]:
        """Draws by name, each of shape (draw,) or (draw, domain), chains one after another."""
        return _artifact.draws_of(self.inference_data)

    @property
    def runs(self) -> pd.DataFrame:
        """The table the law was fitted to."""
        return _artifact.runs_of(self.inference_data)

    @property
    def own(self) -> pd.DataFrame:
        """Weight of its own runs in what is known of each domain's parameters: domains down, parameters across.

        0: all borrowed from the other domains; 1: nothing. One less the pooling factor of Gelman and Pardoe 2006.
        """
        data = self.inference_data["own"].to_dataset()
        return pd.DataFrame({str(n): v.to_numpy() for n, v in data.data_vars.items()}, index=list(self.domains))

    def domain(self, name: str) -> DomainPosterior:
        """The posterior of one domain.

        Raises
        ------
        LawError
            The pool has no runs of this domain.
        """
        if name not in self.domains:
            known = ", ".join(self.domains)
            raise LawError(f"no domain {name!r} in this pool; it has: {known}; forecast another one with .unseen()")
        i, draws = self.domains.index(name), self.posterior
        values = {n: draws[n][:, i] for n in (*self.law.priors, "sigma")} | {"dof": draws["dof"]}
        own = {str(n): float(v) for n, v in zip(self.own.columns, self.own.to_numpy()[i], strict=True)}
        count = int((self.runs[self.by] == name).sum())
        return DomainPosterior(self.law, values, name, count, own, len(self.domains) - 1, self.warnings)

    def unseen(self, *, seed: int = 0) -> DomainPosterior:
        """The posterior of a domain without runs: one drawn from the population in every draw."""
        rng, draws = np.random.default_rng(seed), self.posterior
        u = [
            draws[f"population_{n}"] + draws[f"spread_{n}"] * rng.standard_normal(len(draws["dof"]))
            for n in pooled_priors(self.law)
        ]
        found = {n: np.broadcast_to(v, len(u[0])) for n, v in values_of(self.law, jnp.stack(u, axis=1)).items()}
        values = {n: np.asarray(v) for n, v in found.items()} | {"dof": draws["dof"]}
        own = dict.fromkeys(self.own.columns, 0.0)
        return DomainPosterior(self.law, values, None, 0, own, len(self.domains), self.warnings)

    def statements(self) -> tuple[str, ...]:
        """For each domain, what it knows from its own runs, and what it borrows."""
        return tuple(self.domain(name).statement() for name in self.domains)

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Mean, sd and central interval of each domain's parameters in the paper's units and of its noise, indexed by
        (domain, parameter).
        """
        draws, rows, tail = self.posterior, {}, (1 - prob) / 2
        for i, domain in enumerate(self.domains):
            for n in (*self.law.parameters, "sigma"):
                low, high = np.quantile(draws[n][:, i], [tail, 1 - tail])
                rows[domain, n] = {
                    "mean": draws[n][:, i].mean(), "sd": draws[n][:, i].std(ddof=1), "low": low, "high": high,
                }  # fmt: skip
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis([self.by, "parameter"])

    def population(self, prob: float = 0.9) -> pd.DataFrame:
        """Each sampled site between domains: posterior median and interval of the median domain (contributions in nats
        at the reference run), and of the spread (sd of the log, or of the logit, between domains).
        """
        draws, tails = self.posterior, [0.5, (1 - prob) / 2, (1 + prob) / 2]
        u = jnp.stack([draws[f"population_{n}"] for n in pooled_priors(self.law)], axis=1)
        middle = values_of(self.law, u)
        rows = {
            n: [*np.quantile(np.asarray(middle[n]), tails), *np.quantile(draws[f"spread_{n}"], tails)]
            for n in pooled_priors(self.law)
        }
        columns = ["median", "low", "high", "spread", "spread_low", "spread_high"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Largest R-hat, smallest bulk ESS over all sampled sites, divergences, leapfrog steps a draw, seconds."""
        free = pooled_priors(self.law)
        names = ["dof", *free, *(f"{kind}_{n}" for kind in ("population", "spread") for n in free)]
        return _artifact.diagnostics_of(self.inference_data, names)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the diagnostics hold against this posterior, a line each; empty when they pass."""
        return _artifact.doubts(f"law {self.law.name} pooled by {self.by}", self.diagnostics, REMEDY)

    def save(self, path: str | Path) -> Path:
        """Write the pool to a netCDF file, whole or not at all."""
        return _artifact.write(self.inference_data, path)

    @classmethod
    def load(cls, path: str | Path) -> Pool:
        """Read a pool back.

        Raises
        ------
        FitFileError
            The file is missing, is not a saved pool, or its law is no longer what it was.
        """
        law, tree = _artifact.read(path, "pool", "save a pool there with Pool.save")
        return cls(law, str(tree.attrs["pooled_by"]), tree)


def pool(
    runs: pd.DataFrame,
    law: Law | str,
    by: str = "domain",
    *,
    priors: Mapping[str, Prior | str] | None = None,
    reference: Mapping[str, float] | None = None,
    spread: float = 1.0,
    seed: int = 0,
    chains: int = 4,
    warmup: int = WARMUP,
    draws: int = 1000,
    max_draws: int = 4000,
    progress: Callable[[int, int], None] | None = None,
    on_failure: str = "raise",
) -> Pool:
    """Sample the joint posterior of a law on several domains.

    On the unconstrained scale (the log of a positive, the logit of a share) a domain's parameter is normal around the
    population's mean, which has the law's own prior, with a sd between domains that is half-normal. The noise is
    Student-t on log loss; its scale is pooled like a parameter, for domains differ in it (published fits miss by .2% to
    .9%) and few runs hardly tell it; its degrees of freedom are common.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it. A domain may have any number of runs from one on. Every row's error is taken as
        its own.
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    by
        Column that names each row's domain.
    priors, reference
        As for `fit`. A fixed parameter is the same in all domains.
    spread
        Scale of the prior of the sd between domains, in sds of the law's own prior: 1 says that domains may differ about
        as much as the prior leaves open, small numbers that they are alike.
    seed, chains, warmup, draws, max_draws, progress, on_failure
        As for `fit`.

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
    if not spread > 0:
        raise LawError(f"spread must be above 0 (sds of the law's prior), got {spread}")
    names = _check(law, runs, by, [n.removesuffix(NATS) for n in priors or {}])
    _engine.start()
    domains, levels = _domains(law, runs, names)
    chained = sample(
        law,
        prepare(law, domains, spread, seed),
        program=POOLED,
        seed=seed,
        chains=chains,
        warmup=warmup,
        draws=draws,
        max_draws=max_draws,
        progress=progress,
    )
    tree = _to_arviz(law, runs.assign(**{by: names}), domains, levels, chained.sites, chained.stats)
    seconds = time.perf_counter() - began
    tree.attrs.update(_artifact.provenance(law, seed, "pool"), pooled_by=by, spread=float(spread), seconds=seconds)
    result = Pool(law, by, tree)
    _artifact.settle(result.warnings, on_failure, 'on_failure="warn"')
    return result


def _check(law: Law, runs: pd.DataFrame, by: str, requested: list[str]) -> pd.Series:
    """Each row's domain as text, once the table has been found fit to pool."""
    if by not in runs:
        raise RunTableError(f"the table has no column {by!r} to pool by; it has: {', '.join(map(str, runs.columns))}")
    empty = runs.index[runs[by].isna()]
    if len(empty):
        raise RunTableError(f"row {empty[0]}, column {by!r}: empty; every row belongs to a domain")
    names = runs[by].astype(str)
    count = names.nunique()
    if count < 2:
        raise RunTableError(
            f"column {by!r} has one domain only ({names.iloc[0]!r}): there is none to pool it with; use fit"
        )
    _runs.check_fittable(law, runs, requested=requested)
    if count < FEW_DOMAINS:
        warnings.warn(
            f"column {by!r} has {count} domains only: how much they differ rests on the prior (spread)",
            FitWarning,
            stacklevel=3,
        )
    shared = [shared_error(rows) for _, rows in runs.groupby(names)]
    if any(s.kind is not None or s.along_run for s in shared):
        warnings.warn(
            "rows of one checkpoint or one training run share their error, which pool takes as independent: intervals may "
            "be too narrow; thin learning curves to a few points a run",
            FitWarning,
            stacklevel=3,
        )
    return names


def _domains(law: Law, runs: pd.DataFrame, names: pd.Series) -> tuple[Domains, np.ndarray]:
    x, y = _runs.covariates(law, runs), np.log(_runs.losses(runs))
    code, levels = pd.factorize(names, sort=True)
    middle = {c: np.array([np.median(v[code == d]) for d in range(len(levels))]) for c, v in x.items()}
    table = pad(x, y)
    return Domains(table, np.pad(code, (0, len(table.y) - len(code)), mode="edge"), middle), np.asarray(levels, object)


# -- the artifact ----------------------------------------------------------------------------------------------------


def _to_arviz(
    law: Law,
    runs: pd.DataFrame,
    domains: Domains,
    levels: np.ndarray,
    sites: Mapping[str, np.ndarray],
    stats: Mapping[str, np.ndarray],
) -> DataTree:
    from arviz_base import from_dict

    names, shape = list(pooled_priors(law)), sites["u"].shape[:3]
    values = {n: jnp.broadcast_to(v, shape) for n, v in values_of(law, jnp.asarray(sites["u"])).items()}
    by_domain = values | {n: jnp.broadcast_to(v, shape) for n, v in law.to_paper(values).items()}
    posterior = {n: np.asarray(v) for n, v in by_domain.items()} | {"dof": DOF_MIN + sites["dof_above_2"]}
    for i, n in enumerate(names):
        posterior[f"population_{n}"], posterior[f"spread_{n}"] = sites["mean"][..., i], sites["spread"][..., i]
    spreads = sites["spread"].reshape(-1, len(names))
    thin = spreads[np.linspace(0, len(spreads) - 1, SHARE_DRAWS).astype(int)]
    own = own_shares(law, domains, sites["u"].mean((0, 1)), sites["dof_above_2"].mean(), thin)
    shares = {n.removesuffix(NATS): np.asarray(own)[:, i] for i, n in enumerate(names) if n != "sigma"}
    columns = _artifact.columns_of(runs)
    groups = {
        "posterior": posterior,
        "sample_stats": dict(stats),
        "observed_data": {"log_loss": domains.table.y[: len(runs)]},
        "constant_data": columns,
    }
    dims = {"log_loss": ["run_row"]} | {c: ["run_row"] for c in columns} | {n: ["domain"] for n in by_domain}
    tree = from_dict(groups, dims=dims, coords={"run_row": runs.index.to_numpy(), "domain": levels})
    import xarray

    tree["own"] = xarray.DataTree(
        xarray.Dataset({n: ("domain", v) for n, v in shares.items()}, coords={"domain": levels})
    )
    return tree
