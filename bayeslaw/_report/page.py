"""Make one HTML page from a table of runs: fit, forecast, check, plan and draw."""

from __future__ import annotations

import datetime
import hashlib
import json
import shlex
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayeslaw import datasets
from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import (
    BayeslawError,
    DiagnosticsError,
    LawError,
    PlanError,
    warn,
)
from bayeslaw._base.files import file_names
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._base.progress.time_left import Progress, Stages
from bayeslaw._costs.costs import COST_LIMITS, Costs, Shape
from bayeslaw._forecasts.check import Check, check
from bayeslaw._law.law import covariates_read
from bayeslaw._plans.mixing.mixture import MixturePlan
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.averaging.record import Average
from bayeslaw._posteriors.fits.artifact import versions
from bayeslaw._posteriors.fits.record import Fit
from bayeslaw._report import figures, summary
from bayeslaw._report.buying import why_not_offered
from bayeslaw._report.domains import (
    LOSS_UNIT,
    DomainResult,
    PageSetting,
    Tested,
    fit_laws,
    judge,
)
from bayeslaw._report.measured import Measured, check_measured, compare_measured
from bayeslaw._report.pages.single import write_template
from bayeslaw._report.planned import (
    CHECKS,
    PLANNING,
    TO_BUY,
    Contents,
    beyond_left_out,
    make_mixture_plan,
    make_plan,
    reason_of,
    with_sliders,
)
from bayeslaw._report.question import check_question, laws_of
from bayeslaw._tables import fitting
from bayeslaw._tables.holdouts import MOST, HoldOut, hold_outs, untested
from bayeslaw._tables.rows.settings import alike_but_settings, tell_read
from bayeslaw._tables.runs import as_runs

PAGE = "report.html"
# measured seconds of a domain's fit, its pictures and the page (microcpt, two cores)
FIT, DRAWN, WRITTEN = 20.0, 8.0, 3.0
FINAL = (
    "final"  # the fit of all runs, in addition to fits without an axis's largest levels
)

# limits that follow from tokens and shares alone, so that a plan keeps them for sure
KEPT_FOR_SURE = (
    *COST_LIMITS,
    *("max_flops", "max_tokens", "max_epochs", *SUPPLIES),
    *("min_replay", "max_replay"),
)

LawNames = str | Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Report:
    """The page's path, its duration, and its content.

    Parameters
    ----------
    checks
        Check of each domain's forecast of held-out runs, by a fit that has not seen
        them.
    fits
        Fit of each domain, to all runs if there is a plan; else the fit that was
        checked.
    saved
        File of each domain's fit beside the page, for further questions or for `update`
        with more runs.
    plan
        The plan, made with ``fits``.
    probability_if_as_checked
        Probability that the plan keeps its promises with intervals as wide as the
        checks say; None if they pass, or without a plan.
    trust
        Whether to trust the forecasts, by all hold-outs of all domains, in a sentence.
    measured
        What runs that were trained afterwards say; None if none were given.
    """

    path: Path
    seconds: float
    checks: Mapping[str, Check]
    fits: Mapping[str, Fit | Average]
    saved: Mapping[str, Path]
    plan: Plan | MixturePlan | None
    probability_if_as_checked: float | None = None
    trust: str = ""
    measured: Measured | None = None


@dataclass(frozen=True, eq=False)
class ReportArguments:
    # documented in `report`

    runs: Table | None = None
    output: str | Path = "report"
    _: KW_ONLY
    law: LawNames | None = None
    reference: Mapping[str, float] | None = None
    experience: str | None = None
    hold_out: str | None = None
    measured: Table | None = None
    quick: bool = False
    seed: int = 0
    name: str | None = None
    question: Mapping[str, Any] | None = None
    progress: Progress | None = None
    shown: Callable[[Path, Sequence[str]], None] | None = None
    on_failure: str = "raise"


