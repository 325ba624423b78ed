"""Where no plan reaches the confidence, runs are offered that narrow the forecasts of the
most probable choice.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, Shape
from bayeslaw._report.buying import choose_runs, known_starts
from bayeslaw._tables.simulate import ptpp_grid
from known import example
from known.lines import spread

LONGEST, SIZE = 10.34e9, example.QUESTION["N"]


@pytest.fixture(scope="module")
def fits():
    return {
        "target": spread(example.TARGET_LAW, example.TARGET, 0.06, 200, 0),
        "source": spread(example.SOURCE_LAW, example.SOURCE, 0.06, 200, 1),
    }


@pytest.fixture(scope="module")
def runs():
    return ptpp_grid().query("N < 1e9").assign(loss=2.0)


def offered(fits, runs, **limits):
    question = example.QUESTION | {"seed": 0} | limits
    answer = bayeslaw.plan(fits["target"], fits["source"], **question)
    return answer, choose_runs(fits, question, answer, runs)


def test_runs_narrow_the_forecasts_of_the_most_probable_choice(fits, runs):
    """It has 10,000 tokens per parameter here: the runs' cost is no share of that."""
    answer, purchase = offered(fits, runs, max_target_loss=1.6)
    best, picked = answer.explanation["best"], purchase.picked
    assert best["probability"] > 0.5
    assert best["D"] > 1000 * LONGEST
    assert purchase.is_advised
    assert picked.gain == "variance"
    assert purchase.price == pytest.approx(6 * SIZE * 10 * LONGEST)
    assert 0 < picked.spent <= 0.1 * purchase.price
    assert picked.goal_sd_after < 0.8 * picked.goal_sd_before
    said = purchase.sentence()
    assert "the most probable choice) would narrow" in said
    assert f"to {picked.goal_sd_after:.1%} on average" in said
    assert [line["standard deviation after it"] for line in purchase.lines] == [
        f"{pick['goal_sd']:.1%}" for pick in picked.picks
    ]


def test_with_a_plan_runs_are_bought_to_make_it_cheaper(fits, runs):
    answer, purchase = offered(fits, runs)
    assert purchase.is_planned
    assert purchase.price == pytest.approx(answer.flops)
    assert "would make the plan" in purchase.sentence()
    assert "saves" in purchase.lines[0]


def test_the_plans_price_is_by_the_formula_of_the_question(fits, runs):
    """Attention costs FLOPs beyond 6 N D; a checkpoint to be trained is no part of it."""
    shape = Shape(layers=32, width=4096, context=8192)
    costs = bayeslaw.Costs(shapes=(shape,), train_checkpoint=True)
    answer, purchase = offered(fits, runs, costs=costs)
    assert purchase.unit == "FLOPs"
    assert purchase.price == pytest.approx(answer.flops)
    assert purchase.price > 1.05 * 6 * SIZE * answer.D


def test_nothing_is_offered_where_the_limits_are_most_likely_broken(fits, runs):
    """Narrower forecasts would be over a limit, too."""
    answer, purchase = offered(fits, runs, max_target_loss=1.5)
    assert answer.explanation["best"]["probability"] < 0.5
    assert purchase is None


def test_nothing_is_offered_where_no_tokens_help(fits, runs):
    question = example.QUESTION | {"seed": 0}
    answer = bayeslaw.plan(fits["target"], fits["source"], **question)
    nowhere = replace(answer, feasible=False, D=None, explanation={"best": {"D": None}})
    assert choose_runs(fits, question, nowhere, runs) is None


def test_runs_on_offer_from_checkpoints_without_a_loss_are_left_out():
    offered = pd.DataFrame({"N": [1e8, 2e8], "source_loss_before": [2.0, np.nan]})
    assert known_starts(offered, ["source_loss_before"])["N"].tolist() == [1e8]
    with pytest.raises(RunTableError, match="six checkpoints at least"):
        known_starts(offered[1:], ["source_loss_before"])
