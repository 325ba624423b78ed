"""A hundred simulated worlds: how often does a plan at 90% keep its promises, and how often a plug-in plan?

In each world the target follows Form 3 and the source Form 1 at parameters of its own. Runs of the paper's grid at 15
and 31 pre-training tokens per parameter, and those of the smallest model at 279, are simulated and fitted. Then
8.1e9 parameters at 279 are planned for. The limits are numbers a team would set from its fits: the target loss
they expect at 10 tokens per parameter and 30% replay, and at most 2% forgetting over a baseline 1% under the source
loss they expect there. The plan is carried out in the world: the loss of one new run of each domain, with noise.

    python tests/studies/plan_worlds.py --worlds 100 -o worlds.csv

Worlds already in the file are not made again, so that parts can run side by side and be put together.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bayeslaw import _engine
from bayeslaw._catalogue import law
from bayeslaw._fit import fit
from bayeslaw._plan import plan
from bayeslaw._simulate import NOISE, simulate

TARGET, SOURCE = "ptpp-gate-floor", "ptpp-floor"
MODEL = {"N": 8.1e9, "ptpp": 279.0}
EXPECTED_AT = MODEL | {"D": 10 * 8.1e9, "replay": 0.3}
SPREAD = 0.15  # sd of the log of a world's parameters around the plausible ones
CONFIDENCE = 0.9


def world(name: str, rng: np.random.Generator) -> dict[str, float]:
    """Parameters of one world, in the paper's units; lam stays a share."""
    made = {k: v * float(np.exp(SPREAD * rng.standard_normal())) for k, v in law(name).plausible.items()}
    return {k: min(v, 0.95) if k == "lam" else v for k, v in made.items()}


def fitted(name: str, parameters: dict[str, float], seed: int):
    """The posterior from the runs that a team would have."""
    runs = simulate(name, parameters=parameters, seed=seed)
    return fit(runs[(runs["ptpp"] < 100) | (runs["N"] < 3e8)], name, seed=seed, on_failure="ignore")


def true_loss(name: str, parameters: dict[str, float], D: float, replay: float) -> float:
    """Loss of the law itself, in nats per token."""
    runs = pd.DataFrame([MODEL | {"D": D, "replay": replay}])
    return float(simulate(name, design=runs, parameters=parameters, noise=0.0)["loss"].iloc[0])


def kept(parameters: dict[str, dict], D: float, replay: float, limits: dict[str, float], noise) -> bool:
    """Whether one run of each domain keeps its limit."""
    return all(true_loss(n, parameters[n], D, replay) * np.exp(noise[n]) <= limits[n] for n in (TARGET, SOURCE))


def one(seed: int) -> dict:
    """One world: its plans and what came of them."""
    began, rng = time.perf_counter(), np.random.default_rng([2025, seed])
    parameters = {name: world(name, rng) for name in (TARGET, SOURCE)}
    fits = {name: fitted(name, parameters[name], 2 * seed + k) for k, name in enumerate(parameters)}
    expected = {n: float(np.exp(np.median(f.log_loss(pd.DataFrame([EXPECTED_AT]))))) for n, f in fits.items()}
    baseline = expected[SOURCE] / 1.01
    limits = {TARGET: expected[TARGET], SOURCE: 1.02 * baseline}
    made = plan(
        fits[TARGET], fits[SOURCE], **MODEL, max_target_loss=limits[TARGET], max_forgetting=0.02,
        baseline_loss=baseline, confidence=CONFIDENCE, seed=seed,
    )  # fmt: skip
    noise = {name: NOISE * rng.standard_normal() for name in (TARGET, SOURCE)}
    row = {"world": seed, "feasible": made.feasible, "atpp": made.atpp, "replay": made.replay}
    row |= {"probability": made.probability, "plug_in_atpp": made.plug_in["atpp"]}
    row |= {"plug_in_probability": made.plug_in["probability"]}
    row["kept"] = made.feasible and kept(parameters, made.D, made.replay, limits, noise)
    point = made.plug_in
    row["plug_in_kept"] = point["D"] is not None and kept(parameters, point["D"], point["replay"], limits, noise)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("-o", "--output", type=Path, default=Path("plan_worlds.csv"))
    given = parser.parse_args()
    _engine.start()
    rows = pd.read_csv(given.output).to_dict("records") if given.output.exists() else []
    done = {r["world"] for r in rows}
    for seed in range(given.first, given.first + given.worlds):
        if seed not in done:
            rows.append(one(seed))
            pd.DataFrame(rows).to_csv(given.output, index=False)
            print(
                {k: v for k, v in rows[-1].items() if k in ("world", "atpp", "kept", "plug_in_kept", "seconds")},
                flush=True,
            )
    print(table(pd.DataFrame(rows)))


if __name__ == "__main__":
    main()
