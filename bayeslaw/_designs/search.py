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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bayeslaw._designs.criteria import Criterion
from bayeslaw._designs.gaussian import Offer, Pick, Precision, precision_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Effort:
    """Settings of the search.

    Parameters
    ----------
    powers
        Powers of the cost by which greedy searches divide gains.
    short_menu
        Most affordable picks of a menu for which each pick is tried as the first.
    short_list
        Most picks of a list from which pairs are dropped, too.
    sweeps
        Most sweeps over the list. A sweep drops each pick in turn and buys again.
    least_change
        A new list must have a gain that is larger by at least this share.
    least_sweep
        A sweep is the last if it raises the gain by less than this share.
    """

    powers: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.0)
    short_menu: int = 30
    short_list: int = 10
    sweeps: int = 3
    least_change: float = 1e-9
    least_sweep: float = 1e-3

    @property
    def fewer_powers(self) -> tuple[float, ...]:
        """Keep every other power, so that each of many searches is short."""
        return self.powers[::2]


class Limits(NamedTuple):
    """Limits of a list: budget, how often each run may be bought (one number or shape
    (run,)), and number of picks.
    """

    budget: float
    replicates: int | Int[np.ndarray, " run"]
    picks: int


class Rate(NamedTuple):
    """Score by which runs are compared: gain / cost**power, with costs raised to at
    least ``least``.

    A power of 1 is the greedy of a knapsack, a power of 0 the plain greedy.
    """

    power: float
    least: float

    @classmethod
    def among(cls, offer: Offer, power: float) -> Rate:
        """Build the rate. A run without cost counts as if it cost a trifle of the
        lowest cost.
        """
        cost = offer.cost[np.isfinite(offer.cost) & (offer.cost > 0)]
        return cls(power, 1e-9 * float(cost.min()) if len(cost) else 1.0)

    def of(
        self, gains: Float[np.ndarray, "run stop"], cost: Float[np.ndarray, "run stop"]
    ) -> Float[np.ndarray, "run stop"]:
        """Compute the rates, shape (run, stop); past a run's end there is no gain."""
        finite = np.where(np.isfinite(cost), cost, 1.0)
        return gains / np.maximum(finite, self.least) ** self.power


class Step(NamedTuple):
    """A step of a greedy search: the list after it, the precision that it adds, its
    cost, and the score by which steps are compared.
    """

    picks: list[Pick]
    information: Precision
    cost: float
    score: float


def choose(
    offer: Offer, criterion: Criterion, limits: Limits, effort: Effort = Effort()
) -> list[Pick]:
    """Search the best set of runs: greedily by gain over powers of cost, then by
    exchanges. Returns the picks in order of worth.
    """
    starts = [greedy(offer, criterion, limits, power) for power in effort.powers]
    starts += [
        greedy(offer, criterion, limits, power, paid=checkpoint)
        for checkpoint in _affordable_checkpoints(offer, limits)
        for power in effort.fewer_powers
    ]
    if max(map(len, starts)) <= effort.short_list:
        starts += [
            greedy(offer, criterion, limits, power, bought=[pick])
            for pick in _few_picks(offer, limits, effort.short_menu)
            for power in effort.fewer_powers
        ]
    best = max(starts, key=lambda picks: _compute_worth(offer, criterion, picks))
    exchanged = exchange(offer, criterion, limits, best, effort)
    return order_by_worth(offer, criterion, exchanged)


def _compute_worth(offer: Offer, criterion: Criterion, picks: Sequence[Pick]) -> float:
    precision = precision_of(offer, picks)
    return criterion.value(precision)


def _affordable_checkpoints(offer: Offer, limits: Limits) -> list[int]:
    """List checkpoints that cost something, but less than the budget: several runs may
    be worth such a checkpoint although no single run is.
    """
    cost = offer.checkpoint_cost
    is_affordable = (cost > 0) & (cost < limits.budget)
    return np.flatnonzero(is_affordable).tolist()


