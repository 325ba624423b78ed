"""Forecast further runs of checkpoints that the fit has seen: other replay, later tokens.

    python tests/studies/known_checkpoints.py [--only German]

The default average is fitted to part of a bundled grid, as in `new_sizes.py`, at default settings and seed 0. What is left out is one share of
replay of all checkpoints; all shares but the least of the last stage; or the second half of each run's tokens. Errors of the median, and
widths and scores of 90% intervals of a new run, are in % of the loss. Rows are kept in ``--cache`` as they are made, so that an interrupted
study goes on; docs/state_laws.md shows them beside those of commit 159df861, whose averages forgot the checkpoints that they were fitted to.
"""

import time
from pathlib import Path
from typing import Any

import jax
import pandas as pd
from new_sizes import (
    DEFAULT,
    LAWS,
    Fold,
    describe,
    forecast_alone,
    geometric_means,
    run_folds,
    score,
    split_fold,
)

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CACHE = RESULTS / "known_checkpoints.csv"
BEFORE = RESULTS / "known_checkpoints_before.csv"
GRIDS = {
    "French": ("minicpt", 0.9),
    "German": ("minicpt-de", 0.9),
    "microcpt": ("microcpt", 4),
    "microcpt German": ("microcpt-de", 4),
}
LEFT_OUT = {
    "replay .25": "replay == 0.25",
    "all but the least replay of the last stage": "ptpp > 200 and replay > 0.05",
    "later than 11 tokens per parameter": "D > 11 * N",
}
FOLDS = {
    f"{grid}: {words}": Fold(table, f"not ({query})", query, least)
    for words, query in LEFT_OUT.items()
    for grid, (table, least) in GRIDS.items()
}


def forecast_fold(fold: str, domain: str, law: str) -> list[dict[str, Any]]:
    """Make the row of one fold."""
    began = time.perf_counter()
    fitted, unseen = split_fold(FOLDS[fold], domain)
    made = forecast_alone(fitted, unseen, law, FOLDS[fold].table)
    seconds = time.perf_counter() - began
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return [score(made, unseen) | {"seconds": seconds}]


def markdown(rows: pd.DataFrame) -> str:
    """Show the rows as a table: error, held, width, score; before, and now."""
    before = pd.read_csv(BEFORE).set_index(["fold", "domain"])
    now = rows.set_index(["fold", "domain"])
    ways = {"before": before.loc[now.index], "now": now}
    columns = [(d, way) for d in LAWS for way in ways]
    heads = ["left out", *(f"{d}, {way}" for d, way in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for fold in now.index.unique("fold"):
        texts = [describe(ways[way].loc[(fold, domain)]) for domain, way in columns]
        lines.append(f"| {fold} | {' | '.join(texts)} |")
    for words in LEFT_OUT:
        folds = [f"{grid}: {words}" for grid in GRIDS]
        means = [
            geometric_means(ways[way].loc[(folds, domain), :])
            for domain, way in columns
        ]
        lines.append(f"| *{words}, geometric means* | {' | '.join(means)} |")
    return "\n".join(lines)


def main() -> None:
    jobs = [
        {"fold": fold, "domain": domain, "law": DEFAULT}
        for fold in FOLDS
        for domain in LAWS
    ]
    run_folds(jobs, forecast_fold, markdown, __doc__, CACHE)


if __name__ == "__main__":
    main()
