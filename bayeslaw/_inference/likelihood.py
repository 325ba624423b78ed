"""Write a law as a NumPyro model: priors on contributions and exponents, Student-t
likelihood on log loss, shared errors.

`model` is the plain NumPyro model. `log_density` is the same density with the effects
of checkpoints (or runs) integrated out, one by one, by Gauss-Hermite quadrature around
their modes. So the sampler has no latent effects; `draw_effects` draws them afterwards.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import betaln

from bayeslaw._inference.noise import (
    ERROR,
    constrain_error,
    error_priors,
    error_sites,
    log_density_of_error,
    log_prior_of_dof,
    log_prior_of_error,
    log_wall,
)
from bayeslaw._inference.table import NONE, SharedError
from bayeslaw._law.law import Covariates, Law, Values, log_loss
from bayeslaw._law.priors import Prior

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

    from bayeslaw._base.arrays import AnyArray


def sample_values(law: Law) -> dict[str, Array]:
    """Sample contributions (nats) and exponents from their priors."""
    import numpyro

    def one(name: str, prior: Prior) -> Array:
        if prior.is_fixed:
            return jnp.asarray(prior.args[0])
        value = numpyro.sample(name, prior.distribution())
        return jnp.asarray(value)

    return {name: one(name, prior) for name, prior in law.priors.items()}


class Innovations(NamedTuple):
    """Innovations of the errors: the part of each row that the law, the effect and the
    previous row of its run do not predict, shape (row,). Share and scale have shape ()
    if they are the same for all rows.

    ``value`` minus ``share`` times the effect is Student-t with ``scale``.
    """

    value: Float[AnyArray, " row"]
    share: Float[AnyArray, "*row"]
    scale: Float[AnyArray, "*row"]


def innovations(
    mean: Float[AnyArray, " row"],
    y: Float[AnyArray, " row"],
    error: Values,
    shared: SharedError,
) -> Innovations:
    """Compute residuals of log losses ``y`` around the law's ``mean``, minus the
    prediction from the previous row.

    Along a run the errors are an autoregression of first order at uneven steps. Two
    rows a gap apart have the correlation exp(-gap / length), so the innovation has the
    share 1 - exp(-2 gap / length) of the variance. A stated error of a row is
    independent of all others. It also disturbs the prediction of the next row, which
    uses the measured loss.
    """
    residual = y - mean
    sigma = jnp.asarray(error["sigma"])
    if shared.previous is None or shared.gap is None:
        return Innovations(residual, jnp.ones(()), row_scale(sigma, shared))
    first = jnp.isinf(shared.gap)
    # no infinity in the branch that is not taken, because its gradient would be NaN
    gap = jnp.where(first, 1.0, shared.gap) / error["run_length"]
    # Ornstein-Uhlenbeck at uneven steps: e_i = rho e_{i-1} + sqrt(1 - rho^2) new, with
    # rho = exp(-gap / length).
    foretold = jnp.where(first, 0.0, jnp.exp(-gap))
    own_share = jnp.where(first, 1.0, jnp.sqrt(-jnp.expm1(-2 * gap)))
    # Both rows have the same effect. The prediction contains rho times the effect, so
    # the innovation contains 1 - rho times it.
    value = residual - foretold * residual[shared.previous]
    scale = sigma * own_share
    if shared.row_sd is not None:
        row_sd = jnp.asarray(shared.row_sd)
        before = foretold * row_sd[shared.previous]
        scale = jnp.sqrt(scale**2 + row_sd**2 + before**2)
    return Innovations(value, 1 - foretold, scale)


def row_scale(
    sigma: Float[AnyArray, ""], shared: SharedError
) -> Float[AnyArray, "*row"]:
    """Compute the scale of each row's own error: sigma and the stated error, added in
    quadrature. The shape is () if the table states no errors.
    """
    if shared.row_sd is None:
        return sigma
    return jnp.sqrt(sigma**2 + jnp.asarray(shared.row_sd) ** 2)


def model(
    law: Law,
    covariates: Covariates,
    y: Float[AnyArray, " row"] | None = None,
    measured: Shaped[AnyArray, " row"] | bool = True,
    shared: SharedError = NONE,
) -> None:
    """Define the NumPyro model of one table.

    Parameters
    ----------
    law
        The law with its priors.
    covariates
        Columns of shape (run,).
    y
        Log losses, shape (run,); None to draw them (points along one run then have
        independent errors).
    measured
        Shape (run,); false at rows that only pad the table.
    shared
        Which rows share their error.
    """
    # imported here, because numpyro takes a fifth of a second and a preview does not
    # need it
    import numpyro
    import numpyro.distributions as dist

    values = sample_values(law)
    error = {
        name: numpyro.sample(name, prior) for name, prior in error_sites(shared).items()
    }
    numpyro.factor("rounding", log_wall(jnp.log(error["sigma"])))
    mean = log_loss(law, covariates, values)
    scale = row_scale(jnp.asarray(error["sigma"]), shared)
    effect = jnp.zeros_like(mean)
    if shared.kind is not None:
        with numpyro.plate(shared.kind, len(shared.group.slots)):
            z = jnp.asarray(numpyro.sample("z", dist.Normal(0.0, 1.0)))
        effect = error[f"tau_{shared.kind}"] * z[shared.group.code]
    centre = mean + effect
    if y is not None:
        # the distribution of the innovation, shifted to that of the observed row
        new = innovations(mean, y, error, shared)
        centre, scale = y - new.value + new.share * effect, new.scale
    dof = ERROR.dof_min + error["dof_above_2"]
    with numpyro.plate("row", mean.shape[0]), numpyro.handlers.mask(mask=measured):
        numpyro.sample("log_loss", dist.StudentT(dof, centre, scale), obs=y)


# -- the same density without latent effects -------------------------------------------


def log_prior(
    law: Law, values: Values, error: Values, shared: SharedError
) -> dict[str, Array]:
    """Compute the log prior density of each sampled site, in its own units."""
    of_law = {
        name: prior.log_density(values[name]) for name, prior in law.free_priors.items()
    }
    return of_law | log_prior_of_error(error, shared)


def log_density(
    law: Law,
    covariates: Covariates,
    y: Float[AnyArray, " row"],
    measured: Shaped[AnyArray, " row"],
    shared: SharedError,
    u: Values,
    values: Values,
) -> Float[Array, ""]:
    """Compute the log posterior density of NumPyro's unconstrained sites ``u``, with
    effects integrated out. ``values`` are the law's constrained values.
    """
    error = constrain_error(u, shared)
    mean = log_loss(law, covariates, values)
    rows = log_likelihood(mean, y, measured, error, shared)
    return _log_prior_of_sites(law, u, shared) + rows


def _log_prior_of_sites(law: Law, u: Values, shared: SharedError) -> Float[Array, ""]:
    """Compute the log prior density of all unconstrained sites together: `log_prior`
    plus the log slopes of the values by their sites.
    """
    # The time to compile depends on the number of operations, so all normal sites share
    # a few. The site of a log-normal value is its logarithm, which is normal.
    sites, centres, sds, log_priors = [], [], [], []
    for name, prior in (law.priors | error_priors(shared)).items():
        match prior.family, prior.args:
            case "lognormal", (median, sd):
                sites.append(u[name])
                centres.append(math.log(median))
                sds.append(sd)
            case "normal", (mean, sd):
                sites.append(u[name])
                centres.append(mean)
                sds.append(sd)
            case "beta", (a, b):
                # sigmoid' = sigmoid (1 - sigmoid)
                log_value = jax.nn.log_sigmoid(u[name])
                log_rest = jax.nn.log_sigmoid(-u[name])
                log_priors.append(a * log_value + b * log_rest - betaln(a, b))
    dof = u["dof_above_2"]
    log_priors.append(log_prior_of_dof(jnp.exp(dof)) + dof)
    standard = (jnp.stack(sites) - np.array(centres)) / np.array(sds)
    log_norm = np.sum(np.log(sds)) + 0.5 * len(sds) * np.log(2 * np.pi)
    log_priors.append(log_wall(u["sigma"]))
    return sum(log_priors) - 0.5 * jnp.sum(standard**2) - log_norm


def log_likelihood(
    mean: Float[AnyArray, " row"],
    y: Float[AnyArray, " row"],
    measured: Shaped[AnyArray, " row"],
    error: Values,
    shared: SharedError,
) -> Float[Array, ""]:
    """Compute the log likelihood of a table, with effects integrated out.

    Gauss-Hermite quadrature, for each slot around the mode of its z and in units of its
    width (Liu and Pierce 1994).
    """
    new = innovations(mean, y, error, shared)
    if shared.kind is None:
        rows = log_density_of_error(error, new.scale, new.value)
        return jnp.sum(rows * measured)
    blocks = _in_blocks(new, measured, shared)
    centre, width = _effect_modes(blocks, error, shared)
    nodes, node_weights = np.polynomial.hermite.hermgauss(7)
    # Integral of f(z) dz with z = c + sqrt(2) w t is sqrt(2) w sum_k a_k exp(t_k^2)
    # f(z_k): exact where f is normal around c with sd w times a polynomial of degree 13
    # (Liu and Pierce 1994).
    z = centre[None] + jnp.sqrt(2.0) * width[None] * nodes[:, None]  # (node, slot)
    joint = _log_joint_at_nodes(blocks, error, shared, z)
    log_terms = joint + (nodes**2 + np.log(node_weights))[:, None]
    log_step = jnp.log(jnp.sqrt(2.0) * width)
    log_slots = jax.scipy.special.logsumexp(log_terms, axis=0) + log_step
    return jnp.sum(log_slots)


class Blocks(NamedTuple):
    """Standardised `Innovations`, arranged in blocks of rows of one group, and the
    count of each row; each of shape (member, block), or (1, 1) if equal for all rows.
    """

    value: Float[Array, "member block"]
    share: Float[Array, "#member #block"]
    log_scale: Float[Array, "#member #block"]
    counts: Float[Array, "member block"]


def _in_blocks(
    new: Innovations, measured: Shaped[AnyArray, " row"], shared: SharedError
) -> Blocks:
    """Arrange innovations in the blocks of `Group`."""
    # In blocks, a sum over a group is a sum along an axis, which XLA fuses with the
    # computation of its terms. A product with a one-hot matrix of groups would write
    # all terms to memory first, and took half of a posterior's time.
    members = jnp.asarray(shared.group.members)
    value, share, scale = new

    def placed(part: Float[AnyArray, "*row"]) -> Float[Array, "#member #block"]:
        at_rows = jnp.asarray(part)
        return at_rows[members] if at_rows.ndim else at_rows[None, None]

    counts = jnp.where(members < 0, 0.0, jnp.asarray(measured, float)[members])
    return Blocks(
        placed(value / scale), placed(share / scale), placed(jnp.log(scale)), counts
    )


def _of_slot(shared: SharedError) -> Float[Array, "slot block"]:
    """Make the one-hot matrix of the slot of each block. A product with it gives each
    block the value of its slot. (Indexing would stop XLA from vectorising.)
    """
    group = shared.group
    return jax.nn.one_hot(group.block, len(group.slots)).T


def _effect_modes(
    blocks: Blocks, error: Values, shared: SharedError
) -> tuple[Float[Array, " slot"], Float[Array, " slot"]]:
    """Find the mode and width of each slot's z by reweighted least squares."""
    value, _, _, counts = blocks
    share = error[f"tau_{shared.kind}"] * blocks.share
    dof = ERROR.dof_min + error["dof_above_2"]
    of_slot = _of_slot(shared)
    z, precision = jnp.zeros(len(shared.group.slots)), jnp.ones(())
    weight = counts
    # EM for Student-t noise (Lange, Little and Taylor 1989). A few steps are enough,
    # because the quadrature is accurate if its centre is near the mode. No gradient
    # goes through centre and width, because the integral does not depend on them.
    for _ in range(4):
        # given the weights both are those of a normal regression on z ~ Normal(0, 1)
        precision = 1 + of_slot @ jnp.sum(weight * share**2, axis=0)
        z = of_slot @ jnp.sum(weight * share * value, axis=0) / precision
        residual = value - share * (z @ of_slot)[None]
        # the weights with which a Student-t is a mixture of normals
        weight = counts * (dof + 1) / (dof + residual**2)
    return jax.lax.stop_gradient((z, 1 / jnp.sqrt(precision)))


