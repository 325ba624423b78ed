"""The log density of rows by scipy: residual less effect, sign and all."""

import jax.numpy as jnp
import numpy as np
from scipy import stats

from bayeslaw._inference.likelihood import pointwise
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
