"""Compute the probability that each form of Goffinet 2025 forecasts ptpp 279 best, on the bundled table.

    python tests/studies/published_conclusions.py [--table FILE.csv] [--seed 0]

Forms are fitted at ptpp 15 and 31, without and with the 20 anchors (runs of the smallest model at 279, without the run
with the most tokens at the middle replay, which is forecast), at default settings. ``weight`` and ``before``: stacking
weight, and probability of forecasting unseen stages best, from the fitted runs alone (`compare`). ``after``: share of
posterior draws in which the form, fitted alone, has the smallest RMSE of log loss on the runs at 279 that were not
fitted.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import point_metrics

FORMS = ["dcpt", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor"]
ANCHORS = 20


def anchors(runs: pd.DataFrame, stage: float) -> pd.Index:
    """The smallest model's runs at the stage, without the longest one at the middle replay."""
    cheap = runs[(runs["ptpp"] == stage) & (runs["N"] == runs["N"].min())]
    left = len(cheap) - ANCHORS
    middle = cheap[cheap["replay"] == cheap["replay"].median()].nlargest(
        max(left, 0), "D"
    )
    return cheap.index.difference(middle.index)


def conclude(train: pd.DataFrame, held: pd.DataFrame, seed: int) -> pd.DataFrame:
    """A row per form."""
    y, found = (
        np.log(held["loss"].to_numpy()),
        bayeslaw.compare(train, FORMS, seed=seed).table,
    )
    errors, rows = [], {}
    for form in FORMS:
        fit = bayeslaw.fit(train, form, seed=seed, on_failure="ignore")
        checked = bayeslaw.check(fit, held, seed=seed)
        errors.append(point_metrics(fit.log_loss(held), y)["rmse_log"])
        rows[form] = {
            "weight": found.loc[form, "weight"],
            "before": found.loc[form, "probability"],
            "rmse_log": checked.rmse_log,
            "coverage": checked.coverage["0.9"],
            "width": checked.width90,
        }
    rng, fewest = np.random.default_rng(seed), min(map(len, errors))
    best = np.argmin([rng.permutation(e)[:fewest] for e in errors], axis=0)
    for i, form in enumerate(FORMS):
        rows[form]["after"] = float(np.mean(best == i))
    return pd.DataFrame.from_dict(rows, orient="index")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--table",
        type=Path,
        help="a run table with a domain column (default: simulated-ptpp-grid)",
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = (
        bayeslaw.read_runs(options.table)
        if options.table
        else datasets.load("simulated-ptpp-grid")
    )
    stage = runs["ptpp"].max()
    print(
        "| domain | anchors | form | weight | before | after | RMSE of log loss | coverage of 90% | width |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for domain in ("target", "source"):
        part = runs[(runs["domain"] == domain) & (runs["ptpp"].isin([15, 31, stage]))]
        for bought in (False, True):
            fitted = part.index[part["ptpp"] < stage].union(
                anchors(part, stage)[: ANCHORS * bought]
            )
            found = conclude(
                part.loc[fitted],
                part.drop(anchors(part, stage)).query("ptpp == @stage"),
                options.seed,
            )
            for form, r in found.iterrows():
                shares = f"{r['weight']:.2f} | {r['before']:.2f} | {r['after']:.2f}"
                errors = f"{r['rmse_log']:.2%} | {r['coverage']:.0%} | {r['width']:.1%}"
                print(
                    f"| {domain} | {ANCHORS if bought else 0} | {form} | {shares} | {errors} |",
                    flush=True,
                )
            print(f"{domain}, {len(fitted)} runs fitted", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
