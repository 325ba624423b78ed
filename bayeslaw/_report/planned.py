"""What the page says of the plan: the plan, its map, and the runs to buy first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError, RunTableError
from bayeslaw._base.machine import runtime
from bayeslaw._base.machine.blas import one_thread
from bayeslaw._base.numbers import format_count
from bayeslaw._base.progress.time_left import Stages
from bayeslaw._costs.costs import Costs
from bayeslaw._designs.anchors import anchors
from bayeslaw._designs.menu import candidates, menu
from bayeslaw._forecasts.check import Check
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._plans.plan import plan, problem_of
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._plans.result import Plan
from bayeslaw._plans.value import stretched_probability
from bayeslaw._posteriors.averaging.checkpoint import (
    SAME,
    can_fill,
    fill_losses,
    forecast_losses,
)
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import KeptPosterior
from bayeslaw._report.domains import Setting, split
from bayeslaw._report.explorer import can_explore, explorer
from bayeslaw._report.question import Checked

# stages of planning, by the seconds they took on microcpt and two cores
PLANNING = {"plan": 34.0, "map": 10.0, "bought": 10.0, "checked": 1.0}
TO_BUY = "Runs to buy"  # the part of the page
ANCHOR_SHARE = 0.03  # budget of runs that improve the plan, as a share of its cost
MOST_ANCHORS = 12

Fits = Mapping[str, KeptPosterior]  # by domain
Made = TypeVar("Made")
UNITS = {"ptpp": "{} tokens per parameter of pre-training", "N": "{} parameters"}
# what holding out the largest level of a column proves
PROVES = {
    "ptpp": "a stage of pre-training that was not fitted",
    "N": "models larger than any that was fitted",
    "D": "budgets larger than any that was fitted",
}


@dataclass(frozen=True)
class Planned:
    """The plan, what the page's map needs, and which runs to buy, where there are.

    Parameters
    ----------
    explorer, bought
        What the page's template reads.
    untested
        Stages and sizes of the plan that lie beyond all runs held out, in words.
    notes
        Where losses before adaptation come from, and what no check here covers.
    probability_if_as_checked
        That the plan keeps its promises if intervals were as much wider as the checks
        say; None where they pass.
    failure
        Why there is no plan, where the planner refused the fits.
    left_out
        Parts of the page that could not be made -> why.
    """

    plan: Plan | None = None
    explorer: dict[str, Any] | None = None
    bought: dict[str, Any] | None = None
    untested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    probability_if_as_checked: float | None = None
    failure: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)


# laws may be judged meanwhile, on one thread: numbers are the same with and without
@one_thread()
def make_plan(
    fits: Fits,
    checks: Callable[[], Mapping[str, Check]],
    asked: Checked,
    parts: Mapping[str, pd.DataFrame],
    setting: Setting,
    stages: Stages,
    *,
    nothing_to_buy: str | None = None,
) -> Planned:
    """Plan from the fits of ``target`` and ``source``.

    Parameters
    ----------
    checks
        Checks of each domain's forecast; called last, for domains are judged meanwhile.
    parts
        The runs of each domain: of the target's checkpoints runs are on offer.
    stages
        Told when each of `PLANNING` is done.
    nothing_to_buy
        Why no runs can be offered (`why_not_offered`).
    """
    notes: list[str] = []
    try:
        question, notes = completed(asked, parts, setting.seed)
        answer = plan(fits["target"], fits["source"], **question)
    except BayeslawError as error:
        return Planned(notes=tuple(notes), failure=str(error))
    stages.finish("plan")
    notes += _not_covered(answer, parts["target"], setting.hold_out)
    left_out = {} if nothing_to_buy is None else {TO_BUY: nothing_to_buy}
    with runtime.threads(1) as cartographer:
        mapping = cartographer.submit(
            _explorer, fits, question, answer, parts["target"]
        )
        bought = None
        if nothing_to_buy is None:
            bought = _optional(
                lambda: _worth_buying(fits, question, answer, parts["target"], notes),
                TO_BUY,
                left_out,
            )
        stages.finish("bought")
        mapped = _optional(mapping.result, "The map of plans", left_out)
        stages.finish("map")
    if_as_checked = _optional(
        lambda: _if_as_checked(checks(), fits, question, answer),
        "The plan with intervals as wide as the checks say",
        left_out,
    )
    stages.finish("checked")
    return Planned(
        plan=answer,
        explorer=mapped,
        bought=bought,
        untested=untested(answer, split(parts["target"], setting.hold_out).held),
        notes=tuple(notes),
        probability_if_as_checked=if_as_checked,
        left_out=left_out,
    )


def _optional(
    make: Callable[[], Made], name: str, left_out: dict[str, str]
) -> Made | None:
    """A part that the page can do without: where it cannot be made, why is noted."""
    try:
        return make()
    except Exception as error:  # whatever it is, fits and plan are there
        left_out[name] = reason_of(error)
        return None


def reason_of(error: BaseException) -> str:
    """What is wrong, in one line."""
    line = (str(error).splitlines() or [""])[0]
    is_ours = isinstance(error, BayeslawError)
    return line if is_ours else f"{type(error).__name__}: {line}"


def completed(
    asked: Checked, parts: Mapping[str, pd.DataFrame], seed: int
) -> tuple[dict[str, Any], list[str]]:
    """The keywords of the plan with the losses before adaptation that are not in the
    table, as draws of a forecast, and where they come from, a line each.
    """
    question = {"seed": seed, **asked.keywords}
    if not asked.forecast:
        return question, list(asked.told)
    drawn, told = forecast_losses(
        parts, asked.forecast, question["N"], question["ptpp"], seed=seed
    )
    covariates = {**(question.get("covariates") or {}), **drawn}
    return question | {"covariates": covariates}, [*asked.told, *told]


def untested(answer: Plan, held: pd.DataFrame) -> tuple[str, ...]:
    """The plan's stage and size, where they lie beyond all runs held out.

    Parameters
    ----------
    held
        The target's runs that were held out.
    """
    planned = {"ptpp": answer.ptpp, "N": answer.N}
    beyond = []
    for column, value in planned.items():
        most = held[column].max() if column in held else math.nan
        # a column that the table lacks is as little tested as a larger level
        if value <= (1 + SAME) * most:
            continue
        tested = "" if math.isnan(most) else f" (tested up to {format_count(most)})"
        beyond.append(f"{UNITS[column].format(format_count(value))}{tested}")
    return tuple(beyond)


def _not_covered(answer: Plan, runs: pd.DataFrame, hold_out: str) -> list[str]:
    """What the plan is beyond and the check does not test, a line each."""
    planned = {"ptpp": answer.ptpp, "N": answer.N, "D": answer.D or 0.0}
    beyond = [
        f"{column} {format_count(value)} (the table ends at "
        f"{format_count(runs[column].max())})"
        for column, value in planned.items()
        if column in runs and column != hold_out and value > runs[column].max()
    ]
    if not beyond:
        return []
    proves = PROVES.get(hold_out, f"larger {hold_out} than any that was fitted")
    return [
        f"the plan lies beyond the table at {' and '.join(beyond)}, which no check here "
        f"tests: what was held out tests forecasts of {proves}"
    ]


def _if_as_checked(
    checks: Mapping[str, Check],
    fits: Fits,
    question: Mapping[str, Any],
    answer: Plan,
) -> float | None:
    """The plan's probability with intervals as wide as the checks say they should be."""
    stretch = {
        _promise(domain): _stretch(result)
        for domain, result in checks.items()
        if domain in ("target", "source") and result.verdict != "trust"
    }
    if answer.D is None or not stretch:
        return None
    problem = problem_of(fits["target"], fits["source"], **question)
    log_tokens = math.log(answer.D) if answer.D else -math.inf
    return stretched_probability(problem, log_tokens, answer.replay or 0.0, stretch)