def _few_picks(offer: Offer, limits: Limits, most: int) -> list[Pick]:
    """List all affordable picks if there are at most ``most``, else none. Each is tried
    as the first pick (Sviridenko 2004).
    """
    affordable = np.argwhere(_compute_present_costs(offer, set()) <= limits.budget)
    if len(affordable) > most:
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
    barred: Bool[np.ndarray, "run stop"] | None = None,
) -> list[Pick]:
    """Buy the step with the largest gain / cost**power while the budget lasts. Returns
    the best list on the way.

    A step buys another run, or continues a run of the list to a later stop at the
    difference in cost. Steps are not taken if their gain is NaN or may be a rounding
    error. ``bought`` is the list so far, ``paid`` a checkpoint to pay for first, and
    ``barred`` are stops up to which no new run is bought.
    """
    picks, precision = list(bought), precision_of(offer, bought)
    used = {int(offer.checkpoint[run]) for run, _ in picks}
    spent = offer.price(picks)
    if paid is not None and paid not in used:
        used.add(paid)
        spent += offer.checkpoint_cost[paid]
    rate = Rate.among(offer, power)
    lists, worth = [picks], [criterion.value(precision)]
    while True:
        # sums of costs may miss the budget by rounding
        remaining = (limits.budget - spent) * (1 + 1e-12)
        new = _compute_new_costs(offer, limits, picks, used, barred)
        step = _find_next_step(offer, criterion, precision, picks, new, remaining, rate)
        if step is None:
            break
        picks, precision = step.picks, precision + step.information
        used.update(int(offer.checkpoint[run]) for run, _ in picks)
        spent += step.cost
        lists.append(picks)
        worth.append(criterion.value(precision))
    # Gains for a plan can be negative on the way, so keep the best list.
    return lists[int(np.argmax(worth))]


def _compute_new_costs(
    offer: Offer,
    limits: Limits,
    picks: Sequence[Pick],
    used: set[int],
    barred: Bool[np.ndarray, "run stop"] | None,
) -> Float[np.ndarray, "run stop"]:
    """Compute the cost of each run up to each stop after these picks, infinite if it is
    not allowed, shape (run, stop).
    """
    counts = np.bincount([run for run, _ in picks], minlength=len(offer.cost))
    is_allowed = (counts < limits.replicates) & (len(picks) < limits.picks)
    cost = np.where(is_allowed[:, None], _compute_present_costs(offer, used), np.inf)
    return cost if barred is None else np.where(barred, np.inf, cost)


def _find_next_step(
    offer: Offer,
    criterion: Criterion,
    precision: Precision,
    picks: list[Pick],
    new: Float[np.ndarray, "run stop"],
    remaining: float,
    rate: Rate,
) -> Step | None:
    """Find the affordable step with the highest rate, None if no step has a gain. A
    step is another run at the costs ``new``, or a later stop of a run in the list.
    """
    steps = []
    best = _find_best_run(offer, criterion, precision, new, remaining, rate)
    if best is not None:
        pick, score = best
        information = offer.information(pick)
        steps.append(Step([*picks, pick], information, new[pick], score))
    begun = list(dict.fromkeys(picks))
    if begun and offer.cost.shape[1] > 1:
        farther = offer.going_on(begun)
        best = _find_best_run(
            farther, criterion, precision, farther.cost, remaining, rate
        )
        if best is not None:
            (which, stop), score = best
            place = picks.index(begun[which])
            longer = [*picks[:place], (begun[which][0], stop), *picks[place + 1 :]]
            information = farther.information((which, stop))
            cost = farther.cost[which, stop]
            steps.append(Step(longer, information, cost, score))
    return max(steps, key=lambda step: step.score, default=None)


