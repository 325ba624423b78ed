"""Which runs are left out: the largest levels of an axis, with enough rows; for a plan
those in its direction, which say what their forecast proves for it.
"""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from bayeslaw import RunTableError
from bayeslaw._tables.fitting import by_domain
from bayeslaw._tables.holdouts import (
    HoldOut,
    default_axes,
    hold_outs,
    largest_stages,
    stage_axis,
    stages_named,
    untested,
    upper_stages,
)
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
            assert held.sum() >= 5
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
    assert main.words == "400M parameters and more"
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
    [
        ("lr", "lacks column 'lr', by which to hold out"),
        ("replay", "one level only"),
    ],
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


# -- stages of one table ---------------------------------------------------------------


def held_by(runs, axes, *given):
    """Which runs are left out, stage by stage."""
    return [stage.is_held(runs) for stage in largest_stages(runs, axes, *given)]


def test_the_largest_level_is_held_out_where_enough_is_left():
    table = pd.DataFrame({"N": [1.0] * 8 + [2.0] * 4})
    (stage,) = largest_stages(table, ["N"])
    np.testing.assert_array_equal(stage.is_held(table), table["N"] == 2.0)
    np.testing.assert_array_equal(stage.is_kept(table), table["N"] == 1.0)
    assert largest_stages(table.iloc[1:], ["N"]) == []  # 7 rows are left, under 8
    assert len(largest_stages(table, ["N"], 8)) == 1
    assert largest_stages(table, ["N"], 9) == []
    long = pd.DataFrame({"N": [1.0] * 29 + [2.0] * 71})
    assert largest_stages(long, ["N"]) == []  # 29% are left
    enough = pd.DataFrame({"N": [1.0] * 30 + [2.0] * 70})
    assert len(largest_stages(enough, ["N"])) == 1
    assert largest_stages(pd.DataFrame({"N": [1.0] * 20}), ["N"]) == []


def test_runs_without_a_level_are_fitted():
    """An empty cell is no level, neither the largest nor another."""
    table = pd.DataFrame({"ptpp": [20.0] * 8 + [80.0] * 4 + [np.nan] * 2})
    (stage,) = largest_stages(table, ["ptpp"])
    assert (stage.name, stage.below, stage.top) == ("ptpp >= 80", 20.0, 80.0)
    assert stage.is_held(table).sum() == 4
    assert stage.is_kept(table)[-2:].all()
    assert [name for name, _ in upper_stages(table, "ptpp")] == ["ptpp 80"]


def test_many_levels_are_cut_into_six_bins():
    x = np.geomspace(1.0, 100.0, 24)
    (held,) = held_by(pd.DataFrame({"D": x}), ["D"])
    np.testing.assert_array_equal(held, np.arange(24) >= 20)
    twelve = np.repeat(np.geomspace(1.0, 100.0, 12), 2)
    (held,) = held_by(pd.DataFrame({"D": twelve}), ["D"])
    assert held.sum() == 2


def test_a_single_curve_leaves_out_its_two_and_three_largest_levels_too():
    """One run, one level ahead, says little of how a law goes astray farther on."""
    curve = pd.DataFrame({"N": 1e9, "D": np.geomspace(200, 204_800, 11)})
    stages = held_by(curve, default_axes(curve))
    assert [held.sum() for held in stages] == [1, 2, 3]
    assert all(held[-1] for held in stages)
    # eight are needed to fit
    assert [held.sum() for held in held_by(curve[1:], ["D"])] == [1, 2]
    assert len(largest_stages(pd.concat([curve, curve]), ["D"])) == 1


def test_products_and_stages_that_are_the_same_count_once():
    grid = pd.DataFrame({"N": np.repeat([1e8, 1e9], 8), "D": np.tile([1e9, 4e9], 8)})
    assert default_axes(grid) == ["N", "D", "D/N", "N*D"]
    assert default_axes(grid[["N"]]) == ["N"]
    assert default_axes(grid.assign(N=1e8)) == ["D", "D/N", "N*D"]
    assert default_axes(grid.assign(ptpp=grid["N"])) == ["ptpp", "N", "D", "D/N", "N*D"]
    (by_size,) = largest_stages(grid, ["N"])
    again = largest_stages(grid.assign(ptpp=grid["N"]), ["ptpp", "N"])
    assert [stage.axis for stage in again] == ["ptpp"]
    (by_compute,), (by_ratio,) = held_by(grid, ["N*D"]), held_by(grid, ["D/N"])
    assert (by_compute == (grid["N"] * grid["D"] >= 4e18)).all()
    assert (by_ratio == (grid["D"] / grid["N"] >= 40)).all()
    assert by_size.name == "N >= 1B"
    assert stages_named(grid, ["N >= 1B", "D >= 3B"]) == [by_size]


def test_a_stage_reaches_along_other_axes_than_its_own():
    """The largest models were trained on more tokens, too."""
    grid = pd.DataFrame({"N": np.repeat([1e8, 1e9], 8), "D": np.repeat([1e9, 4e9], 8)})
    (by_size,) = largest_stages(grid.assign(loss=2.0), ["N"])
    assert by_size.times_tested == by_size.reach(grid, "N") == 10
    assert by_size.reach(grid, "D") == 4
    assert by_size.reach(grid.assign(D=1e9), "D") == 1


def test_upper_stages_are_forecast_from_all_below():
    runs = pd.DataFrame({"N": [4e8, 1e8, 2e8, 1e8, 4e8], "D": np.arange(1, 6) * 1e9})
    second, third = upper_stages(runs, "N")
    assert (second[0], third[0]) == ("N 200M", "N 400M")
    assert second[1].is_kept(runs).tolist() == [False, True, False, True, False]
    assert second[1].is_held(runs).tolist() == [False, False, True, False, False]
    assert third[1].is_kept(runs).tolist() == [False, True, True, True, False]
    assert third[1].is_held(runs).tolist() == [True, False, False, False, True]
    assert upper_stages(runs[runs["N"] == 1e8], "N") == []


def test_a_column_of_many_levels_is_cut_into_bins():
    runs = pd.DataFrame({"D": np.arange(1.0, 61.0)[::-1]})
    names, bins = zip(*upper_stages(runs, "D"), strict=True)
    assert len(bins) == 5  # six, less the first
    assert [int(b.is_held(runs).sum()) for b in bins] == [10] * 5
    for low, high in pairwise(bins):
        below = low.is_kept(runs) | low.is_held(runs)
        assert (high.is_kept(runs) == below).all()
    assert bins[-1].is_kept(runs).sum() == 50
    assert len(set(names)) == 5
    assert names[0] == "D 10.8 to 20.7"
    assert names[-1] == "D >= 50.2"
