"""Follow plans that were trained to their end, and find the share of the run from which on the verdict was sure.

    python tests/studies/follow_plans.py --text text --work plans [--language fr] [-o docs/results/follow_plans.txt]

The plans are those of the first seed in docs/results/trained_plans.csv (`trained_plans.py`), for a stage or a size that no fit has seen, at four
confidences. The kept rows only have the end of each run. So each plan is trained again with the harness, with its replay and budget, and
measured at 16 points, log-spaced from step 20 on. It is followed in both domains with its limits, by averages fitted to the same rows as
the averages from which it was planned. TEXT and WORK are those of `trained_plans.py`; curves are kept in WORK/curves_LANGUAGE.csv, with
all curves of a checkpoint together.

A verdict is sure at a point if the limits are kept, or broken, with 90%. From there on a broken plan could have been stopped. A kept plan
could have been stopped at the fewest tokens that keep its limits with 90% (`Decision.stop_at`); this is checked on the curve, between its
points.
"""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from harness.adaptation import Adaptation
from harness.model import parameters
from harness.table import DOMAINS, Checkpoint, Run
from harness.table import rows as table_rows
from harness.train import steps_for
from harness.work import Work, adapt
from trained_plans import ROOT, WARM, fitted, losses_before, opened

from bayeslaw import Follower
from bayeslaw._base.files import atomic_write

SEED, SURE, PLACES = 0, 0.9, 16
OF_CHECKPOINT = ["size", "seed", "ptpp"]
OF_PLAN = ["unseen", *OF_CHECKPOINT, "confidence"]


def chosen(language: str) -> pd.DataFrame:
    """List the plans that are followed."""
    plans = pd.read_csv(ROOT / "docs/results/trained_plans.csv").dropna(subset=["atpp"])
    return plans[(plans["language"] == language) & (plans["seed"] == SEED)]


# -- training --------------------------------------------------------------------------


def places(last: int) -> set[int]:
    """List the steps at which a run of ``last`` steps is measured."""
    spaced = np.geomspace(WARM, last, PLACES)
    return set(spaced.round().astype(int).tolist())


def curves_of(
    work: Work, checkpoint: Checkpoint, plans: pd.DataFrame
) -> list[dict[str, Any]]:
    """Rows of a checkpoint's plans, which train together."""
    before = losses_before(work, checkpoint)
    n = parameters(checkpoint.size)
    lasts = [steps_for(checkpoint.size, atpp * n) for atpp in plans["atpp"]]
    measured = [places(last) for last in lasts]
    steps = sorted(set.union(*measured))
    adaptations = [Adaptation(replay) for replay in plans["replay"]]
    trainer = work.trainer(checkpoint.size)
    of_plans = plans[["unseen", "confidence"]].to_dict("records")
    rows = []
    for step, after in adapt(
        work, trainer, [checkpoint], adaptations, steps, lambda *_: None
    ):
        for plan, adaptation, last, at, now in zip(
            of_plans, adaptations, lasts, measured, after, strict=True
        ):
            if step in at:
                run = Run(checkpoint, adaptation, last, sum(work.available))
                rows += [plan | row for row in table_rows(run, step, now, before)]
    size = {"size": checkpoint.size}
    return [size | row for row in rows]


def trained(plans: pd.DataFrame, work: Work, path: Path) -> pd.DataFrame:
    """Train the curves of all plans, except checkpoints that the file holds."""
    curves = pd.read_csv(path) if path.exists() else pd.DataFrame({"checkpoint": []})
    for (size, seed, ptpp), group in plans.groupby(OF_CHECKPOINT):
        checkpoint = Checkpoint(size, seed, ptpp)
        if checkpoint.name in set(curves["checkpoint"]):
            continue
        print(checkpoint.name, len(group), file=sys.stderr, flush=True)
        rows = pd.DataFrame(curves_of(work, checkpoint, group))
        curves = pd.concat([curves, rows])
        with atomic_write(path) as part:
            curves.to_csv(part, index=False)
    return curves


# -- following -------------------------------------------------------------------------


