"""Buy a batch of runs, measure, update, and buy again.

The next purchase is a pure function of the runs on offer and the measured runs. So the
table of measured runs is the only state, and an interrupted sequence goes on where it
was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.frames import as_frame
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count, format_many
from bayeslaw._base.schema import LABEL
from bayeslaw._base.shown import InJson
from bayeslaw._costs.costs import format_days
from bayeslaw._designs.appraisal import Appraisal, Market, appraise_picks
from bayeslaw._designs.buying.campaign import (
    NextArguments,
    fewest,
    goal_now,
    planned_region,
    what_is_known,
)
from bayeslaw._designs.criteria import Choosing
from bayeslaw._designs.evidence import as_read
from bayeslaw._designs.gaussian import Pick
from bayeslaw._designs.goals.goal import CHOSEN, KINDS, GainName, gain_for, read_goal
from bayeslaw._designs.menu import Menu, check_rows, days_of, menu
from bayeslaw._designs.search import Limits, choose
from bayeslaw._law.law import covariates_read
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.compare import at_reference
from bayeslaw._posteriors.outcomes import check_readable
from bayeslaw._posteriors.posterior import Posterior, is_prior_only
from bayeslaw._posteriors.prior import from_priors
from bayeslaw._tables.rows.naming import check_repeated
from bayeslaw._tables.runs import as_runs

if TYPE_CHECKING:
    from jaxtyping import Bool

FIRST_SHARE = 0.2  # largest share of the budget for runs chosen by the priors alone
# Share of the budget below which a run is not offered. A law is fitted before its misfit,
# so many small runs, far from the goal, distort the law. With such runs forecasts got
# worse (docs/anchors.md).
TRIFLE = 2e-3
LEAST_FALL = 0.05  # share by which the rest of the budget must lower the goal's sd
ODD = 1e-3  # a loss is odd if one at least as far from its forecast is less probable


@dataclass(frozen=True, eq=False)
class NextRuns(InJson):
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
    campaign: NextArguments
    days: float | None = None

    KEYS: ClassVar = {
        "rows odd failed": list[LABEL],
        "goal_sd goal_sd_after spent budget stop gain days": ...,
        "known_from": (str, "Name of the posterior; priors before the first batch."),
        "plan": {"tokens replay flops margin": float, "reaches": bool},
        "choice": CHOSEN,
    }

    def update(self, rows: pd.DataFrame) -> NextRuns:
        """Find the next purchase after these rows are measured, too: the rows of
        ``runs`` with their losses, and NaN for a failed run.
        """
        # before the first batch there is a table without rows, whose columns have no
        # type
        batches = [table for table in (self.campaign.bought, rows) if len(table)]
        measured = pd.concat(batches, ignore_index=True) if batches else None
        return _choose_batch(replace(self.campaign, measured=measured))

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        name = "priors" if is_prior_only(self.posterior) else self.posterior.name
        more = {"rows": self.runs["row"].tolist(), "known_from": name}
        return super().to_dict() | more

    def table(self) -> pd.DataFrame:
        """Show a line for each row to measure."""
        table = self.runs.drop(columns=[*self.campaign.losses.values()])
        counts = [c for c in ("N", "D", "U") if c in table]
        table[counts] = table[counts].map(format_count)
        table["cost"] = [f"{cost:.3g}" for cost in table["cost"]]
        return table

    def sentence(self) -> str:
        """Describe the answer in words."""
        kind = KINDS[self.gain]
        now = f"{kind.sd_of} is {kind.shown(self.goal_sd)}{kind.of_what}"
        if self.plan is not None:
            best = "no plan is sure enough, the best"
            tokens, replay = self.plan["tokens"], self.plan["replay"]
            what = "the plan" if self.plan["reaches"] else best
            now += f" ({what}: D {format_count(tokens)}, replay {replay:.2f})"
        if self.choice is not None:
            now += f" ({self.choice['best']} is best by {self.choice['chance']:.0%})"
        if self.stop:
            return f"Buy nothing more: {self.stop}; {now}."
        count = self.runs["run"].nunique() if "run" in self.runs else len(self.runs)
        days = "" if self.days is None else f" (done in {format_days(self.days)})"
        return (
            f"Measure these {format_many(count, 'run')}{days} and come back; "
            f"{now}, {kind.shown(self.goal_sd_after)} expected once the budget of "
            f"{self.budget:.3g} is spent ({self.spent:.3g} so far)."
        )


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
        Sd of the goal at which to stop, also as text (``"1%"``). For gains ``best`` and
        ``law`` it is the regret: in log loss, or the probability that the most probable
        law is wrong.
    least
        For a plan: FLOPs that the rest of the list must save for each unit of its cost.
    gain
        Kind of gain for runs to forecast, as in `anchors`: ``variance``, ``best``,
        ``law`` (``variance`` until several laws can be fitted) or ``optimum``.
    reference
        As for `fit`, for the laws that read these columns.
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
    arguments = replace(
        arguments,
        candidates=as_frame(arguments.candidates),
        goal=as_frame(arguments.goal),
        measured=as_frame(arguments.measured),
    )
    candidates, goal = arguments.candidates, arguments.goal
    losses = arguments.losses
    gain = gain_for(arguments.gain, goal, FORGETTING in losses)
    for table in (candidates, goal):
        if isinstance(table, pd.DataFrame):
            check_repeated(table.columns)
    check_rows(candidates)
    if arguments.source_laws is not None and FORGETTING not in losses:
        raise PlanError("source_laws are of a plan's source, and a forecast has none")
    offered = as_runs(candidates.drop(columns=[*losses.values()], errors="ignore"))
    if isinstance(goal, pd.DataFrame):
        goal = goal.drop(columns="loss", errors="ignore")
    goal, costs = read_goal(goal, arguments.costs)
    campaign = replace(arguments, candidates=offered, goal=goal, costs=costs, gain=gain)
    # the laws of each domain, restated at the given reference run
    of_target, *of_source = [campaign.laws_of(domain) for domain in losses]
    placed = at_reference([*of_target, *chain(*of_source)], arguments.reference or {})
    count = len(of_target)
    campaign = replace(campaign, laws=placed[:count], source_laws=placed[count:])
    # refuse runs that laws cannot read, and a plan without a keyword, before fits
    menu(offered)  # checks costs, and that runs can be told apart
    tables = {"the table of candidates": offered}
    if isinstance(goal, pd.DataFrame):
        tables["the goal's table"] = goal
    else:
        planned_region(goal, offered)
    for name in losses:
        laws = campaign.laws_of(name)
        for what, table in tables.items():
            read = covariates_read(laws, there=table)
            check_readable(as_read(table, name), read, what)
    # as many runs at once as train side by side, if more than one
    side_by_side = costs.side_by_side if costs and costs.side_by_side > 1 else None
    return _choose_batch(replace(campaign, batch=arguments.batch or side_by_side))


# -- the next batch --------------------------------------------------------------------


def _choose_batch(campaign: NextArguments) -> NextRuns:
    """Choose the next batch: posteriors, the best list, whether to stop."""
    measured, costs = campaign.bought, campaign.costs
    losses = campaign.losses
    runtime.start()
    bought = campaign.candidates.index.isin(measured["row"])
    posteriors = {name: _build_posterior(campaign, bought, name) for name in losses}
    is_known = not any(is_prior_only(p) for p in posteriors.values())
    offered = menu(campaign.candidates, costs)
    spent = offered.price(bought)
    aim = goal_now(campaign, posteriors, offered)
    unsold = offered.without(bought)
    # The best list for the rest of the budget. Runs that cost a trifle are not offered,
    # as long as other runs are affordable.
    remaining = campaign.budget - spent
    dear = np.where(unsold.cost < TRIFLE * campaign.budget, np.inf, unsold.cost)
    if (dear <= remaining).any():
        unsold = replace(unsold, cost=dear)
    market = Market.of(unsold, aim)
    offer, picks = market.offer, []
    if (offer.cost <= remaining).any():
        limits = Limits(remaining, 1, len(offer.cost))
        picks = choose(offer, market.criterion, limits)
    rest = appraise_picks(market, picks)
    choice = None if aim.options is None else aim.options.now()
    unsure = rest.sds[0] if choice is None else choice["regret"]
    if is_known and unsure <= campaign.enough:
        within = KINDS[aim.gain].shown(campaign.enough)
        stop = f"the goal is known to within the {within} asked for"
    else:
        stop = _why_not_buy(campaign, market, rest, is_known, spent)
    # What to buy now: cheap runs go first, since their results may change the choice of
    # expensive ones. If only priors are known, the runs that a first fit needs.
    ordered = sorted(picks, key=lambda pick: offer.cost[pick])
    count = 0 if stop else len(ordered)
    if not is_known:
        most = FIRST_SHARE * campaign.budget - spent
        prices = [offer.price_picks(ordered[: k + 1]) for k in range(len(ordered))]
        within = int(np.searchsorted(prices, most, "right"))
        needed = max(fewest(campaign.laws_of(domain)) for domain in losses)
        count = min(max(within, needed), count)
    now = ordered[: min(count, campaign.batch or count)]
    gave_none = measured[[*losses.values()]].isna().any(axis=1)
    return NextRuns(
        runs=_list_rows(offered, unsold, now, losses.values()),
        goal_sd=rest.sds[0],
        goal_sd_after=rest.sds[-1],
        spent=spent,
        budget=campaign.budget,
        stop=stop,
        odd=_find_odd_runs(campaign, posteriors),
        failed=measured["row"][gave_none].tolist(),
        posterior=posteriors[TARGET],
        source=posteriors.get(FORGETTING),
        plan=None if aim.plan is None else aim.plan.describe_now(),
        choice=choice,
        gain=aim.gain,
        campaign=campaign,
        days=None if costs is None else days_of(unsold, now, costs),
    )


def _build_posterior(
    campaign: NextArguments, bought: Bool[np.ndarray, " candidate"], domain: str
) -> Posterior:
    candidates, laws = campaign.table(domain), campaign.laws_of(domain)
    measured = campaign.measured_in(domain)
    if measured.empty:
        return from_priors(laws, candidates, campaign.seed)
    # runs on offer stay in the table, so that all batches share compiled programs
    unmeasured = candidates[~bought].assign(loss=float(measured["loss"].median()))
    table = pd.concat([measured, unmeasured], ignore_index=True)
    is_measured = np.arange(len(table)) < len(measured)
    return what_is_known(table, is_measured, laws, campaign.seed)


def _find_odd_runs(
    campaign: NextArguments, posteriors: Mapping[str, Posterior]
) -> list[Any]:
    """Find measured runs with losses outside their forecasts."""
    odd = []
    for domain, posterior in posteriors.items():
        runs = campaign.measured_in(domain)
        if runs.empty or is_prior_only(posterior):
            continue
        settings = runs.drop(columns="loss").reset_index(drop=True)
        draws = posterior.log_loss(settings, noise=True, seed=campaign.seed)
        # share of the forecast on the far side of the measured loss, times two sides
        above = (draws > np.log(runs["loss"].to_numpy())).mean(axis=0)
        surprise = 2 * np.minimum(above, 1 - above)
        odd += runs.index[surprise < ODD].tolist()
    return list(dict.fromkeys(odd))


def _why_not_buy(
    campaign: NextArguments,
    market: Market,
    rest: Appraisal,
    is_known: bool,
    spent: float,
) -> str:
    """Say why the best list for the rest of the budget is not bought, if so."""
    if not rest.picks and not len(campaign.bought):
        raise PlanError(
            f"budget {campaign.budget:g} buys none of the candidates; raise it, or offer "
            "smaller runs"
        )
    if spent >= campaign.budget:
        return (
            f"what was measured cost {spent:.3g}, the budget is {campaign.budget:.3g}"
        )
    if not rest.picks:
        return "nothing on offer that the rest of the budget pays for adds anything"
    gain, cost = rest.gain.sum(), rest.cost.sum()
    if market.goal.gain == "plan" and gain < campaign.least * cost:
        unit = "FLOPs" if campaign.costs is None else "in money"
        return (
            f"what the rest of the budget pays for would save the plan {gain:.2g} "
            f"{unit} and cost {cost:.2g}"
        )
    hardly_lower = rest.sds[-1] > (1 - LEAST_FALL) * rest.sds[0]
    if isinstance(market.criterion, Choosing):
        hardly_lower = gain < LEAST_FALL * market.criterion.total
    if is_known and hardly_lower:
        return "what the rest of the budget pays for would hardly lower it"
    return ""


def _list_rows(
    offered: Menu, unsold: Menu, picks: Sequence[Pick], losses: Iterable[str]
) -> pd.DataFrame:
    """List the rows of the candidates that these picks measure, in order, with the
    row's label and the cost of its run up to the row.
    """
    exists = offered.rows >= 0
    costs = np.zeros(len(offered.table))
    costs[offered.rows[exists]] = offered.cost[exists]
    every = offered.table.assign(cost=costs, **dict.fromkeys(losses, math.nan))
    places = [place for pick in picks for place in unsold.measured_by(pick)]
    table = every.drop(columns="row", errors="ignore").iloc[places]
    return table.rename_axis("row").reset_index()
