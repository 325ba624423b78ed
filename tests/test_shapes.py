"""Annotated shapes are checked while tests run, with what is imported for them alone."""

import numpy as np
import pytest

from bayeslaw._inference import noise
from bayeslaw._inference.discrepancy import drift
from bayeslaw._tables.rates.areas import areas


def test_an_argument_of_another_shape_is_refused():
    """A schedule is one axis of steps."""
    with pytest.raises(Exception, match="rates"):
        areas(np.ones((3, 2)))


def test_axes_of_one_name_have_one_length():
    """Scale and degrees of freedom are of the same draws."""
    with pytest.raises(Exception, match="dof"):
        noise.RunNoise(np.ones(4), np.ones(5))


class OneAxisMore(np.random.Generator):
    """Its normals have an axis that nobody asked for."""

    def standard_normal(self, size):
        return np.ones((1, *size))


def test_a_result_is_checked_too():
    """Three axes are no draws by side."""
    rng = OneAxisMore(np.random.PCG64(0))
    prior = drift.DriftPrior(drift.DriftPriors().tau, 60 * (0.0,))
    with pytest.raises(Exception, match="return"):
        drift.draw_drift(np.ones((2, 60)), prior, 3, rng)
