"""Forecast sizes and stages of the bundled grids that the fit has not seen, law by law.

    python tests/studies/new_sizes.py [--only minicpt] [--laws state-power-stages,state-rise]

Each law is judged and fitted as `bayeslaw.average` does with it alone, at default settings
and seed 0: first the law, then its misfit, and the effects that rows share. ``default``
averages the laws that `bayeslaw.average` takes by itself. Errors of the median, and widths and scores of 90% intervals of a new run, are in % of the loss. Rows are
kept in ``--cache`` as they are made, so that an interrupted study goes on;
docs/state_laws.md shows them.

Laws that read the checkpoint's losses stand beside the seeds' forms, which do not. The
rows of minicpt's folds are from .9 tokens per parameter on (``late``: from 4 on), those of
microcpt's from 4 on.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import interval_score
from bayeslaw._posteriors.fits.candidates import default_laws

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "docs" / "results" / "new_sizes.csv"
FORMS = ("dcpt", "ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
DEFAULT = "default"
LAWS = {
    "target": (
        *FORMS,
        "ptpp-tokens",
        "state-target",
        "state-power",
        "state-power-stages",
        DEFAULT,
    ),
    "source": (*FORMS, "ptpp-rise", "state-source", "state-rise", DEFAULT),
}


class Fold(NamedTuple):
    """Queries of the rows fitted and of those forecast, in a bundled table."""

    table: str
    fitted: str
    forecast: str
    least_tokens: float  # tokens per parameter


FOLDS = {
    "French, to 2.1M -> 4.0M, 8.3M": Fold(
        "minicpt", "N < 3e6 and ptpp < 200", "N > 3e6", 0.9
    ),
    "French, to .96M -> 2.1M, 4.0M, 8.3M": Fold(
        "minicpt", "N < 1.5e6 and ptpp < 200", "N > 1.5e6 and ptpp < 200", 0.9
    ),
    "French, ptpp to 93 -> 279": Fold("minicpt", "ptpp < 200", "ptpp > 200", 0.9),
    "German, to .55M -> .96M, 2.1M": Fold(
        "minicpt-de", "N < .9e6 and ptpp < 200", "N > .9e6 and ptpp < 200", 0.9
    ),
    "German, to .96M -> 2.1M": Fold(
        "minicpt-de", "N < 1.5e6 and ptpp < 200", "N > 1.5e6 and ptpp < 200", 0.9
    ),
    "German, ptpp to 93 -> 279": Fold("minicpt-de", "ptpp < 200", "ptpp > 200", 0.9),
    "microcpt, 15, 31, 93 -> 279": Fold("microcpt", "ptpp < 200", "ptpp > 200", 4),
    "microcpt, 15, 31 -> 279": Fold("microcpt", "ptpp < 50", "ptpp > 200", 4),
    "microcpt, 15, 31, 93 -> 279, size unseen": Fold(
        "microcpt", "N < 2e5 and ptpp < 200", "N > 2e5 and ptpp > 200", 4
    ),
    "microcpt German, 15, 31, 93 -> 279": Fold(
        "microcpt-de", "ptpp < 200", "ptpp > 200", 4
    ),
    "microcpt German, 15, 31 -> 279": Fold("microcpt-de", "ptpp < 50", "ptpp > 200", 4),
    "microcpt German, 15, 31, 93 -> 279, size unseen": Fold(
        "microcpt-de", "N < 5e4 and ptpp < 200", "N > 5e4 and ptpp > 200", 4
    ),
}


def forecast_fold(fold: str, domain: str, law: str) -> list[dict[str, Any]]:
    """Make the rows of one law on one fold: of all points, and of the late ones."""
    began = time.perf_counter()
    fitted, unseen = split_fold(FOLDS[fold], domain)
    made = forecast_alone(fitted, unseen, law, FOLDS[fold].table)
    seconds = time.perf_counter() - began
    is_late = (unseen["D"] > 4 * unseen["N"]).to_numpy()
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return [
        {"points": points, **score(made[rows], unseen[rows]), "seconds": seconds}
        for points, rows in (("all", is_late | True), ("late", is_late))
    ]


def forecast_alone(
    fitted: pd.DataFrame, unseen: pd.DataFrame, law: str, table: str
) -> pd.DataFrame:
    """Forecast rows by one law, which is judged and fitted as `bayeslaw.average` does; or
    by the default laws.
    """
    laws = default_laws(fitted) if law == DEFAULT else [law]
    reference: dict[str, float] = {}
    for one in laws:
        reference |= reference_of(table, one)
    average = bayeslaw.average(
        fitted, laws, reference=reference, on_failure="ignore", seed=0
    )
    return bayeslaw.forecast(average, unseen)


def split_fold(fold: Fold, domain: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split a domain's rows into those fitted and those forecast."""
    name, is_fitted, is_forecast, least = fold
    runs = datasets.load(name)
    runs = runs[(runs["domain"] == domain) & (runs["D"] > least * runs["N"])]
    # the other seeds of microcpt are forecast, and not fitted
    first = runs[runs["seed"] == 0] if name.startswith("microcpt") else runs
    return first.query(is_fitted), runs.query(is_forecast)


