"""Define ``report``: the page before the first run, and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import (
    AsJson,
    CostOptions,
    PriorOptions,
    RunsOptions,
    complete_law,
)
from bayeslaw.cli.output import check_writable, emit, expect_output
from bayeslaw.cli.parsing import (
    ask,
    costs_of,
    prior_of,
    read_question,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd


@options_of("report", without="name progress shown")
class ReportOptions(CostOptions, PriorOptions, RunsOptions):
    """Options of ``report``."""

    runs: Path | None = argument(
        "Table of runs; without it, the bundled one.", "[RUNS]", default=None
    )
    output: Path = option(None, "-o", "--output", default=Path("report"))
    law: list[str] | None = option(
        "Law to fit; several: their average; default: the average of those "
        "that suit the columns. With --prior-only the law, or for a plan the "
        "target's and then the source's.",
        autocompletion=complete_law,
    )
    measured: str | None = option(
        "Rows that were trained afterwards, a pandas query: no fit sees them, and the "
        "page compares them with its forecasts and its plan."
    )
    question: list[str] | None = option(
        "What to plan for: --plan N=8.1B --plan max_forgetting=0.05nats --plan "
        "loss_before=2.3 ... (repeatable); of mixtures: --plan N=1B --plan "
        "max_loss=web=2.5,code=1.9 --plan share_code=5%:40%.",
        "--plan",
    )
    unit: str | None = option(
        "Unit of the losses, as the page names it: 'nats per byte'; default: "
        "nats per token."
    )
    accept_diagnostics: bool = option(
        "Report fits whose diagnostics fail.", argument="on_failure"
    )
    as_json: AsJson = False


def _read_tables(
    path: Path, options: ReportOptions
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    table = read_table(path, options.where, options.column)
    measured = None
    if options.measured:
        measured = read_table(path, options.measured, options.column)
        table = table[~table.index.isin(measured.index)]
        table.attrs["measured_as"] = options.measured
    if options.unit:
        table.attrs["loss_unit"] = options.unit
    return table, measured


def _question_of_page(options: ReportOptions) -> dict[str, Any] | None:
    costs = costs_of(options)
    if not options.question:
        if costs is not None:
            raise LawError("costs are those of a plan: say which (--plan N=8.1B ...)")
        return None
    question = read_question(options.question, "--plan")
    return question if costs is None else question | {"costs": costs}


def _report_of_priors(options: ReportOptions) -> None:
    import bayeslaw

    path, laws = options.runs, options.law or []
    table = None if path is None else read_table(path, options.where, options.column)
    question = _question_of_page(options)
    target = prior_of("--law", laws[:1], table, options)
    source = None
    if question is not None:
        source = prior_of("--law of the source", laws[1:2], None, options, True)
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

    emit(page, options.as_json, show)


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
    expect_output(options.output)  # the fits are written beside the page
    if options.measured and (options.prior_only or options.runs is None):
        raise LawError("--measured names rows of a table beside fitted ones: give RUNS")
    if options.prior_only:
        _report_of_priors(options)
        return
    path = options.runs
    table, measured = (None, None) if path is None else _read_tables(path, options)
    words = ["report"]  # the kind of page, which determines how long it takes
    if table is not None:
        words.append(f"on {len(table)} runs")
    if options.law:
        words.append(f"by {', '.join(options.law)}")
    if options.question:
        words.append("with a plan")

    def say_shown(page: Path, coming: Sequence[str]) -> None:
        if coming:
            say(f"-> {page} is there; to come: {', '.join(coming)}", to_stderr=True)

    with progress_bar(" ".join(words), expected=170) as progress:
        page = ask(
            options,
            bayeslaw.report,
            runs=table,
            measured=measured,
            name=None if path is None else path.name,
            question=_question_of_page(options),
            progress=progress,
            shown=say_shown,
        )

    def show() -> None:
        for domain, result in page.checks.items():
            say(f"{domain}: {result.verdict.upper()}: {result.reason}")
            say(f"-> {result.next} (docs/verdicts.md)")
        if page.plan:
            # the checks above are those of the main hold-out
            say(f"Can it be trusted? {page.trust}")
            say_block(page.plan.sentence())
        if page.probability_if_as_checked is not None:
            say(
                "if intervals were as wide as the checks say they should be, this plan "
                f"would keep all promises with {page.probability_if_as_checked:.1%}"
            )
        if page.measured is not None:
            say(page.measured.sentence())
        say(f"-> {page.path} ({page.seconds:.0f} s)")
        say(f"-> {', '.join(map(str, page.saved.values()))}")

    record = {
        "report": page.path,
        "fits": page.saved,
        "seconds": page.seconds,
        "verdicts": {domain: c.verdict for domain, c in page.checks.items()},
        "checks": page.checks,
        "trust": page.trust,
        "plan": page.plan,
        "probability_if_as_checked": page.probability_if_as_checked,
        "measured": page.measured,
    }
    emit(record, options.as_json, show)
