"""Measure the package beside published figures and least squares, on the same rows.

    python tests/studies/against.py [--data ../shared/data] [--only midtraining]

Each row of docs/against.md is a piece of work that others published: what they report and
where, what `bayeslaw.average` forecasts at default settings and seed 0, and what robust
least squares of one law with 200 refits of resampled runs forecasts
(`real_tables.resample`; the law is the one with most weight in the average, or the one
that the row names). Errors of the median, and widths of 90% intervals of a new run, are
relative to the loss. ``seconds`` are CPU seconds of the average and its forecast.

Results are kept in ``--cache`` as they are made, so that an interrupted study goes on. The
table and the list of losses in docs/against.md are then written from them. Work whose
table is absent is skipped with a reason.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import mixtures
import new_sizes
import numpy as np
import pandas as pd
import real_tables
import rectified
from averages import scores
from look_ahead import POOLS
from measured import DATA
from pool_study import in_batches
from real_tables import SEED, Case
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._designs.buying.campaign import laws_for
from bayeslaw._designs.menu import menu

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "docs" / "results" / "against.csv"
PAGE = ROOT / "docs" / "against.md"
BEGIN, END = "<!-- rows: written by the command -->", "<!-- end of rows -->"
OURS, SQUARES = "average", "least squares"
POINTS = 30  # of each half of a training curve
MANY = 100  # rows; smaller tables share programs
EVERY_CURVE, EVERY_MODEL = 4, 3  # of 92 curves, and of 60 fine-tuned models, one each
Cases = dict[str, Callable[[], Case]]


class Work(NamedTuple):
    """What others did on rows that we have, and how we cut these.

    ``figure``: what they report, as a measure of ours and its value, where these can be
    compared. ``squares``: the law of least squares.
    """

    rule: str
    published: str
    source: str
    cases: Callable[[Path], Cases]
    figure: tuple[str, float] | None = None
    squares: str | None = None


# -- rows ------------------------------------------------------------------------------


def midtraining(data: Path, file: str, loss: str = "loss") -> Cases:
    """Scales up to 3e20 FLOPs, and those of 1e21."""
    table = pd.read_csv(data / f"{file}.csv")
    is_fitted = table["split"] == "train"
    columns = ["N", "D", "replay", "ptpp", "lr_factor"]
    runs = table[columns].assign(loss=table[loss])
    return {file: lambda: Case(runs[is_fitted], runs[~is_fitted])}


def kept_cases(data: Path, start: str) -> Cases:
    """Cases of `real_tables.py` whose name begins so: a file's name, and what of it."""
    (data / f"{start.split()[0]}.csv").stat()  # raises where it is absent
    return {
        name: partial(case, data)
        for name, case in real_tables.CASES.items()
        if name.startswith(start)
    }


def data_constrained(data: Path) -> Cases:
    """The published split, with the unique tokens."""
    table = pd.read_csv(data / "data_constrained.csv")
    is_fitted = table["split"] == "train"
    runs = table[["N", "D", "U", "loss"]]
    return {"data_constrained": lambda: Case(runs[is_fitted], runs[~is_fitted])}


def bought(data: Path, pool: str, share: float) -> Cases:
    """The runs that `anchors --next` buys for a share of the cost of all on offer."""
    runs = bayeslaw.read_runs(data / f"{pool}.csv")
    parts = [runs[runs["split"] == part] for part in ("train", "test")]
    offered, goal = (part.reset_index(drop=True) for part in parts)

    def buy() -> Case:
        budget = share * menu(offered).price(np.ones(len(offered), bool))
        chosen, _ = in_batches(offered, goal, laws_for(offered, None), budget, SEED)
        return Case(offered[chosen].drop(columns="split"), goal)

    return {f"{pool}, {share:.0%}": buy}


def five_domains(data: Path) -> Cases:
    """The published split of mixtures of five domains, each domain by itself."""
    names = {"size": "N", "1e9": "D"}
    runs = bayeslaw.read_runs(data / "domain_mixture.csv", columns=names)

    def of(domain: str) -> Case:
        rows = mixtures.of_domain(runs, domain)
        is_fitted = rows["split"] == "train"
        rows = rows.drop(columns="split")
        return Case(rows[is_fitted], rows[~is_fitted])

    return {f"domain {name}": partial(of, name) for name in "12345"}