def reference_of(table: str, law: str) -> dict[str, float]:
    """Choose the run at which priors of a law are stated: that of a bundled table."""
    read = bayeslaw.law(law).covariates
    reference = datasets.TABLES[table].reference
    return {c: v for c, v in reference.items() if c in read}


def score(made: pd.DataFrame, unseen: pd.DataFrame) -> dict[str, float]:
    """Score forecasts of measured runs, in shares of the loss."""
    y = np.log(unseen["loss"].to_numpy())
    low, median, high = (np.log(made[c].to_numpy()) for c in ("low", "median", "high"))
    return {
        "runs": len(y),
        "bias": float(np.mean(median - y)),
        "error": float(np.mean(np.abs(median - y))),
        "coverage": float(np.mean((low <= y) & (y <= high))),
        "width": float(np.mean(np.exp(high - y) - np.exp(low - y))),
        "score": float(np.mean(interval_score(low, high, y))),
    }


def markdown(rows: pd.DataFrame) -> str:
    """Show the rows of all points as a table: error | held | width | score."""
    lines = []
    for domain, part in rows[rows["points"] == "all"].groupby("domain", sort=False):
        laws = [law for law in LAWS[str(domain)] if law in set(part["law"])]
        lines += [f"| {domain} | {' | '.join(laws)} |", "|---" * (len(laws) + 1) + "|"]
        for fold, cells in part.groupby("fold", sort=False):
            by_law = cells.set_index("law")
            texts = [describe(by_law.loc[law]) for law in laws if law in by_law.index]
            lines.append(f"| {fold} | {' | '.join(texts)} |")
        is_tiny = part["fold"].str.startswith("microcpt")
        for name, rows_of in (("minicpt", ~is_tiny), ("microcpt", is_tiny)):
            of_grid = part[rows_of]
            means = [geometric_means(of_grid[of_grid["law"] == law]) for law in laws]
            lines.append(f"| *{name}, geometric means* | {' | '.join(means)} |")
        lines.append("")
    return "\n".join(lines)


def of_folds(rows: pd.DataFrame, start: str) -> str:
    """Show the folds whose names begin with ``start``: a line for each law."""
    of_grid = rows[rows["fold"].str.startswith(start) & (rows["points"] == "all")]
    parts = []
    for domain, part in of_grid.groupby("domain", sort=False):
        folds = part["fold"].unique()
        heads = [str(domain), *(fold.partition(", ")[2] for fold in folds)]
        lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for law, cells in part.groupby("law", sort=False):
            by_fold = cells.set_index("fold")
            texts = [describe(by_fold.loc[fold]) for fold in folds]
            lines.append(f"| {law} | {' | '.join(texts)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def describe(row: pd.Series) -> str:
    return (
        f"{100 * row['error']:.2f}, {row['coverage']:.0%}, {100 * row['width']:.1f}, "
        f"{100 * row['score']:.1f}"
    )


def geometric_means(rows: pd.DataFrame) -> str:
    error, interval = (np.exp(np.log(rows[c]).mean()) for c in ("error", "score"))
    return f"{100 * error:.2f}, {rows['coverage'].mean():.0%}, {100 * interval:.1f}"


def run_folds(
    jobs: list[dict[str, str]],
    task: Callable[..., list[dict[str, Any]]],
    show: Callable[[pd.DataFrame], str],
    words: str | None,
    cache: Path,
) -> None:
    """Run the folds and laws that the command's options choose, and print the table.
    ``words``: what the command is for.
    """
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--only", default="", help="folds whose name has this")
    parser.add_argument("--laws", default="", help="names, with commas between")
    options = parser.parse_args()
    named = set(options.laws.split(",")) - {""}
    chosen = [
        job
        for job in jobs
        if options.only in job["fold"] and (not named or job["law"] in named)
    ]
    if not chosen:
        parser.error("no fold and law are left")
    warnings.simplefilter("ignore")
    report = partial(print, file=sys.stderr, flush=True)
    print(show(study(task, chosen, options.cache, progress=report)))


def main() -> None:
    jobs = [
        {"fold": fold, "domain": domain, "law": law}
        for fold in FOLDS
        for domain, laws in LAWS.items()
        for law in laws
    ]
    run_folds(jobs, forecast_fold, markdown, __doc__, CACHE)


if __name__ == "__main__":
    main()