@takes(ReportArguments)
def report(arguments: ReportArguments) -> Report:
    """Write the page, and save its fits in the same folder.

    Parameters
    ----------
    runs
        A table as `read_runs` returns it; None for the bundled one. Rows of each
        ``domain`` are fitted apart. Losses are in nats per token, unless the table's
        ``attrs["loss_unit"]`` says otherwise ("nats per byte"). ``attrs["read_with"]``:
        options of the command that reads the table, to be repeated;
        ``attrs["measured_as"]``: its query of ``measured``.
    output
        Folder for ``report.html`` and a file of each domain's fit.
    law
        Name of a law; or several names, which are averaged; or names by domain. By
        default the average of the laws that suit the columns (for the bundled table: of
        some of them, to save time).
    reference, experience
        As for `fit`; columns of the reference run are for the laws that read them.
    hold_out
        Column whose largest level is held out of a fit and forecast (``N*ptpp``: tokens
        of pre-training); by default that along which the plan lies farthest beyond the
        table. With a plan, two more are held out in turn and checked.
    measured
        Runs that were trained after the others, as `read_runs` returns them. No fit sees
        them: the page compares them with its forecasts, and its plan with the losses
        between them.
    quick
        Leave out the parts that the answer does not need: the other hold-outs, and the
        runs to buy.
    question
        The question of a plan. For a table of mixtures (columns ``share_NAME``):
        keyword arguments of `plan_mixture`. For a table with the domains ``target`` and
        ``source``: those of `plan`, and other columns of the table, such as
        ``loss_before``, which become its ``covariates``. The checkpoint's losses before
        adaptation need not be given if the table has them, or has other checkpoints
        from which to forecast them. The bundled table has a default question. The plan
        uses fits of all runs.
    progress
        Called with the work done and the total for the whole page (`progress_bar` shows
        it).
    shown
        Called each time that the page is written, with its path and the parts that are
        still missing. With a plan the page first has the answer; it is replaced as the
        rest is made.

    Raises
    ------
    RunTableError, LawError, DiagnosticsError
        As `fit` does, or no level can be held out.
    PlanError
        The question lacks an argument, or a number is out of range; raised before
        anything is fitted. Errors that only the fits show are raised after the page is
        written.

    Examples
    --------
    >>> page = bayeslaw.report(output="report")  # the bundled table
    >>> Path("report/report.html").is_file()
    True
    """
    began = time.perf_counter()
    arguments, card = _or_bundled(arguments)
    folder = Path(arguments.output)
    if folder.exists() and not folder.is_dir():
        raise LawError(f"{folder} is a file; give the name of a folder")
    contents = _check(arguments, card)
    # all input is checked: from here on only a fit can fail
    stages = Stages(arguments.progress, _weigh_stages(contents))
    path = folder / PAGE

    def show(made: Contents, coming: Sequence[str] = ()) -> None:
        _write(replace(made, coming=coming), path)
        if arguments.shown is not None:
            arguments.shown(path, coming)

    contents = _fit_and_plan(contents, folder, stages, show)
    show(contents)
    stages.finish("written")
    if contents.failure:
        raise PlanError(f"{contents.failure}; {path} has all but the plan")
    if contents.failures:
        line = "; ".join(
            f"{part}: {reason}" for part, reason in contents.failures.items()
        )
        raise DiagnosticsError(f"{line}; {path} has all the rest")
    return Report(
        path,
        time.perf_counter() - began,
        {domain.name: domain.check for domain in contents.domains},
        dict(contents.fits),
        contents.saved,
        contents.plan,
        contents.probability_if_as_checked,
        summary.verdict_of(contents.domains, contents.untested)[1],
        contents.measured,
    )


def _or_bundled(arguments: ReportArguments) -> tuple[ReportArguments, str | None]:
    """Complete the arguments by the bundled table and its card, if no runs are given."""
    if arguments.runs is not None:
        return arguments, None
    bundled = datasets.TABLES[datasets.DEFAULT]
    runs = datasets.load(datasets.DEFAULT)
    measured = arguments.measured
    if measured is None and bundled.measured:
        measured = runs.query(bundled.measured)
    filled = replace(
        arguments,
        runs=runs.query(bundled.where) if bundled.where else runs,
        measured=measured,
        name=datasets.DEFAULT,
        reference=arguments.reference or bundled.reference,
        question=arguments.question or bundled.question,
    )
    return filled, bundled.card


