"""Forecast measured runs that no fit has seen, on all available real tables.

    python tests/studies/real_tables.py [--data ../shared/data] [--only farseer]

Each case is forecast by the law alone, the law with its misfit, the default average and a
point fit with a bootstrap, at default settings and seed 0. Rows are kept in ``--cache`` as
they are made, so that an interrupted study goes on; docs/discrepancy.md shows them.

A case is judged once (`bayeslaw.compare`). The law is the one with most weight in the
average. Alone, it has its plain posterior. With its misfit, it does not drift beyond the
data. The average is the default of `bayeslaw.average`. The point fit is a fit of the same
law: Huber loss, and 200 refits of resampled runs with a residual added to each.
``seconds`` of the average are those of the comparison, which includes the law with its
misfit; the latter therefore has no ``seconds``. Errors, and widths and scores of 90%
intervals of a new run, are relative to the loss.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from averages import scores
from measured import DATA
from point_fits import resampled_losses
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._forecasts.check import interval_score
from bayeslaw._posteriors.averaging.average import of_comparison
from bayeslaw._posteriors.averaging.compare import Comparison
from bayeslaw._posteriors.averaging.judge import Judged, Setting, judge
from bayeslaw._posteriors.averaging.record import Average

ROOT = Path(__file__).parents[2]
SEED, RESAMPLES = 0, 200
BUDGET = 4e19  # FLOPs of isoFLOP sweeps, up to which they are fitted
LARGEST_STAGE = 279  # of microcpt, pre-training tokens per parameter
LAW_COLUMNS = ["N", "D", "loss"]  # of a published table: no other tells a law anything
GRIDS = ("microcpt", "microcpt-de")
LARGEST_MIXTURE = 690e6  # parameters, up to which mixtures are fitted


class Case(NamedTuple):
    """Runs fitted and runs forecast; ``reference``: of the priors, by column; ``laws``:
    those that are averaged, by default as the columns say.
    """

    fitted: pd.DataFrame
    forecast: pd.DataFrame
    reference: dict[str, float] | None = None
    laws: list[str] | None = None


# -- cases -----------------------------------------------------------------------------


def split(table: pd.DataFrame, is_fitted: pd.Series) -> Case:
    """A published table of sizes and tokens, cut in two."""
    columns = table[LAW_COLUMNS]
    return Case(columns[is_fitted], columns[~is_fitted])


def published(data: Path, file: str, **levels: str) -> Case:
    """A table with a column ``split``, of rows at these levels of its other columns."""
    table = pd.read_csv(data / file)
    for column, level in levels.items():
        table = table[table[column] == level]
    return split(table, table["split"] == "train")


def isoflop(data: Path, dataset: str) -> Case:
    table = bayeslaw.read_runs(data / "isoflop_marin.csv")
    table = table[table["dataset"] == dataset]
    return split(table, table["budget"] <= BUDGET)


def overtraining(data: Path, corpus: str) -> Case:
    table = bayeslaw.read_runs(data / "overtraining.csv")
    table = table[(table["domain"] == "c4_val") & (table["corpus"] == corpus)]
    small = (table["ptpp"] <= 40) & (table["N"] < 1e9)
    long = table["ptpp"] >= 80
    return split(table[small | long], small[small | long])


def chinchilla(data: Path) -> Case:
    table = bayeslaw.read_runs(data / "chinchilla.csv")
    compute = table["N"] * table["D"]
    return split(table, compute <= compute.quantile(0.7))


def mixtures(data: Path, domain: str) -> Case:
    """Points along runs on mixtures of seven domains; the others are replay."""
    table = pd.read_csv(data / "mixtures_slimpajama.csv")
    table = table.dropna(subset=[f"loss_{domain}"])
    runs = table[["run", "N", "D"]].assign(
        replay=1 - table[f"share_{domain}"], loss=table[f"loss_{domain}"]
    )
    small = runs["N"] <= LARGEST_MIXTURE
    return Case(runs[small], runs[~small], laws=["dcpt"])


def measured(
    data: Path, grid: str, domain: str, stages: tuple[float, ...], new_size: bool
) -> Case:
    """A bundled grid: its largest stage from smaller ones, all sizes or one unseen."""
    table = datasets.load(grid)
    table = table[(table["D"] > 4 * table["N"]) & (table["domain"] == domain)]
    fitted = table["ptpp"].isin(stages) & (table["seed"] == 0)
    forecast = table["ptpp"] == LARGEST_STAGE
    if new_size:
        is_largest = table["N"] == table["N"].max()
        fitted, forecast = fitted & ~is_largest, forecast & is_largest
    reference = dict(datasets.TABLES[grid].reference)
    return Case(table[fitted], table[forecast], reference)


CORPORA = (
    "fineweb-100b",
    "fineweb-edu-100b",
    "proof-pile-2",
    "slimpajama-chunk1",
    "smollm-corpus",
    "starcoder",
)
LADDER = (
    "c4_en",
    "dolma_books",
    "dolma_common-crawl",
    "dolma_stack",
    "dolma_wiki",
    "ice",
    "m2d2_s2orc",
    "pile",
)


def cases() -> dict[str, Callable[[Path], Case]]:
    """What each case is called, and what makes its runs from the folder of tables."""

    def of_splits(file: str, column: str, levels: Sequence[str]) -> dict:
        return {
            f"{file} {level}": partial(published, file=f"{file}.csv", **{column: level})
            for level in levels
        }

    named: dict[str, Callable[[Path], Case]] = {
        "farseer": partial(published, file="farseer.csv"),
        "data_constrained": partial(published, file="data_constrained.csv"),
        "chinchilla": chinchilla,
    }
    named |= of_splits("isoflop_more", "dataset", ("llama3", "comma"))
    named |= of_splits("isoflop_small", "dataset", ("base", "tuned"))
    for dataset in ("nemotron", "dclm"):
        named[f"isoflop_marin {dataset}"] = partial(isoflop, dataset=dataset)
    named |= of_splits("six_corpora", "dataset", CORPORA)
    named |= of_splits("ladder", "domain", LADDER)
    for corpus in ("c4_original", "rpj", "rw_original"):
        named[f"overtraining {corpus}"] = partial(overtraining, corpus=corpus)
    for domain in ("github", "commoncrawl", "arxiv", "c4", "stackexchange"):
        named[f"mixtures {domain}"] = partial(mixtures, domain=domain)
    choices = product(
        GRIDS, ("target", "source"), ((15, 31, 93), (15, 31)), (False, True)
    )
    for grid, domain, stages, new_size in choices:
        levels = ", ".join(map(str, stages))
        name = f"{grid} {domain}, {levels} -> {LARGEST_STAGE}"
        named[f"{name}, size unseen" if new_size else name] = partial(
            measured, grid=grid, domain=domain, stages=stages, new_size=new_size
        )
    return named


CASES = cases()


# -- forecasts -------------------------------------------------------------------------


def contest(case: str, data: Path) -> list[dict[str, Any]]:
    """A row for each forecast of a case."""
    fitted, forecast, reference, laws = CASES[case](data)
    y, rows = np.log(forecast["loss"].to_numpy()), []

    def add(name: str, law: str, draws: np.ndarray, seconds: float) -> None:
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        found = scores(draws, y, 0.9)
        rows.append(
            {
                "forecast": name,
                "law": law,
                "fitted": len(fitted),
                "forecast_runs": len(forecast),
                **{c: found[c] for c in ("mae", "coverage", "width")},
                "interval_score": float(interval_score(low, high, y).mean()),
                "seconds": seconds,
            }
        )

    def of_new_runs(posterior: Average) -> np.ndarray:
        return posterior.log_loss(forecast, noise=True, seed=SEED)

    began = time.perf_counter()
    compared = bayeslaw.compare(fitted, laws, reference=reference, seed=SEED)
    average = of_comparison(compared, fitted, seed=SEED)
    seconds = time.perf_counter() - began
    best = compared.judged[int(np.argmax(compared.weights))]

    began = time.perf_counter()
    setting = Setting(discrepancy=False, seed=SEED)
    everything = np.ones(len(fitted), bool)
    alone = judge(best.law, fitted, everything, [], setting, lambda: None)
    plain = of_comparison(one_law(compared, alone), fitted, drift=False, seed=SEED)
    add("law alone", best.law.name, of_new_runs(plain), time.perf_counter() - began)

    misfit = of_comparison(one_law(compared, best), fitted, drift=False, seed=SEED)
    add("law with misfit", best.law.name, of_new_runs(misfit), float("nan"))

    shares = (f"{n} {w:.2f}" for n, w in average.weights.items() if w > 0)
    add("average", ", ".join(shares), of_new_runs(average), seconds)

    began = time.perf_counter()
    refitted = resample(fitted, forecast, best.law)
    seconds = time.perf_counter() - began
    add("point fit, bootstrap", best.law.name, refitted, seconds)
    jax.clear_caches()  # programs of this table's shapes, which no other has
    return rows


def resample(
    fitted: pd.DataFrame, forecast: pd.DataFrame, law: bayeslaw.Law
) -> np.ndarray:
    """Draw log losses by refits of resampled runs, with a residual added to each; shape
    (refit, run).
    """
    point = bayeslaw.point_fit(fitted, law, bootstrap=RESAMPLES, seed=SEED)
    residuals = np.log(fitted["loss"].to_numpy() / point.loss(fitted))
    refitted = np.log(resampled_losses(point, forecast))
    return refitted + np.random.default_rng(SEED).choice(residuals, size=refitted.shape)


def one_law(compared: Comparison, judged: Judged) -> Comparison:
    """A comparison of one law with nothing."""
    whole = np.ones(1)
    return Comparison((judged,), whole, whole, compared.folds, compared.n)


# -- table -----------------------------------------------------------------------------

HEADER = "| table | fitted, forecast | forecast by | MAE | coverage | width | score |"


def markdown(rows: pd.DataFrame) -> str:
    """The rows as a table: percent of the loss, of 90% intervals."""
    lines = [HEADER, "|---|---|---|---|---|---|---|"]
    for case, part in rows.groupby("case", sort=False):
        first = part.iloc[0]
        start = f"| {case} | {first['fitted']}, {first['forecast_runs']} |"
        for _, row in part.iterrows():
            lines.append(
                f"{start} {row['forecast']}: {row['law']} | {row['mae']:.2%} "
                f"| {row['coverage']:.0%} | {row['width']:.1%} "
                f"| {100 * row['interval_score']:.1f} |"
            )
            start = "|  |  |"
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "docs/results/real_tables.csv"
    )
    parser.add_argument("--only", default="", help="cases whose name begins with this")
    options = parser.parse_args()
    jobs = [{"case": case} for case in CASES if case.startswith(options.only)]
    if not jobs:
        parser.error(f"no case begins with {options.only!r}; there are {list(CASES)}")
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} cases", file=sys.stderr, flush=True)

    task = partial(contest, data=options.data)
    print(markdown(study(task, jobs, options.cache, progress=progress)))


if __name__ == "__main__":
    main()
