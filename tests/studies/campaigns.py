"""Buy a tenth of the runs of measured grids from nothing, and compare decisions with those of all runs.

    python tests/studies/campaigns.py [-o docs/results/campaigns.csv] [--seeds 3]

In each language (`microcpt`, `microcpt-de`; one seed of training) the adaptation of the
largest model at its largest stage is planned; runs of this model at this stage are not for
sale. As in the tutorial (docs/tutorials/campaign.md) runs are bought with `anchors`: for a
fiftieth of the grid's FLOPs by the prior alone, then up to a tenth. The losses of bought
runs are looked up. This is done with several seeds of sampling.

Each campaign answers five questions, at 90%. Their limits are the losses of measured runs
of the largest model, with a margin of 2% on the target and of 15% on forgetting. Fits of
all runs except the planned ones answer the same questions. Decisions are the same if both
have a plan, with tokens within a quarter and replay within .1, or if neither has one.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw._base.machine import runtime

NEAR = {"N": 1e5, "D": 1e6}  # a run near these models, at which priors are stated
LANGUAGES = ("microcpt", "microcpt-de")
DOMAINS = ("target", "source")
SHARES = (0.1, 0.25, 0.5)  # replays that runs are bought for
ASKED = ((12.0, 0.1), (4.0, 0.1), (5.0, 0.25), (5.0, 0.5), (8.0, 0.25))  # D/N, replay
TOKENS, REPLAY = 1.25, 0.1  # that decisions may differ by


def fitted(grid: pd.DataFrame, points: pd.DataFrame, seed: int) -> list[bayeslaw.Fit]:
    """Fit each domain to the points that were paid for."""
    rows = grid.merge(points[["run", "D"]].drop_duplicates(), on=["run", "D"])
    return [
        bayeslaw.fit(
            rows[rows["domain"] == domain],
            f"state-{domain}",
            reference=NEAR,
            preview=True,
            on_failure="ignore",
            seed=seed,
        )
        for domain in DOMAINS
    ]


def bought(
    grid: pd.DataFrame, small: pd.DataFrame, big: pd.DataFrame, total: float, seed: int
) -> pd.DataFrame:
    """Points of the runs that `anchors` names from nothing, for a tenth of the grid."""
    before = {c: big[c].iloc[0] for c in ("loss_before", "source_loss_before")}
    N = float(big["N"].iloc[0])
    stage = {"replay": list(SHARES), "ptpp": big["ptpp"].iloc[0]}
    goal = pd.DataFrame({"N": N, "D": 5 * N} | stage | before)
    on_offer = small[small["domain"] == "target"].drop(columns="loss")
    on_offer = on_offer.reset_index(drop=True)
    nothing = bayeslaw.prior_only(
        "state-target", pd.concat([on_offer, goal]), reference=NEAR, seed=seed
    )
    quick: Any = {"replicates": 1, "checks": 0, "least": 0.0}
    first = bayeslaw.anchors(nothing, on_offer, goal, 0.02 * total, **quick)
    paid = first.runs(on_offer)
    target, _ = fitted(grid, paid, seed)
    second = bayeslaw.anchors(target, on_offer, goal, 0.08 * total, **quick)
    return pd.concat([paid, second.runs(on_offer)])


def question(big: pd.DataFrame, atpp: float, replay: float) -> dict[str, Any]:
    """Set limits at the losses that a measured run of the largest model reached."""
    of_replay = big[big["replay"] == replay]
    away = np.abs(np.log(of_replay["D"] / of_replay["N"] / atpp))
    nearest = of_replay[away == away.min()]
    loss = nearest.set_index("domain")["loss"]
    row = nearest[nearest["domain"] == "target"].iloc[0]
    before = {c: float(row[c]) for c in ("loss_before", "source_loss_before")}
    forgotten = float(loss["source"]) - before["source_loss_before"]
    return {
        "N": float(row["N"]),
        "ptpp": float(row["ptpp"]),
        "max_target_loss": 1.02 * float(loss["target"]),
        "max_forgetting": 1.15 * forgotten / before["source_loss_before"],
        "baseline_loss": before["source_loss_before"],
        "covariates": before,
        "draws": 2000,
    }


def campaign(language: str, seed: int) -> list[dict[str, Any]]:
    """Build a row for each question."""
    grid = datasets.load(language).query("seed == 0 and D > 4 * N")
    is_big = (grid["N"] == grid["N"].max()) & (grid["ptpp"] == grid["ptpp"].max())
    small, big = grid[~is_big], grid[is_big]
    total = float(grid.groupby("run")["cost"].max().sum())
    points = bought(grid, small, big, total, seed)
    spent = float(points.groupby("run")["cost"].max().sum())
    of_some, of_all = fitted(grid, points, seed), fitted(grid, small, seed)
    rows = []
    for atpp, replay in ASKED:
        asked = question(big, atpp, replay)
        some, every = (
            bayeslaw.plan(*fits, seed=seed, **asked) for fits in (of_some, of_all)
        )
        row = {
            "language": language,
            "seed": seed,
            "asked_atpp": atpp,
            "asked_replay": replay,
        }
        row |= {"spent": spent / total, "runs": points["run"].nunique()}
        for name, made in (("tenth", some), ("all", every)):
            row |= {
                f"{name}_{k}": getattr(made, k) for k in ("feasible", "atpp", "replay")
            }
        rows.append(row | {"same": is_same(some, every)})
    return rows


def is_same(some: bayeslaw.Plan, every: bayeslaw.Plan) -> bool:
    """Tell whether two plans are the same decision."""
    if not (some.feasible and every.feasible):
        return some.feasible == every.feasible
    ratio = np.exp(abs(np.log(some.D / every.D)))
    return bool(ratio <= TOKENS and abs(some.replay - every.replay) <= REPLAY)


def markdown(rows: pd.DataFrame) -> str:
    """Write a line for each question: the first seed's plans, and how many seeds agree."""
    lines = [
        "| language | limits as a run at | spent | runs | decided by these | by all runs | same, of seeds |",
        "|" + "---|" * 7,
    ]
    for (language, atpp, replay), seeds in rows.groupby(
        ["language", "asked_atpp", "asked_replay"], sort=False
    ):
        first = next(seeds.itertuples())
        lines.append(
            f"| {language} | {atpp:g} at {replay:.0%} | {seeds['spent'].max():.1%} "
            f"| {first.runs} | {decided(first, 'tenth')} | {decided(first, 'all')} "
            f"| {seeds['same'].sum()} of {len(seeds)} |"
        )
    by_seed = rows.groupby("seed")["same"].agg(["sum", "size"])
    same = ", ".join(f"{same} of {size}" for same, size in by_seed.to_numpy())
    return "\n".join([*lines, "", f"Same decisions by seed: {same}."])


def decided(row: Any, name: str) -> str:
    """Return a plan's tokens per parameter and replay."""
    if not getattr(row, f"{name}_feasible"):
        return "no plan"
    return f"{getattr(row, f'{name}_atpp'):.1f} at {getattr(row, f'{name}_replay'):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("docs/results/campaigns.csv")
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # what a handful of runs cannot say
    runtime.start()
    rows = pd.DataFrame(
        [
            row
            for name in LANGUAGES
            for seed in range(options.seeds)
            for row in campaign(name, seed)
        ]
    )
    rows.round(4).to_csv(options.output, index=False)
    print(markdown(rows))


if __name__ == "__main__":
    main()
