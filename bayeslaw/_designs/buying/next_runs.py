"""Buy a batch of runs, measure, update, and buy again.

The next purchase is a pure function of the runs on offer and the measured runs. So the
table of measured runs is the only state, and an interrupted sequence goes on where it
was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import check_count
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count, positive
from bayeslaw._costs.costs import Costs, format_days
from bayeslaw._designs.buying.aim import goal_now, planned_region
from bayeslaw._designs.buying.campaign import (
    Campaign,
    as_read,
    losses_of,
    read_measured,
)
from bayeslaw._designs.buying.knowledge import (
    laws_for,
    what_is_known,
)
from bayeslaw._designs.buying.purchase import (
    list_for,
    rows_of,
    to_buy_now,
    why_stop,
)
from bayeslaw._designs.buying.settings import NextArguments
from bayeslaw._designs.goals.goal import Goal, gain_for
from bayeslaw._designs.goals.kinds import KINDS, GainName
from bayeslaw._designs.menu import check_rows, days_of, menu
from bayeslaw._law.law import Law
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.compare import at_reference
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import Posterior, is_prior_only
from bayeslaw._posteriors.prior import from_priors
from bayeslaw._tables.rows.naming import check_repeated
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool


@dataclass(frozen=True, eq=False)
class NextRuns:
    """The next runs to buy, and the posterior before they are bought.

    Parameters
    ----------
    runs
        Rows of the candidates to measure now, cheapest first; empty if ``stop`` has a
        reason. ``row`` is the label of the row among the candidates, ``cost`` the cost
        of the run up to the row. Fill in ``loss``, and for a plan ``source_loss``.
    goal_sd
        Present sd of the goal's log losses (root mean square over its runs, or over the
        limited losses of a plan).
    goal_sd_after
        The same after all runs chosen for the rest of the budget are measured.
    spent, budget
        In the unit of the costs.
    stop
        Reason why nothing more is bought; empty otherwise.
    odd
        Rows of measured runs with losses that the posterior did not expect.
    failed
        Rows that were bought and gave no loss.
    posterior
        The present posterior: a `Fit`, an `Average`, or the priors; for a plan, of its
        target.
    source
        The same for a plan's source; None for a forecast.
    plan
        For a plan: the present choice, if the posterior allows one: ``tokens``,
        ``replay``, ``flops``, and whether it ``reaches`` the confidence. If it does
        not, it is the most probable choice, and ``margin`` tells by how much it is
        short.
    choice
        For gains ``best`` and ``law``: the option that is ``best`` on average, the
        ``chance`` that it is the best, and its ``regret``, as in `Anchors`.
    gain
        Kind of gain for which runs are bought now.
    days
        Days until the runs to measure now are done, if costs are known.
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
    choice: dict[str, Any] | None
    gain: GainName
    campaign: Campaign
    days: float | None = None

    def update(self, rows: pd.DataFrame) -> NextRuns:
        """Find the next purchase after these rows are measured, too: the rows of
        ``runs`` with their losses, and NaN for a failed run.
        """
        # before the first batch there is a table without rows, whose columns have no
        # type
        batches = [table for table in (self.campaign.measured, rows) if len(table)]
        all_rows = pd.concat(batches, ignore_index=True) if batches else None
        columns = losses_of(self.campaign.goal)
        measured = read_measured(self.campaign.candidates, all_rows, columns)
        return _choose_batch(replace(self.campaign, measured=measured))

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return {
            "rows": self.runs["row"].tolist(),
            "goal_sd": self.goal_sd,
            "goal_sd_after": self.goal_sd_after,
            "spent": self.spent,
            "budget": self.budget,
            "stop": self.stop,
            "odd": self.odd,
            "failed": self.failed,
            "known_from": "priors"
            if is_prior_only(self.posterior)
            else self.posterior.name,
            "plan": self.plan,
            "choice": self.choice,
            "gain": self.gain,
            "days": self.days,
        }

    def table(self) -> pd.DataFrame:
        """Show a line for each row to measure."""
        table = self.runs.drop(columns=[*losses_of(self.campaign.goal).values()])
        counts = [c for c in ("N", "D", "U") if c in table]
        table[counts] = table[counts].map(format_count)
        table["cost"] = [f"{cost:.3g}" for cost in table["cost"]]
        return table

    def sentence(self) -> str:
        """Describe the answer in words."""
        kind = KINDS[self.gain]
        now = (
            f"{kind.sd_of} is {kind.shown(self.goal_sd)}{kind.of_what}"
            f"{self._describe_plan()}{self._describe_choice()}"
        )
        if self.stop:
            return f"Buy nothing more: {self.stop}; {now}."
        count = self.runs["run"].nunique() if "run" in self.runs else len(self.runs)
        return (
            f"Measure these {count} run{'s' * (count > 1)}{self._describe_days()} and come back; "
            f"{now}, {kind.shown(self.goal_sd_after)} expected once the budget of "
            f"{self.budget:.3g} is spent ({self.spent:.3g} so far)."
        )

    def _describe_days(self) -> str:
        return "" if self.days is None else f" (done in {format_days(self.days)})"

    def _describe_choice(self) -> str:
        if self.choice is None:
            return ""
        return f" ({self.choice['best']} is best by {self.choice['chance']:.0%})"

    def _describe_plan(self) -> str:
        if self.plan is None:
            return ""
        tokens, replay = self.plan["tokens"], self.plan["replay"]
        which = (
            "the plan" if self.plan["reaches"] else "no plan is sure enough, the best"
        )
        return f" ({which}: D {format_count(tokens)}, replay {replay:.2f})"


