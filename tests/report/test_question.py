"""What the report is to plan for is checked in full before anything is fitted."""

import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import PlanError, datasets
from bayeslaw._report import page
from bayeslaw._report.question import check_question
from bayeslaw.cli.app import app

QUESTION = {"N": 1e9, "ptpp": 30.0, "max_target_loss": 2.0, "max_forgetting": 0.02}
BEFORE = {"loss_before": 2.9, "source_loss_before": 1.4}


@pytest.fixture
def parts():
    table = datasets.load()
    return {domain: table[table["domain"] == domain] for domain in ("target", "source")}


def laws(target=(), source=()):
    return {"target": target, "source": source}


def test_all_that_is_missing_is_said_in_one_line(parts):
    """By default laws of the checkpoint's losses are among those that compete."""
    with pytest.raises(PlanError) as error:
        check_question(QUESTION, parts, laws())
    line = str(error.value)
    assert "\n" not in line
    for column in ("loss_before", "source_loss_before", "baseline_loss"):
        assert f"{column} (" in line
    assert "state-target" in line
    assert "state-source" in line


def test_a_column_of_the_table_is_a_covariate(parts):
    checked = check_question(QUESTION | BEFORE, parts, laws())
    assert checked == QUESTION | {"covariates": BEFORE}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"confidence": 90}, "confidence must be a probability"),
        ({"max_forgetting": -2.0}, "max_forgetting must be a number over -1"),
        ({"forgetting_unit": "percent"}, "must be 'relative' or 'nats'"),
        ({"N": 8.1}, "in billions"),
        ({"min_replay": 10}, "min_replay must be a share"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"covariates": BEFORE | {"loss_before": -1.0}}, "loss_before must be a pos"),
        ({"max_flops": 0.0}, "max_flops must be a positive number"),
    ],
)
def test_a_number_out_of_range_is_refused(parts, change, says):
    with pytest.raises(PlanError, match=says):
        check_question(QUESTION | {"covariates": BEFORE} | change, parts, laws())


def test_a_law_that_diverges_without_tokens_needs_a_baseline(parts):
    """Its loss at D = 0 would be the baseline, and there is none."""
    separable = laws(["ptpp-floor"], ["ptpp-floor"])
    with pytest.raises(PlanError, match=r"lacks: baseline_loss .*ptpp-floor"):
        check_question(QUESTION, parts, separable)
    for baseline in ({"baseline_loss": 1.4}, {"baseline_tokens": 1e9}):
        assert check_question(QUESTION | baseline, parts, separable)


def test_nothing_is_fitted_for_a_question_that_lacks_something(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_fit_all", lambda *_: pytest.fail("fitted"))
    with pytest.raises(PlanError, match="lacks"):
        bayeslaw.report(datasets.load(), tmp_path, question=QUESTION)
    assert list(tmp_path.iterdir()) == []


def test_the_command_takes_what_a_goal_takes(tmp_path, monkeypatch):
    """Forgetting in nats, and losses before adaptation among the plan's options."""
    questions = []

    def stop(*_, question, **__):
        questions.append(question)
        raise PlanError("stopped here")

    monkeypatch.setattr(bayeslaw, "report", stop)
    path = tmp_path / "runs.csv"
    datasets.load().to_csv(path, index=False)
    given = "N=1B ptpp=30 max_target_loss=2 max_forgetting=0.05nats loss_before=2.9"
    words = ["report", str(path), "-o", str(tmp_path / "out")]
    for one in given.split():
        words += ["--plan", one]
    CliRunner().invoke(app, words)
    assert questions == [
        QUESTION
        | {
            "max_forgetting": 0.05,
            "forgetting_unit": "nats",
            "covariates": {"loss_before": 2.9},
        }
    ]
