"""A run departs from its law as runs did that were left out when the law was judged."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Follower
from bayeslaw._posteriors.averaging.judge import run_slope
from bayeslaw._running.following import departure
from bayeslaw._running.following.course import slopes_of
from known import saved

SIZES = (1e8, 3e8, 1e9)
SHARES = np.geomspace(1, 20, 6)  # tokens per parameter of a run's points


@pytest.fixture(scope="module")
def curves() -> pd.DataFrame:
    """Runs of three sizes; the largest falls faster than the law of the others."""
    rng = np.random.default_rng(0)
    rows = [(f"run {n:g}", n, n * share) for n in SIZES for share in SHARES]
    table = pd.DataFrame(rows, columns=["run", "N", "D"])
    faster = np.where(table["N"] == SIZES[-1], 0.02, 0.0)
    law = 1.7 + 400 * table["N"] ** -0.34 + 400 * table["D"] ** -0.28
    noise = 0.001 * rng.standard_normal(len(table))
    bent = np.exp(noise - faster * np.log(table["D"] / table["N"]))
    return table.assign(loss=law * bent)


@pytest.fixture(scope="module")
def average(curves) -> bayeslaw.Average:
    return bayeslaw.average(curves, ["chinchilla"], on_failure="ignore")


def test_the_slope_is_the_root_mean_square_over_runs():
    tokens = np.tile(np.geomspace(1e9, 1e10, 4), 3)[:-1]  # the third has three points
    run = np.repeat(np.arange(3), 4)[:-1]
    residual = np.array([0.03, -0.04, 9.0])[run] * np.log(tokens) + 0.1 * run
    assert np.isclose(run_slope(residual, run, tokens), np.sqrt(0.5) * 0.05)
    assert np.isnan(run_slope(residual[8:], run[8:], tokens[8:]))
    at_one_place = np.full(len(tokens), 1e9)
    assert np.isnan(run_slope(residual, run, at_one_place))
    assert np.isnan(run_slope(residual, None, tokens))
    assert np.isnan(run_slope(residual, run, None))


def test_slopes_widen_slope_and_wander_and_nothing_else():
    usual = departure.DeparturePriors().slope[0]
    plain, alike = (
        departure.Scales.draw(1.0),
        departure.Scales.draw(1.0, slopes=(usual,)),
    )
    wide, narrow = (
        departure.Scales.draw(1.0, slopes=(3 * usual,)),
        departure.Scales.draw(1.0, slopes=(0.0,)),
    )
    np.testing.assert_allclose(plain, alike)
    for name in departure.Scales._fields:
        moves = name in ("slope", "wander")
        before = getattr(plain, name)
        np.testing.assert_allclose(
            getattr(wide, name), before * (np.sqrt(5) if moves else 1)
        )
        np.testing.assert_allclose(
            getattr(narrow, name), before * (np.sqrt(0.5) if moves else 1)
        )


def test_an_average_keeps_the_slopes_of_left_out_runs(average, tmp_path):
    slope = average.run_slopes["N >= 1B"]
    assert 0.01 < slope < 0.03  # the largest size falls .02 an e-fold faster
    average.save(tmp_path / "average.nc")
    assert bayeslaw.load(tmp_path / "average.nc").run_slopes == average.run_slopes


def judged_by(slopes, curves) -> bayeslaw.Average:
    """An average whose stages left out had these slopes."""
    law = bayeslaw.law("chinchilla")
    made = saved.make_average([(law, saved.values(200))], curves.assign(ptpp=20.0))
    return replace(made, attrs={"run_slopes": json.dumps(slopes)})


def test_a_run_is_followed_with_the_slopes_of_its_own_direction(curves):
    slopes = {"N >= 1B": 0.02, "ptpp >= 30": 0.01, "N*D >= 1e+19": 0.5}
    measured = judged_by(slopes, curves)

    def of(n: float, ptpp: float) -> tuple[float, ...]:
        return slopes_of(measured, pd.DataFrame({"N": [n], "ptpp": [ptpp]}))

    assert of(2e9, 20.0) == (0.02,)
    assert of(1e9, 40.0) == (0.01,)
    assert of(2e9, 40.0) == (0.02, 0.01)
    assert of(1e9, 20.0) == (0.02, 0.01)  # within the runs: all stages, none of tokens
    assert slopes_of(measured, pd.DataFrame({"N": [2e9]})) == (0.02,)
    assert slopes_of(replace(measured, attrs={}), pd.DataFrame({"N": [2e9]})) == ()


def test_a_larger_run_departs_as_the_left_out_size_did(curves):
    average = judged_by({"N >= 1B": 0.02}, curves)
    known = Follower.start(average, {"N": 3e9}, 6e10)
    (track,) = known.tracks.values()
    scales, usual = track.departure.scales, departure.Scales.draw(1.0)
    share = scales.level[0] / usual.level[0]
    median = share * departure.DeparturePriors().slope[0]
    bent = np.sqrt((median**2 + 0.02**2) / 2) / median
    assert bent > 2
    np.testing.assert_allclose(scales.level, share * usual.level)
    np.testing.assert_allclose(scales.slope, bent * share * usual.slope)
    np.testing.assert_allclose(scales.wander, bent * share * usual.wander)
