"""Shadow prices, against brute force over replay on the same draws."""

from dataclasses import replace

import numpy as np
import pytest

from bayeslaw._plans import value
from bayeslaw._plans.search import search
from known.plans import random_problem


def brute_force(problem, size=150):
    """The best choice at any of many replays; each is solved exactly."""
    replays = problem.replay(np.linspace(0, 1, size))
    return min((problem.at(float(r)) for r in replays), key=problem.score)


@pytest.mark.parametrize("seed", [4, 1, 5])
def test_a_price_is_that_of_the_best_plan_anywhere(seed):
    """A search near the plan's replay told a third of it (seed 4) and half of it (seed 5)."""
    problem, _ = random_problem(seed)
    choice = search(problem)
    prices = value.worth(problem, choice)
    for c in problem.constraints:
        looser = problem.relaxed(c.name, c.limit + value.limit_step(c))
        saved = choice.log_tokens - brute_force(looser).log_tokens
        assert prices[c.name] > 0.97 * saved - 2e-4


def test_a_price_within_a_budget_is_the_probability_gained_anywhere():
    problem, _ = random_problem(4)
    limited = replace(problem, max_tokens=0.7 * np.exp(search(problem).log_tokens))
    choice = search(limited)
    prices = value.worth(limited, choice)
    for c in limited.constraints:
        looser = limited.relaxed(c.name, c.limit + value.limit_step(c))
        gained = brute_force(looser, 100).margin - choice.margin
        assert prices[c.name] >= gained - 1.5 / limited.draws
