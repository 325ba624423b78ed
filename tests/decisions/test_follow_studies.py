"""What the studies of followed runs reckon with: rivals, and when a verdict was sure."""

import numpy as np
import pytest
from follow_runs import both_curves, line


@pytest.mark.parametrize("exponent", [0.15, 0.3, 1.5])
def test_two_curves_of_one_exponent_are_foretold_from_three_points(exponent):
    """Where a line through each misses both, the one that falls and the one that rises."""
    t = np.array([0.0, 1.0, 2.0])
    end = 5.0
    falls = 0.5 + 0.3 * np.exp(-exponent * np.append(t, end))
    rises = 0.7 - 0.1 * np.exp(-exponent * np.append(t, end))
    for own, other in ((falls, rises), (rises, falls)):
        foretold = both_curves(t, own[:-1], other[:-1], end)
        assert foretold == pytest.approx(own[-1], abs=1e-4)
        assert abs(line(t, own[:-1], end)[1] - own[-1]) > 0.003


def test_the_other_curve_is_what_tells_a_noisy_one_its_exponent():
    rng = np.random.default_rng(0)
    t, end = np.linspace(0.0, 2.0, 4), 5.0
    truth = 0.5 + 0.3 * np.exp(-0.5 * end)
    clean = 0.7 - 0.5 * np.exp(-0.5 * t)
    alone, together = [], []
    for _ in range(40):
        noisy = 0.5 + 0.3 * np.exp(-0.5 * t) + 0.01 * rng.standard_normal(4)
        together.append(both_curves(t, noisy, clean, end) - truth)
        alone.append(both_curves(t, noisy, noisy, end) - truth)
    assert np.abs(together).mean() < 0.7 * np.abs(alone).mean()
