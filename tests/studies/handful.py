"""Forecast expensive runs from a handful of cheap ones: from none, 3, 6, 12 and 24.

    python tests/studies/handful.py [--data ../shared/data] [--only farseer]
        [--law default] [--processes 16] [--rows docs/results/handful.csv]

Every published table of sizes and tokens is cut to its cheapest runs. The most expensive
tenth of its runs (by N D) is forecast by a law with its misfit, or by what the command
`fit` chooses without `--law`, with priors of parameters learned from the tables of all
other labs, and with the laws' own priors.

``bought`` compares the five cheapest runs with five runs that `anchors` names from
nothing. These are on offer: all runs that cost at most a hundredth of the most expensive
one (or the cheaper half of all runs). The budget is five times the median of their costs.
Rows are kept as they are made, so that an interrupted study goes on.
"""

import argparse
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from experience import Table, tables
from measured import DATA
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._inference.diagnostics import interval_score
from bayeslaw._law.experience.priors import NONE
from bayeslaw._law.experience.tables import learned
from bayeslaw._posteriors.averaging.compare import law_of_few
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._posteriors.prior import choose_priors, from_priors

LAWS = ("chinchilla", "coupled")
DEFAULT = "default"  # the law or the average that the command fits by itself
COUNTS = (0, 3, 6, 12, 24)
PRIORS = ("learned", "own")
TABLES = {n: table for n, table in tables().items() if table.laws == LAWS}


