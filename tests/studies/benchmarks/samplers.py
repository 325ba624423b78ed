"""One posterior by three samplers in one run: bayeslaw's, the same model written plainly in NumPyro, PyMC with nutpie.

    python tests/studies/benchmarks/samplers.py [--cases ptpp-gate-floor,cpt-dynamics] [--draws 500] [-o FILE.md]

Tables: for the laws of tokens per parameter the simulated grid of Goffinet 2025 at ptpp 15 and 31 (168 runs); for cpt-dynamics
six learning curves of 40 points; pooled: `forgetting` in 12 domains of 5 or of 125 runs (the grid of Bethune 2025). Errors
independent, four chains each, 1,000 steps of warm-up, target acceptance .95, float64. ``cold`` is the first run in this
process, its compilation included (bayeslaw's programs are kept on disk: empty $BAYESLAW_CACHE for a first run ever);
``warm`` the second, with another seed. Effective draws are the smallest bulk ESS over all sites; leapfrog steps are those per
draw kept. PyMC and nutpie are left out where they are not installed.
"""

import argparse
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._inference.diagnostics import rhat_and_ess
from bayeslaw._inference.likelihood import model
from bayeslaw._inference.noise import ERROR
from bayeslaw._law.law import log_loss
from bayeslaw._tables.rates.areas import schedule_areas
from bayeslaw._tables.rates.schedules import constant, cosine, wsd

sys.path.append(str(Path(__file__).parents[1]))

from forgetting_grid import finetuning_grid, simulate_domains

CHAINS, WARMUP, ACCEPT = 4, 1000, 0.95

Draws = dict[str, np.ndarray]  # by site, each (chain, draw, ...)
Sampler = Callable[
    [int], tuple[Draws, np.ndarray, np.ndarray]
]  # of a seed: sites, leapfrog steps, divergences


class Run(NamedTuple):
    """What one run took and gave."""

    seconds: float
    ess: float
    rhat: float
    steps: float
    divergences: int

    @property
    def per_second(self) -> float:
        return self.ess / self.seconds


def timed(sample: Sampler, seed: int) -> Run:
    """Time a sampler."""
    began = time.perf_counter()
    sites, steps, divergent = sample(seed)
    seconds = time.perf_counter() - began
    rhat, ess = rhat_and_ess(sites)
    return Run(
        seconds,
        min(ess.values()),
        max(rhat.values()),
        float(np.mean(steps)),
        int(np.sum(divergent)),
    )


# -- the tables ------------------------------------------------------------------------------------------------------


def grid(name: str) -> pd.DataFrame:
    """The simulated grid up to ptpp 31, each run by itself."""
    return (
        bayeslaw.simulate(name, seed=1)
        .query("ptpp <= 31")
        .drop(columns=["run", "checkpoint"])
    )


def curves() -> pd.DataFrame:
    """Two pre-trainings, each adapted by three schedules: 40 points a curve."""
    parts = []
    for before in (
        wsd(2e-4, 30_000, decay=6_000, warmup=500),
        constant(2e-4, 30_000, warmup=500),
    ):
        for after in (
            cosine(2e-4, 10_000),
            wsd(1e-4, 10_000, decay=2_000, warmup=100),
            constant(2e-4, 10_000),
        ):
            points = (
                np.unique(np.geomspace(50, len(after), 40).astype(int))
                + len(before)
                - 1
            )
            parts.append(schedule_areas(before, after).iloc[points])
    design = pd.concat(parts, ignore_index=True)
    return bayeslaw.simulate("cpt-dynamics", design=design, seed=1, noise=0.003)


def twelve_domains() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Parameters of twelve domains around the law's plausible ones, and their 125 runs each of the grid of Bethune 2025."""
    law, rng = bayeslaw.law("forgetting"), np.random.default_rng(8)
    between = {"A_nats": 0.7, "alpha": 0.15, "beta": 0.3, "B": 0.8}
    truth = {
        n: v * np.exp(between[n] * rng.standard_normal(12))
        for n, v in law.from_paper(law.plausible).items()
    }
    known = pd.DataFrame({n: np.asarray(v) for n, v in law.to_paper(truth).items()})
    known.index = [f"domain {i:02d}" for i in range(12)]
    models = pd.DataFrame(
        {
            "N": [41e6, 109e6, 334e6, 665e6, 1.27e9],
            "loss_before": [3.19, 2.92, 2.60, 2.39, 2.27],
        }
    )
    made = simulate_domains(
        law,
        finetuning_grid(models),
        known,
        dict.fromkeys(known.index, 0.004),
        seed=3,
    )
    return known, made


