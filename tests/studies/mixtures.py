"""Forecast measured losses on mixtures of several domains that no fit has seen.

    python tests/studies/mixtures.py [--data ../shared/data] [--only sizes] [--processes 4]

``sizes``: a published table of seven domains (122M to 2.7B, points along every run) is
fitted at N <= 690M, each evaluation set by itself, in three ways: by the default average;
by D-CPT with the set's own share against all others; and by the exponential law, least
squares with 150 resamples. Forecasts are scored for all larger models, and for those of
2.7B alone. ``mixtures``: the same table at all sizes in five folds by mixture, with
`mixture-coupled` and its misfit. ``five``: a table of five domains at one budget and four
sizes, fitted to its ``train`` rows; ``test`` rows are forecast.

Rows are kept in ``--cache`` as they are made; docs/mixtures.md shows them. Errors, and
widths and scores of 90% intervals of a new run, are relative to the loss. ``squares`` and
``spread`` are sums over runs of squared errors and of squared distances from zero, for
the R2 over all domains.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from averages import scores
from measured import DATA
from point_fits import resampled_losses
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._forecasts.check import interval_score

ROOT = Path(__file__).parents[2]
SEED, RESAMPLES, FOLDS = 0, 150, 5
LARGEST_FITTED, LARGEST = 690e6, 2e9  # parameters
SETS = ("arxiv", "c4", "commoncrawl", "github", "stackexchange")
JOBS = [
    *(("sizes", name, by) for name in SETS for by in ("average", "dcpt", "bootstrap")),
    *(("five", name, "average") for name in "12345"),
    *(("mixtures", name, "misfit") for name in SETS),
]


def task(table: str, domain: str, by: str, data: Path) -> list[dict]:
    """Forecast the rows of one evaluation set in one way."""
    began = time.perf_counter()
    rows = []
    for part, log_losses, runs in FORECASTS[table](data, domain, by):
        y = np.log(runs["loss"].to_numpy())
        low, middle, high = np.quantile(log_losses, [0.05, 0.5, 0.95], axis=0)
        miss = np.exp(middle) - np.exp(y)
        rows.append(
            {
                "part": part,
                "runs": len(runs),
                **scores(log_losses, y, 0.9),
                "interval_score": float(interval_score(low, high, y).mean()),
                "squares": float((miss**2).sum()),
                "losses": float(np.exp(y).sum()),
                "spread": float((np.exp(y) ** 2).sum()),
            }
        )
    seconds = time.perf_counter() - began
    return [row | {"seconds": seconds} for row in rows]


Forecasts = Iterator[tuple[str, np.ndarray, pd.DataFrame]]


def sizes(data: Path, domain: str, by: str) -> Forecasts:
    """Forecast models larger than those fitted."""
    runs = of_domain(bayeslaw.read_runs(data / "mixtures_slimpajama.csv"), domain)
    if by == "dcpt":
        shares = [name for name in runs if name.startswith("share_")]
        own = runs[f"share_{domain}"]
        runs = runs.drop(columns=shares).assign(replay=1 - own)
    is_fitted = runs["N"] <= LARGEST_FITTED
    fitted, rest = runs[is_fitted], runs[~is_fitted]
    log_losses = WAYS[by](fitted, rest)
    is_largest = (rest["N"] > LARGEST).to_numpy()
    yield "larger", log_losses, rest
    yield "2.7B", log_losses[:, is_largest], rest[is_largest]


def five(data: Path, domain: str, by: str) -> Forecasts:
    """Forecast the test mixtures of five domains, at one budget."""
    names = {"size": "N", "1e9": "D"}
    path = data / "domain_mixture.csv"
    runs = of_domain(bayeslaw.read_runs(path, columns=names), domain)
    is_fitted = runs["split"] == "train"
    runs = runs.drop(columns="split")
    fitted, rest = runs[is_fitted], runs[~is_fitted]
    yield "test", WAYS[by](fitted, rest), rest


def mixtures(data: Path, domain: str, by: str) -> Forecasts:
    """Forecast each fold of mixtures from the others; a mixture's runs, of all sizes,
    are in one fold.
    """
    runs = of_domain(bayeslaw.read_runs(data / "mixtures_slimpajama.csv"), domain)
    shares = runs[[name for name in runs if name.startswith("share_")]].round(4)
    mixture = shares.groupby(list(shares)).ngroup().to_numpy()
    turn = np.random.default_rng(SEED).permutation(mixture.max() + 1)
    fold = turn[mixture] % FOLDS
    parts = [
        (
            WAYS[by](runs[fold != left_out], runs[fold == left_out]),
            runs[fold == left_out],
        )
        for left_out in range(FOLDS)
    ]
    draws = min(len(log_losses) for log_losses, _ in parts)
    log_losses = np.hstack([of_fold[:draws] for of_fold, _ in parts])
    yield "left out", log_losses, pd.concat([rows for _, rows in parts])


def of_domain(runs: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Select the rows of one evaluation set."""
    return runs[runs["domain"] == domain]


