"""Measure on which tables `review` tells that the largest models' losses fall off.

    python tests/studies/leaks.py [--data ../shared/data]

Each table of `real_tables.py` with models of over 10M parameters and up to 700 runs, and the
published midtraining with and without near-duplicates in its evaluation set (losses
``anchor``, ``j090``, ``j075``, ``j050``), is averaged by default. A line has the bias and
the mean size of errors of left-out stages, how far the law misses its own runs, and
whether the review's check `calibration` speaks of the evaluation set.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path

import pandas as pd
import real_tables

import bayeslaw

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "leaks.csv"
DATA = Path(__file__).parents[2].parent / "shared" / "data"
READ = ["N", "D", "replay", "ptpp", "lr_factor"]


def tables(data: Path) -> dict:
    """Tables by name, as functions that read them."""

    def midtraining(file: str, loss: str) -> pd.DataFrame:
        table = pd.read_csv(data / f"{file}.csv")
        return table[READ].assign(loss=table[loss])

    def fitted(name: str) -> pd.DataFrame:
        return real_tables.CASES[name](data).fitted

    losses = {"midtraining_clean": ("anchor", "j090", "j075", "j050")}
    losses |= {f"midtraining_{kind}": ("loss",) for kind in ("replay", "budgets")}
    return {
        f"{file} {loss}": partial(midtraining, file, loss)
        for file, names in losses.items()
        for loss in names
    } | {name: partial(fitted, name) for name in real_tables.CASES}


def judge(name: str, runs: pd.DataFrame) -> dict:
    average = bayeslaw.average(runs, seed=0, on_failure="ignore")
    scores = average.table.iloc[0]
    told = bayeslaw.review(average)["calibration"].reason
    return {
        "table": name,
        "runs": len(runs),
        "bias": scores["bias"],
        "mae": scores["mae"],
        "miss": average.goodness.miss,
        "told": "evaluation set" in told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, read in tables(options.data).items():
        runs = read()
        if "N" not in runs or runs["N"].min() < 1e7 or len(runs) > 700:
            continue
        rows.append(judge(name, runs))
        print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(RESULTS, index=False, float_format="%.4f")


if __name__ == "__main__":
    main()
