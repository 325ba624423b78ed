"""Soft limits: the plan is the least expected cost on a grid, by hand."""

import math

import numpy as np
import pytest
from plans.test_joint import ASKED, SOURCES, of_target

from bayeslaw import Costs, PlanError, plan
from bayeslaw._plans.plan import problem_of
from bayeslaw._plans.search import expected_cost

WEB = {"web": SOURCES["web"]}
LIMITS = ASKED | {"max_forgetting": 0.01}
PRICES = {"target": 3e22, "web": 2e22}


def by_hand(problem, tokens, replay, price_of_token):
    """Training and excess, from the losses themselves."""
    total = tokens * price_of_token
    for c, most in zip(problem.constraints, (2.45, 2.4 * 1.01), strict=True):
        loss = np.exp(c.log_losses(math.log(tokens), replay))
        total += PRICES[c.name] * np.maximum(loss - most, 0).mean()
    return total


def test_the_plan_has_the_least_expected_cost():
    found = plan(of_target(), WEB, excess_price=PRICES, **LIMITS)
    problem = problem_of(of_target(), WEB, **LIMITS)
    own = by_hand(problem, found.D, found.replay, 6e9)
    told = found.settings["soft"]
    assert told["cost"] == pytest.approx(own)
    assert told["training"] == pytest.approx(found.flops)
    assert told["cost"] == pytest.approx(
        told["training"] + sum(PRICES[n] * x for n, x in told["excess"].items())
    )
    grid = [
        by_hand(problem, tokens, replay, 6e9)
        for tokens in np.geomspace(found.D / 30, 30 * found.D, 40)
        for replay in np.linspace(0.01, 0.97, 33)
    ]
    assert own <= min(grid) * (1 + 1e-4)
    assert found.feasible
    assert found.binding == "the price of target, web"
    assert "In expectation it costs" in found.sentence()


def test_a_limit_without_a_price_is_kept_with_the_confidence():
    found = plan(of_target(), WEB, excess_price={"web": 1e22}, **LIMITS)
    assert found.probability_target >= 0.9
    dear = plan(of_target(), WEB, excess_price={"web": 1e24}, **LIMITS)
    assert dear.probability_target >= 0.9
    assert (
        dear.settings["soft"]["excess"]["web"] < found.settings["soft"]["excess"]["web"]
    )


def test_prices_are_in_money_where_costs_are():
    costs = Costs(hardware="64xH100", mfu=0.4, price=2.5)
    per_flop = costs.of_run(1e9, 1e10).money / 6e19
    in_money = {name: price * per_flop for name, price in PRICES.items()}
    by_money = plan(of_target(), WEB, excess_price=in_money, costs=costs, **LIMITS)
    by_flops = plan(of_target(), WEB, excess_price=PRICES, **LIMITS)
    assert pytest.approx(by_flops.D, rel=1e-2) == by_money.D


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"excess_price": 5.0}, "excess_price is by limit"),
        ({"excess_price": {"code": 5.0}}, "names no 'code'"),
        ({"excess_price": {"web": -1}}, "must be a positive number"),
        (
            {"excess_price": {"web": 1.0}, "max_tokens": 1e10},
            "max_tokens caps the cost",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(asked, says):
    with pytest.raises(PlanError, match=says) as refused:
        plan(of_target(), WEB, **(LIMITS | asked))
    assert "\n" not in str(refused.value)


IN_MEAN = LIMITS | {"max_forgetting": None, "max_mean_loss": "+1%"}


def test_a_mean_of_rises_of_two_sources_is_priced_in_nats():
    """By hand: the mean of the rises over the limit, times the mean baseline."""
    x, replay = math.log(2e10), 0.05
    rises, baselines = [], []
    for c in problem_of(of_target(), SOURCES, **LIMITS).constraints[1:]:
        loss = np.exp(c.of_law.log_losses(x, replay) + c.noise)
        baselines.append(c.baseline)
        rises.append(loss / c.baseline - 1)
    over = np.maximum(np.mean(rises, axis=0) - 0.01, 0) * np.mean(baselines, axis=0)
    problem = problem_of(of_target(), SOURCES, **IN_MEAN)
    told = expected_cost(problem, {"mean": 1.0}, x, replay)["excess"]["mean"]
    assert told == pytest.approx(over.mean(), rel=1e-6)
