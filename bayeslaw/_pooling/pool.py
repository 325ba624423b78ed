"""Fit one law to several domains at once (``pool``). Each domain has its own
parameters, drawn from one population. A domain with few runs borrows strength from the
others and states how much. A domain without runs is forecast from the population alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import LawError
from bayeslaw._base.frames import Table
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_many
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.discrepancy.drift import (
    Range,
    draw_from_prior,
    training_range,
)
from bayeslaw._inference.discrepancy.learning import Misfit
from bayeslaw._inference.noise import ERROR
from bayeslaw._inference.nuts import Chains, sample
from bayeslaw._inference.table import Group, Padded, shared_error
from bayeslaw._law.columns import LOSS_SD, share_domains
from bayeslaw._law.law import NATS, Law
from bayeslaw._pooling.coordinates import POOLED
from bayeslaw._pooling.hierarchy import Domains, pooled_priors, values_of
from bayeslaw._pooling.modes import own_shares, prepare
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.candidates import law_for
from bayeslaw._posteriors.fits.fit import SamplingArguments
from bayeslaw._posteriors.fits.misfit import TrainingRuns, learn_misfit, with_misfit
from bayeslaw._posteriors.posterior import DRIFT, LawPosterior, Member, summarize
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from xarray import DataTree


@dataclass(frozen=True, eq=False)
class DomainPosterior(LawPosterior):
    """Hold one domain's share of a `Pool`; forecast, check and plan take it like a
    `Fit`.

    Parameters
    ----------
    values
        Draws of the law's values, ``sigma`` and ``dof``, each of shape (draw,).
    domain, runs
        The domain's name and its number of runs; an unseen domain has no name and no
        runs.
    own
        Share of the information about each parameter that comes from the domain's own
        runs, by name. The rest comes from the population.
    others
        Number of other domains in the pool.
    training
        The domain's own runs, from which the law's misfit on this domain is learned.
        None for the law alone; ``sigma`` then holds the misfit.
    training_rows
        The domain's own rows of the table; None for an unseen domain.
    training_range
        Range of the runs of all domains, beyond which the law drifts by its prior as
        that of a `Fit` does; None without a misfit.
    """

    law: Law
    values: Mapping[str, Float[np.ndarray, " draw"]]
    domain: str | None
    runs: int
    own: Mapping[str, float]
    others: int
    warnings: tuple[str, ...]
    training: TrainingRuns | None = None
    training_rows: pd.DataFrame | None = None
    training_range: Range | None = None

    @cached_property
    def misfit(self) -> Misfit | None:
        """Learn the law's misfit on this domain, for each draw (`Fit.misfit`)."""
        if self.training is None:
            return None
        runtime.start()
        return learn_misfit(self.law, self.values, self.training, seed=0)

    @property
    def name(self) -> str:
        return f"{self.law.name} ({self.domain or 'another domain'})"

    @cached_property
    def members(self) -> tuple[Member]:
        """The law with the domain's draws, and its misfit on this domain."""
        process = None if self.misfit is None else self.misfit.process
        values, known = with_misfit(self.values, self.misfit), self.training_range
        if known is not None:
            rng = generator(0, Stream.PRIOR_DRIFT)
            draws = len(values["sigma"])
            values = {**values, DRIFT: draw_from_prior(known, draws, rng)}
        return (Member(self.law, 1.0, process, known, values),)

    def statement(self, borrowed_below: float = 0.5) -> str:
        """State how much of the information is from the domain's own runs, and list the
        borrowed parameters, in which these runs have a weight below
        ``borrowed_below``.
        """
        if not self.runs:
            return (
                "A domain without runs: all that is known of it is borrowed from "
                f"{self.others} domains."
            )
        mean = float(np.mean(list(self.own.values())))
        what = (
            f"Domain {self.domain!r} has {format_many(self.runs, 'run')}: they carry {mean:.0%} of what is "
            "known of its parameters"
        )
        other_domains = f"the other {format_many(self.others, 'domain')}"
        borrowed = [
            f"{name} ({weight:.0%} own)"
            for name, weight in self.own.items()
            if weight < borrowed_below
        ]
        if not borrowed:
            return f"{what}, and most of each; the rest is from {other_domains}."
        return f"{what}; mostly borrowed from {other_domains}: {', '.join(borrowed)}."


