"""What the report is to plan for is checked in full before anything is fitted."""

import functools
import shlex

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import PlanError, datasets
from bayeslaw._posteriors.averaging.checkpoint import forecast_losses
from bayeslaw._report import page
from bayeslaw._report.domains import PageSetting
from bayeslaw._report.question import check_question
from bayeslaw._tables.holdouts import HoldOut
from bayeslaw.cli.app import app

QUESTION = {"N": 1e9, "ptpp": 30.0, "max_target_loss": 2.0, "max_forgetting": 0.02}
BEFORE = {"loss_before": 2.9, "source_loss_before": 1.4}


@pytest.fixture
def parts():
    table = datasets.load("microcpt")
    return {domain: table[table["domain"] == domain] for domain in ("target", "source")}


def laws(target=(), source=()):
    return {"target": target, "source": source}


STATE = laws(["state-target"], ["state-source"])  # read both losses


def test_all_that_is_missing_is_said_in_one_line(parts):
    """Of laws that read the checkpoint's losses, where the table has none."""
    without = {name: runs.drop(columns=list(BEFORE)) for name, runs in parts.items()}
    with pytest.raises(PlanError) as error:
        check_question(QUESTION, without, STATE)
    line = str(error.value)
    assert "\n" not in line
    for column in ("loss_before", "source_loss_before", "baseline_loss"):
        assert f"{column} (" in line
    assert "state-target" in line
    assert "state-source" in line


def test_a_column_of_the_table_is_a_covariate(parts):
    checked = check_question(QUESTION | BEFORE, parts, laws())
    assert checked.keywords == QUESTION | {"covariates": BEFORE}
    assert checked.told == ()


def test_numbers_are_taken_as_people_write_them(parts):
    """Limits keep their text, which may say a unit."""
    written = {"N": "1B", "ptpp": "30", "max_target_loss": 2.0, "max_forgetting": "2%"}
    checked = check_question(written | BEFORE, parts, laws())
    expected = QUESTION | {"max_forgetting": "2%", "covariates": BEFORE}
    assert checked.keywords == expected
    with pytest.raises(PlanError, match="N must be a positive number"):
        check_question(written | BEFORE | {"N": "seven"}, parts, laws())


OWN = {"N": 258_528.0, "ptpp": 279.0}  # a checkpoint of the bundled table


def own_losses(parts, columns=tuple(BEFORE)):
    """Its losses before adaptation, looked up by hand."""
    target = parts["target"]
    rows = target[(target["N"] == OWN["N"]) & (target["ptpp"] == OWN["ptpp"])]
    return {c: pytest.approx(rows[c].unique().mean(), rel=1e-12) for c in columns}


@pytest.mark.parametrize(
    ("names", "columns"), [(STATE, [*BEFORE]), (laws(), ["source_loss_before"])]
)
def test_the_table_s_own_checkpoint_says_its_losses(parts, names, columns):
    """Those that the laws read: by default the source's, not the target's."""
    checked = check_question(QUESTION | OWN, parts, names)
    assert checked.keywords["covariates"] == own_losses(parts, columns)
    assert len(checked.told) == len(columns)
    assert all("table's own checkpoint" in line for line in checked.told)


def test_a_size_written_rounded_is_that_checkpoint(parts):
    rounded = {"N": 259e3, "ptpp": 280.0}
    checked = check_question(QUESTION | rounded, parts, STATE)
    assert checked.keywords["covariates"] == own_losses(parts)


def test_what_was_given_stays(parts):
    given = {"covariates": {"loss_before": 9.9}, "baseline_loss": 1.7}
    checked = check_question(QUESTION | OWN | given, parts, laws())
    assert checked.keywords["covariates"] == {
        "loss_before": 9.9,
        "source_loss_before": 1.7,
    }


def test_a_misspelt_keyword_of_the_plan_is_answered_with_the_one_meant(parts):
    wrong = {"max_target_los": 1.9}
    with pytest.raises(
        PlanError, match=r"no option 'max_target_los'; .*did you mean 'max_t"
    ):
        check_question(QUESTION | OWN | wrong, parts, laws())


def test_several_models_have_a_loss_each(parts):
    models = {"N": [123_200.0, 258_528.0], "ptpp": 279.0}
    checked = check_question(QUESTION | models, parts, STATE)
    losses = checked.keywords["covariates"]["loss_before"]
    assert losses[1] == own_losses(parts)["loss_before"]
    assert len(losses) == 2