def split(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Order runs by cost; the dearest tenth apart, five at least."""
    order = np.argsort(runs["N"] * runs["D"], kind="stable")
    ordered = runs.iloc[order].reset_index(drop=True)
    dear = max(len(ordered) // 10, 5)
    return ordered[:-dear], ordered[-dear:]


def laws_for(
    table: Table, name: str, priors: str, runs: pd.DataFrame
) -> list[bayeslaw.Law]:
    """List the laws of a fit, with own priors or those learned from the other labs."""
    names = [name]
    if name == DEFAULT:
        alone = law_of_few(runs)
        names = [alone] if alone else list(LAWS)
    laws = [bayeslaw.law(name) for name in names]
    if priors == "own":
        return laws
    teach = partial(choose_priors, experience=learned().without(table.lab))
    measured = runs if len(runs) else None
    return [teach(law, measured, table.kind).law for law in laws]


def posterior(
    laws: list[bayeslaw.Law], runs: pd.DataFrame, span: pd.DataFrame
) -> Posterior:
    """Fit the runs; without runs, take the priors."""
    if not len(runs):
        return from_priors(laws, span)
    kept = {"experience": NONE, "on_failure": "ignore"}  # the priors that laws have
    if len(laws) > 1:
        return bayeslaw.average(runs, laws, **kept)
    fit = partial(bayeslaw.fit, runs, laws[0], **kept)
    quick = fit(preview=True)
    return fit(chains=2) if quick.warnings else quick


def score(known: Posterior, dear: pd.DataFrame) -> dict[str, float]:
    """Score a posterior's forecasts of the most expensive runs, relative to their
    losses.
    """
    of_dear = bayeslaw.forecast(known, dear)
    losses = dear["loss"].to_numpy()
    low, high = np.log(of_dear["low"] / losses), np.log(of_dear["high"] / losses)
    return {
        "cover": float(np.mean((low <= 0) & (high >= 0))),
        "error": float(np.mean(np.abs(np.log(of_dear["median"] / losses)))),
        "width": float(np.mean(high - low)),
        "score": float(np.mean(interval_score(low, high, np.zeros(len(losses))))),
    }


def anchored(laws: list[bayeslaw.Law], cheap: pd.DataFrame, dear: pd.DataFrame) -> Any:
    """The five runs that `anchors` names from nothing."""
    cost = 6 * cheap["N"] * cheap["D"]
    dearest = float((6 * dear["N"] * dear["D"]).max())
    # of a narrow table the cheaper half
    offered = cheap[cost <= max(dearest / 100, float(cost.median()))]
    span = pd.concat([offered, dear])
    nothing = from_priors(laws, span)
    on_offer = offered.drop(columns="loss").assign(
        cost=6.0 * offered["N"] * offered["D"]
    )
    budget = 5 * float(on_offer["cost"].median())
    picked = bayeslaw.anchors(
        nothing, on_offer, dear.drop(columns="loss"), budget, max_picks=5,
        replicates=1, least=0.0, checks=0,
    )  # fmt: skip
    return cheap.loc[[pick["row"] for pick in picked.picks]]


def case(
    name: str, count: str, priors: str, law: str, data: Path
) -> list[dict[str, Any]]:
    """Build the rows of a table, for a number of runs, a choice of priors and a law."""
    table = TABLES[name]
    cheap, dear = split(table.runs(data)[["N", "D", "loss"]].astype(float))
    none = cheap[:0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if count == "bought":
            nothing = laws_for(table, law, priors, none)
            runs = anchored(nothing, cheap, dear)
        else:
            runs = cheap[: int(count.removeprefix("first "))]
        laws = laws_for(table, law, priors, runs)
        known = posterior(laws, runs.reset_index(drop=True), dear)
        result = {k: round(v, 5) for k, v in score(known, dear).items()}
    jax.clear_caches()  # else programs of every table stay in memory
    reach = (
        float((dear["N"] * dear["D"]).median() / (runs["N"] * runs["D"]).max())
        if len(runs)
        else np.inf
    )
    return [{"lab": table.lab, "rows": len(runs), "reach": reach, **result}]


def markdown(rows: pd.DataFrame, law: str = LAWS[0], base: str = LAWS[0]) -> str:
    """Write a line for each number of runs: ``law`` with learned priors, ``base`` with
    its own. Labs have equal weight, however many tables they have; in the last column
    tables have.
    """
    of_law = (rows["law"] == law) & (rows["priors"] == "learned")
    of_base = (rows["law"] == base) & (rows["priors"] == "own")
    results = ["cover", "error", "width", "score"]
    wide = rows[of_law | of_base].pivot_table(
        results, index=["lab", "name", "count"], columns="priors"
    )
    wide = wide.dropna()  # tables that only one of them was fitted to
    lines = [
        "| runs | tables (labs) | cover, learned | own | labs under 60% | error, learned | own "
        "| score, learned | own | lower by | each table once |",
        "|" + "---|" * 11,
    ]
    for count in sorted(wide.index.unique("count"), key=place):
        group = wide.xs(count, level="count")
        by_lab = group.groupby(level="lab").mean()
        mean = by_lab.mean()
        ratios = np.log(by_lab["score"]["learned"] / by_lab["score"]["own"])
        of_tables = np.log(group["score"]["learned"] / group["score"]["own"])
        under = int((by_lab["cover"]["learned"] < 0.6).sum())
        lines.append(
            f"| {named(count)} | {len(group)} ({len(by_lab)}) | {mean['cover']['learned']:.0%} "
            f"| {mean['cover']['own']:.0%} | {under} "
            f"| {mean['error']['learned']:.1%} | {mean['error']['own']:.1%} "
            f"| {mean['score']['learned']:.1%} | {mean['score']['own']:.1%} "
            f"| {1 - np.exp(ratios.mean()):.0%} | {1 - np.exp(of_tables.mean()):.0%} |"
        )
    return "\n".join(lines)


def place(count: str) -> float:
    """Order of a number of runs in the table: bought ones last."""
    return np.inf if count == "bought" else int(count.removeprefix("first "))


def named(count: str) -> str:
    """Write a number of runs in words."""
    if count == "bought":
        return "5 that `anchors` names from nothing"
    rows = int(place(count))
    return f"{rows} cheapest" if rows else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rows", type=Path, default=Path("docs/results/handful.csv"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--law", choices=[*LAWS, DEFAULT], default=LAWS[0])
    parser.add_argument("--tables", type=int, help="at most so many of each lab")
    parser.add_argument("--priors", default=",".join(PRIORS))
    parser.add_argument(
        "--counts",
        default=",".join([*(f"first {n}" for n in COUNTS), "first 5", "bought"]),
    )
    options = parser.parse_args()
    names = [n for n in TABLES if not options.only or any(o in n for o in options.only)]
    labs = pd.Series({name: TABLES[name].lab for name in names})
    names = labs.groupby(labs).head(options.tables or len(names)).index
    jobs = [
        {"name": name, "count": count, "priors": priors, "law": options.law}
        for name in names
        for count in options.counts.split(",")
        for priors in options.priors.split(",")
    ]
    task = partial(case, data=options.data)

    def progress(done: int, total: int) -> None:
        print(f"{done}/{total}", end="\r", file=sys.stderr, flush=True)

    with processes(options.processes) as executor:
        study(task, jobs, options.rows, executor=executor, progress=progress)
    print(markdown(pd.read_csv(options.rows), options.law))


if __name__ == "__main__":
    main()
