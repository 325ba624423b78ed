"""Find the tokens at which each draw's loss crosses its limit, in compiled programs.

Losses are evaluated on a ladder of log tokens; a sign change between neighbouring rungs
brackets a root. A monotone loss needs two rungs. A loss that rises and falls needs 65.
Every fourth of these is evaluated first, the rungs between only if a draw comes near
its limit. Each root is found by Newton's method safeguarded by bisection (rtsafe: Press
et al. 2007, section 9.4), which always converges in its bracket. The method is
implemented here, because one loop with one evaluation of loss and slope compiles faster
than a library's Newton after bisection.

Throughout, ``log_loss`` is `Piece.log_loss` for one draw at a table of runs. ``values``
(draws) and ``fixed`` (covariates that a plan does not choose) have leaves of shape
(draw, ...).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from bayeslaw._base.programs import OFTEN, compiled
from bayeslaw._posteriors.posterior import along_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jaxtyping import Bool, Float, Int, Shaped

    from bayeslaw._base.arrays import AnyArray

RUNGS = 65  # rungs of the ladder where a loss rises and falls
STRIDE = 4  # every fourth rung is evaluated first


class DrawsAtReplay(NamedTuple):
    """Inputs of the draws' log losses along tokens, leaves of shape (draw, ...): draws,
    covariates that a plan does not choose, and a replay for each draw.
    """

    values: Mapping[str, Float[Any, "draw ..."]]
    fixed: Mapping[str, Float[Any, " draw"]]
    replay: Float[Any, " draw"]


def _of_log_tokens(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, " ..."]],
    fixed: Mapping[str, Float[jax.Array, ""]],
    replay: Float[jax.Array, ""],
) -> Partial:
    """Return one draw's log loss as a function of log tokens, at the draw's replay.

    The function is a pytree; its leaves are the parts that do not depend on tokens.
    """
    loss_at = along_tokens(log_loss, values, {**fixed, "replay": replay})
    return Partial(_at_log_tokens, loss_at)


def _at_log_tokens(
    loss_at: Callable, log_tokens: Float[jax.Array, ""]
) -> Float[jax.Array, ""]:
    return loss_at(jnp.exp(log_tokens))


def _each_draw(log_loss: Callable, draws: DrawsAtReplay) -> Partial:
    """Return every draw's log loss as a function of log tokens, a pytree."""
    return jax.vmap(partial(_of_log_tokens, log_loss))(*draws)


@compiled(static_argnums=0, level=OFTEN)
def without_tokens(log_loss: Callable, draws: DrawsAtReplay) -> list[jax.Array]:
    """Compute the parts of log losses that do not depend on tokens, leaves of shape
    (draw, ...). Ladder and roots share them.
    """
    return jax.tree.leaves(_each_draw(log_loss, draws))


def _with_tokens(
    log_loss: Callable, draws: DrawsAtReplay, constants: list[jax.Array]
) -> Partial:
    """Rebuild `_each_draw` from the leaves that `without_tokens` computed; only shapes
    of ``draws`` are used.
    """
    shapes = jax.eval_shape(partial(_each_draw, log_loss), draws)
    return jax.tree.unflatten(jax.tree.structure(shapes), constants)


# -- batches ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Batch:
    """Draws of one formula that one call evaluates.

    Parameters
    ----------
    log_loss
        The formula, as in `Piece`.
    values, fixed
        The draws, and the covariates that a plan does not choose; leaves of shape (row,
        ...).
    draws
        Number of rows that are draws. Later rows repeat the last draw: batches of equal
        size are compiled once.
    """

    log_loss: Callable
    values: dict[str, Float[jax.Array, "row ..."]]
    fixed: dict[str, Float[jax.Array, " row"]]
    draws: int

    @classmethod
    def of(
        cls,
        log_loss: Callable,
        values: Mapping[str, Float[AnyArray, "draw ..."]],
        fixed: Mapping[str, Float[AnyArray, " draw"]],
        size: int,
    ) -> Batch:
        """Fill a batch of ``size`` rows with at most ``size`` draws."""
        draws = len(next(iter(values.values())))
        rows = _filled(np.arange(draws), size)

        def taken(leaf: Shaped[AnyArray, "draw ..."]) -> Shaped[jax.Array, "row ..."]:
            return jnp.asarray(np.asarray(leaf)[rows])

        filled = [jax.tree.map(taken, dict(leaves)) for leaves in (values, fixed)]
        return cls(log_loss, filled[0], filled[1], draws)

    @property
    def rows(self) -> int:
        return len(next(iter(self.values.values())))

    def at(self, replay: Float[np.ndarray, " draw"]) -> AlongTokens:
        """Fix each draw's replay, shape (draw,)."""
        draws = DrawsAtReplay(self.values, self.fixed, _filled(replay, self.rows))
        constants = without_tokens(self.log_loss, draws)
        return AlongTokens(self, draws, constants)

    def losses_on_grid(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        replay: Float[np.ndarray, " replay"],
        replays_a_call: int = 16,
    ) -> Float[np.ndarray, "replay tokens draw"]:
        """Compute the log losses at all tokens and replays, shape (replay, tokens,
        draw).
        """
        losses = np.empty((len(replay), len(log_tokens), self.draws))
        for i in range(0, len(replay), replays_a_call):
            replay_block = replay[i : i + replays_a_call]
            for j in range(0, len(log_tokens), RUNGS):
                token_block = log_tokens[j : j + RUNGS]
                block = losses_on_grid(
                    self.log_loss,
                    self.values,
                    self.fixed,
                    _filled(replay_block, replays_a_call),
                    _filled(token_block, RUNGS),
                    len(token_block),
                )
                place = losses[i : i + replays_a_call, j : j + RUNGS]
                replays, tokens, _ = place.shape
                place[:] = np.asarray(block)[:replays, :tokens, : self.draws]
        return losses


