"""What to do: ``plan``, ``anchors``, ``report``."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayeslaw._base.errors import LawError
from bayeslaw._base.files import atomic_write
from bayeslaw._base.limits import KINDS
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw._law.columns import LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw.cli.beside import columns_there, with_file
from bayeslaw.cli.options import (
    AccuracyOptions,
    AsJson,
    Before,
    Column,
    CostOptions,
    Experience,
    PriorsAlone,
    Reference,
    SavedFitOptions,
    Seed,
    Where,
    command,
    complete_law,
)
from bayeslaw.cli.output import check_writable, emit, finite, keep_warning, write_table
from bayeslaw.cli.parsing import (
    assignments,
    bytes_per_token,
    costs_of,
    goal_of,
    levels_of,
    limit,
    limits_by_name,
    link_of,
    load_befores,
    load_fit,
    load_sources,
    loss_limit,
    number,
    prior_of,
    question_of,
    question_value,
    read_table,
    table_of_goal,
    values_by_name,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class PlanOptions(AccuracyOptions, CostOptions, SavedFitOptions):
    """Options of ``plan``."""

    target: Annotated[
        list[str] | None,
        typer.Option(
            help="Fit of the target loss; several as NAME=T.nc (repeatable).",
            metavar="T.nc",
        ),
    ] = None
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="Fit of the source loss; several as NAME=S.nc (repeatable).",
            metavar="S.nc",
        ),
    ] = None
    prior_only: PriorsAlone = False
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="With --prior-only: law of the target loss.",
            autocompletion=complete_law,
        ),
    ] = None
    source_law: Annotated[
        list[str] | None,
        typer.Option(
            help="With --prior-only: law of the source loss.",
            autocompletion=complete_law,
        ),
    ] = None
    experience: Experience = None
    N: Annotated[
        list[str],
        typer.Option(
            "--N", help="Model parameters: 8.1B (repeatable: the cheapest model wins)."
        ),
    ]
    ptpp: Annotated[
        list[str],
        typer.Option(
            help="Pre-training tokens per parameter (one, or one for each --N)."
        ),
    ]
    max_target_loss: Annotated[
        str | None,
        typer.Option(
            help="Target loss to reach: nats per token; 0.9bpb (with --bytes-per-token); "
            "6.5ppl; with a sign over the checkpoint's: -10%, -0.2nats; of several "
            "targets fi=1.8,sv=-5%. Not needed with --min-accuracy."
        ),
    ] = None
    min_accuracy: Annotated[
        str | None,
        typer.Option(
            help="Least accuracy of an evaluation, by the chain of --accuracy: 60%."
        ),
    ] = None
    max_forgetting: Annotated[
        str | None,
        typer.Option(
            help="Rise of the source loss: 2%, 0.05nats, 0.03bpb, 3%ppl; or by source, "
            "code=2%,en=1%. Not needed with --max-mean-loss or --max-loss."
        ),
    ] = None
    max_loss: Annotated[
        list[str] | None,
        typer.Option(
            help="Loss of a domain named by --source, in place of its forgetting: "
            "--source code=c.nc --max-loss code=1.2 (repeatable)."
        ),
    ] = None
    max_mean_loss: Annotated[
        str | None,
        typer.Option(
            help="Limit on the mean of all sources: +0.03bpb or +2% of their rises, 2.9 "
            "of their losses."
        ),
    ] = None
    mean_weights: Annotated[
        str | None,
        typer.Option(
            help="Weights of that mean, by domain: web=2,code=1; default: all sources "
            "alike."
        ),
    ] = None
    excess_price: Annotated[
        str | None,
        typer.Option(
            help="Soft limits: price of a nat over each, in money (with --price) or "
            "FLOPs: forgetting=50000; the least expected cost is then sought."
        ),
    ] = None
    bytes_per_token: Annotated[
        list[str] | None,
        typer.Option(
            help="Bytes of a token, for limits in bits per byte: 4.2, or target=4.2 and "
            "code=3.1 (repeatable)."
        ),
    ] = None
    confidence: Annotated[
        str,
        typer.Option(
            help="Probability of keeping all promises together; or of each, "
            "target=0.9,forgetting=0.95 (several sources: their names)."
        ),
    ] = "0.9"
    baseline_loss: Annotated[
        str | None,
        typer.Option(
            help="Measured source loss before adaptation; or by source, web=1.64,code=0.92."
        ),
    ] = None
    baseline_tokens: Annotated[
        str | None,
        typer.Option(help="Else the source law at this budget of pure replay: 1B."),
    ] = None
    baseline_run: Annotated[
        str | None,
        typer.Option(
            help="Limits on a rise compare with another run of this model, by the same "
            "laws: D=10B,replay=30%."
        ),
    ] = None
    correlation: Annotated[
        str | None,
        typer.Option(
            help="Correlation of the errors of target and source; default: that of their "
            "residuals at common rows; 0: independent."
        ),
    ] = None
    before: Before = None
    covariate: Annotated[
        list[str] | None,
        typer.Option(
            help="Another column the laws read: "
            "--covariate loss_before=2.3 (repeatable)."
        ),
    ] = None
    max_flops: Annotated[
        str | None, typer.Option(help="Budget: then the most probable plan within it.")
    ] = None
    max_tokens: Annotated[
        str | None, typer.Option(help="Budget of adaptation tokens, likewise.")
    ] = None
    max_cost: Annotated[
        str | None,
        typer.Option(help="Money that the plan may cost at most (with --price)."),
    ] = None
    max_days: Annotated[
        str | None,
        typer.Option(help="Days that it may take at most (with --hardware)."),
    ] = None
    unique_target_tokens: Annotated[
        str | None, typer.Option(help="Target tokens there are.")
    ] = None
    max_epochs: Annotated[
        str | None,
        typer.Option(
            help="How often each of them may be seen; default: once, or with a law of "
            "repetition as often as the fitted runs saw theirs."
        ),
    ] = None
    min_replay: Annotated[
        str | None,
        typer.Option(help="Least replay; default: the least fitted; 0: any."),
    ] = None
    max_replay: Annotated[
        str | None,
        typer.Option(
            help="Largest replay; default: the largest fitted, beyond which nothing was "
            "checked; 100%: any."
        ),
    ] = None
    law_mean: Annotated[
        bool,
        typer.Option(
            "--law-mean",
            help="Promises about the law's mean, not the run that will be made.",
        ),
    ] = False
    influence: Annotated[
        bool,
        typer.Option(
            "--influence",
            help="Which measured run and which prior carry the plan: what it would be "
            "without them. Of fits of one law.",
        ),
    ] = False
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="JSON file for the plan.")
    ] = None


@command
def plan(options: PlanOptions) -> None:
    """The cheapest adaptation that keeps its promises with a stated probability, or why
    there is none.

    Example: bayeslaw plan --target t.nc --source s.nc --N 8.1B --ptpp 279
    --max-target-loss 1.8 --max-forgetting 2% --baseline-loss 1.9 --hardware 64xH100
    --mfu 0.4 --price 2.5 --max-days 3
    """
    import bayeslaw

    options = with_file(options, first_file(options.target))
    if options.output is not None:
        check_writable(options.output)
    target, source, question = posteriors_and_question(options)
    with progress_bar("plan", expected=30):
        answer = bayeslaw.plan(target, source, **question)
    if options.output is not None:
        # a `Plan`, as `anchors --goal` and `update` read it, and nothing beside
        with atomic_write(options.output) as part:
            part.write_text(json.dumps(finite(answer.to_dict()), indent=1) + "\n")
    record = answer.to_dict()
    lines = [answer.sentence()]
    if options.prior_only:
        record["prior_only"] = True
        lines = [*target.warnings, *lines]
    if options.influence:
        with progress_bar("runs that carry the plan", expected=30):
            carried = bayeslaw.influence(answer, target, source, **question)
        record["influence"] = carried.to_dict()
        lines.append(carried.sentence())
    for line in answer.warnings:
        keep_warning(line)
    emit(record, options.as_json, lambda: say_block("\n".join(lines)))


def posteriors_and_question(options: PlanOptions) -> tuple[Any, Any, dict[str, Any]]:
    """Load the fits, and collect the keyword arguments of `bayeslaw.plan`."""
    question = _question(options)
    target, source = _target_and_source(options)
    posteriors = [*_each(target), *_each(source)]
    covariates = _covariates(options, posteriors, question["N"], question["ptpp"])
    return target, source, question | {"covariates": covariates}


def _target_and_source(options: PlanOptions) -> tuple[Any, Any]:
    """The fits to plan with, or what the priors of two laws say."""
    if options.prior_only:
        if options.target or options.source:
            raise LawError("with --prior-only there are no fits: leave --target out")
        apart = replace(options, seed=options.seed + 1)  # drawn on its own
        return (
            prior_of("--law", options.law, None, options),
            prior_of("--source-law", options.source_law, None, apart),
        )
    if not options.target or not options.source:
        raise LawError(
            "give --target T.nc and --source S.nc; before the first run --prior-only "
            "--law state-target --source-law state-source"
        )
    trusted = options.trust_law_file
    return load_sources(options.target, trusted), load_sources(options.source, trusted)


def first_file(targets: list[str] | None) -> Path | None:
    """Find the file of the first target, named or not; None without one."""
    if not targets:
        return None
    first = targets[0]
    return Path(first if Path(first).exists() else first.rpartition("=")[2])


def _each(posteriors: Any) -> list[Any]:
    return list(posteriors.values()) if isinstance(posteriors, dict) else [posteriors]


def _question(options: PlanOptions) -> dict[str, Any]:
    """Collect what `bayeslaw.plan` is asked, but for the columns that the laws read."""
    names = [name for name in KINDS if name not in ("N", "ptpp", *LOSSES_BEFORE)]
    of_lists = ("max_loss", "bytes_per_token")
    names += ["max_forgetting", "mean_weights", "baseline_run", "correlation"]
    names += ["min_accuracy", "excess_price"]
    texts = {n: getattr(options, n) for n in names if n not in of_lists}
    return {
        "N": [limit("--N", text) for text in options.N],
        "ptpp": [limit("--ptpp", text) for text in options.ptpp],
        "max_loss": {
            name: loss_limit(f"--max-loss {name}", text)
            for name, text in values_by_name(options.max_loss, "--max-loss").items()
        },
        "bytes_per_token": bytes_per_token(
            "--bytes-per-token", options.bytes_per_token
        ),
        **{
            name: question_value(f"--{name.replace('_', '-')}", text)
            for name, text in texts.items()
            if text is not None
        },
        "accuracy": link_of(options, options.seed),
        "new_run": not options.law_mean,
        "seed": options.seed,
        "costs": costs_of(options),
    }


def _covariates(
    options: PlanOptions, posteriors: list, sizes: list[float], ptpp: list[float]
) -> dict[str, Any]:
    """Collect columns that the laws read beside N, D, replay and ptpp."""
    from bayeslaw._posteriors.chain import losses_before

    befores = load_befores(options.before, posteriors, options.trust_law_file)
    losses = losses_before(befores, sizes, ptpp, seed=options.seed)
    return losses | limits_by_name("--covariate", options.covariate)


@dataclass(frozen=True, kw_only=True)
class AnchorsOptions(CostOptions, SavedFitOptions):
    """Options of ``anchors``."""

    fit_file: Annotated[
        Path | None,
        typer.Argument(
            help="A saved fit; none with --next or --prior-only.",
            metavar="[FIT.nc]",
            show_default=False,
        ),
    ] = None
    candidates: Annotated[
        Path,
        typer.Option(help="Table of runs on offer; with --offer, of runs that exist."),
    ]
    goal: Annotated[
        list[str] | None,
        typer.Option(
            help="Table of runs to forecast; or the plan: "
            "--goal N=8.1B --goal max_forgetting=2% ... (repeatable)."
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            help="In the unit of the candidates' costs, by default FLOPs: 2e20; with "
            "--price in money: 5000."
        ),
    ] = None
    where: Annotated[
        str | None, typer.Option(help="Candidates to use, a pandas query.")
    ] = None
    goal_where: Annotated[
        str | None, typer.Option(help="Rows of the goal's table, a pandas query.")
    ] = None
    column: Column = None
    offer: Annotated[
        list[str] | None,
        typer.Option(
            help="Make the candidates: all runs at these levels, from checkpoints in "
            "the table and, for their pre-training, from new ones: --offer "
            "N=241M,517M --offer ptpp=279 --offer atpp=1,5,20 (repeatable)."
        ),
    ] = None
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="With --offer: each point is a run of its own, not one along a run.",
        ),
    ] = False
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="For a plan: fit of the source loss; several as NAME=S.nc.",
            metavar="S.nc",
        ),
    ] = None
    gain: Annotated[
        str | None,
        typer.Option(
            help="What runs add: variance, information, plan, best (which recipe: rows "
            "of the goal), law (which is right), optimum (of the one column in which "
            "the goal's rows differ), or parameters (D-optimal)."
        ),
    ] = None
    replicates: Annotated[
        int | None,
        typer.Option(help="How often one run may be bought; default: 4.", min=1),
    ] = None
    max_picks: Annotated[int | None, typer.Option(help="Most runs to buy.", min=1)] = (
        None
    )
    least: Annotated[
        float | None, typer.Option(help="Least gain per cost: where to stop.", min=0)
    ] = None
    checks: Annotated[
        int | None,
        typer.Option(
            help="Outcomes simulated to check the gains; 0: none; default: 48.", min=0
        ),
    ] = None
    next_batch: Annotated[
        bool,
        typer.Option(
            "--next",
            help="Without a fit: the next batch of a sequence, from nothing or from "
            "the runs measured so far.",
        ),
    ] = False
    prior_only: PriorsAlone = False
    experience: Experience = None
    measured: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --next: tables of earlier batches with their losses, none for "
            "a run that failed (repeatable)."
        ),
    ] = None
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="With --next: law to average (repeatable); default: those that suit "
            "the columns. With --prior-only: the law."
        ),
    ] = None
    batch: Annotated[
        int | None, typer.Option(help="With --next: most runs at once.", min=1)
    ] = None
    enough: Annotated[
        str | None,
        typer.Option(
            help="With --next: sd of the goal's loss at which to stop: 1%; for --gain "
            "best or law what the choice is expected to lose."
        ),
    ] = None
    source_law: Annotated[
        list[str] | None,
        typer.Option(
            help="With --next and a plan: law of the source to average (repeatable); with "
            "--prior-only: the law of the source."
        ),
    ] = None
    reference: Reference = None
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Table of the rows to measure."),
    ] = None


@command
def anchors(options: AnchorsOptions) -> None:
    """Which runs to buy next, in order: by what each adds to a forecast, or saves a
    plan, for what it costs.

    Example: bayeslaw anchors fit.nc --candidates runs.csv --offer N=241M,517M --offer
    ptpp=279 --goal planned.csv --budget 2e20 (or --budget 5000 --hardware 8xH100 --price
    2.5)
    """
    import bayeslaw

    options = with_file(options, options.candidates)
    if options.output is not None:
        check_writable(options.output)
    _check_asked(options)
    _check_next(options)
    if options.next_batch:
        _next_batch(options)
        return
    budget, goal = number("--budget", options.budget or ""), _goal(options)
    if options.prior_only:
        table = _candidates(options, LOSSES_BEFORE)
        posterior, source = _priors_of_anchors(options, table, goal)
    else:
        posterior, source = _fits_of_anchors(options)
        table = _candidates(options, _losses_read(posterior, source))
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
    if options.output is not None:
        write_table(picked.runs(table), options.output)
    for line in picked.warnings:
        keep_warning(line)

    def show() -> None:
        if options.prior_only:
            say_block("\n".join(posterior.warnings))
        if picked.picks:
            say_block(picked.table(table).to_string(index=False))
        say_block(picked.sentence())

    written = None if options.output is None else str(options.output)
    more = {"output": written, "prior_only": options.prior_only}
    emit(picked.to_dict() | more, options.as_json, show)


def _fits_of_anchors(options: AnchorsOptions) -> tuple[Any, Any]:
    """The fit to improve, and of a plan those of the sources."""
    assert options.fit_file is not None
    posterior = load_fit(options.fit_file, options.trust_law_file)
    if not options.source:
        return posterior, None
    return posterior, load_sources(options.source, options.trust_law_file)


def _priors_of_anchors(
    options: AnchorsOptions, table: pd.DataFrame, goal: Any
) -> tuple[Any, Any]:
    """What the priors say of runs on offer and of the goal, in place of fits."""
    import pandas as pd

    from bayeslaw._tables.before import of_source

    is_plan = isinstance(goal, dict)
    runs = table if is_plan else pd.concat([table, goal], ignore_index=True)
    posterior = prior_of("--law", options.law, runs, options)
    if not options.source_law:
        return posterior, None
    apart = replace(options, seed=options.seed + 1)  # drawn on its own
    return posterior, prior_of(
        "--source-law", options.source_law, of_source(runs), apart
    )


def _check_asked(options: AnchorsOptions) -> None:
    """Check what has to be said, typed or in the file beside the candidates."""
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
    """Read runs to forecast, in the names of the candidates' table, or what to plan
    for.
    """
    goal = options.goal or []
    table = table_of_goal(goal)
    columns = None if table is None else columns_there(options.column, table)
    return goal_of(goal, options.goal_where, columns)


def _check_next(options: AnchorsOptions) -> None:
    """Refuse options that are of the other kind of question."""
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
    table = _candidates(options, LOSSES_BEFORE)
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
    if options.output is not None:
        write_table(following.runs, options.output)

    def show() -> None:
        if len(following.runs):
            say_block(following.table().to_string(index=False))
        for what, rows in (("failed", following.failed), ("odd", following.odd)):
            if rows:
                say(f"{what}: row {', '.join(map(str, rows))}")
        say_block(following.sentence())

    written = None if options.output is None else str(options.output)
    emit(following.to_dict() | {"output": written}, options.as_json, show)


def _measured(paths: list[Path] | None) -> pd.DataFrame | None:
    """Read all batches measured so far, a loss empty where a run failed."""
    if not paths:
        return None
    import pandas as pd

    from bayeslaw._tables.runs import load_table

    return pd.concat([load_table(path) for path in paths], ignore_index=True)


def _candidates(options: AnchorsOptions, losses_read: Collection[str]) -> Any:
    """Read the runs on offer: those of the table, or those made from its checkpoints.

    Parameters
    ----------
    losses_read
        Losses before adaptation that laws read: of checkpoints that do not exist yet
        they are forecast, as `report` does.
    """
    import bayeslaw
    from bayeslaw._posteriors.averaging.checkpoint import fill_losses

    table = read_table(options.candidates, options.where, options.column)
    if options.offer:
        levels = levels_of(options.offer)
        offers = bayeslaw.candidates(
            table, **levels, along_run=not options.alone, costs=costs_of(options)
        )
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
    sources = source.values() if isinstance(source, dict) else [source]
    columns = _columns_read(target)
    if any(fit is not None and _columns_read(fit) for fit in sources):
        columns.add(SOURCE_LOSS_BEFORE)
    return sorted(columns)


def _columns_read(fit: Any) -> set[str]:
    covariates = {column for piece in fit.pieces() for column in piece.covariates}
    return covariates & set(LOSSES_BEFORE)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CostOptions):
    """Options of ``report``."""

    runs: Annotated[
        Path | None,
        typer.Argument(
            help="Table of runs; without it, the bundled one.", metavar="[RUNS]"
        ),
    ] = None
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the page.")
    ] = Path("report")
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Law to fit; several: their average; default: the average of those "
            "that suit the columns. With --prior-only the law, or for a plan the "
            "target's and then the source's.",
            autocompletion=complete_law,
        ),
    ] = None
    prior_only: PriorsAlone = False
    experience: Experience = None
    hold_out: Annotated[
        str | None,
        typer.Option(
            help="Column whose largest level is held out of the check (N*ptpp: tokens of "
            "pre-training); default: that along which the plan lies farthest beyond the "
            "table."
        ),
    ] = None
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Leave out what the answer does not need: further hold-outs, and runs "
            "to buy.",
        ),
    ] = False
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--plan",
            help="What to plan for: --plan N=8.1B --plan max_forgetting=0.05nats --plan "
            "loss_before=2.3 ... (repeatable).",
        ),
    ] = None
    unit: Annotated[
        str | None,
        typer.Option(
            help="Unit of the losses, as the page names it: 'nats per byte'; default: "
            "nats per token."
        ),
    ] = None
    where: Where = None
    column: Column = None
    reference: Reference = None
    seed: Seed = 0
    accept_diagnostics: Annotated[
        bool,
        typer.Option(
            "--accept-diagnostics", help="Report fits whose diagnostics fail."
        ),
    ] = False
    as_json: AsJson = False


def _reading(options: ReportOptions) -> list[str]:
    """Write the options that read the table, as words of a command."""
    words = ["--where", options.where] if options.where else []
    for column in options.column or []:
        words += ["--column", column]
    return words


def _name_of(options: ReportOptions, table: pd.DataFrame | None) -> str:
    """Name what the page is made of, as far as that tells how long it takes."""
    words = ["report"]
    if table is not None:
        words.append(f"on {len(table)} runs")
    if options.law:
        words.append(f"by {', '.join(options.law)}")
    if options.question:
        words.append("with a plan")
    return " ".join(words)


def _question_of_page(options: ReportOptions) -> dict[str, Any] | None:
    """What the page plans for, and what that costs."""
    costs = costs_of(options)
    if not options.question:
        if costs is not None:
            raise LawError("costs are those of a plan: say which (--plan N=8.1B ...)")
        return None
    question = question_of(options.question, "--plan")
    return question if costs is None else question | {"costs": costs}


def _say_shown(path: Path, coming: Sequence[str]) -> None:
    """Say that the page is there before all of it is."""
    if coming:
        say(f"-> {path} is there; to come: {', '.join(coming)}", to_stderr=True)


def _report_of_priors(options: ReportOptions) -> None:
    """Write the page before the first run: a forecast, or a plan."""
    import bayeslaw

    path, laws = options.runs, options.law or []
    table = None if path is None else read_table(path, options.where, options.column)
    question = _question_of_page(options)
    target = prior_of("--law", laws[:1], table, options)
    source = None
    if question is not None:
        apart = replace(options, seed=options.seed + 1)  # drawn on its own
        source = prior_of("--law of the source", laws[1:2], None, apart)
    with progress_bar("what priors say", expected=30):
        page = bayeslaw.prior_page(
            target,
            table,
            options.output / "report.html",
            source=source,
            question=question,
        )

    def show() -> None:
        say_block("\n".join(page.warnings))
        if page.plan is not None:
            say_block(page.plan.sentence())
        say_block(page.first.sentence())
        say(f"-> {page.path}")

    emit(page.to_dict(), options.as_json, show)


@command
def report(options: ReportOptions) -> None:
    """Fit, forecast the held-out stage, check it, plan, and show it all on one page
    that works offline.

    Example: bayeslaw report runs.csv -o report --plan N=8.1B --plan ptpp=279 --plan
    max_target_loss=1.8 --plan max_forgetting=2% --plan baseline_loss=1.64 (before the
    first run: bayeslaw report planned.csv --law chinchilla --prior-only)
    """
    import bayeslaw

    options = with_file(options, options.runs)
    check_writable(options.output / "report.html")
    if options.prior_only:
        _report_of_priors(options)
        return
    if options.experience:
        raise LawError("--experience belongs to --prior-only: fits choose theirs")
    path = options.runs
    table = None if path is None else read_table(path, options.where, options.column)
    if table is not None:
        table.attrs["read_with"] = _reading(options)
    if table is not None and options.unit:
        table.attrs["loss_unit"] = options.unit
    with progress_bar(_name_of(options, table), expected=170) as progress:
        page = bayeslaw.report(
            table,
            options.output,
            law=options.law,
            reference=assignments(options.reference) or None,
            hold_out=options.hold_out,
            quick=options.quick,
            seed=options.seed,
            progress=progress,
            shown=_say_shown,
            on_failure="warn" if options.accept_diagnostics else "raise",
            name=None if path is None else path.name,
            question=_question_of_page(options),
        )

    def show() -> None:
        for domain, result in page.checks.items():
            say(f"{domain}: {result.verdict.upper()}: {result.reason}")
            say(f"-> {result.next} (docs/verdicts.md)")
        if page.plan:
            say_block(page.plan.sentence())
        if page.probability_if_as_checked is not None:
            say(
                "if intervals were as wide as the checks say they should be, this plan "
                f"would keep all promises with {page.probability_if_as_checked:.1%}"
            )
        say(f"-> {page.path} ({page.seconds:.0f} s)")
        say(f"-> {', '.join(map(str, page.saved.values()))}")

    record = {
        "report": str(page.path),
        "fits": {domain: str(path) for domain, path in page.saved.items()},
        "seconds": page.seconds,
        "checks": {domain: c.to_dict() for domain, c in page.checks.items()},
        "plan": page.plan.to_dict() if page.plan else None,
        "probability_if_as_checked": page.probability_if_as_checked,
    }
    emit(record, options.as_json, show)