@dataclass(frozen=True, eq=False)
class Pool:
    """Hold a posterior of one law on several domains.

    Parameters
    ----------
    law
        The law as fitted; its priors hold for the population's means.
    by
        Column that names the domains.
    inference_data
        ArviZ data (a DataTree). ``posterior``, chain x draw (x domain): each site of
        the law and ``sigma``; the paper's own parameters; for each site,
        ``population_NAME`` and ``spread_NAME``, the mean and the sd over domains of its
        log or logit; and ``dof``. ``own``: weight of each domain's own runs.
        ``sample_stats``, ``observed_data`` (log loss), ``constant_data`` (the run
        table).
    """

    law: Law
    by: str
    inference_data: DataTree

    def __repr__(self) -> str:
        runs, domains = len(self.runs), len(self.domains)
        size = f"{runs} runs of {domains} domains"
        return f"Pool({self.law.name!r} on {size})"

    @property
    def domains(self) -> tuple[str, ...]:
        draws = self.inference_data["posterior"]
        names = draws["domain"].to_numpy()
        return tuple(map(str, names))

    @property
    def posterior(self) -> dict[str, Float[np.ndarray, " draw *domain"]]:
        """Arrange draws by name, with chains one after another."""
        return artifact.draws_of(self.inference_data)

    @property
    def runs(self) -> pd.DataFrame:
        """Return the table to which the law was fitted."""
        return artifact.runs_of(self.inference_data)

    @property
    def own(self) -> pd.DataFrame:
        """Tabulate the share of the information about each parameter that comes from
        the domain's own runs: a row for each domain, a column for each parameter. At 0
        all information is borrowed from the other domains, at 1 none. The share is one
        minus the pooling factor of Gelman and Pardoe 2006.
        """
        data = self.inference_data["own"].to_dataset()
        return pd.DataFrame(
            {str(n): v.to_numpy() for n, v in data.data_vars.items()},
            index=list(self.domains),
        )

    def domain(self, name: str, *, discrepancy: bool = True) -> DomainPosterior:
        """Return the posterior of one domain.

        Parameters
        ----------
        discrepancy
            True: learn the law's misfit from the domain's own runs at the first
            forecast. False: ``sigma`` holds the misfit.

        Raises
        ------
        LawError
            The pool has no runs of this domain.
        """
        if name not in self.domains:
            names = ", ".join(self.domains)
            raise LawError(
                f"no domain {name!r} in this pool; it has: {names}; "
                "forecast another one with .unseen()"
            )
        i, draws = self.domains.index(name), self.posterior
        values = {n: draws[n][:, i] for n in (*self.law.priors, "sigma")}
        values["dof"] = draws["dof"]
        shares = {str(n): float(w) for n, w in self.own.iloc[i].items()}
        runs = self.runs
        rows = runs[runs[self.by].astype(str) == name]
        training = known = None
        if discrepancy:
            training = TrainingRuns.of(self.law, rows, independent=True)
            known = training_range(fitting.covariates(self.law, runs))
        other_domains = len(self.domains) - 1
        return DomainPosterior(
            self.law,
            values,
            name,
            len(rows),
            shares,
            other_domains,
            self.warnings,
            training,
            rows,
            known,
        )

    def unseen(self, *, seed: int = 0) -> DomainPosterior:
        """Return the posterior of a domain without runs, one of the population."""
        rng, draws = generator(seed, Stream.UNSEEN_DOMAIN), self.posterior
        size = len(draws["dof"])
        u = [
            draws[f"population_{n}"] + draws[f"spread_{n}"] * rng.standard_normal(size)
            for n in pooled_priors(self.law)
        ]
        constrained = values_of(self.law, jnp.stack(u, axis=1))
        values = {
            n: np.broadcast_to(np.asarray(v), size) for n, v in constrained.items()
        }
        values["dof"] = draws["dof"]
        shares = dict.fromkeys(self.own.columns, 0.0)
        return DomainPosterior(
            self.law, values, None, 0, shares, len(self.domains), self.warnings
        )

    def statements(self) -> tuple[str, ...]:
        """State for each domain what it knows from its own runs, and what it borrows."""
        return tuple(self.domain(name).statement() for name in self.domains)

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each domain's parameters, in the paper's units, and its noise:
        mean, sd and central interval, indexed by (domain, parameter).
        """
        draws = self.posterior
        by_name = {
            (domain, name): draws[name][:, i]
            for i, domain in enumerate(self.domains)
            for name in (*self.law.parameters, "sigma")
        }
        return summarize(by_name, prob).rename_axis([self.by, "parameter"])

    def population(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarise each sampled site between domains: posterior median and interval
        for the median domain (contributions in nats at the reference run) and for the
        spread (sd of the log, or of the logit, between domains).
        """
        names = list(pooled_priors(self.law))
        draws, tails = self.posterior, [0.5, (1 - prob) / 2, (1 + prob) / 2]
        u = jnp.stack([draws[f"population_{n}"] for n in names], axis=1)
        middle, rows = values_of(self.law, u), {}
        for n in names:
            of_median = np.quantile(np.asarray(middle[n]), tails)
            of_spread = np.quantile(draws[f"spread_{n}"], tails)
            rows[n] = [*of_median, *of_spread]
        columns = ["median", "low", "high", "spread", "spread_low", "spread_high"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns)

    @cached_property
    def diagnostics(self) -> dict[str, float]:
        """Report the largest R-hat and smallest bulk ESS over all sampled sites,
        divergences, leapfrog steps a draw, and seconds.
        """
        free = pooled_priors(self.law)
        means = [f"population_{name}" for name in free]
        spreads = [f"spread_{name}" for name in free]
        sampled = ["dof", *free, *means, *spreads]
        return artifact.diagnostics_of(self.inference_data, sampled)

    @property
    def warnings(self) -> tuple[str, ...]:
        """List the failed diagnostics, a line each; empty if all pass."""
        remedy = "give the population a tighter prior (priors, spread), or take a smaller law"
        name = f"law {self.law.name} pooled by {self.by}"
        return artifact.failed_diagnostics(name, self.diagnostics, remedy)

    def save(self, path: str | Path) -> Path:
        """Write the pool to a netCDF file, whole or not at all."""
        return artifact.write(self.inference_data, path)

    @classmethod
    def load(cls, path: str | Path, *, trust_law_file: bool = False) -> Pool:
        """Read a pool back. ``trust_law_file``: as for `load`.

        Raises
        ------
        FitFileError
            The file is missing, is not a saved pool, or its law has changed.
        """
        make = "save a pool there with Pool.save"
        tree = artifact.read(path, ["pool"], make)
        with artifact.readable(path):
            recipe = json.loads(tree.attrs["law_recipe"])
            law = artifact.law_from_recipe(recipe, path, trust_law_file)
            pool = cls(law, str(tree.attrs["pooled_by"]), tree)
            artifact.check_draws(pool.posterior, law)
            for name in pool.domains:
                pool.domain(name)
        return pool


