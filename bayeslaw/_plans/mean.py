"""Build a constraint on the weighted mean of several domains' losses, or of their
rises.

For one draw the mean is a formula that is built from the domains' formulas. So its
crossings are found like those of any law.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.sampled import Part, SampledConstraint
from bayeslaw._posteriors.posterior import along_tokens, without_prefix

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True)
class MeanLogLoss:
    """Log of the weighted mean of several domains' losses, for one draw.

    The record is frozen, so equal records share a compiled program.

    Parameters
    ----------
    formulas
        By domain: the log losses, as in `Piece`; each draw uses one of them.
    """

    formulas: tuple[tuple[str, tuple[Callable, ...]], ...]

    def __call__(
        self, draw: Mapping[str, Any], covariates: Mapping[str, Any]
    ) -> jax.Array:
        """Evaluate the log of the mean at one run, shape (run,) = (1,)."""
        tokens = covariates["D"][0]
        constants = {name: v[0] for name, v in covariates.items() if name != "D"}
        return self.along_tokens(draw, constants)(tokens)[None]

    def along_tokens(
        self, draw: Mapping[str, Any], covariates: Mapping[str, Float[Any, ""]]
    ) -> Callable[[Float[jax.Array, ""]], Float[jax.Array, ""]]:
        """Return the log of the mean as a function of one run's tokens, shape ()."""
        domains = []
        for name, log_losses in self.formulas:
            columns = without_prefix(f"{name}:", covariates) | {
                "replay": covariates["replay"]
            }
            losses_at = [
                along_tokens(log_loss, without_prefix(f"{name}:{k}:", draw), columns)
                for k, log_loss in enumerate(log_losses)
            ]
            draws = without_prefix(f"{name}:", draw)
            domains.append((losses_at, draws["which"], draws["noise"], draws["weight"]))
        return Partial(_mean_at, domains)


def _mean_at(
    domains: Sequence[tuple], tokens: Float[jax.Array, ""]
) -> Float[jax.Array, ""]:
    """Compute the log of the weighted mean of the domains' losses at a number of
    tokens, shape ().
    """
    total = jnp.zeros(())
    for losses_at, which, noise, weight in domains:
        log_losses = jnp.stack([loss_at(tokens) for loss_at in losses_at])
        log_loss = log_losses[which.astype(int)]
        total = total + weight * jnp.exp(log_loss + noise)
    return jnp.log(total)


def mean_constraint(
    constraint: Constraint, domains: Mapping[str, SampledConstraint]
) -> SampledConstraint:
    """Make the constraint on a mean of domains with paired draws.

    A mean of relative rises is a mean of losses, each weighed by the inverse of its
    baseline, and all by the mean baseline, so that the mean is in nats, too.

    Parameters
    ----------
    constraint
        The limit, with the weight of each domain.
    domains
        The sampled constraints of the domains, by name.
    """
    members = {name: domains[name] for name, _ in constraint.weights}
    first = next(iter(members.values()))
    weights = {name: np.full(first.draws, w) for name, w in constraint.weights}
    if constraint.unit == "relative":
        whole = sum(w * members[name].baseline for name, w in weights.items())
        weights = {
            name: w * whole / members[name].baseline for name, w in weights.items()
        }
    baselines = [w * members[name].baseline for name, w in weights.items()]
    values: dict[str, np.ndarray] = {}
    fixed: dict[str, np.ndarray] = {}
    formulas = []
    for name, domain in members.items():
        which = np.zeros(domain.draws)
        for k, part in enumerate(domain.parts):
            which[part.rows] = k
            place = np.zeros(
                domain.draws, int
            )  # draws of other formulas keep any value
            place[part.rows] = np.arange(len(part.rows))
            values |= {
                f"{name}:{k}:{n}": leaf[place] for n, leaf in part.values.items()
            }
            for column, leaf in part.fixed.items():
                full = fixed.setdefault(f"{name}:{column}", leaf[place])
                full[part.rows] = leaf
        draws = {"which": which, "noise": domain.noise, "weight": weights[name]}
        values |= {f"{name}:{n}": leaf for n, leaf in draws.items()}
        formulas.append((name, tuple(part.log_loss for part in domain.parts)))
    rows = np.arange(first.draws)
    part = Part(MeanLogLoss(tuple(formulas)), values, fixed, rows)
    return SampledConstraint(
        constraint,
        (part,),
        baseline=np.sum(baselines, axis=0),
        noise=np.zeros(first.draws),
        span=first.span,
    )
