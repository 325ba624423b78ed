"""Runs to buy lie between the table and the plan, or are short runs of the plan's own
model, and are none where none is worth it.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bayeslaw._report.buying import _with_planned_losses, is_worth_it, on_offer
from known.stranger import read_stranger

PLAN = {"N": 7e9, "ptpp": 300e9 / 7e9, "D": 72e9, "replay": 0.4}


@pytest.fixture
def runs():
    table = read_stranger(1)
    return table[table["domain"] == "target"]


def test_runs_lie_between_the_table_and_the_plan(runs):
    """No smaller model, no earlier stage, no fewer tokens than the table's farthest."""
    offered = on_offer(runs, PLAN).query("N < 7e9")
    assert offered["N"].min() == runs["N"].max()
    assert offered["N"].nunique() == 3
    np.testing.assert_allclose(offered["N"] * offered["ptpp"], 300e9)
    assert offered["D"].min() == pytest.approx(runs["D"].max())
    assert offered["D"].max() == pytest.approx(PLAN["D"])
    assert set(offered["replay"]) == {0.25, 0.5}
    assert not offered.groupby("run")["replay"].nunique().gt(1).any()
    assert offered.index.is_unique


def test_a_checkpoint_of_the_table_is_not_trained_again(runs):
    """Its stage is written as a quotient, and found all the same."""
    offered = on_offer(runs, PLAN)
    is_there = offered["N"].isin([runs["N"].max(), PLAN["N"]])
    assert (offered.loc[is_there, "checkpoint_cost"] == 0).all()
    size = offered.loc[~is_there, "N"]
    np.testing.assert_allclose(
        offered.loc[~is_there, "checkpoint_cost"], 6 * size * 300e9
    )


def test_short_runs_of_the_plans_own_model_are_offered(runs):
    """Its checkpoint is there, since the plan adapts it: only tokens are paid."""
    offered = on_offer(runs, PLAN).query("N == 7e9")
    np.testing.assert_allclose(np.unique(offered["D"]), [2e9, np.sqrt(40) * 1e9, 20e9])
    np.testing.assert_allclose(offered["cost"], 6 * 7e9 * offered["D"])
    np.testing.assert_allclose(offered["ptpp"], PLAN["ptpp"])
    assert set(offered["replay"]) == {0.25, 0.5}
    assert offered["source_loss_before"].isna().all()
    shorter = on_offer(runs, PLAN | {"D": 1e9}).query("N == 7e9")
    np.testing.assert_allclose(shorter["D"], 1e9)


def measured_own(runs, tokens):
    """The table with runs of the plan's own model, so many tokens long."""
    own = runs.head(len(tokens)).assign(N=7e9, ptpp=PLAN["ptpp"], D=tokens)
    return pd.concat([runs, own], ignore_index=True)


def test_after_the_shortest_run_of_that_model_longer_ones_are_offered(runs):
    """Between it and the table's longest, of 20B tokens, which are on offer as well."""
    offered = on_offer(measured_own(runs, [2e9]), PLAN)
    assert set(offered["N"]) == {7e9}
    np.testing.assert_allclose(
        np.unique(offered["D"].round(-6)),
        np.round([*np.geomspace(2e9, 20e9, 5)[1:-1], *np.geomspace(20e9, 72e9, 3)], -6),
    )
    assert not offered.duplicated(["N", "D", "replay"]).any()
    np.testing.assert_allclose(offered["checkpoint_cost"], 0)
    assert offered["run"].nunique() == 2  # a run for each replay
    # as long as the table's runs: nothing shorter is left to learn from
    longest = on_offer(measured_own(runs, [2e9, 20e9]), PLAN)
    assert longest["D"].min() == pytest.approx(20e9)


def test_short_runs_start_from_the_losses_that_the_plan_has(runs):
    """Measured ones, or the median of those that are forecast."""
    drawn = np.array([1.9, 2.0, 2.2])
    question = {"covariates": {"loss_before": 3.8, "source_loss_before": drawn}}
    offered = _with_planned_losses(on_offer(runs, PLAN), PLAN, question)
    own = offered.query("N == 7e9")
    assert set(own["loss_before"]) == {3.8}
    assert set(own["source_loss_before"]) == {2.0}
    others = offered.query("N < 7e9")
    assert others["loss_before"].equals(
        on_offer(runs, PLAN).query("N < 7e9")["loss_before"]
    )


def test_a_plan_within_the_table_buys_at_its_size(runs):
    inside = {"N": 760e6, "ptpp": 300e9 / 760e6, "D": 20e9, "replay": 0.25}
    assert set(on_offer(runs, inside)["N"]) == {760e6}


def test_a_size_of_the_table_at_a_new_stage_has_one_price_for_each_run(runs):
    """No pilots, whose checkpoint would be free, beside runs that pay for it."""
    new_stage = {"N": 760e6, "ptpp": 200e9 / 760e6, "D": 40e9, "replay": 0.25}
    offered = on_offer(runs, new_stage)
    assert not offered.duplicated(["N", "ptpp", "replay", "D"]).any()
    assert (offered.groupby("run")["checkpoint_cost"].nunique() == 1).all()
    assert offered["D"].min() == pytest.approx(runs["D"].max())


@pytest.mark.parametrize(
    ("gains", "error", "spent", "is_worth"),
    [
        ([5e20], 1e20, 1e20, True),
        ([5e20], 3e20, 1e20, False),  # within two errors of nothing
        (
            [1.1e20],
            1e18,
            1e20,
            False,
        ),  # less than a hundredth of the plan beyond its cost
        ([2e20, 2e20], 5e19, 1e20, True),
        ([], 0.0, 0.0, False),
    ],
)
def test_what_is_not_worth_its_cost_is_not_offered(gains, error, spent, is_worth):
    picks = [{"gain": gain, "gain_error": error} for gain in gains]
    picked = SimpleNamespace(picks=picks, spent=spent)
    assert is_worth_it(picked, 2e21) is is_worth
