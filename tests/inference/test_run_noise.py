"""The error of a run on log loss: one record says its scale, draws it and weighs it."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from bayeslaw._inference.noise import (
    RunNoise,
    draw_errors,
    draw_new_effects,
    error_sites,
    error_values,
    log_density_of_error,
    log_prior_of_error,
)
from bayeslaw._inference.table import NONE, Group, SharedError


@pytest.fixture
def noise():
    rng = np.random.default_rng(0)
    return RunNoise(
        sigma=np.exp(-5 + 0.3 * rng.standard_normal(50)),
        dof=2.5 + rng.gamma(2.0, 5.0, 50),
        tau_checkpoint=np.abs(0.004 * rng.standard_normal(50)),
    )


def test_a_new_run_s_scale_adds_what_its_checkpoint_and_curve_share():
    values = {"sigma": np.array([3.0]), "dof": np.array([5.0])}
    assert RunNoise.of(values).scale == 3.0
    shared = values | {"tau_checkpoint": np.array([4.0])}
    assert RunNoise.of(shared).scale == 5.0
    several = values | {"tau_run": np.array([4.0]), "tau_setting": np.array([12.0])}
    assert RunNoise.of(several).scale == 13.0


@pytest.mark.parametrize("dof", [2.5, 4.0, 9.0, 50.0])
@pytest.mark.parametrize("effects", [0.0, 0.3, 1.0, 3.0, 30.0])
def test_a_new_run_s_interval_is_that_of_its_error_and_its_effects(dof, effects):
    """The 90% interval of the Student-t, against their sums drawn, within 3%."""
    draws = 200_000
    each = np.full(draws, effects / np.sqrt(2))
    one = RunNoise(np.ones(draws), np.full(draws, dof), each, tau_setting=each)
    apart = one.draw(1, np.random.default_rng(1))[:, 0]
    for tau, seed in ((one.tau_checkpoint, 2), (one.tau_setting, 3)):
        apart += draw_new_effects(tau, 1, np.random.default_rng(seed))[:, 0]
    new = one.of_new_run()
    found = stats.t.ppf([0.05, 0.95], new.dof[0]) * new.sigma[0]
    np.testing.assert_allclose(found, np.quantile(apart, [0.05, 0.95]), rtol=0.03)


def test_a_run_that_shares_nothing_keeps_its_own_error(noise):
    own = RunNoise(noise.sigma, noise.dof)
    np.testing.assert_array_equal(own.of_new_run().sigma, noise.sigma)
    np.testing.assert_array_equal(own.of_new_run().dof, noise.dof)


def test_the_leaves_of_a_piece_hold_the_effects_once():
    """Its ``sigma`` is all of the error, beside which the effects are only told."""
    piece = {
        "sigma": np.array([5.0]),
        "dof": np.array([5.0]),
        "tau_run": np.array([4.0]),
    }
    apart = RunNoise(np.array([3.0]), np.array([5.0]), tau_run=np.array([4.0]))
    told, expected = RunNoise.of_piece(piece), apart.of_new_run()
    assert (told.sigma, told.dof) == (expected.sigma, expected.dof)


def test_draws_are_student_t_of_their_own_scale_and_tails(noise):
    drawn = noise.draw(4000, np.random.default_rng(1))
    assert drawn.shape == (50, 4000)
    np.testing.assert_array_equal(drawn, noise.draw(4000, np.random.default_rng(1)))
    for draw, sigma, dof in zip(drawn[:5], noise.sigma, noise.dof, strict=False):
        assert stats.kstest(draw / sigma, "t", args=(dof,)).pvalue > 1e-3


def test_the_density_is_that_of_the_draws(noise):
    """It integrates to one, and is the likelihood's own Student-t."""
    one = RunNoise(noise.sigma[:1], noise.dof[:1])

    def density(error):
        return one.density(np.array([[error]]))[0, 0]

    assert integrate.quad(density, -0.3, 0.3, points=[0], limit=200)[
        0
    ] == pytest.approx(1, abs=1e-3)
    error = error_values(
        {"sigma": np.log(one.sigma[0]), "dof_above_2": np.log(one.dof[0] - 2)}, NONE
    )
    assert error["dof"] == pytest.approx(one.dof[0])
    at = np.linspace(-0.02, 0.02, 5)
    ours = np.log(one.density(at[None]))[0]
    np.testing.assert_allclose(
        log_density_of_error(error, error["sigma"], at), ours, rtol=1e-9
    )


def test_the_variance_is_of_the_noise_and_the_effects(noise):
    """By quadrature of the density, plus the normal effect's."""
    one = RunNoise(np.array([0.01]), np.array([9.0]), np.array([0.004]))

    def second_moment(error):
        return error**2 * one.density(np.array([[error]]))[0, 0]

    own = integrate.quad(second_moment, -2, 2, points=[0], limit=400)[0]
    assert one.variance[0] == pytest.approx(own + 0.004**2, rel=1e-6)
    assert np.isinf(RunNoise(np.ones(1), np.full(1, 2.0)).variance).all()


def test_effects_of_new_groups_have_each_draw_s_scale():
    tau = np.array([0.001, 0.03])
    drawn = draw_new_effects(tau, 4000, np.random.default_rng(0))
    assert drawn.shape == (2, 4000)
    for of_draw, scale in zip(drawn, tau, strict=True):
        assert stats.kstest(of_draw / scale, "norm").pvalue > 1e-3


def test_errors_along_a_run_are_alike_by_the_gap_and_as_wide_as_any():
    """Three points of each of 20,000 runs: correlation exp(-gap / length), and the
    variance of a Student-t, at each of them.
    """
    runs = np.arange(20_000)
    first = 3 * runs
    gap = np.tile([np.inf, 0.5, 1.0], len(runs))
    previous = np.stack([first, first, first + 1], axis=1).ravel()
    error = {"sigma": 0.01, "dof_above_2": 8.0, "run_length": 0.5}
    shared = SharedError(previous=previous, gap=gap)
    drawn = draw_errors(3 * len(runs), error, shared, np.random.default_rng(0))
    points = drawn.reshape(-1, 3)
    found = np.corrcoef(points.T)
    expected = [np.exp(-1.0), np.exp(-3.0), np.exp(-2.0)]
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], expected, atol=0.02)
    np.testing.assert_allclose(points.var(axis=0), 0.01**2 * 10 / 8, rtol=0.05)


def test_errors_of_rows_that_share_nothing_are_independent():
    error = {"sigma": 0.01, "dof_above_2": 8.0}
    drawn = draw_errors(4000, error, NONE, np.random.default_rng(1))
    assert stats.kstest(drawn / 0.01, "t", args=(10,)).pvalue > 1e-3


def test_priors_of_the_error_are_those_of_numpyro():
    """Of errors shared by checkpoints, and by runs and along them."""
    group = Group.of(np.array([0, 0, 1]), np.zeros(8))
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
    for shared in (SharedError(checkpoint=group), SharedError(run=group, **along)):
        log_prior = log_prior_of_error(error, shared)
        expected = {n: p.log_prob(error[n]) for n, p in error_sites(shared).items()}
        assert set(log_prior) == set(expected)
        for name, value in expected.items():
            assert log_prior[name] == pytest.approx(float(value), rel=1e-6)
