"""Runs bought for a plan."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._decisions.anchors.anchors import anchors
from bayeslaw._decisions.anchors.menu import candidates
from bayeslaw._decisions.planning import example
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._tables.simulate import ptpp_grid
from known.lines import Known, spread


@pytest.fixture(scope="module")
def plan_posteriors():
    made = [(example.TARGET_LAW, example.TARGET), (example.SOURCE_LAW, example.SOURCE)]
    return [spread(n, p, 0.004, 1000, s) for s, (n, p) in enumerate(made)]


QUESTION = example.QUESTION | {
    "max_target_loss": 1.83,
    "max_forgetting": 0.03,
    "draws": 1000,
}


def test_runs_are_bought_for_what_they_save_the_plan(plan_posteriors):
    """The expected saving is that of plans made again under simulated outcomes, and a run is bought only if it pays."""
    target, source = plan_posteriors
    offered = candidates(ptpp_grid().query("N < 1e9"), ptpp=(279,), atpp=(1, 5, 20))
    made = anchors(
        target, offered, QUESTION, 2e19, source=source, checks=24, max_picks=4
    )
    assert made.gain == "plan"
    assert made.plan is not None
    assert made.check is not None
    assert all(p["gain"] >= p["cost"] for p in made.picks)
    assert made.plan["flops_before"] - made.plan["flops_after"] == pytest.approx(
        sum(p["gain"] for p in made.picks)
    )
    again, error = made.check["flops"], made.check["flops_error"]
    assert made.check["share_with_a_plan"] == 1.0
    assert again < made.plan["flops_before"]
    assert abs(again - made.plan["flops_after"]) < 3 * error + 0.1 * (
        made.plan["flops_before"] - again
    )


ILL_POSED = {
    "no plan reaches the confidence yet": QUESTION | {"max_target_loss": 1.2},
    "kept without adapting at all": QUESTION
    | {"max_target_loss": 50.0, "max_forgetting": "900%"},
    "needs ptpp, max_target_loss, max_forgetting": {"N": 8.1e9},
    "'budgte' is not part": QUESTION | {"budgte": 1.0},
}


def test_a_checkpoint_without_a_loss_is_named():
    """A new checkpoint has no measured loss for a law that starts from it."""
    runs = pd.DataFrame(
        {
            "N": 1e8,
            "D": [1e9, 2e9, 4e9],
            "ptpp": 20.0,
            "replay": 0.1,
            "loss_before": 3.0,
        }
    )
    offered = candidates(runs, N=[1e8, 2e8], atpp=[10.0])
    names = ("loss_before",)
    posterior = Known(
        Piece(
            lambda draw, x: draw["level"] + jnp.log(x["loss_before"]),
            {"level": np.linspace(-0.1, 0.1, 64)},
            names,
        )
    )
    with pytest.raises(
        RunTableError,
        match=r"column 'loss_before': empty .*checkpoint \(N 200M, ptpp 20\) does not exist",
    ):
        anchors(posterior, offered, runs.head(1), 1e20, checks=0)


@pytest.mark.parametrize("message", ILL_POSED)
def test_a_plan_that_cannot_be_improved_or_posed_is_refused(plan_posteriors, message):
    target, source = plan_posteriors
    offered = candidates(ptpp_grid().query("N < 1e9"), ptpp=(279,), atpp=(1,))
    with pytest.raises(PlanError, match=message):
        anchors(target, offered, ILL_POSED[message], 1e19, source=source)