def domains(runs: int) -> pd.DataFrame:
    """So many runs of each of the twelve domains."""
    return twelve_domains()[1].groupby("domain").sample(runs, random_state=1)


# -- the models ------------------------------------------------------------------------------------------------------


def numpyro_model(law: bayeslaw.Law, runs: pd.DataFrame) -> Callable[[], None]:
    """The model as one would write it in NumPyro."""
    x, y = (
        {c: runs[c].to_numpy(float) for c in law.covariates},
        np.log(runs["loss"].to_numpy()),
    )
    if not is_pooled(runs):
        return partial(model, law, x, y)
    return partial(
        pooled_model,
        law,
        x,
        pd.factorize(runs["domain"], sort=True)[0],
        y,
        centred=_is_many(runs),
    )


def pymc_model(law: bayeslaw.Law, runs: pd.DataFrame) -> Any:
    """The model in PyMC, from the paper's formula."""
    import pymc_models  # beside this file

    if is_pooled(runs):
        return pymc_models.pooled_forgetting(runs, centred=_is_many(runs))
    return pymc_models.MODELS[law.name](runs)


def is_pooled(runs: pd.DataFrame) -> bool:
    """Whether the table is one of several domains."""
    return "domain" in runs


def _is_many(runs: pd.DataFrame) -> bool:
    """Whether each domain's runs say more of it than the others do, so that one writes the model centred."""
    return len(runs) > 50 * runs["domain"].nunique()


def pooled_model(
    law: bayeslaw.Law,
    x: Mapping[str, Any],
    code: Any,
    y: Any,
    measured: Any = True,
    centred: bool = False,
) -> None:
    """The model of several domains as one would write it; ``code``: each row's domain. Not centred, for few runs a domain."""
    maps = {"positive": (jnp.log, jnp.exp), "real": (jnp.asarray, jnp.asarray)}
    values, count = {}, int(np.max(code)) + 1
    for name, prior in (law.priors | {"sigma": ERROR.sigma}).items():
        out, back = maps[prior.support]
        mean = out(numpyro.sample(f"mean_{name}", prior.distribution()))
        spread = numpyro.sample(f"spread_{name}", dist.HalfNormal(prior.args[1]))
        if centred:
            u = numpyro.sample(
                f"u_{name}", dist.Normal(mean, spread).expand([count]).to_event(1)
            )
        else:
            u = mean + spread * numpyro.sample(
                f"z_{name}", dist.Normal(0, 1).expand([count]).to_event(1)
            )
        values[name] = numpyro.deterministic(name, back(u))[code]
    dof = ERROR.dof_min + numpyro.sample(
        "dof_above_2", dist.Gamma(ERROR.dof_shape, ERROR.dof_rate)
    )
    centre = log_loss(law, x, {n: values[n] for n in law.priors})
    with numpyro.handlers.mask(mask=measured):
        numpyro.sample("y", dist.StudentT(dof, centre, values["sigma"]), obs=y)


# -- the samplers ----------------------------------------------------------------------------------------------------


def ours(law: bayeslaw.Law, runs: pd.DataFrame, draws: int) -> Sampler:
    """bayeslaw.fit or bayeslaw.pool, with everything they do beside sampling."""
    fit = bayeslaw.pool if is_pooled(runs) else partial(bayeslaw.fit, independent=True)
    names = [*law.priors, "sigma"]
    if is_pooled(runs):
        names += [f"{part}_{n}" for n in names for part in ("population", "spread")]

    def sample(seed: int):
        made = fit(
            runs,
            law,
            seed=seed,
            warmup=WARMUP,
            draws=draws,
            max_draws=draws,
            on_failure="ignore",
        )
        return _parts(made.inference_data, [*names, "dof"])

    return sample


def _parts(data: Any, names: list[str]) -> tuple[Draws, np.ndarray, np.ndarray]:
    stats = data["sample_stats"]
    sites = {n: data["posterior"][n].to_numpy() for n in names}
    return sites, stats["n_steps"].to_numpy(), stats["diverging"].to_numpy()


