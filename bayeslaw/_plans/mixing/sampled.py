"""Compute losses of several evaluation sets at one mixture, over paired draws, with
their slopes in log tokens and in each share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._base.errors import PlanError
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import generator
from bayeslaw._law.columns import SHARE
from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.sampled import Part, SampledConstraint, resample
from bayeslaw._posteriors.draws import take_draws
from bayeslaw._posteriors.posterior import Draw, Posterior

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class SampledLosses:
    """Draws of log losses by evaluation set, which have the noise of a new run.

    Parameters
    ----------
    sets
        Draws of each evaluation set by its name, paired across sets.
    domains
        Domains that are mixed.
    """

    sets: Mapping[str, SampledConstraint]
    domains: tuple[str, ...]

    @classmethod
    def of(
        cls,
        posteriors: Mapping[str, Posterior],
        domains: Sequence[str],
        columns: Mapping[str, Mapping[str, float]],
        draws: int,
        seed: int,
        new_run: bool,
    ) -> SampledLosses:
        """Pair draws of the posteriors, each in its own random order, and refuse laws
        that read a column that is neither planned nor given.

        ``columns``: covariates that the plan does not choose, of each set.
        """
        sets, chosen = {}, {"D", *(f"{SHARE}{name}" for name in domains)}
        for i, (name, posterior) in enumerate(posteriors.items()):
            pieces = posterior.pieces()
            index, noise = resample(pieces, draws, generator(seed, i), new_run)
            parts = []
            for drawn in take_draws(pieces, index):
                read = [c for c in drawn.piece.covariates if c not in chosen]
                for column in read:
                    if column not in columns[name]:
                        raise PlanError(
                            f"the law of {name} reads {column!r}: "
                            f"give covariates={{{column!r}: ...}}, or by set "
                            f"{{{column!r}: {{{name!r}: ...}}}}"
                        )
                fixed = {column: np.array(columns[name][column]) for column in read}
                parts.append(Part(drawn.piece, drawn.rows, fixed))
            # a set has no limit of its own: those on it are on it as a mean
            sets[name] = SampledConstraint(
                Constraint(name, np.inf, "nats"),
                tuple(parts),
                baseline=np.ones(draws),
                noise=noise,
                span=(-np.inf, np.inf),
            )
        return cls(sets, tuple(domains))

    @cached_property
    def noise(self) -> Float[np.ndarray, "set draw"]:
        return np.stack([of_set.noise for of_set in self.sets.values()])

    def at(
        self, log_tokens: float, shares: Float[np.ndarray, "*draw domain"]
    ) -> tuple[Float[np.ndarray, "set draw"], Float[np.ndarray, "set draw slope"]]:
        """Compute log losses at a mixture, or of each draw at its own mixture, and their
        slopes in log tokens and in each share.
        """
        # one type, because another type would compile another program
        budget = np.full(shares.shape[:-1], log_tokens, float)
        point = np.array([budget, *shares.T])
        columns = tuple(f"{SHARE}{name}" for name in self.domains)
        losses = self.noise.copy()
        slopes = np.zeros((*losses.shape, len(point)))
        for i, of_set in enumerate(self.sets.values()):
            for part in of_set.parts:
                values, along = _with_slopes(
                    part.piece.log_loss,
                    columns,
                    dict(part.piece.values),
                    part.fixed,
                    point if shares.ndim == 1 else point[:, part.rows],
                )
                losses[i, part.rows] += np.asarray(values)
                slopes[i, part.rows] = np.asarray(along).T
        return losses, slopes

    def over(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        shares: Float[np.ndarray, "mixture domain"],
    ) -> Float[np.ndarray, "set draw mixture tokens"]:
        """Compute log losses at several mixtures, each at several tokens."""
        names = (f"{SHARE}{name}" for name in self.domains)
        chosen = dict(zip(names, shares.T, strict=True))
        sets = [s.at_choices(log_tokens, chosen) for s in self.sets.values()]
        return np.stack(sets) + self.noise[..., None, None]


# a plan calls it some hundred times, which is cheaper than compiling a faster program
@compiled(static_argnums=(0, 1), many=10_000_000)
def _with_slopes(
    log_loss: Callable,
    columns: tuple[str, ...],
    draws: Draw,
    fixed: Mapping[str, Float[Array, ""]],
    point: Float[Array, " slope *draw"],
) -> tuple[Float[Array, " draw"], Float[Array, "slope draw"]]:
    """Compute the log loss of each draw at log tokens and shares, which all draws share
    or each has for itself, and its slopes.
    """

    def of_draw(point: Any, draw: Draw) -> Any:
        shares = zip(columns, point[1:], strict=True)
        run = {**fixed, "D": jnp.exp(point[0]), **dict(shares)}
        return log_loss(draw, {name: value[None] for name, value in run.items()})[0]

    def of_draws(point: Any) -> Any:
        return jax.vmap(of_draw, (None if point.ndim == 1 else 1, 0))(point, draws)

    # in forward mode, the parts that all draws share (a misfit's functions) are
    # differentiated once
    size = len(point)
    ways = jnp.eye(size).reshape(size, size, *(1,) * (point.ndim - 1))
    directions = jnp.broadcast_to(ways, (size, *point.shape))
    along = partial(jax.jvp, of_draws, (point,))
    return jax.vmap(lambda way: along((way,)), out_axes=(None, 0))(directions)
