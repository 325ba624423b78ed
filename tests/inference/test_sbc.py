"""Posteriors are right on average over the prior: the share of their draws below the truth is uniform."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import likelihood, noise, ranks, table

SIMULATIONS = 60


@pytest.fixture(scope="module")
def sbc(script):
    """The study, of which this is a short version (docs/sbc.md has more laws)."""
    return script("studies/sbc.py")


@pytest.fixture(scope="module")
def result(sbc):
    return sbc.calibrate(bayeslaw.law("chinchilla"), SIMULATIONS, seed=1)


def test_shares_below_the_truth_are_uniform(result):
    """For every parameter, the noise and the log likelihood, at 1% over all of them; no simulation is left out."""
    p = result.p_values
    assert {"sigma", "dof_above_2", "log likelihood"} < set(p)
    assert all(len(shares) == SIMULATIONS for shares in result.shares.values())
    assert min(p.values()) > ranks.ALPHA / len(p), p
    assert result.not_converged <= 2


def test_posteriors_half_as_wide_would_be_found_out(result):
    """Shares that a posterior of half the width gives (normal in shape) fail the same test."""
    from scipy import stats

    for name, shares in result.shares.items():
        narrow = stats.norm.cdf(2 * stats.norm.ppf(np.clip(shares, 1e-6, 1 - 1e-6)))
        assert ranks.uniformity(narrow) < ranks.ALPHA / len(result.shares), name


def test_uniform_shares_pass_as_often_as_stated():
    """P-values of uniform samples fall below 5% in 5% of cases, those of shifted ones mostly."""
    rng = np.random.default_rng(5)
    p = np.array([ranks.uniformity(rng.random(SIMULATIONS)) for _ in range(1000)])
    assert (
        0.02 < np.mean(p < 0.05) < 0.065
    )  # the two statistics overlap, so that doubling is a little much
    missed = rng.random((100, SIMULATIONS))
    missed[:, :6] = 0.0  # six truths outside all draws
    assert max(ranks.uniformity(shares) for shares in missed) < 0.01
    shifted = np.array(
        [ranks.uniformity(rng.beta(1.7, 1, SIMULATIONS)) for _ in range(100)]
    )
    assert np.mean(shifted < 0.05) > 0.8


@pytest.mark.parametrize("step", [1, -1])
def test_simulated_errors_along_a_run_are_what_the_likelihood_says(sbc, step):
    """Errors drawn for a curve, run back through the model's innovations, are the Student-t draws they came from; in
    whatever order its points stand in the table.
    """
    runs = sbc.design(bayeslaw.law("anneal"), shared=True)[::step]
    shared = table.shared_error(runs)
    error = {"sigma": 0.01, "dof_above_2": 3.0, "tau_run": 0.0, "run_length": 0.4}
    y = noise.draw_errors(sbc.ROWS, error, shared, np.random.default_rng(0))
    rng = np.random.default_rng(0)
    rng.standard_normal(len(shared.group.slots))
    new = likelihood.innovations(np.zeros(len(y)), y, error, shared)
    np.testing.assert_allclose(
        np.asarray(new.value / new.scale), rng.standard_t(5.0, len(y)), rtol=1e-9
    )
