"""Runs on offer are checked before anything is fitted or searched for on their account."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning, datasets
from bayeslaw._designs.buying import next_runs as next_file
from bayeslaw._designs.goals import plan as plan_goal
from bayeslaw._report import page as page_file
from bayeslaw._report.buying import why_not_offered
from bayeslaw.cli import buying
from bayeslaw.cli.app import app
from known import example, saved
from known.lines import grid, spread

QUESTION = {"N": 8.1e9, "ptpp": 279.0}
LAW = ["N", "D", "replay", "ptpp"]
GRID = grid()


def without(column):
    return lambda table: table.drop(columns=column)


def emptied(column):
    def change(table):
        table = table.copy()
        table.loc[table.index[3], column] = np.nan
        return table

    return change


FAULTS = {
    "a column that laws read is missing": (without("replay"), "lacks column 'replay'"),
    "a cell is empty": (emptied("ptpp"), "row 4, column 'ptpp'"),
    "a share is empty": (emptied("replay"), "row 4, column 'replay'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_they_are_checked_before_a_plan_is_searched_for(fault, monkeypatch):
    change, told = FAULTS[fault]
    monkeypatch.setattr(plan_goal, "search", lambda *_: pytest.fail("a search began"))
    target = spread(example.TARGET_LAW, example.TARGET, 0.004, 20, 0)
    source = spread(example.SOURCE_LAW, example.SOURCE, 0.004, 20, 1)
    offered = change(bayeslaw.candidates(GRID.query("N < 1e9"), atpp=(5,)))
    with pytest.raises(RunTableError, match=told):
        bayeslaw.anchors(target, offered, example.QUESTION, 2e19, source=source)


@pytest.mark.parametrize("of_goal", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_next_checks_them_before_what_was_measured_is_fitted(
    fault, of_goal, monkeypatch
):
    """Those on offer, and those to be forecast."""
    change, told = FAULTS[fault]
    monkeypatch.setattr(
        next_file, "what_is_known", lambda *_: pytest.fail("a fit began")
    )
    offered = bayeslaw.candidates(GRID.query("N < 1e9"), atpp=(5, 20))
    measured = pd.DataFrame({"row": offered.index[:20], "loss": 2.0})
    goal = GRID.query("N > 1e9").set_index(np.arange(1, 127))
    if of_goal:
        goal, told = change(goal), f"the goal's table.*{told}"
    else:
        offered = change(offered)
    laws = ["dcpt", "ptpp-floor"]
    with pytest.raises(RunTableError, match=told):
        bayeslaw.next_runs(offered, goal, 2e20, measured=measured, laws=laws)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--budget", "dear"], "--budget"),
        (["--budget", "2e20", "--goal", "nowhere.csv"], "nowhere.csv"),
        (["--budget", "2e20", "--goal-where", "N > 1e30"], "N > 1e30"),
    ],
)
def test_the_command_reads_budget_and_goal_before_checkpoints_are_forecast(
    words, told, tmp_path, monkeypatch
):
    monkeypatch.setattr(buying, "read_candidates", lambda *_: pytest.fail("too early"))
    fit = saved.save_fit(tmp_path / "fit.nc")
    saved.runs().to_csv(tmp_path / "runs.csv", index=False)
    if "--goal" not in words:
        words = [*words, "--goal", str(tmp_path / "runs.csv")]
    asked = ["anchors", str(fit), "--candidates", str(tmp_path / "runs.csv"), *words]
    done = CliRunner().invoke(app, asked)
    assert told in str(done.exception)


# -- the page --------------------------------------------------------------------------


def test_a_table_whose_runs_can_be_offered_is_not_complained_of():
    runs = datasets.load("microcpt").query("domain == 'target' and seed == 0")
    read = [*LAW, "loss_before", "source_loss_before"]
    question = {"N": 1e6, "ptpp": 279.0}
    assert why_not_offered(runs, question, read) is None
    # of models no smaller than any that was run nothing is offered, which is no fault
    assert why_not_offered(GRID, {"N": 1e3}, ["N", "width"]) is None
    # a stage that few have reached is forecast from the others
    gaps = runs.assign(loss_before=runs["loss_before"].where(runs["ptpp"] < 279))
    assert why_not_offered(gaps, question, read) is None


@pytest.mark.parametrize(
    ("change", "read", "told"),
    [
        (lambda t: t.assign(width=512.0), "width", "lacks column 'width'"),
        (lambda t: t.assign(lr=1e-3), "lr", "lacks column 'lr'"),
        (
            lambda t: t.assign(loss_before=np.where(t["ptpp"] < 31, 2.5, np.nan)),
            "loss_before",
            "no checkpoint on offer has loss_before",
        ),
        (
            lambda t: t.assign(loss_before=np.arange(len(t)) + 2.0),
            "loss_before",
            "lacks column 'loss_before'",
        ),
    ],
)
def test_what_cannot_be_offered_is_known_from_the_table(change, read, told):
    why = why_not_offered(change(GRID.query("N < 1e9")), QUESTION, [*LAW, read])
    assert why is not None
    assert told in why


def test_the_page_says_before_the_fits_that_it_will_not_offer_runs(
    tmp_path, monkeypatch
):
    """A formula that reads a column of the user's own: no run at other levels has it."""

    def begins(*_, **__):
        raise RuntimeError("a fit began")

    monkeypatch.setattr(page_file, "_fit_all", begins)
    runs = datasets.load("simulated-ptpp-grid")
    runs["width"] = np.sqrt(runs["N"])
    question = {
        **QUESTION, "width": 9e4, "max_target_loss": 1.8, "max_forgetting": 0.02,
        "baseline_loss": 1.64,
    }  # fmt: skip
    law = "E + A/width^alpha + B/D^beta + C*(replay + .1)^gamma"
    warned = pytest.warns(RunTableWarning, match="not tell which runs to buy.*'width'")
    with warned, pytest.raises(RuntimeError, match="a fit began"):
        bayeslaw.report(runs, tmp_path / "page", law=law, question=question)
    # runs on offer need no learning rate where laws know the best one
    swept = pd.concat([runs.assign(lr=rate) for rate in (5e-4, 1e-3, 2e-3)])
    swept = swept.drop(columns="run").reset_index(drop=True)
    question.pop("width")
    laws = {"target": "ptpp-floor+lr", "source": "ptpp-floor"}
    with pytest.raises(RuntimeError, match="a fit began"):
        bayeslaw.report(swept, tmp_path / "page", law=laws, question=question)


