"""A law at given constants: forecast, optimum and plan without a table."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import LawError, PlanError
from bayeslaw._posteriors.constants import law_as_written
from bayeslaw.cli.app import app

HOFFMANN = {"E": 1.69, "A": 406.4, "B": 410.7, "alpha": 0.34, "beta": 0.28}
WRITTEN = "chinchilla@E=1.69,A=406.4,B=410.7,alpha=0.34,beta=0.28"
RUNS = pd.DataFrame({"N": [7e10], "D": [1.4e12]})
LOSS = 1.69 + 406.4 / 7e10**0.34 + 410.7 / 1.4e12**0.28  # by hand: 1.937


def test_it_is_the_formula_by_hand():
    at = bayeslaw.law_at("chinchilla", HOFFMANN)
    assert np.exp(at.log_loss(RUNS)[:, 0]) == pytest.approx(LOSS)
    assert pytest.approx(1.937, abs=1e-3) == LOSS
    assert "without uncertainty" in at.warnings[0]


def test_a_stated_error_is_that_of_the_draws():
    at = bayeslaw.law_at("chinchilla", HOFFMANN, sd={"E": 0.05}, draws=20_000)
    loss = np.exp(at.log_loss(RUNS)[:, 0])
    assert loss.std() == pytest.approx(0.05, rel=0.03)
    assert at.warnings == ()


def test_noise_is_that_of_a_new_run():
    at = bayeslaw.law_at("chinchilla", HOFFMANN, sigma=0.005)
    noisy = at.log_loss(RUNS, noise=True)[:, 0]
    assert noisy.std() == pytest.approx(0.005, rel=0.06)
    assert at.log_loss(RUNS)[:, 0].std() == pytest.approx(0, abs=1e-12)


def test_its_optimum_is_the_published_exponent():
    """a = beta/(alpha + beta) = .452 of Hoffmann's third approach."""
    best = bayeslaw.optimum(bayeslaw.law_at("chinchilla", HOFFMANN), [1e20, 1e22, 1e24])
    assert best.exponent["median"] == pytest.approx(0.28 / 0.62, abs=1e-3)


def test_a_plan_at_constants():
    """Target by Chinchilla's law, forgetting by another: the target is met."""
    target = bayeslaw.law_at("dcpt", dict(bayeslaw.law("dcpt").plausible))
    plausible = bayeslaw.law("ptpp-floor").plausible
    source = bayeslaw.law_at("ptpp-floor", dict(plausible))
    asked = {"N": 1e9, "ptpp": 30.0, "max_target_loss": 3.0, "max_forgetting": 0.5}
    plan = bayeslaw.plan(target, source, baseline_loss=2.5, new_run=False, **asked)
    if plan.D:
        row = pd.DataFrame(
            [{"N": 1e9, "ptpp": 30.0, "D": plan.D, "replay": plan.replay}]
        )
        assert np.exp(target.log_loss(row)[0, 0]) <= 3.0 + 1e-6
    assert plan.feasible


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WRITTEN.replace(",beta=0.28", ""), "missing 'beta'"),
        (f"{WRITTEN},gamma=2", "unknown 'gamma'"),
        (WRITTEN.replace("1.69", "abc"), "chinchilla@E: 'abc' is not a number"),
    ],
)
def test_constants_that_make_no_sense_are_refused(text, says):
    with pytest.raises(LawError, match=says):
        law_as_written(text)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"A": -406.4}, "chinchilla@A: it is above 0, got -406.4"),
        ({"alpha": -0.34}, "chinchilla@alpha: it is above 0"),
        ({"E": -1}, "chinchilla@E: it is above 0"),
        ({"A": np.nan}, "chinchilla@A must be a number, got nan"),
        ({"B": np.inf}, "chinchilla@B must be a number, got inf"),
        ({"A": True}, "chinchilla@A must be a number, got True"),
        ({"A": "4O6"}, "chinchilla@A must be a number"),
        ({"A": 1e300}, "has a loss of .* a digit or a sign wrong"),
        ({"alpha": 0.0}, "has a loss of 409 nats"),
        ({"alpha": 50, "E": 0, "B": 0}, "has a loss of"),
    ],
)
def test_constants_that_no_law_has_are_refused(changed, says):
    """A negative one gave losses below those of any run, or none."""
    with pytest.raises((LawError, PlanError), match=says) as raised:
        bayeslaw.law_at("chinchilla", HOFFMANN | changed)
    assert "\n" not in str(raised.value)


def test_errors_and_draws_that_make_no_sense_are_refused():
    with pytest.raises(LawError, match=r"sd of A is .* times A"):
        bayeslaw.law_at("chinchilla", HOFFMANN, sd={"A": 1e6})
    for draws in (0, -1):
        with pytest.raises(LawError, match="draws must be at least 1"):
            bayeslaw.law_at("chinchilla", HOFFMANN, draws=draws)


@pytest.mark.parametrize("law", bayeslaw.laws(), ids=lambda law: law.name)
def test_plausible_constants_are_taken(law):
    assert bayeslaw.law_at(law, law.plausible, draws=2).law is law


def test_a_path_is_no_constants():
    assert law_as_written("fits/target.nc") is None
    assert law_as_written("me@work.nc") is None


def test_at_the_command_line(tmp_path):
    path = tmp_path / "planned.csv"
    RUNS.to_csv(path, index=False)
    done = CliRunner().invoke(app, ["forecast", WRITTEN, str(path), "--json"])
    (row,) = json.loads(done.stdout)["rows"]
    assert row["median"] == pytest.approx(LOSS)
    picture = tmp_path / "optimum.png"
    words = ["optimum", WRITTEN, "--budget", "1e22", "--picture", str(picture)]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(done.stdout)["rows"][0]["N"] > 1e9
    assert picture.stat().st_size > 0