def followed(
    plan: dict[str, Any], curve: pd.DataFrame, posteriors: dict[str, Any]
) -> dict[str, Any]:
    """Find when the verdict on a plan was first sure, and whether it was right."""
    losses = curve.pivot_table(index="D", columns="domain", values="loss")
    baseline = float(curve["source_loss_before"].iloc[0])
    limits = {
        "target": plan["max_target_loss"],
        "source": baseline * (1 + plan["max_forgetting"]),
    }
    end = float(losses.index[-1])
    follower = Follower.start(posteriors, curve, end, max_loss=limits, confidence=SURE)
    kept = keeps(losses, limits, end)
    chances, decisions = [], []
    for at, loss in losses[list(DOMAINS)].iterrows():
        follower = follower.after(float(at), loss.to_dict())
        known = follower.following()
        chances.append(known.probability)
        decisions.append(known.decision)
    verdicts = np.select(
        [np.array(chances) >= SURE, np.array(chances) <= 1 - SURE], [1, -1], 0
    )
    told = {name: plan[name] for name in OF_PLAN} | {"stated": plan["probability"]}
    told |= {"kept": kept, "target_end": losses["target"].iloc[-1]}
    told |= {"target_end_before": plan["target_loss"], "end": end}
    if not verdicts.any():
        return told | {"share": np.nan}
    first = int(np.argmax(verdicts != 0))
    verdict, decision = verdicts[first], decisions[first]
    stop_at = end if decision.stop_at is None else decision.stop_at
    return told | {
        "share": losses.index[first] / end,
        "verdict": verdict,
        "stayed": bool((verdicts[first:] == verdict).all()),
        "right": bool((verdict == 1) == kept),
        "saved": 1 - stop_at / end,
        "kept_there": keeps(losses, limits, stop_at) if verdict == 1 else np.nan,
    }


def keeps(losses: pd.DataFrame, limits: dict[str, float], at: float) -> bool:
    """Tell whether a curve keeps its limits at a number of tokens, log-linear between
    points.
    """
    clock = np.log(losses.index.to_numpy(float))
    there = {
        name: np.exp(np.interp(np.log(at), clock, np.log(losses[name])))
        for name in limits
    }
    return all(there[name] <= limit for name, limit in limits.items())


def study(
    plans: pd.DataFrame, curves: pd.DataFrame, language: str, fits: Path
) -> pd.DataFrame:
    rows = []
    for plan in plans.to_dict("records"):
        mine = curves
        for name in OF_PLAN:
            mine = mine[mine[name] == plan[name]]
        posteriors = {
            domain: fitted(plan["unseen"], language, domain, fits)
            for domain in ("target", "source")
        }
        rows.append(followed(plan, mine, posteriors))
    return pd.DataFrame(rows)


# -- the table -------------------------------------------------------------------------

HEAD = (
    "| unseen | size | ptpp | stated | kept at the end | sure from | verdict | stayed so "
    "| right | tokens saved | kept where it would have stopped |"
)


def line_of(row: pd.Series) -> str:
    cells = [
        row["unseen"],
        row["size"],
        f"{row['ptpp']:g}",
        f"{row['stated']:.0%}",
        yes(row["kept"]),
    ]
    if np.isnan(row["share"]):
        cells += ["never", *["" for _ in range(5)]]
    else:
        cells += [
            f"{row['share']:.0%} of the run",
            "kept" if row["verdict"] == 1 else "broken",
            yes(row["stayed"]),
            yes(row["right"]),
            f"{row['saved']:.0%}",
            "" if row["verdict"] == -1 else yes(row["kept_there"]),
        ]
    return f"| {' | '.join(cells)} |"


def yes(value: Any) -> str:
    return "yes" if value else "**no**"


def markdown(rows: pd.DataFrame) -> str:
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    lines += [line_of(row) for _, row in rows.iterrows()]
    sure = rows.dropna(subset=["share"])
    stopped = sure[sure["verdict"] == 1]
    total = rows["end"] * rows["size"].map(parameters)
    saved = (rows["saved"].fillna(0) * total).sum() / total.sum()
    off = (rows["target_end"] / rows["target_end_before"] - 1).abs()
    summary = (
        f"Of {len(rows)} plans {len(sure)} verdicts were sure before or at the end, half "
        f"of them by {sure['share'].median():.0%} of the run and nine in ten by "
        f"{sure['share'].quantile(0.9):.0%}; {sure['right'].sum()} were right and "
        f"{sure['stayed'].sum()} stayed as they were. Stopped there, the plans would have "
        f"saved {saved:.0%} of their FLOPs, and {stopped['kept_there'].sum()} of the "
        f"{len(stopped)} called kept would have kept their limits where they stopped. "
        f"Trained again, target losses end within {off.max():.2%} of those in the table "
        "of trained plans."
    )
    return "\n".join([*lines, "", summary]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--language", default="fr")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    plans = chosen(options.language)
    work = opened(options.text, options.work, options.language)
    path = options.work / f"curves_{options.language}.csv"
    rows = study(plans, trained(plans, work, path), options.language, options.work)
    text = markdown(rows)
    print(text)
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
