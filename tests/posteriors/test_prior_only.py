"""Before the first run: what the priors say, where a posterior is taken."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw.cli.app import app
from known.commands import call

AHEAD = pd.DataFrame({"N": [7e9, 7e9], "D": [1.4e11, 1e12]})
OFFER = pd.DataFrame(
    {"N": [1e8, 1e8, 4e8, 1e9], "D": [2e9, 2e10, 8e9, 2e10]},
)
STATE = {"loss_before": 3.0, "source_loss_before": 2.6}
QUESTION = {"N": 1e9, "ptpp": 30, "max_target_loss": 2.8, "max_forgetting": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("nothing")
    AHEAD.to_csv(place / "ahead.csv", index=False)
    OFFER.to_csv(place / "offer.csv", index=False)
    return place


def run(*words: object) -> str:
    return call(*words).stdout


def test_draws_have_the_priors_quantiles():
    law = bayeslaw.law("chinchilla")
    nothing = bayeslaw.prior_only(law, experience="none")
    (piece,) = nothing.pieces()
    for name, prior in law.priors.items():
        share = np.mean(piece.values[name] < prior.quantile(0.3))
        assert share == pytest.approx(0.3, abs=0.04)  # 4 sds of 2,000 draws


def test_without_runs_the_noise_holds_the_misfit():
    """A law's misfit is no less for not knowing where it will be asked."""
    plain = bayeslaw.prior_only("chinchilla").pieces()[0]
    spanned = bayeslaw.prior_only("chinchilla", AHEAD).pieces()[0]
    assert "misfit" in spanned.values
    assert "misfit" not in plain.values
    more = np.median(plain.values["sigma"]) / np.median(spanned.values["sigma"])
    assert more > 1.3  # of two log-normals of median .005


def test_it_says_that_nothing_is_measured_and_where_priors_are_from():
    nothing = bayeslaw.prior_only("chinchilla")
    assert nothing.name == "prior of chinchilla"
    (line,) = nothing.warnings
    assert "nothing is measured yet" in line
    assert "learned from web-text" in line
    assert nothing.laws[0].priors["alpha"].source == "learned: web text, 10 labs"


def test_the_losses_of_the_runs_are_not_looked_at():
    told = AHEAD.assign(loss=[9.0, 9.0])
    blind = bayeslaw.prior_only("chinchilla", AHEAD).log_loss(AHEAD)
    np.testing.assert_array_equal(
        bayeslaw.prior_only("chinchilla", told).log_loss(AHEAD), blind
    )


def test_the_same_seed_is_the_same_prior():
    first, again, other = (
        bayeslaw.prior_only("chinchilla", seed=seed).log_loss(AHEAD)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_two_losses_of_a_checkpoint_narrow_what_is_known():
    """At D = 0 the loss is the checkpoint's; soon after it cannot be far from there."""
    runs = pd.DataFrame(
        {"N": [1e9] * 2, "D": [1e7, 1e10], "replay": [0.25] * 2} | STATE
    )
    nothing = bayeslaw.prior_only("state-target", runs)
    soon, late = bayeslaw.forecast(nothing, runs).itertuples()
    assert soon.low < 3.0 < soon.high
    assert soon.high / soon.low < late.high / late.low


def test_anchors_from_nothing_say_what_first_runs_are_worth():
    span = pd.concat([OFFER, AHEAD])
    nothing = bayeslaw.prior_only("chinchilla", span)
    bought = bayeslaw.anchors(nothing, OFFER, AHEAD, 2e20, checks=0)
    assert bought.goal_sd_after < 0.6 * bought.goal_sd_before
    assert any("nothing is measured" in line for line in bought.warnings)


def test_a_plan_from_nothing_is_a_plan_that_says_so():
    target = bayeslaw.prior_only("state-target")
    source = bayeslaw.prior_only("state-source", seed=1)
    plan = bayeslaw.plan(
        target, source, **QUESTION, baseline_loss=2.6, covariates=STATE, confidence=0.6
    )
    assert any("nothing is measured" in line for line in plan.warnings)
    assert plan.to_dict()["warnings"]


def test_the_forecast_command_is_marked_in_text_and_json(folder):
    words = ("forecast", folder / "ahead.csv", "--law", "chinchilla", "--prior-only")
    assert run(*words).startswith("nothing is measured yet")
    record = json.loads(run(*words, "--json"))
    assert record["prior_only"] is True
    assert "nothing is measured" in record["warnings"][0]
    assert record["rows"][0]["high"] > 1.2 * record["rows"][0]["low"]


def test_experience_changes_the_forecast_command(folder):
    words = ("forecast", folder / "ahead.csv", "--law", "chinchilla", "--prior-only")
    web, code = (
        json.loads(run(*words, "--experience", name, "--json"))["rows"][0]["median"]
        for name in ("web-text", "code")
    )
    assert code < 0.8 * web


def test_the_anchors_command_begins_from_a_law(folder):
    text = run(
        "anchors", "--law", "chinchilla", "--prior-only",
        "--candidates", folder / "offer.csv", "--goal", folder / "ahead.csv",
        "--budget", "2e20", "--checks", "0",
    )  # fmt: skip
    assert text.startswith("nothing is measured yet")
    assert "goal sd" in text


def test_the_plan_command_takes_two_laws_and_two_evaluations():
    record = json.loads(
        run(
            "plan", "--prior-only", "--law", "state-target",
            "--source-law", "state-source", "--N", "1e9", "--ptpp", "30",
            "--covariate", "loss_before=3", "--covariate", "source_loss_before=2.6",
            "--baseline-loss", "2.6", "--max-target-loss", "2.8",
            "--max-forgetting", "30%", "--confidence", "0.6", "--json",
        )
    )  # fmt: skip
    assert record["prior_only"] is True
    assert record["warnings"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("forecast", "a.csv", "--prior-only"), "name it (--law chinchilla)"),
        (("forecast", "a.nc", "b.csv", "--prior-only"), "there is no fit"),
        (("forecast", "a.nc"), "give a fit and a table"),
        (("forecast", "a.nc", "b.csv", "--law", "dcpt"), "belong to --prior-only"),
    ],
)
def test_what_is_missing_is_said(folder, words, says):
    paths = [str(folder / "ahead.csv") if w == "a.csv" else w for w in words]
    result = CliRunner().invoke(app, paths)
    assert isinstance(result.exception, bayeslaw.BayeslawError)
    assert says in str(result.exception)
