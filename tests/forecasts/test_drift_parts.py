"""What the drift to each side adds to a forecast's width, and the sentence that says it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import Average
from bayeslaw._base.numbers import Z90
from bayeslaw._forecasts.misfits import drift_sentence, shift_sentence
from bayeslaw._inference.discrepancy.drift import Range
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._posteriors.averaging.record import Member
from bayeslaw.cli.app import app

DRAWS = 400
LAW = bayeslaw.law("chinchilla")
AXES = ("N", "D", "D/N", "N*D")
SIZE, TOKENS = (1e8, 1e9), (2e9, 2e10)
FAR = pd.DataFrame({"N": [1e10, 4e8], "D": [1e10, 5e9]}, index=[7, 9])


def average(scales=(0.0,) * 8, process=None, **values):
    """Of one law whose draws are alike, drifting to eight sides with these scales."""
    point = LAW.from_paper(LAW.plausible) | {"sigma": 0.002, "dof": 50.0}
    draws = {name: np.full(DRAWS, float(v)) for name, v in point.items()} | values
    standard = np.random.default_rng(0).standard_normal((DRAWS, 8))
    draws["drift"] = standard * np.array(scales)
    (n, m), (d, e) = np.log(SIZE), np.log(TOKENS)
    ends = (n, d, np.log(10.0), n + d), (m, e, np.log(40.0), m + e)
    known = Range(AXES, *(tuple(map(float, end)) for end in ends))
    member = Member(LAW, 1.0, process, known, draws)
    row = {"weight": 1.0, "rhat": 1.0, "ess": 1e3, "divergences": 0, "draws": DRAWS}
    judged = pd.DataFrame([row], index=pd.Index(["chinchilla"], name="name"))
    runs = bayeslaw.simulate("chinchilla", seed=1)
    return Average((member,), judged, runs, {"seconds": 1.0})


def test_parts_by_side_add_up_to_the_drift():
    scales = 0.001 * np.arange(1, 9)
    parts = bayeslaw.drift_parts(average(scales), FAR)
    whole = bayeslaw.width_parts(average(scales), FAR)
    assert list(parts) == [f"{a} {way}" for a in AXES for way in ("above", "below")]
    assert parts.index.tolist() == [7, 9]
    np.testing.assert_allclose(parts.sum(axis=1), whole["drift"], rtol=1e-12)
    # the second run lies amid the data
    assert (parts.loc[9] == 0).all()
    assert (parts.loc[7] > 0).sum() == 3  # N, D/N below, N*D


def test_a_side_s_part_is_its_scale_times_the_distance():
    """A tenfold size beyond the data, and one token a parameter where ten were least:
    of normal drifts that are all of the width but for the noise.
    """
    scales = np.zeros(8)
    scales[[0, 5]] = 0.02, 0.01
    parts = bayeslaw.drift_parts(average(scales), FAR).loc[7]
    away = np.log(10.0)
    expected = np.array([0.02, 0.01]) * away
    shares = parts[["N above", "D/N below"]].to_numpy()
    np.testing.assert_allclose(shares[0] / shares[1], 4, rtol=0.2)
    whole = 2 * Z90 * np.hypot(*expected)
    np.testing.assert_allclose(shares.sum(), whole, rtol=0.1)


def test_a_fit_of_one_law_has_no_drift_to_tell():
    still = bayeslaw.drift_parts(average(), FAR)
    assert (still == 0).all(axis=None)


def test_what_a_misfit_takes_back_of_the_parameters_is_neither_s_width():
    """Draws whose misfit undoes all of their level but a little: parameters are left
    with nothing, and the misfit with that little.
    """
    rng = np.random.default_rng(1)
    columns = {c: bayeslaw.simulate("chinchilla", seed=1)[c].to_numpy() for c in "ND"}
    process = process_of(columns)
    level, little = 0.05 * rng.standard_normal(DRAWS), 0.002
    # log loss moves with the scale of all of the law's terms
    point = LAW.from_paper(LAW.plausible)
    moved = {n: np.full(DRAWS, float(v)) for n, v in point.items()}
    moved = {n: v * np.exp(level) if n == "E_nats" else v for n, v in moved.items()}
    far = FAR.loc[[9]]
    plain = average(**moved)
    of_law = plain.log_loss(far)[:, 0]
    functions = process.features({c: far[c].to_numpy(float) for c in "ND"}, np)[0]
    wanted = -(of_law - of_law.mean()) + little * rng.standard_normal(DRAWS)
    weights = wanted[:, None] * functions / (functions @ functions)
    made = average(process=process, misfit=weights, **moved)
    parts = bayeslaw.width_parts(made, far).iloc[0]
    assert bayeslaw.width_parts(plain, far).iloc[0]["parameters"] > 0.05
    total = parts[["noise", "parameters", "misfit"]].sum()
    noise = 0.002**2 * 50 / 48
    shares = np.array([noise, 0.0, little**2]) / (noise + little**2)
    np.testing.assert_allclose(parts.iloc[:3] / total, shares, atol=0.06)
    assert parts["misfit"] > 0


def test_the_direction_that_costs_most_is_said():
    """With the runs that would narrow it: from the data's end to the run."""
    scales = np.zeros(8)
    scales[[0, 5]] = 0.002, 0.03
    posterior = average(scales)
    said = drift_sentence(posterior, FAR, bayeslaw.forecast(posterior, FAR))
    assert said == (
        "row 7: most of the width is drift along D/N below: no run was fitted there; "
        "runs with D/N between 1 and 10 would narrow it"
    )
    scales[[0, 5]] = 0.03, 0.002
    posterior = average(scales)
    said = drift_sentence(posterior, FAR, bayeslaw.forecast(posterior, FAR))
    assert "along N above" in said
    assert "with N between 1B and 10B" in said


@pytest.mark.parametrize("scale", [0.0, 3e-4])
def test_nothing_is_said_where_drift_is_less_than_half(scale):
    posterior = average(np.full(8, scale))
    assert drift_sentence(posterior, FAR, bayeslaw.forecast(posterior, FAR)) is None


def test_a_mean_drift_is_said_where_it_moves_a_forecast():
    """By 1% an e-fold over a tenfold size; drifts around nothing are not."""
    posterior = average(np.full(8, 0.02))
    assert shift_sentence(posterior, FAR) is None
    rates = np.zeros((DRAWS, 8))
    rates[:, 0] = -0.01
    moved = average()
    moved.members[0].values["drift"] = rates
    assert shift_sentence(moved, FAR) == (
        "row 7: drift makes the forecast 2.3% lower than the laws have it: beyond their "
        "runs, laws err to one side"
    )
    assert shift_sentence(moved, FAR.loc[[9]]) is None


def test_the_command_says_the_direction_below_its_table(tmp_path):
    """For people; JSON keeps its contract."""
    scales = np.zeros(8)
    scales[5] = 0.03
    path, runs = average(scales).save(tmp_path / "fit.nc"), tmp_path / "far.csv"
    FAR.to_csv(runs, index=False)
    shown = CliRunner().invoke(app, ["forecast", str(path), str(runs)])
    assert shown.exit_code == 0, shown.output
    assert "most of the width is drift along D/N below" in shown.stdout
    told = CliRunner().invoke(app, ["forecast", str(path), str(runs), "--json"])
    record = json.loads(told.stdout)
    assert set(record) == {"law", "prob", "rows"}
