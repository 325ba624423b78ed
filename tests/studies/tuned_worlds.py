"""Forecast tuned losses in simulated sweeps of learning rates, whose truth is known.

    python tests/studies/tuned_worlds.py --worlds 100 --preview

The truth of a world is Chinchilla's law with parameters of this world. There are 9 cells
(three sizes by three budgets), each with 5 rates a factor of two apart. The best rate moves
with size and tokens and may lie between two rates. The loss rises with the square of the
log rate; noise is .3%. The goal is the tuned loss at four times the largest size and
budget. It is forecast from the cells' tuned losses (with misfit and drift, without the
drift, and by the law alone), and from all runs by a law with an optimal rate. With
``--all`` it is also forecast from all runs by a law that does not read the rate, and from
the loss of each cell's best run.

Parameters lie near published ones: the sd of the log is .1 for contributions and .05 for
exponents. ``--as-priors`` draws them from the law's priors, which are several times as
wide: intervals of 90% should hold 90% of such worlds, and they hold more of the worlds near
the middle of the priors. ``--missed`` adds a misfit and a drift from their priors.

``--average`` forecasts by default averages: of all runs (whose laws read the rate where it
moves losses enough, see ``--curvature``), of all runs as if of one rate, and of the tuned
cells. The score is the width of the interval, and 20 times what it misses the truth by.

``--measured`` leaves out the measured runs of microcpt-rates at other rates than the usual
one, at the last stage or of the largest size, and forecasts them with and without the rate.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._inference.discrepancy.drift import (
    distances,
    draw_from_prior,
    training_range,
)
from bayeslaw._inference.discrepancy.process import process_of

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


CELLS = {
    "N": np.repeat(SIZES, len(TOKENS)),
    "D": np.tile(TOKENS, len(SIZES)),
}


def miss(seed: int) -> np.ndarray:
    """What a law is off by in log loss at the cells and at the goal, shape (cell + 1,):
    a draw of the priors of its misfit and of its drift beyond the cells.
    """
    rng = np.random.default_rng([seed, 1])
    everywhere = {c: np.append(values, GOAL[c]) for c, values in CELLS.items()}
    process = process_of(CELLS)
    assert process is not None
    log_scales = [
        np.log(p.args[0]) + p.args[1] * rng.standard_normal()
        for p in process.priors.values()
    ]
    sds = np.exp(process.spectrum.log_variances(np.array(log_scales)) / 2)
    weights = sds * rng.standard_normal(process.size)
    cells = training_range(CELLS)
    drift = draw_from_prior(cells, 1, rng)[0]
    away = np.asarray(distances(everywhere, cells, np))
    return process.features(everywhere, np) @ weights + away @ drift


def world(
    seed: int,
    noise: float = 3e-3,
    draw: Callable = near_published,
    missed: bool = False,
    curvature: float = 0.01,
) -> tuple[pd.DataFrame, float]:
    """The runs of a world, and its tuned loss at the goal."""
    rng = np.random.default_rng(seed)
    off = np.exp(miss(seed)) if missed else np.ones(len(SIZES) * len(TOKENS) + 1)
    E, A, B, alpha, beta = draw(rng)
    curvature *= np.exp(0.4 * rng.standard_normal())
    first, by_size = rng.uniform(np.log(2), np.log(3)), rng.uniform(0.1, 0.4)

    def lowest(N: float, D: float) -> float:
        return E + A / N**alpha + B / D**beta

    rows = []
    for N in SIZES:
        for D in TOKENS:
            cell = off[SIZES.index(N) * len(TOKENS) + TOKENS.index(D)]
            best = np.log(1e-3) + first - by_size * np.log(N / 1e8)
            best -= 0.1 * np.log(D / 2e9)
            grid = np.log(1e-3) + np.log(2) * np.round(
                (best - np.log(1e-3)) / np.log(2)
            )
            for rate in grid + np.log(2) * np.arange(-2, 3):
                loss = cell * lowest(N, D) * np.exp(curvature * (rate - best) ** 2)
                loss *= np.exp(noise * rng.standard_normal())
                rows.append((N, D, np.exp(rate), loss))
    runs = pd.DataFrame(rows, columns=["N", "D", "lr", "loss"])
    return runs, float(off[-1] * lowest(**GOAL))


class Told(NamedTuple):
    """A forecast beside the truth: relative error, whether the law's 90% interval holds
    it, and half of the width of that, relative.
    """

    error: float
    inside: bool
    half: float


def told(
    fit: bayeslaw.Fit | bayeslaw.Average, goal: Mapping[str, float], truth: float
) -> Told:
    row = bayeslaw.forecast(fit, pd.DataFrame([goal])).iloc[0]
    inside = row["law_low"] <= truth <= row["law_high"]
    half = (row["law_high"] - row["law_low"]) / 2 / row["median"]
    return Told(row["median"] / truth - 1, bool(inside), half)


def without_drift(fit: bayeslaw.Fit) -> bayeslaw.Fit:
    """The same fit as it would be of over 24 runs."""
    tree = fit.inference_data.copy()
    del tree["misfit"]["drift"]
    return bayeslaw.Fit(fit.law, tree)


def goal_of(fit: bayeslaw.Fit) -> dict[str, float]:
    """The goal, at the rate of which the loss is expected to be least."""
    ranges = {"lr": (1e-5, 1e-1)}
    best = bayeslaw.best_settings(None, fit, GOAL, source_weight=0.0, ranges=ranges)
    return GOAL | {"lr": best["lr"].best}


def forecasts(
    runs: pd.DataFrame, truth: float, everything: bool, **options
) -> dict[str, Told]:
    """Each way of forecasting the tuned loss, by name."""
    columns = ["N", "D", "loss"]
    cells = bayeslaw.tuned(runs, "lr")[columns]

    def fitted(table: pd.DataFrame, law: str = "chinchilla", plain: bool = False):
        return bayeslaw.fit(
            table, law, discrepancy=not plain, seed=0, on_failure="ignore", **options
        )

    whole = fitted(cells)
    results = {
        "tuned": told(whole, GOAL, truth),
        "tuned, without drift": told(without_drift(whole), GOAL, truth),
        "tuned, law alone": told(fitted(cells, plain=True), GOAL, truth),
    }
    for name, plain in {
        "with the rate": False,
        "with the rate, law alone": True,
    }.items():
        fit = fitted(runs, "chinchilla+lr", plain)
        results[name] = told(fit, goal_of(fit), truth)
    if everything:
        least = runs.loc[runs.groupby(["N", "D"])["loss"].idxmin()]
        results["all runs"] = told(fitted(runs[columns]), GOAL, truth)
        results["least"] = told(fitted(least[columns]), GOAL, truth)
    return results


def averages(runs: pd.DataFrame, truth: float) -> dict[str, Told]:
    """Default averages, whose forecasts are of a tuned run, or of one of middling rate."""
    columns = ["N", "D", "loss"]
    tables = {
        "default": runs,
        "rate not read": runs[columns],
        "tuned cells": bayeslaw.tuned(runs, "lr")[columns],
    }
    return {
        name: told(bayeslaw.average(table, seed=0, on_failure="ignore"), GOAL, truth)
        for name, table in tables.items()
    }


def measured() -> None:
    """Mean size of the error at runs left out, of a law without and with the rate."""
    table = bayeslaw.datasets.load("microcpt-rates")
    options = {"reference": {"N": 2e4, "D": 1e6}, "discrepancy": False, "preview": True}
    for domain, rows in table.groupby("domain"):
        last_two = rows.groupby("run")["D"].nlargest(2).index.get_level_values(1)
        runs = rows.loc[last_two]
        places = {
            "last stage": runs["ptpp"] == runs["ptpp"].max(),
            "largest size": runs["N"] == runs["N"].max(),
        }
        for place, inside in places.items():
            left_out = inside & (runs["rate"] != 1)
            for law in ("ptpp-floor", "ptpp-floor+rate"):
                fit = bayeslaw.fit(
                    runs[~left_out],
                    law,
                    independent=True,
                    on_failure="ignore",
                    **options,
                )
                median = bayeslaw.forecast(fit, runs[left_out])["median"]
                error = np.abs(median / runs["loss"][left_out] - 1).mean()
                print(f"{domain}, {place}: {law} {error:.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument(
        "--all", action="store_true", help="of all runs and least ones, too"
    )
    parser.add_argument("--as-priors", action="store_true")
    parser.add_argument("--missed", action="store_true", help="the law is off")
    parser.add_argument("--preview", action="store_true", help="importance sampling")
    parser.add_argument("--average", action="store_true", help="by default averages")
    parser.add_argument("--curvature", type=float, default=0.01, help="of log loss")
    parser.add_argument("--measured", action="store_true", help="of tiny models")
    settings = parser.parse_args()
    warnings.simplefilter("ignore")
    if settings.measured:
        return measured()
    options: dict = {"preview": settings.preview}
    draw = near_published
    if settings.as_priors:
        draw, options["experience"] = as_priors, "none"
    worlds = {"missed": settings.missed, "curvature": settings.curvature}
    results: dict[str, list[Told]] = {}
    for seed in range(settings.worlds):
        runs, truth = world(seed, draw=draw, **worlds)
        if settings.average:
            rows = averages(runs, truth)
        else:
            rows = forecasts(runs, truth, settings.all, **options)
        for name, row in rows.items():
            results.setdefault(name, []).append(row)
        # programs of a world's tables fill the memory map after some seventy worlds
        jax.clear_caches()
        if seed % 10 == 9 or seed == settings.worlds - 1:
            print(f"{seed + 1} worlds", flush=True)
            for name, rows in results.items():
                error, inside, half = map(np.array, zip(*rows, strict=True))
                score = 2 * half + 20 * np.maximum(np.abs(error) - half, 0)
                print(
                    f"| {name} | {error.mean():+.2%} | {np.median(np.abs(error)):.2%} "
                    f"| {np.median(half):.2%} | {inside.mean():.0%} "
                    f"| {score.mean():.2%} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
