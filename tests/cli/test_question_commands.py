"""Questions as they are typed, from tables to answers: accuracy, scenarios, money, means, other runs."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw.cli.app import app

ASKED = ["--N", "1.4B", "--ptpp", "31", "--max-forgetting", "2%"]
ASKED += ["--baseline-loss", "2.0"]
CLUSTER = ["--hardware", "8xH100", "--mfu", "0.4", "--price", "2.5"]


def answer(*words) -> dict:
    """What a command prints with --json."""
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.exception
    return json.loads(result.stdout)


def refusal(*words) -> str:
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code != 0
    return str(result.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Previews of a target and a source, and models that were evaluated."""
    here = tmp_path_factory.mktemp("questions")
    for name, seed in (("t", 4), ("s", 5)):
        runs = bayeslaw.simulate("dcpt", parameters={"C": 0.1}, seed=seed)
        fit = bayeslaw.fit(
            runs, "dcpt", independent=True, preview=True, on_failure="ignore"
        )
        fit.save(here / f"{name}.nc")
    losses = np.linspace(1.9, 2.6, 9)
    accuracy = 0.25 + 0.6 / (1 + np.exp((losses - 2.2) / 0.1))
    evaluated = pd.DataFrame({"loss": losses, "accuracy": accuracy})
    evaluated.to_csv(here / "evaluated.csv", index=False)
    return here


@pytest.fixture(scope="module")
def fits(folder):
    return ["--target", folder / "t.nc", "--source", folder / "s.nc"]


@pytest.fixture(scope="module")
def asked(fits):
    return [*fits, *ASKED, "--max-target-loss", "2.02", *CLUSTER]


@pytest.fixture(scope="module")
def plan(asked):
    return answer("plan", *asked)


def test_money_and_days_are_arithmetic_and_a_deadline_binds(asked, plan):
    hours = 6 * 1.4e9 * plan["D"] / (989e12 * 0.4) / 3600
    assert plan["cost"]["device_hours"] == pytest.approx(hours)
    assert plan["cost"]["money"] == pytest.approx(2.5 * hours)
    assert plan["cost"]["days"] == pytest.approx(hours / 8 / 24)
    deadline = 0.95 * plan["cost"]["days"]
    bound = answer("plan", *asked, "--max-days", f"{deadline:.9f}")
    assert bound["cost"]["days"] == pytest.approx(deadline, rel=1e-3)
    assert bound["probability"] < 0.9 <= plan["probability"]
    assert "deadline" in bound["binding"]


def test_scenarios_of_a_file_are_plans_side_by_side(folder, asked, plan):
    file, picture = folder / "scenarios.toml", folder / "whatif.png"
    file.write_text('["on cheap ones"]\nprice = 1\n[surer]\nconfidence = "95%"\n')
    looked_at = answer("whatif", *asked, "--scenarios", file, "--picture", picture)
    plans = {name: row["plan"] for name, row in looked_at.items()}
    assert list(plans) == ["as asked", "on cheap ones", "surer"]
    assert plans["as asked"]["D"] == pytest.approx(plan["D"], rel=1e-9)
    assert plans["surer"]["D"] > plan["D"]
    assert plans["surer"]["probability"] >= 0.95
    cheap = plans["on cheap ones"]["cost"]["money"]
    assert cheap == pytest.approx(plan["cost"]["money"] / 2.5, rel=1e-9)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_plan_promises_an_accuracy(folder, fits):
    """And a forecast of its run has that accuracy beside the loss."""
    chain = ["--accuracy", folder / "evaluated.csv", "--chance", "25%"]
    plan = answer("plan", *fits, *ASKED, "--min-accuracy", "70%", *chain)
    assert plan["feasible"]
    assert [row["name"] for row in plan["promises"]] == ["accuracy", "forgetting"]
    planned = folder / "planned.csv"
    run = {"N": [1.4e9], "D": [plan["D"]], "replay": [plan["replay"]], "ptpp": [31]}
    pd.DataFrame(run).to_csv(planned, index=False)
    (row,) = answer("forecast", folder / "t.nc", planned, *chain)["rows"]
    assert row["accuracy_low"] < row["accuracy"] < row["accuracy_high"]
    assert row["accuracy"] > 0.7
    assert "--min-accuracy needs accuracy" in refusal(
        "plan", *fits, *ASKED, "--min-accuracy", "70%"
    )


def test_a_mean_of_sources_and_another_run_are_limits(folder):
    target = ["--target", folder / "t.nc", "--N", "1.4B", "--ptpp", "31"]
    source = folder / "s.nc"
    asked = [*target, "--source", f"web={source}", "--source", f"code={source}"]
    asked += ["--max-target-loss", "2.02"]
    mean = ["--max-mean-loss", "+2%", "--mean-weights", "web=2,code=1"]
    plan = answer("plan", *asked, *mean, "--baseline-loss", "2.0")
    assert [row["name"] for row in plan["promises"]] == ["target", "mean"]
    # losses before that the tables kept are no second baseline
    other = ["--baseline-run", "D=10B,replay=30%", "--max-forgetting", "1%"]
    over = answer("plan", *asked, *other)
    assert [row["name"] for row in over["promises"]] == ["target", "web", "code"]


# -- fits without options --------------------------------------------------------------


def test_two_fits_without_options_are_those_of_target_and_source(
    folder, fits, asked, plan
):
    """What is written is what is printed."""
    options = [*asked[len(fits) :], "-o", folder / "plan.json"]
    typed = answer("plan", folder / "t.nc", folder / "s.nc", *options)
    assert typed == plan
    assert json.loads((folder / "plan.json").read_text()) == plan


def test_one_fit_without_an_option_says_what_to_type(folder):
    said = refusal("plan", folder / "t.nc", *ASKED, "--max-target-loss", "2.02")
    assert "--target T.nc and --source S.nc" in said


def test_the_stage_is_given_in_tokens_too(folder, fits, asked, plan):
    at = asked.index("--ptpp")
    in_tokens = [*asked[:at], "--pretrain-tokens", "43.4B", *asked[at + 2 :]]
    assert answer("plan", *in_tokens) == plan
    assert "either --ptpp" in refusal("plan", *asked, "--pretrain-tokens", "43.4B")
    neither = [*asked[:at], *asked[at + 2 :]]
    # these laws read no stage, so that none need be given
    assert answer("plan", *neither)["D"] == plan["D"]
    two = ["--pretrain-tokens", "1B", "--pretrain-tokens", "2B"]
    assert "2 --pretrain-tokens for 1 --N" in refusal("plan", *neither, *two)