@dataclass(frozen=True, eq=False)
class PoolArguments(SamplingArguments):
    # arguments of `pool`, documented there

    runs: Table
    law: Law | str | None = None
    by: str = "domain"
    _: KW_ONLY
    spread: float = 1.0


@takes(PoolArguments)
def pool(arguments: PoolArguments) -> Pool:
    """Sample the joint posterior of a law on several domains.

    On the unconstrained scale (the log of a positive number, the logit of a share) a
    domain's parameter is normal around the population's mean. The mean has the law's
    own prior; the sd between domains has a half-normal prior. The noise is Student-t on
    log loss. Its scale is pooled like a parameter, because domains differ in it
    (published fits miss by .2% to .9%) and few runs hardly determine it. Its degrees of
    freedom are common to all domains.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it. A domain needs at least one run. Errors of
        rows are taken as independent.
    law
        A law, its name, a formula, or a Python file that defines ``LAW``. A law of
        mixtures is not pooled over evaluation sets that are domains of the mixtures:
        each of them has another law.
    by
        Column that names each row's domain.
    priors, reference
        As for `fit`. A fixed parameter is the same in all domains.
    spread
        Scale of the prior of the sd between domains, in sds of the law's own prior. 1
        says that domains may differ about as much as the prior allows; small numbers
        say that they are alike.
    seed, chains, warmup, draws, max_draws, progress, on_failure
        As for `fit`.

    Raises
    ------
    RunTableError, LawError
        The table or a prior cannot be used.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.

    Examples
    --------
    >>> runs = pd.concat([pretrained.assign(domain=name) for name in ("web", "code")])
    >>> options = {"warmup": 100, "draws": 100, "chains": 2, "on_failure": "ignore"}
    >>> pooled = bayeslaw.pool(runs, "chinchilla", **options)
    >>> bayeslaw.forecast(pooled.domain("web"), pretrained).shape[1]
    6
    """
    began = time.perf_counter()
    by, spread, seed = arguments.by, arguments.spread, arguments.seed
    runs = as_runs(arguments.runs)
    law = arguments.replace_priors(law_for(arguments.law, runs))
    if not spread > 0:
        raise LawError(f"spread must be above 0 (sds of the law's prior), got {spread}")
    names = _read_domains(law, runs, by, arguments.requested)
    runtime.start()
    domains, levels = _arrange_domains(law, runs, names)
    problem = prepare(law, domains, spread, seed)
    chains = sample(
        law,
        problem,
        arguments.nuts,
        seed=seed,
        program=POOLED,
        progress=arguments.progress,
    )
    tree = _to_arviz(law, runs.assign(**{by: names}), domains, levels, chains)
    tree.attrs.update(
        artifact.provenance(law, seed, "pool"),
        pooled_by=by,
        spread=float(spread),
        seconds=time.perf_counter() - began,
    )
    result = Pool(law, by, tree)
    artifact.raise_or_warn(result.warnings, arguments.on_failure, 'on_failure="warn"')
    return result


