"""Forecasts and calibration against brute force, and verdicts that follow from them."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bayeslaw
from bayeslaw import RunTableError, _check


class Gaussian:
    """A posterior with known draws: a common offset and independent noise, both normal on log loss."""

    def __init__(self, bias=0.0, law_sd=0.01, noise_sd=0.01, draws=4000):
        self.bias, self.law_sd, self.noise_sd, self.draws = bias, law_sd, noise_sd, draws
        self.warnings = ()

    def log_loss(self, runs, *, noise=False, seed=0):
        offset = np.random.default_rng(42).standard_normal((self.draws, 1)) * self.law_sd + self.bias
        out = np.log(runs["truth"].to_numpy())[None] + offset
        return out + noise * self.noise_sd * np.random.default_rng(seed + 1).standard_normal(out.shape)


@pytest.fixture
def runs():
    rng = np.random.default_rng(3)
    truth = rng.uniform(1.5, 4, 400)
    return pd.DataFrame({"truth": truth, "loss": truth * np.exp(0.01 * rng.standard_normal(400))})


def test_metrics_equal_their_definitions(runs):
    """Huber, RMSE, MAE, MAPE, intercept and slope of the median forecast (Goffinet 2025, appendix A), by other code."""
    posterior = Gaussian(bias=0.03)
    result = bayeslaw.check(posterior, runs)
    hat = np.median(posterior.log_loss(runs, noise=True), axis=0)
    y = np.log(runs["loss"].to_numpy())
    line = stats.linregress(hat, y)
    r = np.abs(hat - y)
    assert result.huber_log == pytest.approx(np.mean([0.5 * v * v if v <= 0.02 else 0.02 * (v - 0.01) for v in r]))
    assert result.rmse_log == pytest.approx(np.sqrt(np.mean(r**2)))
    assert result.mae_rel == result.mape_clip == pytest.approx(np.mean(np.abs(np.exp(hat) / runs["loss"] - 1)))
    assert (result.slope, result.intercept) == pytest.approx((line.slope, line.intercept))
    assert result.bias_log == pytest.approx(0.03, abs=0.003)


def test_crps_equals_the_closed_form_of_a_normal():
    draws = np.random.default_rng(0).normal(2.0, 0.3, (200_000, 3))
    y = np.array([1.5, 2.0, 2.8])
    z = (y - 2.0) / 0.3
    exact = 0.3 * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(_check.crps(draws, y), exact, atol=2e-3)


def test_coverage_of_a_calibrated_forecast_is_what_it_states(runs):
    """Intervals of exactly the noise that made the data hold their share, within binomial error of 400 runs."""
    result = bayeslaw.check(Gaussian(law_sd=0.0), runs)
    for stated, share in result.coverage.items():
        p = float(stated)
        assert abs(share - p) < 3 * np.sqrt(p * (1 - p) / 400)
    assert stats.kstest(result.pit, "uniform").pvalue > 0.01
    assert result.width90 == pytest.approx(2 * 1.645 * 0.01, rel=0.03)
    assert result.verdict == "trust"


@pytest.mark.parametrize(("bias", "verdict"), [(0.0, "trust"), (0.02, "widen"), (-0.09, "do not extrapolate")])
def test_verdicts_follow_the_misses(runs, bias, verdict):
    result = bayeslaw.check(Gaussian(bias=bias, law_sd=0.001), runs)
    assert result.verdict == verdict
    assert f"{result.coverage['0.9']:.0%} of 400" in result.reason
    if bias:
        said = f"{abs(result.bias_log):.1%} too {'high' if bias > 0 else 'low'} on average"
        assert said in result.reason
        assert result.bias_log == pytest.approx(bias, abs=0.0015)


def test_few_runs_get_no_verdict(runs):
    assert bayeslaw.check(Gaussian(), runs.iloc[:3]).verdict == "unknown"


def test_a_table_without_losses_cannot_be_checked(runs):
    with pytest.raises(RunTableError, match="no column 'loss'"):
        bayeslaw.check(Gaussian(), runs.drop(columns="loss"))


def test_forecast_separates_the_law_from_a_new_run(runs):
    rows = bayeslaw.forecast(Gaussian(), runs, prob=0.8)
    assert (rows["low"] < rows["law_low"]).all()
    assert (rows["high"] > rows["law_high"]).all()
    width = np.log(rows["law_high"] / rows["law_low"])
    np.testing.assert_allclose(width, 2 * 1.2816 * 0.01, rtol=0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        bayeslaw.forecast(Gaussian(), runs, prob=1.0)


def test_forecast_of_a_fit_is_the_law_at_its_draws():
    """The compiled map over draws equals the formula written out by hand."""
    law = bayeslaw.law("ptpp-gate-floor")
    p = dict(law.plausible)
    n, d, r, s = 5e8, 3e9, 0.3, 93.0
    g = s ** p["zeta"] / (1 + s ** p["zeta"])
    b = p["beta"] * (1 - p["lam"] * g)
    by_hand = p["E"] + p["A"] / n ** p["alpha"] + p["B"] * r ** p["nu"] / d**b
    by_hand += p["C"] / (r + 1e-5) ** p["gamma"] + p["F"] / s ** p["eta"]
    run = {k: jnp.array([v]) for k, v in {"N": n, "D": d, "replay": r, "ptpp": s}.items()}
    assert float(law.loss(run, law.from_paper(p))[0]) == pytest.approx(by_hand, rel=1e-12)
