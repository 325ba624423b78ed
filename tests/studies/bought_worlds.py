"""Compare chosen runs with random ones in worlds in which the law is right only up to a smooth misfit.

    python tests/studies/bought_worlds.py [--worlds 60] [--rows worlds.csv] [-o docs/results/bought_worlds.txt]
    python tests/studies/bought_worlds.py --rules chosen,wrong --worlds 30 [-o docs/results/wrong_law.txt]

The truth of each world is a law of N and D, at parameters drawn from its prior, times the exponential of a smooth function of size and tokens
with an sd of 1%. 64 runs are on offer, with .3% of noise. The goal is six runs of up to 40 times the compute of the largest run on offer. Runs
for 5% of the cost of all runs on offer are bought from nothing as in `study.py pool`, chosen or at random, and the default average
forecasts the goal. After an interruption, the same command goes on.

*wrong*: runs are chosen by one law alone that is not the truth (the other of the two laws); the forecast is made by the same average.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from pool_study import in_batches, outcome, purchase
from resumable import study

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._designs.buying.campaign import what_is_known
from bayeslaw._designs.menu import menu

LAWS = ("chinchilla", "coupled")
MISFIT, NOISE, BUDGET = 0.01, 0.003, 0.05
LENGTH, WAVES = 2.0, 64  # e-folds over which the misfit changes; of random features
OFFERED = {"N": np.geomspace(5e7, 2e9, 8), "D": np.geomspace(1e9, 6e10, 8)}
GOAL = [(n, d) for n in (4e9, 8e9) for d in (1e11, 2e11, 6e11)]


def world(seed: int) -> pd.DataFrame:
    """Make the runs on offer and the goal, with their losses."""
    rng = np.random.default_rng([20, seed])
    law = bayeslaw.law(LAWS[seed % len(LAWS)])
    values = {name: prior.draw(rng, 1)[0] for name, prior in law.priors.items()}
    offered = [(n, d) for n in OFFERED["N"] for d in OFFERED["D"]]
    runs = pd.DataFrame([*offered, *GOAL], columns=["N", "D"])
    columns = {c: runs[c].to_numpy() for c in law.covariates}
    loss = np.asarray(law.loss(columns, values))
    log_loss = np.log(loss) + misfit(runs, rng) + NOISE * rng.standard_normal(len(runs))
    split = np.where(np.arange(len(runs)) < len(offered), "offer", "goal")
    return runs.assign(loss=np.exp(log_loss), split=split)


def misfit(runs: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    """Draw a Gaussian process with squared-exponential covariance at runs."""
    at = np.log(runs[["N", "D"]].to_numpy()) / LENGTH
    frequencies = rng.standard_normal((2, WAVES))
    phases = rng.uniform(0, 2 * np.pi, WAVES)
    waves = np.cos(at @ frequencies + phases)
    return MISFIT * np.sqrt(2 / WAVES) * waves.sum(axis=1)


def bought(*, rule: str, seed: int) -> list[dict]:
    """Make one rule's purchase in a world."""
    runs = world(seed)
    parts = [runs[runs["split"] == part] for part in ("offer", "goal")]
    offered, goal = (part.reset_index(drop=True) for part in parts)
    laws = [bayeslaw.law(name) for name in LAWS]
    if rule == "wrong":
        other = laws[(seed + 1) % len(LAWS)]
        prices = menu(offered)
        whole = prices.price(np.ones(len(offered), bool))
        runtime.start()
        bought, _ = in_batches(offered, goal, [other], BUDGET * whole, seed)
        posterior = what_is_known(offered, bought, laws, seed)
        return [outcome(prices, bought, posterior, goal, seed)]
    return purchase(offered, goal, laws, rule=rule, budget=BUDGET, seed=seed)


def table(rows: pd.DataFrame) -> str:
    """Write a table of the results over worlds."""
    by_rule = {
        rule: part.set_index("seed") for rule, part in rows.groupby("rule", sort=False)
    }
    lines = [
        "| rule | worlds | runs | error | coverage | width | score |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule, part in by_rule.items():
        mean = part.mean(numeric_only=True)
        lines.append(
            f"| {rule} | {len(part)} | {mean['runs']:.0f} | {mean['mae']:.2%} | "
            f"{mean['cover90']:.0%} | {mean['width90']:.1%} | "
            f"{mean['interval_score90']:.1%} |"
        )
    (_, ours), (other, theirs) = by_rule.items()
    both = ours.merge(theirs, on="seed", suffixes=("", "_other"))
    narrower, closer, better = (
        (both[name] < both[f"{name}_other"]).mean()
        for name in ("width90", "mae", "interval_score90")
    )
    lines += [
        "",
        f"Chosen runs are narrower than {other} ones in {narrower:.0%} of worlds, have the smaller "
        f"error in {closer:.0%} and the lower score in {better:.0%}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=60)
    parser.add_argument("--rows", type=Path, default=Path("bought_worlds.csv"))
    parser.add_argument("--rules", default="chosen,random", help="two to compare")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    jobs = [
        {"rule": rule, "seed": seed}
        for seed in range(asked.worlds)
        for rule in asked.rules.split(",")
    ]
    told = table(study(bought, jobs, asked.rows, progress=print))
    print(told)
    if asked.output:
        asked.output.write_text(told)


if __name__ == "__main__":
    main()
