"""Shadow prices, against brute force over replay on the same draws."""

from dataclasses import replace

import numpy as np
import pytest

from bayeslaw._plans import value
from bayeslaw._plans.search import search
from known.plans import random_problem


def brute_force(problem, around, size=500):
    """Fewest log tokens, or the largest margin within a budget, at any of many replays and tokens near a choice."""
    u, x = np.linspace(0, 1, size), around + np.linspace(-0.06, 0.01, 71)
    if problem.most_probable:
        x = np.log(problem.max_tokens) - np.linspace(0, 2, 81)[::-1]
    room, margin = problem.room(problem.grid(u, x).log_losses)
    if problem.most_probable:
        return margin.max()
    return x[np.argmax((room >= 0).any(axis=0))]


@pytest.mark.parametrize("seed", [4, 1, 5])
def test_a_price_is_that_of_the_best_plan_anywhere(seed):
    """A search near the plan's replay told a third of it (seed 4) and half of it (seed 5)."""
    problem, _ = random_problem(seed)
    choice = search(problem)
    prices, told = value.worth(problem, choice), []
    for c in problem.constraints:
        looser = problem.relaxed(c.name, c.limit + value.limit_step(c))
        saved = choice.log_tokens - brute_force(looser, choice.log_tokens)
        told.append(saved)
        assert prices[c.name] > 0.97 * saved - 2e-4
    assert max(told) > 0.01


def test_a_price_within_a_budget_is_the_probability_gained_anywhere():
    problem, _ = random_problem(4)
    limited = replace(problem, max_tokens=0.7 * np.exp(search(problem).log_tokens))
    choice = search(limited)
    prices = value.worth(limited, choice)
    for c in limited.constraints:
        looser = limited.relaxed(c.name, c.limit + value.limit_step(c))
        gained = brute_force(looser, choice.log_tokens) - choice.margin
        assert prices[c.name] >= gained - 1.5 / limited.draws
