"""Values by model, draws of one value, and what a plan does not ask where no law reads it."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Costs, LawError, PlanError
from bayeslaw._plans.plan import posed
from bayeslaw.cli import app
from bayeslaw.cli.parsing import _baselines
from bayeslaw.cli.plans import PlanOptions, _stages
from known.plans import DRAWS, STATE, Draws, source_piece, target_piece

SIZES, BEFORE = [8.1e9, 1.4e9], [1.70, 1.95]
OF_TARGET = {"loss_before": STATE["loss_before"]}


def asked(sources=("forgetting",), **options):
    of_source = {name: Draws((source_piece(0),)) for name in sources}
    question = {
        "N": SIZES,
        "ptpp": 30,
        "max_target_loss": 2.45,
        "max_forgetting": 0.03,
        "covariates": STATE,
        "draws": DRAWS,
    }
    source = of_source if len(sources) > 1 else of_source[sources[0]]
    target = Draws((target_piece(),))
    return posed(target, source, **(question | options))


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series], ids=str)
def test_a_sequence_of_the_models_length_is_by_model(kind):
    columns = {"covariates": STATE | {"source_loss_before": kind(BEFORE)}}
    for given in (columns, {"baseline_loss": kind(BEFORE), "covariates": OF_TARGET}):
        models = asked(**given).models
        assert [
            model.columns["forgetting"]["source_loss_before"] for model in models
        ] == BEFORE


def test_values_by_source_are_by_model_too():
    before = {"web": BEFORE, "code": pd.Series([0.9, 1.0])}
    question = asked(("web", "code"), covariates=STATE | {"source_loss_before": before})
    small = question.models[1]
    assert small.columns["web"]["source_loss_before"] == 1.95
    assert small.columns["code"]["source_loss_before"] == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"baseline_loss": BEFORE},
        {"baseline_loss": np.array(BEFORE)},
        {"covariates": STATE | {"loss_before": pd.Series(BEFORE)}},
        {"baseline_tokens": [1e9, 2e9]},
    ],
)
def test_a_sequence_of_another_length_is_no_draws(options):
    with pytest.raises(PlanError, match=r"2 values for 1 model .*bayeslaw\.Draws"):
        asked(N=8.1e9, **options)


def test_draws_have_a_name():
    drawn = bayeslaw.Draws(np.linspace(1.7, 1.95, 50))
    given = {"covariates": OF_TARGET | {"source_loss_before": drawn}}
    for options in (given, {"covariates": OF_TARGET, "baseline_loss": drawn}):
        for model in asked(**options).models:
            np.testing.assert_array_equal(
                model.columns["forgetting"]["source_loss_before"], drawn
            )
            assert (
                model.at_means().columns["forgetting"]["source_loss_before"]
                == drawn.mean()
            )
    with pytest.raises(PlanError, match="draws are numbers in one dimension"):
        bayeslaw.Draws([[1.0, 2.0]])


def test_repeated_baselines_of_the_command_line_are_by_model():
    assert _baselines(["1.70", "1.95"]) == BEFORE
    by_name = _baselines(["web=1.70,code=0.9", "web=1.95,code=1.0"])
    assert by_name == {"web": BEFORE, "code": [0.9, 1.0]}
    assert _baselines(["web=1.7,code=.9"]) == {"web": 1.7, "code": 0.9}
    with pytest.raises(LawError, match="name the same sources"):
        _baselines(["web=1.7", "code=1.0"])


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "t.nc", "s.nc", "--N", "1B", "--max-days", "3", "--max-days", "4"),
        ("fit", "runs.csv", "--seed", "1", "--seed", "2"),
        ("report", "runs.csv", "-o", "here", "--output", "there"),
    ],
)
def test_an_option_of_one_value_given_twice_is_refused(words):
    with pytest.raises(LawError, match="takes one value, and is given 2 times"):
        app.app(words, standalone_mode=False)


# -- stages that no law reads ----------------------------------------------------------


def test_ptpp_is_asked_where_something_reads_it():
    assert [model.ptpp for model in asked(ptpp=None).models] == [None, None]
    options = PlanOptions(N=["1B"])
    assert _stages(options, {"N": [1e9]}) is None
    costs = Costs(hardware="8xH100", price=2.5, train_checkpoint=True)
    with pytest.raises(PlanError, match=r"train_checkpoint .* give ptpp"):
        asked(ptpp=None, costs=costs)


def test_a_plan_without_a_stage_is_that_with_one():
    target = Draws((target_piece(),))
    source = Draws((source_piece(0),))
    limits = {"max_target_loss": 2.45, "max_forgetting": 0.03, "covariates": STATE}
    question = {"N": 1e9, "draws": DRAWS, "new_run": False} | limits
    without = bayeslaw.plan(target, source, **question)
    staged = bayeslaw.plan(target, source, ptpp=30, **question)
    assert without.D == staged.D
    assert without.ptpp is None
    assert without.sentence().startswith("Adapt N = 1B on ")


# -- limits on domains beside covariates by domain -------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        {"web": 2.4, "code": 1.1},
        {"web": [2.4, 2.6], "code": 1.1},
        {"web": bayeslaw.Draws([2.3, 2.5]), "code": 1.1},
    ],
)
def test_a_limit_on_a_domain_beside_covariates_by_domain(before):
    columns = {"loss_before": 3.1, "source_loss_before": before}
    question = asked(("web", "code"), covariates=columns, max_loss={"code": 1.3})
    model = question.models[0]
    assert model.columns["code"]["source_loss_before"] == 1.1
    assert np.mean(model.columns["web"]["source_loss_before"]) == pytest.approx(2.4)