def _read_domains(
    law: Law, runs: pd.DataFrame, by: str, requested: list[str]
) -> pd.Series:
    """Read each row's domain as text. Refuse a table that cannot be pooled by it, and
    warn if it hardly determines the spread between domains.
    """
    names = fitting.names_by(runs, by, "domain")
    count = names.nunique()
    # A law of mixtures begins with the domain of the loss, so that each domain has
    # another law. A formula, or a file of one's own, names the shares that it reads.
    sets = sorted(set(names) & set(share_domains(law.covariates)))
    if sets and not law.origin.startswith(("formula:", "file:")):
        raise LawError(
            f"law {law.name!r} is another law for each domain of the mixtures "
            f"({', '.join(sets)}), so that pool cannot share its parameters: fit each "
            f"evaluation set by itself, fit(runs[runs[{by!r}] == {sets[0]!r}], "
            f"{law.name!r})"
        )
    fitting.check_fittable(law, runs, requested=requested, apart=[by])
    lines = []
    if count < 4:
        lines.append(
            f"column {by!r} has {count} domains only: "
            "how much they differ rests on the prior (spread)"
        )
    shared = [shared_error(rows) for _, rows in runs.groupby(names)]
    if any(error.kind is not None or error.along_run for error in shared):
        lines.append(
            "rows of one checkpoint or one training run share their error, which pool "
            "takes as independent: intervals may be too narrow; thin learning curves "
            "to a few points a run"
        )
    if LOSS_SD in runs:
        lines.append(
            f"pool takes the errors of all rows as alike: column {LOSS_SD!r} counts in a "
            "domain's misfit only; fit one domain (fit) for it to count in full"
        )
    artifact.warn_each(lines)
    return names


def _arrange_domains(
    law: Law, runs: pd.DataFrame, names: pd.Series
) -> tuple[Domains, Shaped[np.ndarray, " domain"]]:
    x, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    code, levels = pd.factorize(names, sort=True)
    slots = np.zeros(len(levels))
    group = Group.of(code, slots)
    blocks = np.flatnonzero((group.members >= 0).any(axis=0))  # without spare blocks
    members = group.members[:, blocks].T.reshape(-1)
    # A place without a row repeats the table's first row, with weight 0.
    rows = np.maximum(members, 0)
    columns = {name: np.asarray(v, float)[rows] for name, v in x.items()}
    table = Padded(columns, y[rows], (members >= 0) * 1.0)
    return Domains(table, group.block[blocks], slots), np.asarray(levels, object)


# -- the artifact ----------------------------------------------------------------------


def _to_arviz(
    law: Law,
    runs: pd.DataFrame,
    domains: Domains,
    levels: Shaped[np.ndarray, " domain"],
    chains: Chains,
) -> DataTree:
    """Arrange a pool's draws for ArviZ; sites are those of `hierarchy.State`."""
    sites = chains.sites
    values = values_of(law, jnp.asarray(sites["u"]))
    shape = sites["u"].shape[:3]
    values = {name: jnp.broadcast_to(v, shape) for name, v in values.items()}
    by_domain = {
        name: np.asarray(jnp.broadcast_to(v, shape))
        for name, v in (values | law.to_paper(values)).items()
    }
    common = {"dof": ERROR.dof_min + sites["dof_above_2"]}
    for i, name in enumerate(pooled_priors(law)):
        common[f"population_{name}"] = sites["mean"][..., i]
        common[f"spread_{name}"] = sites["spread"][..., i]
    groups = {
        "posterior": by_domain | common,
        "sample_stats": dict(chains.stats),
        "observed_data": {"log_loss": fitting.log_losses(runs)},
    }
    dims = {"log_loss": ["run_row"]} | {name: ["domain"] for name in by_domain}
    coords = {"run_row": runs.index.to_numpy(), "domain": levels}
    tree = artifact.tree_of(groups, dims, coords)
    tree["constant_data"] = artifact.constant_data(runs)
    import xarray

    # the domains' own shares of what is known, averaged over 200 draws of the spreads
    spreads = sites["spread"].reshape(-1, sites["spread"].shape[-1])
    few = np.linspace(0, len(spreads) - 1, 200).astype(int)
    u, above_2 = sites["u"].mean((0, 1)), sites["dof_above_2"].mean()
    weights = np.asarray(own_shares(law, domains, u, above_2, spreads[few]))
    by_site = {
        name.removesuffix(NATS): ("domain", weights[:, i])
        for i, name in enumerate(pooled_priors(law))
        if name != "sigma"
    }
    tree["own"] = xarray.DataTree(xarray.Dataset(by_site, coords={"domain": levels}))
    return tree
