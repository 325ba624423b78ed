"""What is held out lies in the plan's direction, has enough rows, and says what its
forecast proves for the plan.
"""

import numpy as np
import pandas as pd
import pytest

from bayeslaw import RunTableError
from bayeslaw._forecasts.check import FEW
from bayeslaw._forecasts.checking.holdouts import HoldOut, hold_outs, untested
from bayeslaw._posteriors.averaging.folds import stage_axis
from bayeslaw._tables.fitting import by_domain
from known.stranger import SIZES, read_stranger

PLAN = {"N": 7e9, "ptpp": 300e9 / 7e9}


@pytest.fixture(params=[0, 1, 2])
def parts(request):
    return by_domain(read_stranger(request.param))


def grid(sizes, stages, tokens, of_stage="ptpp"):
    rows = [(n, p, d) for n in sizes for p in stages for d in tokens]
    table = pd.DataFrame(rows, columns=["N", "ptpp", "D"])
    if of_stage != "ptpp":
        table["ptpp"] /= table["N"]
    return table


def test_stages_that_are_equal_in_tokens_are_recognised(parts):
    """Each size has its own ptpp, and its largest is no stage: the smallest model's."""
    runs = parts["target"]
    assert stage_axis(runs) == "N*ptpp"
    largest = runs[runs["ptpp"] == runs["ptpp"].max()]
    assert set(largest["N"]) == {1e6 * min(SIZES)}
    by_parameter = grid([1e8, 1e9], [20, 80], [1e9])
    assert stage_axis(by_parameter) == "ptpp"
    assert stage_axis(by_parameter.drop(columns="ptpp")) == "ptpp"
    # written as a quotient they differ in the last digit
    assert stage_axis(grid([1e8, 3e8, 7e8], [5e10, 3e11], [1e9], "tokens")) == "N*ptpp"


def test_the_plan_s_direction_is_held_out_first(parts):
    """A 7B plan is tested by the largest models, not by the smallest one's last stage."""
    main, *others = hold_outs(parts, question=PLAN)
    assert main.axis == "N"
    assert main.top == pytest.approx(1.3e9)
    assert {one.axis for one in others} == {"N*ptpp", "D"}
    for one in (main, *others):
        for runs in parts.values():
            held = one.is_held(runs)
            assert held.sum() >= FEW
            assert (~held).sum() >= 8
    assert untested(PLAN, parts, (main, *others)) == (
        "7B parameters (tested up to 1.3B)",
    )


@pytest.mark.parametrize(
    ("question", "axis"),
    [
        ({"N": 7e9, "ptpp": 300e9 / 7e9}, "N"),
        ({"N": 1.3e9, "ptpp": 3e12 / 1.3e9}, "N*ptpp"),
        ({"N": 2.6e9, "ptpp": 3e12 / 2.6e9}, "N*ptpp"),
        ({"N": 1.3e9, "ptpp": 150e9 / 1.3e9}, "N*ptpp"),
    ],
)
def test_the_farthest_direction_comes_first(question, axis):
    assert hold_outs(by_domain(read_stranger(1)), question=question)[0].axis == axis


def test_a_size_without_a_stage_is_a_direction():
    """Plans of mixtures say N alone."""
    runs = grid((1e8, 3e8, 1e9), (20,), (1e9, 2e9, 4e9, 8e9)).drop(columns="ptpp")
    many = pd.concat([runs] * 4, ignore_index=True)
    main, *_ = hold_outs({"web": many}, None, {"N": 4e9, "max_loss": {"web": 2.0}})
    assert (main.axis, main.planned) == ("N", 4e9)
    assert main.is_in_direction


def test_the_fewest_levels_with_enough_rows_are_held_out():
    """Two runs of the largest model tell nothing: those of the next are held out, too."""
    table = grid([1e8, 2e8, 4e8], [20.0], np.geomspace(1e9, 1e10, 6))
    few = pd.concat([table, grid([8e8], [20.0], [1e9, 2e9])])
    (main, *_) = hold_outs({"target": few}, question={"N": 7e9, "ptpp": 20.0})
    assert (main.axis, main.edge, main.below, main.top) == ("N", 4e8, 2e8, 8e8)
    assert main.name == "400M parameters and more"
    assert main.is_held(few).sum() == 8
    assert main.times_tested == pytest.approx(4)


def test_a_named_axis_is_held_out_whatever_the_plan(parts):
    main, *_ = hold_outs(parts, "D", PLAN)
    assert (main.axis, main.edge) == ("D", 2e10)
    (quick,) = hold_outs(parts, question=PLAN, most=1)
    assert quick.axis == "N"
    (without,) = hold_outs(parts)
    assert without.axis == "N*ptpp"


@pytest.mark.parametrize(
    ("named", "says"),
    [("lr", "cannot hold out column 'lr'"), ("replay", "one level only")],
)
def test_what_cannot_be_held_out_is_refused(named, says):
    table = grid([1e8, 2e8], [20.0], [1e9, 2e9]).assign(replay=0.5)
    with pytest.raises(RunTableError, match=says):
        hold_outs({"target": table}, named)


def test_what_was_not_held_out_is_named_with_its_option():
    """The plan's size was not tested, but could be: the words say how, and how far."""
    parts = by_domain(read_stranger(1))
    tested = hold_outs(parts, "N*ptpp", PLAN, most=1)
    small = {
        name: runs[(runs["N"] < 1e9) | ~tested[0].is_held(runs)]
        for name, runs in parts.items()
    }
    (said,) = untested(PLAN, small, tested)
    assert said == "7B parameters (--hold-out N tests it up to 1.3B)"


def test_it_says_what_it_proves_for_the_plan():
    beyond = HoldOut("N", 1.3e9, 760e6, 1.3e9, 7e9).proves()
    assert beyond == (
        "forecast from 760M parameters and less, 1.7 times beyond; the plan's 7B "
        "parameters lie 5.4 times beyond the table, farther than this tests"
    )
    near = HoldOut("N", 1.3e9, 760e6, 1.3e9, 2e9).proves()
    assert near.endswith("lie 1.5 times beyond the table, no farther than this tests")
    within = HoldOut("N*ptpp", 3e11, 1.5e11, 3e11, 3e11).proves()
    assert within.endswith(
        "the plan's 300B tokens of pre-training lie within the table"
    )
    assert HoldOut("D", 2e10, 6e9, 2e10).proves().endswith("3.3 times beyond")


def test_a_plan_s_tokens_turn_the_check_of_tokens_in_its_direction():
    """They are known once the plan is made; the other axes stay."""
    tokens = HoldOut("D", 20e9, 6e9, 20e9)
    assert not tokens.is_in_direction
    assert tokens.at_tokens(None) == tokens
    planned = tokens.at_tokens(55.8e9)
    assert planned.is_in_direction
    assert "55.8B tokens of training lie 2.8 times beyond the table" in planned.proves()
    size = HoldOut("N", 1.3e9, 760e6, 1.3e9, 7e9)
    assert size.at_tokens(55.8e9) == size
