"""``next_runs``: buy a batch of runs, measure, update, buy again.

What to buy next is a pure function of what is on offer and what has been measured, so
that the table of measured runs is all the state there is: a sequence that is broken off
anywhere goes on where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base import runtime
from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import format_count, positive
from bayeslaw._decisions.anchors.appraisal import goal_sds
from bayeslaw._decisions.anchors.evidence import gaussian
from bayeslaw._decisions.anchors.gaussian import Pick
from bayeslaw._decisions.anchors.menu import Menu, menu
from bayeslaw._decisions.anchors.search import Limits, choose
from bayeslaw._decisions.buying.aim import Aim, aim_of
from bayeslaw._decisions.buying.asked import (
    Asked,
    as_read,
    losses_of,
    read_measured,
)
from bayeslaw._decisions.buying.knowledge import (
    PriorKnowledge,
    fewest,
    from_priors,
    laws_for,
    what_is_known,
)
from bayeslaw._decisions.planning.question import FORGETTING, TARGET
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import Posterior

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FIRST = 0.2  # of the budget, at most, for what the priors alone choose
# Of the budget: cheaper runs are left. A law is fitted by itself before its misfit is,
# so that many runs far below the goal bend it: with them forecasts got worse
# (docs/anchors.md).
TRIFLE = 2e-3
LEAST_FALL = 0.05  # of the goal's sd, by which the rest of the budget has to lower it
ODD = 1e-3  # chance of a loss as far from its forecast, below which it is called odd


@dataclass(frozen=True, eq=False)
class NextRuns:
    """What to buy next, and what is known before it is bought.

    Parameters
    ----------
    runs
        Rows of the candidates to measure now, cheapest first; none where ``stop`` says
        why. ``row`` is a row's label among the candidates, ``cost`` that of its run up
        to it; ``loss``, and ``source_loss`` for a plan, are to be filled in.
    goal_sd
        Sd of the goal's log losses (root mean square over its runs; of a plan over its
        promises) as it is.
    goal_sd_after
        The same once all that is chosen for the rest of the budget is measured.
    spent, budget
        In the unit of the costs.
    stop
        Why nothing is bought any more, or nothing.
    odd
        Rows of measured runs whose losses the others did not expect.
    failed
        Rows that were bought and gave no loss.
    posterior
        What is known: a `Fit`, an `Average`, or what priors say; of a plan's target.
    source
        The same of a plan's source; None for a forecast.
    plan
        For a plan what would be chosen now, once there is something to plan with:
        ``tokens``, ``replay``, ``flops``, and whether it ``reaches`` the confidence
        (else it is the most probable one, by ``margin`` below it).
    """

    runs: pd.DataFrame
    goal_sd: float
    goal_sd_after: float
    spent: float
    budget: float
    stop: str
    odd: list[Any]
    failed: list[Any]
    posterior: Posterior
    source: Posterior | None
    plan: dict[str, Any] | None
    asked: Asked

    def update(self, rows: pd.DataFrame) -> NextRuns:
        """What to buy once these rows are measured too: those of ``runs`` with their
        losses, none (NaN) for a run that failed.
        """
        # none before the first batch, whose columns would have no types
        batches = [table for table in (self.asked.measured, rows) if len(table)]
        all_rows = pd.concat(batches, ignore_index=True) if batches else None
        columns = losses_of(self.asked.goal)
        measured = read_measured(self.asked.candidates, all_rows, columns)
        return _next(replace(self.asked, measured=measured))

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {
            "rows": self.runs["row"].tolist(),
            "goal_sd": self.goal_sd,
            "goal_sd_after": self.goal_sd_after,
            "spent": self.spent,
            "budget": self.budget,
            "stop": self.stop,
            "odd": self.odd,
            "failed": self.failed,
            "known_from": self.posterior.name,
            "plan": self.plan,
        }

    def table(self) -> pd.DataFrame:
        """A line for each row to measure, as people read it."""
        shown = self.runs.drop(columns=[*losses_of(self.asked.goal).values()])
        counts = [c for c in ("N", "D", "U") if c in shown]
        shown[counts] = shown[counts].map(format_count)
        shown["cost"] = [f"{cost:.3g}" for cost in shown["cost"]]
        return shown

    def sentence(self) -> str:
        """The answer in words."""
        now = f"the goal's sd is {self.goal_sd:.2%} of the loss{self._planned()}"
        if self.stop:
            return f"Buy nothing more: {self.stop}; {now}."
        count = self.runs["run"].nunique() if "run" in self.runs else len(self.runs)
        return (
            f"Measure these {count} run{'s' * (count > 1)} and come back; {now}, "
            f"{self.goal_sd_after:.2%} expected once the budget of {self.budget:.3g} is "
            f"spent ({self.spent:.3g} so far)."
        )

    def _planned(self) -> str:
        """The plan as it stands, in words."""
        if self.plan is None:
            return ""
        tokens, replay = self.plan["tokens"], self.plan["replay"]
        which = (
            "the plan" if self.plan["reaches"] else "no plan is sure enough, the best"
        )
        return f" ({which}: D {format_count(tokens)}, replay {replay:.2f})"


def next_runs(
    candidates: pd.DataFrame,
    goal: pd.DataFrame | Mapping[str, Any],
    budget: float,
    *,
    measured: pd.DataFrame | None = None,
    laws: Sequence[Law | str] | None = None,
    source_laws: Sequence[Law | str] | None = None,
    batch: int | None = None,
    enough: float = 0.0,
    least: float = 1.0,
    seed: int = 0,
) -> NextRuns:
    """Which of the runs on offer to buy next, from nothing or from what was measured.

    From priors alone at most a fifth of the budget is spent, on as many runs as a law
    can be fitted to. Then laws are averaged on what was measured, and the best list for
    all that is left of the budget is bought: whole, or its cheapest runs first. For a
    plan, that is the list that saves it most; while no plan reaches its confidence, the
    one that tells most of the promises at the most probable plan.

    Parameters
    ----------
    candidates
        Runs on offer, as `anchors` takes them; a ``loss`` in it is not looked at.
    goal
        Runs to be forecast, in the columns that the laws read; or a plan: the keyword
        arguments of `plan` for one model.
    budget
        Of the whole sequence, in the unit of the costs.
    measured
        Rows bought so far: ``row`` (their label among the candidates) and ``loss``, for
        a plan also ``source_loss``; NaN for a run that failed, which is paid for and
        not bought again.
    laws, source_laws
        Of the target and of a plan's source; by default those that suit the candidates'
        columns.
    batch
        Most runs to buy at once; by default all that are chosen.
    enough
        Sd of the goal's log loss at which to stop.
    least
        For a plan: FLOPs that the rest of the list has to save it per unit of cost.
    seed
        Same seed, same machine: same runs.

    Raises
    ------
    RunTableError
        A table lacks a column, or a measured row is none of the candidates.
    LawError
        A law is unknown, or none suits the columns.
    PlanError
        The budget buys nothing, a setting is out of range, or the plan is ill-posed.
    """
    if batch is not None and (batch != int(batch) or batch < 1):
        raise PlanError(f"batch must be a whole number of at least 1, got {batch!r}")
    if not len(goal):
        raise RunTableError(
            "the goal's table has no rows: give the runs to be forecast"
        )
    if not candidates.index.is_unique:
        raise RunTableError(
            "two candidates have the same row number: number them anew (reset_index)"
        )
    columns = losses_of(goal)
    if source_laws is not None and FORGETTING not in columns:
        raise PlanError("source_laws are of a plan's source, and a forecast has none")
    losses = [*columns.values()]
    offered = candidates.drop(columns=losses, errors="ignore")
    if isinstance(goal, pd.DataFrame):
        goal = goal.drop(columns="loss", errors="ignore")
    wanted = {TARGET: laws, FORGETTING: source_laws}
    asked = Asked(
        candidates=offered,
        goal=goal,
        budget=positive("budget", budget),
        measured=read_measured(offered, measured, columns),
        laws={
            domain: tuple(laws_for(as_read(offered, domain), wanted[domain]))
            for domain in columns
        },
        batch=batch,
        enough=enough,
        least=least,
        seed=seed,
    )
    return _next(asked)


# -- what is known ---------------------------------------------------------------------


def _next(asked: Asked) -> NextRuns:
    runtime.start()
    bought = asked.candidates.index.isin(asked.measured["row"])
    known = {domain: _known(asked, bought, domain) for domain in asked.laws}
    offered = menu(asked.candidates)
    spent = offered.price(bought)
    aim = aim_of(asked, known, offered)
    chosen = _chosen(asked, offered, bought, aim, asked.budget - spent)
    is_known = not any(isinstance(p, PriorKnowledge) for p in known.values())
    stop = _why_stop(asked, chosen, aim, is_known)
    now = [] if stop else _now(asked, chosen, is_known, spent)
    losses = [*losses_of(asked.goal).values()]
    gave_none = asked.measured[losses].isna().any(axis=1)
    return NextRuns(
        runs=_rows(offered, now, bought, losses),
        goal_sd=chosen.sds[0],
        goal_sd_after=chosen.sds[-1],
        spent=spent,
        budget=asked.budget,
        stop=stop,
        odd=_odd(asked, known),
        failed=asked.measured["row"][gave_none].tolist(),
        posterior=known[TARGET],
        source=known.get(FORGETTING),
        plan=_plan_record(aim),
        asked=asked,
    )


def _known(
    asked: Asked, bought: Bool[np.ndarray, " candidate"], domain: str
) -> Posterior:
    """What the measured runs and the priors say of a domain's losses."""
    column = losses_of(asked.goal)[domain]
    gave = asked.measured.dropna(subset=column)
    candidates, laws = asked.table(domain), asked.laws[domain]
    if not len(gave):
        return from_priors(laws, candidates, asked.seed)
    losses = gave[column]
    measured = candidates.loc[gave["row"]].assign(loss=losses.to_numpy())
    # the runs on offer stay in the table, so that all batches share compiled programs
    rest = candidates[~bought].assign(loss=float(losses.median()))
    table = pd.concat([measured, rest], ignore_index=True)
    is_measured = np.arange(len(table)) < len(measured)
    return what_is_known(table, is_measured, laws, asked.seed)