def _check(arguments: ReportArguments, card: str | None) -> Contents:
    """Refuse bad input before the fits, which take minutes."""
    assert arguments.runs is not None
    runs = as_runs(arguments.runs)
    fitting.losses(runs)
    parts = fitting.by_domain(runs)
    measured: Mapping[str, pd.DataFrame] = {}
    if arguments.measured is not None:
        measured = fitting.by_domain(as_runs(arguments.measured))
        check_measured(measured, parts)
    laws = {domain: _list_laws(arguments.law, domain) for domain in parts}
    question = arguments.question
    asked = check_question(question, parts, laws) if question else None
    most = 1 if arguments.quick else MOST
    keywords = asked.keywords if asked else None
    setting = PageSetting(
        arguments.reference or fitting.reference_near(runs),
        hold_outs(parts, arguments.hold_out, keywords, most),
        arguments.seed,
        arguments.on_failure,
        runs.attrs.get("loss_unit", LOSS_UNIT),
        arguments.experience,
    )
    fitted = {domain: laws_of(part, laws[domain]) for domain, part in parts.items()}
    for domain, part in parts.items():
        for law in fitted[domain]:
            fitting.covariates(law, part)
    left_out = {}
    if asked and not asked.mixes:
        # runs from the target's checkpoints would be offered, at their best settings
        read = covariates_read([*fitted["target"], *fitted["source"]], there=())
        why = why_not_offered(parts["target"], asked.keywords, read)
        if why is not None:
            left_out[TO_BUY] = why
            warn(f"the page will not tell which runs to buy: {why}")
    return Contents(
        runs=runs,
        name=arguments.name or "a table",
        card=card,
        laws=_list_laws(arguments.law, ""),
        setting=setting,
        question=question,
        parts=parts,
        trained=measured,
        laws_of_domains=laws,
        asked=asked,
        left_out=left_out,
        offers_runs=not (arguments.quick or left_out),
    )


def _fit_and_plan(
    contents: Contents,
    folder: Path,
    stages: Stages,
    show: Callable[[Contents, Sequence[str]], None],
) -> Contents:
    """Fit each domain, judge it on held-out runs, and plan from the fits of all runs."""
    asked, setting = contents.asked, contents.setting
    saved = {name: folder / file for name, file in _name_files(contents.parts).items()}
    contents = replace(contents, saved=saved)
    with _fit_all(contents, stages) as (finals, drawn):
        # save each fit at once, so that later failures lose none
        unfitted = []
        for name, fit in finals.items():
            error = fit.exception()
            if error is None:
                fit.result().save(saved[name])
            else:
                unfitted.append(f"the fit of {name}: {reason_of(error)}")
        if unfitted:
            contents = replace(contents, failure="; ".join(unfitted))
        elif asked is not None:
            fits = {name: fit.result() for name, fit in finals.items()}
            contents = replace(contents, fits=fits)
            if asked.mixes:
                contents = make_mixture_plan(contents, stages)
                show(contents, [CHECKS])
            else:
                contents = make_plan(
                    contents,
                    lambda tokens: {
                        name: domain.result().at_tokens(tokens).decisive
                        for name, domain in drawn.items()
                    },
                    stages,
                    show,
                )
        errors = {name: domain.exception() for name, domain in drawn.items()}
    failed = {name: error for name, error in errors.items() if error is not None}
    answer = contents.plan
    if failed and len(failed) == len(drawn) and answer is None:
        raise next(iter(failed.values()))
    tokens = answer.D if answer else None
    domains = [
        domain.result().at_tokens(tokens)
        for name, domain in drawn.items()
        if name not in failed
    ]
    beyond: tuple[str, ...] = ()
    if answer and asked:
        beyond = untested(asked.keywords, contents.parts, setting.hold_outs)
        beyond += beyond_left_out(answer) if isinstance(answer, Plan) else ()
    failures = {
        f"The check of {name}": reason_of(error) for name, error in failed.items()
    }
    fits = contents.fits or {domain.name: domain.fit for domain in domains}
    measured = None
    if contents.trained and fits:
        measured = compare_measured(contents.trained, fits, answer, setting)
    if asked is None:  # fits of a plan were saved when they were made
        for domain in domains:
            domain.fit.save(saved[domain.name])
    contents = replace(
        contents,
        domains=domains,
        fits=fits,
        untested=(*beyond, *(f"domain {name}" for name in failed)),
        left_out={**contents.left_out, **failures},
        failures=failures,
        measured=measured,
    )
    return with_sliders(contents)


def _name_files(domains: Iterable[str]) -> dict[str, str]:
    return {domain: f"{name}.nc" for domain, name in file_names(domains).items()}


def _list_laws(law: LawNames | None, domain: str) -> list[str]:
    names = law.get(domain) if isinstance(law, Mapping) else law
    if isinstance(names, str):
        return [names]
    return list(names or [])


def _weigh_stages(contents: Contents) -> dict[Any, float]:
    kinds = [FINAL] if contents.asked else []
    kinds += [hold_out.axis for hold_out in contents.setting.hold_outs]
    shares: dict[Any, float] = {
        (name, kind): FIT for name in contents.parts for kind in kinds
    }
    shares |= {(name, "drawn"): DRAWN for name in contents.parts}
    if contents.asked:
        shares |= PLANNING
    return shares | {"written": WRITTEN}


