"""Chance constraints over draws: log losses on a grid of replay and tokens, in compiled
programs, and how far each draw is below its limit.

References
----------
Charnes and Cooper 1959 state chance constraints. Replacing the probability by the share
of draws is the sample approximation of Luedtke and Ahmed 2008 (SIAM J. Optim. 19, 674).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from bayeslaw._base.programs import OFTEN, compiled
from bayeslaw._plans.constraint import UNITS, Constraint, UnitName
from bayeslaw._posteriors.accuracy import AccuracyLink
from bayeslaw._posteriors.draws import Draws
from bayeslaw._posteriors.posterior import along_tokens

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# choices, tokens and draws of one call: equal shapes are compiled once, and the draws
# of a call fit the processor's cache
CHOICES, TOKENS, DRAWS = 16, 65, 1000


@dataclass(frozen=True, eq=False)
class Part(Draws):
    """Draws of one formula among a constraint's draws, and the covariates ``fixed`` that
    a plan does not choose, each of shape (row,).
    """

    fixed: dict[str, Float[np.ndarray, " row"]]

    def take(self, index: Int[np.ndarray, " taken"], draws: int) -> Part:
        """Take the part of the draws ``index`` of all ``draws``; repeats are allowed."""
        place = np.full(draws, -1)  # position of each draw in this part; -1: elsewhere
        place[self.rows] = np.arange(len(self.rows))
        places = place[index]
        rows = np.flatnonzero(places >= 0)
        fixed = {name: column[places[rows]] for name, column in self.fixed.items()}
        return Part(self.piece.take(places[rows]), rows, fixed)


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint with draws of the loss that it limits."""

    constraint: Constraint
    parts: tuple[Part, ...]  # the draws, by formula
    # loss before adaptation in nats per token; 1 if the unit needs no baseline
    baseline: Float[np.ndarray, " draw"]
    # of a new run as long as the longest training run, on log loss; 0 for the law's mean
    noise: Float[np.ndarray, " draw"]
    span: tuple[float, float]  # log tokens between which plans are sought
    # what learned effects change by the root of each e-fold of tokens beyond those given
    changes: tuple[tuple[float, Float[np.ndarray, " draw"]], ...] = ()
    link: AccuracyLink | None = None  # for a limit on an evaluation's errors
    # for a limit on a weighted mean: its domains, with paired draws, and their weights
    members: tuple[tuple[SampledConstraint, Float[np.ndarray, " draw"]], ...] = ()

    @classmethod
    def of_mean(
        cls, constraint: Constraint, domains: Mapping[str, SampledConstraint]
    ) -> SampledConstraint:
        """Constrain a weighted mean of the losses of domains, or of their rises.

        A mean of relative rises is a mean of losses, each weighed by the inverse of its
        baseline, and all by the mean baseline, so that the mean is in nats, too.
        """
        of = [(domains[name], share) for name, share in constraint.weights]
        mean = np.sum([share * domain.baseline for domain, share in of], axis=0)
        if constraint.unit == "relative":
            of = [(domain, share * mean / domain.baseline) for domain, share in of]
        ones, span = np.ones(len(mean)), of[0][0].span
        members = tuple((domain, share * ones) for domain, share in of)
        return cls(constraint, (), mean, 0 * ones, span, members=members)

    @property
    def name(self) -> str:
        return self.constraint.name

    @property
    def limit(self) -> float:
        return self.constraint.limit

    @property
    def unit(self) -> UnitName:
        return self.constraint.unit

    @property
    def draws(self) -> int:
        return len(self.noise)

    @cached_property
    def log_limit(self) -> Float[np.ndarray, " draw"]:
        if self.link is None:
            most = UNITS[self.unit].most_loss(self.limit, self.baseline)
        else:
            most = self.link.loss_at(1 - self.limit)
        with np.errstate(divide="ignore"):  # for an accuracy that no loss reaches
            return np.log(np.broadcast_to(most, self.draws))

    @property
    def size(self) -> float:
        """Size of the loss itself at the limit, in the unit of the limit."""
        return UNITS[self.unit].size(self.limit, float(self.baseline.mean()))

    def outcome(
        self, log_loss: Float[np.ndarray, " draw *point"]
    ) -> Float[np.ndarray, " draw *point"]:
        """Convert log losses to the limited quantity: a loss, or forgetting."""
        if self.link is not None:
            return 1 - self.link.accuracy(np.exp(log_loss))
        baseline = along_draws(self.baseline, log_loss.ndim)
        return UNITS[self.unit].outcome(np.exp(log_loss), baseline)

    def below(
        self, log_loss: Float[np.ndarray, " draw *point"]
    ) -> Float[np.ndarray, " draw *point"]:
        """Compute how far each draw is below its limit; NaN keeps none."""
        below = along_draws(self.log_limit, log_loss.ndim) - log_loss
        return np.fmax(below, -np.inf, out=below)

    def take(self, index: Int[np.ndarray, " taken"]) -> SampledConstraint:
        """Take the same constraint over the draws ``index``; repeats are allowed."""
        parts = [part.take(index, self.draws) for part in self.parts]
        return replace(
            self,
            parts=tuple(part for part in parts if len(part.rows)),
            baseline=self.baseline[index],
            noise=self.noise[index],
            changes=tuple((tokens, change[index]) for tokens, change in self.changes),
            link=None if self.link is None else self.link.take(index),
            members=tuple((m.take(index), w[index]) for m, w in self.members),
        )

    def with_limit(self, limit: float) -> SampledConstraint:
        return replace(self, constraint=replace(self.constraint, limit=limit))

    @property
    def of_law(self) -> SampledConstraint:
        members = tuple((member.of_law, w) for member, w in self.members)
        return replace(self, noise=np.zeros(self.draws), changes=(), members=members)

    # -- losses ------------------------------------------------------------------------

    # ``levers``: replay, or a mapping of the columns that a plan chooses

    def log_losses(self, log_tokens: float, levers: Any) -> Float[np.ndarray, " draw"]:
        """Compute the log loss of each draw, with its noise; levers may be each's own."""
        columns = levers if isinstance(levers, Mapping) else {"replay": levers}
        chosen = {name: np.asarray(value)[None] for name, value in columns.items()}
        return self.log_losses_on_grid(np.array([log_tokens]), chosen)[:, 0, 0]

    def log_losses_on_grid(
        self, log_tokens: Float[np.ndarray, " tokens"], levers: Any
    ) -> Float[np.ndarray, "draw choice tokens"]:
        """Compute log losses, in calls of one shape, at several tokens and several choices
        of the levers, each of shape (choice,) or of each draw's own, (choice, draw).
        """
        chosen = levers if isinstance(levers, Mapping) else {"replay": levers}
        if self.members:
            losses: Any = 0.0
            for member, weights in self.members:
                log_losses = member.log_losses_on_grid(log_tokens, chosen)
                with np.errstate(
                    over="ignore"
                ):  # a loss may be infinite without tokens
                    losses += weights[:, None, None] * np.exp(log_losses)
            return np.log(losses)
        first = next(iter(chosen.values()))
        # few choices are filled up to a power of two
        count = min(CHOICES, 1 << (len(first) - 1).bit_length())
        losses = np.zeros((len(first), len(log_tokens), self.draws))
        for log_loss, values, fixed, rows in self._batches:
            draws = _filled(rows, min(self.draws, DRAWS))
            for i in range(0, len(first), count):
                some = {
                    name: _filled(column[i : i + count], count)
                    for name, column in chosen.items()
                }
                if first.ndim > 1:
                    some = {name: column[:, draws] for name, column in some.items()}
                for j in range(0, len(log_tokens), TOKENS):
                    tokens = log_tokens[j : j + TOKENS]
                    block = losses_on_grid(
                        log_loss,
                        values,
                        fixed,
                        some,
                        _filled(tokens, TOKENS),
                        len(tokens),
                    )
                    place = losses[i : i + count, j : j + TOKENS]
                    place[..., rows] = np.asarray(block)[
                        : len(place), : len(tokens), : len(rows)
                    ]
        # without tokens the noise is that of the longest training run
        tokens = np.where(np.isfinite(log_tokens), np.exp(log_tokens), np.inf)
        noise = np.broadcast_to(self.noise, losses.shape[1:])
        for known, change in self.changes:
            beyond = np.log(np.maximum(np.exp(log_tokens) / known, 1.0))
            noise = noise + np.sqrt(beyond)[:, None] * change
        for part in self.parts:
            # of shape (choice, tokens, row), or what is broadcast to it
            run = {"D": tokens[:, None], **part.fixed}
            for name, lever in chosen.items():
                of_part = lever[:, part.rows] if lever.ndim > 1 else lever[:, None]
                run[name] = of_part[:, None]
            size = part.piece.error_size(run)
            losses[..., part.rows] += size * noise[:, part.rows]
        return losses.transpose(2, 0, 1)

    @cached_property
    def _batches(self) -> list[tuple[Callable, dict, dict, Int[np.ndarray, " row"]]]:
        """Batches of draws of one size: formula, draws and covariates, filled up with the
        last draw, and the batch's rows among all draws.
        """
        size, batches = min(self.draws, DRAWS), []
        for part in self.parts:
            for first in range(0, len(part.rows), size):
                rows = part.rows[first : first + size]
                places = _filled(np.arange(first, first + len(rows)), size)
                values, fixed = (
                    jax.device_put(
                        {name: np.asarray(x, float)[places] for name, x in of.items()}
                    )
                    for of in (part.piece.values, part.fixed)
                )
                batches.append((part.piece.log_loss, values, fixed, rows))
        return batches


