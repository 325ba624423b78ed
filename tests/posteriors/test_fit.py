"""Posteriors: right, repeatable, readable on another machine, and refused when the sampler says so."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import DiagnosticsError, LawError, RunTableError
from bayeslaw._inference import weighted
from known.saved import unnamed_runs

SEPARABLE = "D/N > 0.41"  # five of Chinchilla's points have less data than that and wreck a point fit


def plain_fit(*given, **keywords):
    """The law's own posterior, which is what is proven here; its misfit has tests of its own."""
    return bayeslaw.fit(*given, discrepancy=False, **keywords)


@pytest.fixture(scope="module")
def table():
    return bayeslaw.simulate("chinchilla", seed=5).drop_duplicates(["N", "D"])


@pytest.fixture(scope="module")
def fitted(table):
    return plain_fit(table, "chinchilla", seed=1, independent=True)


def test_the_truth_lies_inside_the_intervals(fitted):
    """Known parameters of a simulated table lie inside the 99% intervals of their posterior."""
    rows = fitted.parameters(prob=0.99)
    truth = dict(bayeslaw.law("chinchilla").plausible)
    for name, value in truth.items():
        assert rows.loc[name, "low"] < value < rows.loc[name, "high"], name
    assert fitted.warnings == ()


def test_same_seed_same_numbers_other_seed_other_numbers(fitted, table):
    again = plain_fit(table, "chinchilla", seed=1, independent=True)
    other = plain_fit(table, "chinchilla", seed=2, independent=True)
    np.testing.assert_array_equal(again.posterior["alpha"], fitted.posterior["alpha"])
    assert not np.array_equal(other.posterior["alpha"], fitted.posterior["alpha"])


def test_another_table_of_the_same_padded_size_compiles_nothing(fitted, table):
    """Folds, seeds and tables share one compiled program."""
    from bayeslaw._inference import nuts

    before = nuts._advance_chains.count()
    plain_fit(
        table.iloc[:-3].assign(loss=lambda t: t["loss"] * 1.1),
        "chinchilla",
        seed=7,
        independent=True,
    )
    assert nuts._advance_chains.count() == before


def test_a_saved_fit_forecasts_the_same_in_another_process(fitted, table, tmp_path):
    path = fitted.save(tmp_path / "fit.nc")
    loaded = bayeslaw.Fit.load(path)
    np.testing.assert_array_equal(
        loaded.log_loss(table, noise=True, seed=3),
        fitted.log_loss(table, noise=True, seed=3),
    )
    pd.testing.assert_index_equal(loaded.runs.index, fitted.runs.index)
    assert loaded.diagnostics == fitted.diagnostics
    code = f"import bayeslaw; f = bayeslaw.Fit.load({str(path)!r}); print(repr(float(f.log_loss(f.runs).mean())))"
    out = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert float(out.stdout) == pytest.approx(
        float(fitted.log_loss(fitted.runs).mean()), rel=1e-12
    )
    assert os.listdir(tmp_path) == ["fit.nc"]


def test_the_artifact_has_arviz_groups_and_provenance(fitted):
    data = fitted.inference_data
    groups = {
        "posterior",
        "sample_stats",
        "log_likelihood",
        "log_prior",
        "posterior_predictive",
        "observed_data",
    }
    assert groups | {"constant_data"} <= set(data.children)
    assert {"law", "law_version", "law_recipe", "seed", "versions", "seconds"} <= set(
        data.attrs
    )
    assert {"diverging", "n_steps", "energy", "acceptance_rate"} <= set(
        data["sample_stats"].data_vars
    )


def test_pointwise_log_likelihood_is_the_model_s(fitted, table):
    """The stored log likelihood of one draw equals scipy's Student-t."""
    from scipy import stats

    values = {k: v[0] for k, v in fitted.posterior.items()}
    mean = fitted.log_loss(table)[0]
    expected = stats.t.logpdf(
        np.log(table["loss"]), values["dof"], loc=mean, scale=values["sigma"]
    )
    stored = fitted.inference_data["log_likelihood"]["log_loss"].to_numpy()[0, 0]
    np.testing.assert_allclose(stored, expected, rtol=1e-5, atol=1e-5)


def test_failed_diagnostics_fail_the_fit(table):
    """Too few draws for the ESS: refused with what to do, kept with a warning on request."""
    short = {"warmup": 100, "draws": 100, "max_draws": 100, "chains": 2}
    with pytest.raises(DiagnosticsError, match=r"under 400.*--accept-diagnostics"):
        plain_fit(table, "chinchilla", **short)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        kept = plain_fit(table, "chinchilla", **short, on_failure="warn")
    assert kept.warnings
    assert {*kept.warnings} <= {str(warning.message) for warning in seen}


def test_priors_are_replaced_by_name_and_kept_in_the_file(table, tmp_path):
    tight = plain_fit(
        table,
        "chinchilla",
        priors={"alpha": "lognormal(0.5, 0.001)", "beta": "fixed(0.4)"},
    )
    assert tight.posterior["alpha"].mean() == pytest.approx(0.5, rel=0.01)
    assert set(tight.posterior["beta"]) == {0.4}
    loaded = bayeslaw.Fit.load(tight.save(tmp_path / "t.nc"))
    assert str(loaded.law.priors["alpha"]) == "lognormal(0.5, 0.001)"
    np.testing.assert_array_equal(loaded.log_loss(table), tight.log_loss(table))


