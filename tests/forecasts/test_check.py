"""Forecasts and calibration against brute force, and verdicts that follow from them."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from arviz_base import from_dict
from scipy import stats

import bayeslaw
from bayeslaw import RunTableError
from bayeslaw._forecasts import check, sensitivity


class Gaussian:
    """A posterior with known draws: a common offset and independent noise, both normal on log loss."""

    def __init__(self, bias=0.0, law_sd=0.01, noise_sd=0.01, draws=4000):
        self.bias, self.law_sd, self.noise_sd, self.draws = (
            bias,
            law_sd,
            noise_sd,
            draws,
        )
        self.warnings = ()

    def log_loss(self, runs, *, noise=False, seed=0):
        offset = (
            np.random.default_rng(42).standard_normal((self.draws, 1)) * self.law_sd
            + self.bias
        )
        out = np.log(runs["truth"].to_numpy())[None] + offset
        return out + noise * self.noise_sd * np.random.default_rng(
            seed + 1
        ).standard_normal(out.shape)


@pytest.fixture
def runs():
    rng = np.random.default_rng(3)
    truth = rng.uniform(1.5, 4, 400)
    return pd.DataFrame(
        {"truth": truth, "loss": truth * np.exp(0.01 * rng.standard_normal(400))}
    )


@pytest.mark.parametrize("verdict", list(check.NEXT))
def test_every_verdict_says_what_to_do(verdict):
    """In a line, in the glossary of the report's page, and on the page of verdicts."""
    root = Path(__file__).parents[2]
    glossary = root / "bayeslaw/_report/templates/page/glossary.toml"
    entries = tomllib.loads(glossary.read_text())
    assert check.NEXT[verdict]
    assert entries[verdict.replace(" ", "-")]["word"] == verdict
    assert f"| *{verdict}* |" in (root / "docs/verdicts.md").read_text()


def test_what_to_do_names_the_factor_of_the_widest(runs):
    """That of the worst group, where it is larger than that of all runs."""
    found = bayeslaw.check(Gaussian(bias=0.02, law_sd=0.001), runs)
    assert found.verdict == "widen"
    assert f"{found.stretch:.1f} times as wide" in found.next
    grouped = replace(found, group_stretch=found.stretch + 1)
    assert f"{found.stretch + 1:.1f} times as wide" in grouped.next
    hardly = replace(found, stretch=1.03, group_stretch=None)
    assert "intervals 1.03 times as wide" in hardly.next
    halves = replace(found, stretch=0.9, group_stretch=None)
    assert halves.next == check.NEXT["widen"] == halves.to_dict()["next"]


def test_a_table_without_losses_cannot_be_checked(runs):
    with pytest.raises(RunTableError, match="no column 'loss'"):
        bayeslaw.check(Gaussian(), runs.drop(columns="loss"))


# -- reasons -----------------------------------------------------------------------------------------------------------


def conjugate(prior_sd, n):
    """A fit of one normal mean (prior at 0, noise of sd 1) to n equal observations of 1, by exact draws."""
    rng, precision = np.random.default_rng(11), 1 / prior_sd**2 + n
    draws = (n + rng.standard_normal((4, 2000)) * np.sqrt(precision)) / precision
    groups = {
        "posterior": {"mean": draws},
        "log_prior": {"mean": stats.norm.logpdf(draws, 0, prior_sd)},
        "log_likelihood": {
            "log_loss": np.repeat(stats.norm.logpdf(1, draws, 1)[..., None], n, axis=-1)
        },
    }
    return bayeslaw.Fit(bayeslaw.law("chinchilla"), from_dict(groups))


@pytest.mark.parametrize("power", sensitivity.POWERS)
def test_power_scaled_draws_are_those_of_the_scaled_posterior(power):
    """Weighted mean and sd equal the closed form of a normal whose prior, or likelihood, is raised to the power."""
    fit = conjugate(prior_sd=0.5, n=6)
    draws = fit.posterior["mean"]
    for component, prior, data in (
        ("prior", power / 0.25, 6),
        ("likelihood", 4, 6 * power),
    ):
        weight = sensitivity.scaled_weights(fit, component, power)
        mean = weight @ draws
        assert mean == pytest.approx(data / (prior + data), abs=0.015), component
        assert np.sqrt(weight @ (draws - mean) ** 2) == pytest.approx(
            (prior + data) ** -0.5, rel=0.03
        ), component