@takes(NextArguments)
def next_runs(arguments: NextArguments) -> NextRuns:
    """Choose the runs on offer to buy next, from nothing or from measured runs.

    With priors alone, at most a fifth of the budget is spent, on as many runs as a law
    needs for a fit. Then laws are averaged on the measured runs, and the best list for
    the rest of the budget is bought: whole, or its cheapest runs first. For a plan the
    best list is the one that lowers the plan's cost most. While no plan reaches its
    confidence, it is the list that lowers the variance of the limited losses most, at the
    most probable plan.

    Parameters
    ----------
    candidates
        Runs on offer, as for `anchors`; a column ``loss`` is ignored.
    goal
        Runs to forecast, with the columns that the laws read; or a plan: the keyword
        arguments of `plan` for one model.
    budget
        Budget of the whole sequence, in the unit of the costs.
    measured
        Rows bought so far: ``row`` (their label among the candidates) and ``loss``, for
        a plan also ``source_loss``; NaN for a run that failed, which is paid for and
        not bought again.
    laws, source_laws
        Laws of the target and of a plan's source; by default those that suit the candidates'
        columns.
    batch
        Most runs to buy at once; by default all chosen ones.
    enough
        Sd of the goal at which to stop. For gains ``best`` and ``law`` it is the
        regret: in log loss, or the probability that the most probable law is wrong.
    least
        For a plan: FLOPs that the rest of the list must save for each unit of its cost.
    gain
        Kind of gain for runs to forecast, as in `anchors`: ``variance``, ``best``,
        ``law`` (``variance`` until several laws can be fitted) or ``optimum``.
    reference
        Columns of the laws' reference run to replace, for the laws that read them.
    seed
        Same seed, same machine: same runs.
    costs
        Costs of training, as in `anchors`. If several runs train side by side, that
        many are bought at once, unless ``batch`` is given.

    Raises
    ------
    RunTableError
        A table lacks a column, or a measured row is not among the candidates.
    LawError
        A law is unknown, or none suits the columns.
    PlanError
        The budget buys nothing, a setting is out of range, or the plan is ill-posed.

    Examples
    --------
    >>> offer = bayeslaw.candidates(of_target, replay=[0.1, 0.5], atpp=[1, 5, 20])
    >>> now = bayeslaw.next_runs(offer, large, budget=1e20, laws=["dcpt"])
    >>> bool(now.runs["loss"].isna().all())  # to be measured
    True
    """
    candidates, goal = arguments.candidates, arguments.goal
    columns = losses_of(goal)
    gain = gain_for(arguments.gain, goal, FORGETTING in columns)
    _check_arguments(candidates, arguments, columns)
    losses = [*columns.values()]
    offered = as_runs(candidates.drop(columns=losses, errors="ignore"))
    costs = arguments.costs
    if isinstance(goal, pd.DataFrame):
        goal = as_runs(goal.drop(columns="loss", errors="ignore"))
    else:
        costs = costs or goal.get("costs")
        goal = {**goal, "costs": costs}
    laws = _find_laws(offered, arguments, [*columns])
    _check_readable(offered, goal, laws)
    campaign = Campaign(
        candidates=offered,
        goal=goal,
        budget=positive("budget", arguments.budget),
        measured=read_measured(offered, arguments.measured, columns),
        laws=laws,
        batch=arguments.batch or _choose_batch_size(costs),
        enough=arguments.enough,
        least=arguments.least,
        gain=gain,
        seed=arguments.seed,
        costs=costs,
    )
    return _choose_batch(campaign)


def _choose_batch_size(costs: Costs | None) -> int | None:
    """Choose the number of runs to buy at once: as many as train side by side, if more
    than one.
    """
    return costs.side_by_side if costs and costs.side_by_side > 1 else None


def _check_arguments(
    candidates: pd.DataFrame, arguments: NextArguments, columns: Mapping[str, str]
) -> None:
    """Refuse a wrong batch size, columns of one name, candidates that share a row
    number, and source laws without a plan.
    """
    if arguments.batch is not None:
        check_count("batch", arguments.batch)
    for table in (candidates, arguments.goal):
        if isinstance(table, pd.DataFrame):
            check_repeated(table.columns)
    check_rows(candidates)
    if arguments.source_laws is not None and FORGETTING not in columns:
        raise PlanError("source_laws are of a plan's source, and a forecast has none")


