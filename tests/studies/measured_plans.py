"""Plan for sizes and stages of minicpt that no fit has seen, and read what the plan's run
measured between the runs of the table.

    python tests/studies/measured_plans.py [-o docs/results/measured_plans.csv]

Folds are those of `new_sizes.py` on minicpt, in both languages. Averages of the default laws
are fitted to each domain. For each model that was left out, the checkpoint's losses are
given, and adaptations are planned at four confidences. Limits are the forecast medians at a
quarter of the model's measured tokens and 25% replay, loosened as in `trained_plans.py`. The
losses at the plan's tokens and replay are linear between measured runs; a plan that they do
not surround is not counted.
"""

import argparse
import sys
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from asked_plans import CONFIDENCES, outcome_of, planned
from new_sizes import FOLDS, split_fold
from planned_table import summary
from resumable import study

import bayeslaw
from bayeslaw import datasets
from bayeslaw._report.measured import loss_between
from bayeslaw._tables.rows.levels import is_of_model

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "docs" / "results" / "measured_plans.csv"
LANGUAGES = {"minicpt": "fr", "minicpt-de": "de"}
PLANNED = {name: fold for name, fold in FOLDS.items() if fold.table in LANGUAGES}


@cache
def fitted(fold: str, domain: str) -> bayeslaw.Average:
    """The average of the default laws of a fold's domain."""
    known, _ = split_fold(FOLDS[fold], domain)
    reference = datasets.TABLES[FOLDS[fold].table].reference
    return bayeslaw.average(known, reference=reference, on_failure="ignore", seed=0)


def list_jobs() -> list[dict[str, Any]]:
    """Each model that a fold leaves out, at each confidence."""
    jobs = []
    for fold in PLANNED:
        _, unseen = split_fold(FOLDS[fold], "target")
        models = unseen[["N", "ptpp"]].drop_duplicates().itertuples(index=False)
        jobs += [
            {"fold": fold, "size": n, "ptpp": ptpp, "confidence": confidence}
            for n, ptpp in models
            for confidence in CONFIDENCES
        ]
    return jobs


def contest(
    fold: str, size: float, ptpp: float, confidence: float
) -> list[dict[str, Any]]:
    """A plan, and what its run measured."""
    runs = datasets.load(FOLDS[fold].table)
    of_model = runs[is_of_model(runs, size, ptpp)]
    target, source = (of_model[of_model["domain"] == d] for d in ("target", "source"))
    before = {
        "target": float(target["loss_before"].mean()),
        "source": float(target["source_loss_before"].mean()),
    }
    fits = fitted(fold, "target"), fitted(fold, "source")
    asked = {"atpp": float(target["D"].max()) / size / 4, "replay": 0.25}
    limits, plan = planned(*fits, size, ptpp, before, confidence, asked)
    unseen = "stage" if "279" in fold else "size"
    told = {"unseen": unseen, "language": LANGUAGES[FOLDS[fold].table]}
    told |= limits
    if not plan.feasible:
        return [told]
    losses = loss_between(target, plan), loss_between(source, plan)
    told |= {"plan_atpp": plan.atpp, "plan_replay": plan.replay}
    if None in losses:
        return [told]
    forgetting = losses[1] / before["source"] - 1
    return [told | outcome_of(plan, limits, losses[0], forgetting)]


def markdown(rows: pd.DataFrame) -> str:
    """The plans that measured runs surround, and how many others there were."""
    lost = rows["atpp"].isna()
    outside = int(rows.loc[lost, "plan_atpp"].notna().sum())
    none = int(lost.sum()) - outside
    others = f"Measured runs do not surround {outside} more plans; {none} times there is none."
    # a fold's model stands for one trial, as a seed's checkpoint does there
    return "\n".join([*summary(rows.assign(seed=rows["fold"])), "", others])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} plans", file=sys.stderr, flush=True)

    print(markdown(study(contest, list_jobs(), options.output, progress=progress)))


if __name__ == "__main__":
    main()
