"""The papers' tables on measured runs: fitted at the smaller stages, forecast at the largest ptpp, every law and the average.

    python tests/studies/measured_grid.py [RUNS.csv] [--cache FILE.csv] [--only target]

RUNS is a table of `bayeslaw.datasets.microcpt` (by default the bundled one). Fitted at all stages but the largest, and at the two
smallest (15 and 31); forecast are all runs at the largest stage that are of sizes fitted (``stage``), and those of the largest
size when it was left out of the fit (``stage and size``). Default settings, fixed seed. Fitted are the runs that the report shows
(of one seed, at 5, 10 and 20 tokens per parameter); forecast are the runs of both seeds at these budgets.

Laws alone are without drift, as fitted; ``average`` is the default of `fit` and `report`; ``average of all`` weighs
every law of the table. ``coverage``, ``width``: of 90% intervals of a new run.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from averages import scores

import bayeslaw
from bayeslaw import datasets
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.averaging.compare import Comparison, default_laws, weigh

GRID = [
    "chinchilla",
    "coupled",
    "finetune",
    "dcpt",
    "ptpp-floor",
    "ptpp-gate",
    "ptpp-gate-floor",
]
LAWS = {
    "target": [*GRID, "state-target"],
    "source": [
        *GRID,
        "forgetting",
        "forgetting-complement",
        "forgetting-floor",
        "forgetting-rewarm",
        "state-source",
    ],
}


def cases(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Name, runs fitted, runs forecast."""
    stages, largest = np.sort(runs["ptpp"].unique()), runs["N"].max()
    unseen = runs["ptpp"] == stages[-1]
    for fitted in (stages[:-1], stages[:2]):
        seen = runs["ptpp"].isin(fitted) & (runs["seed"] == 0)
        levels = ", ".join(f"{s:g}" for s in fitted)
        yield f"stage, from {levels}", runs[seen], runs[unseen]
        yield (
            f"stage and size, from {levels}",
            runs[seen & (runs["N"] < largest)],
            runs[unseen & (runs["N"] == largest)],
        )


def part(found: Comparison, names: list[str]) -> Comparison:
    """Fewer laws, weighed anew."""
    judged = tuple(j for j in found.judged if j.law.name in names)
    columns = [name.partition(" >= ")[0] for name in found.folds]
    return replace(
        found,
        judged=judged,
        weights=weigh(judged, columns),
        probabilities=np.full(len(judged), np.nan),
    )


def contest(
    domain: str, train: pd.DataFrame, test: pd.DataFrame, seed: int
) -> pd.DataFrame:
    """A row for the averages and each law alone."""
    began = time.perf_counter()
    found = bayeslaw.compare(
        train, LAWS[domain], reference=datasets.TABLES["microcpt"].reference, seed=seed
    )
    seconds = time.perf_counter() - began
    y, rows = np.log(test["loss"].to_numpy()), []

    def add(name: str, comparison: Comparison, **row) -> None:
        drift = name.startswith("average")
        mixed = of_comparison(comparison, train, drift=drift, seed=seed)
        rows.append(
            {"forecast": name, **scores(mixed.log_loss(test, noise=True, seed=seed), y, 0.9)} | row
            | {"weights": ", ".join(f"{k} {v:.2f}" for k, v in mixed.weights.items() if v >= 0.005) if drift else ""}
        )  # fmt: skip

    suited = [name for name in default_laws(train) if name in LAWS[domain]]
    add("average", part(found, suited), seconds=seconds)
    add("average of all", found)
    for judged, weight, probability in zip(
        found.judged, found.weights, found.probabilities, strict=True
    ):
        add(
            judged.law.name,
            part(found, [judged.law.name]),
            weight=weight,
            before=probability,
        )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="?", help="CSV (default: the bundled table)")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("measured_grid.csv"),
        help="kept here, so that it can go on",
    )
    parser.add_argument("--only", default="target,source", help="domains")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    table = (
        bayeslaw.read_runs(options.runs) if options.runs else datasets.load("microcpt")
    )
    table = table[table["D"] > 4 * table["N"]]
    done = (
        pd.read_csv(options.cache)
        if options.cache.exists()
        else pd.DataFrame(columns=["domain", "case"])
    )
    for domain in options.only.split(","):
        for case, train, test in cases(table[table["domain"] == domain]):
            if ((done["domain"] == domain) & (done["case"] == case)).any():
                continue
            rows = contest(domain, train, test, options.seed)
            rows = rows.assign(
                domain=domain, case=case, fitted=len(train), forecast_runs=len(test)
            )
            done = pd.concat([done, rows], ignore_index=True) if len(done) else rows
            done.to_csv(options.cache, index=False)
            print(
                f"{domain}, {case}: {rows['seconds'].iloc[0]:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    for (domain, case), rows in done.groupby(["domain", "case"], sort=False):
        fitted, forecast = rows["fitted"].iloc[0], rows["forecast_runs"].iloc[0]
        print(
            f"\n**{domain}, unseen {case}** ({fitted} runs fitted, {forecast} forecast)\n"
        )
        print(
            "| forecast | MAE | coverage | width | CRPS (nats) | weight | best with probability |"
        )
        print("|---|---|---|---|---|---|---|")
        for _, row in rows.iterrows():
            weight = (
                row["weights"]
                if row["forecast"].startswith("average")
                else f"{row['weight']:.2f}"
            )
            before = "" if np.isnan(row["before"]) else f"{row['before']:.2f}"
            figures = f"{row['mae']:.2%} | {row['coverage']:.0%} | {row['width']:.1%} | {row['crps']:.4f}"
            print(f"| {row['forecast']} | {figures} | {weight} | {before} |")


if __name__ == "__main__":
    main()
