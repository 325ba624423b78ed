"""Compare a list of runs for a whole budget with buying runs one by one, and with looking two runs ahead.

    python tests/studies/look_ahead.py [--seeds 3] [--rows look_ahead.csv] [-o docs/results/look_ahead.txt]

On each measured pool (`../shared/data`) a fifth of the budget is spent by the priors, and laws are averaged on the measured runs, as `bayeslaw anchors --next` does.
The rest is spent in three ways. *One by one*: each run has the best gain for its cost. *Two ahead*: each run is the first of the pair with the best gain for the
pair's cost; first runs are those with the best gain for their own cost. *List*: `bayeslaw._designs.search.choose`. In the Gaussian approximation, outcomes do not
change the information of later runs, so the expected variance of the goal fully describes the value of a way to buy. Then the runs are looked up, and the goal is
forecast from them.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from pool_study import scores
from resumable import study

import bayeslaw
from bayeslaw._designs.appraisal import Market, appraise_picks
from bayeslaw._designs.buying.campaign import laws_for, what_is_known
from bayeslaw._designs.buying.next_runs import next_runs
from bayeslaw._designs.criteria import Criterion
from bayeslaw._designs.gaussian import Offer, Pick, precision_of
from bayeslaw._designs.goals.goal import forecast_goal
from bayeslaw._designs.menu import menu
from bayeslaw._designs.search import Limits, choose, greedy

DATA = Path(os.environ.get("BAYESLAW_SHARED", "../shared")) / "data"
POOLS = ("farseer", "data_constrained")
BUDGETS = (0.01, 0.05, 0.1)
FIRSTS = 20  # runs looked at as the first of a pair


def two_ahead(offer: Offer, criterion: Criterion, limits: Limits) -> list[Pick]:
    """Buy runs one by one, each as the first run of the pair that gains most for the
    cost of both.
    """
    picks: list[Pick] = []
    precision, left = precision_of(offer, []), limits.budget
    while True:
        free = _unsold(offer, picks)
        gains = criterion.gains(precision, offer)
        rate = np.where(free & (offer.cost <= left), gains / offer.cost, -np.inf)
        if not np.isfinite(rate).any() or rate.max() <= 0:
            return picks
        firsts = np.argsort(rate, axis=None)[::-1][:FIRSTS]
        worth = {}
        for flat in firsts:
            pick = tuple(int(i) for i in np.unravel_index(flat, rate.shape))
            if not np.isfinite(rate[pick]):
                continue
            after = precision + offer.information(pick)
            second = criterion.gains(after, offer)
            rest = left - offer.cost[pick]
            possible = _unsold(offer, [*picks, pick]) & (offer.cost <= rest)
            paid = offer.cost[pick] + offer.cost
            both = np.where(possible, (gains[pick] + second) / paid, -np.inf)
            worth[pick] = max(both.max(), rate[pick])
        best = max(worth, key=lambda pick: worth[pick])
        picks.append(best)
        precision = precision + offer.information(best)
        left -= offer.cost[best]


def _unsold(offer: Offer, picks: list[Pick]) -> np.ndarray:
    sold = np.isin(np.arange(len(offer.cost)), [run for run, _ in picks])
    return ~sold[:, None] & np.isfinite(offer.cost)


WAYS = {
    "one by one": lambda offer, gain, limits: greedy(offer, gain, limits, 1.0),
    "two ahead": two_ahead,
    "list": choose,
}


def bought(*, pool: str, budget: float, seed: int) -> list[dict]:
    """Spend the rest of a budget in each way, after the same first batch."""
    runs = bayeslaw.read_runs(DATA / f"{pool}.csv")
    parts = [runs[runs["split"] == part] for part in ("train", "test")]
    offered, goal = (part.reset_index(drop=True) for part in parts)
    laws = laws_for(offered, None)
    prices = menu(offered)
    amount = budget * prices.price(np.ones(len(offered), bool))
    first = next_runs(offered, goal, amount, laws=laws, seed=seed)
    has_first = offered.index.isin(first.runs["row"])
    known = what_is_known(offered, has_first, laws, seed)
    unsold = prices.without(has_first)
    market = Market.of(unsold, forecast_goal(known, goal, "variance", unsold))
    left = amount - prices.price(has_first)
    limits = Limits(left, 1, len(unsold.cost))
    rows = []
    for way, buy in WAYS.items():
        began = time.process_time()
        picks = buy(market.offer, market.criterion, limits)
        spent = time.process_time() - began
        sds = appraise_picks(market, picks).sds
        own = has_first.copy()
        for run, stop in picks:
            own[unsold.rows[run, : stop + 1]] = True
        figures = scores(what_is_known(offered, own, laws, seed), goal, seed)
        rows.append(
            {"way": way, "picks": len(picks), "sd_before": sds[0], "sd": sds[-1], "cpu_s": spent}
            | figures
        )  # fmt: skip
    return rows


def table(rows: pd.DataFrame) -> str:
    """Write expected sd, error and score relative to those of the list, by case."""
    keys = ["pool", "budget", "seed"]
    ours = rows[rows["way"] == "list"].set_index(keys)
    lines = [
        "| bought | cases | runs | expected sd, of the list's | error, of the list's | score, of the list's | coverage | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        own = rows[rows["way"] == way].set_index(keys).loc[ours.index]
        ratios = [
            np.exp(np.log(own[c] / ours[c]).mean())
            for c in ("sd", "mae", "interval_score90")
        ]
        shown = " | ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(
            f"| {way} | {len(own)} | {own['picks'].median():.0f} | {shown} | "
            f"{own['cover90'].mean():.0%} | {own['cpu_s'].median():.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=Path, default=Path("look_ahead.csv"))
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    jobs = [
        {"pool": pool, "budget": budget, "seed": seed}
        for seed in range(asked.seeds)
        for pool in POOLS
        for budget in BUDGETS
    ]
    told = table(study(bought, jobs, asked.rows, progress=print))
    print(told)
    if asked.output:
        asked.output.write_text(told)


if __name__ == "__main__":
    main()
