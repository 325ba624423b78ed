"""Chains of another kernel than NUTS, by the same coordinates, starts and chunks."""

import numpy as np
import pytest
from numpyro.infer import BarkerMH

import bayeslaw
from bayeslaw._inference import coordinates, diagnostics
from bayeslaw._inference.nuts import NUTS, ONE_TABLE, prepare, sample
from bayeslaw._inference.table import pad, shared_error
from bayeslaw._inference.weighted import preview
from bayeslaw._tables import fitting


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
    law = bayeslaw.law("chinchilla")
    runs = bayeslaw.simulate(law, seed=3)
    columns = fitting.covariates(law, runs)
    errors = shared_error(runs).independent
    table = pad(columns, fitting.log_losses(runs), errors)
    return law, prepare(law, table, coordinates.contrast_points(law, columns), seed=1)


def test_a_kernel_of_one_gradient_draws_the_same_posterior(problem):
    """As importance sampling does, within a quarter of an sd; its state counts neither
    steps nor divergences.
    """
    settings = NUTS(warmup=500, draws=2000, max_draws=8000)
    program = ONE_TABLE._replace(kernel=barker)
    chains = sample(*problem, settings, seed=1, program=program)
    rhat, ess = diagnostics.of_chains(chains.sites)
    assert rhat <= diagnostics.MAX_RHAT
    assert ess >= diagnostics.MIN_ESS
    assert (chains.stats["n_steps"] == 1).all()
    assert not chains.stats["diverging"].any()
    assert np.mean(chains.stats["acceptance_rate"]) == pytest.approx(0.4, abs=0.1)
    weighted, quality = preview(*problem, 4000, seed=2)
    assert quality.khat < 0.7
    for name, draws in chains.sites.items():
        others = weighted.sites[name]
        assert abs(draws.mean() - others.mean()) < 0.25 * others.std(), name
        assert draws.std() == pytest.approx(others.std(), rel=0.25), name
