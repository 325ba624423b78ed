"""One posterior by three samplers in one run: bayeslaw's, the same model written plainly in NumPyro, PyMC with nutpie.

    python tests/benchmarks/samplers.py [--laws ptpp-gate-floor,ptpp-floor,chinchilla] [--draws 1000] [-o FILE.md]

Tables: the simulated grid of Goffinet 2025 at ptpp 15 and 31 (168 runs), errors independent. Four chains each, target
acceptance .95, float64. ``cold`` is the first run in this process, its compilation included (bayeslaw's programs are kept on
disk: empty $BAYESLAW_CACHE for a first run ever); ``warm`` the second, with another seed. Effective draws are the smallest
bulk ESS over all sites; leapfrog steps are those per draw kept. PyMC and nutpie are left out where they are not installed.
"""

import argparse
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import _engine
from bayeslaw._diagnostics import rhat_and_ess
from bayeslaw._model import model

CHAINS, WARMUP, ACCEPT = 4, 1000, 0.95


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


def timed(sample: Callable[[int], tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]], seed: int) -> Run:
    """Time a sampler that returns sites (chain, draw), steps and divergences (chain, draw)."""
    began = time.perf_counter()
    sites, steps, divergent = sample(seed)
    seconds = time.perf_counter() - began
    rhat, ess = rhat_and_ess(sites)
    return Run(seconds, min(ess.values()), max(rhat.values()), float(np.mean(steps)), int(np.sum(divergent)))


def ours(law: bayeslaw.Law, runs: pd.DataFrame, draws: int):
    """bayeslaw.fit, with everything it does beside sampling."""

    def sample(seed: int):
        fit = bayeslaw.fit(
            runs, law, seed=seed, independent=True, warmup=WARMUP, draws=draws, max_draws=draws, on_failure="ignore"
        )
        data = fit.inference_data
        sites = {n: data["posterior"][n].to_numpy() for n in (*law.priors, "sigma", "dof")}
        return sites, data["sample_stats"]["n_steps"].to_numpy(), data["sample_stats"]["diverging"].to_numpy()

    return sample


def plain(law: bayeslaw.Law, runs: pd.DataFrame, draws: int):
    """The model as one would write it, NUTS with a dense mass matrix, chains one after another in one compiled program."""
    from numpyro.infer import MCMC, NUTS

    x, y = {c: runs[c].to_numpy(float) for c in law.covariates}, np.log(runs["loss"].to_numpy())

    def by_chain(f):
        return lambda state: jax.lax.map(f, state)

    def sample(seed: int):
        kernel = NUTS(lambda: model(law, x, y), dense_mass=True, target_accept_prob=ACCEPT)
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
        sites = {n: np.asarray(v) for n, v in mcmc.get_samples(group_by_chain=True).items()}
        return sites, np.asarray(extra["num_steps"]), np.asarray(extra["diverging"])

    return sample


def nutpie(law: bayeslaw.Law, runs: pd.DataFrame, draws: int):
    """PyMC's model compiled by numba, sampled by nutpie with its low-rank metric; compiled at the first call."""
    import pymc_models  # beside this file

    compiled = []

    def sample(seed: int):
        if not compiled:
            compiled.append(pymc_models.compiled(pymc_models.MODELS[law.name](runs)))
        data = pymc_models.sample_compiled(compiled[0], draws=draws, tune=WARMUP, chains=CHAINS, seed=seed)
        sites = {n: data["posterior"][n].to_numpy() for n in (*law.priors, "sigma", "dof_above_2")}
        return sites, data["sample_stats"]["n_steps"].to_numpy(), data["sample_stats"]["diverging"].to_numpy()

    return sample


HEAD = ("law", "sampler", "cold s", "warm s", "ESS", "R-hat", "ESS/s cold", "ESS/s warm", "steps a draw", "divergent")


def rows(name: str, draws: int, samplers: dict[str, Callable]) -> list[list[str]]:
    """The table's rows of one law."""
    law, runs = bayeslaw.law(name), bayeslaw.simulate(name, seed=1)
    runs, first, lines = runs[runs["ptpp"] <= 31], None, []
    for label, make in samplers.items():
        sample = make(law, runs, draws)
        cold, warm = timed(sample, 1), timed(sample, 2)
        first = first or (cold, warm)
        print(f"{name}, {label}: {cold} {warm}", file=sys.stderr, flush=True)
        times = [f"{first[0].per_second / cold.per_second:.1f}", f"{first[1].per_second / warm.per_second:.1f}"]
        cells = (f"{cold.seconds:.1f}", f"{warm.seconds:.1f}", f"{warm.ess:.0f}", f"{warm.rhat:.3f}")
        speed = (f"{cold.per_second:.1f} (1/{times[0]})", f"{warm.per_second:.1f} (1/{times[1]})")
        lines.append([name, label, *cells, *speed, f"{warm.steps:.1f}", str(warm.divergences)])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", default="ptpp-gate-floor,ptpp-floor,chinchilla")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    _engine.start()
    samplers = {"bayeslaw": ours, "NumPyro, plain": plain}
    if all(importlib.util.find_spec(p) for p in ("pymc", "nutpie", "numba")):
        samplers["PyMC + nutpie"] = nutpie
    load = os.getloadavg()[0]
    lines = [HEAD, ["---"] * len(HEAD)]
    for name in options.laws.split(","):
        lines += rows(name, options.draws, samplers)
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    table += (
        f"\n\nLoad of the machine before and after: {load:.1f} and {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )
    print(table)
    if options.output:
        options.output.write_text(table + "\n")


if __name__ == "__main__":
    main()
