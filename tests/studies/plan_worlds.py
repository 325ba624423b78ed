"""Count in a hundred simulated worlds how often a plan at 90%, and a plug-in plan, keep their promises.

In each world the target follows Form 3 and the source Form 1, at parameters of this world. Runs of the paper's grid at
15 and 31 pre-training tokens per parameter, and runs of the smallest model at 279, are simulated and fitted. Then a plan
is made for 8.1e9 parameters at 279. The limits are numbers that a team would set from its fits: the target loss that the
fits expect at 10 tokens per parameter and 30% replay, and at most 2% forgetting over a baseline that is 1% below the
source loss expected there. The plan is carried out in the world: one new run of each domain is simulated, with noise.

    python tests/studies/plan_worlds.py --worlds 100 -o worlds.csv
    python tests/studies/plan_worlds.py --worlds 100 --misfit 0.01 --preview -o missed_worlds.csv

With `--misfit` the truth is a law times the exponential of a smooth function of size, tokens, replay and stage with this
sd, drawn for each world and domain. With `--preview` posteriors are drawn by importance sampling, in seconds. Worlds
that are in the file already are not made again, so that parts can run side by side and be combined.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.machine import runtime
from bayeslaw._law.catalogue import law
from bayeslaw._plans.plan import plan
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._tables.simulate import NOISE, simulate

TARGET, SOURCE = "ptpp-gate-floor", "ptpp-floor"
MODEL = {"N": 8.1e9, "ptpp": 279.0}
EXPECTED_AT = MODEL | {"D": 10 * 8.1e9, "replay": 0.3}
SPREAD = 0.15  # sd of the log of a world's parameters around the plausible ones
CONFIDENCE = 0.9
# e-folds over which a misfit changes by its own size, of the share of target for replay
LENGTHS = {"N": 3.0, "D": 3.0, "replay": 1.0, "ptpp": 3.0}
WAVES = 200
DRAWS = 2000  # of a plan: half of the default, and half of the time


def world(name: str, rng: np.random.Generator) -> dict[str, float]:
    """Parameters of one world, in the paper's units; lam stays a share."""
    made = {
        k: v * float(np.exp(SPREAD * rng.standard_normal()))
        for k, v in law(name).plausible.items()
    }
    return {k: min(v, 0.95) if k == "lam" else v for k, v in made.items()}


class Misfit(NamedTuple):
    """A smooth function of a run, normal at every run: random waves (Rahimi and Recht 2007)."""

    sd: float
    frequencies: np.ndarray  # radians a unit of `LENGTHS`, shape (wave, column)
    phases: np.ndarray  # shape (wave,)

    def __call__(self, runs: pd.DataFrame) -> np.ndarray:
        """Log loss beside the law's at each run, shape (run,)."""
        left = runs.assign(replay=1 - runs["replay"])
        x = np.log(left[list(LENGTHS)].to_numpy(float)) / list(LENGTHS.values())
        waves = np.cos(x @ self.frequencies.T + self.phases)
        return self.sd * np.sqrt(2 / len(self.phases)) * waves.sum(axis=1)


def smooth_misfit(sd: float, rng: np.random.Generator) -> Misfit:
    """Draw a function of a Gaussian process with squared-exponential covariance."""
    frequencies = rng.standard_normal((WAVES, len(LENGTHS)))
    return Misfit(sd, frequencies, rng.uniform(0, 2 * np.pi, WAVES))


class World(NamedTuple):
    """The truth of one domain."""

    law: str
    parameters: dict[str, float]
    misfit: Misfit

    def runs(self, seed: int) -> pd.DataFrame:
        """The runs that a team would have."""
        runs = simulate(self.law, parameters=self.parameters, seed=seed)
        runs = runs.assign(loss=runs["loss"] * np.exp(self.misfit(runs)))
        return runs[(runs["ptpp"] < 100) | (runs["N"] < 3e8)]

    def loss(self, D: float, replay: float) -> float:
        """Of the model that is planned for, without noise, in nats per token."""
        run = pd.DataFrame([MODEL | {"D": D, "replay": replay}])
        known = {"design": run, "parameters": self.parameters, "noise": 0.0}
        of_law = simulate(self.law, **known)["loss"].iloc[0]
        return float(of_law * np.exp(self.misfit(run)[0]))


