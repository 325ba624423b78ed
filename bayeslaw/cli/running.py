"""Define the commands after a plan: ``follow`` a run while it trains, once or by watching
its file; ``update`` fits with a second batch of runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayeslaw._base.arguments import argument, command, option
from bayeslaw._base.errors import BayeslawError, LawError, PlanError
from bayeslaw._base.limits import LOSS, checked
from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._base.progress.bar import progress_bar
from bayeslaw._base.terminal import say
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw.cli.beside import with_file
from bayeslaw.cli.documented import options_of
from bayeslaw.cli.options import FitFile, Runs, RunsOptions, SavedFitOptions
from bayeslaw.cli.output import (
    INTERRUPTED,
    Resumable,
    check_writable,
    emit_answer,
    say_warnings,
    write_json,
)
from bayeslaw.cli.parsing import (
    ask,
    goal_at,
    load_fit,
    number,
    read_question,
    read_table,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from bayeslaw import Followed, Follower, Following
    from bayeslaw._law.law import Law


@options_of("follow", without="posterior")
class FollowOptions(RunsOptions, SavedFitOptions):
    """Options of ``follow``."""

    fit_file: FitFile
    curve: Path = argument(
        "The run's points so far, in the columns of a table of runs.", "CURVE"
    )
    source: Path | None = option(
        "Fit of the source loss; FIT.nc is then of the target's.", metavar="S.nc"
    )
    max_loss: str | None = option()
    max_forgetting: str | None = option(
        "Promise: rise of the source loss: 2%, or 0.05nats."
    )
    baseline_loss: str | None = option(
        "Source loss before adaptation; else the curve's source_loss_before."
    )
    schedule: list[Path] | None = option()
    warmup: str | None = option()
    within: str = option(default="2%")
    refit: bool = option(
        "Fit the laws again, with the points among the rows, where few draws "
        "explain the run; takes as long as the fit."
    )
    watch: bool = option("Read CURVE again as it grows, until Ctrl-C.")
    every: float = option("With --watch: seconds between looks.", default=5.0, min=0.1)
    page: Path | None = option(
        "HTML file on which a slider moves through the run so far.", metavar="PAGE.html"
    )
    output: Path | None = option(
        "JSON file for what is known so far.", "-o", "--output"
    )


@command
def follow(options: FollowOptions) -> None:
    """Follow a run while it trains: forecast its end from its points so far, and say
    whether to go on.

    Example: bayeslaw follow target.nc run.csv --until 20B --max-loss 1.8 --watch
    """
    options = with_file(options, options.curve)
    check_writable(options.output, options.page)
    if options.watch and options.page is not None:
        raise PlanError("--page is of the points so far: give it without --watch")
    if options.watch and options.as_json:
        raise PlanError("--watch keeps a screen; for JSON give --output FILE with it")
    curve = read_table(options.curve, options.where, options.column)
    follower = _start(options, curve)
    warmup = None
    if options.warmup is not None:
        warmup = number("warmup", options.warmup)
    if options.watch:
        _watch(options, follower, warmup)
        return
    if options.page is None:
        state = follower.read(curve, warmup).following()
    else:
        from bayeslaw._report.pages.following import write_page

        with progress_bar("page") as progress:
            state = write_page(
                follower, curve, options.page, warmup=warmup, progress=progress
            )
    emit_answer(state, options.as_json, path=options.output)


def _start(options: FollowOptions, curve: pd.DataFrame) -> Follower:
    import bayeslaw
    from bayeslaw._running.following.follow import domain_of

    posterior: Any = load_fit(options.fit_file, options.trust_law_file)
    limits: Any = None
    if options.max_loss is not None:
        limits = checked("max_loss", options.max_loss, LOSS)
    if options.source is not None:
        source = load_fit(options.source, options.trust_law_file)
        names = domain_of(posterior), domain_of(source)  # as their tables do
        if names[0] == names[1]:
            names = "target", "source"
        posterior = dict(zip(names, (posterior, source), strict=True))
        limits = {} if limits is None else {names[0]: limits}
        if options.max_forgetting is not None:
            limits[names[1]] = _source_limit(options, curve)
    elif options.max_forgetting is not None:
        raise PlanError("--max-forgetting is of the source loss: give --source S.nc")
    read = {"max_loss": limits, "schedule": _schedules(options.schedule)}
    return ask(options, bayeslaw.Follower.start, posterior, curve, **read)


def _schedules(paths: list[Path] | None) -> dict[str, pd.DataFrame] | None:
    """Read tables by the names of their files, the planned one first."""
    if not paths:
        return None
    names = [path.stem for path in paths]
    again = [name for name in names if names.count(name) > 1]
    if again:
        raise PlanError(f"--schedule: two files are called {again[0]!r}; rename one")
    return {path.stem: read_table(path, None, None) for path in paths}


def _source_limit(options: FollowOptions, curve: pd.DataFrame) -> float:
    from bayeslaw._plans.constraint import UNITS, read_limit

    text = str(options.max_forgetting)
    most, unit = read_limit("max_forgetting", text)
    name, baseline = "baseline_loss", options.baseline_loss
    if baseline is None:
        column = curve.get(SOURCE_LOSS_BEFORE)
        if column is None or column.nunique() != 1:
            raise PlanError(
                "--max-forgetting needs the source loss before adaptation: give "
                "--baseline-loss, or a column source_loss_before"
            )
        name, baseline = SOURCE_LOSS_BEFORE, column.iloc[0]
    return UNITS[unit].most_loss(most, checked(name, baseline, LOSS))


# -- watching ----------------------------------------------------------------------------


def _watch(options: FollowOptions, follower: Follower, warmup: float | None) -> None:
    """Keep one screen up to date until the run ends, or until Ctrl-C: read the file
    again whenever it changes. The output file has the last state.
    """
    from rich.live import Live

    say_warnings()  # the end may be days away
    state = follower.following()
    last_stamp = None
    try:
        with Live(screen(state), refresh_per_second=2) as live:
            while not follower.is_done:
                stamp = _stamp(options.curve)
                if stamp != last_stamp:
                    last_stamp, trouble = stamp, ""
                    try:
                        # the lines that are there whole
                        curve = read_table(
                            options.curve, options.where, options.column, grows=True
                        )
                        follower = follower.read(curve, warmup)
                        state = follower.following()
                        write_json(state, options.output)
                    except (BayeslawError, OSError) as error:
                        trouble = str(error)
                    live.update(screen(state, trouble), refresh=True)
                time.sleep(options.every)
    except KeyboardInterrupt:
        where = (
            f"it is in {options.output}" if options.output else "no --output was given"
        )
        say(f"ended: of what was last known, {where}", to_stderr=True)
        raise Resumable(INTERRUPTED) from None


def _stamp(path: Path) -> tuple[int, int] | None:
    """Stamp a file's state; a tracker's store is new each time."""
    from bayeslaw._tables.sources.files import is_tracker

    if is_tracker(path):
        return time.monotonic_ns(), 0
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


# -- the screen ---------------------------------------------------------------------------


def screen(state: Following, trouble: str = "", width: int = 64) -> RenderableType:
    """Draw the present forecast, and any error from reading the file.

    ``width``: characters of a chart.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    parts: list[RenderableType] = []
    for name, domain in state.domains.items():
        title = f"{name}: {domain.final['median']:.4g} nats at the end"
        chart = Text(_chart(domain, state.until, width))
        parts.append(Panel(chart, title=title, width=width + 12))
    if state.probability == state.probability:
        filled = round(30 * state.probability)
        bar = "█" * filled + "░" * (30 - filled)
        parts.append(Text(f"limits kept {bar} {format_chance(state.probability)}"))
    parts.append(Text(state.sentence()))
    if trouble:
        parts.append(Text(f"not read: {trouble}", style="bold"))
    parts.append(Text("Ctrl-C ends", style="dim"))
    return Group(*parts)


