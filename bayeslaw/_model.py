"""A law as a NumPyro model: priors on contributions and exponents, Student-t likelihood on log loss, shared errors.

`model` is the model as one would write it. `log_density` is the same with the effects of checkpoints (or runs)
integrated out, one by one, by Gauss-Hermite quadrature around their modes: what is sampled has no latent effects, and
they are drawn afterwards (`draw_effects`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslaw._law import Covariates, Law, Values
from bayeslaw._priors import Prior, lognormal
from bayeslaw._shared_error import NONE, SharedError

# Scale of a run's own error on log loss. Measured between seeds: .1% (billions of parameters; Bethune 2025 and
# Wang 2025 fit to .2-1%) to .6% (tiny models).
SIGMA = lognormal(0.005, 1.0, "seeds differ by .1-.6%; published fits miss by .2-1%")
# Tails: degrees of freedom - 2, so that the noise has a variance. Juarez and Steel 2010 use gamma(2, .1) on all of it.
DOF_SHAPE, DOF_RATE, DOF_MIN = 2.0, 0.1, 2.0
# Scale of what runs from one checkpoint share, half-normal. Its site is signed, so that the posterior has no edge at 0:
# effects are the scale times z, and a normal scale times a symmetric z is a half-normal one. Measured on tiny models:
# .36%. A loose prior swallows the law: with a half-normal of .02 an effect took 4.6% and the forecast at a new stage
# went from 1.4% to 7% off.
TAU_CHECKPOINT = 0.004
# Scale of what the points of one learning curve share. Three curves cannot tell it; two seeds of a configuration do.
TAU_RUN = lognormal(0.002, 0.5, "seeds differ by .1-.6% (Bethune 2025, Wang 2025, tiny models)")
# Correlation length of the rest along a run, in e-folds of steps or tokens.
CURVE_LENGTH = lognormal(0.1, 0.5, "unpublished; what is alike for longer is the effect of the run")
LADDER_LENGTH = lognormal(1.0, 0.7, "unpublished; from one measurement to the next, to the whole run")

LOSS_MIN = 1e-6  # nats; a law whose terms cancel below this is not a loss
NODES, NODE_WEIGHTS = np.polynomial.hermite.hermgauss(7)


def log_loss(law: Law, covariates: Covariates, values: Values) -> Array:
    """The law's log loss at each run, shape (run,)."""
    return jnp.log(jnp.maximum(law.loss(covariates, values), LOSS_MIN))


def _of_draw(law: Law, draw: Values, covariates: Covariates) -> Array:
    return log_loss(law, covariates, draw)


@lru_cache(maxsize=64)
def log_loss_of(law: Law) -> Callable[[Values, Covariates], Array]:
    """The law's log loss of one draw; one function for each law, so that what is compiled over it is found again."""
    return partial(_of_draw, law)


def sample_values(law: Law) -> dict[str, Array]:
    """Contributions (nats) and exponents from their priors; a fixed prior is its value."""

    def one(name: str, prior: Prior) -> Array:
        return jnp.asarray(prior.args[0] if prior.is_fixed else numpyro.sample(name, prior.distribution()))

    return {name: one(name, prior) for name, prior in law.priors.items()}


def error_sites(shared: SharedError) -> dict[str, dist.Distribution]:
    """Priors of the scalar sites of the error, by name."""
    sites: dict[str, dist.Distribution] = {
        "sigma": SIGMA.distribution(),
        "dof_above_2": dist.Gamma(DOF_SHAPE, DOF_RATE),
    }
    if shared.kind == "checkpoint":
        sites["tau_checkpoint"] = dist.Normal(0.0, TAU_CHECKPOINT)
    if shared.kind == "run":
        sites["tau_run"] = TAU_RUN.distribution()
    if shared.along_run:
        sites["run_length"] = (CURVE_LENGTH if shared.kind == "run" else LADDER_LENGTH).distribution()
    return sites


class Innovations(NamedTuple):
    """What is new at each row given the law, the effect, and the row before it in its run; each of shape (row,).

    ``value`` less ``share`` times the effect is Student-t with ``scale``.
    """

    value: Array
    share: Array
    scale: Array


def innovations(mean: Array, y: Array, error: Values, shared: SharedError) -> Innovations:
    """Residuals of log losses ``y`` around the law's ``mean``, less what the row before foretells."""
    residual, sigma = y - mean, jnp.broadcast_to(error["sigma"], mean.shape)
    if not shared.along_run:
        return Innovations(residual, jnp.ones_like(mean), sigma)
    first = jnp.isinf(shared.gap)
    gap = jnp.where(first, 1.0, shared.gap) / error["run_length"]
    foretold = jnp.where(first, 0.0, jnp.exp(-gap))
    scale = sigma * jnp.where(first, 1.0, jnp.sqrt(-jnp.expm1(-2 * gap)))
    return Innovations(residual - foretold * residual[shared.previous], 1 - foretold, scale)


def model(
    law: Law,
    covariates: Covariates,
    y: Array | None = None,
    measured: Array | bool = True,
    shared: SharedError = NONE,
) -> None:
    """The model of one table.

    Parameters
    ----------
    law
        The law with its priors.
    covariates
        Columns of shape (run,).
    y
        Log losses, shape (run,); None to draw them (points along one run then have independent errors).
    measured
        Shape (run,); false at rows that only pad the table.
    shared
        Which rows share their error.
    """
    values = sample_values(law)
    error = {name: numpyro.sample(name, prior) for name, prior in error_sites(shared).items()}
    mean, scale = log_loss(law, covariates, values), error["sigma"]
    effect = jnp.zeros_like(mean)
    if shared.kind is not None:
        with numpyro.plate(shared.kind, len(shared.group.slots)):
            z = jnp.asarray(numpyro.sample("z", dist.Normal(0.0, 1.0)))
        effect = error[f"tau_{shared.kind}"] * z[shared.group.code]
    centre = mean + effect
    if y is not None:
        new = innovations(mean, y, error, shared)
        centre, scale = y - new.value + new.share * effect, new.scale
    with numpyro.plate("row", mean.shape[0]), numpyro.handlers.mask(mask=measured):
        numpyro.sample("log_loss", dist.StudentT(DOF_MIN + error["dof_above_2"], centre, scale), obs=y)


