"""Forecast losses of tiny models on mixtures of three languages by laws of mixtures.

    python tests/studies/measured_mixtures.py

The table is the bundled `microcpt-mixtures`, with steps after the warm-up. ``mixtures``: five times, two of the ten
mixtures are left out and forecast from the others, of the same checkpoints (first seed). Laws that read no stage are
fitted at 93 tokens per parameter, and laws of the checkpoint's losses at all stages. Laws have their misfit and no
drift (previews). ``corners`` are the three mixtures with nine tenths of one language; if one is left out, its share is
beyond all fitted shares. ``others`` are the other seven. ``stage``: laws are fitted at 15 and 31 tokens per parameter
and forecast 93 for both seeds, with misfit and drift (`bayeslaw.average` of one law).

Rows are kept in ``--cache`` as they are made; docs/microcpt_mixtures.md shows them. Errors, and widths and scores of 90%
intervals of a new run, are relative to the loss.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from averages import scores
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import interval_score
from bayeslaw._posteriors.posterior import Posterior

ROOT = Path(__file__).parents[2]
TABLE, SETS = "microcpt-mixtures", ("source", "fr", "de")
WARM, LAST, FOLDS, SEED = 20, 93, 5, 0
CORNER = 0.8  # largest share of the three mixtures that lie beyond all others
# laws of the checkpoint's losses, by evaluation set
OF_STATE = {"source": "mixture-rise", "fr": "mixture-state", "de": "mixture-state"}
NO_STAGE = ("mixture-coupled", "mixture-exponential")
JOBS = [
    *(("mixtures", law, name) for law in NO_STAGE for name in SETS),
    *(("mixtures", law, name) for name, law in OF_STATE.items()),
    *(("stage", NO_STAGE[0], name) for name in SETS),
    *(("stage", law, name) for name, law in OF_STATE.items()),
]
Parts = Iterator[tuple[pd.DataFrame, pd.DataFrame]]


def task(case: str, law: str, domain: str) -> list[dict]:
    """Forecast the rows left out, all folds together, by one law."""
    runs = datasets.load(TABLE)
    runs = runs[(runs["domain"] == domain) & (runs["step"] >= WARM)]
    # the stage is not read by these laws
    at = {name: datasets.TABLES[TABLE].reference[name] for name in ("N", "D")}
    shares = [name for name in runs if name.startswith("share_")]
    forecasts, truths, corners = [], [], []
    for fitted, rest in CASES[case](runs, law):
        posterior = WAYS[case](
            fitted, law, reference=at, seed=SEED, on_failure="ignore"
        )
        forecasts.append(posterior.log_loss(rest, noise=True, seed=SEED))
        truths.append(np.log(rest["loss"].to_numpy()))
        corners.append((rest[shares].max(axis=1) > CORNER).to_numpy())
    draws = min(map(len, forecasts))
    log_losses, y = np.hstack([f[:draws] for f in forecasts]), np.concatenate(truths)
    at_corner = np.concatenate(corners)
    return [
        {"part": part, **judged(log_losses[:, inside], y[inside])}
        for part, inside in (("corners", at_corner), ("others", ~at_corner))
    ]


def judged(log_losses: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Count the runs, and score their forecasts."""
    low, high = np.quantile(log_losses, [0.05, 0.95], axis=0)
    score = float(interval_score(low, high, y).mean())
    return {"runs": len(y), **scores(log_losses, y, 0.9), "interval_score": score}


def mixtures(runs: pd.DataFrame, law: str) -> Parts:
    """Forecast two of ten mixtures at a time from the others."""
    runs = runs[runs["seed"] == 0]
    if law in NO_STAGE:
        runs = runs[runs["ptpp"] == LAST]
    shares = runs[[name for name in runs if name.startswith("share_")]]
    mixture = shares.groupby(list(shares)).ngroup().to_numpy()
    fold = np.random.default_rng(SEED).permutation(mixture.max() + 1)[mixture] % FOLDS
    for left_out in range(FOLDS):
        yield runs[fold != left_out], runs[fold == left_out]


def stage(runs: pd.DataFrame, law: str) -> Parts:
    """Forecast the last stage from those before."""
    yield (
        runs[(runs["ptpp"] < LAST) & (runs["seed"] == 0)],
        runs[runs["ptpp"] == LAST],
    )


CASES = {"mixtures": mixtures, "stage": stage}


def alone(fitted: pd.DataFrame, law: str, **options: Any) -> Posterior:
    """Fit one law with its misfit."""
    return bayeslaw.fit(fitted, law, preview=True, **options)


def with_drift(fitted: pd.DataFrame, law: str, **options: Any) -> Posterior:
    """Fit one law with its misfit, and its drift beyond the runs."""
    return bayeslaw.average(fitted, [law], **options)


WAYS = {"mixtures": alone, "stage": with_drift}
SAID = {"mixtures": "mixtures left out", "stage": "stage 93 from 15 and 31"}


def markdown(rows: pd.DataFrame) -> str:
    """Write the rows as a table: percent of the loss, of 90% intervals."""
    lines = [
        "| forecast | law | losses on | mixtures | runs | MAE | coverage | width | score |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.to_dict("records"):
        lines.append(
            f"| {SAID[row['case']]} | `{row['law']}` | {row['domain']} "
            f"| {row['part']} | {row['runs']} | {row['mae']:.2%} | {row['coverage']:.0%} | {row['width']:.1%} "
            f"| {100 * row['interval_score']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "docs/results/measured_mixtures.csv"
    )
    options = parser.parse_args()
    names = ("case", "law", "domain")
    jobs = [dict(zip(names, job, strict=True)) for job in JOBS]
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} jobs", file=sys.stderr, flush=True)

    print(markdown(study(task, jobs, options.cache, progress=progress)))


if __name__ == "__main__":
    main()