def by_average(fitted: pd.DataFrame, rest: pd.DataFrame) -> np.ndarray:
    """Draw the log loss by the default average, shape (draw, run)."""
    average = bayeslaw.average(fitted, seed=SEED)
    return average.log_loss(rest, noise=True, seed=SEED)


def by_dcpt(fitted: pd.DataFrame, rest: pd.DataFrame) -> np.ndarray:
    """Draw the log loss by D-CPT alone, shape (draw, run)."""
    average = bayeslaw.average(fitted, ["dcpt"], seed=SEED)
    return average.log_loss(rest, noise=True, seed=SEED)


def by_misfit(fitted: pd.DataFrame, rest: pd.DataFrame) -> np.ndarray:
    """Draw the log loss by the coupled law with its misfit, shape (draw, run). No
    mixture lies beyond those fitted, so there is no drift to learn.
    """
    fit = bayeslaw.fit(
        fitted, "mixture-coupled", preview=True, seed=SEED, on_failure="ignore"
    )
    return fit.log_loss(rest, noise=True, seed=SEED)


def by_bootstrap(fitted: pd.DataFrame, rest: pd.DataFrame) -> np.ndarray:
    """Draw the log loss by least squares of the exponential law, resampled, with a
    residual added, shape (draw, run).
    """
    point = bayeslaw.point_fit(
        fitted, "mixture-exponential", bootstrap=RESAMPLES, seed=SEED
    )
    residuals = np.log(fitted["loss"].to_numpy() / point.loss(fitted))
    refitted = np.log(resampled_losses(point, rest))
    return refitted + np.random.default_rng(SEED).choice(residuals, refitted.shape)


FORECASTS = {"sizes": sizes, "five": five, "mixtures": mixtures}
WAYS = {
    "average": by_average,
    "dcpt": by_dcpt,
    "misfit": by_misfit,
    "bootstrap": by_bootstrap,
}

# -- table -----------------------------------------------------------------------------

SAID = {
    "average": "default average",
    "dcpt": "`dcpt`, one share",
    "bootstrap": "`mixture-exponential`, least squares and bootstrap",
    "misfit": "`mixture-coupled` with its misfit",
}
TABLES = {
    "sizes": "seven domains, larger sizes",
    "five": "five domains, test mixtures",
    "mixtures": "seven domains, mixtures left out",
}


def markdown(rows: pd.DataFrame) -> str:
    """Write the rows as a table: percent of the loss, of 90% intervals."""
    lines = [
        "| table | evaluation set | forecast by | runs | MAE | coverage | width | score |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = rows.sort_values(["table", "domain"], kind="stable")
    for row in rows.to_dict("records"):
        lines.append(
            f"| {TABLES[row['table']]}: {row['part']} | {row['domain']} "
            f"| {SAID[row['by']]} | {row['runs']} | {row['mae']:.2%} "
            f"| {row['coverage']:.0%} | {row['width']:.1%} "
            f"| {100 * row['interval_score']:.1f} |"
        )
    five_domains = rows[rows["table"] == "five"]
    if len(five_domains):
        lines += ["", f"R2 over the five domains: {r2(five_domains):.4f}."]
    return "\n".join(lines)


def r2(rows: pd.DataFrame) -> float:
    """R2 of forecasts of all rows together."""
    total = rows[["squares", "losses", "spread", "runs"]].sum()
    around_mean = total["spread"] - total["losses"] ** 2 / total["runs"]
    return float(1 - total["squares"] / around_mean)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "docs/results/mixtures.csv"
    )
    parser.add_argument("--only", default="", help="tables whose name begins with this")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    names = ("table", "domain", "by")
    jobs = [
        dict(zip(names, job, strict=True))
        for job in JOBS
        if job[0].startswith(options.only)
    ]
    if not jobs:
        parser.error(f"no table begins with {options.only!r}; there are {list(TABLES)}")
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} jobs", file=sys.stderr, flush=True)

    made = partial(task, data=options.data)
    with processes(options.processes) as executor:
        rows = study(made, jobs, options.cache, executor=executor, progress=progress)
    print(markdown(rows))


if __name__ == "__main__":
    main()