# -- the same density without latent effects -------------------------------------------------------------------------


def constrain_error(u: Values, shared: SharedError) -> dict[str, Array]:
    """Error sites from NumPyro's unconstrained ones: ``tau_checkpoint`` is signed, the others positive."""
    return {n: u[n] if n == "tau_checkpoint" else jnp.exp(u[n]) for n in error_sites(shared)}


def log_prior(law: Law, values: Values, error: Values, shared: SharedError) -> dict[str, Array]:
    """Log prior density of each sampled site, in its own units."""
    density = {n: jnp.asarray(p.distribution().log_prob(values[n])) for n, p in law.priors.items() if not p.is_fixed}
    return density | {n: jnp.asarray(p.log_prob(error[n])) for n, p in error_sites(shared).items()}


def log_density(
    law: Law, covariates: Covariates, y: Array, measured: Array, shared: SharedError, u: Values, values: Values
) -> Array:
    """Log posterior density of NumPyro's unconstrained sites ``u`` (``values``: the law's, constrained), effects out."""
    error = constrain_error(u, shared)
    supports = {n: p.support for n, p in law.priors.items()}
    volume = sum(
        (
            jax.nn.log_sigmoid(v) + jax.nn.log_sigmoid(-v)
            if supports.get(n) == "unit"
            else 0.0
            if supports.get(n) == "real" or n == "tau_checkpoint"
            else v
        )
        for n, v in u.items()
    )
    prior = sum(log_prior(law, values, error, shared).values())
    mean = log_loss(law, covariates, values)
    return prior + volume + log_likelihood(mean, y, measured, error, shared)


def log_likelihood(mean: Array, y: Array, measured: Array, error: Values, shared: SharedError) -> Array:
    """Log likelihood of a table, effects integrated out."""
    new, dof = innovations(mean, y, error, shared), DOF_MIN + error["dof_above_2"]
    if shared.kind is None:
        return jnp.sum(dist.StudentT(dof, 0.0, new.scale).log_prob(new.value) * measured)
    centre, width = _effect_modes(new, measured, error, shared)
    z = centre + jnp.sqrt(2.0) * width * NODES[:, None]  # (node, slot)
    total = _log_joint(new, measured, error, shared, z) + (NODES**2 + np.log(NODE_WEIGHTS))[:, None]
    return jnp.sum(jax.scipy.special.logsumexp(total, axis=0) + jnp.log(jnp.sqrt(2.0) * width))


def _effect_modes(new: Innovations, measured: Array, error: Values, shared: SharedError) -> tuple[Array, Array]:
    """Mode and width of each slot's z given all else, by reweighted least squares, each of shape (slot,)."""
    tau, dof = error[f"tau_{shared.kind}"], DOF_MIN + error["dof_above_2"]
    inside = (jax.nn.one_hot(shared.group.code, len(shared.group.slots)) * jnp.asarray(measured)[:, None]).T
    weight, z, precision = 1 / new.scale**2, jnp.zeros(len(shared.group.slots)), jnp.ones(())
    for _ in range(4):
        precision = 1 + tau**2 * (inside @ (weight * new.share**2))
        z = tau * (inside @ (weight * new.share * new.value)) / precision
        rest = (new.value - new.share * tau * z[shared.group.code]) / new.scale
        weight = (dof + 1) / (dof + rest**2) / new.scale**2
    return jax.lax.stop_gradient((z, 1 / jnp.sqrt(precision)))


def _log_joint(new: Innovations, measured: Array, error: Values, shared: SharedError, z: Array) -> Array:
    """Log density of z, shape (k, slot), and of the rows of its group."""
    inside = jax.nn.one_hot(shared.group.code, len(shared.group.slots)) * jnp.asarray(measured)[:, None]
    rest = new.value - new.share * error[f"tau_{shared.kind}"] * z[:, shared.group.code]
    rows = dist.StudentT(DOF_MIN + error["dof_above_2"], 0.0, new.scale).log_prob(rest)
    return rows @ inside + jax.scipy.stats.norm.logpdf(z)


def draw_effects(key: Array, mean: Array, y: Array, measured: Array, error: Values, shared: SharedError) -> Array:
    """One draw of each slot's effect on log loss given all else, shape (slot,): importance resampling of 64."""
    new = innovations(mean, y, error, shared)
    centre, width = _effect_modes(new, measured, error, shared)
    propose, choose = jax.random.split(key)
    t = dist.StudentT(4.0)
    spread = t.sample(propose, (64, len(shared.group.slots)))
    z = centre + width * spread
    chosen = jax.random.categorical(choose, _log_joint(new, measured, error, shared, z) - t.log_prob(spread), axis=0)
    return error[f"tau_{shared.kind}"] * jnp.take_along_axis(z, chosen[None], axis=0)[0]


def pointwise(mean: Array, y: Array, effect: Array | float, error: Values, shared: SharedError) -> Array:
    """Log density of each row given the effects and the row before it in its run, shape (row,)."""
    new = innovations(mean, y, error, shared)
    return dist.StudentT(DOF_MIN + error["dof_above_2"], 0.0, new.scale).log_prob(new.value - new.share * effect)
