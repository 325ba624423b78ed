"""Plans that were trained: are the promises made for a larger model, from the smaller ones, kept?

    python tests/studies/trained_plans.py --text text --work plans [-o docs/trained_plans.csv]

For French and for German, from the bundled tables: averages of the default laws are fitted to the 12k and 23k models (all their
stages), target and source apart. For each checkpoint of the 54k model (two seeds, four stages) its own losses are measured, and
adaptations are planned at four confidences. Limits are the forecast medians of target loss and forgetting at 8 tokens per parameter
and 30% replay, loosened by the least of 0, 1, 2, 4 or 8% of the loss with which a plan exists. Then each plan is trained, once.
TEXT has the folders that `bayeslaw.datasets.microcpt.debian_text` writes. Checkpoints and fits are kept in WORK, plans and what came
of them in --output: an interrupted study goes on.
"""

import argparse
import sys
import warnings
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from follow_wrong import checkpoint_state
from planned_table import markdown

import bayeslaw
from bayeslaw import datasets
from bayeslaw._studies.resumable import study
from bayeslaw.datasets.microcpt.model import parameters
from bayeslaw.datasets.microcpt.plan import train_plan
from bayeslaw.datasets.microcpt.table import Checkpoint
from bayeslaw.datasets.microcpt.work import Work, losses, open_work

ROOT = Path(__file__).parents[2]
WARM = 20  # steps of adaptation from which rows count: the rate rises over the first 10
REFERENCE = datasets.TABLES["microcpt"].reference
LANGUAGES = {"fr": "microcpt", "de": "microcpt-de"}
SIZE, SEEDS, STAGES = "54k", (0, 1), (15.0, 31.0, 93.0, 279.0)
CONFIDENCES = (0.5, 0.7, 0.8, 0.9)
ASKED = {"atpp": 8.0, "replay": 0.3}
LOOSER = (0.0, 0.01, 0.02, 0.04, 0.08)
JOBS = [
    {"language": language, "seed": seed, "ptpp": ptpp, "confidence": confidence}
    for seed, language, ptpp, confidence in product(
        SEEDS, LANGUAGES, STAGES, CONFIDENCES
    )
]


# -- plans -----------------------------------------------------------------------------


@cache
def fitted(language: str, domain: str, folder: Path) -> bayeslaw.Average:
    """The average of the default laws on the sizes below `SIZE`; kept in a file."""
    path = folder / f"{language}_{domain}.nc"
    if not path.exists():
        runs = datasets.load(LANGUAGES[language])
        smaller = runs["N"] < parameters(SIZE)
        kept = runs[(runs["domain"] == domain) & smaller & (runs["step"] >= WARM)]
        average = bayeslaw.average(kept, reference=REFERENCE, on_failure="warn")
        average.save(path)
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


# -- training --------------------------------------------------------------------------


def opened(text: Path, folder: Path, language: str) -> Work:
    return open_work(text / "source", text / language, folder / f"{language}.work")


def losses_before(work: Work, seed: int, ptpp: float) -> dict[str, float]:
    """Of a checkpoint, which is trained where it is not there."""
    trainer = work.trainer(SIZE)
    state = checkpoint_state(work, trainer, Checkpoint(SIZE, seed, ptpp))
    (before,) = losses(trainer, state)
    return before


def contest(
    works: dict[str, Work],
    fits: Path,
    language: str,
    seed: int,
    ptpp: float,
    confidence: float,
) -> list[dict[str, Any]]:
    """A plan, and what came of it."""
    work = works[language]
    target, source = (fitted(language, d, fits) for d in ("target", "source"))
    before = losses_before(work, seed, ptpp)
    limits, plan = planned(target, source, parameters(SIZE), ptpp, before, confidence)
    if not plan.feasible:
        return [limits]
    made = train_plan(work, SIZE, ptpp, plan.replay, plan.D, seed)
    of_plan = {
        "atpp": plan.atpp,
        "replay": plan.replay,
        "probability": plan.probability,
        "target_loss": made["target_loss"],
        "forgetting": made["forgetting"],
        "kept_target": made["target_loss"] <= limits["max_target_loss"],
        "kept_forgetting": made["forgetting"] <= limits["max_forgetting"],
    }
    bands = zip(("target", "forgetting"), plan.promises, strict=False)
    for name, promise in bands:
        of_plan |= {f"{name}_low": promise["low"], f"{name}_high": promise["high"]}
    return [limits | of_plan]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    output = ROOT / "docs" / "trained_plans.csv"
    parser.add_argument("-o", "--output", type=Path, default=output)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    works = {
        language: opened(options.text, options.work, language) for language in LANGUAGES
    }

    def progress(done: int, total: int) -> None:
        print(f"{done} of {total} plans", file=sys.stderr, flush=True)

    task = partial(contest, works, options.work)
    print(markdown(study(task, JOBS, options.output, progress=progress)))


if __name__ == "__main__":
    main()