def kept(
    worlds: dict[str, World],
    D: float,
    replay: float,
    limits: dict[str, float],
    noise,
) -> bool:
    """Tell whether one run of each domain keeps its limit."""
    return all(
        worlds[n].loss(D, replay) * np.exp(noise[n]) <= limits[n]
        for n in (TARGET, SOURCE)
    )


def one(seed: int, misfit: float, preview: bool) -> dict:
    """One world: its plans and what came of them."""
    began, rng = time.perf_counter(), np.random.default_rng([2025, seed])
    parameters = {name: world(name, rng) for name in (TARGET, SOURCE)}
    waves = np.random.default_rng([2026, seed])
    worlds = {
        name: World(name, values, smooth_misfit(misfit, waves))
        for name, values in parameters.items()
    }
    fits = {}
    for k, (name, truth) in enumerate(worlds.items()):
        known = {"seed": 2 * seed + k, "preview": preview, "on_failure": "ignore"}
        fits[name] = fit(truth.runs(2 * seed + k), name, **known)
    expected = {
        n: float(np.exp(np.median(f.log_loss(pd.DataFrame([EXPECTED_AT])))))
        for n, f in fits.items()
    }
    baseline = expected[SOURCE] / 1.01
    limits = {TARGET: expected[TARGET], SOURCE: 1.02 * baseline}
    made = plan(
        fits[TARGET], fits[SOURCE], **MODEL, max_target_loss=limits[TARGET], max_forgetting=0.02,
        baseline_loss=baseline, confidence=CONFIDENCE, draws=DRAWS, seed=seed,
    )  # fmt: skip
    noise = {name: NOISE * rng.standard_normal() for name in (TARGET, SOURCE)}
    row = {
        "world": seed,
        "feasible": made.feasible,
        "atpp": made.atpp,
        "replay": made.replay,
    }
    row |= {"probability": made.probability, "plug_in_atpp": made.plug_in["atpp"]}
    row |= {"plug_in_probability": made.plug_in["probability"]}
    row["kept"] = made.feasible and kept(worlds, made.D, made.replay, limits, noise)
    point = made.plug_in
    row["plug_in_kept"] = point["D"] is not None and kept(
        worlds, point["D"], point["replay"], limits, noise
    )
    row["diagnostics"] = "ok" if not made.warnings else "failed"
    return row | {"seconds": time.perf_counter() - began}


def table(rows: pd.DataFrame) -> str:
    """The result as Markdown."""
    planned = rows[rows["feasible"]]
    pointed = rows[rows["plug_in_atpp"].notna()]
    ratio = (planned["atpp"] / planned["plug_in_atpp"]).median()
    return "\n".join(
        [
            "| plan | worlds with a plan | kept both promises | promised (mean) | median cost against plug-in |",
            "|---|---|---|---|---|",
            f"| at confidence {CONFIDENCE:g} | {len(planned)} of {len(rows)} | {planned['kept'].mean():.0%} "
            f"| {planned['probability'].mean():.0%} | {ratio:.2f} |",
            f"| plug-in (posterior mean) | {len(pointed)} of {len(rows)} | {pointed['plug_in_kept'].mean():.0%} "
            f"| {pointed['plug_in_probability'].mean():.0%} | 1 |",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first world"
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--misfit", type=float, default=0.0, help="sd on log loss")
    parser.add_argument("--preview", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("plan_worlds.csv"))
    given = parser.parse_args()
    runtime.start()
    rows = pd.read_csv(given.output).to_dict("records") if given.output.exists() else []
    done = {r["world"] for r in rows}
    for seed in range(given.first, given.first + given.worlds):
        if seed not in done:
            rows.append(one(seed, given.misfit, given.preview))
            pd.DataFrame(rows).to_csv(given.output, index=False)
            print(
                {
                    k: v
                    for k, v in rows[-1].items()
                    if k in ("world", "atpp", "kept", "plug_in_kept", "seconds")
                },
                flush=True,
            )
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