@pytest.mark.parametrize(
    ("prior", "says"),
    [({"gamma": "lognormal(1, 1)"}, "has: E, A, B, alpha, beta"), ({"alpha": "uniform(0, 1)"}, "known: lognormal"),
     ({"alpha": "lognormal(0.3"}, "not understood"), ({"alpha": "lognormal(-1, 1)"}, "must be positive"),
     ({"alpha": "normal(0, 1)"}, "alpha must be positive")],
)  # fmt: skip
def test_bad_priors_are_refused(table, prior, says):
    with pytest.raises(LawError, match=says):
        plain_fit(table, "chinchilla", priors=prior)


def test_a_law_whose_columns_are_missing_is_refused_before_sampling(table):
    with pytest.raises(RunTableError, match="needs column 'replay'"):
        plain_fit(table.drop(columns="replay"), "dcpt")


def test_noise_widens_a_forecast_as_a_student_t_does(fitted, table):
    """Variance of a new run's log loss is the law's plus sigma^2 dof/(dof - 2), on average over draws."""
    law, new = fitted.log_loss(table), fitted.log_loss(table, noise=True)
    extra = new.std(0).mean() ** 2 - law.std(0).mean() ** 2
    sigma, dof = fitted.posterior["sigma"], fitted.posterior["dof"]
    robust = np.quantile(new - law, 0.9)
    assert extra > 0
    assert robust == pytest.approx(
        np.mean([_t_quantile(d) for d in dof[::200]]) * sigma.mean(), rel=0.05
    )


def _t_quantile(dof):
    from scipy import stats

    return stats.t.ppf(0.9, dof)


def test_prior_predictive_at_the_reference_run_is_the_sum_of_its_terms():
    """There each term is its contribution in nats: quantiles of three log-normals added."""
    chinchilla = bayeslaw.law("chinchilla")
    at = pd.DataFrame([dict(chinchilla.reference)])
    losses = bayeslaw.prior_predictive(chinchilla, at, draws=20_000)[:, 0]
    rng = np.random.default_rng(1)
    terms = [
        prior.args[0] * np.exp(prior.args[1] * rng.standard_normal(20_000))
        for name, prior in chinchilla.priors.items()
        if name.endswith("_nats")
    ]
    assert len(terms) == 3
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    expected = np.quantile(np.sum(terms, axis=0), levels)
    np.testing.assert_allclose(np.quantile(losses, levels), expected, rtol=0.03)


@pytest.mark.filterwarnings("ignore::bayeslaw._base.errors.FitWarning")
def test_published_estimates_of_chinchilla(data, published):
    """E, alpha, beta within one published standard error and no wider; all 245 points do not wreck them (trap 7)."""
    estimates = pd.read_csv(
        published("besiroglu2024_estimates.csv"), index_col="parameter"
    )
    clean = plain_fit(
        bayeslaw.read_runs(data("chinchilla.csv"), where=SEPARABLE), "chinchilla"
    ).parameters(0.95)
    for name in ("E", "alpha", "beta"):
        row = estimates.loc[name]
        assert (
            abs(clean.loc[name, "mean"] - row["estimate"]) <= row["standard_error"]
        ), name
        assert (
            clean.loc[name, "high"] - clean.loc[name, "low"]
            <= row["ci95_high"] - row["ci95_low"]
        ), name
    everything = plain_fit(
        bayeslaw.read_runs(data("chinchilla.csv")), "chinchilla"
    ).parameters()
    assert 1.76 <= everything.loc["E", "mean"] <= 1.86
    assert 0.33 <= everything.loc["beta", "mean"] <= 0.41


def test_a_preview_is_near_the_posterior_says_so_and_is_kept(tmp_path):
    """Means within a quarter of an sd of the chains', sds within 20%; the mark and k-hat survive the file."""
    runs = unnamed_runs()
    quick, full = (
        plain_fit(runs, "chinchilla", seed=1, independent=True, preview=p)
        for p in (True, False)
    )
    assert quick.is_preview
    assert not full.is_preview
    assert quick.diagnostics["khat"] < 0.7
    assert quick.warnings == ()
    for name in ("E", "A", "B", "alpha", "beta", "sigma"):
        a, b = quick.posterior[name], full.posterior[name]
        assert abs(a.mean() - b.mean()) < 0.25 * b.std(), name
        assert a.std() == pytest.approx(b.std(), rel=0.2), name
    back = bayeslaw.Fit.load(quick.save(tmp_path / "quick.nc"))
    assert back.is_preview
    assert back.diagnostics == pytest.approx(quick.diagnostics, nan_ok=True)
    np.testing.assert_array_equal(back.log_loss(runs), quick.log_loss(runs))


def test_a_preview_whose_weights_fail_is_no_posterior(monkeypatch):
    honest = weighted.approximate
    monkeypatch.setattr(
        weighted, "approximate", lambda *a, **k: honest(*a, **k)._replace(k=0.8)
    )
    runs = unnamed_runs()
    with pytest.raises(DiagnosticsError, match=r"k-hat 0\.80.*fit it without preview"):
        plain_fit(runs, "chinchilla", independent=True, preview=True)
