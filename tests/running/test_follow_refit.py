"""Weights that wear out: the same laws fitted again with the run's points among the rows, which then count once."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import bayeslaw
from bayeslaw import LawError, RunTableWarning
from bayeslaw._running.following import course, departure
from known.power_laws import TOKENS, UNTIL, N, points, power_laws, true_curve

END, LIMIT = 9e10, 2.2


@pytest.fixture(scope="module")
def fit():
    """Of few small runs: wide where the large one is."""
    runs = bayeslaw.simulate("chinchilla", seed=3).assign(domain="target")
    small = runs[runs["N"] < runs["N"].quantile(0.5)].iloc[::4]
    with pytest.warns(RunTableWarning, match="two levels only"):
        return bayeslaw.fit(small, "chinchilla", preview=True, on_failure="ignore")


@pytest.fixture(scope="module")
def curve():
    """Forty points of a large run, 3% below the law, so that few draws explain it."""
    law = bayeslaw.law("chinchilla")
    tokens = np.geomspace(5e8, 8e10, 40)
    runs = pd.DataFrame({"N": 4e9, "D": tokens})
    at = law.plausible
    loss = at["E"] + at["A"] / runs["N"] ** at["alpha"] + at["B"] / tokens ** at["beta"]
    return runs.assign(loss=0.97 * loss, domain="target")


def test_worn_weights_begin_anew_with_laws_fitted_to_the_points(fit, curve):
    """The end is as with the worn ones, which one can trust, and what was known before them stays as it was."""
    worn = bayeslaw.follow(fit, curve, END, max_loss=LIMIT)
    assert worn.first.effective_draws < 100
    assert "fit again with its points" in worn.first.notes[-1]

    start = bayeslaw.Follower.start(fit, curve, END, max_loss=LIMIT, refit=True)
    known = start.read(curve).following()
    assert known.first.effective_draws >= 100
    assert known.first.khat < 0.7
    assert any("its laws were fitted again" in note for note in known.first.notes)
    assert known.first.surprise == pytest.approx(worn.surprise, abs=0.2)
    assert known.first.final_before == worn.first.final_before
    assert known.first.probability_before == worn.first.probability_before
    pd.testing.assert_frame_equal(known.first.foreseen, worn.first.foreseen)
    assert known.final["median"] == pytest.approx(worn.final["median"], rel=0.01)
    # up to the point that wore them out, what was known is the same
    same = known.first.history["final_median"] == worn.first.history["final_median"]
    assert 10 < same.sum() < len(curve)
    assert same[: same.sum()].all()

    by_halves = start.read(curve.head(20)).read(curve).following()
    assert by_halves.to_dict() == known.to_dict()


def test_the_points_of_a_run_are_not_another_run_of_its_setting(fit, curve):
    """After a refit, neither by the planned schedule nor by another one."""
    planned, longer = (
        pd.DataFrame({"D": np.geomspace(1e8, end, 50)}) for end in (END, 2 * END)
    )
    schedules = {"planned": planned, "longer": longer}
    setting = course.RunSetting(fit, curve.drop(columns="loss"), END, schedules, seed=0)
    points = curve[["D", "loss"]].head(12).to_numpy()
    along, others, _ = setting.fit([(at, loss) for at, loss in points])
    assert along.shared is None
    assert others["longer"].shared is None


def test_a_run_whose_weights_last_is_not_fitted_again(fit, curve):
    short = curve.head(6)
    start = bayeslaw.Follower.start(fit, short, END, max_loss=LIMIT, refit=True)
    known = start.read(short).following()
    assert known.to_dict() == bayeslaw.follow(fit, short, END, max_loss=LIMIT).to_dict()


def test_draws_that_know_the_points_weigh_alike_and_scales_as_the_points_say():
    rng = np.random.default_rng(0)
    known = departure.Departure.before(departure.Scales.draw(1.0), 7, 0.0)
    for clock in (-2.0, -1.0):
        known = known.after(clock, rng.normal(0.0, 0.01, 7))
    anew = known.with_equal_draws()
    assert logsumexp(known.log_weight, axis=0).std() > 0.1
    np.testing.assert_allclose(anew.weight.sum(axis=0), 1 / 7)
    of_scales = known.weight / known.weight.sum(axis=0)
    np.testing.assert_allclose(anew.weight * 7, of_scales)


def test_points_stand_in_the_columns_of_the_table_that_was_fitted(
    fit, curve, monkeypatch
):
    """A run that tells no name has its own, so that its points are known to be of one run; what no law reads is empty."""
    known = fit.runs.assign(run="a", domain="fi", step=5, cost=1.0)
    old, tables = SimpleNamespace(runs=known, pieces=fit.pieces, warnings=[]), []
    monkeypatch.setattr(
        course, "refit_like", lambda _, t, **__: tables.append(t) or fit
    )
    row = curve.head(1).drop(columns=["run", "loss"], errors="ignore")
    setting = course.RunSetting(old, row, END, {"": None}, seed=0)
    setting.fit([(1e9, 3.0), (3e9, 2.0)])
    rows = tables[0].tail(2)
    assert list(rows.columns) == list(known.columns)
    assert (rows["run"] == "followed").all()
    assert (rows["domain"] == "fi").all()
    assert [*rows["loss"]] == [3.0, 2.0]
    assert rows["step"].iloc[1] == 3 * rows["step"].iloc[0]
    assert rows["cost"].isna().all()


def test_what_keeps_no_rows_cannot_be_fitted_again():
    curve = points(TOKENS, true_curve(TOKENS))
    with pytest.raises(LawError, match="leave refit out"):
        bayeslaw.Follower.start(power_laws(), {"N": N}, UNTIL, refit=True)
    assert bayeslaw.follow(power_laws(), curve, UNTIL).first.points == len(TOKENS)
