"""The search for the best runs, against all of them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bayeslaw._designs import gaussian, search
from known.purchases import criteria_of


def random_problem(seed: int):
    """A few runs of a few stops, some checkpoints to be paid for, a budget that buys some, and one of four goals."""
    rng = np.random.default_rng(seed)
    runs, coordinates, checkpoints = (
        int(rng.integers(*r)) for r in ((4, 8), (2, 7), (1, 4))
    )
    stops = int(rng.integers(1, 4 if runs < 6 else 3))
    loadings = rng.standard_normal((runs, stops, coordinates)) * rng.lognormal(
        0, 0.7, (runs, 1, 1)
    )
    cost = np.cumsum(
        rng.lognormal(0, 1.2, (runs, 1)) * rng.lognormal(0, 0.8, (runs, stops)), axis=1
    )
    extra = np.where(
        rng.random(checkpoints) < 0.5, 0, rng.lognormal(0.5, 1, checkpoints)
    )
    noise = np.tile(rng.choice([0.03, 0.3, 1.0]) * np.eye(stops), (runs, 1, 1))
    at = rng.integers(0, checkpoints, runs)
    none = loadings[..., :0]
    offer = gaussian.Offer(cost, at, extra, loadings, noise, 1, none)
    goal = criteria_of(rng.standard_normal((2, coordinates)))[seed % 4]
    least = (cost[:, 0] + extra[offer.checkpoint]).min()
    budget = least + (cost[:, -1].sum() + extra.sum() - least) * rng.uniform(0.05, 0.6)
    return offer, goal, search.Limits(budget, 1, 99)


def exhaustive(offer, goal, limits) -> float:
    """The best gain of all affordable sets."""
    runs, stops = offer.cost.shape
    sets = (
        [(r, k) for r, k in enumerate(c) if k >= 0]
        for c in itertools.product(range(-1, stops), repeat=runs)
    )
    affordable = (
        s for s in sets if offer.price_picks(s) <= limits.budget * (1 + 1e-12)
    )
    return max(goal.value(gaussian.precision_of(offer, s)) for s in affordable)


@pytest.mark.parametrize("seed", range(16))
def test_the_search_finds_at_least_95_percent_of_the_best_gain(seed):
    offer, goal, limits = random_problem(seed)
    found, best = search.choose(offer, goal, limits), exhaustive(offer, goal, limits)
    assert offer.price_picks(found) <= limits.budget * (1 + 1e-9)
    assert goal.value(gaussian.precision_of(offer, found)) >= 0.95 * best


@pytest.mark.parametrize("kind", range(5))
@pytest.mark.parametrize("seed", range(2))
def test_gains_on_offer_are_differences_of_values(seed, kind):
    """Batched gains of every run up to every stop against the value of the set with it."""
    offer, *_ = random_problem(seed)
    rows = np.random.default_rng(seed).standard_normal((2, offer.coordinates))
    goal = criteria_of(rows)[kind]
    had = gaussian.precision_of(offer, [(0, 0), (2, 0)])
    gains = goal.gains(had, offer)
    for run, stop in itertools.product(*map(range, offer.cost.shape)):
        more = goal.value(had + offer.information((run, stop))) - goal.value(had)
        assert gains[run, stop] == pytest.approx(more, rel=1e-6, abs=1e-9)


def test_exchanges_find_what_no_greedy_search_does():
    """Here the best of all greedy lists is worth 88% of the best set."""
    offer, goal, limits = random_problem(21)
    best = exhaustive(offer, goal, limits)
    found = search.choose(offer, goal, limits)
    assert goal.value(gaussian.precision_of(offer, found)) == pytest.approx(best)
    greedy = [search.greedy(offer, goal, limits, power) for power in search.POWERS]
    worths = [goal.value(gaussian.precision_of(offer, one)) for one in greedy]
    assert max(worths) < 0.96 * best


@pytest.mark.parametrize("seed", range(2))
def test_the_unit_of_cost_changes_nothing(seed):
    """Petaflops, GPU-hours or dollars: the same runs."""
    offer, goal, limits = random_problem(seed)
    found = search.choose(offer, goal, limits)
    cheap = replace(
        offer, cost=1e-4 * offer.cost, checkpoint_cost=1e-4 * offer.checkpoint_cost
    )
    few = limits._replace(budget=1e-4 * limits.budget)
    assert search.choose(cheap, goal, few) == found