def test_losses_of_a_checkpoint_that_is_not_there_are_forecast(parts):
    """Without the last stage, the forecast of its largest checkpoint holds what was measured."""
    some = {name: runs[runs["ptpp"] < 279] for name, runs in parts.items()}
    some = {name: runs[runs["seed"] == 0] for name, runs in some.items()}
    checked = check_question(QUESTION | OWN, some, STATE)
    assert not {*BEFORE} & {*checked.keywords.get("covariates", {})}
    drawn, told = forecast_losses(some, [*BEFORE], **OWN, seed=0)
    for column, loss in own_losses(parts).items():
        low, high = np.quantile(drawn[column], [0.05, 0.95])
        assert low < loss.expected < high
        assert high < 1.4 * low
    assert "forecast from 15 checkpoints" in told[0]

    # beside a model whose loss was measured
    two = {"N": "258528", "ptpp": [93.0, 279.0]}
    drawn, told = forecast_losses(some, ["loss_before"], **two, seed=0)
    own = some["target"].query("N == 258528 and ptpp == 93")["loss_before"].iloc[0]
    assert drawn["loss_before"][0] == own
    assert np.size(drawn["loss_before"][1]) > 1
    assert "(N 259k, ptpp 279)" in told[0]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (STATE, "lacks: loss_before .*state-target.*baseline_loss .*state-source"),
        (laws(), "lacks: source_loss_before .*state-power.*baseline_loss .*state-rise"),
    ],
)
def test_too_few_checkpoints_are_no_forecast(parts, names, says):
    one_stage = {name: runs[runs["ptpp"] == 15] for name, runs in parts.items()}
    with pytest.raises(PlanError, match=says):
        check_question(QUESTION | OWN, one_stage, names)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"confidence": 90}, "confidence 90 is 9000%; write 90% or 0.9"),
        ({"N": 8.1}, "in billions"),
        ({"N": 3e9, "ptpp": 120e9}, "then it is 40 for a model of 3B"),
        ({"covariates": BEFORE | {"loss_before": -1.0}}, "loss_before must be a pos"),
    ],
)
def test_a_number_out_of_range_is_refused(parts, change, says):
    with pytest.raises(PlanError, match=says):
        check_question(QUESTION | {"covariates": BEFORE} | change, parts, laws())


def test_a_law_that_diverges_without_tokens_needs_a_baseline(parts):
    """Its loss at D = 0 would be the baseline, and there is none."""
    separable = laws(["ptpp-floor"], ["ptpp-floor"])
    without = {name: runs.drop(columns=list(BEFORE)) for name, runs in parts.items()}
    with pytest.raises(PlanError, match=r"lacks: baseline_loss .*ptpp-floor"):
        check_question(QUESTION, without, separable)
    for baseline in ({"baseline_loss": 1.4}, {"baseline_tokens": 1e9}):
        assert check_question(QUESTION | baseline, without, separable)


def test_the_command_takes_what_a_goal_takes(tmp_path, monkeypatch):
    """Forgetting in nats, and losses before adaptation among the plan's options."""
    questions = []

    def stop(*_, question, **__):
        questions.append(question)
        raise PlanError("stopped here")

    monkeypatch.setattr(bayeslaw, "report", stop)
    path = tmp_path / "runs.csv"
    datasets.load("microcpt").to_csv(path, index=False)
    given = "N=1B ptpp=30 max_target_loss=2 max_forgetting=0.05nats loss_before=2.9"
    words = ["report", str(path), "-o", str(tmp_path / "out")]
    for one in given.split():
        words += ["--plan", one]
    CliRunner().invoke(app, words)
    assert questions == [
        QUESTION
        | {
            "max_forgetting": "0.05nats",
            "covariates": {"loss_before": 2.9},
        }
    ]


def test_the_command_on_the_page_asks_the_same_again(tmp_path, monkeypatch):
    """Typed again, it reads the same table the same way and asks for the same plan."""
    asked = []

    @functools.wraps(bayeslaw.report)
    def stop(**keywords):
        asked.append((keywords["runs"], keywords))
        raise PlanError("stopped here")

    monkeypatch.setattr(bayeslaw, "report", stop)
    monkeypatch.chdir(tmp_path)
    runs = datasets.load("microcpt").assign(mix=lambda t: 100 * t["replay"])
    runs.drop(columns="replay").to_csv("my runs.csv", index=False)
    words = ["report", "my runs.csv", "--column", "replay=mix/100"]
    words += ["--where", "ptpp <= 31 and domain == 'target'", "--unit", "nats per byte"]
    words += ["--plan", "N=8.1B", "--plan", "ptpp=279", "--plan", "max_target_loss=2"]
    words += ["--plan", "max_forgetting=2%", "--plan", "loss_before=2.9"]
    CliRunner().invoke(app, words)
    table, keywords = asked[0]

    contents = page.Contents(
        runs=table,
        name=keywords["name"],
        card=None,
        laws=["dcpt"],
        setting=PageSetting(
            {"N": 1e9}, (HoldOut("ptpp", 279, 31, 279),), 3, "raise", "nats per byte"
        ),
        domains=(),
        question=keywords["question"],
    )
    said = page._write_command(contents)
    CliRunner().invoke(app, shlex.split(said)[1:])
    again, repeated = asked[1]
    pd.testing.assert_frame_equal(again, table)
    assert repeated["question"] == keywords["question"]
    assert repeated["law"] == ["dcpt"]
    assert repeated["reference"] == {"N": 1e9}
    assert (repeated["hold_out"], repeated["seed"]) == ("ptpp", 3)
    assert again.attrs == table.attrs