def _odd(asked: Asked, known: Mapping[str, Posterior]) -> list[Any]:
    """Rows of measured runs whose losses are out of what is known by now."""
    odd = []
    for domain, column in losses_of(asked.goal).items():
        gave = asked.measured.dropna(subset=column)
        posterior = known[domain]
        if not len(gave) or isinstance(posterior, PriorKnowledge):
            continue
        runs = asked.table(domain).loc[gave["row"]].reset_index(drop=True)
        draws = posterior.log_loss(runs, noise=True, seed=asked.seed)
        # share of the forecast on the far side of what came back, both sides counted
        above = (draws > np.log(gave[column].to_numpy())).mean(axis=0)
        surprise = 2 * np.minimum(above, 1 - above)
        odd += gave["row"][surprise < ODD].tolist()
    return list(dict.fromkeys(odd))


def _plan_record(aim: Aim) -> dict[str, Any] | None:
    """The plan as it stands, as JSON holds it."""
    if aim.plan is None:
        return None
    choice = aim.plan.choice
    tokens = math.exp(choice.log_tokens)
    return {
        "tokens": tokens,
        "replay": float(choice.replay),
        "flops": 6 * aim.plan.problem.N * tokens,
        "reaches": aim.plan.is_reached,
        "margin": float(choice.margin),
    }