def _filled(values: Any, size: int) -> Any:
    """Repeat the last of the values up to ``size``."""
    return values[np.minimum(np.arange(size), len(values) - 1)]


@compiled(static_argnums=0, level=OFTEN)
def losses_on_grid(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: Mapping[str, Float[jax.Array, " draw"]],
    chosen: Mapping[str, Float[jax.Array, " choice *own"]],
    log_tokens: Float[jax.Array, " tokens"],
    count: Int[jax.Array, ""],
) -> Float[jax.Array, "choice tokens draw"]:
    """Compute the log loss of each draw at the first ``count`` tokens; later ones are 0.
    Columns are ``chosen`` for all draws, or for each; terms of what all draws share are
    computed once for all draws.
    """
    draws = len(jax.tree.leaves(values)[0])

    def at_choice(choice: Mapping[str, jax.Array]) -> Float[jax.Array, "tokens draw"]:
        columns = {**fixed, **choice}
        axes = {name: 0 if column.ndim else None for name, column in columns.items()}
        of_draw = partial(along_tokens, log_loss)
        by_draw = jax.vmap(of_draw, (0, axes))(values, columns)

        # tokens by tokens, so that all draws at one of them fit the processor's cache
        def with_tokens(place: jax.Array, losses: jax.Array) -> jax.Array:
            tokens = jnp.exp(log_tokens[place])
            at_tokens = jax.vmap(lambda loss_at: loss_at(tokens))(by_draw)
            return losses.at[place].set(at_tokens)

        none = jnp.zeros((len(log_tokens), draws))
        return jax.lax.fori_loop(0, count, with_tokens, none)

    return jax.lax.map(at_choice, chosen)


def along_draws(
    values: Float[np.ndarray, " draw"], axes: int
) -> Float[np.ndarray, " draw *one"]:
    return values.reshape(-1, *(1,) * (axes - 1))


def draws_needed(share: float, draws: int) -> int:
    # .9 of 10 draws is 9, even if the product rounds up
    return int(np.ceil(share * draws - 1e-9))