def _find_best_run(
    offer: Offer,
    criterion: Criterion,
    precision: Precision,
    cost: Float[np.ndarray, "run stop"],
    remaining: float,
    rate: Rate,
) -> tuple[Pick, float] | None:
    """Find the affordable run with the highest rate, and this rate."""
    is_affordable = cost <= remaining
    if not is_affordable.any():
        return None
    gains = criterion.gains(precision, offer)
    possible = is_affordable & _is_beyond_rounding(gains, criterion)
    if not possible.any():
        return None
    scores = np.where(possible, rate.of(gains, cost), -np.inf)
    run, stop = np.unravel_index(np.argmax(scores), cost.shape)
    return (int(run), int(stop)), float(scores[run, stop])


def _is_beyond_rounding(
    gains: Float[np.ndarray, "run stop"], criterion: Criterion
) -> Bool[np.ndarray, "run stop"]:
    """Tell whether each gain is beyond rounding, in the shape of ``gains``. A negative
    gain counts, since the next run may make up for it.
    """
    rounding = criterion.rounding()
    return np.abs(gains) > rounding  # False for NaN


def what_fits(offer: Offer, picks: Sequence[Pick], limits: Limits) -> tuple[bool, bool]:
    """Tell whether the rest of the budget pays for any run, and whether it pays for a
    run that the limits still allow.
    """
    used = {int(offer.checkpoint[run]) for run, _ in picks}
    cost = _compute_present_costs(offer, used).min(axis=1)
    remaining = limits.budget - offer.price(list(picks))
    fits = cost <= remaining
    counts = np.bincount([run for run, _ in picks], minlength=len(cost))
    allowed = counts < limits.replicates
    return bool(fits.any()), bool((fits & allowed).any())


def _compute_present_costs(
    offer: Offer, used: set[int]
) -> Float[np.ndarray, "run stop"]:
    """Compute the cost of each run up to each stop, with its checkpoint unless that is
    paid, shape (run, stop).
    """
    due = offer.checkpoint_cost.copy()
    # Once a checkpoint is paid for, its other runs are cheaper.
    due[list(used)] = 0.0
    return offer.cost + due[offer.checkpoint][:, None]


def exchange(
    offer: Offer,
    criterion: Criterion,
    limits: Limits,
    picks: Sequence[Pick],
    effort: Effort = Effort(),
) -> list[Pick]:
    """Drop each pick in turn (in short lists also each pair) and spend its cost on
    others, as long as the list improves.
    """
    best, worth = list(picks), _compute_worth(offer, criterion, picks)
    for _ in range(effort.sweeps):
        before = worth
        for dropped in list(_list_drops(best, effort.short_list)):
            if Counter(dropped) - Counter(best):
                continue  # sold already
            remaining = list((Counter(best) - Counter(dropped)).elements())
            for power in effort.fewer_powers:
                rebought = greedy(offer, criterion, limits, power, bought=remaining)
                value = _compute_worth(offer, criterion, rebought)
                if value > worth * (1 + effort.least_change):
                    best, worth = rebought, value
        if worth <= before * (1 + effort.least_sweep):
            break
    return best


def _list_drops(picks: Sequence[Pick], short: int) -> Iterator[tuple[Pick, ...]]:
    """List each pick, and in a list of at most ``short`` picks each pair."""
    yield from ((pick,) for pick in sorted(set(picks)))
    if len(picks) <= short:
        pairs = combinations(sorted(picks), 2)
        yield from sorted(set(pairs))


def order_by_worth(
    offer: Offer, criterion: Criterion, picks: Sequence[Pick]
) -> list[Pick]:
    """Order picks so that each has the best gain for its cost after those before it;
    picks without gain are dropped.
    """
    remaining, ordered = sorted(picks), []
    precision, used = precision_of(offer, []), set()
    rate = Rate.among(offer, 1.0)
    while remaining:
        gains = criterion.gains(precision, offer)
        counts = _is_beyond_rounding(gains, criterion)
        useful = [pick for pick in remaining if counts[pick]]
        if not useful:
            break
        scores = rate.of(gains, _compute_present_costs(offer, used))
        best = max(useful, key=lambda pick: scores[pick])
        ordered.append(best)
        remaining.remove(best)
        precision = precision + offer.information(best)
        used.add(int(offer.checkpoint[best[0]]))
    return ordered
