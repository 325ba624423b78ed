"""The scale of checkpoints' effects is sampled signed; nothing behind the sampler sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import coordinates, density
from bayeslaw._inference.importance import approximate
from bayeslaw._inference.nuts import prepare
from bayeslaw._inference.table import pad, shared_error
from bayeslaw._tables import fitting


@pytest.fixture(scope="module")
def case():
    law = bayeslaw.law("chinchilla")
    runs = bayeslaw.simulate(law, seed=1)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    return law, pad(x, y, shared_error(runs)), coordinates.contrast_points(law, x)


def test_a_scale_is_never_negative(case):
    """Of weighted draws, whose proposal crosses 0 where the table shows no effect."""
    law, table, points = case
    start = prepare(law, table, points, 0).centre[None]
    found = approximate(law, table, points, start, seed=0)
    signed = found.vectors[
        :, density.site_names(law, table.shared).index("tau_checkpoint")
    ]
    assert (signed < 0).any()
    np.testing.assert_array_equal(found.values["tau_checkpoint"], np.abs(signed))


def test_the_density_does_not_depend_on_the_sign(case):
    law, table, points = case
    vector = jnp.asarray(prepare(law, table, points, 0).centre)
    i = density.site_names(law, table.shared).index("tau_checkpoint")
    both = jnp.stack([vector.at[i].set(s * 0.003) for s in (1, -1)])
    height = jax.vmap(lambda v: density.potential(law, table, points, v))(both)
    assert float(height[0]) == pytest.approx(float(height[1]), rel=1e-12)
