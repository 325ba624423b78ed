"""The log density of rows by scipy: residual less effect, sign and all."""

import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density
from scipy import stats

import bayeslaw
from bayeslaw._inference.likelihood import model, pointwise
from bayeslaw._inference.table import NONE, SharedError

ERROR = {"sigma": jnp.asarray(0.01), "dof_above_2": jnp.asarray(3.0)}
MEAN = np.array([0.7, 0.8, 0.9])
Y = np.array([0.71, 0.78, 0.93])


def density(rest, scale=0.01):
    return stats.t.logpdf(rest / scale, 5) - np.log(scale)


def test_a_row_is_what_is_left_of_law_and_effect():
    """An effect above explains a loss above."""
    effect = np.array([0.02, 0.02, -0.01])
    told = pointwise(MEAN, Y, effect, ERROR, NONE)
    np.testing.assert_allclose(told, density(Y - MEAN - effect), rtol=1e-9)
    assert (np.asarray(told) != density(Y - MEAN + effect)).all()


def test_along_a_run_the_row_before_foretells_its_share():
    """exp(-gap / length) of residual and effect alike; the rest has its own scale."""
    shared = SharedError(previous=np.array([0, 0, 1]), gap=np.array([np.inf, 0.5, 1.0]))
    effect = np.full(3, 0.02)
    error = ERROR | {"run_length": jnp.asarray(0.5)}
    told = pointwise(MEAN, Y, effect, error, shared)
    rho = np.array([0.0, np.exp(-1.0), np.exp(-2.0)])
    left = Y - MEAN - effect
    rest = left - rho * left[[0, 0, 1]]
    expected = density(rest, 0.01 * np.sqrt(1 - rho**2))
    np.testing.assert_allclose(told, expected, rtol=1e-9)


def test_the_model_s_rows_are_student_t_about_the_law():
    """Of two tables that differ in one loss, prior and all else being the same: the
    difference of the densities is that row's.
    """
    law = bayeslaw.law("chinchilla")
    x = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 2e10])}
    values = {"E_nats": 1.8, "A_nats": 0.4, "B_nats": 0.3, "alpha": 0.34, "beta": 0.37}
    sites = {n: jnp.asarray(v) for n, v in values.items()} | ERROR
    mean = np.log(1.8 + 0.4 + 0.3)  # the second row is the reference run
    y, other = np.array([1.5, mean + 0.01]), np.array([1.5, mean - 0.03])
    told = log_density(model, (law, x, y), {}, sites)[0]
    otherwise = log_density(model, (law, x, other), {}, sites)[0]
    expected = density(0.01) - density(-0.03)
    np.testing.assert_allclose(told - otherwise, expected, rtol=1e-9)
