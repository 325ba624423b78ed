"""A plan takes the checkpoint's losses before adaptation from the tables that the fits kept."""

import numpy as np
import pandas as pd
import pytest

from bayeslaw import PlanError, plan
from bayeslaw._plans.plan import posed
from known.plans import STATE, Draws, source_piece, target_piece

ASKED = {
    "N": 1e9,
    "ptpp": 30,
    "max_target_loss": 2.45,
    "max_forgetting": 0.03,
    "new_run": False,
    "draws": 64,
}


def table(**columns) -> pd.DataFrame:
    """Runs from two checkpoints; what they were measured at before."""
    rows = {"N": [1e9, 1e9, 2e9], "ptpp": 30.0, "D": [1e9, 1e11, 1e10]}
    replay = {"replay": [0.0, 0.9, 0.5], "loss": [2.9, 2.5, 2.4]}
    return pd.DataFrame(rows | replay | columns)


TARGET_RUNS = table(loss_before=[3.1, 3.1, 2.8], source_loss_before=[2.4, 2.4, 2.2])
SOURCE_RUNS = table(source_loss_before=[2.4, 2.4, 2.2]).assign(loss=[2.5, 2.4, 2.3])


def of_target(runs: pd.DataFrame) -> Draws:
    return Draws((target_piece(draws=64),), runs=runs)


def of_source(runs: pd.DataFrame) -> Draws:
    return Draws((source_piece(draws=64),), runs=runs)


@pytest.fixture(scope="module")
def told():
    """The plan where all is said."""
    return plan(
        of_target(TARGET_RUNS), of_source(SOURCE_RUNS), **ASKED, covariates=STATE
    )


@pytest.mark.parametrize(
    ("target_runs", "source_runs"),
    [
        (TARGET_RUNS, SOURCE_RUNS),
        # a source's own loss before is its source_loss_before
        (
            TARGET_RUNS,
            SOURCE_RUNS.rename(columns={"source_loss_before": "loss_before"}),
        ),
        # the source's table knows what the target's law reads
        (TARGET_RUNS.drop(columns="source_loss_before"), SOURCE_RUNS),
    ],
)
def test_a_plan_without_them_is_the_plan_with_them(told, target_runs, source_runs):
    made = plan(of_target(target_runs), of_source(source_runs), **ASKED)
    assert (made.D, made.replay) == (told.D, told.replay)
    assert made.settings["baseline"] == {"forgetting": 2.4}
    assert "source_loss_before is the table's own checkpoint's: 2.4" in made.sentence()
    assert told.settings["notes"] == []


def test_what_is_given_is_not_replaced(told):
    asked = ASKED | {"covariates": {"loss_before": 3.1}}
    other = plan(
        of_target(TARGET_RUNS), of_source(SOURCE_RUNS), **asked, baseline_loss=2.45
    )
    assert other.settings["baseline"]["forgetting"] == pytest.approx(2.45)
    assert other.settings["notes"] == []
    assert other.D != told.D


def test_each_of_several_models_has_its_own():
    asked = ASKED | {"N": [1e9, 2e9]}
    question = posed(of_target(TARGET_RUNS), of_source(SOURCE_RUNS), **asked)
    befores = [
        model.columns["forgetting"]["source_loss_before"] for model in question.models
    ]
    assert befores == [2.4, 2.2]
    assert [m.columns["target"]["loss_before"] for m in question.models] == [3.1, 2.8]


def test_each_source_has_that_of_its_own_table():
    other = SOURCE_RUNS.assign(source_loss_before=1.9, loss=2.0)
    sources = {"web": of_source(SOURCE_RUNS), "code": of_source(other)}
    question = posed(of_target(TARGET_RUNS), sources, **ASKED)
    (model,) = question.models
    assert model.columns["web"]["source_loss_before"] == 2.4
    assert model.columns["code"]["source_loss_before"] == 1.9
    assert model.columns["target"]["source_loss_before"] == 2.4


def test_of_a_checkpoint_that_no_table_has_it_is_asked_for():
    with pytest.raises(PlanError, match="give"):
        plan(of_target(TARGET_RUNS), of_source(SOURCE_RUNS), **(ASKED | {"N": 5e9}))


def test_it_is_forecast_from_the_table_s_other_checkpoints_where_there_are_six():
    """As on the report's page: the plan of its saved fits is then the page's plan."""
    sizes, stages = np.array([1, 4, 16, 1, 4, 16]) * 1e8, np.repeat([15.0, 60.0], 3)
    rng = np.random.default_rng(0)
    shape = {"N": sizes, "ptpp": stages, "D": 1e10, "replay": np.linspace(0, 0.9, 6)}
    befores = {
        name: level * (1 + 0.2 * (sizes / 1e9) ** -0.3 + 0.1 * (stages / 30) ** -0.3)
        for name, level in (("loss_before", 2.2), ("source_loss_before", 1.7))
    }
    noisy = {name: x * np.exp(rng.normal(0, 0.002, 6)) for name, x in befores.items()}
    runs = pd.DataFrame(shape | noisy | {"loss": 2.5})
    sources = runs.assign(loss=2.4)
    question = posed(of_target(runs), of_source(sources), **(ASKED | {"N": 5e9}))
    (model,) = question.models
    for name, level in (("loss_before", 2.2), ("source_loss_before", 1.7)):
        draws = model.columns["target"][name] / (level * (1.1 + 0.2 * 5**-0.3))
        assert abs(np.median(draws) - 1) < 0.02
        assert 0 < np.std(draws) < 0.1
    assert ["forecast from 6 checkpoints" in line for line in question.notes] == [
        True,
        True,
    ]


def test_gaps_in_the_table_are_passed_over(told):
    gaps = TARGET_RUNS.assign(loss_before=[np.nan, 3.1, np.nan])
    assert plan(of_target(gaps), of_source(SOURCE_RUNS), **ASKED).D == told.D