def fine_tuning(data: Path) -> Cases:
    """Each model on one data set, from few examples to many, as in `rectified.py`."""
    table = pd.read_csv(data / "finetune_examples.csv")
    cases: Cases = {}
    for (dataset, model), rows in table[table["D"] > 0].groupby(["dataset", "model"]):
        is_fitted = rows["D"] <= rectified.SEEN
        runs = rows[["D", "loss"]]
        if len(rows) < 12 or is_fitted.all():
            continue
        case = Case(runs[is_fitted], runs[~is_fitted], laws=rectified.LAWS)
        cases[f"{dataset} {model}"] = partial(lambda case: case, case)
    return dict(list(cases.items())[::EVERY_MODEL])


def curves(data: Path) -> Cases:
    """The halves of each training curve, at some points of each."""
    table = pd.read_csv(data / "curves_llm.csv")
    # some points are there twice
    points = table.groupby(["run", "D", "first_half"])["loss"].mean().reset_index()

    def halves(run: pd.DataFrame) -> Case:
        seen, rest = (run[run["first_half"] == half] for half in (1, 0))
        # the size, which the table does not give, is the same in all rows
        seen, rest = (
            thin(half)[["D", "loss"]].assign(N=1e9, run="curve")
            for half in (seen, rest)
        )
        return Case(seen, rest)

    runs = list(points.groupby("run"))[::EVERY_CURVE]
    return {str(run): partial(halves, rows) for run, rows in runs}


def thin(rows: pd.DataFrame) -> pd.DataFrame:
    """Take evenly spaced rows, the first and the last among them."""
    places = np.linspace(0, len(rows) - 1, min(len(rows), POINTS))
    return rows.iloc[np.unique(places.round().astype(int))]


def stages(data: Path, domain: str) -> Cases:
    """The last stage of our grids from those before; ``data`` is not read."""

    def of(fold: new_sizes.Fold) -> Case:
        fitted, unseen = new_sizes.split_fold(fold, domain)
        return Case(fitted, unseen, dict(datasets.TABLES[fold.table].reference))

    names = ("French, ptpp to 93 -> 279", "German, ptpp to 93 -> 279")
    return {f"{name}, {domain}": partial(of, new_sizes.FOLDS[name]) for name in names}


MARIN = "Marin, Delphi midtraining (2026), logbook `debug_midtrain`"
MARIN_PAGE = "Marin, Delphi midtraining (2026), the author's page"
LI = "Li et al. 2026, arXiv 2604.22753, table 2"
SLD = "experts' laws in SLDBench (Lin et al. 2025)"
GOFFINET = "Goffinet 2025, on models of 241M to 8.1B"
NO_FIGURE = "none for these rows that we know of"
TO_1E21 = "up to 3e20 FLOPs -> 1e21 (3.4B)"
WORK: dict[str, Work] = {
    "midtraining, budgets": Work(
        TO_1E21,
        ".93% over 1e21 and 9.7B (the latter is not in our table)",
        MARIN,
        partial(midtraining, file="midtraining_budgets"),
        ("error", 0.0093),
    ),
    "midtraining, replay and rates": Work(
        TO_1E21,
        "1.06, 1.11 and 2.32% at 1e21 (9-16% at 9.7B, which is not in our table)",
        MARIN_PAGE,
        partial(midtraining, file="midtraining_replay"),
        ("error", 0.0106),
    ),
    "midtraining, near-duplicates out": Work(
        f"{TO_1E21}; losses `j050`, the strictest",
        "1.06, 1.11 and 2.32% at 1e21, with near-duplicates",
        MARIN_PAGE,
        partial(midtraining, file="midtraining_clean", loss="j050"),
    ),
    "farseer": Work(
        "404 runs -> the 7 most expensive",
        "R2 .91 with all runs",
        LI,
        partial(kept_cases, start="farseer"),
        ("r2", 0.91),
    ),
    **{
        f"runs to buy, {pool}, {share:.0%}": Work(
            f"runs bought for {share:.0%} of the cost of all on offer -> the goal",
            f"R2 {best:.2f}".replace("0.", "."),
            f"{LI}, the best strategy of six",
            partial(bought, pool=pool, share=share),
            ("r2", best),
        )
        for pool, shares in zip(
            POOLS,
            ({0.01: 0.67, 0.05: 0.88, 0.1: 0.93}, {0.01: 0.73, 0.05: 0.85, 0.1: 0.86}),
            strict=True,
        )
        for share, best in shares.items()
    },
    "data-constrained": Work(
        "161 runs -> 21 expensive ones",
        "R2 .911",
        SLD,
        data_constrained,
        ("r2", 0.911),
    ),
    "six corpora": Work(
        "isoFLOP sweeps of six corpora -> 2 to 5 times the compute",
        NO_FIGURE,
        "table of Brandfonbrener et al. 2024",
        partial(kept_cases, start="six_corpora"),
    ),
    "ladder": Work(
        "up to 40 tokens per parameter, eight evaluation sets -> 100 and 200",
        "accuracies of four tasks within 2 points; no losses of these rows",
        "Bhagia et al. 2024, abstract",
        partial(kept_cases, start="ladder"),
    ),
    "isoFLOPs": Work(
        "four sweeps: marin up to 4e19 FLOPs, llama3 and comma as published -> larger",
        "parabolas, which forecast the best size but no loss of a run",
        "Marin 2026; Grattafiori et al. 2024",
        lambda data: (
            kept_cases(data, "isoflop_marin") | kept_cases(data, "isoflop_more")
        ),
    ),
    "mixtures of five domains": Work(
        "the published split, each domain by itself",
        "R2 .81 with all runs, .95 with the half that is chosen best",
        LI,
        five_domains,
        ("r2", 0.95),
    ),
    "fine-tuning": Work(
        f"one of {EVERY_MODEL} models up to 204,800 examples -> more",
        "R2 .957 on another cut of these rows",
        f"{SLD}; table of Lin et al. 2024",
        fine_tuning,
    ),
    "training curves": Work(
        f"one of {EVERY_CURVE} of 92 curves, first half -> second, {POINTS} points of each; N is the same in all rows",
        NO_FIGURE,
        "curves of ColPret (Choshen 2024) as in Lee et al. 2025 (NSL-PFN)",
        curves,
    ),
    **{
        f"stages, {domain}": Work(
            "our grids of .26M to 8.3M: ptpp up to 93 -> 279, French and German",
            f"Form {form[-1]} of theirs: {error:.2%} on their grid".replace(
                " 0.", " ."
            ),
            GOFFINET,
            partial(stages, domain=domain),
            None,
            law,
        )
        for domain, form, law, error in (
            ("target", "Form 3", "ptpp-gate-floor", 0.0067),
            ("source", "Form 1", "ptpp-floor", 0.0118),
        )
    },
}


