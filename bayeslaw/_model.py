"""A law as a NumPyro model: priors on contributions and exponents, Student-t likelihood on log loss."""

from __future__ import annotations

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslaw._law import Covariates, Law, Values
from bayeslaw._priors import Prior, lognormal

# Scale of a run's own error on log loss. Measured between seeds: .1% (billions of parameters; Bethune 2025 and
# Wang 2025 fit to .2-1%) to .6% (tiny models).
SIGMA = lognormal(0.005, 1.0, "seeds differ by .1-.6%; published fits miss by .2-1%")
# Tails: degrees of freedom - 2, so that the noise has a variance. Juarez and Steel 2010 use gamma(2, .1) on all of it.
DOF_SHAPE, DOF_RATE, DOF_MIN = 2.0, 0.1, 2.0

NOISE_SITES = ("sigma", "dof_above_2")
LOSS_MIN = 1e-6  # nats; a law whose terms cancel below this is not a loss


def log_loss(law: Law, covariates: Covariates, values: Values) -> Array:
    """The law's log loss at each run, shape (run,)."""
    return jnp.log(jnp.maximum(law.loss(covariates, values), LOSS_MIN))


def sample_values(law: Law) -> dict[str, Array]:
    """Contributions (nats) and exponents from their priors; a fixed prior is its value."""

    def one(name: str, prior: Prior) -> Array:
        return jnp.asarray(prior.args[0] if prior.is_fixed else numpyro.sample(name, prior.distribution()))

    return {name: one(name, prior) for name, prior in law.priors.items()}


def model(law: Law, covariates: Covariates, y: Array | None = None, measured: Array | bool = True) -> None:
    """The model of one table.

    Parameters
    ----------
    law
        The law with its priors.
    covariates
        Columns of shape (run,).
    y
        Log losses, shape (run,); None to draw them.
    measured
        Shape (run,); false at rows that only pad the table.
    """
    values = sample_values(law)
    sigma = numpyro.sample("sigma", SIGMA.distribution())
    dof = DOF_MIN + numpyro.sample("dof_above_2", dist.Gamma(DOF_SHAPE, DOF_RATE))
    mean = log_loss(law, covariates, values)
    with numpyro.plate("run", mean.shape[0]), numpyro.handlers.mask(mask=measured):
        numpyro.sample("log_loss", dist.StudentT(dof, mean, sigma), obs=y)
