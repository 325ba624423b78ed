"""Define ``anchors``: choose runs to buy, at once or in a sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw._law.columns import LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw.cli.beside import columns_there, with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import (
    Column,
    CostOptions,
    PriorOptions,
    SavedFitOptions,
)
from bayeslaw.cli.output import check_writable, emit_answer, write_table
from bayeslaw.cli.parsing import (
    ask,
    costs_of,
    levels_of,
    load_fit,
    load_sources,
    number,
    prior_of,
    read_question,
    read_table,
    table_of_goal,
)

if TYPE_CHECKING:
    import pandas as pd


@options_of("anchors", "next_runs", without="posterior run_length costs")
class AnchorsOptions(CostOptions, PriorOptions, SavedFitOptions):
    """Options of ``anchors``."""

    fit_file: Path | None = argument(
        "A saved fit; none with --next or --prior-only.", "[FIT.nc]", default=None
    )
    candidates: Path = option(
        "Table of runs on offer; with --offer, of runs that exist.", default=MISSING
    )
    goal: list[str] | None = option(
        "Table of runs to forecast; or the plan: "
        "--goal N=8.1B --goal max_forgetting=2% ... (repeatable)."
    )
    budget: str | None = option()
    where: str | None = option("Candidates to use, a pandas query.")
    goal_where: str | None = option("Rows of the goal's table, a pandas query.")
    column: Column = None
    offer: list[str] | None = option(
        "Make the candidates: all runs at these levels, from checkpoints in "
        "the table and, for their pre-training, from new ones: --offer "
        "N=241M,517M --offer ptpp=279 --offer atpp=1,5,20 (repeatable; tokens: "
        "--offer D=1B,5B in place of atpp)."
    )
    alone: bool = option(
        "With --offer: each point is a run of its own, not one along a run."
    )
    source: list[str] | None = option(
        "For a plan: fit of the source loss; several as NAME=S.nc.", metavar="S.nc"
    )
    replicates: int | None = option(min=1)
    max_picks: int | None = option(min=1)
    least: float | None = option(min=0)
    checks: int | None = option(min=0)
    confidence: str | None = option()
    next_batch: bool = option(
        "Without a fit: the next batch of a sequence, from nothing or from "
        "the runs measured so far.",
        "--next",
    )
    measured: list[Path] | None = option(
        "With --next: tables of earlier batches with their losses, none for "
        "a run that failed (repeatable)."
    )
    law: list[str] | None = option(
        "With --next: law to average (repeatable); default: those that suit "
        "the columns. With --prior-only: the law.",
        argument="laws",
    )
    batch: int | None = option("With --next: most runs at once.", min=1)
    enough: str | None = option(
        "With --next: sd of the goal's loss at which to stop: 1%; for --gain "
        "best or law what the choice is expected to lose."
    )
    source_law: list[str] | None = option(
        "With --next and a plan: law of the source to average (repeatable); with "
        "--prior-only: the law of the source.",
        argument="source_laws",
    )
    output: Path | None = option("Table of the rows to measure.", "-o", "--output")


# options that only suit some of the three ways to begin, by field
OF_NEXT = ("measured", "batch", "enough", "reference")
OF_LAWS = ("law", "source_law", "experience")
OF_LIMIT = ("max_loss", "confidence")
OF_FITS = ("fit_file", "source", "max_picks", "replicates", "checks", *OF_LIMIT)


@command
def anchors(options: AnchorsOptions) -> None:
    """Choose the runs to buy next: those that improve a forecast, or lower the cost of
    a plan, most for their cost.

    Example: bayeslaw anchors fit.nc --candidates runs.csv --offer N=241M,517M --offer
    ptpp=279 --goal planned.csv --budget 2e20 (or --budget 5000 --hardware 8xH100 --price
    2.5)
    """
    import pandas as pd

    import bayeslaw
    from bayeslaw._tables.runs import load_table

    options = with_file(options, options.candidates)
    check_writable(options.output)
    budget, goal_texts = _check(options)
    # runs to forecast, with the candidates' column names, or the question of a plan
    file = table_of_goal(goal_texts)
    if file is None:
        goal: Any = read_question(goal_texts, "--goal")
    else:
        columns = columns_there(options.column, file)
        goal = read_table(file, options.goal_where, columns)
    posterior: Any = None
    source: Any = None
    losses_read: Collection[str] = LOSSES_BEFORE
    if options.fit_file is not None:
        posterior = load_fit(options.fit_file, options.trust_law_file)
        if options.source:
            source = load_sources(options.source, options.trust_law_file)
        losses_read = _losses_read(posterior, source)
    # of all batches so far; the loss of a failed run is empty
    batches = [load_table(path) for path in options.measured or ()]
    table = read_candidates(options, losses_read, goal)
    if options.prior_only:
        posterior, source = _priors_of_anchors(options, table, goal)
    more: dict[str, Any] = {"output": options.output}
    if options.next_batch:
        if options.least is not None and not isinstance(goal, dict):
            raise LawError(
                "--least is of a plan: of a forecast, --enough says where to stop"
            )
        with progress_bar(f"anchors among {len(table)} runs, next", expected=60):
            following = ask(
                options,
                bayeslaw.next_runs,
                *(table, goal, budget),
                measured=pd.concat(batches, ignore_index=True) if batches else None,
            )
        write_table(following.runs, options.output)
        lines = [
            f"{what}: row {', '.join(map(str, rows))}"
            for what, rows in (("failed", following.failed), ("odd", following.odd))
            if rows
        ]
        emit_answer(following, options.as_json, following.table(), lines, **more)
        return
    with progress_bar(f"anchors among {len(table)} runs", expected=40):
        arguments = posterior, table, goal, budget
        picked = ask(options, bayeslaw.anchors, *arguments, source=source)
    write_table(picked.runs(table), options.output)
    if options.prior_only and not options.as_json:
        say_block("\n".join(posterior.warnings))
    more |= {"prior_only": options.prior_only}
    rows = picked.table(table) if picked.picks else None
    emit_answer(picked, options.as_json, rows, **more)


def _check(options: AnchorsOptions) -> tuple[float, list[str]]:
    """Check that all that is needed is given, typed or in the file beside the
    candidates, and nothing that does not suit the way to begin: a fit, ``--next`` or
    ``--prior-only``. Return the budget and the goal.
    """
    if not options.goal:
        raise LawError(
            "what are the runs for? give --goal planned.csv, or the plan: --goal N=8.1B "
            "--goal max_forgetting=2% ... (or [plan] in bayeslaw.toml beside the "
            "candidates)"
        )
    if options.budget is None:
        raise LawError(
            "give --budget 2e20, in the unit of the candidates' costs (or budget under "
            "[anchors] in bayeslaw.toml beside them)"
        )

    def first_of(fields: Sequence[str]) -> str | None:
        given = [f for f in fields if getattr(options, f) not in (None, [], "")]
        names = {"fit_file": "FIT.nc"}
        return names.get(given[0], f"--{given[0].replace('_', '-')}") if given else None

    is_next, is_prior = options.next_batch, options.prior_only
    if is_next and is_prior:
        raise LawError("--next begins from priors itself: leave --prior-only out")
    if is_next and options.experience:
        raise LawError("--experience belongs to --prior-only; --next chooses its own")
    if is_next and (name := first_of(OF_FITS)):
        raise LawError(
            f"--next fits what is measured itself: leave {name} out, and give "
            "the runs measured so far (--measured runs.csv)"
        )
    if not is_next and (name := first_of(OF_NEXT)):
        raise LawError(f"{name} belongs to --next")
    if not is_next and not is_prior and (name := first_of(OF_LAWS)):
        raise LawError(f"{name} belongs to --next or --prior-only")
    if is_prior and (options.fit_file or options.source):
        raise LawError("with --prior-only there are no fits: leave them out")
    if options.fit_file is None and not is_prior and not is_next:
        raise LawError(
            "give a saved fit (FIT.nc), --next to begin from nothing, or --law NAME "
            "--prior-only for what the first runs are worth"
        )
    return number("budget", options.budget), options.goal


def _priors_of_anchors(
    options: AnchorsOptions, table: pd.DataFrame, goal: Any
) -> tuple[Any, Any]:
    """Build posteriors from priors at the runs on offer and the goal, in place of fits."""
    import pandas as pd

    from bayeslaw._tables.before import of_source

    is_plan = isinstance(goal, dict)
    runs = table if is_plan else pd.concat([table, goal], ignore_index=True)
    posterior = prior_of("--law", options.law, runs, options)
    if not options.source_law:
        return posterior, None
    return posterior, prior_of(
        "--source-law", options.source_law, of_source(runs), options, True
    )


def read_candidates(
    options: AnchorsOptions, losses_read: Collection[str], goal: Any
) -> Any:
    """Read the runs on offer: those in the table, or runs made from its checkpoints.

    Parameters
    ----------
    losses_read
        Losses before adaptation that laws read. For checkpoints that do not exist yet
        they are forecast, as in `report`.
    goal
        As `anchors` takes it. The checkpoint of a plan is there, unless it must be
        trained first.
    """
    import bayeslaw
    from bayeslaw._designs.menu import with_planned_checkpoint
    from bayeslaw._posteriors.averaging.checkpoint import fill_losses

    table = read_table(options.candidates, options.where, options.column)
    if options.offer:
        levels = levels_of(options.offer)
        if options.source and "domain" in table and "target" in set(table["domain"]):
            # the checkpoints' loss_before is then that of the target, as on the page
            table = table[table["domain"] == "target"].reset_index(drop=True)
        offers = bayeslaw.candidates(
            table, **levels, along_run=not options.alone, costs=costs_of(options)
        )
        has_stage = "checkpoint_cost" in offers and "ptpp" in offers
        is_there = isinstance(goal, dict) and not options.train_checkpoint
        if has_stage and is_there and {"N", "ptpp"} <= set(goal):
            offers = with_planned_checkpoint(offers, goal["N"], goal["ptpp"])
        filled, notes = fill_losses(offers, table, losses_read, seed=options.seed)
        for line in notes:
            say(line, to_stderr=True)
        return filled
    if options.alone:
        raise LawError(
            "--alone is about made candidates: say which (--offer N=241M,517M ...)"
        )
    return table


def _losses_read(target: Any, source: Any) -> list[str]:
    """List losses before adaptation that fits read, by the table's names."""
    from bayeslaw._posteriors.posterior import columns_read

    sources = source.values() if isinstance(source, dict) else [source]
    columns = set(LOSSES_BEFORE).intersection(columns_read(target))
    if set(LOSSES_BEFORE).intersection(columns_read(*filter(None, sources))):
        columns.add(SOURCE_LOSS_BEFORE)
    return sorted(columns)
