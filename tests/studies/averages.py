"""Measure the coverage of the average's intervals beyond the grid.

The average is compared with each law alone, with its misfit and without, and with the papers' point fit with a bootstrap.

    python tests/studies/averages.py overtraining --table ../shared/data/overtraining.csv
    python tests/studies/averages.py coupled [--seeds 20]
    python tests/studies/averages.py separable [--seeds 20]
    python tests/studies/averages.py grids [--seeds 10] [--truth dcpt,ptpp-floor,ptpp-gate,ptpp-gate-floor]

Settings are the defaults, and seeds are fixed. Each case prints a line when it is done and is kept in --cache (a CSV), so that an
interrupted study goes on from there. ``coverage``: share of held-out runs inside the intervals (95% for coupled and separable,
else 90%).
"""

import argparse
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from point_fits import resampled_losses

import bayeslaw
from bayeslaw._forecasts.check import crps
from bayeslaw._posteriors.averaging.average import of_comparison

GRID_LAWS = ["dcpt", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor"]
BEYOND = pd.DataFrame(
    [(30e9, 600e9), (70e9, 1.4e12), (400e9, 15e12)], columns=["N", "D"]
)
TRUTH = {"E": 1.8, "A": 480.0, "B": 2085.0, "alpha": 0.35, "beta": 0.37}
K = 0.6


def scores(log_losses: np.ndarray, y: np.ndarray, prob: float) -> dict[str, float]:
    """Coverage, mean relative width, error of the median and CRPS of draws of log loss, shape (draw, run)."""
    low, middle, high = np.quantile(
        log_losses, [(1 - prob) / 2, 0.5, (1 + prob) / 2], axis=0
    )
    return {
        "coverage": float(((low <= y) & (y <= high)).mean()),
        "width": float(((np.exp(high) - np.exp(low)) / np.exp(middle)).mean()),
        "mae": float(np.abs(np.exp(middle - y) - 1).mean()),
        "crps": float(crps(np.exp(log_losses), np.exp(y)).mean()),
    }


def contest(
    case: str,
    laws: list[str],
    train: pd.DataFrame,
    test: pd.DataFrame,
    prob: float,
    seed: int,
) -> list[dict]:
    """Judge the average, each law alone (the same posteriors without drift), and the
    point fit of the first law with a bootstrap.
    """
    y, rows = np.log(test["loss"].to_numpy()), []

    def add(name, draws, seconds):
        rows.append(
            {
                "case": case,
                "seed": seed,
                "forecast": name,
                **scores(draws, y, prob),
                "seconds": seconds,
            }
        )

    began = time.perf_counter()
    judged = bayeslaw.compare(train, laws, seed=seed)
    mixed = of_comparison(judged, train, seed=seed)
    add(
        "average",
        mixed.log_loss(test, noise=True, seed=seed),
        time.perf_counter() - began,
    )
    rows[-1]["weights"] = ", ".join(
        f"{k} {v:.2f}" for k, v in mixed.weights.items() if v >= 0.005
    )
    alone = (
        laws
        if case.startswith("overtraining")
        else [laws[0] if case in ("coupled", "separable") else case]
    )
    for law in alone:
        only = np.array([float(j.law.name == law) for j in judged.judged])
        one = of_comparison(
            replace(judged, weights=only), train, drift=False, seed=seed
        )
        add(f"{law} alone", one.log_loss(test, noise=True, seed=seed), float("nan"))
        plain = bayeslaw.fit(
            train,
            law,
            discrepancy=False,
            preview=True,
            seed=seed,
            on_failure="ignore",
        )
        log_losses = plain.log_loss(test, noise=True, seed=seed)
        add(f"{law} without misfit", log_losses, plain.seconds)
    point = bayeslaw.point_fit(train, bayeslaw.law(alone[0]), bootstrap=200, seed=seed)
    miss = np.log(train["loss"].to_numpy()) - np.log(point.loss(train))
    rng = np.random.default_rng(seed)
    boot = np.log(resampled_losses(point, test))
    add(f"{alone[0]} bootstrap", boot + rng.choice(miss, size=boot.shape), float("nan"))
    return rows


def overtraining(options):
    runs = bayeslaw.read_runs(options.table, where="domain == 'c4_val'")
    for corpus, part in runs.groupby("corpus"):
        train, test = part.query("ptpp <= 40 and N < 1e9"), part.query("ptpp >= 80")
        yield f"overtraining {corpus}", (["chinchilla", "coupled"], train, test, 0.9), 0


def beyond(options, truth):
    parameters = TRUTH if truth == "chinchilla" else {
        **TRUTH, "A": TRUTH["A"] ** (1 / K), "B": TRUTH["B"] ** (1 / K), "k": K
    }  # fmt: skip
    grid = pd.MultiIndex.from_product(
        [np.geomspace(2e7, 1e9, 6), np.geomspace(3e8, 3e10, 6)], names=["N", "D"]
    )
    for seed in range(options.seeds):
        train = bayeslaw.simulate(
            truth, design=grid.to_frame(index=False), parameters=parameters, seed=seed
        )
        test = bayeslaw.simulate(truth, design=BEYOND, parameters=parameters, noise=0.0)
        name = "separable" if truth == "chinchilla" else "coupled"
        yield name, (["chinchilla", "coupled"], train, test, 0.95), seed


def grids(options):
    for seed in range(options.seeds):
        for truth in options.truth.split(","):
            runs = bayeslaw.simulate(truth, seed=seed).drop(
                columns=["source_loss_before", "loss_before"]
            )
            yield (
                truth,
                (GRID_LAWS, runs[runs["ptpp"] <= 31], runs[runs["ptpp"] == 279], 0.9),
                seed,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "study", choices=["overtraining", "coupled", "separable", "grids"]
    )
    parser.add_argument(
        "--table", type=Path, default=Path("../shared/data/overtraining.csv")
    )
    parser.add_argument("--truth", default=",".join(GRID_LAWS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--cache", type=Path, default=None)
    options = parser.parse_args()
    options.seeds = options.seeds or (10 if options.study == "grids" else 20)
    cache = options.cache or Path(f"{options.study}.csv")
    warnings.simplefilter("ignore")
    made = {
        "overtraining": overtraining,
        "coupled": lambda o: beyond(o, "coupled"),
        "separable": lambda o: beyond(o, "chinchilla"),
        "grids": grids,
    }[options.study](options)
    done = (
        pd.read_csv(cache) if cache.exists() else pd.DataFrame(columns=["case", "seed"])
    )
    for case, (laws, train, test, prob), seed in made:
        if ((done["case"] == case) & (done["seed"] == seed)).any():
            continue
        rows = pd.DataFrame(contest(case, laws, train, test, prob, seed))
        done = pd.concat([done, rows], ignore_index=True) if len(done) else rows
        done.to_csv(cache, index=False)
        print(
            rows.to_string(index=False, float_format=lambda v: f"{v:.3f}"),
            file=sys.stderr,
            flush=True,
        )
    table = done.groupby(["case", "forecast"], sort=False)[
        ["coverage", "width", "mae", "crps"]
    ].mean()
    table.insert(0, "seeds", done.groupby(["case", "forecast"])["seed"].nunique())
    worst = done.groupby(["case", "forecast"])["coverage"].min()
    table.insert(2, "worst seed", worst)
    print(
        "| case | forecast | seeds | coverage | worst | width | MAE | CRPS (nats) |\n|---|---|---|---|---|---|---|---|"
    )
    for (case, forecast), row in table.iterrows():
        figures = f"{row['coverage']:.1%} | {row['worst seed']:.0%} | {row['width']:.1%} | {row['mae']:.2%} | {row['crps']:.4f}"
        print(f"| {case} | {forecast} | {row['seeds']:.0f} | {figures} |")


if __name__ == "__main__":
    main()