@contextmanager
def _fit_all(
    contents: Contents, stages: Stages
) -> Iterator[
    tuple[Mapping[str, Future[Fit | Average]], Mapping[str, Future[DomainResult]]]
]:
    """Fit all domains in parallel, to all runs for the plan (if there is one) and without
    the held-out runs; judge and draw each domain as soon as it is fitted.
    """
    parts, laws = contents.parts, contents.laws_of_domains
    setting, refit = contents.setting, contents.asked is not None
    # the chains of a single law take all cores, so these fits run one after another
    is_alone = any(len(names) == 1 for names in laws.values())
    fits_at_once = 1 if is_alone else len(parts)
    # the fits for the plan come first; the plan is made while the others are judged
    planned = parts if refit else {}
    fitted = {(name, FINAL): np.ones(len(runs), bool) for name, runs in planned.items()}
    fitted |= {
        (name, hold_out.axis): hold_out.is_kept(runs)
        for hold_out in setting.hold_outs
        for name, runs in parts.items()
    }

    def drawn(name: str) -> DomainResult:
        main, *further = setting.hold_outs
        judged = fits[name, main.axis].result()
        final = fits[name, FINAL].result() if refit else None
        domain = judge(name, judged, final, parts[name], setting)
        beside = [_test_further(name, hold_out) for hold_out in further]
        stages.finish((name, "drawn"))
        return replace(domain, tested=(*domain.tested, *beside)) if beside else domain

    def _test_further(name: str, hold_out: HoldOut) -> Tested:
        """Test a further hold-out, which the page can do without."""
        try:
            judged = fits[name, hold_out.axis].result()
            held = parts[name][hold_out.is_held(parts[name])]
            return Tested(hold_out, check(judged, held, seed=setting.seed))
        except BayeslawError as error:
            return Tested(hold_out, None, reason_of(error))

    with (
        runtime.threads() as cores,
        runtime.threads(fits_at_once) as helpers,
        runtime.threads(1) as artist,
    ):
        # all fits share the cores; finished domains are drawn meanwhile
        fits = {
            (name, kind): helpers.submit(
                fit_laws,
                parts[name],
                rows,
                laws[name],
                setting,
                stages.of((name, kind)),
                cores,
            )
            for (name, kind), rows in fitted.items()
        }
        finals = {name: fits[name, FINAL] for name in planned}
        yield finals, {name: artist.submit(drawn, name) for name in parts}


# -- the page --------------------------------------------------------------------------


def _write(contents: Contents, path: Path) -> None:
    table, plan, unit = contents.runs, contents.plan, contents.setting.unit
    digest = hashlib.sha256(table.to_csv(index=False).encode()).hexdigest()
    members = [member for fit in contents.fits.values() for member in fit.members]
    laws = {member.law.name: member.law for member in members}
    replay_plan = plan if isinstance(plan, Plan) else None
    mixed = plan if isinstance(plan, MixturePlan) else None
    # pictures of plans are drawn only for the complete page
    pictures: tuple[figures.Picture, ...] = ()
    if replay_plan and not contents.coming:
        of_target = table[table["domain"] == "target"]
        pictures = figures.plan_pictures(replay_plan, unit, of_target)
    if mixed and mixed.limits and not contents.coming:
        pictures = figures.mixture_pictures(mixed, unit)
    write_template(
        path,
        "page/page.html.jinja",
        inline=_read_inline,
        words=summary,
        TERMS=tomllib.loads(_read_inline("glossary.toml")),
        page=contents,
        plan=replay_plan,
        mixed=mixed,
        plan_pictures=pictures,
        settings=_tell_settings(contents),
        laws=list(laws.values()),
        hold_outs=[
            hold_out.at_tokens(plan.D if plan else None)
            for hold_out in contents.setting.hold_outs
        ],
        date=f"{datetime.date.today():%d %B %Y}",
        digest=digest[:16],
        versions=json.loads(versions()),
        asked=_list_limits(contents.question or {}, plan),
        command=_write_command(contents),
        update=_write_update_command(contents),
        saved=list(_name_files(contents.fits).values()),
    )


def _tell_settings(contents: Contents) -> list[str]:
    """Tell for each domain in which settings runs differ, and if laws read them."""
    lines = []
    for name, runs in contents.parts.items():
        if name not in contents.fits:  # its fit failed
            continue
        laws = [member.law for member in contents.fits[name].members]
        alike = alike_but_settings(runs, covariates_read(laws))
        if alike is not None:
            lines.append(f"{name}: {alike.sentence()}")
        elif read := tell_read(runs, [law.name for law in laws if law.tuned]):
            pictures = "pictures of forecasts show the best run of each sweep"
            lines.append(f"{name}: {read}; {pictures}")
    return lines


