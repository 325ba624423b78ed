"""Averages: leaving options off is the plain law, weights find the truth, drift grows beyond the data only."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import LawError, RunTableError
from bayeslaw._posteriors.averaging.average import average_part
from bayeslaw._posteriors.averaging.compare import Comparing
from bayeslaw._posteriors.fits.misfit import fitted_errors

LAWS = ["chinchilla", "coupled"]
FAR = pd.DataFrame({"N": [30e9, 400e9], "D": [600e9, 15e12]})


@pytest.fixture(scope="module")
def design():
    index = pd.MultiIndex.from_product(
        [np.geomspace(2e7, 1e9, 6), np.geomspace(3e8, 3e10, 6)], names=["N", "D"]
    )
    return index.to_frame(index=False)


def truth_of(k: float) -> dict[str, float]:
    """Of a law that is the more coupled the smaller k is."""
    terms = {"E": 1.8, "A": 480.0 ** (1 / k), "B": 2085.0 ** (1 / k)}
    return terms | {"alpha": 0.35, "beta": 0.37, "k": k}


@pytest.fixture(scope="module")
def coupled(design):
    """Runs of a strongly coupled law, on which a separable one is confidently wrong."""
    truth = truth_of(0.6)
    runs = bayeslaw.simulate("coupled", design=design, parameters=truth, seed=0)
    far = bayeslaw.simulate("coupled", design=FAR, parameters=truth, noise=0.0)
    return runs, far


@pytest.fixture(scope="module")
def mixed(coupled):
    return bayeslaw.average(coupled[0], LAWS, seed=1)


def test_the_coupled_truth_is_found_and_forecast(mixed, coupled):
    """The coupled law takes the weight; the average's 95% intervals hold far beyond the grid, the separable law's not."""
    runs, far = coupled
    assert mixed.weights["coupled"] > 0.9
    assert bayeslaw.check(mixed, far).coverage["0.95"] == 1.0
    alone = bayeslaw.fit(runs, "chinchilla", discrepancy=False, seed=1)
    assert (
        np.median(alone.log_loss(far), axis=0).min() > np.log(far["loss"]).max()
    )  # 6% too high
    # what failed at the stages left out says so
    scores = mixed.table["interval_score90"]
    assert scores["chinchilla"] > 1.3 * scores["coupled"]


def test_an_average_of_one_law_without_drift_is_the_plain_law(coupled):
    """Same draws of the same posterior: means and sds of the forecast agree with NUTS within Monte Carlo error."""
    runs, far = coupled
    one = bayeslaw.average(runs, ["coupled"], drift=False, discrepancy=False, seed=1)
    plain = bayeslaw.fit(runs, "coupled", discrepancy=False, seed=1)
    assert one.weights == {"coupled": 1.0}
    for table in (runs, far):
        a, b = one.log_loss(table), plain.log_loss(table)
        assert (np.abs(a.mean(0) - b.mean(0)) < 0.2 * b.std(0)).all()
        np.testing.assert_allclose(a.std(0), b.std(0), rtol=0.2)


def test_an_average_plans_and_has_parameters(mixed):
    rows = mixed.parameters()
    assert {"coupled.alpha", "coupled.k", "coupled.sigma"} <= set(rows.index)
    assert rows.loc["coupled.k", "low"] < 0.6 < rows.loc["coupled.k", "high"]
    assert mixed.warnings == ()


def test_what_cannot_be_compared_is_refused(coupled):
    runs, _ = coupled
    with pytest.raises(LawError, match="named twice"):
        bayeslaw.compare(runs, ["coupled", "coupled"])
    with pytest.raises(
        RunTableError, match="lacks column 'ptpp', by which to hold out"
    ):
        bayeslaw.compare(runs, LAWS, hold_out="ptpp")
    with pytest.raises(RunTableError, match="nothing can be left out of 8 rows"):
        bayeslaw.compare(runs.iloc[[0, 1, 2, 6, 7, 8, 12, 13]], LAWS)
    with pytest.raises(LawError, match="no law is compared by default"):
        bayeslaw.compare(runs[["loss"]])
    with pytest.raises(LawError, match="same in all rows, write it: --column D=8B"):
        bayeslaw.compare(runs[["N", "loss"]])
    with pytest.raises(LawError, match=r"fine-tuned .* --law rectified --law broken"):
        bayeslaw.compare(runs[["D", "loss"]])
    with pytest.raises(
        LawError, match="none of the laws chinchilla, coupled reads 'replay'"
    ):
        bayeslaw.compare(runs, LAWS, reference={"replay": 0.5})


def test_a_law_of_the_checkpoint_s_losses_is_fitted_with_independent_errors():
    """What its checkpoints share is learned with the misfit; other laws have the errors that the table shows."""
    runs = bayeslaw.simulate("state-target", seed=3)
    assert fitted_errors(bayeslaw.law("state-target"), runs).kind is None
    assert fitted_errors(bayeslaw.law("dcpt"), runs).kind == "checkpoint"
    assert (
        fitted_errors(bayeslaw.law("chinchilla"), runs[["N", "D", "loss"]]).kind is None
    )
    comparison = bayeslaw.compare(runs, ["state-target"], hold_out="ptpp")
    # at the prompt it is a line, in a notebook its table
    assert repr(comparison) == f"Comparison({comparison.sentence()})"
    assert "<th>state-target</th>" in comparison._repr_html_()
    (judged,) = comparison.judged
    assert judged.errors == "independent"
    assert judged.values["tau_checkpoint"].min() > 0


def test_an_average_knows_the_luck_of_a_fitted_checkpoint(tmp_path):
    """Runs of one whose losses all lie 2% higher are forecast higher, and within less than those of a new checkpoint; also from its file, and without its name."""
    runs = bayeslaw.simulate("state-target", seed=3)
    place = (runs["N"] == 517e6) & (runs["ptpp"] == 31)
    assert 3 < place.sum() < len(runs) / 3
    lifted = runs.assign(loss=runs["loss"] * np.where(place, 1.02, 1.0))
    is_left_out = place & (runs["replay"] == runs["replay"].median())
    average = bayeslaw.average(lifted[~is_left_out], ["state-target"])
    rows = lifted[is_left_out]
    known = bayeslaw.forecast(average, rows)
    new = bayeslaw.forecast(average, rows.assign(checkpoint="new", seed=9, model="new"))
    assert (known["median"] > 1.005 * new["median"]).all()
    width, width_of_new = ((f["high"] - f["low"]).to_numpy() for f in (known, new))
    assert (width < 0.9 * width_of_new).all()
    loaded = bayeslaw.load(average.save(tmp_path / "average.nc"))
    unnamed = rows.drop(columns=["checkpoint", "seed"], errors="ignore")
    for again in (bayeslaw.forecast(loaded, rows), bayeslaw.forecast(average, unnamed)):
        pd.testing.assert_frame_equal(again[["low", "high"]], known[["low", "high"]])


def test_a_saved_average_knows_the_rows_it_was_fitted_to(mixed, coupled, tmp_path):
    """To the last digit, so that they are never called held out."""
    loaded = bayeslaw.load(mixed.save(tmp_path / "mixed.nc"))
    assert "36 of them were fitted" in bayeslaw.check(loaded, coupled[0]).reason


def test_a_part_of_a_table_is_fitted_as_a_table_of_its_own(coupled):
    """What is not fitted says nothing: other losses there change no digit; and the part by itself gives the same forecasts, but for the draws that importance sampling takes."""
    runs, far = coupled
    fitted = (runs["N"] < runs["N"].max()).to_numpy()
    part = average_part(runs, fitted, LAWS, Comparing())
    assert len(part.runs) == fitted.sum()
    elsewhere = runs.assign(loss=np.where(fitted, runs["loss"], 2 * runs["loss"]))
    again = average_part(elsewhere, fitted, LAWS, Comparing())
    alone = bayeslaw.average(runs[fitted], LAWS)
    of_part, of_again, of_alone = (
        np.quantile(made.log_loss(far, noise=True, seed=1), [0.05, 0.5, 0.95], axis=0)
        for made in (part, again, alone)
    )
    np.testing.assert_array_equal(of_part, of_again)
    width = of_alone[2] - of_alone[0]
    assert np.abs(of_part - of_alone).max() < 0.1 * width.min()
    assert part.weights == pytest.approx(alone.weights, abs=0.02)
    assert part.attrs["folds"] == alone.attrs["folds"]
