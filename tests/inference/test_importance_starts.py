"""Where importance sampling looks for its mode: least squares first, each place once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayeslaw
from bayeslaw._inference import coordinates, importance
from bayeslaw._inference.noise import log_density_of_error
from bayeslaw._inference.table import pad, shared_error
from bayeslaw._tables import fitting


@pytest.fixture(scope="module")
def case():
    """A table whose runs share errors, and three starts around its mode."""
    law = bayeslaw.law("dcpt")
    runs = bayeslaw.simulate("ptpp-floor", seed=1)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    table, points = pad(x, y, shared_error(runs)), coordinates.contrast_points(law, x)
    rng = np.random.default_rng(0)
    exact = {name: p.median for name, p in law.priors.items()}
    values = [
        {n: v * np.exp(0.2 * rng.normal()) for n, v in exact.items()} for _ in range(2)
    ]
    starts = importance.starts_near(law, table, points, [exact, *values], 0.005)
    return law, table, points, np.asarray(starts)


def test_starts_come_together_and_are_searched_from_once(case):
    law, table, points, starts = case
    nearer = [importance._least_squares(law, table, points, s) for s in starts]
    kept = importance._drop_similar(nearer)
    assert len(kept) == 1
    _, height = importance._minimise(law, table, points, kept[0])
    alone = [importance._minimise(law, table, points, s)[1] for s in starts]
    assert height == pytest.approx(min(alone), abs=1e-3)


def test_least_squares_that_are_no_better_are_left(case, monkeypatch):
    """The mode is by the density, of heavy tails and shared errors."""
    law, table, points, starts = case
    mode, _ = importance._minimise(law, table, points, starts[0])

    def elsewhere(law, table, points, z, objective):
        return {name: jnp.asarray(v[0] + 1.0) for name, v in z.items()}, 0.0

    monkeypatch.setattr(importance, "least_cost", elsewhere)
    kept = importance._least_squares(law, table, points, mode)
    np.testing.assert_array_equal(kept, mode)


def test_starts_that_differ_are_all_kept():
    some = [np.array([0.0, 1.0]), np.array([0.0, 1.0005]), np.array([0.0, 1.1])]
    assert [v.tolist() for v in importance._drop_similar(some)] == [
        [0.0, 1.0],
        [0.0, 1.1],
    ]


def test_rows_of_one_table_take_one_gamma_function():
    """Of degrees of freedom that they have in common."""

    def density(dof, scale, residual):
        return log_density_of_error({"dof_above_2": dof}, scale, residual)

    traced = jax.make_jaxpr(density)(3.0, jnp.ones((1, 50)), jnp.zeros((7, 50)))
    gammas = [e for e in traced.jaxpr.eqns if e.primitive.name == "lgamma"]
    assert len(gammas) == 2
    assert {e.outvars[0].aval.size for e in gammas} == {1}
