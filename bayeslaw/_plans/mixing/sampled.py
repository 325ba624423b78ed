"""Compute losses of several evaluation sets at one mixture, over paired draws, with
their slopes in log tokens and in each share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._base.errors import PlanError
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import generator
from bayeslaw._law.columns import SHARE
from bayeslaw._plans.sampled import resample
from bayeslaw._posteriors.draws import Draws, take_draws
from bayeslaw._posteriors.posterior import Draw, Posterior

if TYPE_CHECKING:
    from jaxtyping import Float

RUNS = 32  # of one call


@dataclass(frozen=True, eq=False)
class SampledLosses:
    """Draws of log losses by evaluation set.

    Parameters
    ----------
    sets
        Names of the evaluation sets.
    domains
        Domains that are mixed.
    parts
        The draws of each set, by formula.
    noise
        Error of a new run on log loss, shape (set, draw); zeros for the law's mean.
    fixed
        Covariates that the plan does not choose, of each set.
    """

    sets: tuple[str, ...]
    domains: tuple[str, ...]
    parts: tuple[tuple[Draws, ...], ...]
    noise: Float[np.ndarray, "set draw"]
    fixed: tuple[Mapping[str, float], ...]

    @classmethod
    def of(
        cls,
        posteriors: Mapping[str, Posterior],
        domains: Sequence[str],
        fixed: Sequence[Mapping[str, float]],
        draws: int,
        seed: int,
        new_run: bool,
    ) -> SampledLosses:
        """Pair draws of the posteriors, each in its own random order, and refuse laws
        that read a column that is neither planned nor given.
        """
        parts, noise, chosen = [], [], {"D", *(f"{SHARE}{name}" for name in domains)}
        for i, (name, posterior) in enumerate(posteriors.items()):
            pieces = posterior.pieces()
            index, of_set = resample(pieces, draws, generator(seed, i), new_run)
            parts.append(tuple(take_draws(pieces, index)))
            noise.append(of_set)
            for part in parts[-1]:
                missing = set(part.piece.covariates) - chosen - set(fixed[i])
                if missing:
                    column = min(missing, key=part.piece.covariates.index)
                    raise PlanError(
                        f"the law of {name} reads {column!r}: "
                        f"give covariates={{{column!r}: ...}}, or by set "
                        f"{{{column!r}: {{{name!r}: ...}}}}"
                    )
        names = tuple(posteriors)
        return cls(names, tuple(domains), tuple(parts), np.stack(noise), tuple(fixed))

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
        for i, parts in enumerate(self.parts):
            fixed = {name: np.float64(value) for name, value in self.fixed[i].items()}
            for part in parts:
                values, along = _with_slopes(
                    part.piece.log_loss,
                    columns,
                    dict(part.piece.values),
                    fixed,
                    point if shares.ndim == 1 else point[:, part.rows],
                )
                losses[i, part.rows] += np.asarray(values)
                slopes[i, part.rows] = np.asarray(along).T
        return losses, slopes

    def over(
        self,
        log_tokens: Float[np.ndarray, " run"],
        shares: Float[np.ndarray, "run domain"],
    ) -> Float[np.ndarray, "set draw run"]:
        """Compute log losses at runs, each with its own budget and mixture, in calls of
        one size, so that one program serves all.
        """
        names = ("D", *(f"{SHARE}{name}" for name in self.domains))
        columns = dict(zip(names, [np.exp(log_tokens), *shares.T], strict=True))
        size = len(log_tokens)
        losses = np.repeat(self.noise[..., None], size, axis=2)
        for first in range(0, size, RUNS):
            some = np.minimum(np.arange(first, first + RUNS), size - 1)
            runs = {name: column[some] for name, column in columns.items()}
            here = losses[..., first : first + RUNS]
            for i, parts in enumerate(self.parts):
                held = {
                    name: np.full(RUNS, value) for name, value in self.fixed[i].items()
                }
                for part in parts:
                    read = {name: (runs | held)[name] for name in part.piece.covariates}
                    here[i, part.rows] += part.piece.at(read)[:, : here.shape[2]]
        return losses


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
