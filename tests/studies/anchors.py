"""Are chosen anchors better than the paper's, at equal cost? Simulated grids, every list of runs bought and refitted.

In each world a form is the truth. Its runs at 15 and 31 pre-training tokens per parameter are fitted; the goal is the
forecast of the 21 runs of 8.1e9 parameters at 279. Checkpoints of all sizes exist at all stages; what can be bought are
adaptation runs up to 1.4e9 parameters, measured along the way. The paper buys 20 runs of 241e6 parameters at 279 over
its grid of replay and tokens (Goffinet 2025, "Anchors"), each a run of its own; their cost is the budget. At that
cost: runs chosen for the variance of the goal, a D-optimal list, and random runs; chosen runs also at a half and
a quarter of it. Bought losses are simulated with noise, the law is refitted, and the forecast is compared with the truth
(the loss without a run's own noise) and with noisy runs.

    python tests/studies/anchors.py --seeds 20 -o anchors.csv

What is on offer (``--menu``): the paper's replays and tokens (``grid``); more of both (``wide``); those and short runs of
the 8.1e9 checkpoint that is to be adapted (``pilot``). Runs of one checkpoint share an error of sd ``--tau`` in
the world, which fits know of with ``--errors shared``. A row per world and list is appended; rows already in the file are
not made again, so that parts can run side by side.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from bayeslaw import _engine
from bayeslaw._anchors import anchors, appraise
from bayeslaw._anchors_menu import candidates, menu
from bayeslaw._fit import Fit, fit
from bayeslaw._simulate import NOISE, REPLAYS, TOKENS_PER_PARAMETER, ptpp_grid, simulate

LAWS = ("ptpp-floor", "ptpp-gate", "ptpp-gate-floor")
GOAL = "N == 8.1e9 and ptpp == 279"
SHARES = (0.25, 0.5, 1.0)
WIDE = {"replay": (0.05, 0.1, 0.25, 0.5, 0.75), "atpp": tuple(np.geomspace(0.25, 20, 9))}
MENUS = {"grid": {"replay": REPLAYS, "atpp": TOKENS_PER_PARAMETER}, "wide": WIDE, "pilot": WIDE}
PILOT_TOKENS = np.geomspace(0.25, 5, 7) * 241e6  # as many as the smallest model sees
KEYS = ("law", "seed", "menu", "paper", "errors", "tau", "replicates", "list", "share")


def refit(runs: pd.DataFrame, law: str, seed: int, errors: str = "independent") -> Fit:
    """The posterior of a law on a table."""
    return fit(
        runs, law, seed=seed, warmup=700, draws=700, max_draws=1400, on_failure="ignore",
        independent=errors == "independent",
    )  # fmt: skip


def measured(
    law: str, table: pd.DataFrame, seed: int, tau: float, noise: float = NOISE, stream: int = 0
) -> pd.DataFrame:
    """Losses of these runs in one world: the law, an effect of each checkpoint (N and ptpp) that is the world's, noise."""
    runs = simulate(law, design=table, seed=100 * seed + stream, noise=noise)
    keys = list(zip(runs["N"], runs["ptpp"], strict=True))
    effects = {k: tau * np.random.default_rng([seed, int(k[0] / 1e6), int(k[1])]).standard_normal() for k in set(keys)}
    return runs.assign(loss=runs["loss"] * np.exp([effects[k] for k in keys]))


def on_offer(menu_name: str) -> pd.DataFrame:
    """Candidates whose checkpoints all exist."""
    grid = ptpp_grid()
    offered = candidates(grid.query("N < 2e9"), **MENUS[menu_name])
    if menu_name != "pilot":
        return offered
    pilots = candidates(grid.query(GOAL), replay=WIDE["replay"], atpp=tuple(PILOT_TOKENS / 8.1e9))
    return pd.concat([offered, pilots], ignore_index=True)


def paper_runs(separate: bool) -> pd.DataFrame:
    """The paper's 20 anchors: all but the dearest of its 21 combinations of replay and tokens, with their costs.

    ``separate``: every anchor is a run of its own, as the paper has it; else those of one replay are points of one run.
    """
    grid = ptpp_grid().query("N == 241e6 and ptpp == 279")
    grid = grid.drop(grid["D"].index[-1])
    runs = grid["run"] if separate else "paper " + grid["replay"].astype(str)
    return grid.assign(run=runs, cost=6 * grid["N"] * grid["D"])


def random_runs(offered: pd.DataFrame, budget: float, rng: np.random.Generator) -> pd.DataFrame:
    """Random runs to random stops, while any fits the budget."""
    listed, bought, left, count = menu(offered), [], budget, 0
    while len(open_ := np.argwhere(listed.cost <= left)):
        run, stop = open_[rng.integers(len(open_))]
        rows = offered.iloc[listed.rows[run, : stop + 1]]
        bought.append(rows.assign(run=f"random {(count := count + 1)}"))
        left -= listed.cost[run, stop]
    return pd.concat(bought)


