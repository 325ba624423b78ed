"""Buy runs from the measured grid. Compare forecasts with those from random runs and from the paper's grid, and plans with those of all runs.

    python tests/studies/measured_pool.py [--table microcpt-de] [--rows pool] [--cases forecasts,plans] [-o docs/results/measured_pool.txt]

*Forecasts*: the goal is the largest size at the last stage of the table (`microcpt`); all other runs are on offer. The paper's grid has the runs at
15 and 31 tokens per parameter, of all sizes or of the sizes below the largest. Runs are chosen as in `bayeslaw anchors --next`, or drawn at random,
for the cost of the paper's grid and for 5% of the cost of all runs on offer.

*Plans*: plans are for the largest size at each stage, whose runs are then not on offer. Limits are the medians that fits of all runs forecast at 8
tokens per parameter and 30% replay, loosened by the least of 0, 1, 2, 4 or 8% with which a plan exists at this confidence. Runs for at most 15% of
the cost of all runs on offer are bought for the plan. A decision is the same if its tokens are within a quarter, and its replay within .1, of the
plan by all runs. Losses are forecast by the laws of checkpoint state, with their misfit (*state*), and in *Forecasts* also by the *average* of the
default laws. After an interruption, the same command goes on.
"""

import argparse
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from asked_plans import ASKED, LOOSER, known_before, medians
from pool_study import bought_at_once, looked_up, outcome, purchase
from resumable import study
from trained_plans import REFERENCE, WARM

import bayeslaw
from bayeslaw import datasets
from bayeslaw._designs.buying.campaign import laws_for, what_is_known
from bayeslaw._designs.buying.next_runs import next_runs
from bayeslaw._designs.goals.plan import PlanGoal, of_source, present_plan
from bayeslaw._designs.menu import menu
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.compare import at_reference

LAST, EARLY = 279.0, (15.0, 31.0)
CHEAP = 0.05  # of what all on offer cost
SHARE = 0.15
STAGES, CONFIDENCES = (15.0, 31.0, 93.0, 279.0), (0.5, 0.8, 0.9)
CLOSE_TOKENS, CLOSE_REPLAY = 1.25, 0.1


def measured(table: str) -> pd.DataFrame:
    """Build a row for each point, with the losses of both domains."""
    runs = datasets.load(table)
    runs = runs[runs["step"] >= WARM]
    parts = {name: part.drop(columns="domain") for name, part in runs.groupby("domain")}
    source = parts["source"][["run", "step", "loss"]]
    both = parts["target"].merge(
        source.rename(columns={"loss": "source_loss"}), on=["run", "step"]
    )
    return both.reset_index(drop=True)


def laws_of(domain: str) -> list[Law]:
    """Make the law of checkpoint state of a domain, at the table's reference run."""
    law = bayeslaw.law(f"state-{domain}")
    at = {c: v for c, v in REFERENCE.items() if c in law.covariates}
    return at_reference([law], at)


def of_largest(runs: pd.DataFrame, stage: float) -> pd.Series:
    """Tell which rows have the largest size of their stage."""
    return (runs["N"] == runs["N"].max()) & (runs["ptpp"] == stage)


# -- forecasts -------------------------------------------------------------------------