def _chart(domain: Followed, until: float, width: int, height: int = 12) -> str:
    import numpy as np

    path, history = domain.path, domain.history
    tokens = path[domain.unit].to_numpy(float)
    first = min([*history["at"], tokens.min()])
    limits = [] if domain.max_loss is None else [domain.max_loss]
    losses = [*history["loss"], *path["low"], *path["high"], *limits]
    low, high = min(losses), max(losses)
    spread = (high - low) or 1.0
    decades = (np.log(until) - np.log(first)) or 1.0

    def line(loss: float) -> int:
        share = min(max((high - loss) / spread, 0.0), 1.0)
        return round((height - 1) * share)

    grid = np.full((height, width), " ")
    for loss in limits:
        grid[line(loss), :] = "─"
    for column, at in enumerate(np.geomspace(first, until, width)):
        if at < tokens[0]:
            continue
        for edge, mark in (("before_", "·"), ("", "▒")):
            bottom = np.interp(at, tokens, path[f"{edge}low"])
            top = np.interp(at, tokens, path[f"{edge}high"])
            grid[line(top) : line(bottom) + 1, column] = mark
    for at, loss in zip(history["at"], history["loss"], strict=True):
        share = (np.log(at) - np.log(first)) / decades
        grid[line(loss), round((width - 1) * share)] = "●"
    labels = [f"{high:7.4g}", *[" " * 7] * (height - 2), f"{low:7.4g}"]
    text = [f"{a} {''.join(row)}" for a, row in zip(labels, grid, strict=True)]
    ends = format_count(first).ljust(width - 6) + format_count(until).rjust(6)
    return "\n".join([*text, " " * 8 + ends])


