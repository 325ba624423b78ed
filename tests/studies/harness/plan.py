"""Train a plan: adapt a saved checkpoint with one budget and replay.

``python -m harness.plan --source DIR --target DIR --work DIR --size
259k --ptpp 279 --replay 34% --D 2.3M`` prints one JSON object. Its losses show whether
the run keeps the limits of the plan.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import typer

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import BayeslawError, RunTableError
from bayeslaw._base.numbers import parse_number
from harness.adaptation import Adaptation
from harness.model import SIZES
from harness.table import Checkpoint, Run, rows
from harness.train import load, steps_for
from harness.work import Work, adapt, losses, open_work


def train_plan(
    work: Work, size: str, ptpp: float, replay: float, D: float, seed: int = 0
) -> dict[str, Any]:
    """Adapt a checkpoint on ``D`` tokens (rounded to whole steps) at one replay.

    Returns
    -------
    dict
        N, D (as trained), replay, ptpp, seed, cost in FLOPs, the losses of both domains
        before and after in nats per byte, and forgetting, the relative rise of the
        source loss.

    Raises
    ------
    RunTableError
        There is no such checkpoint, or a number is out of range.
    """
    checkpoint = Checkpoint(size, seed, ptpp)
    if size not in SIZES or not work.saved(checkpoint).exists():
        stems = sorted(path.stem for path in work.folder.glob("*.eqx"))
        there = ", ".join(stem for stem in stems if not stem.endswith(".part"))
        raise RunTableError(
            f"no checkpoint {checkpoint.name} in {work.folder}; there are: "
            f"{there or 'none'}"
        )
    if not (0 <= replay <= 1 and D > 0):
        raise RunTableError(
            f"replay {replay:g}, D {D:g}: replay is a share, 0 to 1, and D a number of "
            "tokens above 0"
        )
    trainer = work.trainer(size)
    state = load(work.saved(checkpoint), trainer.fresh(seed))
    (before,) = losses(trainer, state)
    # one run, measured at its end only
    last, planned = steps_for(size, D), Adaptation(replay)
    measured = adapt(work, trainer, [checkpoint], [planned], [last], lambda *_: None)
    ((step, (after,)),) = measured
    run = Run(checkpoint, planned, last, sum(work.available))
    source, target = rows(run, step, after, before)
    of_run = ("checkpoint", "N", "D", "replay", "ptpp", "seed", "cost")
    return {
        **{key: source[key] for key in of_run},
        "source_loss": source["loss"],
        "source_loss_before": source["loss_before"],
        "target_loss": target["loss"],
        "target_loss_before": target["loss_before"],
        "forgetting": source["loss"] / source["loss_before"] - 1,
    }


@dataclass(frozen=True, kw_only=True)
class PlanRunArguments:
    """Arguments of ``python -m harness.plan``."""

    source: Path = option("Folder of text of the source domain.", default=MISSING)
    target: Path = option("Folder of text of the target domain.", default=MISSING)
    work: Path = option("Folder of saved states, as the grid left it.", default=MISSING)
    size: str = option("For instance 259k.", default=MISSING)
    ptpp: float = option(
        "Stage of the checkpoint: pre-training tokens per parameter.", default=MISSING
    )
    replay: str = option("Share of source data, for instance 34%.", default=MISSING)
    D: str = option("Adaptation tokens, for instance 2.3M.", "--D", default=MISSING)
    seed: int = option("Seed of the checkpoint.", default=0)


@command
def main(arguments: PlanRunArguments) -> None:
    """Adapt a saved checkpoint to one plan and print both losses as JSON."""
    try:
        work = open_work(arguments.source, arguments.target, arguments.work)
        share, tokens = parse_number(arguments.replay), parse_number(arguments.D)
        plan = train_plan(
            work, arguments.size, arguments.ptpp, share, tokens, arguments.seed
        )
    except BayeslawError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(plan))


if __name__ == "__main__":
    typer.run(main)
