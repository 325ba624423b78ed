"""Define ``update``: fit again with a second batch of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import LawError
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say, say_block
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.options import (
    Column,
    Runs,
    SavedFitOptions,
    Where,
)
from bayeslaw.cli.output import check_writable, emit
from bayeslaw.cli.parsing import goal_at, load_fit, read_question, read_table

if TYPE_CHECKING:
    import pandas as pd

    from bayeslaw._law.law import Law


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(SavedFitOptions):
    """Options of ``update``."""

    fit_file: Path = argument("The fit or average made before.", "OLD.nc")
    runs: Runs
    where: Where = None
    column: Column = None
    source: Path | None = option(
        "Fit of the source loss made before; OLD.nc then fits the target's.",
        metavar="OLD_S.nc",
    )
    question: list[str] | None = option(
        "What to plan for, before and after: --plan N=8.1B --plan "
        "max_forgetting=2% --plan loss_before=2.3 ... (repeatable; needs --source).",
        "--plan",
    )
    at: list[str] | None = option(
        "A run to forecast before and after: --at N=8.1B,D=70B,ptpp=279 "
        "(repeatable); default: the plan's, and the largest in the table."
    )
    allow_missing: bool = option(
        "Go on if most of the old rows are gone.", default=False
    )
    output: Path | None = option("File for the new fit (netCDF).", "-o", "--output")
    source_output: Path | None = option(
        "File for the new fit of the source loss.", metavar="S.nc"
    )
    page: Path | None = option("HTML file of what changed.", metavar="CHANGES.html")
    accept_diagnostics: bool = option(
        "Keep fits whose diagnostics fail.", default=False
    )


@command
def update(options: UpdateOptions) -> None:
    """Fit the same laws to a longer table: were the new runs foreseen, what changed in
    laws, forecasts and the plan, and why.

    Example: bayeslaw update target.nc runs.csv --source source.nc --plan N=8.1B --plan
    ptpp=279 --plan max_target_loss=1.8 --plan max_forgetting=2% --plan
    baseline_loss=1.64 -o target2.nc --page changes.html
    """
    import bayeslaw
    from bayeslaw._report.domains import laws_in

    options = with_file(options, options.runs)
    if options.source is None and options.question:
        raise LawError("--plan needs the source's fit too: give --source OLD_S.nc")
    if options.source is None and options.source_output:
        raise LawError("--source-output is of the source's fit: give --source OLD_S.nc")
    check_writable(options.output, options.source_output, options.page)
    old = load_fit(options.fit_file, options.trust_law_file)
    laws = {"target": laws_in(old)}
    source = None
    if options.source is not None:
        source = load_fit(options.source, options.trust_law_file)
        laws["source"] = laws_in(source)
    table = read_table(options.runs, options.where, options.column)
    with progress_bar(f"refits of {options.runs.name}") as progress:
        updated = bayeslaw.update(
            old,
            table,
            source=source,
            question=_question(options, table, laws),
            at=goal_at(options.at) if options.at else None,
            allow_missing=options.allow_missing,
            seed=options.seed,
            on_failure="warn" if options.accept_diagnostics else "raise",
            progress=progress,
            tell=lambda line: say(line, to_stderr=True),
        )
    written: dict[str, Path] = {}
    if updated.action != "nothing new":  # else neither fits nor a page are written
        # in the order of `update`: target, then source
        names = ("output", "source_output")
        for name, domain in zip(names, updated.domains.values(), strict=False):
            path = getattr(options, name)
            if path is not None:
                written[name] = domain.after.save(path)
        if options.page is not None:
            written["page"] = bayeslaw.update_page(updated, options.page)
    record = updated.to_dict() | written

    def show() -> None:
        say_block(updated.sentence())
        for path in written.values():
            say(f"-> {path}")

    emit(record, options.as_json, show)


def _question(
    options: UpdateOptions,
    table: pd.DataFrame,
    laws: Mapping[str, Sequence[Law]],
) -> dict[str, Any] | None:
    """Read the question of the plan. Losses before adaptation that the fitted laws read
    and that are not given come from the table, or are forecast from its checkpoints, as
    in `report`.
    """
    from bayeslaw._report.planned import completed
    from bayeslaw._report.question import check_question
    from bayeslaw._tables.fitting import by_domain

    if not options.question:
        return None
    keywords = read_question(options.question, "--plan")
    parts = by_domain(table)
    if not {"target", "source"} <= set(parts):
        return keywords
    names = {part: laws.get(part, ()) for part in parts}
    checked = check_question(keywords, parts, names)
    question, notes = completed(checked, parts, options.seed)
    for line in notes:
        say(line, to_stderr=True)
    return question
