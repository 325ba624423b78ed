"""Check plans of mixtures in worlds in which the law has a misfit of one percent.

    python tests/studies/mixture_worlds.py [--worlds 100] [--processes 16]

A world has three domains and two evaluation sets. The truth of each set is a
`mixture-coupled` law with its own parameters, times a smooth misfit of 1% (sd over the
table) along log size, log tokens and the log of each share. A run's noise is .3%. 90 runs
are fitted (the design ``mixtures``), each set by the coupled law of the default average. A
model twice as large as the largest is planned at 90%, with limits that some mixture keeps
at 40B tokens. A plan is kept if the losses of a run at the plan, with misfit and noise,
are under both limits. ``regret``: log of the plan's tokens over those of the cheapest plan
by the truth.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._tables.simulate import mixture_grid

DOMAINS = ("web", "code", "books")
SETS = ("web", "code")
MISFIT, NOISE, SPREAD = 0.01, 0.003, 0.15
N, TOKENS = 2e9, 4e10  # of the model that is planned, and where its limits are set


def positions(runs: pd.DataFrame) -> np.ndarray:
    """Where runs lie along what a misfit varies with, in its units, (run, axis)."""
    counts = np.log(runs[["N", "D"]].to_numpy(float)) / 2
    shares = runs[[f"share_{name}" for name in DOMAINS]].to_numpy(float)
    return np.hstack([counts, np.log(np.maximum(shares, 0.01)) / 0.9])


class World:
    """One evaluation set's truth: its law, and a misfit of random waves."""

    def __init__(self, own: str, seed: int, waves: int = 60):
        rng = np.random.default_rng([seed, SETS.index(own)])
        others = tuple(name for name in DOMAINS if name != own)
        self.law = bayeslaw.law("mixture-coupled", (own, *others))
        values = self.law.from_paper(self.law.plausible)
        self.values = {
            name: float(value) * np.exp(SPREAD * rng.standard_normal())
            for name, value in values.items()
        }
        # random Fourier features of a squared-exponential kernel (Rahimi and Recht 2007)
        self.frequency = rng.standard_normal((5, waves))
        self.phase = rng.uniform(0, 2 * np.pi, waves)
        self.height = rng.standard_normal(waves) * np.sqrt(2 / waves)
        self.height *= MISFIT / np.std(self.misfit(mixture_grid()))

    def misfit(self, runs: pd.DataFrame) -> np.ndarray:
        """Misfit in log loss, (run,)."""
        return np.cos(positions(runs) @ self.frequency + self.phase) @ self.height

    def log_loss(self, runs: pd.DataFrame) -> np.ndarray:
        """True log loss without noise, (run,)."""
        columns = {name: runs[name].to_numpy(float) for name in self.law.covariates}
        loss = np.asarray(self.law.loss(columns, self.values))
        return np.log(loss) + self.misfit(runs)


def at(D: float, shares: dict[str, float]) -> pd.DataFrame:
    """Return the run that is planned."""
    columns = {f"share_{name}": share for name, share in shares.items()}
    return pd.DataFrame([{"N": N, "D": D, **columns}])


def plan_world(seed: int) -> list[dict]:
    """Fit a world's runs, plan, and make the run."""
    rng = np.random.default_rng([seed, 9])
    worlds = {name: World(name, seed) for name in SETS}
    runs = mixture_grid()
    middle = at(TOKENS, {"web": 0.45, "code": 0.4, "books": 0.15})
    limits = {
        n: float(np.exp(world.log_loss(middle)[0])) for n, world in worlds.items()
    }
    posteriors = {}
    for name, world in worlds.items():
        noise = NOISE * rng.standard_normal(len(runs))
        table = runs.assign(loss=np.exp(world.log_loss(runs) + noise), domain=name)
        posteriors[name] = bayeslaw.average(table, ["mixture-coupled"], seed=seed)
    plan = bayeslaw.plan_mixture(posteriors, N=N, max_loss=limits, seed=seed)
    run = at(plan.D, plan.shares)
    losses = {
        name: float(np.exp(world.log_loss(run)[0] + NOISE * rng.standard_normal()))
        for name, world in worlds.items()
    }
    return [
        {
            "feasible": plan.feasible,
            "probability": plan.probability,
            "D": plan.D,
            "kept": all(losses[name] <= limits[name] for name in SETS),
            **{f"kept_{name}": losses[name] <= limits[name] for name in SETS},
            "regret": float(np.log(plan.D / cheapest(worlds, limits))),
        }
    ]


def cheapest(worlds: dict[str, World], limits: dict[str, float]) -> float:
    """Find the least tokens at which some mixture on a grid has true losses that keep
    the limits.
    """
    shares = mixture_grid()[[f"share_{name}" for name in DOMAINS]].to_numpy()
    rng = np.random.default_rng(0)
    inside = rng.dirichlet(np.ones(3), 3000)
    is_within = (inside >= shares.min()) & (inside <= shares.max())
    mixtures = inside[is_within.all(axis=1)]
    for D in np.geomspace(2e9, 2 * TOKENS, 120):
        table = pd.DataFrame(mixtures, columns=[f"share_{name}" for name in DOMAINS])
        table = table.assign(N=N, D=D)
        is_kept = [np.exp(w.log_loss(table)) <= limits[n] for n, w in worlds.items()]
        if np.all(is_kept, axis=0).any():
            return float(D)
    return 2 * TOKENS


def sentence(rows: pd.DataFrame) -> str:
    """Describe the result over worlds."""
    planned = rows[rows["feasible"]]
    kept = planned["kept"]
    error = np.sqrt(kept.mean() * (1 - kept.mean()) / max(len(kept), 1))
    return (
        f"{len(planned)} of {len(rows)} worlds have a plan at 90%; {kept.mean():.0%} of "
        f"them are kept (standard error {error:.0%}), with "
        f"{np.exp(planned['regret'].median()):.2f} times the tokens of a plan that "
        "knows the truth (median)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--cache", type=Path, help="CSV of rows, one for each world")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = [{"seed": seed} for seed in range(options.worlds)]

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} worlds", file=sys.stderr, flush=True)

    with processes(options.processes) as executor:
        rows = study(
            plan_world, jobs, options.cache, executor=executor, progress=progress
        )
    print(sentence(rows))


if __name__ == "__main__":
    main()