# -- update ----------------------------------------------------------------------------


@options_of("update", without="old table progress tell")
class UpdateOptions(RunsOptions, SavedFitOptions):
    """Options of ``update``."""

    fit_file: Path = argument("The fit or average made before.", "OLD.nc")
    runs: Runs
    source: Path | None = option(metavar="OLD_S.nc")
    question: list[str] | None = option(
        "What to plan for, before and after: --plan N=8.1B --plan "
        "max_forgetting=2% --plan loss_before=2.3 ... (repeatable; needs --source).",
        "--plan",
    )
    at: list[str] | None = option()
    output: Path | None = option("File for the new fit (netCDF).", "-o", "--output")
    source_output: Path | None = option(
        "File for the new fit of the source loss.", metavar="S.nc"
    )
    page: Path | None = option("HTML file of what changed.", metavar="CHANGES.html")
    accept_diagnostics: bool = option(
        "Keep fits whose diagnostics fail.", argument="on_failure"
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

    options = with_file(options, options.runs)
    if options.source is None and options.question:
        raise LawError("--plan needs the source's fit too: give --source OLD_S.nc")
    if options.source is None and options.source_output:
        raise LawError("--source-output is of the source's fit: give --source OLD_S.nc")
    check_writable(options.output, options.source_output, options.page)
    old = load_fit(options.fit_file, options.trust_law_file)
    source = options.source and load_fit(options.source, options.trust_law_file)
    posteriors = [*filter(None, (old, source))]
    laws = {
        name: [member.law for member in posterior.members]
        for name, posterior in zip(("target", "source"), posteriors, strict=False)
    }
    table = read_table(options.runs, options.where, options.column)
    with progress_bar(f"refits of {options.runs.name}") as progress:
        updated = ask(
            options,
            bayeslaw.update,
            old,
            table,
            source=source,
            question=_question(options, table, laws),
            at=goal_at(options.at, *posteriors) if options.at else None,
            progress=progress,
            tell=lambda line: say(line, to_stderr=True),
        )
    written: dict[str, Any] = {}
    if updated.action != "nothing new":  # else neither fits nor a page are written
        # in the order of `update`: target, then source
        names = ("output", "source_output")
        for name, domain in zip(names, updated.domains.values(), strict=False):
            path = getattr(options, name)
            if path is not None:
                written[name] = domain.after.save(path)
        if options.page is not None:
            written["page"] = bayeslaw.update_page(updated, options.page)
    paths = [f"-> {path}" for path in written.values()]
    emit_answer(updated, options.as_json, after=paths, **written)


def _question(
    options: UpdateOptions,
    table: pd.DataFrame,
    laws: Mapping[str, Sequence[Law]],
) -> dict[str, Any] | None:
    """Read the question of the plan. Losses before adaptation that the fitted laws read
    and that are not given come from the table, or are forecast from its checkpoints, as
    in `report`.
    """
    from bayeslaw._plans.arguments import PlanArguments, with_losses
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
    question = {"seed": options.seed, **checked.keywords}
    arguments, notes = with_losses(
        PlanArguments(*checked.unfitted, **question), of_diverging=True
    )
    say(*checked.told, *notes, to_stderr=True)
    return question | {"covariates": arguments.covariates}
