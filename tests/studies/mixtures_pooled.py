"""Compare a pool of evaluation sets of the same mixtures with fits of each set alone.

    python tests/studies/mixtures_pooled.py --cache pooled.csv [--only few] [--draws 300]

The published table of seven domains and five evaluation sets (122M to 2.7B) is fitted at
N <= 690M with `mixture-coupled` and its misfit, and larger models are forecast. ``few``:
six of sixty mixtures, drawn once, with two points along every run, so that a set has few
more rows than its law has parameters. ``thinned``: all mixtures with three points. A pool
has all five sets (`bayeslaw.pool`); alone, each set has its own fit.

Rows are kept in ``--cache`` as they are made, with R-hat and ESS of the pool. If these
fail, the pool's figures are not those of the posterior (docs/mixtures.md tells what was
tried). Errors, and widths and scores of 90% intervals of a new run, are relative to the
loss.
"""

import argparse
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from averages import scores
from measured import DATA
from mixtures import LARGEST, LARGEST_FITTED, SEED, SETS, by_misfit, of_domain

import bayeslaw
from bayeslaw._forecasts.check import interval_score
from bayeslaw._studies.resumable import study

MIXTURES, POINTS = {"few": 6, "thinned": 60}, {"few": 2, "thinned": 3}


@lru_cache(maxsize=1)
def table(data: Path) -> pd.DataFrame:
    return bayeslaw.read_runs(data / "mixtures_slimpajama.csv")


def fitted(data: Path, case: str) -> pd.DataFrame:
    """Rows of some mixtures, so many points along every run, evenly in log tokens."""
    runs = table(data)
    runs = runs[runs["N"] <= LARGEST_FITTED]
    shares = runs[[name for name in runs if name.startswith("share_")]].round(4)
    mixture = shares.groupby(list(shares)).ngroup()
    drawn = np.random.default_rng(SEED).permutation(mixture.max() + 1)
    chosen = runs[mixture.isin(drawn[: MIXTURES[case]])].sort_values("D")
    by_run = chosen.groupby(["run", "N", "domain"])["D"]
    place, last = by_run.cumcount() + 1, by_run.transform("size")
    # the places of the points, of those numbered from one
    wanted = [(last ** (k / (POINTS[case] - 1))).round() for k in range(POINTS[case])]
    return chosen[np.any([place == w for w in wanted], axis=0)].sort_index()


@lru_cache(maxsize=1)
def pooled(data: Path, case: str, draws: int) -> tuple[bayeslaw.Pool, float]:
    """The pool of all sets, and how many seconds it took."""
    began = time.perf_counter()
    pool = bayeslaw.pool(
        fitted(data, case),
        "mixture-coupled",
        seed=SEED,
        on_failure="ignore",
        progress=lambda done, total: print(f"{done} of {total} draws", file=sys.stderr),
        chains=2,
        warmup=draws,
        draws=draws,
        max_draws=None,
    )
    return pool, time.perf_counter() - began


def task(case: str, domain: str, by: str, data: Path, draws: int) -> list[dict]:
    """Rows of one evaluation set: of the larger models, and of the largest alone."""
    runs = of_domain(table(data), domain)
    rest = runs[runs["N"] > LARGEST_FITTED]
    rows_fitted = of_domain(fitted(data, case), domain)
    began = time.perf_counter()
    if by == "pool":
        pool, seconds = pooled(data, case, draws)
        log_losses = pool.domain(domain).log_loss(rest, noise=True, seed=SEED)
        quality = {name: pool.diagnostics[name] for name in ("rhat", "ess")}
    else:
        log_losses = by_misfit(rows_fitted, rest)
        seconds, quality = time.perf_counter() - began, {}
    return [
        {
            "part": part,
            "fitted": len(rows_fitted),
            "runs": int(inside.sum()),
            **judged(log_losses[:, inside], rest[inside]),
            **quality,
            "seconds": seconds,
        }
        for part, inside in {
            "larger": np.ones(len(rest), bool),
            "2.7B": (rest["N"] > LARGEST).to_numpy(),
        }.items()
    ]


def judged(log_losses: np.ndarray, runs: pd.DataFrame) -> dict[str, float]:
    """Error, coverage, width and interval score of draws, shape (draw, run)."""
    y = np.log(runs["loss"].to_numpy())
    low, high = np.quantile(log_losses, [0.05, 0.95], axis=0)
    score = float(interval_score(low, high, y).mean())
    return {**scores(log_losses, y, 0.9), "interval_score": score}


SAID = {"few": "six mixtures, two points", "thinned": "sixty mixtures, three points"}


def markdown(rows: pd.DataFrame) -> str:
    """The rows as a table: percent of the loss, alone and pooled."""
    lines = [
        "| fitted on | forecast | evaluation set | rows | MAE alone, pooled "
        "| coverage | width | score alone, pooled |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, of_case in rows.groupby("case", sort=False):
        for part, of_part in of_case.groupby("part", sort=False):
            ways = {by: w.set_index("domain") for by, w in of_part.groupby("by")}
            sets = [*SETS, "mean"]
            alone, pool = (with_mean(ways[by]).loc[sets] for by in ("alone", "pool"))
            for name in sets:
                a, p = alone.loc[name], pool.loc[name]
                lines.append(
                    f"| {SAID[case]} | {part} | {name} | {a['fitted']:.0f} "
                    f"| {a['mae']:.2%}, {p['mae']:.2%} "
                    f"| {a['coverage']:.0%}, {p['coverage']:.0%} "
                    f"| {a['width']:.1%}, {p['width']:.1%} "
                    f"| {100 * a['interval_score']:.1f}, "
                    f"{100 * p['interval_score']:.1f} |"
                )
    return "\n".join(lines)


def with_mean(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of sets, and their mean."""
    mean = rows.select_dtypes("number").mean().rename("mean")
    return pd.concat([rows, mean.to_frame().T])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--draws", type=int, default=1000, help="of each of two chains, and warm-up"
    )
    parser.add_argument("--cache", type=Path, required=True, help="CSV of the rows")
    parser.add_argument("--only", default="", help="few or thinned")
    options = parser.parse_args()
    jobs = [
        {"case": case, "domain": domain, "by": by}
        for case in SAID
        for by in ("alone", "pool")
        for domain in SETS
        if case.startswith(options.only)
    ]
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} jobs", file=sys.stderr, flush=True)

    def made(**job: str) -> list[dict]:
        return task(**job, data=options.data, draws=options.draws)

    print(markdown(study(made, jobs, options.cache, progress=progress)))


if __name__ == "__main__":
    main()