def test_a_chain_weighs_what_its_draws_do():
    """Chains that lie apart, as where they disagree: each draw by its own density."""
    draws = np.random.default_rng(0).normal(size=(2, 2000)) + np.array([[0.0], [1.0]])
    log_prior = stats.norm.logpdf(draws, 0, 1)
    groups = {
        "posterior": {"mean": draws},
        "log_prior": {"mean": log_prior},
        "log_likelihood": {"log_loss": log_prior[..., None]},
    }
    fit = bayeslaw.Fit(bayeslaw.law("chinchilla"), from_dict(groups))
    weight = sensitivity.scaled_weights(fit, "prior", 1.25).reshape(2, -1)
    by_hand = np.exp(0.25 * log_prior)
    share = by_hand.sum(axis=1) / by_hand.sum()
    assert abs(share[0] - 0.5) > 0.02
    assert weight.sum(axis=1) == pytest.approx(share, rel=1e-3)
    alike = sensitivity.scaled_weights(fit, "prior", 1.0)
    assert alike == pytest.approx(np.full(4000, 1 / 4000))


@pytest.mark.parametrize(
    ("prior_sd", "n", "expected"), [(0.05, 2, True), (5.0, 50, False), (0.3, 40, False)]
)
def test_a_forecast_is_prior_dominated_where_the_prior_outweighs_the_runs(
    prior_sd, n, expected
):
    fit = conjugate(prior_sd, n)
    forecast = fit.posterior["mean"][:, None] * np.array([1.0, 2.0, 3.0])
    assert sensitivity.sensitivity(fit, forecast).is_prior_dominated == expected


def test_levels_too_few_to_forecast_beyond_are_named():
    """One or two levels of a column with runs beyond; not with three, nor within, nor where the exponents are fixed."""
    law = bayeslaw.law("ptpp-gate-floor")
    grid = bayeslaw.simulate(law, seed=0)
    held = grid[grid["ptpp"] == 279]
    two = sensitivity.few_levels([law], grid[grid["ptpp"] < 279], held)
    one = sensitivity.few_levels([law], grid[grid["ptpp"] == 31], held)
    assert two == [
        "two stages only: ptpp 15 and 31 fitted, 279 forecast; lam, zeta, eta rest on the prior"
    ]
    assert one == [
        "one stage only: ptpp 31 fitted, 279 forecast; lam, zeta, eta rest on the prior"
    ]
    assert sensitivity.few_levels([law], grid, held.assign(ptpp=600.0)) == []
    assert (
        sensitivity.few_levels(
            [law], grid[grid["ptpp"] != 31], grid[grid["ptpp"] == 31]
        )
        == []
    )
    fixed = law.with_priors(
        {"lam": "fixed(0.3)", "zeta": "fixed(0.2)", "eta": "fixed(0.4)"}
    )
    assert sensitivity.few_levels([fixed], grid[grid["ptpp"] < 279], held) == []
    small = grid[grid["N"] < 1e9]
    assert (
        "two levels only: N 241M and 517M fitted"
        in sensitivity.few_levels([law], small, grid)[0]
    )


@pytest.mark.parametrize(("spread", "told_apart"), [(0.4, False), (0.02, True)])
def test_gate_and_floor_are_told_apart_when_their_shares_are_known(spread, told_apart):
    """Draws in which either could make much of the change are named, sharp ones are not; laws without both never."""
    law, rng = bayeslaw.law("ptpp-gate-floor"), np.random.default_rng(0)
    grid = bayeslaw.simulate(law, seed=0)
    known, held = grid[grid["ptpp"] < 279], grid[grid["ptpp"] == 279]
    centre = {n: float(v) for n, v in law.from_paper(law.plausible).items()}
    values = {n: np.full(500, v) for n, v in centre.items()} | {
        "sigma": np.full(500, 0.005)
    }
    values |= {
        n: centre[n] * np.exp(spread * rng.standard_normal(500))
        for n in ("lam", "F_nats")
    }
    line = sensitivity.gate_or_floor(law, values, known, held)
    assert (line is None) == told_apart
    if line:
        assert line.startswith(
            "gate and floor not told apart: of what ptpp changes from 31 to 279"
        )
    floor = bayeslaw.law("ptpp-floor")
    assert sensitivity.gate_or_floor(floor, values, known, held) is None
    assert sensitivity.gate_or_floor(law, values, grid, held) is None


@pytest.fixture(scope="module")
def two_sizes():
    """A separable law fitted on two sizes, and the runs of two larger ones."""
    runs = bayeslaw.simulate("chinchilla", seed=1)
    with pytest.warns(bayeslaw.RunTableWarning, match="two levels only"):
        fit = bayeslaw.fit(
            runs[runs["N"] < 1e9],
            "chinchilla",
            seed=1,
            max_draws=1000,
            discrepancy=False,
            on_failure="ignore",
        )
    return fit, runs[runs["N"] > 1e9]