def _stretch(check: Check) -> float:
    """How much wider intervals should be by a check, that of its worst group included;
    never less wide.
    """
    of_group = check.group_stretch or 1.0
    return max(1.0, check.stretch, of_group)


def _promise(domain: str) -> str:
    """The name of the promise that a domain's posterior is about."""
    return FORGETTING if domain == "source" else TARGET


def _explorer(
    fits: Fits, question: Mapping[str, Any], answer: Plan, runs: pd.DataFrame
) -> dict[str, Any] | None:
    """What the page's map needs, where it can plan this question."""
    problem = problem_of(fits["target"], fits["source"], **question)
    if not can_explore(problem):
        return None
    return explorer(problem, answer, runs)


def why_not_offered(
    runs: pd.DataFrame, question: Mapping[str, Any], read: Sequence[str]
) -> str | None:
    """Why no runs can be offered before the plan's, as far as the table tells before
    anything is fitted; None where they can, or there are none.

    Parameters
    ----------
    runs
        The target's.
    question
        Keywords of `plan`.
    read
        Columns that the laws of target and source read.
    """
    try:
        offered = _offered(runs, float(np.max(question["N"])), None)
        if offered is None:
            return None
        menu(offered)
        to_be_forecast = [
            c for c in read if c in LOSSES_BEFORE and c in offered and can_fill(runs, c)
        ]
        there = [c for c in read if c not in to_be_forecast]
        offered = known_starts(offered, [c for c in there if c in LOSSES_BEFORE])
        check_readable(offered, there, "the table of candidates")
    except BayeslawError as error:
        return reason_of(error)
    return None


