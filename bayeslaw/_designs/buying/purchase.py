"""Choose the list for the rest of a budget, the part to buy now, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._designs.appraisal import goal_sds
from bayeslaw._designs.buying.campaign import Campaign
from bayeslaw._designs.buying.knowledge import fewest
from bayeslaw._designs.criteria import Choosing
from bayeslaw._designs.evidence import gaussian
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.goal import Goal
from bayeslaw._designs.goals.kinds import KINDS, GainName
from bayeslaw._designs.menu import Menu
from bayeslaw._designs.search import Limits, choose

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best list for the rest of the budget.

    ``picks`` and their ``cost`` are sorted by cost, cheapest first. ``sds`` are the sd
    of the goal before the first and after each pick, in order of worth. ``gain`` is
    that of all picks together, in the unit of the goal's criterion. ``worthwhile``
    tells whether the gain is more than a trifle of the possible gain.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    sds: list[float]
    gain: float
    worthwhile: bool


def list_for(campaign: Campaign, unsold: Menu, aim: Goal, remaining: float) -> Chosen:
    """Find the best list for the ``remaining`` budget."""
    trifle = campaign.rules.trifle * campaign.budget
    approximation = gaussian(_drop_trifles(unsold, trifle, remaining), aim.domains)
    offer = approximation.offer
    criterion = aim.criterion(approximation)
    limits = Limits(remaining, 1, len(offer.cost))
    picks: list[Pick] = []
    if (offer.cost <= remaining).any():
        picks = choose(offer, criterion, limits)
    sds = goal_sds(approximation, picks)
    cost = np.array([offer.cost[pick] for pick in picks])
    # before anything is bought the coordinates have unit variance
    before, after = precision_of(offer, []), precision_of(offer, picks)
    gain = criterion.value(after) - criterion.value(before)
    # Cheap runs go first, since their results may change the choice of expensive ones.
    order = np.argsort(cost, kind="stable")
    least_fall = campaign.rules.least_fall
    if isinstance(criterion, Choosing):
        worthwhile = gain >= least_fall * criterion.total
    else:
        worthwhile = sds[-1] <= (1 - least_fall) * sds[0]
    return Chosen([picks[i] for i in order], cost[order], sds, gain, worthwhile)


def _drop_trifles(unsold: Menu, trifle: float, remaining: float) -> Menu:
    """Take runs that cost less than ``trifle`` off the menu, as long as other runs are
    affordable.
    """
    worthwhile = np.where(unsold.cost < trifle, np.inf, unsold.cost)
    if not (worthwhile <= remaining).any():
        return unsold
    return replace(unsold, cost=worthwhile)


def why_stop(
    campaign: Campaign, chosen: Chosen, gain: GainName, unsure: float, is_known: bool
) -> str:
    """Give the reason why nothing more is bought, or None. ``unsure`` is the measure of
    uncertainty that must fall to ``enough``.
    """
    if is_known and unsure <= campaign.enough:
        within = KINDS[gain].shown(campaign.enough)
        return f"the goal is known to within the {within} asked for"
    if not chosen.picks and not len(campaign.measured):
        raise PlanError(
            f"budget {campaign.budget:g} buys none of the candidates; raise it, or offer "
            "smaller runs"
        )
    if not chosen.picks:
        return "nothing on offer that the rest of the budget pays for adds anything"
    if gain == "plan" and chosen.gain < campaign.least * chosen.cost.sum():
        unit = "FLOPs" if campaign.costs is None else "in money"
        return (
            f"what the rest of the budget pays for would save the plan {chosen.gain:.2g} "
            f"{unit} and cost {chosen.cost.sum():.2g}"
        )
    if is_known and not chosen.worthwhile:
        return "what the rest of the budget pays for would hardly lower it"
    return ""


def to_buy_now(
    campaign: Campaign, chosen: Chosen, is_known: bool, spent: float
) -> list[Pick]:
    """Select the part of the list to buy now. If only priors are known, it is the runs
    that a first fit needs.
    """
    count = len(chosen.picks)
    if not is_known:
        most = campaign.rules.first_share * campaign.budget - spent
        within = int(np.searchsorted(np.cumsum(chosen.cost), most, "right"))
        needed = max(fewest(laws) for laws in campaign.laws.values())
        count = min(max(within, needed), count)
    return chosen.picks[: min(count, campaign.batch or count)]


def rows_of(
    offered: Menu, unsold: Menu, picks: Sequence[Pick], losses: Sequence[str]
) -> pd.DataFrame:
    """List the rows of the candidates that these picks measure, in order, with the
    row's label and the cost of its run up to the row.
    """
    measured = [unsold.measured_by(pick) for pick in picks]
    places = np.concatenate([np.zeros(0, int), *measured])
    costs = np.zeros(len(offered.table))
    exists = offered.rows >= 0
    costs[offered.rows[exists]] = offered.cost[exists]
    table = offered.table.iloc[places].copy()
    table["cost"] = costs[places]
    labels = offered.table.index[places]
    if "row" in table:
        table = table.drop(columns="row")
    table.insert(0, "row", labels)
    to_fill_in = dict.fromkeys(losses, math.nan)
    return table.assign(**to_fill_in).reset_index(drop=True)
