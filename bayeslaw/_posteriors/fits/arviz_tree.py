"""Convert a fit to ArviZ data: draws of a law and its errors become a DataTree with
everything that is kept about them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference import coordinates
from bayeslaw._inference.likelihood import (
    ERROR,
    constrain_error,
    draw_effects,
    log_prior,
    pointwise,
)
from bayeslaw._inference.noise import RunNoise
from bayeslaw._inference.table import Padded, at_once, labels
from bayeslaw._law.law import Law, log_loss
from bayeslaw._posteriors.fits import artifact
from bayeslaw._posteriors.fits.artifact import EFFECTS

if TYPE_CHECKING:
    from jaxtyping import Float
    from xarray import DataTree


@compiled(static_argnums=(0, 1))
def _derived(law: Law, batch: int, u, seed, table: Padded):
    """Compute what the artifact keeps about each draw, from its unconstrained sites."""
    shared = table.shared

    def one(draw):
        u, key = draw
        values = coordinates.constrain(law, u)
        error = constrain_error(u, shared)
        effects = {}
        if shared.kind is not None:
            mean = log_loss(law, table.covariates, values)
            name = EFFECTS[shared.kind]
            effects[name] = draw_effects(
                key, mean, table.y, table.weight, error, shared
            )
        # the sampler's scales of errors may be negative
        scalars = {name: jnp.abs(v) for name, v in error.items()}
        scalars["dof"] = ERROR.dof_min + error["dof_above_2"]
        return {
            "posterior": law.to_paper(values) | values | scalars | effects,
            "log_prior": log_prior(law, values, error, shared),
        }

    draws = len(next(iter(u.values())))
    keys = jax.random.split(jax.random.PRNGKey(seed), draws)
    return jax.lax.map(one, (u, keys), batch_size=batch)


# for thinned draws the faster program would gain less than its compilation costs
@compiled(static_argnums=(0, 1), many=60_000)
def _at_runs(law: Law, batch: int, u, effects, table: Padded):
    """Compute the mean and log likelihood of every row in float32, from sites of draws
    and the effects of their groups.
    """
    shared = table.shared

    def one(draw):
        u, effects = draw
        values = coordinates.constrain(law, u)
        error = constrain_error(u, shared)
        mean = log_loss(law, table.covariates, values)
        effect = jnp.zeros(())
        if effects is not None:
            effect = effects[shared.group.code]
        likelihood = pointwise(mean, table.y, effect, error, shared)
        centre = mean + effect
        return centre.astype(jnp.float32), likelihood.astype(jnp.float32)

    return jax.lax.map(one, (u, effects), batch_size=batch)


def to_arviz(
    law: Law, runs: pd.DataFrame, table: Padded, chains, seed: int, attrs: dict
) -> DataTree:
    """Build the tree of a fit. ``chains`` has the draws' unconstrained sites and the
    sampler's statistics, each of shape (chain, draw).
    """
    shape, n = chains.stats["n_steps"].shape, len(runs)
    draws, batch = shape[0] * shape[1], at_once(table)
    u = {name: v.reshape(-1) for name, v in chains.sites.items()}
    derived = jax.tree.map(np.asarray, _derived(law, batch, u, seed, table))
    posterior = derived["posterior"]

    # the pointwise arrays (float32) keep at most 5e6 values, draws x runs
    thin = max(1, int(np.ceil(draws * n / 5e6)))
    kept = np.arange(draws).reshape(shape)[:, ::thin]
    at = kept.ravel()
    effects = posterior.get(EFFECTS.get(table.shared.kind or "", ""))
    mean, likelihood = _at_runs(
        law,
        batch,
        {name: v[at] for name, v in u.items()},
        None if effects is None else effects[at],
        table,
    )
    run_noise = RunNoise.of({name: v[at] for name, v in posterior.items()})
    new_errors = run_noise.draw(n, generator(seed, Stream.REPLICATED))
    if table.shared.row_sd is not None:
        new_errors *= run_noise.size_with(
            np.ones(n), np.asarray(table.shared.row_sd)[:n]
        )
    predictive = np.asarray(mean)[:, :n] + new_errors
    pointwise_shape = (*kept.shape, n)
    groups = {
        "posterior": _by_chain(posterior, shape),
        "sample_stats": dict(chains.stats),
        "log_prior": _by_chain(derived["log_prior"], shape),
        "log_likelihood": {
            "log_loss": np.asarray(likelihood)[:, :n].reshape(pointwise_shape)
        },
        "posterior_predictive": {
            "log_loss": predictive.astype(np.float32).reshape(pointwise_shape)
        },
        "observed_data": {"log_loss": table.y[:n]},
    }
    dims = {"log_loss": ["run_row"]}
    coords: dict[str, Any] = {"run_row": runs.index.to_numpy()}
    kind = table.shared.kind
    if kind is not None:
        name, label = EFFECTS[kind], f"{kind}_label"
        row_labels = labels(kind, runs)
        assert row_labels is not None
        # sorted, which is the order of `SharedError`'s codes
        levels = np.unique(row_labels.to_numpy(str))
        posterior_group = groups["posterior"]
        posterior_group[name] = posterior_group[name][..., : len(levels)]
        dims[name] = [label]
        coords[label] = np.asarray(levels, object)
    tree = artifact.tree_of(groups, dims, coords)
    tree["constant_data"] = artifact.constant_data(runs)
    tree.attrs.update(attrs)
    return tree


def _by_chain(
    draws: dict[str, Float[np.ndarray, "sample ..."]], shape: tuple[int, int]
) -> dict[str, Float[np.ndarray, "chain draw ..."]]:
    """Reshape draws from (chain x draw, ...) to (chain, draw, ...)."""
    return {name: v.reshape(*shape, *v.shape[1:]) for name, v in draws.items()}
