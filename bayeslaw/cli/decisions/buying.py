"""Define ``anchors``: choose runs to buy, at once or in a sequence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw._law.columns import LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw.cli.beside import columns_there, with_file
from bayeslaw.cli.options import (
    Column,
    CostOptions,
    Experience,
    PriorsAlone,
    Reference,
    SavedFitOptions,
)
from bayeslaw.cli.output import check_writable, emit, keep_warning, write_table
from bayeslaw.cli.parsing import (
    assignments,
    costs_of,
    goal_of,
    levels_of,
    load_fit,
    load_sources,
    number,
    prior_of,
    read_table,
    table_of_goal,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class AnchorsOptions(CostOptions, SavedFitOptions):
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
    budget: str | None = option(
        "In the unit of the candidates' costs, by default FLOPs: 2e20; with "
        "--price in money: 5000."
    )
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
        "With --offer: each point is a run of its own, not one along a run.",
        default=False,
    )
    source: list[str] | None = option(
        "For a plan: fit of the source loss; several as NAME=S.nc.", metavar="S.nc"
    )
    gain: str | None = option(
        "What runs add: variance, information, plan, best (which recipe: rows "
        "of the goal), law (which is right), optimum (of the one column in which "
        "the goal's rows differ), or parameters (D-optimal)."
    )
    replicates: int | None = option(
        "How often one run may be bought; default: 4.", min=1
    )
    max_picks: int | None = option("Most runs to buy.", min=1)
    least: float | None = option("Least gain per cost: where to stop.", min=0)
    checks: int | None = option(
        "Outcomes simulated to check the gains; 0: none; default: 48.", min=0
    )
    next_batch: bool = option(
        "Without a fit: the next batch of a sequence, from nothing or from "
        "the runs measured so far.",
        "--next",
        default=False,
    )
    prior_only: PriorsAlone = False
    experience: Experience = None
    measured: list[Path] | None = option(
        "With --next: tables of earlier batches with their losses, none for "
        "a run that failed (repeatable)."
    )
    law: list[str] | None = option(
        "With --next: law to average (repeatable); default: those that suit "
        "the columns. With --prior-only: the law."
    )
    batch: int | None = option("With --next: most runs at once.", min=1)
    enough: str | None = option(
        "With --next: sd of the goal's loss at which to stop: 1%; for --gain "
        "best or law what the choice is expected to lose."
    )
    source_law: list[str] | None = option(
        "With --next and a plan: law of the source to average (repeatable); with "
        "--prior-only: the law of the source."
    )
    reference: Reference = None
    output: Path | None = option("Table of the rows to measure.", "-o", "--output")


@command
def anchors(options: AnchorsOptions) -> None:
    """Choose the runs to buy next: those that improve a forecast, or lower the cost of
    a plan, most for their cost.

    Example: bayeslaw anchors fit.nc --candidates runs.csv --offer N=241M,517M --offer
    ptpp=279 --goal planned.csv --budget 2e20 (or --budget 5000 --hardware 8xH100 --price
    2.5)
    """
    import bayeslaw

    options = with_file(options, options.candidates)
    check_writable(options.output)
    _check_asked(options)
    _check_next(options)
    if options.next_batch:
        _next_batch(options)
        return
    budget, goal = number("--budget", options.budget or ""), _goal(options)
    if options.prior_only:
        table = _candidates(options, LOSSES_BEFORE, goal)
        posterior, source = _priors_of_anchors(options, table, goal)
    else:
        posterior, source = _fits_of_anchors(options)
        table = _candidates(options, _losses_read(posterior, source), goal)
    counts = {"replicates": options.replicates, "checks": options.checks}
    counts_set = {name: count for name, count in counts.items() if count is not None}
    with progress_bar(f"anchors among {len(table)} runs", expected=40):
        picked = bayeslaw.anchors(
            posterior,
            table,
            goal,
            budget,
            source=source,
            gain=options.gain,  # pyright: ignore[reportArgumentType]
            max_picks=options.max_picks,
            least=options.least,
            seed=options.seed,
            costs=costs_of(options),
            **counts_set,  # pyright: ignore[reportArgumentType]
        )
    write_table(picked.runs(table), options.output)
    for line in picked.warnings:
        keep_warning(line)

    def show() -> None:
        if options.prior_only:
            say_block("\n".join(posterior.warnings))
        if picked.picks:
            say_block(picked.table(table).to_string(index=False))
        say_block(picked.sentence())

    more = {"output": options.output, "prior_only": options.prior_only}
    emit(picked.to_dict() | more, options.as_json, show)


def _fits_of_anchors(options: AnchorsOptions) -> tuple[Any, Any]:
    """Load the fit to improve, and for a plan the fits of the sources."""
    assert options.fit_file is not None
    posterior = load_fit(options.fit_file, options.trust_law_file)
    if not options.source:
        return posterior, None
    return posterior, load_sources(options.source, options.trust_law_file)


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
    apart = replace(options, seed=options.seed + 1)  # independent draws for the source
    return posterior, prior_of(
        "--source-law", options.source_law, of_source(runs), apart
    )


def _check_asked(options: AnchorsOptions) -> None:
    """Check that all required values are given, typed or in the file beside the
    candidates.
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