# -- what to buy -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best list for what is left of the budget: ``picks`` and ``cost`` of each of
    them, cheapest first; ``sds`` of the goal before and after each, in order of worth;
    ``gain`` of all of them, in the unit of the aim's criterion.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    sds: list[float]
    gain: float


def _chosen(
    asked: Asked,
    offered: Menu,
    bought: Bool[np.ndarray, " candidate"],
    aim: Aim,
    left: float,
) -> Chosen:
    on_sale = _on_sale(offered, bought, asked.budget, left)
    approximation = gaussian(on_sale, aim.domains)
    # who has paid for a checkpoint does not pay again
    due = offered.checkpoint_cost.copy()
    due[offered.paid_checkpoints(bought)] = 0.0
    offer = replace(approximation.offer, checkpoint_cost=due)
    criterion = aim.criterion(approximation)
    limits = Limits(left, 1, len(offer.cost))
    picks: list[Pick] = []
    if (offer.cost <= left).any():
        picks = choose(offer, criterion, limits)
    sds = goal_sds(approximation, picks)
    cost = np.array([offer.cost[pick] for pick in picks])
    # before anything is bought the coordinates have unit variance
    start = np.eye(offer.coordinates)
    after = start + sum(offer.information(pick) for pick in picks)
    gain = criterion.value(after) - criterion.value(start)
    # What cheap runs teach may change what the dear ones should be: they go first.
    order = np.argsort(cost, kind="stable")
    return Chosen([picks[i] for i in order], cost[order], sds, gain)