# -- the planned model's checkpoint ----------------------------------------------------


@pytest.mark.parametrize(
    ("further", "is_free"), [({}, True), ({"train_checkpoint": True}, False)]
)
def test_short_runs_of_the_planned_model_pay_no_checkpoint(tmp_path, further, is_free):
    """As on the report's page: the plan adapts it, so it is there."""
    runs = pd.DataFrame({"N": [1e8, 1e9], "ptpp": 20.0, "D": 1e9, "replay": 0.25})
    runs.assign(loss=[3.0, 2.5]).to_csv(tmp_path / "runs.csv", index=False)
    options = buying.AnchorsOptions(
        candidates=tmp_path / "runs.csv",
        offer=["N=3B,7B", "ptpp=43", "atpp=0.3"],
        goal=[],
        **further,
    )
    offered = buying.read_candidates(options, (), {"N": 7e9, "ptpp": 300 / 7})
    paid = offered.set_index("N")["checkpoint_cost"]
    assert paid[3e9] == pytest.approx(6 * 3e9 * 43 * 3e9)
    assert bool(paid[7e9] == 0) == is_free


def test_runs_for_a_plan_are_made_of_the_target_s_rows(tmp_path):
    """In which a checkpoint has one loss before; rows of both domains have two."""
    runs = pd.DataFrame({"N": [1e8, 1e9], "ptpp": 20.0, "D": 1e9, "replay": 0.25})
    losses = {"target_loss": [3.0, 2.5], "source_loss": [2.1, 1.9]}
    befores = {"target_loss_before": [4.0, 3.5], "source_loss_before": [2.0, 1.8]}
    path = tmp_path / "runs.csv"
    runs.assign(**losses, **befores).to_csv(path, index=False)
    options = buying.AnchorsOptions(
        candidates=path, offer=["N=1B", "atpp=1"], goal=[], source=["s.nc"]
    )
    offered = buying.read_candidates(options, (), {"N": 7e9, "ptpp": 43.0})
    assert list(offered["loss_before"]) == [3.5]
