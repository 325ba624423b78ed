"""Chains of another kernel than NUTS, by the same coordinates, starts and chunks."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import BarkerMH

import bayeslaw
from bayeslaw._inference import diagnostics, nuts
from bayeslaw._inference.modes import Peak, find_peaks, start_near_mode
from bayeslaw._inference.weighted import preview
from known.problems import problem as of_runs


def barker(potential):
    """The Barker proposal (Livingstone and Zanella 2022): one gradient a draw.

    Its step is fixed, as the coordinates are white. An adapted step ends anywhere between
    .1 and .5 of accepted draws, by the last bits of the linear algebra.
    """
    return BarkerMH(
        potential_fn=potential,
        step_size=1.37,
        adapt_step_size=False,
        adapt_mass_matrix=False,
    )


@pytest.fixture(scope="module")
def problem():
    law, table, points = of_runs("chinchilla", bayeslaw.simulate("chinchilla", seed=3))
    start = start_near_mode(law, table, points, seed=1)
    peaks = find_peaks(law, table, points, start[None])
    return law, nuts.whitened_at(table, points, peaks[0])


def test_a_kernel_of_one_gradient_draws_the_same_posterior(problem):
    """As importance sampling does, within a quarter of an sd; its state counts neither
    steps nor divergences.
    """
    settings = nuts.NUTS(warmup=500, draws=2000, max_draws=8000)
    program = nuts.ONE_TABLE._replace(kernel=barker)
    chains = nuts.sample(*problem, settings, seed=1, program=program)
    rhat, ess = diagnostics.of_chains(chains.sites)
    assert rhat <= 1.01
    assert ess >= 400
    assert (chains.stats["n_steps"] == 1).all()
    assert not chains.stats["diverging"].any()
    assert np.mean(chains.stats["acceptance_rate"]) == pytest.approx(0.4, abs=0.1)
    law, whitened = problem
    peak = Peak(whitened.centre, whitened.scale, 0.0)
    weighted, quality = preview(law, whitened, [peak], 4000, seed=2)
    assert quality.khat < 0.7
    for name, draws in chains.sites.items():
        others = weighted.sites[name]
        assert abs(draws.mean() - others.mean()) < 0.25 * others.std(), name
        assert draws.std() == pytest.approx(others.std(), rel=0.25), name


def test_a_chain_starts_where_its_density_is_defined():
    """Half as far from the mode, as often as it takes; a point with a density is kept."""

    def potential(w):
        size = jnp.abs(w["a"]) + jnp.abs(w["b"]).sum()
        return jnp.where(size < 1, size, jnp.nan)

    far = {"a": jnp.asarray(2.0), "b": jnp.asarray([-1.0, 0.5])}
    near = nuts._move_nearer(potential, far)
    assert near["a"] == 0.5
    assert near["b"].tolist() == [-0.25, 0.125]
    assert nuts._move_nearer(potential, near)["b"].tolist() == near["b"].tolist()
