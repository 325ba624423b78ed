"""Commands that run for hours: ``study anchors``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bayeslaw._base.executors import executor_at
from bayeslaw.cli.options import AsJson, Scheduler, command
from bayeslaw.cli.output import (
    INTERRUPTED,
    Resumable,
    check_writable,
    emit,
    progress_bar,
)


@dataclass(frozen=True, kw_only=True)
class AnchorsStudyOptions:
    """Options of ``study anchors``."""

    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="CSV where results are kept as they are made."
        ),
    ] = Path("anchors_study.csv")
    laws: Annotated[str, typer.Option(help="Truths, A,B,C.")] = (
        "ptpp-floor,ptpp-gate,ptpp-gate-floor"
    )
    seeds: Annotated[int, typer.Option(help="Seeds of each.", min=1)] = 20
    seed: Annotated[int, typer.Option(help="The first.", min=0)] = 0
    lists: Annotated[str, typer.Option(help="What is bought, A,B,C.")] = (
        "none,paper,chosen,random,few,D-optimal"
    )
    measured: Annotated[
        str,
        typer.Option(
            help="once: every point is a run of its own; along: points of a run cost "
            "the run; trajectories: but the paper's."
        ),
    ] = "once"
    menu: Annotated[
        str, typer.Option(help="Levels on offer: the paper's (grid), or more (wide).")
    ] = "wide"
    spread: Annotated[
        float,
        typer.Option(
            help="Sd of log parameters around the law's plausible ones.", min=0
        ),
    ] = 0.0
    tau: Annotated[
        float,
        typer.Option(help="Sd of log loss that runs of one checkpoint share.", min=0),
    ] = 0.0
    plan: Annotated[
        bool, typer.Option("--plan", help="Also plan with every posterior.")
    ] = False
    scheduler: Scheduler = None
    as_json: AsJson = False


@command
def study_anchors(options: AnchorsStudyOptions) -> None:
    """Chosen runs against the paper's grid, random runs and a D-optimal design, on
    simulated grids at equal cost.

    Interrupted, the same command goes on where it was.

    Example: bayeslaw study anchors --seeds 2 -o anchors.csv
    """
    from bayeslaw._studies.anchors import anchors_study
    from bayeslaw._studies.summary import markdown, summary

    output = options.output
    check_writable(output)
    try:
        with (
            executor_at(options.scheduler) as executor,
            progress_bar("lists of runs") as progress,
        ):
            rows = anchors_study(
                output,
                laws=_names(options.laws),
                seeds=range(options.seed, options.seed + options.seeds),
                lists=_names(options.lists),
                measured=options.measured,
                menu=options.menu,
                spread=options.spread,
                tau=options.tau,
                plan=options.plan,
                executor=executor,
                progress=progress,
            )
    except KeyboardInterrupt:
        print(
            f"interrupted: what was done is in {output}; "
            "the same command goes on from there",
            file=sys.stderr,
        )
        raise Resumable(INTERRUPTED) from None
    record = summary(rows) | {"output": str(output)}
    emit(record, options.as_json, lambda: print(markdown(rows)))


def _names(text: str) -> list[str]:
    """The names in A,B,C."""
    names = text.split(",")
    return [name.strip() for name in names]
