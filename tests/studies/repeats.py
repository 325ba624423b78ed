"""Forecast runs that read a small text many times, with laws that know of it and without.

    python tests/studies/repeats.py

Each law is judged and fitted as `bayeslaw.average` does with it alone, to a part of
`microcpt-repeats` from .9 tokens per parameter on, and forecasts the rest. Figures are
those of `new_sizes.py`, in % of the loss. Rows are kept in ``--cache`` as they are made.
docs/microcpt_repeats.md shows them.
"""

from pathlib import Path
from typing import Any

import jax
import pandas as pd
from new_sizes import describe, forecast_alone, run_folds, score

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
    made = forecast_alone(fitted, unseen, law, TABLE)
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return [score(made, unseen)]


def markdown(rows: pd.DataFrame) -> str:
    """Show error, held, width and score of each fold, without repeats and with."""
    lines = ["| | left out | without | with repeats |", "|---|---|---|---|"]
    for (domain, fold), cells in rows.groupby(["domain", "fold"], sort=False):
        by_law = cells.set_index("law")
        law = LAWS[str(domain)]
        names = (law, f"{law}-repeats")
        texts = [describe(by_law.loc[n]) if n in by_law.index else "" for n in names]
        lines.append(f"| {domain} | {fold} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    jobs = [
        {"fold": fold, "domain": domain, "law": f"{law}{repeats}"}
        for domain, law in LAWS.items()
        for fold in FOLDS
        for repeats in ("", "-repeats")
    ]
    run_folds(jobs, forecast_fold, markdown, __doc__, CACHE)


if __name__ == "__main__":
    main()