def forecast_parts(table: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the table into the runs on offer and the goal."""
    runs = measured(table).drop(columns="source_loss")
    is_goal = of_largest(runs, LAST)
    return runs[~is_goal].reset_index(drop=True), runs[is_goal].reset_index(drop=True)


def grids(offered: pd.DataFrame) -> dict[str, np.ndarray]:
    """Select the rows of the paper's grid: with all sizes, and below the largest."""
    early = offered["ptpp"].isin(EARLY).to_numpy()
    small = (offered["N"] < offered["N"].max()).to_numpy()
    return {"grid": early, "small grid": early & small}


def forecast(*, table: str, laws: str, rule: str, budget: str, seed: int) -> list[dict]:
    """Make one rule's purchase for 5% of the offer's cost, or buy a grid."""
    offered, goal = forecast_parts(table)
    known = laws_of("target")
    if laws == "average":
        known = at_reference(laws_for(offered, None), REFERENCE)
    prices = menu(offered)
    whole = prices.price(np.ones(len(offered), bool))
    shares = {name: prices.price(g) / whole for name, g in grids(offered).items()}
    shares["5%"] = CHEAP
    if rule == "grid":
        bought = grids(offered)[budget]
        posterior = what_is_known(offered, bought, known, seed)
        return [outcome(prices, bought, posterior, goal, seed)]
    # a grid's cost pays for itself by rounding only
    share = shares[budget] * (1 + 1e-9)
    return purchase(offered, goal, known, rule=rule, budget=share, seed=seed)


SEEDS = {"state": {"5%": 6, "small grid": 3, "grid": 2}, "average": {"5%": 1, "small grid": 1}}  # fmt: skip


def forecast_jobs(table: str) -> list[dict]:
    jobs = []
    for laws, budgets in SEEDS.items():
        for budget, seeds in budgets.items():
            rules = ["chosen", "random", *([] if budget == "5%" else ["grid"])]
            jobs += [
                {
                    "table": table,
                    "laws": laws,
                    "rule": rule,
                    "budget": budget,
                    "seed": seed,
                }
                for seed in range(seeds)
                for rule in rules
            ]
    return jobs


# -- plans -----------------------------------------------------------------------------


def offered_for(table: str, stage: float) -> pd.DataFrame:
    """Select all runs but those of the planned checkpoint."""
    runs = measured(table)
    return runs[~of_largest(runs, stage)].reset_index(drop=True)


def as_source(runs: pd.DataFrame) -> pd.DataFrame:
    return of_source(runs).drop(columns="loss").rename(columns={"source_loss": "loss"})


@lru_cache(maxsize=1)
def of_all_runs(table: str, stage: float) -> tuple:
    """Average the laws of target and source on all runs on offer."""
    runs = offered_for(table, stage)
    return of_runs(runs, np.ones(len(runs), bool))


@lru_cache(maxsize=1)
def of_random_runs(table: str, stage: float) -> tuple:
    """Average the laws on random runs for the budget; also return their share of the
    cost.
    """
    runs = offered_for(table, stage)
    prices = menu(runs)
    whole = prices.price(np.ones(len(runs), bool))
    drawn = bought_at_once("random", runs, runs, [], SHARE * whole, int(stage))
    return *of_runs(runs, drawn), int(drawn.sum()), prices.price(drawn) / whole


def of_runs(runs: pd.DataFrame, bought: np.ndarray) -> tuple:
    """Average the laws of target and source on these runs."""
    target, source = runs.drop(columns="source_loss"), as_source(runs)
    return tuple(
        what_is_known(part, bought, laws_of(domain), 0)
        for domain, part in (("target", target), ("source", source))
    )


def question(table: str, stage: float, confidence: float) -> tuple[dict, PlanGoal]:
    """Set the limits, and make the plan from all runs."""
    target, source = of_all_runs(table, stage)
    runs = measured(table)
    own = runs[of_largest(runs, stage)].iloc[0]
    n = float(own["N"])
    before = {
        "target": float(own["loss_before"]),
        "source": float(own["source_loss_before"]),
    }
    middle, risen = medians(target, source, n, stage, before, ASKED)
    for looser in LOOSER:
        asked = {
            "N": n,
            "ptpp": stage,
            "max_target_loss": middle * (1 + looser),
            "max_forgetting": risen + looser,
            "baseline_loss": before["source"],
            "confidence": confidence,
            "covariates": known_before(before),
        }
        plan = present_plan(target, source, asked)
        if plan.is_reached:
            break
    return asked, plan


def planned(*, table: str, rule: str, stage: float, confidence: float) -> list[dict]:
    """Make a plan from bought runs, beside the plan from all runs."""
    asked, best = question(table, stage, confidence)
    buy = {"chosen": of_chosen, "random": of_random}[rule]
    made, figures = buy(table, stage, asked)
    tokens = float(np.exp(best.choice.log_tokens))
    kept = np.nan
    if np.isfinite(made["tokens"]):
        margin = best.problem.margin_at(np.log(made["tokens"]), made["replay"])
        kept = margin + confidence
    own = {f"bought_{name}": made[name] for name in ("reaches", "tokens", "replay")}
    return [
        {"reaches": best.is_reached, "tokens": tokens, "replay": float(best.choice.replay)}
        | own | {"bought_kept": kept} | figures
    ]  # fmt: skip


def of_chosen(table: str, stage: float, asked: dict) -> tuple[dict, dict]:
    """Make the plan from a sequence of purchases, and describe the purchases."""
    runs = offered_for(table, stage)
    whole = menu(runs).price(np.ones(len(runs), bool))
    laws = {"laws": laws_of("target"), "source_laws": laws_of("source")}
    first = next_runs(runs, asked, SHARE * whole, **laws, least=0.0, seed=0)
    now = looked_up(first, runs[["loss", "source_loss"]])
    made = now.plan or {"tokens": np.nan, "replay": np.nan, "reaches": False}
    return made, {"runs": len(now.campaign.measured), "spent": now.spent / whole}


def of_random(table: str, stage: float, asked: dict) -> tuple[dict, dict]:
    """Make the plan from random runs, and describe these."""
    target, source, runs, spent = of_random_runs(table, stage)
    plan = present_plan(target, source, asked)
    made = {
        "tokens": float(np.exp(plan.choice.log_tokens)),
        "replay": float(plan.choice.replay),
        "reaches": plan.is_reached,
    }
    return made, {"runs": runs, "spent": spent}


def plan_jobs(table: str) -> list[dict]:
    return [
        {"table": table, "rule": rule, "stage": stage, "confidence": confidence}
        for stage in STAGES
        for rule in ("chosen", "random")
        for confidence in CONFIDENCES
    ]


# -- the answer ------------------------------------------------------------------------


def forecast_table(rows: pd.DataFrame) -> list[str]:
    """Write the table of medians over seeds."""
    lines = [
        "| laws | cost of | bought | seeds | of the offer | points | error | coverage | width | score | ours / theirs |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (laws, budget), own in rows.groupby(["laws", "budget"], sort=False):
        ours = own[own["rule"] == "chosen"]["interval_score90"].median()
        for rule, part in own.groupby("rule", sort=False):
            middle = part.median(numeric_only=True)
            score = middle["interval_score90"]
            lines.append(
                f"| {laws} | {budget} | {rule} | {len(part)} | {middle['spent']:.1%} | {middle['runs']:.0f} | {middle['mae']:.2%} | "
                f"{part['cover90'].mean():.0%} | {middle['width90']:.1%} | {score:.1%} | {ours / score:.2f} |"
            )
    return lines


def plan_table(rows: pd.DataFrame) -> list[str]:
    """Write a line for each case, and how many decisions were the same."""
    lines = [
        "| stage | confidence | bought | plan of all runs: D, replay | of the runs bought | tokens, of all runs' | kept, by all runs | share of the offer | same |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows.to_dict("records"):
        shown = "no plan"
        if np.isfinite(row["bought_tokens"]):
            sure = "" if row["bought_reaches"] else " (not sure enough)"
            shown = (
                f"{row['bought_tokens'] / 1e6:.2f}M, {row['bought_replay']:.2f}{sure}"
            )
        lines.append(
            f"| {row['stage']:g} | {row['confidence']:.0%} | {row['rule']} | {row['tokens'] / 1e6:.2f}M, {row['replay']:.2f} | {shown} | "
            f"{row['bought_tokens'] / row['tokens']:.2f} | {row['bought_kept']:.0%} | {row['spent']:.1%} | "
            f"{'yes' if is_same(row) else 'no'} |"
        )
    told = [
        f"{rule}: {sum(map(is_same, part.to_dict('records')))} of {len(part)}"
        for rule, part in rows.groupby("rule")
    ]
    return [*lines, "", f"The same decision as all runs: {', '.join(told)} cases."]


def is_same(row: dict) -> bool:
    """Tell whether the runs bought lead to the same decision as all runs."""
    ratio = row["bought_tokens"] / row["tokens"]
    near = abs(row["bought_replay"] - row["replay"]) <= CLOSE_REPLAY
    is_plan = row["reaches"] == row["bought_reaches"]
    return bool(is_plan and near and 1 / CLOSE_TOKENS <= ratio <= CLOSE_TOKENS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", default="microcpt")
    parser.add_argument("--rows", default="measured_pool", help="start of two files")
    parser.add_argument("--cases", default="forecasts,plans")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {"forecasts": (forecast, forecast_jobs), "plans": (planned, plan_jobs)}
    made = {}
    for case in options.cases.split(","):
        task, jobs = parts[case]
        path = Path(f"{options.rows}_{case}.csv")
        made[case] = study(task, jobs(options.table), path, progress=print)
    tables = {"forecasts": forecast_table, "plans": plan_table}
    told = [line for case, rows in made.items() for line in [*tables[case](rows), ""]]
    print("\n".join(told))
    if options.output:
        options.output.write_text("\n".join(told).rstrip() + "\n")


if __name__ == "__main__":
    main()
