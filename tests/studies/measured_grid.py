"""Fit every law to the smaller stages of the measured grids, and forecast the largest.

    python tests/studies/measured_grid.py [--only "microcpt-de source"]

Laws are fitted to runs of one seed at 5, 10 and 20 tokens per parameter, of all stages but
the largest. They forecast the runs of all seeds at the largest stage: of the fitted sizes,
or of the largest size if it was left out of the fit. Settings are the defaults, seed 0.
Every law, also those of the checkpoint's losses, is judged with its smooth misfit and
without. An average weighs all of them, and drifts beyond the data; a law alone does not
drift. Errors, and widths and scores of 90% intervals of a new run, are relative to the
loss.

Rows are kept in --cache as they are made, so that an interrupted study goes on; the pages
of the tables show them.
"""

import argparse
import sys
import time
import warnings
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from averages import scores
from real_tables import one_law
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import interval_score
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.averaging.record import Average

ROOT = Path(__file__).parents[2]
SEED = 0
TABLES = ("microcpt-de", "microcpt")
GRID = (
    "chinchilla",
    "coupled",
    "finetune",
    "dcpt",
    "ptpp-floor",
    "ptpp-gate",
    "ptpp-gate-floor",
)
FORGETTING = (
    "forgetting",
    "forgetting-complement",
    "forgetting-floor",
    "forgetting-rewarm",
)
LAWS = {
    "target": [*GRID, "state-target"],
    "source": [*GRID, *FORGETTING, "state-source"],
}
AVERAGE = "average"
JOBS = [
    {"table": table, "domain": domain, "new_size": new_size}
    for table, domain, new_size in product(TABLES, LAWS, (False, True))
]


def split(table: str, domain: str, new_size: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs fitted and runs forecast."""
    runs = datasets.load(table)
    runs = runs[(runs["D"] > 4 * runs["N"]) & (runs["domain"] == domain)]
    forecast = runs["ptpp"] == runs["ptpp"].max()
    fitted = ~forecast & (runs["seed"] == 0)
    if new_size:
        is_largest = runs["N"] == runs["N"].max()
        fitted, forecast = fitted & ~is_largest, forecast & is_largest
    return runs[fitted], runs[forecast]


def contest(table: str, domain: str, new_size: bool) -> list[dict[str, Any]]:
    """Judge the average and each law, with their misfits and without; a row each."""
    fitted, forecast = split(table, domain, new_size)
    y, rows = np.log(forecast["loss"].to_numpy()), []

    def add(name: str, misfit: bool, posterior: Average, weight: str) -> None:
        draws = posterior.log_loss(forecast, noise=True, seed=SEED)
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        found = scores(draws, y, 0.9)
        rows.append(
            {
                "forecast": name,
                "misfit": misfit,
                "fitted": len(fitted),
                "forecast_runs": len(forecast),
                **{c: found[c] for c in ("mae", "coverage", "width")},
                "interval_score": float(interval_score(low, high, y).mean()),
                "weight": weight,
            }
        )

    reference = dict(datasets.TABLES[table].reference)
    for misfit in (True, False):
        began = time.perf_counter()
        compared = bayeslaw.compare(
            fitted,
            LAWS[domain],
            reference=reference,
            discrepancy=misfit,
            seed=SEED,
        )
        seconds = time.perf_counter() - began
        average = of_comparison(compared, fitted, seed=SEED)
        weights = (f"{n} {w:.2f}" for n, w in average.weights.items() if w >= 0.005)
        add(AVERAGE, misfit, average, ", ".join(weights))
        rows[-1]["seconds"] = seconds
        for judged, weight in zip(compared.judged, compared.weights, strict=True):
            alone = one_law(compared, judged)
            of_law = of_comparison(alone, fitted, drift=False, seed=SEED)
            add(judged.law.name, misfit, of_law, f"{weight:.2f}")
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return rows


# -- table -----------------------------------------------------------------------------

HEADER = (
    "| forecast | MAE | coverage | width | score | weight "
    "| without misfit: MAE | coverage | width | score |"
)


def figures(row: pd.Series) -> str:
    return (
        f"{row['mae']:.2%} | {row['coverage']:.0%} | {row['width']:.1%} "
        f"| {100 * row['interval_score']:.1f}"
    )


STATE = {"target": "state-target", "source": "state-source"}


def verdict(rows: pd.DataFrame, table: str) -> str:
    """Compare the law of checkpoint state with the best of the others, each alone and
    with its misfit, by case; and count the cases in which it is ahead, with misfits and
    without.
    """
    heads = ["case", "state law: MAE", "coverage", "score"]
    heads += ["best other", "MAE", "coverage", "score", "ahead"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    alone = rows[(rows["table"] == table) & (rows["forecast"] != AVERAGE)]
    ahead: dict[bool, list[bool]] = {True: [], False: []}
    for case, part in alone.groupby(["misfit", "domain", "new_size"], sort=False):
        misfit, domain, new_size = case
        is_state = part["forecast"] == STATE[domain]
        state, others = part[is_state].iloc[0], part[~is_state]
        other = others.loc[others["interval_score"].idxmin()]
        is_ahead = state["interval_score"] < other["interval_score"]
        ahead[misfit].append(is_ahead)
        if misfit:
            told = f"{judged(state)} | {other['forecast']} | {judged(other)}"
            said = "yes" if is_ahead else "**no**"
            lines.append(f"| {domain}, unseen {unseen(new_size)} | {told} | {said} |")
    both = ahead[True] + ahead[False]
    word = "confirmed" if all(both) else "confirmed in part" if any(both) else "refuted"
    sentence = (
        f"By the score the state law is ahead of every other in {sum(ahead[True])} of "
        f"{len(ahead[True])} cases with misfits and in {sum(ahead[False])} of "
        f"{len(ahead[False])} without: **{word}** on this table."
    )
    return "\n".join([*lines, "", sentence])


def unseen(new_size: bool) -> str:
    return "stage and size" if new_size else "stage"


def judged(row: pd.Series) -> str:
    return (
        f"{row['mae']:.2%} | {row['coverage']:.0%} | {100 * row['interval_score']:.1f}"
    )


def markdown(rows: pd.DataFrame, table: str) -> str:
    """The rows of a table of runs, a part for each case."""
    parts = [verdict(rows, table)]
    of_table = rows[rows["table"] == table]
    for case, part in of_table.groupby(["domain", "new_size"], sort=False):
        domain, new_size = case
        first = part.iloc[0]
        lines = [
            f"**{domain}, unseen {unseen(new_size)}** "
            f"({first['fitted']} runs fitted, {first['forecast_runs']} forecast)",
            "",
            HEADER,
            "|---" * (HEADER.count("|") - 1) + "|",
        ]
        with_misfit = part[part["misfit"]].set_index("forecast")
        without = part[~part["misfit"]].set_index("forecast")
        for name, row in with_misfit.iterrows():
            told = f"{figures(row)} | {row['weight']} | {figures(without.loc[name])}"
            lines.append(f"| {name} | {told} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cache = ROOT / "docs/results/measured_grids.csv"
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--only", default="", help="of one table and domain")
    options = parser.parse_args()
    jobs = [
        job
        for job in JOBS
        if f"{job['table']} {job['domain']}".startswith(options.only)
    ]
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} cases", file=sys.stderr, flush=True)

    rows = study(contest, jobs, options.cache, progress=progress)
    for table in dict.fromkeys(job["table"] for job in jobs):
        print(markdown(rows, table))


if __name__ == "__main__":
    main()