def bought(name: str, share: float, before: Fit, offered: pd.DataFrame, paper: pd.DataFrame, seed: int, given) -> dict:
    """The runs of one list, what they cost, and the expected sd of the goal."""
    goal, length = ptpp_grid().query(GOAL), 0.0 if given.errors == "independent" else None
    budget = share * menu(paper).cost[np.arange(len(menu(paper).cost)), _ends(paper)].sum()
    if name in ("chosen", "D-optimal"):
        gain = "variance" if name == "chosen" else "parameters"
        made = anchors(
            before, offered, goal, budget, gain=gain, least=0.0, checks=given.checks, run_length=length,
            replicates=given.replicates,
        )  # fmt: skip
        runs, spent = made.runs(offered), made.spent
        check = made.check or {}
    else:
        rng = np.random.default_rng([seed, 7])
        runs = paper if name == "paper" else random_runs(offered, budget, rng)
        spent, check = menu(runs).cost[np.arange(len(menu(runs).cost)), _ends(runs)].sum(), {}
    sd_before, expected = appraise(before, runs, goal, run_length=length)
    return {
        "table": runs, "cost": spent, "cost_share": share * spent / budget, "runs": runs["run"].nunique(), "points": len(runs),
        "sd_before": sd_before, "sd_expected": expected, "check": check.get("correction"), "checked": check.get("picks"),
    }  # fmt: skip


def _ends(table: pd.DataFrame) -> np.ndarray:
    return (menu(table).rows >= 0).sum(axis=1) - 1


def scores(posterior: Fit, law: str, seed: int, tau: float) -> dict[str, float]:
    """How far the forecast of the goal misses truth and noisy runs, how wide it is, and how often it holds them."""
    goal = ptpp_grid().query(GOAL)
    truth, noisy = (np.log(measured(law, goal, seed, tau, noise)["loss"].to_numpy()) for noise in (0.0, NOISE))
    mean, new = posterior.log_loss(goal), posterior.log_loss(goal, noise=True, seed=seed)
    (low, high), (new_low, point, new_high) = np.quantile(mean, [0.05, 0.95], 0), np.quantile(new, [0.05, 0.5, 0.95], 0)
    return {
        "rmse": float(np.sqrt(np.mean((point - truth) ** 2))), "rmse_noisy": float(np.sqrt(np.mean((point - noisy) ** 2))),
        "width": float(np.mean(np.exp(high - point) - np.exp(low - point))),
        "width_new": float(np.mean(np.exp(new_high - point) - np.exp(new_low - point))),
        "coverage": float(np.mean((low <= truth) & (truth <= high))),
        "coverage_new": float(np.mean((new_low <= noisy) & (noisy <= new_high))),
        "sd": float(np.sqrt(mean.var(axis=0, ddof=1).mean())),
        "diagnostics": float(not posterior.warnings), "fit_seconds": posterior.seconds,
    }  # fmt: skip


def lists() -> list[tuple[str, float]]:
    """Every list of a world, and the share of the paper's cost it may spend."""
    return [
        ("none", 0.0),
        ("paper", 1.0),
        *(("chosen", s) for s in reversed(SHARES)),
        ("D-optimal", 1.0),
        ("random", 1.0),
    ]


def world(law: str, seed: int, given, done: set[tuple], write) -> None:
    """All lists of one world that are not done."""
    key = {"law": law, "seed": seed, "menu": given.menu, "paper": given.paper, "errors": given.errors}
    key |= {"tau": given.tau, "replicates": given.replicates}
    todo = [(n, s) for n, s in lists() if tuple(map(str, (*key.values(), n, s))) not in done]
    if not todo:
        return
    grid = measured(law, ptpp_grid(), seed, given.tau)
    known, offered, paper = grid.query("ptpp < 279"), on_offer(given.menu), paper_runs(given.paper == "runs")
    before = refit(known, law, seed, given.errors)
    for name, share in todo:
        began = time.perf_counter()
        row = key | {"list": name, "share": share}
        if name == "none":
            row |= scores(before, law, seed, given.tau)
        else:
            made = bought(name, share, before, offered, paper, seed, given)
            new = measured(law, made.pop("table"), seed, given.tau, stream=1 + lists().index((name, share)))
            after = refit(pd.concat([known, new], ignore_index=True), law, seed, given.errors)
            row |= made | scores(after, law, seed, given.tau)
        write(row | {"seconds": time.perf_counter() - began})
    jax.clear_caches()  # every list has a size of its own, and programs compiled for it stay in memory