def _on_sale(
    offered: Menu, bought: Bool[np.ndarray, " candidate"], budget: float, left: float
) -> Menu:
    """The menu without what is bought, and without trifles as long as something else
    can be paid for.
    """
    unsold = offered.without(bought)
    trifling = unsold.cost < TRIFLE * budget
    worthwhile = np.where(trifling, np.inf, unsold.cost)
    if not (worthwhile <= left).any():
        return unsold
    return replace(unsold, cost=worthwhile)


def _why_stop(asked: Asked, chosen: Chosen, aim: Aim, is_known: bool) -> str:
    if is_known and chosen.sds[0] <= asked.enough:
        return f"the goal is known to within the {asked.enough:.2%} asked for"
    if not chosen.picks and not len(asked.measured):
        raise PlanError(
            f"budget {asked.budget:g} buys none of the candidates; raise it, or offer "
            "smaller runs"
        )
    if not chosen.picks:
        return "nothing on offer that the rest of the budget pays for adds anything"
    if aim.is_reached and chosen.gain < asked.least * chosen.cost.sum():
        return (
            f"what the rest of the budget pays for would save the plan {chosen.gain:.2g} "
            f"FLOPs and cost {chosen.cost.sum():.2g}"
        )
    if is_known and chosen.sds[-1] > (1 - LEAST_FALL) * chosen.sds[0]:
        return "what the rest of the budget pays for would hardly lower it"
    return ""


def _now(asked: Asked, chosen: Chosen, is_known: bool, spent: float) -> list[Pick]:
    """The part of the list to buy now: of what priors chose, what a first fit needs."""
    count = len(chosen.picks)
    if not is_known:
        most = FIRST * asked.budget - spent
        within = int(np.searchsorted(np.cumsum(chosen.cost), most, "right"))
        needed = max(fewest(laws) for laws in asked.laws.values())
        count = min(max(within, needed), count)
    return chosen.picks[: min(count, asked.batch or count)]


def _rows(
    offered: Menu,
    picks: Sequence[Pick],
    bought: Bool[np.ndarray, " candidate"],
    losses: Sequence[str],
) -> pd.DataFrame:
    """The candidates' rows that these picks measure, in order, with label and cost."""
    places, costs = [], []
    for run, stop in picks:
        for at in range(stop + 1):
            place = int(offered.rows[run, at])
            if not bought[place]:
                places.append(place)
                costs.append(float(offered.cost[run, at]))
    table = offered.table.iloc[places].copy()
    table["cost"] = costs
    labels = offered.table.index[places]
    if "row" in table:
        table = table.drop(columns="row")
    table.insert(0, "row", labels)
    to_fill_in = dict.fromkeys(losses, math.nan)
    return table.assign(**to_fill_in).reset_index(drop=True)
