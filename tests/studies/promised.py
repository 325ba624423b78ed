"""Compare the narrowing of forecasts that a choice of runs promised with the narrowing after the runs are bought.

    python tests/studies/promised.py [--data ../shared/data] [--rows promised.csv] [-o docs/results/promised.txt]

Ten tables of real runs are sorted by compute. An average of the default laws is fitted to the cheapest 40%; the next half is on offer, and the most
expensive tenth is the goal. `bayeslaw.anchors` chooses runs for 10% and for 30% of the cost of all runs on offer. Their losses are looked up, and the
average is fitted again. ``promised`` and ``realised`` are sds of the goal's log losses after the purchase, relative to those before it. After an
interruption, the same command goes on.
"""

import argparse
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from measured import DATA
from resumable import study

import bayeslaw

ROOT = Path(__file__).parents[2]
COLUMNS = ["N", "D", "loss"]
FITTED, OFFERED = 0.4, 0.9  # shares of the runs, in order of compute
BUDGETS = (0.1, 0.3)  # of what all runs on offer cost
THIRDS = 3  # Farseer's 411 runs make three tables, of every third run


def tables(data: Path) -> dict[str, pd.DataFrame]:
    """Runs by the name of their table, cheapest first."""
    farseer = bayeslaw.read_runs(data / "farseer.csv")
    isoflop = bayeslaw.read_runs(data / "isoflop_marin.csv")
    overtraining = bayeslaw.read_runs(data / "overtraining.csv")
    overtraining = overtraining[overtraining["domain"] == "c4_val"]
    named = {f"farseer {k}": ordered(farseer)[k::THIRDS] for k in range(THIRDS)}
    named |= {f"isoflop {name}": part for name, part in isoflop.groupby("dataset")}
    named |= {
        f"overtraining {name}": part for name, part in overtraining.groupby("corpus")
    }
    for name in ("chinchilla", "data_constrained"):
        named[name] = bayeslaw.read_runs(data / f"{name}.csv")
    return {name: ordered(part) for name, part in named.items()}


def ordered(runs: pd.DataFrame) -> pd.DataFrame:
    compute = runs["N"] * runs["D"]
    return runs.iloc[np.argsort(compute, kind="stable")].reset_index(drop=True)


def parts(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """Runs fitted, on offer, and to be forecast."""
    cuts = [round(share * len(runs)) for share in (FITTED, OFFERED)]
    columns = [*COLUMNS, "U"] if "U" in runs else COLUMNS
    return [runs[columns].iloc[rows] for rows in np.split(np.arange(len(runs)), cuts)]


def goal_sd(posterior: bayeslaw.Average, goal: pd.DataFrame) -> float:
    """Of the laws' log losses, root mean square over the goal."""
    variance = posterior.log_loss(goal).var(axis=0)
    return float(np.sqrt(variance.mean()))


def average(runs: pd.DataFrame) -> bayeslaw.Average:
    return bayeslaw.average(runs.reset_index(drop=True), seed=0)


def bought(data: Path, *, table: str, budget: float) -> list[dict]:
    """One purchase."""
    runs = tables(data)[table]
    fitted, offered, goal = parts(runs)
    before = average_before(data, table)
    cost = 6 * offered["N"] * offered["D"]
    chosen = bayeslaw.anchors(
        before,
        offered.drop(columns="loss"),
        goal,
        budget * cost.sum(),
        replicates=1,
        checks=0,
    )
    rows = [row for pick in chosen.picks for row in pick["rows"]]
    after = average(pd.concat([fitted, offered.loc[rows]]))
    figures = {
        "fitted": len(fitted),
        "bought": len(rows),
        "sd_before": goal_sd(before, goal),
        "promised": chosen.goal_sd_after / chosen.goal_sd_before,
    }
    return [figures | {"realised": goal_sd(after, goal) / figures["sd_before"]}]


@cache
def average_before(data: Path, table: str) -> bayeslaw.Average:
    return average(parts(tables(data)[table])[0])


def told(rows: pd.DataFrame) -> str:
    """The rows, and the slope of what came on what was promised, in logarithms."""
    lines = [
        "| table | budget | fitted | bought | sd before | promised | realised |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows.itertuples():
        lines.append(
            f"| {row.table} | {row.budget:.0%} | {row.fitted} | {row.bought} | "
            f"{row.sd_before:.2%} | {row.promised:.0%} | {row.realised:.0%} |"
        )
    # of those where anything was bought: nothing promised, nothing to realise
    some = rows[rows["bought"] > 0]
    promised, realised = np.log(some["promised"]), np.log(some["realised"])
    slope = (promised * realised).sum() / (promised**2).sum()
    within = (np.abs(promised - realised) < np.log(1.3)).mean()
    lines += [
        "",
        f"Slope of the realised fall on the promised one (logarithms, through no fall): {slope:.2f}. Within 30% of what was promised: {within:.0%} of "
        f"{len(some)} purchases.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--rows", type=Path, default=Path("promised.csv"))
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = [
        {"table": table, "budget": budget}
        for table in tables(asked.data)
        for budget in BUDGETS
    ]

    def task(table: str, budget: float) -> list[dict]:
        return bought(asked.data, table=table, budget=budget)

    rows = study(task, jobs, asked.rows, progress=print)
    text = told(rows)
    print(text)
    if asked.output:
        asked.output.write_text(text)


if __name__ == "__main__":
    main()
