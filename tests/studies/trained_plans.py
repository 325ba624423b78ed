"""Plans that were trained: do the promises made for the largest model, from the smaller ones, hold?

    python tests/studies/trained_plans.py RUNS.csv --source text/source --target text/target --work runs.work [-o FILE.csv]

RUNS, and the folder of states, are of `bayeslaw.datasets.microcpt`. Averages of the laws by default are fitted to the sizes below the largest
(all their stages), target and source apart. For each stage's checkpoint of the largest size its own losses are measured (one
evaluation), and adaptations are planned at four confidences. Limits are the forecast medians of target loss and
forgetting at 8 tokens per parameter and 30% replay, loosened by the least of 0, 1, 2, 4 or 8% of the loss with which a plan exists.
Then each plan is trained, once. Fits are kept in --fits, plans and what came of them in --output: an interrupted study goes on.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw import datasets
from bayeslaw.datasets.microcpt.model import parameters
from bayeslaw.datasets.microcpt.plan import train_plan
from bayeslaw.datasets.microcpt.table import Checkpoint
from bayeslaw.datasets.microcpt.train import load
from bayeslaw.datasets.microcpt.work import losses, open_work

WARM = 20  # steps of adaptation from which rows count: the rate rises over the first 10
REFERENCE = datasets.TABLES["microcpt"].reference
CONFIDENCES = (0.5, 0.7, 0.8, 0.9)
ASKED = {"atpp": 8.0, "replay": 0.3}
LOOSER = (0.0, 0.01, 0.02, 0.04, 0.08)


def fitted(runs: pd.DataFrame, domain: str, path: Path) -> bayeslaw.Average:
    """The average of the default laws on the sizes below the largest; kept in a file."""
    if not path.exists():
        kept = runs[
            (runs["domain"] == domain)
            & (runs["N"] < runs["N"].max())
            & (runs["step"] >= WARM)
        ]
        bayeslaw.average(kept, reference=REFERENCE, on_failure="warn").save(path)
    return bayeslaw.load(path)


def medians(
    target, source, n: float, ptpp: float, before: dict[str, float]
) -> tuple[float, float]:
    """The median target loss and forgetting forecast for the run of `ASKED`."""
    run = pd.DataFrame(
        [{"N": n, "D": ASKED["atpp"] * n, "replay": ASKED["replay"], "ptpp": ptpp}]
    )
    run = run.assign(source_loss_before=before["source"])
    after = {
        name: float(
            np.exp(np.median(fit.log_loss(run.assign(loss_before=before[name]))))
        )
        for name, fit in (("target", target), ("source", source))
    }
    return after["target"], after["source"] / before["source"] - 1


def known_before(before: dict[str, float]) -> dict[str, float]:
    """Losses of the checkpoint, as a plan's covariates."""
    return {"loss_before": before["target"], "source_loss_before": before["source"]}


def planned(
    target, source, n: int, ptpp: float, before: dict[str, float], confidence: float
) -> tuple[dict, object]:
    """Limits and the plan."""
    middle, risen = medians(target, source, n, ptpp, before)
    for looser in LOOSER:
        limits = {
            "max_target_loss": middle * (1 + looser),
            "max_forgetting": risen + looser,
        }
        plan = bayeslaw.plan(
            target, source, N=n, ptpp=ptpp, confidence=confidence, baseline_loss=before["source"],
            covariates=known_before(before), **limits,
        )  # fmt: skip
        if plan.feasible:
            break
    return limits | {"looser": looser}, plan


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs")
    for name in ("source", "target", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument(
        "--fits", type=Path, default=Path("."), help="folder of the two averages"
    )
    parser.add_argument("--size", default="259k")
    parser.add_argument("--stages", default="15,31,93,279")
    parser.add_argument("-o", "--output", type=Path, default=Path("trained_plans.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = bayeslaw.read_runs(options.runs)
    fits = {
        d: fitted(runs, d, options.fits / f"smaller_{d}.nc")
        for d in ("target", "source")
    }
    work = open_work(options.source, options.target, options.work)
    trainer, n = work.trainer(options.size), parameters(options.size)
    done = (
        pd.read_csv(options.output)
        if options.output.exists()
        else pd.DataFrame(columns=["ptpp", "confidence"])
    )
    for stage in map(float, options.stages.split(",")):
        (before,) = losses(
            trainer,
            load(work.saved(Checkpoint(options.size, 0, stage)), trainer.fresh(0)),
        )
        for confidence in CONFIDENCES:
            if ((done["ptpp"] == stage) & (done["confidence"] == confidence)).any():
                continue
            limits, plan = planned(
                fits["target"], fits["source"], n, stage, before, confidence
            )
            row = {"ptpp": stage, "confidence": confidence} | limits
            if plan.feasible:
                made = train_plan(work, options.size, stage, plan.replay, plan.D)
                row |= {
                    "atpp": plan.atpp, "replay": plan.replay, "probability": plan.probability,
                    "target_loss": made["target_loss"], "forgetting": made["forgetting"],
                    "kept_target": made["target_loss"] <= limits["max_target_loss"],
                    "kept_forgetting": made["forgetting"] <= limits["max_forgetting"],
                    "target_low": plan.promises[0]["low"], "target_high": plan.promises[0]["high"],
                    "forgetting_low": plan.promises[1]["low"], "forgetting_high": plan.promises[1]["high"],
                }  # fmt: skip
            done = (
                pd.concat([done, pd.DataFrame([row])], ignore_index=True)
                if len(done)
                else pd.DataFrame([row])
            )
            done.to_csv(options.output, index=False)
            print(
                done.tail(1).to_string(index=False, header=len(done) == 1),
                file=sys.stderr,
                flush=True,
            )
    show(done.sort_values(["ptpp", "confidence"]))


def show(done: pd.DataFrame) -> None:
    print(
        "| ptpp | confidence | plan: tokens per parameter, replay | target loss: limit, trained | forgetting: limit, trained | kept |"
    )
    print("|---|---|---|---|---|---|")
    for _, r in done.iterrows():
        if np.isnan(r["atpp"]):
            print(
                f"| {r['ptpp']:g} | {r['confidence']:.0%} | no plan | {r['max_target_loss']:.3f} | {r['max_forgetting']:.1%} | |"
            )
            continue
        kept = {
            (True, True): "both",
            (True, False): "target",
            (False, True): "forgetting",
        }.get((bool(r["kept_target"]), bool(r["kept_forgetting"])), "neither")
        print(
            f"| {r['ptpp']:g} | {r['confidence']:.0%} ({r['probability']:.0%}) | {r['atpp']:.1f}, {r['replay']:.0%} | "
            f"{r['max_target_loss']:.3f}, {r['target_loss']:.3f} | {r['max_forgetting']:.1%}, {r['forgetting']:.1%} | {kept} |"
        )
    trained = done.dropna(subset=["atpp"])
    both = trained["kept_target"].astype(bool) & trained["kept_forgetting"].astype(bool)
    print(
        f"\n{both.sum()} of {len(trained)} plans kept both promises; promised {trained['probability'].sum():.1f}."
    )
    for confidence, rows in trained.groupby("confidence"):
        print(f"At {confidence:.0%}: {both[rows.index].sum()} of {len(rows)}.")


if __name__ == "__main__":
    main()
