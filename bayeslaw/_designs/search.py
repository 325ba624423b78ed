"""Search for the best set of runs within a budget: greedy searches by gain over powers
of cost, then exchanges.

Choosing a set under a budget is a knapsack problem. Greedy by gain per cost prefers
many cheap runs; greedy by gain prefers a few expensive ones. If the gain of a run only
falls as the set grows (a submodular gain), the better of both comes near the best set
(Leskovec et al. 2007), and so does greedy from every first run (Sviridenko 2004). If
two runs can gain more together, powers of cost between 0 and 1 help, and exchanges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._designs.criteria import Criterion
from bayeslaw._designs.gaussian import Offer, Pick, precision_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

# powers of the cost by which greedy searches divide gains; fewer for many searches
POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)
FEWER_POWERS = POWERS[::2]
SHORT_MENU = 30  # most affordable picks of a menu of which each is tried as the first
SHORT_LIST = 10  # most picks of a list from which pairs are dropped, too
SWEEPS = 3  # most sweeps over the list; a sweep drops each pick in turn and buys again
LEAST_CHANGE = 1e-9  # share by which the gain of a new list must be larger
LEAST_SWEEP = 1e-3  # a sweep is the last if it raises the gain by a smaller share


class Limits(NamedTuple):
    """Limits of a list: budget, how often each run may be bought up to each stop (one
    number, or shape (run, stop)), and number of picks.
    """

    budget: float
    replicates: int | Int[np.ndarray, "run _"]
    picks: int

    def allow(self, offer: Offer, picks: Sequence[Pick]) -> Bool[np.ndarray, "run _"]:
        """Tell which runs may be bought once more."""
        counts = np.bincount([run for run, _ in picks], minlength=len(offer.cost))
        return counts[:, None] < self.replicates


def choose(offer: Offer, criterion: Criterion, limits: Limits) -> list[Pick]:
    """Search the best set of runs, greedily, then by exchanges; in order of worth."""
    starts = [greedy(offer, criterion, limits, power) for power in POWERS]
    # several runs may be worth a checkpoint although no single run is
    cost = offer.checkpoint_cost
    starts += [
        greedy(offer, criterion, limits, power, paid=checkpoint)
        for checkpoint in np.flatnonzero((cost > 0) & (cost < limits.budget)).tolist()
        for power in FEWER_POWERS
    ]
    affordable = np.argwhere(offer.due() <= limits.budget)
    if max(map(len, starts)) <= SHORT_LIST and len(affordable) <= SHORT_MENU:
        # each as the first pick (Sviridenko 2004); plain numbers, to be sorted
        starts += [
            greedy(offer, criterion, limits, power, bought=[(int(run), int(stop))])
            for run, stop in affordable
            for power in FEWER_POWERS
        ]
    best = max(starts, key=lambda picks: criterion.value(precision_of(offer, picks)))
    exchanged = exchange(offer, criterion, limits, best)
    return order_by_worth(offer, criterion, exchanged)


def greedy(
    offer: Offer,
    criterion: Criterion,
    limits: Limits,
    power: float,
    *,
    bought: Sequence[Pick] = (),
    paid: int | None = None,
) -> list[Pick]:
    """Buy the step with the largest gain / cost**power while the budget lasts. Returns
    the best list on the way.

    A step buys another run, or continues a run of the list to a later stop at the
    difference in cost. Steps are not taken if their gain is NaN or may be a rounding
    error. ``bought`` is the list so far, and ``paid`` a checkpoint to pay for first.
    """
    picks, precision = list(bought), precision_of(offer, bought)
    used = offer.checkpoints_of(picks)
    spent = offer.price_picks(picks)
    if paid is not None and paid not in used:
        used.add(paid)
        spent += offer.checkpoint_cost[paid]
    best, worth = picks, criterion.value(precision)
    while True:
        # sums of costs may miss the budget by rounding
        remaining = (limits.budget - spent) * (1 + 1e-12)
        # another run, if the limits allow it, or a later stop of a run in the list
        is_allowed = limits.allow(offer, picks) & (len(picks) < limits.picks)
        shops = [(offer, np.where(is_allowed, offer.due(used), np.inf))]
        begun = list(dict.fromkeys(picks))
        if begun and offer.cost.shape[1] > 1:
            rest = offer.going_on(begun)
            shops.append((rest, rest.cost))
        steps = []
        for shop, cost in shops:
            possible = cost <= remaining
            if not possible.any():
                continue
            gains = criterion.gains(precision, shop)
            # A negative gain counts, since the next run may make up for it; NaN does not.
            possible &= np.abs(gains) > criterion.rounding
            if not possible.any():
                continue
            scores = np.where(
                possible, gains / np.maximum(cost, offer.trifle) ** power, -np.inf
            )
            run, stop = map(int, np.unravel_index(np.argmax(scores), cost.shape))
            steps.append((scores[run, stop], shop, (run, stop), cost[run, stop]))
        if not steps:
            return best
        _, shop, (run, stop), price = max(steps, key=lambda step: step[0])
        if shop is offer:
            picks = [*picks, (run, stop)]
        else:
            place = picks.index(begun[run])
            picks = [*picks[:place], (begun[run][0], stop), *picks[place + 1 :]]
        precision = precision + shop.information((run, stop))
        used |= offer.checkpoints_of(picks)
        spent += price
        # gains for a plan can be negative on the way, so keep the best list
        if (value := criterion.value(precision)) > worth:
            best, worth = picks, value


def exchange(
    offer: Offer, criterion: Criterion, limits: Limits, picks: Sequence[Pick]
) -> list[Pick]:
    """Drop each pick, or pair, and spend its cost anew, while that improves."""
    best, worth = list(picks), criterion.value(precision_of(offer, picks))
    for _ in range(SWEEPS):
        before = worth
        drops = [(pick,) for pick in sorted(set(best))]
        if len(best) <= SHORT_LIST:
            drops += sorted(set(combinations(sorted(best), 2)))
        for dropped in drops:
            if Counter(dropped) - Counter(best):
                continue  # sold already
            remaining = list((Counter(best) - Counter(dropped)).elements())
            for power in FEWER_POWERS:
                rebought = greedy(offer, criterion, limits, power, bought=remaining)
                value = criterion.value(precision_of(offer, rebought))
                if value > worth * (1 + LEAST_CHANGE):
                    best, worth = rebought, value
        if worth <= before * (1 + LEAST_SWEEP):
            break
    return best


def order_by_worth(
    offer: Offer, criterion: Criterion, picks: Sequence[Pick]
) -> list[Pick]:
    """Order picks by gain for cost, each given those before; drop those without."""
    remaining, ordered = sorted(picks), []
    precision = precision_of(offer, [])
    while remaining:
        gains = criterion.gains(precision, offer)
        counts = np.abs(gains) > criterion.rounding
        useful = [pick for pick in remaining if counts[pick]]
        if not useful:
            break
        due = offer.due(offer.checkpoints_of(ordered))
        rates = gains / np.maximum(due, offer.trifle)
        best = max(useful, key=lambda pick: rates[pick])
        ordered.append(best)
        remaining.remove(best)
        precision = precision + offer.information(best)
    return ordered
