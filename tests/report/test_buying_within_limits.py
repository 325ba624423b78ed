"""Limits on the plan's bill that do not bind leave the runs to buy as they are without."""

from functools import cache

import pytest

import bayeslaw
from bayeslaw._report import buying
from bayeslaw._report.buying import choose_runs
from bayeslaw._tables.simulate import ptpp_grid
from known import example, plans

COSTS = bayeslaw.Costs(hardware="64xH100", price=2.5)
QUESTION = {**example.QUESTION, "draws": plans.DRAWS, "costs": COSTS, "seed": 0}
FITS = {
    "target": plans.target(sd=0.004, draws=100, sigma=0.002),
    "source": plans.source(sd=0.004, draws=100, sigma=0.002),
}
RUNS = ptpp_grid().query("N < 1e9").assign(loss=2.0)


@cache
def plan_within(**limits):
    return bayeslaw.plan(FITS["target"], FITS["source"], **QUESTION, **limits)


def goal_of(monkeypatch, **limits):
    """The plan with these limits, and the goal that its runs are chosen for."""
    goals = []

    def chosen(_, __, goal, ___, **____):
        goals.append(goal)

    monkeypatch.setattr(buying, "anchors", chosen)
    answer = plan_within(**limits)
    assert choose_runs(FITS, QUESTION | limits, answer, RUNS) is not None
    return answer, *goals


@pytest.mark.parametrize(
    "limits",
    [{"max_days": 20.0}, {"max_cost": 1e6}, {"max_days": 20.0, "max_cost": 1e6}],
    ids=str,
)
def test_the_goal_is_the_cheapest_plan(limits, monkeypatch):
    free, goal = goal_of(monkeypatch)
    within, same_goal = goal_of(monkeypatch, **limits)
    assert within.D == free.D
    assert same_goal == goal


def test_a_deadline_that_shortens_the_plan_stays_in_the_goal(monkeypatch):
    """For it no runs can be chosen, and the page says why (`check_keywords`)."""
    free, _ = goal_of(monkeypatch)
    days = 0.99 * COSTS.of_run(free.N, free.D).days
    within, goal = goal_of(monkeypatch, max_days=days)
    assert not within.feasible
    assert goal["max_days"] == days
