"""Fit fine-tuned models on few examples and forecast many.

    python tests/studies/rectified.py finetune_examples.csv

The table is published by Lin et al. Each model on one data set with 12 or more points is a
case. The average of two laws, or one of them (``--laws rectified``), is fitted up to 204,800
examples and forecasts beyond, with drift or without (``--no-drift``). It is compared with
scipy's least squares of the rectified law on log loss, from 40 starts. Prints how often 90%
intervals of a new run hold, and the median relative error of both.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import optimize

import bayeslaw

SEEN = 204_800
LAWS = ["rectified", "broken"]


def by_scipy(seen: pd.DataFrame, held: pd.DataFrame, starts: int = 40) -> np.ndarray:
    """Forecasts of the least-squares fit of E + B/(D0 + D^beta)."""
    D, y = seen["D"].to_numpy(float), np.log(seen["loss"].to_numpy(float))

    def loss(p: np.ndarray, D: np.ndarray) -> np.ndarray:
        E, B, D0, beta = np.exp(p)
        return E + B / (D0 + D**beta)

    rng = np.random.default_rng(0)
    fits = []
    for _ in range(starts):
        start = rng.normal(np.log([1.0, 30.0, 25.0, 0.4]), [0.7, 1.5, 2.0, 0.6])
        fits.append(
            optimize.least_squares(
                lambda p: np.log(loss(p, D)) - y,
                start,
                bounds=([-12, -12, -12, -5], [5, 14, 14, 1]),
                x_scale=1.0,
            )
        )
    best = min(fits, key=lambda f: f.cost)
    return loss(best.x, held["D"].to_numpy(float))


def case(rows: pd.DataFrame, laws: list[str], drift: bool) -> pd.DataFrame | None:
    """Held-out rows of one model with both forecasts; None of too few points."""
    rows = rows[rows["D"] > 0].sort_values("D")
    seen, held = rows[rows["D"] <= SEEN], rows[rows["D"] > SEEN]
    if len(rows) < 12 or held.empty:
        return None
    read = ["D", "loss"]
    fit = bayeslaw.average(seen[read], laws, seed=0, drift=drift, on_failure="warn")
    told = bayeslaw.forecast(fit, held[["D"]])
    losses = held["loss"].to_numpy()
    return pd.DataFrame(
        {
            "D": held["D"].to_numpy(),
            "inside": (told["low"].to_numpy() <= losses)
            & (losses <= told["high"].to_numpy()),
            "ours": np.abs(told["median"].to_numpy() / losses - 1),
            "bias": told["median"].to_numpy() / losses - 1,
            "scipy": np.abs(by_scipy(seen, held) / losses - 1),
            "width": (told["high"] / told["low"] - 1).to_numpy(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--dataset", help="flan or wmt19; default: both")
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--no-drift", action="store_true")
    asked = parser.parse_args()
    runs = pd.read_csv(asked.table)
    warnings.simplefilter("ignore")
    laws, cases = asked.laws.split(","), []
    for (dataset, model), rows in runs.groupby(["dataset", "model"]):
        if (
            asked.dataset in (None, dataset)
            and (found := case(rows, laws, not asked.no_drift)) is not None
        ):
            cases.append(found.assign(dataset=dataset, model=model))
            line = found[["inside", "ours", "scipy", "width"]].mean()
            print(dataset, model, line.round(4).to_dict(), flush=True)
    rows = pd.concat(cases)
    for name, group in [*rows.groupby("dataset"), ("all", rows)]:
        print(
            f"{name}: {group['model'].nunique()} models, {len(group)} forecasts: "
            f"90% intervals hold {group['inside'].mean():.1%}; median error "
            f"{group['ours'].median():.2%}, scipy {group['scipy'].median():.2%}; mean "
            f"{group['ours'].mean():.2%}, scipy {group['scipy'].mean():.2%}; bias "
            f"{group['bias'].mean():+.2%}; width "
            f"{group['width'].median():.1%}"
        )


if __name__ == "__main__":
    main()