def plain(law: bayeslaw.Law, runs: pd.DataFrame, draws: int) -> Sampler:
    """NumPyro's NUTS on the model as written, chains one after another in one compiled program.

    The mass matrix is dense, but not of several domains: of 80 sites a dense one is not learned well.
    """
    from numpyro.infer import MCMC, NUTS

    def by_chain(f):
        return lambda state: jax.lax.map(f, state)

    def sample(seed: int):
        kernel = NUTS(
            numpyro_model(law, runs),
            dense_mass=not is_pooled(runs),
            target_accept_prob=ACCEPT,
        )
        mcmc = MCMC(
            kernel,
            num_warmup=WARMUP,
            num_samples=draws,
            num_chains=CHAINS,
            chain_method=by_chain,
            progress_bar=False,
        )
        mcmc.run(jax.random.PRNGKey(seed), extra_fields=("num_steps", "diverging"))
        extra = mcmc.get_extra_fields(group_by_chain=True)
        sites = {
            n: np.asarray(v) for n, v in mcmc.get_samples(group_by_chain=True).items()
        }
        return sites, np.asarray(extra["num_steps"]), np.asarray(extra["diverging"])

    return sample


def nutpie(law: bayeslaw.Law, runs: pd.DataFrame, draws: int) -> Sampler:
    """nutpie with its low-rank metric on PyMC's model compiled by numba; compiled at the first call."""
    import pymc_models

    names = [*law.priors, "sigma"]
    if is_pooled(runs):
        names += [f"{part}_{n}" for n in names for part in ("mean", "spread")]
    compiled = []

    def sample(seed: int):
        if not compiled:
            compiled.append(pymc_models.compiled(pymc_model(law, runs)))
        data = pymc_models.sample_compiled(
            compiled[0], draws=draws, tune=WARMUP, chains=CHAINS, seed=seed
        )
        return _parts(data, [*names, "dof_above_2"])

    return sample


# -- the comparison --------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A law and a table."""

    law: str
    runs: Callable[[], pd.DataFrame]


CASES = {
    **{
        n: Case(n, partial(grid, n))
        for n in ("chinchilla", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
    },
    "cpt-dynamics": Case("cpt-dynamics", curves),
    "forgetting, 12 domains of 5 runs": Case("forgetting", partial(domains, 5)),
    "forgetting, 12 domains of 125 runs": Case("forgetting", partial(domains, 125)),
}
SAMPLERS = {"bayeslaw": ours, "NumPyro, plain": plain, "PyMC + nutpie": nutpie}
HEAD = (
    "case",
    "sampler",
    "cold s",
    "warm s",
    "ESS",
    "R-hat",
    "ESS/s cold",
    "ESS/s warm",
    "steps a draw",
    "divergent",
)


def rows(
    name: str, draws: int, samplers: Mapping[str, Callable[..., Sampler]]
) -> list[list[str]]:
    """The table's rows of one case."""
    case, first, lines = CASES[name], None, []
    law, runs = bayeslaw.law(case.law), case.runs()
    for label, make in samplers.items():
        sample = make(law, runs, draws)
        cold, warm = timed(sample, 1), timed(sample, 2)
        first = first or (cold, warm)
        print(f"{name}, {label}: {cold} {warm}", file=sys.stderr, flush=True)
        times = [
            f"{first[0].per_second / cold.per_second:.1f}",
            f"{first[1].per_second / warm.per_second:.1f}",
        ]
        cells = (
            f"{cold.seconds:.1f}",
            f"{warm.seconds:.1f}",
            f"{warm.ess:.0f}",
            f"{warm.rhat:.3f}",
        )
        speed = (
            f"{cold.per_second:.1f} (1/{times[0]})",
            f"{warm.per_second:.1f} (1/{times[1]})",
        )
        lines.append(
            [name, label, *cells, *speed, f"{warm.steps:.1f}", str(warm.divergences)]
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", default=";".join(CASES), help="names, with ; between (default: all)"
    )
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runtime.start()
    peers = all(importlib.util.find_spec(p) for p in ("pymc", "nutpie", "numba"))
    samplers = {k: v for k, v in SAMPLERS.items() if peers or v is not nutpie}
    load = os.getloadavg()[0]
    lines = [HEAD, ["---"] * len(HEAD)]
    for name in options.cases.split(";"):
        lines += rows(name.strip(), options.draws, samplers)
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    table += f"\n\nLoad of the machine before and after: {load:.1f} and {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    print(table)
    if options.output:
        options.output.write_text(table + "\n")


if __name__ == "__main__":
    main()
