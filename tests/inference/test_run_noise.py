"""The error of a run on log loss: its scale, its draws and its density agree."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayeslaw._inference import noise, table


@pytest.mark.parametrize("dof", [2.5, 9.0])
@pytest.mark.parametrize("effects", [0.0, 0.3, 3.0])
def test_a_new_run_s_interval_is_that_of_its_error_and_its_effects(dof, effects):
    """The 90% interval of the Student-t, against their sums drawn, within 3%."""
    draws, rng = 200_000, np.random.default_rng(1)
    each = np.full(draws, effects / np.sqrt(2))
    one = noise.RunNoise(np.ones(draws), np.full(draws, dof), each, tau_setting=each)
    apart = one.draw(1, rng)[:, 0] + effects * rng.standard_normal(draws)
    new = one.of_new_run()
    found = stats.t.ppf([0.05, 0.95], new.dof[0]) * new.sigma[0]
    np.testing.assert_allclose(found, np.quantile(apart, [0.05, 0.95]), rtol=0.03)


def test_draws_density_and_variance_are_those_of_a_student_t():
    """The variance has the normal effect's beside it; tails too heavy have none."""
    one = noise.RunNoise(np.array([0.01]), np.array([9.0]), np.array([0.004]))
    known = stats.t(9.0, scale=0.01)
    drawn = one.draw(4000, np.random.default_rng(1))[0]
    assert stats.kstest(drawn, known.cdf).pvalue > 1e-3
    at = np.linspace(-0.05, 0.05, 7)
    np.testing.assert_allclose(one.density(at[None])[0], known.pdf(at), rtol=1e-9)
    own, _ = integrate.quad(lambda e: e**2 * known.pdf(e), -2, 2, points=[0], limit=400)
    assert one.variance[0] == pytest.approx(own + 0.004**2, rel=1e-6)
    assert np.isinf(noise.RunNoise(np.ones(1), np.full(1, 2.0)).variance).all()


def test_errors_along_a_run_are_alike_by_the_gap_and_as_wide_as_any():
    """Three points of each of 20,000 runs: correlation exp(-gap / length), and the
    variance of a Student-t, at each of them.
    """
    runs = np.arange(20_000)
    first = 3 * runs
    gap = np.tile([np.inf, 0.5, 1.0], len(runs))
    previous = np.stack([first, first, first + 1], axis=1).ravel()
    error = {"sigma": 0.01, "dof_above_2": 8.0, "run_length": 0.5}
    shared = table.SharedError(previous=previous, gap=gap)
    drawn = noise.draw_errors(3 * len(runs), error, shared, np.random.default_rng(0))
    points = drawn.reshape(-1, 3)
    found = np.corrcoef(points.T)
    expected = [np.exp(-1.0), np.exp(-3.0), np.exp(-2.0)]
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], expected, atol=0.02)
    np.testing.assert_allclose(points.var(axis=0), 0.01**2 * 10 / 8, rtol=0.05)


def test_priors_of_the_error_are_those_of_numpyro():
    """Of errors shared by checkpoints, and by runs and along them."""
    group = table.Group.of(np.array([0, 0, 1]), np.zeros(8))
    previous, gap = np.array([0, 0, 2]), np.array([np.inf, 0.3, np.inf])
    along = {"previous": previous, "gap": gap}
    values = {
        "sigma": 0.004,
        "dof_above_2": 7.0,
        "tau_checkpoint": -0.003,
        "tau_run": 0.001,
        "run_length": 0.2,
    }
    error = {name: jnp.asarray(value) for name, value in values.items()}
    for shared in (
        table.SharedError(checkpoint=group),
        table.SharedError(run=group, **along),
    ):
        log_prior = noise.log_prior_of_error(error, shared)
        expected = {
            n: p.log_prob(error[n]) for n, p in noise.error_sites(shared).items()
        }
        assert set(log_prior) == set(expected)
        expected["sigma"] = stats.lognorm.logpdf(0.004, 1.0, scale=0.005)
        for name, value in expected.items():
            assert log_prior[name] == pytest.approx(float(value), rel=1e-6)
