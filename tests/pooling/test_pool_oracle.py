"""The pooled density against an oracle: the hierarchy written centred, as in a textbook,
and reparametrised by NumPyro itself (`LocScaleReparam`). Nothing is sampled.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.distributions import biject_to
from numpyro.infer.reparam import LocScaleReparam
from numpyro.infer.util import potential_energy

import bayeslaw
from bayeslaw._inference import noise
from bayeslaw._inference.table import pad
from bayeslaw._pooling import coordinates, hierarchy

POINTS = 6
ROWS_OF_DOMAINS = (5, 1, 9)  # less than the law has parameters, and more


@pytest.fixture(scope="module", params=["floor", "no floor"])
def law(request):
    """A floor, which leads, and exponents of both kinds (a positive one, a share); or
    none, so that the first term leads.
    """
    if request.param == "no floor":
        return bayeslaw.law("forgetting")
    return bayeslaw.law("finetune").with_priors({"beta": "beta(2, 20)"})


@pytest.fixture(scope="module")
def problem(law):
    """Three domains, and coordinates around an arbitrary expansion: their claim is exact
    whatever they were made from.
    """
    rng = np.random.default_rng(7)
    code = np.repeat(np.arange(len(ROWS_OF_DOMAINS)), ROWS_OF_DOMAINS)
    runs = pd.DataFrame(
        {
            "N": 10 ** rng.uniform(7.5, 9.5, len(code)),
            "D": 10 ** rng.uniform(5.5, 7.5, len(code)),
            "replay": rng.uniform(0, 0.02, len(code)),
            "loss_before": rng.uniform(1.4, 1.6, len(code)),
        }
    )
    columns = {name: runs[name].to_numpy() for name in law.covariates}
    table = pad(columns, rng.normal(0.5, 0.1, len(code)))
    padded = np.pad(code, (0, len(table.y) - len(code)), mode="edge")
    domains = len(ROWS_OF_DOMAINS)
    centre, sd = hierarchy.prior_moments(law)
    sites = len(centre)
    root = rng.normal(size=(domains, sites, sites)) / sd[:, None]
    tangent = rng.normal(size=(domains, sites))
    leads = hierarchy.leading_term(law).site
    # what it follows are the other sites
    tangent[:, list(hierarchy.pooled_priors(law)).index(leads)] = 0
    near = coordinates.Expansion(
        u=jnp.asarray(centre + 0.3 * sd * rng.normal(size=(domains, sites))),
        slope=jnp.asarray(rng.normal(size=(domains, sites)) / sd),
        information=jnp.asarray(root @ root.transpose(0, 2, 1)),
        curve=hierarchy.LeadingCurve(
            level=jnp.asarray(rng.uniform(1.4, 1.8, (len(padded), 1))),
            start=jnp.asarray(rng.normal(size=domains)),
            tangent=jnp.asarray(tangent),
        ),
    )
    population = np.concatenate([centre, np.log(0.5 * sd), [np.log(10.0)]])
    scale = np.concatenate([0.3 * sd, np.full(sites + 1, 0.3)])
    return coordinates.WhitenedPool(
        hierarchy.Domains(table, padded, np.zeros(domains)),
        half_normal=jnp.asarray(0.7 * sd),
        near=near,
        centre=jnp.asarray(population),
        scale=jnp.asarray(scale),
    )


def hierarchical(law, problem):
    """The model as one would write it, centred: each domain's sites around the mean."""
    table, code, slots = problem.domains
    count = len(slots)
    values = {}
    for i, (name, prior) in enumerate(hierarchy.pooled_priors(law).items()):
        distribution = prior.distribution()
        to_value = biject_to(distribution.support)
        mean = to_value.inv(numpyro.sample(f"mean_{name}", distribution))
        wide = dist.HalfNormal(problem.half_normal[i])
        spread = numpyro.sample(f"spread_{name}", wide)
        with numpyro.plate("domain", count):
            u = numpyro.sample(f"u_{name}", dist.Normal(mean, spread))
        values[name] = to_value(u)[code]
    above_2 = numpyro.sample(
        "dof_above_2", dist.Gamma(noise.ERROR.dof_shape, noise.ERROR.dof_rate)
    )
    sigma = values.pop("sigma")
    centre = jnp.log(law.loss(table.covariates, values))
    with numpyro.handlers.mask(mask=table.weight > 0):
        rows = dist.StudentT(noise.ERROR.dof_min + above_2, centre, sigma)
        numpyro.sample("log_loss", rows, obs=table.y)


