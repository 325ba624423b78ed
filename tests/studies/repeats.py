"""Forecast runs that read a small text many times, with laws that know of it and without.

    python tests/studies/repeats.py

Each law is judged and fitted as `bayeslaw.average` does with it alone, to a part of
`microcpt-repeats` from .9 tokens per parameter on, and forecasts the rest. Figures are
those of `new_sizes.py`, in % of the loss. Rows are kept in ``--cache`` as they are made.
docs/microcpt_repeats.md shows them.
"""

import argparse
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pandas as pd
from new_sizes import describe, score
from resumable import study

import bayeslaw
from bayeslaw import datasets

TABLE = "microcpt-repeats"
CACHE = Path(__file__).parents[2] / "docs" / "results" / "repeats_laws.csv"
LAWS = {"target": "state-power", "source": "state-rise"}
FOLDS = {  # rows fitted, rows forecast
    "54k left out": ("N < 5e4", "N > 5e4"),
    "ptpp 15, 93 -> 279": ("ptpp < 200", "ptpp > 200"),
    "to 5 tokens per parameter -> 10, 20": ("D < 6 * N", "D > 6 * N"),
    "under 3 epochs -> more": ("epochs < 3", "epochs >= 3"),
}


def forecast_fold(fold: str, domain: str, law: str) -> list[dict[str, Any]]:
    runs = datasets.load(TABLE)
    runs = runs[(runs["domain"] == domain) & (runs["D"] > 0.9 * runs["N"])]
    fitted, unseen = (runs.query(part) for part in FOLDS[fold])
    reference = datasets.TABLES[TABLE].reference
    average = bayeslaw.average(
        fitted,
        [law],
        reference={c: x for c, x in reference.items() if c != "ptpp" or "rise" in law},
        on_failure="ignore",
        seed=0,
    )
    made = bayeslaw.forecast(average, unseen)
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return [score(made, unseen)]


def markdown(rows: pd.DataFrame) -> str:
    """Show error, held, width and score of each fold, without repeats and with."""
    lines = ["| | left out | without | with repeats |", "|---|---|---|---|"]
    for (domain, fold), cells in rows.groupby(["domain", "fold"], sort=False):
        by_law = cells.set_index("law")
        law = LAWS[str(domain)]
        texts = [describe(by_law.loc[name]) for name in (law, f"{law}-repeats")]
        lines.append(f"| {domain} | {fold} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    jobs = [
        {"fold": fold, "domain": domain, "law": f"{law}{repeats}"}
        for domain, law in LAWS.items()
        for fold in FOLDS
        for repeats in ("", "-repeats")
    ]
    warnings.simplefilter("ignore")
    report = partial(print, file=sys.stderr, flush=True)
    print(markdown(study(forecast_fold, jobs, options.cache, progress=report)))


if __name__ == "__main__":
    main()
