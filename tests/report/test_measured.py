"""Runs that were trained afterwards, beside what the page foretold."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, datasets
from bayeslaw._report import page
from bayeslaw._report.measured import check_measured, loss_between


def measured(loss=lambda D, r: 2 * D**-0.1 * np.exp(0.3 * r)) -> pd.DataFrame:
    """Runs of one model, whose log loss is linear in log D and in replay."""
    points = [(D, r) for D in (1e6, 4e6, 16e6) for r in (0.05, 0.25, 0.75)]
    D, replay = np.array(points).T
    columns = {"N": 8e6, "ptpp": 93.0, "D": D, "replay": replay}
    return pd.DataFrame(columns | {"loss": loss(D, replay)})


def planned(**other):
    place = {"N": 8e6, "ptpp": 93.0, "D": 3e6, "replay": 0.4}
    return SimpleNamespace(**(place | other))


def test_the_loss_is_read_between_measured_runs():
    """Exactly, where the surface is linear in the logs."""
    expected = 2 * 3e6**-0.1 * np.exp(0.3 * 0.4)
    assert loss_between(measured(), planned()) == pytest.approx(expected, rel=1e-9)
    # seeds of one run are averaged, sizes are equal as people round them
    one = measured()
    twice = pd.concat([one.assign(loss=f * one["loss"]) for f in (0.9, 1.1)])
    assert loss_between(twice, planned(N=8.01e6)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "other", [{"D": 17e6}, {"replay": 0.01}, {"N": 4e6}, {"ptpp": 31.0}]
)
def test_beyond_the_measured_runs_nothing_is_read(other):
    assert loss_between(measured(), planned(**other)) is None


def test_a_single_replay_tells_of_no_other():
    one = measured().query("replay == .25")
    assert loss_between(one, planned(replay=0.25)) is None


def test_runs_are_fitted_or_measured():
    runs = measured().assign(domain="target")
    check_measured({"target": runs.assign(N=9e6)}, {"target": runs})
    with pytest.raises(
        RunTableError, match="9 rows of 'target' are fitted and measured"
    ):
        check_measured({"target": runs}, {"target": runs})
    with pytest.raises(RunTableError, match="'source', of which none is fitted"):
        check_measured({"source": runs}, {"target": runs})


def test_both_are_refused_before_anything_is_fitted(tmp_path):
    runs = datasets.load("microcpt").query("seed == 0")
    with pytest.raises(RunTableError, match="are fitted and measured at once"):
        bayeslaw.report(runs, tmp_path, measured=runs.head(3))
    assert list(tmp_path.iterdir()) == []


def test_the_bundled_table_s_measured_runs_are_not_fitted():
    bundled = datasets.TABLES[datasets.DEFAULT]
    table = datasets.load()
    fitted, later = table.query(bundled.where), table.query(bundled.measured)
    assert set(fitted.index).isdisjoint(later.index)
    assert later["N"].min() > 3 * fitted["N"].max()
    asked = bundled.question
    before = later.query(f"ptpp == {asked['ptpp']}")["source_loss_before"].unique()
    assert before == pytest.approx([asked["baseline_loss"]], rel=1e-5)


def test_the_command_fits_none_of_the_measured_rows(tmp_path):
    """Rows named by --measured leave the fit, and come back beside its forecasts."""
    runs = bayeslaw.simulate("ptpp-floor", seed=1)
    path = tmp_path / "runs.csv"
    runs.to_csv(path, index=False)
    command = [
        sys.executable,
        "-m",
        "bayeslaw",
        "report",
        str(path),
        "--quick",
        "--json",
    ]
    command += ["--law", "ptpp-floor", "--measured", "ptpp > 100", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert {"report", "seconds", "verdicts", "plan"} <= set(answer)
    of_checks = {name: check["verdict"] for name, check in answer["checks"].items()}
    assert answer["verdicts"] == of_checks != {}
    assert answer["trust"] in Path(answer["report"]).read_text()
    (result,) = answer["measured"]["checks"].values()
    assert result["n"] == len(runs.query("ptpp > 100"))
    (saved,) = answer["fits"].values()
    assert bayeslaw.load(saved).runs["ptpp"].max() < 100
    assert "--measured" in (tmp_path / "report.html").read_text()


def test_measured_rows_need_a_table():
    command = [sys.executable, "-m", "bayeslaw", "report", "--measured", "N > 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "give RUNS" in done.stderr


def test_measured_runs_of_one_s_own_stand_beside_the_bundled_table():
    """They were replaced by the bundled ones without a word."""
    own = measured().assign(domain="target")
    given, _ = page._or_bundled(page.ReportArguments(measured=own))
    assert given.measured is own
    bundled, _ = page._or_bundled(page.ReportArguments())
    assert bundled.measured is not None
