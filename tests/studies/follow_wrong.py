"""Train runs with deliberate faults, and find out when following them raises an alarm.

    python tests/studies/follow_wrong.py --source text/source --target text/target \\
        --work wrong.work --fits wrong.fits [-o docs/results/follow_wrong.txt]

Trains adaptations of tiny models (`harness`), sound ones and several
faulty ones, into ``wrong.work/curves.csv``. Fits laws to the bundled table without the
stage and size that is followed, and follows each run point by point. Runs and fits that
are in the two folders already are not made again. Run it with ``nice``.
"""

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
from harness import train
from harness.adaptation import Adaptation
from harness.corpus import Corpus
from harness.grid import Grid
from harness.model import parameters
from harness.table import DOMAINS, Checkpoint
from harness.train import Trainer, steps_for, tokens_per_step
from harness.work import Work, losses, open_work, pretrain

import bayeslaw
from bayeslaw import datasets
from bayeslaw._base.files import atomic_write

SEED = 0
REPLAYS = (0.1, 0.5)
BETWEEN = 12  # points beside the ladder, log-spaced from the first after the warm-up
WARM = 20  # steps; earlier points are neither fitted nor followed
LEVELS = (0.01, 0.1)


class Way(NamedTuple):
    """How a run is trained: ``rate``: times the learning rate; ``leaked``: share of the
    target windows that are drawn from the validation windows; ``replay``: the share of
    source data in truth, None where it is the one that is told.
    """

    rate: float = 1.0
    leaked: float = 0.0
    replay: float | None = None

    def trained(self, told: float) -> float:
        return told if self.replay is None else self.replay


WAYS = {
    "as it should be": Way(),
    "rate x 10": Way(rate=10.0),
    "rate / 10": Way(rate=0.1),
    "half validation": Way(leaked=0.5),
    "all validation": Way(leaked=1.0),
    "replay .05 as .5": Way(replay=0.05),
}


LEAKS = ("as it should be", "half validation", "all validation")


class Cell(NamedTuple):
    """A checkpoint, and what is trained from it."""

    size: str
    ptpp: float
    ways: tuple[str, ...] = tuple(WAYS)
    replays: tuple[float, ...] = REPLAYS

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.size, SEED, self.ptpp)


# The small models cannot learn the validation text by heart; the largest here can.
CELLS = (
    Cell("12k", 93.0),
    Cell("12k", 279.0),
    Cell("23k", 279.0),
    Cell("123k", 15.0, LEAKS, (0.1,)),
)


# -- training --------------------------------------------------------------------------


def leak(target: Corpus, share: float) -> Corpus:
    """Replace a share of the corpus's training text by validation windows."""
    held_out = target.validation.ravel()
    if share == 0:
        return target
    if share == 1:
        return replace(target, train=held_out)
    # places are drawn uniformly, so that the share of the text is that of the windows
    times = share / (1 - share) * len(target.train) / len(held_out)
    text = [target.train, np.tile(held_out, round(times))]
    return replace(target, train=np.concatenate(text))


def checkpoint_state(
    work: Work, trainer: Trainer, checkpoint: Checkpoint
) -> train.TrainingState:
    """Train a checkpoint through all earlier stages of the table, and return its state."""
    stages = [
        replace(checkpoint, ptpp=ptpp)
        for ptpp in Grid().stages
        if ptpp <= checkpoint.ptpp
    ]
    # each is saved where it is not yet, and the next goes on from there
    reached = [
        pretrain(work, trainer, stages[: k + 1], lambda *_: None)
        for k in range(len(stages))
    ]
    return reached[-1]


def measured_at(size: str) -> list[int]:
    """List the steps of the ladder, and those between."""
    ladder = {steps_for(size, d * parameters(size)) for d in Grid().ladder}
    between = np.geomspace(WARM, max(ladder), BETWEEN).round().astype(int)
    return sorted(ladder | set(map(int, between)))


def train_way(work: Work, cell: Cell, name: str) -> pd.DataFrame:
    """Train the curves of a checkpoint that is adapted in one way."""
    way, checkpoint = WAYS[name], cell.checkpoint
    told = [r for r in cell.replays if way.replay is None or r > 2 * way.replay]
    target = leak(work.corpora["target"], way.leaked)
    trainer = train.trainer(checkpoint.size, {**work.corpora, "target": target})
    begun = checkpoint_state(work, trainer, checkpoint)
    (before,) = losses(trainer, begun)
    steps = measured_at(checkpoint.size)
    states = trainer.branch(begun, len(told))
    trained = [Adaptation(way.trained(r), rate=way.rate) for r in told]
    courses = train.courses(
        checkpoint.size,
        SEED,
        checkpoint.ptpp,
        trained,
        steps[-1],
        (len(target.train),),
    )
    at, rows = 0, []
    for step in steps:
        states = trainer.train(states, courses, step - at)
        at = step
        for replay, after in zip(told, losses(trainer, states), strict=True):
            run = f"{checkpoint.run(Adaptation(replay))} {name}"
            rows += curve_rows(checkpoint, run, replay, step, after, before)
    return pd.DataFrame(rows).assign(way=name)


def curve_rows(
    checkpoint: Checkpoint,
    run: str,
    replay: float,
    step: int,
    after: dict[str, float],
    before: dict[str, float],
) -> list[dict[str, Any]]:
    """Build a row for each domain, in the columns of the bundled table."""
    of_run = {
        "run": run,
        "seed": checkpoint.seed,
        "step": step,
        "N": parameters(checkpoint.size),
        "D": step * tokens_per_step(checkpoint.size),
        "replay": replay,
        "ptpp": checkpoint.ptpp,
        "source_loss_before": round(before["source"], 6),
    }
    return [
        of_run
        | {
            "domain": domain,
            "loss": round(after[domain], 6),
            "loss_before": round(before[domain], 6),
        }
        for domain in DOMAINS
    ]


