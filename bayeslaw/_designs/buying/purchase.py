"""What to buy for what is left of a budget, what of it now, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._designs.appraisal import goal_sds
from bayeslaw._designs.buying.asked import Asked
from bayeslaw._designs.buying.knowledge import fewest
from bayeslaw._designs.criteria import Choosing
from bayeslaw._designs.evidence import gaussian
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.goal import Goal
from bayeslaw._designs.goals.kinds import KINDS, Gain
from bayeslaw._designs.menu import Menu
from bayeslaw._designs.search import Limits, choose

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

FIRST = 0.2  # of the budget, at most, for what the priors alone choose
# Of the budget: cheaper runs are left. A law is fitted by itself before its misfit is,
# so that many runs far below the goal bend it: with them forecasts got worse
# (docs/anchors.md).
TRIFLE = 2e-3
LEAST_FALL = 0.05  # of the goal's sd, by which the rest of the budget has to lower it


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best list for what is left of the budget: ``picks`` and ``cost`` of each of
    them, cheapest first; ``sds`` of the goal before and after each, in order of worth;
    ``gain`` of all of them, in the unit of the goal's criterion; ``worthwhile``:
    whether that is more than a trifle of what there is to gain.
    """

    picks: list[Pick]
    cost: Float[np.ndarray, " pick"]
    sds: list[float]
    gain: float
    worthwhile: bool


def list_for(
    asked: Asked,
    offered: Menu,
    bought: Bool[np.ndarray, " candidate"],
    aim: Goal,
    left: float,
) -> Chosen:
    """The best list for what is ``left`` of the budget."""
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
    before, after = precision_of(offer, []), precision_of(offer, picks)
    gain = criterion.value(after) - criterion.value(before)
    # What cheap runs teach may change what the dear ones should be: they go first.
    order = np.argsort(cost, kind="stable")
    if isinstance(criterion, Choosing):
        worthwhile = gain >= LEAST_FALL * criterion.total
    else:
        worthwhile = sds[-1] <= (1 - LEAST_FALL) * sds[0]
    return Chosen([picks[i] for i in order], cost[order], sds, gain, worthwhile)


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


def why_stop(
    asked: Asked, chosen: Chosen, gain: Gain, unsure: float, is_known: bool
) -> str:
    """Why nothing is bought any more, or nothing; ``unsure``: what is to be brought to
    what is enough.
    """
    if is_known and unsure <= asked.enough:
        within = KINDS[gain].shown(asked.enough)
        return f"the goal is known to within the {within} asked for"
    if not chosen.picks and not len(asked.measured):
        raise PlanError(
            f"budget {asked.budget:g} buys none of the candidates; raise it, or offer "
            "smaller runs"
        )
    if not chosen.picks:
        return "nothing on offer that the rest of the budget pays for adds anything"
    if gain == "plan" and chosen.gain < asked.least * chosen.cost.sum():
        unit = "FLOPs" if asked.costs is None else "in money"
        return (
            f"what the rest of the budget pays for would save the plan {chosen.gain:.2g} "
            f"{unit} and cost {chosen.cost.sum():.2g}"
        )
    if is_known and not chosen.worthwhile:
        return "what the rest of the budget pays for would hardly lower it"
    return ""


def to_buy_now(
    asked: Asked, chosen: Chosen, is_known: bool, spent: float
) -> list[Pick]:
    """The part of the list to buy now: of what priors chose, what a first fit needs."""
    count = len(chosen.picks)
    if not is_known:
        most = FIRST * asked.budget - spent
        within = int(np.searchsorted(np.cumsum(chosen.cost), most, "right"))
        needed = max(fewest(laws) for laws in asked.laws.values())
        count = min(max(within, needed), count)
    return chosen.picks[: min(count, asked.batch or count)]


def rows_of(
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
