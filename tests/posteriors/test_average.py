"""Averages: leaving options off is the plain law, weights find the truth, drift grows beyond the data only."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray
from scipy import optimize
from scipy.special import logsumexp

import bayeslaw
from bayeslaw import FitFileError, LawError, RunTableError, RunTableWarning
from bayeslaw._inference.discrepancy import drift as discrepancy
from bayeslaw._inference.table import NONE
from bayeslaw._posteriors.averaging.average import DRAWS, average_part, shares
from bayeslaw._posteriors.averaging.compare import (
    PRIOR_STAGES,
    WINDOW,
    WITNESSES,
    Comparing,
    _at_reference,
    best,
    default_laws,
    weigh,
)
from bayeslaw._posteriors.averaging.folds import folds
from bayeslaw._posteriors.averaging.judge import Judged
from bayeslaw._posteriors.misfit import fitted_errors

LAWS = ["chinchilla", "coupled"]
FAR = pd.DataFrame({"N": [30e9, 400e9], "D": [600e9, 15e12]})


@pytest.fixture(scope="module")
def design():
    index = pd.MultiIndex.from_product(
        [np.geomspace(2e7, 1e9, 6), np.geomspace(3e8, 3e10, 6)], names=["N", "D"]
    )
    return index.to_frame(index=False)


@pytest.fixture(scope="module")
def coupled(design):
    """Runs of a strongly coupled law, on which a separable one is confidently wrong."""
    truth = {
        "E": 1.8,
        "A": 480.0 ** (1 / 0.6),
        "B": 2085.0 ** (1 / 0.6),
        "alpha": 0.35,
        "beta": 0.37,
        "k": 0.6,
    }
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


def test_drift_leaves_the_data_alone_and_grows_beyond(coupled):
    runs, far = coupled
    with_drift, without = (
        bayeslaw.average(runs, LAWS, drift=d, seed=1) for d in (True, False)
    )
    np.testing.assert_array_equal(with_drift.log_loss(runs), without.log_loss(runs))
    added = with_drift.log_loss(far) - without.log_loss(far)
    assert (added.std(0) > 0).all()
    assert added.std(0)[1] > 1.5 * added.std(0)[0]


def test_distances_are_those_beyond_the_range():
    known = discrepancy.training_range(
        {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e10])}
    )
    assert known.axes == ("N", "D", "D/N", "N*D")
    away = np.asarray(
        discrepancy.distances(
            {
                "N": np.array([5e8, 1e9 * np.e, 1e9]),
                "D": np.array([5e9, 1e10 * np.e, 1e8]),
            },
            known,
        )
    )
    np.testing.assert_allclose(away[0], 0)
    np.testing.assert_allclose(away[1], [1, 0, 1, 0, 0, 0, 2, 0], atol=1e-12)
    below = np.log([10, 1e1])  # tokens, and compute
    np.testing.assert_allclose(
        away[2], [0, 0, 0, below[0], 0, discrepancy.FARTHEST_BELOW, 0, 0], atol=1e-12
    )


def test_the_drift_scale_is_learned_from_misses():
    """Misses of 3% an e-fold give a tau near .03; forecasts that hold shrink it below its prior."""
    distance, noise = (
        np.repeat([[0.7, 0.0], [1.4, 0.0]], 6, axis=0),
        0.002**2 * np.eye(12),
    )
    rng = np.random.default_rng(0)
    bad = [
        discrepancy.Miss(
            s * 0.03 * distance[:, 0] + 0.002 * rng.standard_normal(12), noise, distance
        )
        for s in (1, -1, 1)
    ]
    good = [
        discrepancy.Miss(0.002 * rng.standard_normal(12), noise, distance)
        for _ in range(3)
    ]
    middle = lambda p: discrepancy.GRID[np.searchsorted(np.cumsum(p), 0.5)]  # noqa: E731
    assert 0.015 < middle(discrepancy.tau_posterior(bad)) < 0.06
    prior = middle(discrepancy.tau_posterior([]))
    assert prior == pytest.approx(discrepancy.TAU.args[0], rel=0.1)
    assert middle(discrepancy.tau_posterior(good)) < prior


def test_one_gross_miss_does_not_make_a_drift():
    """Eleven runs of a stage are where they should be, one is 30% off: the drift stays that of the others."""
    distance, noise = np.repeat([[0.7, 0.0]], 12, axis=0), 0.002**2 * np.eye(12)
    fine = 0.002 * np.random.default_rng(1).standard_normal(12)
    gross = fine.copy()
    gross[3] = 0.3
    middle = lambda p: discrepancy.GRID[np.searchsorted(np.cumsum(p), 0.5)]  # noqa: E731
    taus = [
        middle(discrepancy.tau_posterior([discrepancy.Miss(r, noise, distance)]))
        for r in (fine, gross)
    ]
    assert taus[1] < 2 * taus[0]


def test_stages_left_out_are_the_largest():
    runs = bayeslaw.simulate("dcpt", seed=0)
    named = folds(runs, ["ptpp", "N", "D/N", "N*D"])
    assert [f.name for f in named][:3] == ["ptpp >= 279", "N >= 8.1B", "D/N >= 20"]
    assert named[3].name.startswith("N*D >= ")
    assert "T" not in named[3].name  # compute is no count
    products = {"D/N": runs["D"] / runs["N"], "N*D": runs["D"] * runs["N"]}
    for fold in named:
        x = products.get(fold.column, runs.get(fold.column)).to_numpy()
        assert x[fold.held].min() > x[fold.kept].max()
        assert (fold.held ^ fold.kept).all()


class _Judged(Judged):
    """A law with the log densities of the runs of each stage left out, and no more."""

    def __init__(self, *stages):
        held_out = [SimpleNamespace(density=np.array(stage, float)) for stage in stages]
        object.__setattr__(self, "held_out", held_out)


def test_weights_are_those_of_regularised_stacking():
    """They are where the objective, written out, is largest: each stage three runs at its mean, one prior stage in four."""
    laws = [
        _Judged([1.0, 2.0], [0.5], [2.0] * 9),
        _Judged([1.2, 1.4], [0.9], [1.5] * 9),
        _Judged([0.9, 2.2], [0.3], [2.1] * 9),
    ]
    columns = ["N", "N", "D"]  # two stages of one column count as one
    means = np.array(
        [[stage.density.mean() for stage in law.held_out] for law in laws]
    ).T
    counts = np.array([0.5, 0.5, 1.0])

    def negative(z):
        w = np.exp(z - logsumexp(z))
        return -(
            counts @ np.log(np.exp(WITNESSES * means) @ w)
            + PRIOR_STAGES / 3 * np.log(w).sum()
        )

    z = optimize.minimize(
        negative,
        np.zeros(3),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    ).x
    expected = np.exp(z - logsumexp(z))
    expected = np.where(expected < WINDOW * expected.max(), 0, expected)
    np.testing.assert_allclose(
        weigh(laws, columns), expected / expected.sum(), atol=2e-3
    )


def test_hundreds_of_runs_of_one_stage_are_no_more_than_a_few():
    """A law that is a little better on 400 runs of one region does not take all: ten runs would weigh the same."""
    few, many = (
        weigh([_Judged([0.1] * n), _Judged([0.0] * n)], ["N"]) for n in (10, 400)
    )
    np.testing.assert_allclose(few, many)
    assert many[1] > 0.25  # 400 independent runs would leave it e^-40
    assert weigh([_Judged([3.0]), _Judged([0.0])], ["N"])[1] < 0.12


def test_laws_far_behind_have_no_share_and_equal_laws_share_equally():
    stages = [[2.0], [2.0], [2.0], [2.0]]
    behind = weigh(
        [_Judged(*stages), _Judged(*[[-3.0]] * 4)], ["N", "D", "D/N", "ptpp"]
    )
    assert behind.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(
        weigh([_Judged(*stages)] * 2, ["N", "D", "D/N", "ptpp"]), [0.5, 0.5]
    )
    assert weigh([_Judged()], []).tolist() == [1.0]


def test_shares_are_whole_and_sum(mixed):
    counts = shares(np.array([0.6661, 0.3337, 0.0001, 0.0001]))
    assert counts.sum() == DRAWS
    assert counts[2] == 0
    assert sum(p.draws for p in mixed.pieces()) == DRAWS


def test_a_saved_average_forecasts_the_same(mixed, coupled, tmp_path):
    runs, far = coupled
    loaded = bayeslaw.load(mixed.save(tmp_path / "mixed.nc"))
    np.testing.assert_array_equal(
        loaded.log_loss(far, noise=True, seed=2),
        mixed.log_loss(far, noise=True, seed=2),
    )
    pd.testing.assert_frame_equal(loaded.table, mixed.table, check_dtype=False)
    assert loaded.name == mixed.name == "average of chinchilla, coupled"
    assert loaded.diagnostics["ess"] == pytest.approx(mixed.diagnostics["ess"])
    np.testing.assert_allclose(loaded.runs["loss"], runs["loss"])
    other = tmp_path / "other.nc"
    other.write_bytes(b"not netCDF")
    with pytest.raises(FitFileError, match="not a fit saved by bayeslaw"):
        bayeslaw.load(other)


def test_an_average_of_an_earlier_version_is_refused_with_what_to_do(mixed, tmp_path):
    tree = xarray.open_datatree(
        mixed.save(tmp_path / "old.nc"), engine="h5netcdf"
    ).load()
    tree.close()
    recipe = json.loads(tree["law0"].attrs["member"])
    del recipe["process"]
    tree["law0"].attrs["member"] = json.dumps(recipe)
    tree.to_netcdf(tmp_path / "older.nc", engine="h5netcdf")
    with pytest.raises(
        FitFileError, match="saved before laws had a misfit; make it again"
    ):
        bayeslaw.load(tmp_path / "older.nc")


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
        RunTableError, match="column 'ptpp' to hold out by is not in the table"
    ):
        bayeslaw.compare(runs, LAWS, hold_out="ptpp")
    with pytest.raises(RunTableError, match="nothing can be left out of 8 rows"):
        bayeslaw.compare(runs.iloc[[0, 1, 2, 6, 7, 8, 12, 13]], LAWS)
    with pytest.raises(LawError, match="no law is compared by default"):
        bayeslaw.compare(runs[["loss"]])
    with pytest.raises(
        LawError, match="none of the laws chinchilla, coupled reads 'replay'"
    ):
        bayeslaw.compare(runs, LAWS, reference={"replay": 0.5})


def test_laws_take_the_columns_of_a_reference_run_that_they_read(coupled):
    """And priors stated at another run are other priors: parameters move, the fit of the data hardly."""
    moved = _at_reference(
        [bayeslaw.law("chinchilla"), bayeslaw.law("dcpt")], {"N": 1e6, "replay": 0.5}
    )
    assert [law.reference["N"] for law in moved] == [1e6, 1e6]
    assert "replay" not in moved[0].reference
    assert moved[1].reference["replay"] == 0.5
    runs, _ = coupled
    here = bayeslaw.average(runs, LAWS[:1], seed=0)
    with pytest.warns(RunTableWarning, match="lie far from the reference run"):
        there = bayeslaw.average(runs, LAWS[:1], reference={"N": 1e3, "D": 1e5}, seed=0)
    e_here, e_there = (a.parameters().loc["chinchilla.E"] for a in (here, there))
    assert abs(e_here["mean"] - e_there["mean"]) > 0.1 * e_here["sd"]
    assert there.log_loss(runs).mean(axis=0) == pytest.approx(
        here.log_loss(runs).mean(axis=0), abs=0.03
    )


def test_the_state_law_of_the_table_s_own_domain_competes():
    target = bayeslaw.simulate("state-target")
    source = target.assign(loss_before=target["source_loss_before"])
    assert default_laws(target)[-1] == "state-target"
    assert default_laws(source)[-1] == "state-source"
    assert not {"state-source", "state-target"} & set(
        default_laws(target.drop(columns="source_loss_before"))
    )


def test_a_law_of_the_checkpoint_s_losses_is_fitted_with_independent_errors():
    """What its checkpoints share is learned with the misfit; other laws have the errors that the table shows."""
    runs = bayeslaw.simulate("state-target", seed=3)
    assert fitted_errors(bayeslaw.law("state-target"), runs) is NONE
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


def test_a_table_without_adaptation_is_not_one_of_adaptation():
    """A column that does not vary does not choose the law."""
    areas = pd.DataFrame(
        {
            "S1_pt": [1.0, 2.0, 3.0],
            "S2_pt": [0.1, 0.2, 0.3],
            "S1_cpt": 0.0,
            "S2_cpt": 0.0,
        }
    )
    assert default_laws(areas) == ["anneal"]
    assert default_laws(areas.assign(S1_cpt=[0.0, 1.0, 2.0])) == [
        "cpt-dynamics",
        "cpt-dynamics-power",
    ]


def test_diverging_chains_fail_an_average(mixed):
    """As a fit fails over a thousandth of divergent draws."""
    table = mixed.table.assign(divergences=5, draws=2000)
    assert "5 of 2000 draws diverged" in replace(mixed, table=table).warnings[0]
    assert replace(mixed, table=table.assign(divergences=2)).warnings == ()


def test_a_saved_average_knows_the_rows_it_was_fitted_to(mixed, coupled, tmp_path):
    """To the last digit, so that they are never called held out."""
    loaded = bayeslaw.load(mixed.save(tmp_path / "mixed.nc"))
    assert "36 of them were fitted" in bayeslaw.check(loaded, coupled[0]).reason


def test_probability_of_forecasting_best_counts_groups_not_runs():
    """Two checkpoints that disagree are two witnesses however many runs they have."""
    assert best(
        [np.array([1.0, 1.0]), np.array([0.0, 0.0])], np.array([0, 1])
    ).tolist() == [1.0, 0.0]
    apart = np.where(np.arange(100) < 50, 1.0, -1.0)
    few = best([apart, -apart], np.arange(100) // 50, seed=1)
    assert few[0] == pytest.approx(0.5, abs=0.03)
    slightly = np.where(np.arange(100) < 55, 1.0, -1.0)
    as_runs, as_groups = (
        best([slightly, 0 * slightly], g)[0]
        for g in (np.arange(100), np.arange(100) >= 55)
    )
    assert as_runs > 0.8  # 55 against 45
    assert as_groups == pytest.approx(
        0.55, abs=0.03
    )  # of two weights, the larger times 55 against the other times 45
    assert best([np.zeros(0)] * 4, np.zeros(0)).tolist() == [0.25] * 4


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