def _offered(
    runs: pd.DataFrame, below: float, costs: Costs | None
) -> pd.DataFrame | None:
    """Runs of models smaller than ``below``, at the table's last stage."""
    if not {"N", "replay", "ptpp"} <= set(runs):
        return None  # costs are those of checkpoints by stage
    smaller = sorted(n for n in runs["N"].unique() if n < below)
    if not smaller:
        return None
    last = [float(runs["ptpp"].max())]
    return candidates(runs, N=smaller, ptpp=last, costs=costs)


def _worth_buying(
    fits: Fits,
    question: Mapping[str, Any],
    answer: Plan,
    runs: pd.DataFrame,
    notes: list[str],
) -> dict[str, Any] | None:
    """Runs to buy of those on offer; where losses of their checkpoints come from is
    noted.
    """
    if not answer.feasible or not answer.D:
        return None  # a share of what the plan costs is spent
    offered = _offered(runs, answer.N, _prices(question))
    if offered is None:
        return None
    columns = read_before(fits["target"], fits["source"])
    offered, told = fill_losses(offered, runs, columns, seed=int(question["seed"]))
    notes += told
    return _bought(fits, question, answer, known_starts(offered, columns))


def _prices(question: Mapping[str, Any]) -> Costs | None:
    """What runs cost, where that is known in money."""
    costs = question.get("costs")
    return costs if costs is not None and costs.has_money else None


def read_before(*posteriors: KeptPosterior) -> list[str]:
    """The checkpoint's losses before adaptation that laws read."""
    pieces = [piece for posterior in posteriors for piece in posterior.pieces()]
    return [c for c in LOSSES_BEFORE if any(c in piece.covariates for piece in pieces)]


def known_starts(offered: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Runs on offer whose checkpoint's losses are known.

    Raises
    ------
    RunTableError
        There are none.
    """
    there = [column for column in columns if column in offered]
    known = offered.dropna(subset=there)
    if known.empty:
        raise RunTableError(
            f"no checkpoint on offer has {' and '.join(there)}, measured or forecast: "
            "measure it at six checkpoints at least, from which others are forecast"
        )
    return known


def _bought(
    fits: Fits,
    question: Mapping[str, Any],
    answer: Plan,
    offered: pd.DataFrame | None,
) -> dict[str, Any] | None:
    """Runs worth their cost before the plan is carried out, for a share of its cost."""
    costs = _prices(question)
    budget = ANCHOR_SHARE * float(answer.flops or 0)
    if costs is not None:
        budget = ANCHOR_SHARE * (answer.cost or {}).get("money", 0.0)
    if offered is None or budget < offered["cost"].min():
        return None
    # Anchors have a seed of their own.
    goal = {n: given for n, given in question.items() if n not in ("seed", "costs")}
    picked = anchors(
        fits["target"],
        offered,
        goal,
        budget,
        source=fits["source"],
        max_picks=MOST_ANCHORS,
        checks=0,
        costs=costs,
    )
    lines = []
    if picked.picks:
        lines = picked.table(offered).drop(columns="row").to_dict(orient="records")
    return {
        "sentence": picked.sentence(),
        "lines": lines,
        "share": ANCHOR_SHARE,
        "in_money": costs is not None,
    }
