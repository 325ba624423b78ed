"""Plans keep to the replays that were fitted unless more is asked for, and say so."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from bayeslaw import PlanError, RunTableWarning, forecast, plan
from bayeslaw._tables.beyond import far_beyond, replay_outside
from known import example
from known.plans import DRAWS, WIDE, source, target


class Of:
    """A known posterior of runs that it keeps."""

    def __init__(self, posterior, runs: pd.DataFrame):
        self.name, self.warnings, self.runs = "known", (), runs
        self.pieces, self.log_loss = posterior.pieces, posterior.log_loss


def table(*replays: float) -> pd.DataFrame:
    rows = [
        (N, D, replay, 279.0, 2.0)
        for N in (3e9, 8e9)
        for D in (1e9, 1e11)
        for replay in replays
    ]
    return pd.DataFrame(rows, columns=["N", "D", "replay", "ptpp", "loss"])


def planned(of_target: pd.DataFrame, of_source: pd.DataFrame, **asked):
    made = {"sd": WIDE["sd"], "draws": DRAWS}
    sources = of_source.assign(loss=1.5)
    posteriors = Of(target(**made), of_target), Of(source(**made), sources)
    # the tables are made up, and equal: their errors would belong together
    apart = {"new_run": False, "draws": DRAWS, "correlation": 0}
    question = example.QUESTION | apart
    return plan(*posteriors, **(question | asked))


LOW, HIGH, WIDE_TABLE = table(0.1, 0.2), table(0.5, 0.9), table(0.0, 0.9)


@pytest.fixture(scope="module")
def free():
    """The example's plan where all replays were fitted: about 34% replay."""
    return planned(WIDE_TABLE, WIDE_TABLE)


def said(made) -> list[str]:
    return [line for line in made.warnings if "replay" in line]


def test_a_plan_inside_the_fitted_replays_is_as_if_nothing_bound_it(free):
    assert 0.3 < free.replay < 0.5
    assert said(free) == []
    assert free.settings["max_replay"] == 0.9


@pytest.mark.parametrize(
    ("runs", "bound", "at", "option"),
    [
        (LOW, 0.2, "largest", "--max-replay 1"),
        (HIGH, 0.5, "least", "--min-replay 0"),
    ],
)
def test_by_default_no_plan_lies_beyond_the_fitted_replays(
    free, runs, bound, at, option
):
    """The plan is the dearer one at the bound, which is said with what to give."""
    made = planned(runs, runs)
    assert made.replay == pytest.approx(bound, abs=1e-4)
    assert made.D > 1.005 * free.D
    assert f"{at} fitted replay" in made.binding
    (line,) = said(made)
    assert f"at the {at} fitted replay, {bound:g}: beyond it nothing was" in line
    assert option in line
    replays = made.region["replay"]
    assert min(replays) >= runs["replay"].min()
    assert max(replays) <= runs["replay"].max()


def test_without_a_plan_the_bound_is_said_too():
    none = planned(LOW, LOW, max_forgetting="-3%")
    assert not none.feasible
    assert none.explanation["best"]["replay"] == pytest.approx(0.2, abs=1e-4)
    (line,) = said(none) or [""]
    assert "the most probable plan is at the" in line


@pytest.mark.parametrize(
    ("runs", "asked", "end", "share"),
    [
        (LOW, {"max_replay": 1}, "times the largest fitted, 0.2", "target"),
        (HIGH, {"min_replay": 0.0}, "times the smallest fitted, 0.5", "source"),
    ],
)
def test_a_plan_asked_for_beyond_them_is_found_and_warned_of(
    free, runs, asked, end, share
):
    """With the factor of the replay, and that of the data of which a token has less."""
    made = planned(runs, runs, **asked)
    assert pytest.approx(free.D, rel=2e-3) == made.D
    (line,) = said(made)
    assert line.startswith(f"the plan's replay = {made.replay:.4g} is ")
    assert end in line
    fitted = runs["replay"]
    less = {
        "target": (1 - fitted.max()) / (1 - made.replay),
        "source": fitted.min() / made.replay,
    }
    assert f"({less[share]:.3g} times less {share} data in a token)" in line
    assert "nothing tested it" in line


def test_the_bounds_are_those_that_all_tables_hold():
    made = planned(table(0.1, 0.4, 0.9), table(0.2, 0.3))
    assert (made.settings["min_replay"], made.settings["max_replay"]) == (0.2, 0.3)
    assert made.replay == pytest.approx(0.3, abs=1e-4)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            {"min_replay": 0.6},
            "over the largest fitted replay, 0.2: .* give max_replay",
        ),
        (
            {"max_replay": 0.05},
            "under the least fitted replay, 0.1: .* give min_replay",
        ),
        ({"min_replay": 0.6, "max_replay": 0.5}, "min_replay 0.6 is over max_replay"),
        ({"max_replay": 99}, "max_replay must be a share"),
    ],
)
def test_bounds_that_leave_nothing_are_refused_in_one_line(asked, says):
    with pytest.raises(PlanError, match=says) as raised:
        planned(LOW, LOW, **asked)
    assert "\n" not in str(raised.value)


def test_one_fitted_replay_is_the_plans():
    one = table(0.25)
    made = planned(one, one)
    assert made.replay == 0.25


def test_all_replay_is_no_plan_however_little_is_asked():
    """No target token is seen there, though the law of the loss may say that it falls."""
    made = planned(WIDE_TABLE, WIDE_TABLE, min_replay=1, max_replay=1)
    assert not made.feasible
    whole = planned(WIDE_TABLE, WIDE_TABLE, max_replay=1)
    assert whole.region["replay"][-1] == 1
    assert set(whole.region["probability"][-1]) == {0.0}


# -- distance ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replay", "told"),
    [
        ([0.9], "replay 90% lies outside .*10% to 50%.*: 5 times less"),
        ([0.3, 0.99, 0.7], "replay 99% in 2 of 3 rows lies outside .*: 50 times less"),
        ([0.0], "replay 0% lies outside .*: 100 times less source data"),
        # 2% more target data, and a fifth of the source's gone
        ([0.08], "replay 8% lies outside .*: 1.25 times less source data"),
        ([1.0], "replay 100% lies outside .*: 500 times less"),
    ],
)
def test_replay_outside_is_told_by_the_share_that_there_is_less_of(replay, told):
    line = replay_outside(table(0.1, 0.5), pd.DataFrame({"replay": replay}))
    assert line is not None
    assert re.search(told, line)
    assert line in far_beyond(table(0.1, 0.5), pd.DataFrame({"replay": replay}))


@pytest.mark.parametrize("replay", [[0.1, 0.3, 0.5], [0.502], [np.nan]])
def test_replay_inside_the_fitted_ones_is_not_told(replay):
    assert replay_outside(table(0.1, 0.5), pd.DataFrame({"replay": replay})) is None
    assert replay_outside(table(0.1, 0.5), pd.DataFrame({"N": [1e9]})) is None


def test_a_forecast_beyond_the_fitted_replays_warns():
    asked = table(0.9)
    posterior = Of(target(sd=0.01, draws=8), table(0.1, 0.5))
    posterior.log_loss = lambda runs, **_: np.zeros((8, len(runs)))
    with pytest.warns(RunTableWarning, match="90% in 4 of 4 rows lies outside"):
        forecast(posterior, asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecast(posterior, table(0.3))