# -- forecasts -------------------------------------------------------------------------


def measure(work: str, case: str, data: Path) -> list[dict[str, Any]]:
    """Forecast the rows left out of a case, by the default average and least squares."""
    fitted, unseen, reference, laws = WORK[work].cases(data)[case]()
    began = time.process_time()
    average = bayeslaw.average(
        fitted, laws, reference=reference, on_failure="ignore", seed=SEED
    )
    ours = average.log_loss(unseen, noise=True, seed=SEED)
    seconds = time.process_time() - began
    weights = dict(average.weights)
    shares = ", ".join(f"{law} {w:.2f}" for law, w in weights.items() if w >= 0.005)
    heaviest = max(average.members, key=lambda member: member.weight)
    squares = WORK[work].squares
    law = heaviest.law if squares is None else bayeslaw.law(squares)
    counts = {"fitted": len(fitted), "held_out": len(unseen)}
    rows = [
        counts
        | {"forecast": OURS, "law": shares, "seconds": seconds}
        | {"failed": "; ".join(average.warnings)}
        | judge(ours, unseen)
    ]
    try:
        theirs = real_tables.resample(fitted, unseen, law)
    except bayeslaw.BayeslawError as error:
        print(f"{work}, {case}: no least squares ({error})", file=sys.stderr)
    else:
        rows.append(
            counts | {"forecast": SQUARES, "law": law.name} | judge(theirs, unseen)
        )
    if len(fitted) > MANY:  # programs of this table's shapes, which no other has
        jax.clear_caches()
    return rows


def judge(log_losses: np.ndarray, unseen: pd.DataFrame) -> dict[str, float]:
    """Score draws of log losses, shape (draw, run)."""
    loss = unseen["loss"].to_numpy(float)
    figures = scores(log_losses, np.log(loss), 0.9)
    median = np.exp(np.median(log_losses, axis=0))
    spread = np.sum((loss - loss.mean()) ** 2)
    many = len(loss) > 2
    return {
        "error": figures["mae"],
        "held": round(figures["coverage"] * len(loss)),
        "width": figures["width"],
        "r2": float(1 - np.sum((loss - median) ** 2) / spread) if many else np.nan,
        "rank": float(pd.Series(median).corr(pd.Series(loss), method="spearman")),
    }