def oracle(law, problem, centredness, vector):
    """NumPyro's log density of means, log spreads, each domain's coordinates and the log
    of the degrees of freedom above 2, in one vector.
    """
    names = list(hierarchy.pooled_priors(law))
    mean, log_spread, rest = jnp.split(vector, [len(names), 2 * len(names)])
    of_domain = rest[1:].reshape(-1, len(names))
    config = {f"u_{name}": LocScaleReparam(centredness) for name in names}
    model = numpyro.handlers.reparam(hierarchical, config=config)
    sites = {"dof_above_2": rest[0]}
    decentred = "" if centredness == 1 else "_decentered"
    for i, name in enumerate(names):
        sites[f"mean_{name}"] = mean[i]
        sites[f"spread_{name}"] = log_spread[i]
        sites[f"u_{name}{decentred}"] = of_domain[:, i]
    return -potential_energy(model, (law, problem), {}, sites)


def vectors(problem, law):
    """Points of standard normal coordinates, shape (point, coordinate)."""
    size = problem.centre.size + problem.near.u.size
    return jnp.asarray(np.random.default_rng(1).normal(size=(POINTS, size)))


def unwhitened(law, problem, w):
    """A point's state and log determinant, of its whitened vector."""
    population = problem.centre.size
    of_domains = w[population:].reshape(problem.near.u.shape)
    named = {"population": w[:population], "domain": of_domains}
    return coordinates.to_state(law, problem, named)


def in_z(state):
    """A state as the vector that the package's density is one of."""
    z = (state.u - state.mean[None]) / state.spread[None]
    log_above_2 = jnp.log(state.dof_above_2)[None]
    return jnp.concatenate(
        [state.mean, jnp.log(state.spread), log_above_2, z.reshape(-1)]
    )


def changes(heights):
    """Differences between points, which no constant can hide in, shape (point - 1,)."""
    return np.asarray(heights[1:] - heights[0])


def test_the_density_is_that_of_numpyro_s_decentred_model(law, problem):
    """At random states the density of z equals NumPyro's of its own z, constant and all."""

    def both(w):
        state, _ = unwhitened(law, problem, w)
        ours = hierarchy.log_density(law, problem.domains, problem.half_normal, state)
        return ours, oracle(law, problem, 0, in_z(state))

    ours, theirs = jax.jit(jax.vmap(both))(vectors(problem, law))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(changes(ours), changes(theirs), rtol=1e-9)


@pytest.mark.parametrize("centredness", [0.5, 1])
def test_densities_of_other_coordinates_differ_by_their_jacobian(
    law, problem, centredness
):
    """Centred by a share c, u = mean + spread^(1 - c) (x - c mean): NumPyro's density of x is
    ours less c times each domain's log spreads.
    """

    def both(w):
        state, _ = unwhitened(law, problem, w)
        ours = hierarchy.log_density(law, problem.domains, problem.half_normal, state)
        stretch = state.spread[None] ** centredness
        vector = in_z(state)
        population = problem.centre.size
        z = vector[population:].reshape(state.u.shape)
        x = centredness * state.mean[None] + stretch * z
        theirs = oracle(
            law,
            problem,
            centredness,
            jnp.concatenate([vector[:population], x.reshape(-1)]),
        )
        return ours - len(z) * jnp.sum(jnp.log(stretch)), theirs

    ours, theirs = jax.jit(jax.vmap(both))(vectors(problem, law))
    np.testing.assert_allclose(changes(ours), changes(theirs), rtol=1e-9)


def test_the_whitened_density_is_numpyro_s_with_the_whole_jacobian(law, problem):
    """What NUTS sees, against NumPyro's density and the determinant of the whole map from
    whitened coordinates by automatic differentiation.
    """

    def both(w):
        def moved(w):
            state, _ = unwhitened(law, problem, w)
            return in_z(state)

        state, logdet = unwhitened(law, problem, w)
        density = hierarchy.log_density(
            law, problem.domains, problem.half_normal, state
        )
        log_volume = jnp.linalg.slogdet(jax.jacfwd(moved)(w))[1]
        return density + logdet, oracle(law, problem, 0, moved(w)) + log_volume

    ours, theirs = jax.jit(jax.vmap(both))(vectors(problem, law))
    np.testing.assert_allclose(changes(ours), changes(theirs), rtol=1e-9)
