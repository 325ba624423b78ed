"""Sweeps of learning rates whose tuned truth is known: ``python tests/studies/tuned_worlds.py
--worlds 100``.

A world: Chinchilla's law with parameters of its own; 9 cells (three sizes by three budgets)
by 5 rates a factor of two apart, whose best one moves with size and tokens and lies anywhere
between two of them; loss rises by the square of the log rate; noise .3%. Forecast is the
tuned loss at four times the largest size and budget, from the cells' tuned losses, from all
runs, and from each cell's best run as it is.

Parameters lie near published ones: sd .1 of the log of what they add, .05 of exponents.
``--as-priors`` draws them from the law's priors, several times as wide: an interval of 90%
promises to hold 90% of such worlds, and holds more of those near the middle of its priors.
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd

import bayeslaw

SIZES, TOKENS = (1e8, 3e8, 1e9), (2e9, 8e9, 3.2e10)
GOAL = {"N": 4e9, "D": 1.28e11}


def near_published(rng: np.random.Generator) -> tuple[float, ...]:
    """E, A, B, alpha, beta of a law like Chinchilla's."""
    E, A, B = np.array([1.8, 480.0, 2085.0]) * np.exp(0.1 * rng.standard_normal(3))
    alpha, beta = np.array([0.348, 0.366]) * np.exp(0.05 * rng.standard_normal(2))
    return E, A, B, alpha, beta


def as_priors(rng: np.random.Generator) -> tuple[float, ...]:
    """The same, drawn from the priors of the law that is fitted."""
    law = bayeslaw.law("chinchilla")
    drawn = {}
    for name, prior in law.priors.items():
        median, sd = prior.args
        drawn[name] = median * np.exp(sd * rng.standard_normal())
    alpha, beta = drawn["alpha"], drawn["beta"]
    A = drawn["A_nats"] * law.reference["N"] ** alpha
    B = drawn["B_nats"] * law.reference["D"] ** beta
    return drawn["E_nats"], A, B, alpha, beta


def world(
    seed: int, noise: float = 3e-3, draw: Callable = near_published
) -> tuple[pd.DataFrame, float]:
    """The runs of a world, and its tuned loss at the goal."""
    rng = np.random.default_rng(seed)
    E, A, B, alpha, beta = draw(rng)
    curvature = 0.01 * np.exp(0.4 * rng.standard_normal())
    first, by_size = rng.uniform(np.log(2), np.log(3)), rng.uniform(0.1, 0.4)

    def lowest(N: float, D: float) -> float:
        return E + A / N**alpha + B / D**beta

    rows = []
    for N in SIZES:
        for D in TOKENS:
            best = np.log(1e-3) + first - by_size * np.log(N / 1e8)
            best -= 0.1 * np.log(D / 2e9)
            grid = np.log(1e-3) + np.log(2) * np.round(
                (best - np.log(1e-3)) / np.log(2)
            )
            for rate in grid + np.log(2) * np.arange(-2, 3):
                loss = lowest(N, D) * np.exp(curvature * (rate - best) ** 2)
                loss *= np.exp(noise * rng.standard_normal())
                rows.append((N, D, np.exp(rate), loss))
    runs = pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])
    return runs, lowest(**GOAL)


def told(
    runs: pd.DataFrame, truth: float, plain: bool, experience: str | None
) -> tuple[float, bool]:
    """Relative error of the forecast, and whether its 90% interval holds."""
    fit = bayeslaw.fit(
        runs[["N", "D", "loss"]],
        "chinchilla",
        discrepancy=not plain,
        experience=experience,
        seed=0,
        on_failure="ignore",
    )
    row = bayeslaw.forecast(fit, pd.DataFrame([GOAL])).iloc[0]
    inside = row["law_low"] <= truth <= row["law_high"]
    return row["median"] / truth - 1, bool(inside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument(
        "--all", action="store_true", help="of all runs and least ones, too"
    )
    parser.add_argument("--as-priors", action="store_true")
    parser.add_argument("--plain", action="store_true", help="the law alone")
    asked = parser.parse_args()
    draw, experience = near_published, None
    if asked.as_priors:
        draw, experience = as_priors, "none"
    warnings.simplefilter("ignore")
    results: dict[str, list[tuple[float, bool]]] = {}
    for seed in range(asked.worlds):
        runs, truth = world(seed, draw=draw)
        tables = {"tuned": bayeslaw.tuned(runs, "lr")}
        if asked.all:
            tables["all runs"] = runs
            tables["least"] = runs.loc[runs.groupby(["N", "D"])["loss"].idxmin()]
        for name, table in tables.items():
            results.setdefault(name, []).append(
                told(table, truth, asked.plain, experience)
            )
        if seed % 10 == 9 or seed == asked.worlds - 1:
            for name, pairs in results.items():
                error = np.array([e for e, _ in pairs])
                inside = np.mean([i for _, i in pairs])
                print(
                    f"{seed + 1} worlds, {name}: mean error {error.mean():+.2%}, median "
                    f"size {np.median(np.abs(error)):.2%}, 90% intervals hold "
                    f"{inside:.0%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
