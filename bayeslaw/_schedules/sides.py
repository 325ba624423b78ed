"""Evaluate the losses of source and target along a schedule, for every draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.draws import Draws, pair_draws, take_draws
from bayeslaw._posteriors.posterior import Piece, Posterior, over_draws
from bayeslaw._schedules.phases import finite_number
from bayeslaw._tables.rates.areas import COLUMNS

if TYPE_CHECKING:
    from jaxtyping import Float


class WeightedDomain(NamedTuple):
    """Hold one domain's posterior with its draws in paired order, and the weight of its
    loss. ``parts``: the draws of each formula, and the index of each draw's pair, shape
    (draw,); ``pairs``: number of pairs.
    """

    name: str
    weight: float
    parts: tuple[Draws, ...]
    pairs: int

    def loss(
        self, covariates: Mapping[str, Float[np.ndarray, "*point"] | float]
    ) -> Float[np.ndarray, "draw point"]:
        """Compute the loss in nats per token, shape (draw, point), at covariates of
        shape (point,) or (draw, point).
        """
        columns = {
            name: np.atleast_1d(np.asarray(values, float))
            for name, values in covariates.items()
        }
        by_draw = any(values.ndim == 2 for values in columns.values())
        points = max(values.shape[-1] for values in columns.values())
        losses: Float[np.ndarray, "draw point"] | None = None
        for part in self.parts:
            piece, rows = part.piece, part.rows
            self._refuse_missing(piece, columns)
            inputs = {c: columns[c] for c in piece.covariates}
            if by_draw:
                shape = (self.pairs, points)
                inputs = {c: np.broadcast_to(v, shape)[rows] for c, v in inputs.items()}
                log_loss = partial(_over_draws_and_rows, piece.log_loss)
            else:
                of_one_shape = np.broadcast_arrays(*inputs.values())
                inputs = dict(zip(inputs, of_one_shape, strict=True))
                log_loss = over_draws(piece.log_loss)
            of_piece = np.exp(np.asarray(log_loss(dict(piece.values), inputs)))
            if losses is None:
                losses = np.empty((self.pairs, of_piece.shape[1]))
            losses[rows] = of_piece
        assert losses is not None
        if not np.isfinite(losses).all():
            raise PlanError(
                f"the law of {self.name} has no finite loss at some of the steps or "
                "values evaluated"
            )
        return losses

    def _refuse_missing(self, piece: Piece, columns: Mapping[str, Any]) -> None:
        """Say how to give a column that a formula reads."""
        missing = [c for c in piece.covariates if c not in columns]
        if missing and missing[0] in COLUMNS:
            raise PlanError(
                f"the law of {self.name} reads {missing[0]}, but the rates of "
                "pre-training are not given"
            )
        if missing:
            raise PlanError(
                f"the law of {self.name} reads {missing[0]!r}: give Phases(..., "
                f"covariates={{{missing[0]!r}: ...}})"
            )


@compiled(static_argnums=0)
def _over_draws_and_rows(log_loss: Callable, draws, covariates):
    """Map over draws like `over_draws`, with covariates per draw, shape (draw, point)."""
    return jax.vmap(log_loss, in_axes=(0, 0))(draws, covariates)


def sides_of(
    source: Posterior | None,
    target: Posterior | None,
    source_weight: float,
    seed: int,
    reads: tuple[str, ...],
) -> tuple[WeightedDomain, ...]:
    """Pair the independent draws of both domains at random, and set the weights of eq.
    5.

    ``reads``: columns that the question is about; at least one law must read one of
    them.
    """
    runtime.start()
    if not 0 <= finite_number("source_weight", source_weight) <= 1:
        raise PlanError(
            "source_weight must be a share in [0, 1] (the target has the rest), got "
            f"{source_weight!r}"
        )
    # Wang 2025, eq. 5: lambda_1 of the source's loss and lambda_2 = 1 - lambda_1 of the
    # target's
    weights = {"source": source_weight, "target": 1 - source_weight}
    pieces: dict[str, tuple[Piece, ...]] = {}
    for name, posterior in {"source": source, "target": target}.items():
        if posterior is not None:
            pieces[name] = tuple(as_posterior(posterior).pieces())
        elif weights[name]:
            raise PlanError(
                f"the {name} loss has weight {weights[name]:g}, but no posterior of it "
                "is given"
            )
    counts = [sum(piece.draws for piece in of_domain) for of_domain in pieces.values()]
    orders = pair_draws(counts, generator(seed, Stream.PAIRS))
    sides = []
    for (name, of_domain), order in zip(pieces.items(), orders, strict=True):
        parts = tuple(take_draws(of_domain, order))
        sides.append(WeightedDomain(name, weights[name], parts, len(order)))
    covariates = {c for piece in chain(*pieces.values()) for c in piece.covariates}
    if not covariates & set(reads):
        raise PlanError(
            f"no law here reads {' or '.join(reads)}, on which the answer depends"
        )
    return tuple(sides)


def weighted_loss(
    sides: tuple[WeightedDomain, ...],
    covariates: Mapping[str, Float[np.ndarray, "*point"] | float],
) -> Float[np.ndarray, "draw point"]:
    """Compute the weighted loss of eq. 5, shape (draw, point)."""
    losses = [side.weight * side.loss(covariates) for side in sides if side.weight]
    return sum(losses, np.zeros((1, 1)))


def name_of_loss(sides: tuple[WeightedDomain, ...]) -> str:
    """Name the weighted loss, in words."""
    for side in sides:
        if side.weight == 1:
            return f"the {side.name} loss"
    weighted = [f"{side.weight:.3g} {side.name}" for side in sides]
    return f"the loss weighted {' and '.join(weighted)}"