@dataclass(frozen=True, eq=False)
class AlongTokens:
    """A batch's log losses as functions of tokens, each draw at its own replay.

    Parameters
    ----------
    batch
        The batch.
    all_draws, constants
        All rows of the batch with their replay, and `without_tokens` of them.
    """

    batch: Batch
    all_draws: DrawsAtReplay
    constants: list[jax.Array]

    def losses(
        self, log_tokens: Float[np.ndarray, " tokens"]
    ) -> Float[np.ndarray, "tokens draw"]:
        """Compute the log losses at up to `RUNGS` tokens, shape (tokens, draw)."""
        count = len(log_tokens)
        if not count:
            return np.empty((0, self.batch.draws))
        losses = losses_on_ladder(
            self.batch.log_loss,
            self.all_draws,
            self.constants,
            _filled(log_tokens, RUNGS),
            count,
        )
        return np.asarray(losses)[:count, : self.batch.draws]

    def crossings(
        self,
        log_limit: Float[np.ndarray, " draw"],
        rungs: Float[np.ndarray, " rung"],
        bend: float = math.inf,
    ) -> tuple[Float[np.ndarray, "draw crossing"], Bool[np.ndarray, " draw"]]:
        """Find where each draw's log loss crosses its limit.

        Parameters
        ----------
        rungs
            Rungs of the ladder.
        bend
            Bound of `bend_of`; by default all rungs are evaluated.

        Returns
        -------
        Log tokens of the crossings, shape (draw, crossing), padded with +inf to an odd
        number of columns; and whether the limit is kept at the first rung, shape
        (draw,).
        """
        rungs, losses = self._near_limits(log_limit, rungs, bend)
        is_kept = losses <= log_limit  # (rung, draw)
        draw, rung = np.nonzero((is_kept[1:] != is_kept[:-1]).T)
        brackets = Brackets(
            draw=draw,
            low=rungs[rung],
            high=rungs[rung + 1],
            below=losses[rung, draw] - log_limit[draw],
            above=losses[rung + 1, draw] - log_limit[draw],
        )
        counts = np.bincount(draw, minlength=self.batch.draws)
        most = int(counts.max())
        roots = np.full((self.batch.draws, most // 2 * 2 + 1), np.inf)
        # number of each crossing within its draw
        place = np.arange(len(draw)) - np.repeat(np.cumsum(counts) - counts, counts)
        roots[draw, place] = self._roots(log_limit, brackets)
        return roots, is_kept[0]

    def _near_limits(
        self,
        log_limit: Float[np.ndarray, " draw"],
        rungs: Float[np.ndarray, " rung"],
        bend: float,
    ) -> tuple[Float[np.ndarray, " seen"], Float[np.ndarray, "seen draw"]]:
        """Evaluate losses at every `STRIDE`-th rung, and at the rungs between two of
        these if a draw can cross its limit there. Returns rungs, shape (seen,), and
        losses, shape (seen, draw).
        """
        # a monotone loss has a ladder of two rungs
        if len(rungs) <= STRIDE or not math.isfinite(bend):
            return rungs, self.losses(rungs)
        places = np.arange(len(rungs))
        few = places[::STRIDE]
        losses = self.losses(rungs[few])
        excess = losses - log_limit
        is_kept = excess <= 0
        is_near = ~(np.abs(excess) > bend)  # true for NaN
        can_cross = is_near[1:] | is_near[:-1] | (is_kept[1:] != is_kept[:-1])
        between = np.delete(places, few).reshape(len(few) - 1, STRIDE - 1)
        between_near = between[can_cross.any(axis=1)].ravel()
        losses = np.concatenate([losses, self.losses(rungs[between_near])])
        places_used = np.concatenate([few, between_near])
        order = np.argsort(places_used)
        return rungs[places_used[order]], losses[order]

    def _roots(
        self,
        log_limit: Float[np.ndarray, " draw"],
        brackets: Brackets,
        crossings_a_draw: float = 1.25,
    ) -> Float[np.ndarray, " bracket"]:
        """Find the log tokens at which losses cross their limits, shape (bracket,).

        ``crossings_a_draw``: brackets in one call, as a multiple of the number of
        draws; most draws cross once.
        """
        limits = _filled(log_limit, self.batch.rows)
        count = len(brackets.draw)
        # calls of one size, so that one program is compiled
        size = math.ceil(crossings_a_draw * len(limits))
        blocks = [np.zeros(0)]
        for first in range(0, count, size):
            block = brackets.padded(slice(first, first + size), size)
            roots = roots_between(
                self.batch.log_loss, self.all_draws, self.constants, limits, block
            )
            blocks.append(np.asarray(roots))
        return np.concatenate(blocks)[:count]


def _filled(
    values: Shaped[np.ndarray, " some"], size: int
) -> Shaped[np.ndarray, " size"]:
    """Repeat the last of the values up to ``size``."""
    return np.pad(values, (0, size - len(values)), mode="edge")


def pad_columns(
    roots: Float[np.ndarray, "draw crossing"], columns: int
) -> Float[np.ndarray, "draw column"]:
    """Pad roots with +inf to shape (draw, columns)."""
    missing = columns - roots.shape[1]
    return np.pad(roots, ((0, 0), (0, missing)), constant_values=np.inf)


# -- losses ----------------------------------------------------------------------------


def ladder(span: tuple[float, float], is_wavy: bool) -> Float[np.ndarray, " rung"]:
    """Lay a ladder of log tokens, such that a loss crosses its limit at most once
    between neighbouring rungs: two rungs for a monotone loss.
    """
    return np.linspace(*span, RUNGS if is_wavy else 2)


def rise_and_fall(
    losses: Float[np.ndarray, "rung draw"], rounding: float = 1e-12
) -> bool:
    """Tell whether any draw's losses on a ladder, shape (rung, draw), are not monotone.

    Steps of log loss within ``rounding`` count as rounding errors.
    """
    step = np.diff(losses, axis=0)
    rises = (step > rounding).any(axis=0)
    falls = (step < -rounding).any(axis=0)
    return bool((rises & falls).any())


def bend_of(losses: Float[np.ndarray, "rung draw"], safety: float = 3.0) -> float:
    """Bound the distance of losses, shape (rung, draw), from linear interpolation between
    every `STRIDE`-th rung: ``safety`` times the largest distance at any rung.
    """
    few = losses[::STRIDE]
    share = np.arange(STRIDE)[:, None] / STRIDE
    straight = few[:-1, None] + share * np.diff(few, axis=0)[:, None]
    away = losses[:-1].reshape(straight.shape) - straight
    bend = safety * float(np.abs(away).max())
    return bend if math.isfinite(bend) else math.inf


@compiled(static_argnums=0, level=OFTEN)
def losses_on_ladder(
    log_loss: Callable,
    draws: DrawsAtReplay,
    constants: list[jax.Array],
    rungs: Float[jax.Array, " rung"],
    count: Int[jax.Array, ""],
) -> Float[jax.Array, "rung draw"]:
    """Compute the log loss of each draw at the first ``count`` rungs, shape (rung,
    draw); later rungs are 0.

    ``constants`` is `without_tokens` of the draws.
    """
    by_draw = _with_tokens(log_loss, draws, constants)
    return _on_ladder(by_draw, len(draws.replay), rungs, count)


@compiled(static_argnums=0, level=OFTEN)
def losses_on_grid(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    replay: Float[jax.Array, " replay"],
    rungs: Float[jax.Array, " rung"],
    count: Int[jax.Array, ""],
) -> Float[jax.Array, "replay rung draw"]:
    """Compute the log loss of each draw at the first ``count`` rungs and at common
    replays, shape (replay, rung, draw).

    Terms of replay alone are computed once for all draws.
    """
    draws = len(jax.tree.leaves(values)[0])

    def at_replay(r: Float[jax.Array, ""]) -> Float[jax.Array, "rung draw"]:
        at_draw = partial(_of_log_tokens, log_loss, replay=r)
        by_draw = jax.vmap(at_draw)(values, fixed)
        return _on_ladder(by_draw, draws, rungs, count)

    return jax.lax.map(at_replay, replay)


def _on_ladder(
    by_draw: Callable,
    draws: int,
    rungs: Float[jax.Array, " rung"],
    count: Int[jax.Array, ""],
) -> Float[jax.Array, "rung draw"]:
    """Evaluate one function of log tokens per draw at the first ``count`` rungs."""

    # rung by rung, so that all draws at one rung fit the processor's cache
    def with_rung(
        rung: Int[jax.Array, ""], losses: Float[jax.Array, "rung draw"]
    ) -> Float[jax.Array, "rung draw"]:
        x = rungs[rung]
        return losses.at[rung].set(jax.vmap(lambda loss_at: loss_at(x))(by_draw))

    none = jnp.zeros((len(rungs), draws))
    return jax.lax.fori_loop(0, count, with_rung, none)


# -- roots -----------------------------------------------------------------------------


class Brackets(NamedTuple):
    """Brackets of roots, each field of shape (bracket,), or () for one bracket.

    ``draw``: row of the draw; ``low`` and ``high``: ends in log tokens; ``below`` and
    ``above``: log loss minus limit at the ends. Equal signs mark an empty bracket.
    """

    draw: Int[Any, "*bracket"]
    low: Float[Any, "*bracket"]
    high: Float[Any, "*bracket"]
    below: Float[Any, "*bracket"]
    above: Float[Any, "*bracket"]

    def padded(self, part: slice, size: int) -> Brackets:
        """Take a slice of the brackets, padded with empty ones to ``size``."""
        columns = [column[part] for column in self]
        missing = size - len(columns[0])
        return Brackets(*(np.pad(column, (0, missing)) for column in columns))


class _Search(NamedTuple):
    """State of a root search: estimate ``at``, bracket ``low`` to ``high``, size of the
    last ``step``, and ``count`` of steps, each of shape ().
    """

    at: Float[jax.Array, ""]
    low: Float[jax.Array, ""]
    high: Float[jax.Array, ""]
    step: Float[jax.Array, ""]
    count: Int[jax.Array, ""]


def _root(
    loss_at: Callable,
    limit: Float[jax.Array, ""],
    bracket: Brackets,
    tolerance: float = 1e-5,
    most_steps: int = 60,
) -> Float[jax.Array, ""]:
    """Find the root of loss minus limit in a bracket: Newton's method with bisection.

    Stops when a step is within ``tolerance`` of log tokens; Newton's error is then about
    tolerance^2. Bisection alone needs fewer than ``most_steps``.
    """
    is_kept = bracket.below <= 0
    exists = is_kept != (bracket.above <= 0)

    def is_searching(search: _Search) -> Bool[jax.Array, ""]:
        is_coarse = search.step > tolerance
        return exists & is_coarse & (search.count < most_steps)

    def next_step(search: _Search) -> _Search:
        at = search.at
        loss, slope = jax.jvp(loss_at, (at,), (jnp.ones(()),))
        excess = loss - limit
        is_before = (excess <= 0) == is_kept
        low = jnp.where(is_before, at, search.low)
        high = jnp.where(is_before, search.high, at)
        tangent = at - excess / slope
        is_inside = (tangent >= low) & (tangent <= high)
        is_fast = jnp.abs(tangent - at) < search.step / 2
        # comparisons with NaN are false, so NaN leads to bisection
        moved = jnp.where(is_inside & is_fast, tangent, (low + high) / 2)
        return _Search(moved, low, high, jnp.abs(moved - at), search.count + 1)

    width = bracket.high - bracket.low
    share = bracket.below / (bracket.below - bracket.above)
    # start at the secant's root; at the middle if a loss is infinite at an end
    straight = jnp.where((share >= 0) & (share <= 1), share, 0.5)
    at = bracket.low + straight * width
    start = _Search(at, bracket.low, bracket.high, width, jnp.zeros((), int))
    return jax.lax.while_loop(is_searching, next_step, start).at


@compiled(static_argnums=0, level=OFTEN)
def roots_between(
    log_loss: Callable,
    draws: DrawsAtReplay,
    constants: list[jax.Array],
    log_limit: Float[jax.Array, " draw"],
    brackets: Brackets,
) -> Float[jax.Array, " bracket"]:
    """Find the log tokens at which losses cross their limits, shape (bracket,).

    ``constants`` is `without_tokens` of the draws; ``log_limit`` has shape (draw,).
    """
    by_draw = _with_tokens(log_loss, draws, constants)

    def root(bracket: Brackets) -> Float[jax.Array, ""]:
        loss_at, limit = jax.tree.map(
            lambda leaf: leaf[bracket.draw], (by_draw, log_limit)
        )
        return _root(loss_at, limit, bracket)

    # A block iterates until its last root converges; small blocks fit the cache.
    return jax.lax.map(root, brackets, batch_size=128)