def _log_joint(
    blocks: Blocks, error: Values, shared: SharedError, z: Float[Array, "k slot"]
) -> Float[Array, "k slot"]:
    """Compute the joint log density of z and its group's rows, shape (k, slot)."""
    of_slot = _of_slot(shared)
    effect = error[f"tau_{shared.kind}"] * (z @ of_slot)
    residual = blocks.value[None] - blocks.share[None] * effect[:, None]
    standard = log_density_of_error(error, jnp.ones(()), residual)
    log_rows = (standard - blocks.log_scale[None]) * blocks.counts[None]
    rows = jnp.sum(log_rows, axis=1)
    return rows @ of_slot.T + jax.scipy.stats.norm.logpdf(z)


def _log_joint_at_nodes(
    blocks: Blocks,
    error: Values,
    shared: SharedError,
    z: Float[Array, "node slot"],
    many_rows: int = 4_000,
) -> Float[Array, "node slot"]:
    """Compute `_log_joint`, for many rows one node at a time. For all nodes at once,
    the memory of the gradient would not fit into a core's cache (a few hundred
    kilobytes).
    """
    if blocks.value.size <= many_rows:
        return _log_joint(blocks, error, shared, z)

    # the backward pass recomputes a node's intermediate values instead of storing them
    @jax.checkpoint
    def at_node(z: Float[Array, " slot"]) -> Float[Array, " slot"]:
        return _log_joint(blocks, error, shared, z[None])[0]

    return jax.lax.map(at_node, z)


