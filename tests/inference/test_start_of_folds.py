"""What chains start from: the mode of the rows that count, wherever these are, and points near it that have a density."""

import jax.numpy as jnp
import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import coordinates, nuts
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


def test_a_chain_starts_where_its_density_is_defined():
    """Half as far from the mode, as often as it takes; a point that has a density is left alone."""

    def potential(w):
        size = jnp.abs(w["a"]) + jnp.abs(w["b"]).sum()
        return jnp.where(size < 1, size, jnp.nan)

    far = {"a": jnp.asarray(2.0), "b": jnp.asarray([-1.0, 0.5])}
    near = nuts._move_nearer(potential, far)
    assert near["a"] == 0.5
    assert near["b"].tolist() == [-0.25, 0.125]
    assert nuts._move_nearer(potential, near)["b"].tolist() == near["b"].tolist()
    nowhere = nuts._move_nearer(lambda w: jnp.inf * jnp.ones(()), far)
    assert 0 < nowhere["a"] < 0.01
