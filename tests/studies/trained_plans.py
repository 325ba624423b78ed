"""Train plans for a stage or a size that no fit has seen, and check whether they keep their promises.

    python tests/studies/trained_plans.py --text text --work plans [-o docs/results/trained_plans.csv]

For French and for German, averages of the default laws are fitted to runs of the bundled tables, target and source separately. For an unseen stage,
fits have the models of 12, 23 and 54 thousand parameters at 15, 31 and 93 tokens per parameter, and plans are for 12k and 54k at 279 (two seeds). For
an unseen size, fits have the models of 12k and 23k at all stages, and plans are for 54k (two seeds, four stages). The checkpoint's own losses are
measured, and adaptations are planned at four confidences. Limits are the forecast medians of target loss and forgetting at 8 tokens per parameter and
30% replay, loosened by the least of 0, 1, 2, 4 or 8% of the loss with which a plan exists. Then each plan is trained once. TEXT has the folders that
`harness.debian_text` writes. Checkpoints and fits are kept in WORK, plans and their results in --output, so that an interrupted
study goes on.
"""

import argparse
import sys
import warnings
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from asked_plans import CONFIDENCES, outcome_of, planned
from follow_wrong import checkpoint_state
from harness.model import parameters
from harness.plan import train_plan
from harness.table import Checkpoint
from harness.work import Work, losses, open_work
from planned_table import markdown
from resumable import study

import bayeslaw
from bayeslaw import datasets

ROOT = Path(__file__).parents[2]
WARM = 20  # steps of adaptation from which rows count: the rate rises over the first 10
REFERENCE = datasets.TABLES["microcpt"].reference
LANGUAGES = {"fr": "microcpt", "de": "microcpt-de"}
LARGEST, LAST = "54k", 279.0
SEEDS = (0, 1)
CHECKPOINTS = {
    "size": [(LARGEST, ptpp) for ptpp in (15.0, 31.0, 93.0, LAST)],
    "stage": [("12k", LAST), (LARGEST, LAST)],
}
JOBS = [
    {
        "unseen": unseen,
        "language": language,
        "size": size,
        "seed": seed,
        "ptpp": ptpp,
        "confidence": confidence,
    }
    for unseen, checkpoints in CHECKPOINTS.items()
    for seed, language, (size, ptpp), confidence in product(
        SEEDS, LANGUAGES, checkpoints, CONFIDENCES
    )
]


# -- plans -----------------------------------------------------------------------------


@cache
def fitted(unseen: str, language: str, domain: str, folder: Path) -> bayeslaw.Average:
    """The average of the default laws without this stage or size; kept in a file."""
    path = folder / f"{unseen}_{language}_{domain}.nc"
    if not path.exists():
        runs = datasets.load(LANGUAGES[language])
        largest = parameters(LARGEST)
        known = {
            "size": runs["N"] < largest,
            "stage": (runs["N"] <= largest) & (runs["ptpp"] < LAST),
        }[unseen]
        kept = runs[(runs["domain"] == domain) & known & (runs["step"] >= WARM)]
        average = bayeslaw.average(kept, reference=REFERENCE, on_failure="warn")
        average.save(path)
    return bayeslaw.load(path)


# -- training --------------------------------------------------------------------------


def opened(text: Path, folder: Path, language: str) -> Work:
    return open_work(text / "source", text / language, folder / f"{language}.work")


def losses_before(work: Work, checkpoint: Checkpoint) -> dict[str, float]:
    """Of a checkpoint, which is trained where it is not there."""
    trainer = work.trainer(checkpoint.size)
    state = checkpoint_state(work, trainer, checkpoint)
    (before,) = losses(trainer, state)
    return before


def contest(
    works: dict[str, Work],
    fits: Path,
    unseen: str,
    language: str,
    size: str,
    seed: int,
    ptpp: float,
    confidence: float,
) -> list[dict[str, Any]]:
    """A plan, and what came of it."""
    work = works[language]
    target, source = (fitted(unseen, language, d, fits) for d in ("target", "source"))
    before = losses_before(work, Checkpoint(size, seed, ptpp))
    limits, plan = planned(target, source, parameters(size), ptpp, before, confidence)
    if not plan.feasible:
        return [limits]
    made = train_plan(work, size, ptpp, plan.replay, plan.D, seed)
    told = outcome_of(plan, limits, made["target_loss"], made["forgetting"])
    return [limits | told]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    output = ROOT / "docs/results/trained_plans.csv"
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