def test_a_check_says_that_a_forecast_rests_on_the_prior(two_sizes):
    """Two sizes fitted, larger ones forecast: named with its exponent, found by power-scaling, kept as JSON."""
    fit, held = two_sizes
    result = bayeslaw.check(fit, held)
    assert [line.split(":")[0] for line in result.reasons] == [
        "two levels only",
        "forecast prior-dominated",
    ]
    assert all(line in result.reason for line in result.reasons)
    record = json.loads(json.dumps(result.to_dict()))
    assert record["reasons"] == list(result.reasons)
    few = bayeslaw.check(fit, held.nlargest(3, "N"))
    assert few.verdict == "do not extrapolate"
    inside = bayeslaw.check(fit, fit.runs)
    assert inside.reasons == ()


def test_other_posteriors_have_no_reasons(runs):
    assert bayeslaw.check(Gaussian(), runs).reasons == ()


def test_runs_that_were_fitted_are_no_test(two_sizes):
    """They are counted, and where they are half of the table there is no verdict."""
    fit, held = two_sizes
    inside = bayeslaw.check(fit, fit.runs)
    assert inside.verdict == "unknown"
    assert f"of {inside.n} runs" in inside.reason
    assert f"; {inside.n} of them were fitted" in inside.reason
    mixed = bayeslaw.check(fit, pd.concat([held, fit.runs.head(1)]))
    assert "; 1 of them were fitted" in mixed.reason
    assert mixed.verdict == bayeslaw.check(fit, held).verdict
    assert "held-out" in bayeslaw.check(fit, held).reason


@pytest.fixture(scope="module")
def of_target(two_sizes):
    """The fit of two sizes, with rows of domain target."""
    fit, _ = two_sizes
    named = replace(fit, inference_data=fit.inference_data.copy())
    named.inference_data["constant_data"] = (
        named.inference_data["constant_data"]
        .to_dataset()
        .assign(domain=("run_row", np.full(len(fit.runs), "target", object)))
    )
    return named


def test_a_forecast_of_another_domain_says_of_which_the_fit_is(two_sizes, of_target):
    _, held = two_sizes
    plain = pytest.warns(UserWarning, match="of the law alone")
    with plain, pytest.warns(bayeslaw.RunTableWarning) as told:
        bayeslaw.forecast(of_target, held.assign(domain="source"))
    lines = "\n".join(str(warning.message) for warning in told)
    assert re.search("the fit is of domain 'target', and .* are of 'source'", lines)


def test_a_check_judges_the_rows_of_the_fitted_domain(two_sizes, of_target):
    """The losses of others are not what was fitted; `update` leaves them out, too."""
    _, held = two_sizes
    own = held.assign(domain="target")
    other = held.assign(domain="source", loss=2 * held["loss"])
    both = pd.concat([other, own]).sample(frac=1, random_state=1)
    alone, among = (bayeslaw.check(of_target, runs) for runs in (own, both))
    assert among.n == alone.n == len(held)
    assert among.verdict == alone.verdict
    assert among.bias_log == pytest.approx(alone.bias_log, abs=1e-3)
    unnamed = bayeslaw.check(of_target, held.assign(domain=None))
    assert unnamed.verdict == alone.verdict


@pytest.mark.parametrize(
    "ask", [bayeslaw.check, bayeslaw.check_stages, bayeslaw.check_inference]
)
def test_rows_of_other_domains_only_are_no_check(two_sizes, of_target, ask):
    _, held = two_sizes
    with pytest.raises(RunTableError) as refused:
        ask(of_target, held.assign(domain="source"))
    assert str(refused.value) == (
        "the table has no rows of domain target, which was fitted; it has: source"
    )


def test_pictures_of_calibration_show_what_the_check_found(two_sizes):
    """Dots at the coverage, bars that add up to the runs, and power 1 at the posterior's own median."""
    from matplotlib.figure import Figure

    from bayeslaw import plots

    fit, held = two_sizes
    result = bayeslaw.check(fit, held)
    left, middle, right = Figure().subplots(1, 3)
    plots.coverage(left, result)
    dots = {
        float(x): float(y)
        for line in left.lines
        if line.get_marker() == "o"
        for x, y in [line.get_xydata()[0]]
    }
    assert dots == {float(k): v for k, v in result.coverage.items()}
    plots.pit(middle, result)
    assert sum(p.get_height() for p in middle.patches if p.get_width() < 1) == result.n
    plots.sensitivity(right, fit, held)
    medians = [line.get_xdata()[0] for line in right.lines if line.get_marker() == "o"]
    own = np.median(np.exp(fit.log_loss(held)).mean(axis=1))
    assert medians[1] == pytest.approx(own, rel=1e-4)
    assert medians[4] == pytest.approx(own, rel=1e-4)
    # Which of them moves more is within Monte Carlo error of chains this short.
    assert medians[0] != medians[2]
    assert medians[3] != medians[5]