# -- page ------------------------------------------------------------------------------

HEADS = (
    "work",
    "fitted -> held out",
    "published",
    "source",
    "held-out runs, cases",
    "ours: error, held, width",
    "least squares: error, held, width",
    "where we lose",
)


def summarise(rows: pd.DataFrame) -> dict[str, Any]:
    """Pool the cases of one work: means over held-out runs; R2 and ranks over cases."""
    runs = rows["held_out"]
    means = {c: float(np.average(rows[c], weights=runs)) for c in ("error", "width")}
    by_case = {c: float(rows[c].mean()) for c in ("r2", "rank")}
    return means | by_case | {"held": int(rows["held"].sum()), "runs": int(runs.sum())}


def losses_of(work: Work, ours: Mapping, theirs: Mapping | None, failed: int) -> list:
    """Say where we lose: to what was published, to least squares, and by ourselves."""
    said = []
    if work.figure:
        name, value = work.figure
        mine = ours[name]
        if mine > value if name == "error" else mine < value:
            written = f"{mine:.2%}" if name == "error" else f"R2 {mine:.2f}"
            said.append(f"published is better ({written} ours)")
    if theirs and theirs["error"] < ours["error"]:
        said.append(
            f"least squares errs less ({theirs['error']:.2%} against {ours['error']:.2%})"
        )
    if ours["held"] < 0.8 * ours["runs"]:
        said.append(f"90% intervals hold only {ours['held'] / ours['runs']:.0%}")
    if failed:
        said.append(f"chains fail their diagnostics in {failed} of the fits")
    return said


def cell(figures: Mapping | None, measure: str | None) -> str:
    if not figures:
        return "not fitted"
    extra = f"; R2 {figures['r2']:.2f}" if measure == "r2" else ""
    return (
        f"{figures['error']:.2%}, {figures['held']} of {figures['runs']}, "
        f"{figures['width']:.1%}{extra}"
    )


def markdown(rows: pd.DataFrame) -> str:
    """Write the table of all works that have results, and the list of losses."""
    lines = [HEADS, ("---",) * len(HEADS)]
    lost = []
    for name, work in WORK.items():
        of_work = rows[rows["work"] == name]
        by = {k: part for k, part in of_work.groupby("forecast")}
        if OURS not in by:
            continue
        ours = summarise(by[OURS])
        # of all cases, or of none: else the two are not of the same runs
        is_whole = SQUARES in by and len(by[SQUARES]) == len(by[OURS])
        theirs = summarise(by[SQUARES]) if is_whole else None
        failed = int(by[OURS]["failed"].fillna("").astype(bool).sum())
        said = losses_of(work, ours, theirs, failed)
        measure = work.figure[0] if work.figure else None
        runs = f"{ours['runs']} in {len(by[OURS])}"
        cells = (cell(figures, measure) for figures in (ours, theirs))
        described = (name, work.rule, work.published, work.source, runs)
        lines.append((*described, *cells, "; ".join(said) or "nowhere"))
        if said:
            lost.append(f"- **{name}**: {'; '.join(said)}.")
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    sentences = "\n".join(lost or ["- nowhere."])
    rest = [name for name in WORK if name not in set(rows["work"])]
    missing = f"\n\nNot measured: {'; '.join(rest)}." if rest else ""
    return f"{table}\n\nWe lose here:\n\n{sentences}{missing}"


def write_page(rows: pd.DataFrame, page: Path = PAGE) -> None:
    """Put the table and the losses between the page's marks."""
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{markdown(rows)}\n\n{END}{after}")


def list_jobs(data: Path, only: str) -> list[dict[str, str]]:
    """List cases of works whose table is here; say why others are skipped."""
    jobs = []
    for name, work in WORK.items():
        if only not in name:
            continue
        try:
            jobs += [{"work": name, "case": case} for case in work.cases(data)]
        except (FileNotFoundError, bayeslaw.RunTableError) as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)
    return jobs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--only", default="", help="works whose name has this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = list_jobs(options.data, options.only)
    if not jobs:
        parser.error(f"no work is left; the tables are looked for in {options.data}")
    report = partial(print, file=sys.stderr, flush=True)
    study(partial(measure, data=options.data), jobs, options.cache, progress=report)
    write_page(pd.read_csv(options.cache))


if __name__ == "__main__":
    main()
