"""The mode that chains start from is that of the rows that count, wherever these are."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import coordinates
from bayeslaw._inference.point import misses, posterior_mode
from bayeslaw._inference.table import pad
from bayeslaw._tables import fitting


@pytest.fixture(scope="module")
def case():
    law = bayeslaw.law("chinchilla")
    runs = bayeslaw.simulate(law, seed=1)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    return law, x, y, coordinates.contrast_points(law, x)


def test_a_fold_s_mode_and_noise_are_those_of_its_rows(case):
    """The first rows left out: as if they were not in the table."""
    law, x, y, points = case
    kept = np.arange(len(y)) >= len(y) // 2
    whole = pad(x, y)
    weight = np.zeros(len(whole.weight))
    weight[: len(y)] = kept
    masked = posterior_mode(law, whole._replace(weight=weight), points)
    few = pad({c: v[kept] for c, v in x.items()}, y[kept], size=len(weight))
    alone = posterior_mode(law, few, points)
    assert masked[1] == pytest.approx(alone[1], rel=1e-6)
    for name, z in alone[0].items():
        assert float(masked[0][name]) == pytest.approx(float(z), rel=1e-4, abs=1e-6)


def test_a_row_that_counts_twice_is_no_further_off(case):
    law, x, y, points = case
    table = pad(x, y)
    z, _ = posterior_mode(law, table, points)
    twice = misses(law, table._replace(weight=2 * table.weight), points, z)
    np.testing.assert_allclose(twice, misses(law, table, points, z))