def _check_readable(
    offered: pd.DataFrame,
    goal: pd.DataFrame | Mapping[str, Any],
    laws: Mapping[str, Sequence[Law]],
) -> None:
    """Refuse runs on offer or to forecast without the columns that laws read, and a
    plan without a keyword, before measured runs are fitted.
    """
    menu(offered)  # checks costs, and that runs can be told apart
    tables = {"the table of candidates": offered}
    if isinstance(goal, pd.DataFrame):
        tables["the goal's table"] = goal
    else:
        planned_region(goal, offered)
    for domain, of_domain in laws.items():
        names = dict.fromkeys(column for law in of_domain for column in law.covariates)
        for what, table in tables.items():
            check_readable(as_read(table, domain), names, what)


def _find_laws(
    offered: pd.DataFrame, arguments: NextArguments, domains: Sequence[str]
) -> dict[str, tuple[Law, ...]]:
    """Find the laws of each domain, restated at the given reference run."""
    wanted = {TARGET: arguments.laws, FORGETTING: arguments.source_laws}
    laws_of = {
        domain: laws_for(as_read(offered, domain), wanted[domain]) for domain in domains
    }
    every = [law for laws in laws_of.values() for law in laws]
    placed = iter(at_reference(every, arguments.reference or {}))
    return {domain: tuple(islice(placed, len(laws_of[domain]))) for domain in laws_of}


# -- what is known ---------------------------------------------------------------------


def _choose_batch(campaign: Campaign) -> NextRuns:
    """Choose the next batch: update the posteriors, find the best list for the rest of
    the budget, and decide whether to stop.
    """
    runtime.start()
    bought = campaign.candidates.index.isin(campaign.measured["row"])
    posteriors = {
        domain: _build_posterior(campaign, bought, domain) for domain in campaign.laws
    }
    offered = menu(campaign.candidates, campaign.costs)
    spent = offered.price(bought)
    aim = goal_now(campaign, posteriors, offered)
    unsold = offered.without(bought)
    chosen = list_for(campaign, unsold, aim, campaign.budget - spent)
    is_known = not any(is_prior_only(p) for p in posteriors.values())
    choice = None if aim.options is None else aim.options.now()
    unsure = chosen.sds[0] if choice is None else choice["regret"]
    stop = why_stop(campaign, chosen, aim.gain, unsure, is_known)
    now = [] if stop else to_buy_now(campaign, chosen, is_known, spent)
    costs = campaign.costs
    days = None if costs is None else days_of(unsold, now, costs)
    losses = [*losses_of(campaign.goal).values()]
    measured = campaign.measured
    gave_none = measured[losses].isna().any(axis=1)
    failed = measured["row"][gave_none]
    return NextRuns(
        runs=rows_of(offered, unsold, now, losses),
        goal_sd=chosen.sds[0],
        goal_sd_after=chosen.sds[-1],
        spent=spent,
        budget=campaign.budget,
        stop=stop,
        odd=_find_odd_runs(campaign, posteriors),
        failed=failed.tolist(),
        posterior=posteriors[TARGET],
        source=posteriors.get(FORGETTING),
        plan=_record_plan(aim),
        choice=choice,
        gain=aim.gain,
        campaign=campaign,
        days=days,
    )


def _build_posterior(
    campaign: Campaign, bought: Bool[np.ndarray, " candidate"], domain: str
) -> Posterior:
    column = losses_of(campaign.goal)[domain]
    gave = campaign.measured.dropna(subset=column)
    candidates, laws = campaign.table(domain), campaign.laws[domain]
    if not len(gave):
        return from_priors(laws, candidates, campaign.seed)
    losses = gave[column]
    measured = candidates.loc[gave["row"]].assign(loss=losses.to_numpy())
    # runs on offer stay in the table, so that all batches share compiled programs
    unmeasured = candidates[~bought].assign(loss=float(losses.median()))
    table = pd.concat([measured, unmeasured], ignore_index=True)
    is_measured = np.arange(len(table)) < len(measured)
    return what_is_known(table, is_measured, laws, campaign.seed)


def _find_odd_runs(
    campaign: Campaign, posteriors: Mapping[str, Posterior]
) -> list[Any]:
    """Find measured runs with losses outside their forecasts."""
    odd = []
    for domain, column in losses_of(campaign.goal).items():
        gave = campaign.measured.dropna(subset=column)
        posterior = posteriors[domain]
        if not len(gave) or is_prior_only(posterior):
            continue
        runs = campaign.table(domain).loc[gave["row"]].reset_index(drop=True)
        draws = posterior.log_loss(runs, noise=True, seed=campaign.seed)
        # share of the forecast on the far side of the measured loss, times two sides
        above = (draws > np.log(gave[column].to_numpy())).mean(axis=0)
        surprise = 2 * np.minimum(above, 1 - above)
        odd += gave["row"][surprise < campaign.rules.odd].tolist()
    return list(dict.fromkeys(odd))


def _record_plan(aim: Goal) -> dict[str, Any] | None:
    if aim.plan is None:
        return None
    choice = aim.plan.choice
    tokens = math.exp(choice.log_tokens)
    return {
        "tokens": tokens,
        "replay": float(choice.replay),
        "flops": aim.plan.problem.costs.flops_per_token(aim.plan.problem.N) * tokens,
        "reaches": aim.plan.is_reached,
        "margin": float(choice.margin),
    }
