"""What Bethune 2025 does with its laws: recovery by domain, extrapolation, bootstrapped errors."""

from types import SimpleNamespace

import forgetting_grid as replication
import numpy as np
import pandas as pd
import pytest
from forgetting_grid import (
    MODELS,
    bootstrapped_mre,
    extrapolation,
    finetuning_grid,
    mean_relative_error,
    read_domains,
    simulate_domains,
)

import bayeslaw
from bayeslaw import RunTableError


@pytest.fixture(scope="module")
def domains(published):
    """Published parameters and errors of forgetting, and simulated runs of the twelve domains."""
    known = read_domains(published("bethune2025_table2.csv"))
    return known, simulate_domains(
        "forgetting", finetuning_grid(MODELS), known, known["mre"].to_dict(), seed=0
    )


@pytest.fixture(scope="module")
def arxiv():
    """Runs of one domain at the law's plausible parameters, which are Arxiv's."""
    known = pd.DataFrame([dict(bayeslaw.law("forgetting").plausible)], index=["Arxiv"])
    return simulate_domains(
        "forgetting", finetuning_grid(MODELS), known, {"Arxiv": 0.0036}, seed=0
    )


# -- runs ------------------------------------------------------------------------------------------------------------


def test_simulated_runs_are_the_paper_s_grid_at_the_error_that_is_asked_for(arxiv):
    """125 runs; their mean relative error around the law is the given one, within its standard error."""
    law = bayeslaw.law("forgetting")
    assert len(arxiv) == 125
    assert [arxiv[c].nunique() for c in ("N", "D", "replay")] == [5, 5, 5]
    truth = law.loss(
        {c: arxiv[c].to_numpy() for c in law.covariates}, law.from_paper(law.plausible)
    )
    miss = np.abs(arxiv["loss"] / np.asarray(truth) - 1)
    assert miss.mean() == pytest.approx(0.0036, abs=3 * miss.std() / np.sqrt(125))


@pytest.mark.parametrize(
    ("setup", "fitted", "forecast"), [("A", 4 * 4 * 5, 5), ("B", 3 * 3 * 5, 4 * 5)]
)
def test_extrapolation_fits_small_runs_and_forecasts_large_ones(
    arxiv, setup, fitted, forecast
):
    """Table 4: every forecast run is of a larger model and a larger set than every fitted one."""
    small, large = extrapolation(arxiv, setup)
    assert (len(small), len(large)) == (fitted, forecast)
    for c in ("N", "D"):
        assert small[c].max() < large[c].min()
    with pytest.raises(RunTableError, match=f"set-up {setup}.*'D'.*table has 2"):
        extrapolation(arxiv[arxiv["D"].isin([3e5, 3e6])], setup)


# -- fits by domain --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_published_parameters_are_recovered_by_domain(domains):
    """At least 80% of domain x parameter inside 90% intervals, for the exponents and for all four; NUTS passes."""
    known, runs = domains
    inside = {}
    for name, own in runs.groupby("domain"):
        fit = bayeslaw.fit(own, "forgetting", chains=2, warmup=500, draws=500)
        table = fit.parameters()
        inside[name] = {
            p: table.loc[p, "low"] < known.loc[name, p] < table.loc[p, "high"]
            for p in table.index.intersection(known.columns)
        }
    inside = pd.DataFrame(inside).T
    assert set(inside) == {"alpha", "beta", "A", "B"}
    assert inside[["alpha", "beta", "B"]].to_numpy().mean() >= 0.8
    assert inside.to_numpy().mean() >= 0.8


@pytest.mark.slow
def test_set_ups_a_and_b_are_forecast_no_worse_than_published(domains, published):
    """Mean relative error over twelve domains at most table 4's, by the paper's own kind of fit."""
    limits = pd.read_csv(published("bethune2025_table4.csv"), index_col="setup")[
        "forgetting_mre"
    ]
    law = bayeslaw.law("forgetting")
    for setup, limit in limits.items():
        errors = []
        for _, own in domains[1].groupby("domain"):
            small, large = extrapolation(own, str(setup))
            fitted = bayeslaw.point_fit(small, law, delta=1e-4, starts=2)
            errors.append(np.mean(np.abs(fitted.loss(large) / large["loss"] - 1)))
        assert np.mean(errors) <= limit, setup


# -- errors ----------------------------------------------------------------------------------------------------------


def test_mean_relative_error_is_of_the_median_and_of_each_draw():
    runs = pd.DataFrame({"loss": [2.0, 4.0]})
    posterior = SimpleNamespace(
        log_loss=lambda r: np.log([[2.2, 4.0], [2.0, 4.4], [1.8, 5.0]])
    )
    error = mean_relative_error(posterior, runs)
    assert error.mre == pytest.approx((0.0 + 0.1) / 2)
    np.testing.assert_allclose(error.draws, [0.05, 0.05, 0.175])
    assert error.interval[0] == pytest.approx(0.05)


@pytest.mark.filterwarnings("ignore:rows 2")  # what is resampled is there twice
def test_bootstrapped_error_is_that_of_refitted_resamples(arxiv):
    """One resample by hand; with all runs the error is about the noise; runs left out are missed by more."""
    law = bayeslaw.law("forgetting")
    error = bootstrapped_mre(arxiv, law, resamples=32, seed=5)
    assert error.draws.shape == (32,)
    times = np.random.default_rng(5).multinomial(125, np.full(125, 1 / 125), size=32)[0]
    resample = arxiv.iloc[np.repeat(np.arange(125), times)]
    again = bayeslaw.point_fit(resample, law, delta=1e-4)
    assert error.draws[0] == pytest.approx(
        np.mean(np.abs(again.loss(resample) / resample["loss"] - 1)), rel=1e-3
    )
    assert 0.003 < error.mre < 0.0042
    left_out = bootstrapped_mre(arxiv, law, resamples=32, left_out=True, seed=5)
    assert error.mre < left_out.mre < 0.005


def test_resamples_of_few_runs_that_leave_none_out_are_passed_over(monkeypatch):
    """Of five rows one resample in 26 has each; of one row, all have."""
    runs = pd.DataFrame({"loss": [1.0, 2.0, 4.0, 5.0, 8.0]})
    off = np.full((100, 5), 2.0)
    monkeypatch.setattr(replication, "point_fit", lambda *given, **options: None)
    monkeypatch.setattr(replication, "resampled_losses", lambda _, r: off[:, : len(r)])
    law = bayeslaw.law("forgetting")
    error = bootstrapped_mre(runs, law, resamples=100, left_out=True)
    times = np.random.default_rng(0).multinomial(5, np.full(5, 0.2), size=100)
    by_hand = [
        np.mean(np.abs(2 / runs["loss"][of_one == 0] - 1))
        for of_one in times
        if (of_one == 0).any()
    ]
    assert 90 <= len(by_hand) < 100
    np.testing.assert_allclose(error.draws, by_hand)
    with pytest.raises(bayeslaw.RunTableError, match="none to be scored on"):
        bootstrapped_mre(runs.head(1), law, resamples=100, left_out=True)