def _goal(options: AnchorsOptions) -> Any:
    """Read the goal: runs to forecast, with the candidates' column names, or the
    question of a plan.
    """
    goal = options.goal or []
    table = table_of_goal(goal)
    columns = None if table is None else columns_there(options.column, table)
    return goal_of(goal, options.goal_where, columns)


def _check_next(options: AnchorsOptions) -> None:
    """Refuse options that do not suit ``--next``, or that only suit it."""
    of_next = {
        "--measured": options.measured,
        "--batch": options.batch,
        "--enough": options.enough,
        "--reference": options.reference,
    }
    of_laws = {"--law": options.law, "--source-law": options.source_law}
    of_a_fit = {
        "FIT.nc": options.fit_file,
        "--source": options.source,
        "--max-picks": options.max_picks,
        "--replicates": options.replicates,
        "--checks": options.checks,
    }
    if options.next_batch and options.prior_only:
        raise LawError("--next begins from priors itself: leave --prior-only out")
    if options.next_batch:
        options_set = [name for name, value in of_a_fit.items() if value is not None]
        if options_set:
            raise LawError(
                f"--next fits what is measured itself: leave {options_set[0]} out, and give "
                "the runs measured so far (--measured runs.csv)"
            )
        return
    options_set = [name for name, value in of_next.items() if value]
    if options_set:
        raise LawError(f"{options_set[0]} belongs to --next")
    of_priors = of_laws | {"--experience": options.experience}
    options_set = [name for name, value in of_priors.items() if value]
    if options_set and not options.prior_only:
        raise LawError(f"{options_set[0]} belongs to --next or --prior-only")
    if options.prior_only and (options.fit_file or options.source):
        raise LawError("with --prior-only there are no fits: leave them out")
    if options.fit_file is None and not options.prior_only:
        raise LawError(
            "give a saved fit (FIT.nc), --next to begin from nothing, or --law NAME "
            "--prior-only for what the first runs are worth"
        )


def _next_batch(options: AnchorsOptions) -> None:
    """Run ``anchors --next``: one batch of a sequence."""
    import bayeslaw

    budget, goal = number("--budget", options.budget or ""), _goal(options)
    measured = _measured(options.measured)
    table = _candidates(options, LOSSES_BEFORE, goal)
    if options.least is not None and not isinstance(goal, dict):
        raise LawError(
            "--least is of a plan: of a forecast, --enough says where to stop"
        )
    with progress_bar(f"anchors among {len(table)} runs, next", expected=60):
        following = bayeslaw.next_runs(
            table,
            goal,
            budget,
            measured=measured,
            laws=options.law,
            source_laws=options.source_law,
            batch=options.batch,
            enough=number("--enough", options.enough or "0"),
            least=1.0 if options.least is None else options.least,
            gain=options.gain,  # pyright: ignore[reportArgumentType]
            reference=assignments(options.reference),
            seed=options.seed,
            costs=costs_of(options),
        )
    write_table(following.runs, options.output)

    def show() -> None:
        if len(following.runs):
            say_block(following.table().to_string(index=False))
        for what, rows in (("failed", following.failed), ("odd", following.odd)):
            if rows:
                say(f"{what}: row {', '.join(map(str, rows))}")
        say_block(following.sentence())

    emit(following.to_dict() | {"output": options.output}, options.as_json, show)


def _measured(paths: list[Path] | None) -> pd.DataFrame | None:
    """Read all batches measured so far; the loss of a failed run is empty."""
    if not paths:
        return None
    import pandas as pd

    from bayeslaw._tables.runs import load_table

    return pd.concat([load_table(path) for path in paths], ignore_index=True)


def _candidates(
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
    """List losses before adaptation that fits read; a source's own is
    ``source_loss_before`` in a table of runs.
    """
    from bayeslaw._posteriors.posterior import columns_read

    sources = source.values() if isinstance(source, dict) else [source]
    columns = set(LOSSES_BEFORE).intersection(columns_read(target))
    if set(LOSSES_BEFORE).intersection(columns_read(*filter(None, sources))):
        columns.add(SOURCE_LOSS_BEFORE)
    return sorted(columns)
