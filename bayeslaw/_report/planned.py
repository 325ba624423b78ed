"""Build the page's part about the plan: the plan, its map, and the runs to buy first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError
from bayeslaw._base.machine import runtime
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.numbers import format_count
from bayeslaw._base.progress.time_left import Stages
from bayeslaw._forecasts.check import Check
from bayeslaw._plans.arguments import PlanArguments, with_losses
from bayeslaw._plans.mixing.mixture import MixturePlan, posed_and_solved
from bayeslaw._plans.mixing.question import MixtureArguments
from bayeslaw._plans.plan import answered
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._plans.reading import question_of
from bayeslaw._plans.result import Plan
from bayeslaw._plans.search import Problem
from bayeslaw._plans.value import stretched_probability
from bayeslaw._report.buying import Purchase, choose_runs
from bayeslaw._report.domains import DomainResult, PageSetting
from bayeslaw._report.explorer import can_explore, explorer
from bayeslaw._report.measured import Measured
from bayeslaw._report.mixing import build_sliders, explored_mixture, mixes
from bayeslaw._report.question import Checked
from bayeslaw._report.summary import SAYS_HOW_WIDE

# stages of planning -> measured seconds (microcpt, two cores)
PLANNING = {"plan": 34.0, "map": 10.0, "bought": 10.0, "checked": 1.0}
TO_BUY = "Runs to buy"  # the part of the page
CHECKS = "the checks of runs that were held out"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Contents:
    """What the page is made from, fully checked, and its parts as they are made."""

    runs: pd.DataFrame
    # name of the table, and its card if it is a bundled one
    name: str
    card: str | None
    # the laws named for all domains, and those of each domain
    laws: Sequence[str]
    setting: PageSetting
    # the question of the plan, as given and as checked
    question: Mapping[str, Any] | None
    # the runs of each domain, and those that were trained after them
    parts: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    trained: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    laws_of_domains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    asked: Checked | None = None
    offers_runs: bool = True
    # the plan, or the reason why there is none, if the planner refused the fits
    plan: Plan | MixturePlan | None = None
    failure: str | None = None
    # data for the page's template: of the map of plans, and of mixtures' sliders
    explorer: dict[str, Any] | None = None
    sliders: dict[str, Any] | None = None
    bought: Purchase | None = None
    # origins of losses before adaptation, and parts that no check covers
    notes: tuple[str, ...] = ()
    # probability that the plan keeps its promises with intervals as wide as the checks
    # say; None if they pass
    probability_if_as_checked: float | None = None
    domains: Sequence[DomainResult] = ()
    # stages and sizes of the plan that lie beyond all held-out runs, in words
    untested: tuple[str, ...] = ()
    # fits of the plan, and their files, by domain
    fits: Mapping[str, Any] = field(default_factory=dict)
    saved: Mapping[str, Path] = field(default_factory=dict)
    # parts of the page that could not be made, and domains that could not be checked
    # among them -> why
    left_out: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    measured: Measured | None = None
    coming: Sequence[str] = ()  # parts that are still being made


def beyond_left_out(plan: Plan) -> tuple[str, ...]:
    """List the plan's tokens per parameter and its replay if they lie farther beyond the
    fitted runs than any run that was left out. Its size and stage are `untested`'s.
    """
    names = {"D/N": "{:.3g} tokens per parameter", "replay": "replay {:.3g}"}
    return tuple(
        f"{names[column].format(place.value)} "
        f"(fitted from {place.low:.3g} to {place.high:.3g})"
        for column, place in plan.places().items()
        if column in names and not place.is_tested(plan.distance[column]["tested"])
    )


# on one BLAS thread, so that numbers do not depend on laws that are judged meanwhile
@one_thread()
def make_plan(
    contents: Contents,
    checks: Callable[[float | None], Mapping[str, Sequence[Check]]],
    stages: Stages,
    show: Callable[[Contents, Sequence[str]], Any],
) -> Contents:
    """Plan from the fits of ``target`` and ``source``. ``checks`` finds the checks of each
    domain that count for a plan of so many tokens; it is called last, because domains
    are judged meanwhile. ``show`` takes the result so far, and the parts still to come.
    """
    asked, setting, runs = contents.asked, contents.setting, contents.parts["target"]
    assert asked is not None
    fits, notes = contents.fits, list(asked.told)
    question = {"seed": setting.seed, **asked.keywords}
    try:
        arguments, of_forecasts = with_losses(
            PlanArguments(fits["target"], fits["source"], **question),
            of_diverging=True,
        )
        notes += of_forecasts
        answer, problem = answered(question_of(arguments))
    except BayeslawError as error:
        return replace(contents, notes=tuple(notes), failure=str(error))
    stages.finish("plan")
    question["covariates"] = arguments.covariates
    tokens = answer.D or 0.0
    is_tested = any(hold_out.axis == "D" for hold_out in setting.hold_outs)
    if "D" in runs and tokens > runs["D"].max() and not is_tested:
        notes.append(
            f"the plan's {format_count(tokens)} tokens lie beyond the table's "
            f"{format_count(runs['D'].max())}, which no check here tests (--hold-out D)"
        )
    left_out, offers_runs = dict(contents.left_out), contents.offers_runs
    made = replace(contents, plan=answer, notes=tuple(notes), left_out=left_out)
    to_buy = ["runs to buy"] if offers_runs else []
    show(made, ["the map of plans", *to_buy, CHECKS])
    with runtime.threads(1) as cartographer:
        # the page's map, if it can plan this question
        mapping = cartographer.submit(
            lambda: explorer(problem, answer, runs) if can_explore(problem) else None
        )
        bought = None
        if offers_runs:
            bought = _make_optional(
                lambda: choose_runs(fits, question, answer, runs),
                TO_BUY,
                left_out,
            )
            notes += bought.notes if bought and bought.is_advised else ()
        stages.finish("bought")
        mapped = _make_optional(mapping.result, "The map of plans", left_out)
        stages.finish("map")
    made = replace(made, explorer=mapped, bought=bought, notes=tuple(notes))
    show(made, [CHECKS])
    if_as_checked = _make_optional(
        lambda: _find_probability_as_checked(checks(answer.D), problem, answer),
        "The plan with intervals as wide as the checks say",
        left_out,
    )
    stages.finish("checked")
    return replace(made, probability_if_as_checked=if_as_checked)


def make_mixture_plan(contents: Contents, stages: Stages) -> Contents:
    assert contents.asked is not None
    question = {"seed": contents.setting.seed, **contents.asked.keywords}
    try:
        arguments = MixtureArguments(contents.fits, **question)
        plan, problem = posed_and_solved(arguments)
        start = math.log(plan.D), np.array([*plan.shares.values()])
        shown = plan if plan.limits else None
        sliders = build_sliders(contents.fits, problem, *start, shown)
    except BayeslawError as error:
        return replace(contents, failure=str(error))
    for stage in PLANNING:
        stages.finish(stage)
    return replace(contents, plan=plan, sliders=sliders)


def with_sliders(contents: Contents) -> Contents:
    """Let users explore mixtures on the page, if no plan was asked for."""
    fits, left_out = contents.fits, dict(contents.left_out)
    if contents.sliders is not None or not all(map(mixes, fits.values())):
        return contents
    sliders = _make_optional(
        lambda: explored_mixture(fits, contents.runs, contents.setting.seed),
        "The sliders of shares",
        left_out,
    )
    return replace(contents, sliders=sliders, left_out=left_out)


def _make_optional(
    make: Callable[[], Made], name: str, left_out: dict[str, str]
) -> Made | None:
    """Make a part that the page can do without; a failure is noted."""
    try:
        return make()
    except Exception as error:  # any error; the page still shows fits and plan
        left_out[name] = reason_of(error)
        return None


def reason_of(error: BaseException) -> str:
    line = (str(error).splitlines() or [""])[0]
    is_ours = isinstance(error, BayeslawError)
    return line if is_ours else f"{type(error).__name__}: {line}"


def _find_probability_as_checked(
    checks: Mapping[str, Sequence[Check]], problem: Problem, answer: Plan
) -> float | None:
    stretch = {}
    for domain, promise in (("target", TARGET), ("source", FORGETTING)):
        # of each failed check the factor that its worst group needs, at least 1
        factors = [
            max(1.0, check.stretch, check.group_stretch or 1.0)
            for check in checks.get(domain, ())
            if check.verdict in SAYS_HOW_WIDE
        ]
        if factors:
            stretch[promise] = max(factors)
    if answer.D is None or not stretch:
        return None
    log_tokens = math.log(answer.D) if answer.D else -math.inf
    return stretched_probability(problem, log_tokens, answer.replay or 0.0, stretch)
