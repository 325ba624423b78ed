"""Run the studies of buying runs, which take hours; interrupted, the same command goes
on where it was.

    python tests/studies/study.py anchors --seeds 2 -o anchors.csv
    python tests/studies/study.py pool runs.csv --offer "split == 'train'" \\
        --goal "split == 'test'"
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path

import typer

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import WorkersError
from bayeslaw._base.machine.executors import executor_at
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw.cli.app import main
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.options import AsJson, Column, Runs, Scheduler, Where
from bayeslaw.cli.output import (
    INTERRUPTED,
    Resumable,
    check_writable,
    emit,
    print_table,
)
from bayeslaw.cli.parsing import number, read_table


@dataclass(frozen=True, kw_only=True)
class AnchorsStudyOptions:
    """Options of ``study anchors``."""

    output: Path = option(
        "CSV where results are kept as they are made.",
        "-o",
        "--output",
        default=Path("anchors_study.csv"),
    )
    laws: str = option("Truths, A,B,C.", default="ptpp-floor,ptpp-gate,ptpp-gate-floor")
    seeds: int = option("Seeds of each.", default=20, min=1)
    seed: int = option("The first.", default=0, min=0)
    lists: str = option(
        "What is bought, A,B,C.", default="none,paper,chosen,random,few,D-optimal"
    )
    measured: str = option(
        "once: every point is a run of its own; along: points of a run cost "
        "the run; trajectories: but the paper's.",
        default="once",
    )
    menu: str = option(
        "Levels on offer: the paper's (grid), or more (wide).", default="wide"
    )
    spread: float = option(
        "Sd of log parameters around the law's plausible ones.", default=0.0, min=0
    )
    tau: float = option(
        "Sd of log loss that runs of one checkpoint share.", default=0.0, min=0
    )
    plan: bool = option("Also plan with every posterior.", default=False)
    scheduler: Scheduler = None
    as_json: AsJson = False


@command
def study_anchors(options: AnchorsStudyOptions) -> None:
    """Compare chosen runs with the paper's grid, random runs and a D-optimal design, on
    simulated grids at equal cost.

    If it is interrupted, the same command goes on where it was.

    Example: python tests/studies/study.py anchors --seeds 2 -o anchors.csv
    """
    from anchors_study import anchors_study
    from anchors_summary import markdown, summary

    output = options.output
    check_writable(output)
    with (
        _resumable(output),
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
    record = summary(rows) | {"output": output}
    emit(record, options.as_json, lambda: say_block(markdown(rows)))


@contextmanager
def _resumable(output: Path | None) -> Iterator[None]:
    """Print where the work is saved, at Ctrl-C and when workers are lost; the same
    command goes on from there.
    """
    place = "nothing is kept: give --output to be able to go on"
    if output is not None:
        place = f"what was done is in {output}; the same command goes on from there"
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: {place}", to_stderr=True)
        raise Resumable(INTERRUPTED) from None
    except WorkersError as error:
        raise WorkersError(f"{error}; {place}") from None


@dataclass(frozen=True, kw_only=True)
class PoolStudyOptions:
    """Options of ``study pool``."""

    runs: Runs
    offer: str = option(
        "Runs on offer, a pandas query: \"split == 'train'\".", default=MISSING
    )
    goal: str = option(
        "Runs to forecast, a pandas query: \"split == 'test'\".", default=MISSING
    )
    budgets: str = option(
        "Shares of what all on offer cost, A,B,C.", default="1%,5%,10%"
    )
    law: list[str] | None = option(
        "Law to average (repeatable); default: those that suit the columns."
    )
    seeds: int = option("Seeds of each.", default=10, min=1)
    seed: int = option("The first.", default=0, min=0)
    rules: str = option(
        "How runs are bought, A,B,C: chosen, random, cheapest, "
        "cost-weighted, D-optimal.",
        default="chosen",
    )
    where: Where = None
    column: Column = None
    output: Path | None = option(
        "CSV where results are kept as made.", "-o", "--output"
    )
    scheduler: Scheduler = None
    as_json: AsJson = False


# a row of the printed table; --json has all figures
@command
def study_pool(options: PoolStudyOptions) -> None:
    """Buy runs of a measured pool from nothing, up to shares of the cost of all, and
    forecast the goal from them.

    Example: python tests/studies/study.py pool runs.csv --offer "split == 'train'"
    --goal "split == 'test'" --budgets 1%,5%,10%
    """
    from pool_study import pool_study, pool_summary

    options = with_file(options, options.runs)
    output = options.output
    check_writable(output)
    table = read_table(options.runs, options.where, options.column)
    with (
        _resumable(output),
        executor_at(options.scheduler) as executor,
        progress_bar("purchases") as progress,
    ):
        rows = pool_study(
            table,
            options.offer,
            options.goal,
            budgets=[number("budgets", share) for share in _names(options.budgets)],
            laws=options.law,
            seeds=range(options.seed, options.seed + options.seeds),
            rules=_names(options.rules),
            path=output,
            executor=executor,
            progress=progress,
        )
    medians = pool_summary(rows)
    record = {"budgets": medians, "output": output}
    names = ("rule", "budget", "runs", "r2", "mae", "cover90", "interval_score90")
    cells = [{name: _short(line[name]) for name in names} for line in medians]
    emit(record, options.as_json, lambda: print_table(cells, names))


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _names(text: str) -> list[str]:
    """Read the names in A,B,C."""
    names = text.split(",")
    return [name.strip() for name in names]


app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("anchors")(study_anchors)
app.command("pool")(study_pool)


if __name__ == "__main__":
    main(app)