# -- the result ------------------------------------------------------------------------------------------------------


MEASURES = ("rmse", "rmse_noisy", "width", "width_new")


def summary(rows: pd.DataFrame) -> str:
    """Targets and means by list, as Markdown."""
    rows = rows.assign(list=rows["list"] + " x" + rows["share"].map("{:g}".format))
    worlds = list(KEYS[:-2])
    out = [
        "| law | list | worlds | cost | runs | points | RMSE_log | width, law | width, new run | coverage, law | sd before | sd expected | sd after |"
    ]
    out.append("|" + "---|" * 13)
    columns = [
        "cost_share",
        "runs",
        "points",
        "rmse",
        "width",
        "width_new",
        "coverage",
        "sd_before",
        "sd_expected",
        "sd",
    ]
    for (law, name), g in rows.groupby(["law", "list"], sort=False):
        m = g[columns].mean()
        out.append(
            f"| {law} | {name} | {len(g)} | {m['cost_share']:.2f} | {m['runs']:.0f} | {m['points']:.0f} | {m['rmse']:.3%} | {m['width']:.2%} "
            f"| {m['width_new']:.2%} | {m['coverage']:.0%} | {m['sd_before']:.2%} | {m['sd_expected']:.3%} | {m['sd']:.3%} |"
        )
    wide = rows.pivot_table(index=worlds, columns="list", values=list(MEASURES))
    for name in [n for n in wide["rmse"] if n != "paper x1" and "paper x1" in wide["rmse"]]:
        made = wide.dropna(subset=[(c, n) for c in MEASURES for n in (name, "paper x1")])
        better = {c: made[c][name] < made[c]["paper x1"] for c in MEASURES}
        shares = ", ".join(f"{c} {b.mean():.0%}" for c, b in better.items())
        both = (better["rmse"] & better["width"]).mean()
        out.append(f"- {name} below the paper's in: {shares}; RMSE and width both {both:.0%} of {len(made)} worlds")
    told = rows.dropna(subset=["sd_expected"])
    if len(told) > 2:
        expected, realised = told["sd_before"] - told["sd_expected"], told["sd_before"] - told["sd"]
        slope = np.polyfit(expected, realised, 1)[0]
        out.append(
            f"- reduction of the goal's sd, realised on expected: correlation {np.corrcoef(expected, realised)[0, 1]:.3f}, slope {slope:.2f}"
        )
        ratio = np.log(told["sd"] / told["sd_expected"])
        out.append(f"- sd after / expected: geometric mean {np.exp(ratio.mean()):.2f}, sd of its log {ratio.std():.2f}")
    return "\n".join(out)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--laws", default=",".join(LAWS))
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--menu", choices=MENUS, default="grid", help="replays and tokens on offer")
    parser.add_argument(
        "--paper", choices=("runs", "points"), default="runs", help="the paper's anchors: runs, or points of three"
    )
    parser.add_argument(
        "--errors", choices=("independent", "shared"), default="independent", help="what the fits assume"
    )
    parser.add_argument("--tau", type=float, default=0.0, help="sd of what runs of one checkpoint share, in the world")
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--checks", type=int, default=48)
    parser.add_argument("-o", "--output", type=Path, default=Path("anchors.csv"))
    given = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    _engine.start()
    rows = pd.read_csv(given.output).to_dict("records") if given.output.exists() else []
    done = {tuple(str(r[k]) for k in KEYS) for r in rows}
    laws = given.laws.split(",")
    total = len(laws) * given.seeds * len(lists())

    def write(row: dict) -> None:
        rows.append(row)
        fresh = not given.output.exists()
        with given.output.open("a", newline="") as file:
            out = csv.DictWriter(file, COLUMNS, extrasaction="raise")
            if fresh:
                out.writeheader()
            out.writerow(row)
        said = ", ".join(f"{k} {row[k]:.3g}" for k in ("rmse", "width", "sd_expected", "sd", "seconds") if k in row)
        print(
            f"[{len(rows)}/{total}] {row['law']} seed {row['seed']} {row['list']} x{row['share']:g}: {said}", flush=True
        )

    for seed in range(given.first, given.first + given.seeds):
        for law in laws:
            world(law, seed, given, done, write)
    print(summary(pd.DataFrame(rows)))


COLUMNS = [
    *KEYS, "cost", "cost_share", "runs", "points", "sd_before", "sd_expected", "check", "checked", "rmse", "rmse_noisy",
    "width", "width_new", "coverage", "coverage_new", "sd", "diagnostics", "fit_seconds", "seconds",
]  # fmt: skip


if __name__ == "__main__":
    main()
