"""Forecast a stage and a size of minicpt that the fit has not seen, by the average.

    python tests/studies/minicpt_intervals.py

The default average is fitted to the sizes below 2.1 million at ptpp 15, 31 and 93, from 5
tokens per parameter on. It forecasts the same sizes at 279, the largest size at the fitted
stages, and the largest size at 279. Intervals are those of a new run at 90%, relative to
the loss.
"""

import warnings

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import interval_score

TABLES = ("minicpt", "minicpt-de")
LARGEST, LAST = 2e6, 279


def scores(forecast: pd.DataFrame, loss: np.ndarray) -> str:
    low, high, median = (forecast[c].to_numpy() for c in ("low", "high", "median"))
    cells = (
        np.mean((low <= loss) & (loss <= high)),
        np.mean((high - low) / loss),
        np.mean(np.abs(median / loss - 1)),
        np.mean(interval_score(np.log(low), np.log(high), np.log(loss))),
    )
    return " | ".join(f"{100 * cell:.1f}%" for cell in cells)


def main() -> None:
    warnings.simplefilter("ignore")
    print("| table, domain | forecast | cover | width | error | score |")
    print("|---|---|---|---|---|---|")
    for name in TABLES:
        runs = datasets.load(name)
        for domain in ("target", "source"):
            late = runs[(runs["domain"] == domain) & (runs["D"] > 4 * runs["N"])]
            smaller, last = late["N"] < LARGEST, late["ptpp"] == LAST
            average = bayeslaw.average(
                late[smaller & ~last],
                reference=datasets.TABLES[name].reference,
                on_failure="warn",
            )
            cases = {
                "279": smaller & last,
                "2.1M": ~smaller & ~last,
                "2.1M at 279": ~smaller & last,
            }
            for what, unseen in cases.items():
                forecast = bayeslaw.forecast(average, late[unseen])
                told = scores(forecast, late.loc[unseen, "loss"].to_numpy())
                print(f"| {name}, {domain} | {what} | {told} |", flush=True)


if __name__ == "__main__":
    main()