def draw_effects(
    key: Array,
    mean: Float[AnyArray, " row"],
    y: Float[AnyArray, " row"],
    measured: Shaped[AnyArray, " row"],
    error: Values,
    shared: SharedError,
    *,
    candidates: int = 64,
    few_candidates: int = 16,
    nearly_normal: int = 200,
) -> Float[Array, " slot"]:
    """Draw each slot's effect on log loss given everything else, shape (slot,), by
    importance resampling of a number of candidates.

    If a group has so many rows that its effect is ``nearly_normal``, few candidates
    suffice: with 16 the variance of the weights is .06, and draws of a normal effect
    are .4% too wide (with 64: .1%).
    """
    new = innovations(mean, y, error, shared)
    blocks = _in_blocks(new, measured, shared)
    centre, width = _effect_modes(blocks, error, shared)
    propose, mix, choose = jax.random.split(key, 3)
    rows_of_group = len(blocks.value)
    count = candidates if rows_of_group < nearly_normal else few_candidates
    shape = (count, len(shared.group.slots))
    # A Student-t with four degrees of freedom is a normal divided by
    # sqrt(chi-square_4 / 4), and chi-square_4 / 4 is half the sum of two exponentials.
    # (JAX draws a gamma by rejection, which would take most of a preview's time.)
    mixed = jax.random.exponential(mix, (2, *shape)).sum(axis=0) / 2
    spread = jax.random.normal(propose, shape) / jnp.sqrt(mixed)
    # candidates around the mode, with heavier tails than z
    z = centre[None] + width[None] * spread
    joint = _log_joint(blocks, error, shared, z)
    log_weight = joint - jax.scipy.stats.t.logpdf(spread, 4.0)
    # choose one candidate by its weight (sampling importance resampling: Rubin 1987)
    index = jax.random.categorical(choose, log_weight, axis=0)
    chosen = jnp.take_along_axis(z, index[None], axis=0)[0]
    return error[f"tau_{shared.kind}"] * chosen


def pointwise(
    mean: Float[AnyArray, " row"],
    y: Float[AnyArray, " row"],
    effect: Float[AnyArray, " row"] | Float[AnyArray, ""] | float,
    error: Values,
    shared: SharedError,
) -> Float[Array, " row"]:
    """Compute each row's log density given effects and the run's row before."""
    new = innovations(mean, y, error, shared)
    residual = new.value - new.share * effect
    return log_density_of_error(error, new.scale, residual)