def _list_limits(
    question: Mapping[str, Any], answer: Plan | MixturePlan | None
) -> list[str]:
    """Write what was asked for, an entry each, and which limits are kept for sure."""
    is_kept = answer is not None and answer.D is not None
    lines = []
    for name, value in _write_question(question).items():
        is_sure = name in KEPT_FOR_SURE or name.startswith("share_")
        said = format_count(float(value)) if value.isdecimal() else value
        lines.append(f"{name} {said}{' (kept)' if is_kept and is_sure else ''}")
    costs = question.get("costs")
    return lines if costs is None else [*lines, f"costs: {costs.sentence()}"]


def _read_inline(name: str) -> Markup:
    path = files("bayeslaw._report").joinpath("templates", "page", name)
    return Markup(path.read_text(encoding="utf-8"))


def _write_command(contents: Contents) -> str:
    setting, attrs = contents.setting, contents.runs.attrs
    options: list[tuple[str, Any]] = [("law", law) for law in contents.laws]
    # A bundled table has its own name, reference and question.
    if not contents.card:
        reference = (setting.reference or {}).items()
        options += [("reference", f"{c}={value:g}") for c, value in reference]
        # The unit of the losses is not a column, so it is not part of the table.
        options += [("unit", setting.unit)] if setting.unit != LOSS_UNIT else []
    if setting.experience:
        options.append(("experience", setting.experience))
    options += [("hold-out", setting.main.axis), ("seed", setting.seed)]
    words = ["bayeslaw", "report", *([] if contents.card else [contents.name])]
    words += [*_as_words(options), *attrs.get("read_with", [])]
    if "measured_as" in attrs:
        words += ["--measured", attrs["measured_as"]]
    if not contents.card:
        words += _as_words(_list_plan_options(contents.question or {}))
    return " ".join(map(_quote, words))


def _write_update_command(contents: Contents) -> str:
    saved = _name_files(contents.fits)
    first = saved.get("target", next(iter(saved.values())))
    words = ["bayeslaw", "update", first, "OLD_AND_NEW_RUNS"]
    if {"target", "source"} <= set(saved):
        words += ["--source", saved["source"]]
    words += contents.runs.attrs.get("read_with", [])
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """Quote a word for a shell; text with single quotes gets double quotes."""
    is_plain = "'" in word and not set('"$`\\') & set(word)
    return f'"{word}"' if is_plain else shlex.quote(word)


def _as_words(options: Iterable[tuple[str, Any]]) -> list[str]:
    """Write options by name as words; a switch has no value."""
    return [
        word
        for name, value in options
        for word in (f"--{name}", *([] if value is True else [_write_value(value)]))
    ]


def _list_plan_options(question: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """List what was planned for, and costs of training as far as they are no defaults."""
    options: list[tuple[str, Any]] = [
        ("plan", f"{name}={value}") for name, value in _write_question(question).items()
    ]
    costs = question.get("costs") or Costs()
    names = {"shapes": "shape", "fixed": "fixed-cost"}
    for field in fields(costs):
        value = getattr(costs, field.name)
        several = value if field.name == "shapes" else [value]
        if isinstance(value, Mapping):  # a rate for each size
            several = [f"{N:.12g}={rate:.12g}" for N, rate in value.items()]
        if value != field.default:
            option = names.get(field.name, field.name.replace("_", "-"))
            options += [(option, one) for one in several]
    return options


def _write_question(question: Mapping[str, Any]) -> dict[str, str]:
    """Write each value that was asked for as an option takes it, but for costs."""
    bounds = question.get("bounds") or {}
    settings = {
        name: value
        for name, value in question.items()
        if name not in ("covariates", "bounds", "costs")
    }
    settings |= dict(question.get("covariates") or {})
    settings |= {
        f"share_{name}": ends if np.ndim(ends) == 0 else ":".join(map(str, ends))
        for name, ends in bounds.items()
    }
    return {name: _write_value(value) for name, value in settings.items()}


def _write_value(value: Any) -> str:
    if isinstance(value, Shape):
        value = {n: x for n, x in asdict(value).items() if x is not None}
    if isinstance(value, Mapping):
        return ",".join(f"{name}={_write_value(v)}" for name, v in value.items())
    return f"{value:.12g}" if isinstance(value, float) else str(value)
