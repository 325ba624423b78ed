"""Runs on offer from checkpoints that do not exist yet: their losses before adaptation are forecast from those that do."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import datasets
from bayeslaw._posteriors.averaging.checkpoint import fill_losses
from bayeslaw.cli.app import app

STAGE = 93  # of the measured table, here taken for one that nobody has trained


@pytest.fixture(scope="module")
def measured():
    runs = datasets.load("microcpt")
    return runs.query("seed == 0 and D > 4 * N and domain == 'target'")


@pytest.fixture(scope="module")
def known(measured):
    return measured[measured["ptpp"] != STAGE]


def test_they_are_near_what_was_measured_of_them(measured, known):
    """The independent route: these checkpoints were trained, and evaluated, after all."""
    offered = bayeslaw.candidates(known, ptpp=[31, STAGE], atpp=[5])
    column = "source_loss_before"
    filled, (line,) = fill_losses(offered, known, [column], seed=0)
    assert offered[column].isna().any()  # the argument stays as it was
    assert filled[column].notna().all()
    truth = measured.groupby(["N", "ptpp"])[column].first()
    expected = truth.loc[list(zip(filled["N"], filled["ptpp"], strict=True))]
    is_new = filled["ptpp"] == STAGE
    # those that exist are as they were measured, the others within a few percent
    np.testing.assert_array_equal(filled.loc[~is_new, column], expected[~is_new.values])
    np.testing.assert_allclose(
        filled.loc[is_new, column], expected[is_new.values], rtol=0.05
    )
    assert line.startswith("source_loss_before of 5 checkpoints on offer that do not")


def test_a_warning_about_checkpoints_says_that_it_is_about_them():
    """Losses before adaptation by a formula, which those of adapted runs are not."""
    law = bayeslaw.law("chinchilla")
    sizes, stages = np.meshgrid([1e8, 2e8, 5e8, 1e9], [10.0, 30.0, 100.0])
    trained = pd.DataFrame({"N": sizes.ravel(), "ptpp": stages.ravel()})
    design = trained.assign(D=trained["N"] * trained["ptpp"])
    exact = bayeslaw.simulate(law, design=design, noise=0.0)["loss"].to_numpy()
    runs = trained.assign(D=1e9, replay=0.1, loss_before=exact, loss=2.0)
    offered = bayeslaw.candidates(runs, ptpp=[300], atpp=[5])
    about = r"^loss_before of 12 checkpoints: losses follow law 'chinchilla'"
    with pytest.warns(UserWarning, match=about):
        fill_losses(offered, runs, ["loss_before"], seed=0)


def test_of_too_few_checkpoints_nothing_is_made_up(known):
    few = known[known["ptpp"] == 15]
    assert few["N"].nunique() < 6
    offered = bayeslaw.candidates(few, ptpp=[STAGE], atpp=[5])
    filled, told = fill_losses(offered, few, ["loss_before"], seed=0)
    assert filled is offered
    assert not told


def test_the_command_offers_a_stage_that_nobody_has_trained(measured, known, tmp_path):
    """A fit that reads the checkpoint's losses, and an offer at another stage, in one command."""
    fit = bayeslaw.fit(
        known, "state-target", reference={"N": 1e5, "D": 1e6}, preview=True
    )
    fit.save(tmp_path / "fit.nc")
    known.to_csv(tmp_path / "runs.csv", index=False)
    measured[measured["ptpp"] == 279].to_csv(tmp_path / "goal.csv", index=False)
    words = ["anchors", tmp_path / "fit.nc", "--candidates", tmp_path / "runs.csv"]
    words += ["--offer", f"ptpp={STAGE}", "--offer", "atpp=5", "--budget", "1e14"]
    words += ["--goal", tmp_path / "goal.csv", "--checks", "0", "--max-picks", "2"]
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.exception
    assert done.stdout.count(f"-{STAGE}-") == 2
    assert done.stderr.count("measure it when they do") == 2
