"""The best set of runs within a budget: greedy searches by gain over powers of cost,
then exchanges.

Choosing a set under a budget is a knapsack problem with a gain that flattens as the set
grows. Greedy by gain per cost prefers many cheap runs, greedy by gain a few dear ones;
the better of both comes near the best set where gains only flatten (Leskovec et al.
2007), and so does greedy from every first run (Sviridenko 2004). Powers between them,
and exchanges, serve where gains do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._designs.criteria import Criterion
from bayeslaw._designs.gaussian import Offer, Pick, precision_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# of the cost, by which greedy searches divide gains
POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)
FEWER_POWERS = POWERS[::2]  # where a search is one of many
SWEEPS = 3  # over the list, dropping each pick and buying again
FEW = 30  # affordable picks of a short menu
SHORT = 10  # picks of a list of which pairs are dropped too
BETTER = 1e-9  # share of its worth by which a list must be better to be taken
DONE = 1e-3  # share of its worth: a sweep that adds less is the last
SLACK = 1e-12  # share of the budget that sums of costs may miss by rounding
TRIFLE = 1e-9  # of the least cost: what a free run is taken to cost


class Limits(NamedTuple):
    """Budget, how often one run may be bought, and how many picks."""

    budget: float
    replicates: int
    picks: int


def choose(offer: Offer, criterion: Criterion, limits: Limits) -> list[Pick]:
    """The best set of runs found: greedy searches by gain over powers of cost, then
    exchanges; in order of worth.
    """
    starts = [greedy(offer, criterion, limits, power) for power in POWERS]
    starts += [
        greedy(offer, criterion, limits, power, paid=checkpoint)
        for checkpoint in _affordable_checkpoints(offer, limits)
        for power in FEWER_POWERS
    ]
    if max(map(len, starts)) <= SHORT:
        starts += [
            greedy(offer, criterion, limits, power, bought=[pick])
            for pick in _few_picks(offer, limits)
            for power in FEWER_POWERS
        ]
    best = max(starts, key=lambda picks: _worth(offer, criterion, picks))
    return order_by_worth(offer, criterion, exchange(offer, criterion, limits, best))


def _worth(offer: Offer, criterion: Criterion, picks: Sequence[Pick]) -> float:
    precision = precision_of(offer, picks)
    return criterion.value(precision)


def _affordable_checkpoints(offer: Offer, limits: Limits) -> list[int]:
    """Checkpoints that cost something, but less than the budget: no single run may be
    worth one where several are.
    """
    cost = offer.checkpoint_cost
    is_affordable = (cost > 0) & (cost < limits.budget)
    return np.flatnonzero(is_affordable).tolist()


def _few_picks(offer: Offer, limits: Limits) -> list[Pick]:
    """All affordable picks of a short menu: each is tried as the first (Sviridenko
    2004).
    """
    affordable = np.argwhere(_costs_now(offer, set()) <= limits.budget)
    if len(affordable) > FEW:
        return []
    # plain numbers: picks are compared and sorted
    return [(int(run), int(stop)) for run, stop in affordable]


def greedy(
    offer: Offer,
    criterion: Criterion,
    limits: Limits,
    power: float,
    *,
    bought: Sequence[Pick] = (),
    paid: int | None = None,
) -> list[Pick]:
    """Buy, while the budget lasts, what has the largest gain / cost**power; of that
    list, the start worth most.

    Nothing is bought of which the gain may be a rounding error, or is not a number.
    ``bought`` is had already, and ``paid`` is a checkpoint to pay for first.
    """
    picks, precision = list(bought), precision_of(offer, bought)
    spent = offer.price(picks)
    used = {int(offer.checkpoint[run]) for run, _ in picks}
    if paid is not None and paid not in used:
        used.add(paid)
        spent += offer.checkpoint_cost[paid]
    counts = np.bincount([run for run, _ in picks], minlength=len(offer.cost))
    worth = [criterion.value(precision)]
    while len(picks) < limits.picks:
        cost = _costs_now(offer, used)
        affordable = cost <= (limits.budget - spent) * (1 + SLACK)
        allowed = (counts < limits.replicates)[:, None]
        if not (affordable & allowed).any():
            break
        gains = criterion.gains(precision, offer)
        possible = affordable & allowed & _counts(gains, criterion)
        if not possible.any():
            break
        # Gain per cost is the greedy of a knapsack; a power of 0 the plain greedy.
        scores = np.where(possible, _score(gains, cost, power), -np.inf)
        run, stop = np.unravel_index(np.argmax(scores), cost.shape)
        pick = (int(run), int(stop))
        picks.append(pick)
        precision = precision + offer.information(pick)
        worth.append(criterion.value(precision))
        spent += cost[pick]
        counts[run] += 1
        used.add(int(offer.checkpoint[run]))
    # Gains for a plan can be negative on the way: the best start of the list.
    return picks[: len(bought) + int(np.argmax(worth))]


def _counts(
    gains: Float[np.ndarray, "run stop"], criterion: Criterion
) -> Bool[np.ndarray, "run stop"]:
    """Whether each gain is a number beyond rounding, of the shape of ``gains``; one
    below zero is, since the next run may make up for it.
    """
    rounding = criterion.rounding()
    return np.abs(gains) > rounding  # False where it is no number


def what_fits(offer: Offer, picks: Sequence[Pick], limits: Limits) -> tuple[bool, bool]:
    """Whether any run fits the rest of the budget, and whether one does that has not
    been bought as often as allowed.
    """
    used = {int(offer.checkpoint[run]) for run, _ in picks}
    cost = _costs_now(offer, used).min(axis=1)
    left = limits.budget - offer.price(list(picks))
    fits = cost <= left
    counts = np.bincount([run for run, _ in picks], minlength=len(cost))
    allowed = counts < limits.replicates
    return bool(fits.any()), bool((fits & allowed).any())


def _costs_now(offer: Offer, used: set[int]) -> Float[np.ndarray, "run stop"]:
    """Cost of each run up to each stop, with its checkpoint unless that is paid, shape
    (run, stop).
    """
    due = offer.checkpoint_cost.copy()
    # Once a checkpoint is paid for, its other runs are cheaper.
    due[list(used)] = 0.0
    return offer.cost + due[offer.checkpoint][:, None]


def _score(
    gains: Float[np.ndarray, "run stop"],
    cost: Float[np.ndarray, "run stop"],
    power: float,
) -> Float[np.ndarray, "run stop"]:
    """Gain per cost**power, shape (run, stop); what costs nothing is taken to cost a
    trifle. Past a run's end there is nothing to gain.
    """
    real = np.isfinite(cost)
    trifle = TRIFLE * np.min(cost[real & (cost > 0)], initial=np.inf)
    least = trifle if np.isfinite(trifle) else 1.0
    finite = np.where(real, cost, 1.0)
    paid = np.maximum(finite, least)
    return gains / paid**power


def exchange(
    offer: Offer, criterion: Criterion, limits: Limits, picks: Sequence[Pick]
) -> list[Pick]:
    """Drop each pick in turn (of short lists each pair) and spend what it cost anew, as
    long as that is better.
    """
    best, worth = list(picks), _worth(offer, criterion, picks)
    for _ in range(SWEEPS):
        before = worth
        for dropped in list(_to_drop(best)):
            if Counter(dropped) - Counter(best):
                continue  # sold already
            rest = list((Counter(best) - Counter(dropped)).elements())
            for power in FEWER_POWERS:
                other = greedy(offer, criterion, limits, power, bought=rest)
                value = _worth(offer, criterion, other)
                if value > worth * (1 + BETTER):
                    best, worth = other, value
        if worth <= before * (1 + DONE):
            break
    return best


def _to_drop(picks: Sequence[Pick]) -> Iterator[tuple[Pick, ...]]:
    """Each pick, and of a short list each pair."""
    yield from ((pick,) for pick in sorted(set(picks)))
    if len(picks) <= SHORT:
        pairs = combinations(sorted(picks), 2)
        yield from sorted(set(pairs))


def order_by_worth(
    offer: Offer, criterion: Criterion, picks: Sequence[Pick]
) -> list[Pick]:
    """The same picks, each the best gain for its cost after those before it; without
    those that add nothing.
    """
    left, ordered = sorted(picks), []
    precision, used = precision_of(offer, []), set()
    while left:
        gains = criterion.gains(precision, offer)
        counts = _counts(gains, criterion)
        useful = [pick for pick in left if counts[pick]]
        if not useful:
            break
        scores = _score(gains, _costs_now(offer, used), 1.0)
        best = max(useful, key=lambda pick: scores[pick])
        ordered.append(best)
        left.remove(best)
        precision = precision + offer.information(best)
        used.add(int(offer.checkpoint[best[0]]))
    return ordered