def train_all(work: Work, path: Path) -> pd.DataFrame:
    """Train the curves of all ways, except those that the file holds."""
    curves = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for cell in CELLS:
        for name in cell.ways:
            if len(curves) and _has(curves, cell, name):
                continue
            print(cell.checkpoint.name, name, flush=True)
            curves = pd.concat([curves, train_way(work, cell, name)])
            with atomic_write(path) as part:
                curves.to_csv(part, index=False)
            jax.clear_caches()
    return curves


def _has(curves: pd.DataFrame, cell: Cell, way: str) -> bool:
    of_cell = _of_cell(curves, parameters(cell.size), cell.ptpp)
    return bool((of_cell & (curves["way"] == way)).any())


def _of_cell(table: pd.DataFrame, n: float, ptpp: float) -> pd.Series:
    return (table["N"] == n) & (table["ptpp"] == ptpp)


def before_lines(curves: pd.DataFrame) -> list[str]:
    """Losses before adaptation here and in the bundled table."""
    bundled = datasets.load("microcpt").query("seed == 0")
    lines = [
        "| N | ptpp | domain | loss before, here | bundled |",
        "|---|---|---|---|---|",
    ]
    for (n, ptpp, domain), rows in curves.groupby(["N", "ptpp", "domain"]):
        there = bundled[_of_cell(bundled, n, ptpp) & (bundled["domain"] == domain)]
        here = ", ".join(f"{x:.6f}" for x in rows["loss_before"].unique())
        told = there["loss_before"].iloc[0]
        lines.append(f"| {n:.0f} | {ptpp:g} | {domain} | {here} | {told:.6f} |")
    return lines


# -- following -------------------------------------------------------------------------


def posterior(folder: Path, domain: str, n: int, ptpp: float) -> bayeslaw.Average:
    """Fit the average of the default laws without a stage of a size."""
    path = folder / f"{domain}-{n}-ptpp{ptpp:g}.nc"
    if not path.exists():
        table = datasets.load("microcpt").query(f"step >= {WARM} and seed == {SEED}")
        rows = table[(table["domain"] == domain) & ~_of_cell(table, n, ptpp)]
        reference = dict(datasets.TABLES["microcpt"].reference)
        print("fitting", path.name, flush=True)
        average = bayeslaw.average(rows, reference=reference, on_failure="warn")
        folder.mkdir(parents=True, exist_ok=True)
        average.save(path)
    return bayeslaw.load(path)


def follow_all(curves: pd.DataFrame, fits: Path) -> pd.DataFrame:
    """Surprise after each point, a row for each point of each run."""
    followed = []
    curves = curves[curves["step"] >= WARM]
    for (n, ptpp), cell in curves.groupby(["N", "ptpp"]):
        posteriors = {d: posterior(fits, d, n, ptpp) for d in DOMAINS}
        for _, run in cell.groupby("run", sort=False):
            until = float(run["D"].max())
            following = bayeslaw.follow(posteriors, run, until)
            told = run.iloc[0][["way", "N", "ptpp", "replay"]].to_dict()
            by_domain = {
                d: following[d].history.set_index("at")["surprise"] for d in DOMAINS
            }
            rows = pd.DataFrame(by_domain).reset_index()
            rows["share"] = rows["at"] / until
            lowest = rows[list(DOMAINS)].min(axis=1)
            # of both domains, as `Following.surprise` has it
            rows["surprise"] = np.minimum(1.0, len(DOMAINS) * lowest)
            followed.append(rows.assign(**told))
    return pd.concat(followed, ignore_index=True)


def first_below(rows: pd.DataFrame, level: float) -> str:
    """Find the share of the run at which its surprise first fell below a level, and the
    domain with that surprise.
    """
    below = rows[rows["surprise"] < level]
    if not len(below):
        return "never"
    first = below.iloc[0]
    domain = min(DOMAINS, key=lambda d: first[d])
    return f"{first['share']:.0%} ({domain})"


HEAD = (
    "| way | N | ptpp | replay told | surprise < .01 from | surprise < .1 from "
    "| least | at the end: source | target |"
)


def lines_of(followed: pd.DataFrame) -> list[str]:
    """Write a line for each run."""
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    of_run = followed.groupby(["way", "N", "ptpp", "replay"], sort=False)
    ordered = sorted(of_run, key=lambda group: list(WAYS).index(group[0][0]))
    for (way, n, ptpp, replay), rows in ordered:
        last = rows.iloc[-1]
        figures = [
            way,
            f"{n:.0f}",
            f"{ptpp:g}",
            f"{replay:g}",
            *(first_below(rows, level) for level in LEVELS),
            *(f"{x:.2g}" for x in (rows["surprise"].min(), *last[list(DOMAINS)])),
        ]
        lines.append(f"| {' | '.join(figures)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--fits", type=Path, required=True)
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    work = open_work(options.source, options.target, options.work)
    curves = train_all(work, options.work / "curves.csv")
    print("\n".join(before_lines(curves)), flush=True)
    if options.train_only:
        return
    followed = follow_all(curves, options.fits)
    followed.to_csv(options.work / "followed.csv", index=False)
    lines = lines_of(followed)
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
