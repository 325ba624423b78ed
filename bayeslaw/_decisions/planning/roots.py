"""Losses of all draws along tokens, and where they cross their limits: compiled.

Roots are sought in log tokens between two ends of different sign, by Newton's method,
and by halves wherever it would leave them or closes in too slowly: that cannot fail
(Press et al. 2007, section 9.4). It is one loop, whose body has the loss and its slope
once: a library's two methods, one after the other, are two programs to compile.

Throughout, ``log_loss`` is that of `Piece`: of one draw, at a table of runs. ``values``
and ``fixed`` have leaves of shape (draw, ...): the draws, and the covariates that a
plan does not choose.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from bayeslaw._base.programs.compiled import OFTEN, compiled
from bayeslaw._posteriors.posterior import along_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jaxtyping import Bool, Float, Int, PyTree, Shaped

TOLERANCE = 1e-10  # of log tokens: what a step of Newton's method leaves is its square
RUNGS = 65  # of the ladder
# crossings of one draw, an odd number: each end of the training runs may bend a loss that
# drifts
MOST = 11
MOST_STEPS = 60  # more than halving takes
FLAT = 1e-12  # smaller steps of log loss are rounding errors


class Crossings(NamedTuple):
    """Where each draw's log loss crosses its limit.

    Parameters
    ----------
    roots
        Log tokens, shape (draw, crossing); +inf where there is none.
    is_kept
        Whether the limit is kept at the low end of the span, shape (draw,).
    """

    roots: Float[jax.Array, "draw crossing"]
    is_kept: Bool[jax.Array, " draw"]


def _of_log_tokens(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, " ..."]],
    fixed: dict[str, Float[jax.Array, ""]],
    replay: Float[jax.Array, ""],
) -> Partial:
    """One draw's log loss as a function of log tokens, at its own replay.

    A pytree: what does not depend on tokens is computed when it is made.
    """
    loss_at = along_tokens(log_loss, values, fixed | {"replay": replay})
    return Partial(_at_log_tokens, loss_at)


def _at_log_tokens(
    loss_at: Callable, log_tokens: Float[jax.Array, ""]
) -> Float[jax.Array, ""]:
    return loss_at(jnp.exp(log_tokens))


# -- losses ----------------------------------------------------------------------------


@compiled(static_argnums=0, level=OFTEN)
def losses_at(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_tokens: Float[jax.Array, " draw"],
    replay: Float[jax.Array, " draw"],
) -> Float[jax.Array, " draw"]:
    """Log loss of each draw at its own tokens and replay, shape (draw,) all three."""

    def of_draw(
        v: Mapping[str, Float[jax.Array, " ..."]],
        f: dict[str, Float[jax.Array, ""]],
        x: Float[jax.Array, ""],
        r: Float[jax.Array, ""],
    ) -> Float[jax.Array, ""]:
        return _of_log_tokens(log_loss, v, f, r)(x)

    return jax.vmap(of_draw)(values, fixed, log_tokens, replay)


@compiled(static_argnums=0, level=OFTEN)
def losses_on_grid(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_tokens: Float[jax.Array, " tokens"],
    replay: Float[jax.Array, " replay"],
) -> Float[jax.Array, "draw replay tokens"]:
    """Log loss of each draw on a grid, shape (draw, replay, tokens).

    Mapped axis by axis, so that a term in tokens alone is computed once for all replays
    and the other way round.
    """

    def of_draw(
        v: Mapping[str, Float[jax.Array, " ..."]], f: dict[str, Float[jax.Array, ""]]
    ) -> Float[jax.Array, "replay tokens"]:
        def at_replay(r: Float[jax.Array, ""]) -> Float[jax.Array, " tokens"]:
            return jax.vmap(_of_log_tokens(log_loss, v, f, r))(log_tokens)

        return jax.vmap(at_replay)(replay)

    return jax.vmap(of_draw)(values, fixed)


@compiled(static_argnums=0, level=OFTEN)
def kept_on_grid(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_limit: Float[jax.Array, " draw"],
    log_tokens: Float[jax.Array, " tokens"],
    replay: Float[jax.Array, " replay"],
) -> Bool[jax.Array, "draw replay tokens"]:
    """Whether each draw keeps its limit on a grid, shape (draw, replay, tokens)."""
    losses = losses_on_grid(log_loss, values, fixed, log_tokens, replay)
    limit = log_limit[:, None, None]
    return losses <= limit


@compiled(static_argnums=0, level=OFTEN)
def rises_and_falls(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    replay: Float[jax.Array, " draw"],
    span: tuple[Float[jax.Array, ""], Float[jax.Array, ""]],
) -> Bool[jax.Array, ""]:
    """Whether any draw's loss both rises and falls with tokens.

    ``replay`` is each draw's own, shape (draw,).
    """
    ladder = jnp.linspace(span[0], span[1], RUNGS)

    def of_draw(
        v: Mapping[str, Float[jax.Array, " ..."]],
        f: dict[str, Float[jax.Array, ""]],
        r: Float[jax.Array, ""],
    ) -> Bool[jax.Array, ""]:
        losses = jax.vmap(_of_log_tokens(log_loss, v, f, r))(ladder)
        step = jnp.diff(losses)
        return (step > FLAT).any() & (step < -FLAT).any()

    return jax.vmap(of_draw)(values, fixed, replay).any()


# -- roots -----------------------------------------------------------------------------


class _Search(NamedTuple):
    """A root between ``low`` and ``high``, about at ``at``, after ``count`` steps, each of
    shape (); ``step``: the size of the last.
    """

    at: Float[jax.Array, ""]
    low: Float[jax.Array, ""]
    high: Float[jax.Array, ""]
    step: Float[jax.Array, ""]
    count: Int[jax.Array, ""]


def _root(
    loss_at: Callable,
    limit: Float[jax.Array, ""],
    low: Float[jax.Array, ""],
    high: Float[jax.Array, ""],
    is_kept: Bool[jax.Array, ""],
    exists: Bool[jax.Array, ""],
) -> Float[jax.Array, ""]:
    """Where a loss crosses its limit between two ends; +inf where no root ``exists``.

    ``is_kept``: whether the limit is kept at the low end; at the other it is not, or the
    other way round.
    """

    def is_searching(search: _Search) -> Bool[jax.Array, ""]:
        return exists & (search.step > TOLERANCE) & (search.count < MOST_STEPS)

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
        # comparisons with what is no number are false
        moved = jnp.where(is_inside & is_fast, tangent, (low + high) / 2)
        return _Search(moved, low, high, jnp.abs(moved - at), search.count + 1)

    middle, width = (low + high) / 2, high - low
    start = _Search(middle, low, high, width, jnp.zeros((), int))
    found = jax.lax.while_loop(is_searching, next_step, start)
    return jnp.where(exists, found.at, jnp.inf)


@compiled(static_argnums=0, level=OFTEN)
def crossing(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_limit: Float[jax.Array, " draw"],
    replay: Float[jax.Array, " draw"],
    span: tuple[Float[jax.Array, ""], Float[jax.Array, ""]],
) -> Crossings:
    """The one crossing of each draw, if its log loss is monotone in tokens.

    ``log_limit`` and ``replay`` have shape (draw,).
    """

    def of_draw(
        v: Mapping[str, Float[jax.Array, " ..."]],
        f: dict[str, Float[jax.Array, ""]],
        limit: Float[jax.Array, ""],
        r: Float[jax.Array, ""],
    ) -> Crossings:
        loss_at = _of_log_tokens(log_loss, v, f, r)
        # A monotone loss crosses its limit if and only if it is kept at one end only.
        first, last = loss_at(span[0]) <= limit, loss_at(span[1]) <= limit
        root = _root(loss_at, limit, *span, is_kept=first, exists=first != last)
        return Crossings(root[None], first)

    return jax.vmap(of_draw)(values, fixed, log_limit, replay)


@compiled(static_argnums=0, level=OFTEN)
def crossings(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_limit: Float[jax.Array, " draw"],
    replay: Float[jax.Array, " draw"],
    span: tuple[Float[jax.Array, ""], Float[jax.Array, ""]],
) -> Crossings:
    """The first `MOST` crossings of each draw.

    Sign changes between rungs of log tokens, then a root between each pair of rungs.
    """
    rungs = jnp.linspace(span[0], span[1], RUNGS)

    by_draw = jax.vmap(partial(_of_log_tokens, log_loss))(values, fixed, replay)

    # rung by rung: all draws at one rung stay in the processor's cache
    def is_kept(x: Float[jax.Array, ""]) -> Bool[jax.Array, " draw"]:
        losses = jax.vmap(lambda loss_at: loss_at(x))(by_draw)
        return losses <= log_limit

    kept = jax.lax.map(is_kept, rungs)  # (rung, draw)
    count = jnp.cumsum(kept[1:] != kept[:-1], axis=0)  # crossings up to each rung

    def root(
        loss_at: Callable,
        limit: Float[jax.Array, ""],
        kept: Bool[jax.Array, " rung"],
        count: Int[jax.Array, " gap"],
        k: Int[jax.Array, ""],
    ) -> Float[jax.Array, ""]:
        # The first rung after which more than k signs have changed has crossing k;
        # argmax of booleans is the first true one.
        rung = jnp.argmax(count > k)
        return _root(
            loss_at,
            limit,
            rungs[rung],
            rungs[rung + 1],
            is_kept=kept[rung],
            exists=count[-1] > k,
        )

    # one crossing after another: one that no draw has costs nothing
    of_draws = jax.vmap(root, in_axes=(0, 0, 1, 1, None))
    roots = jax.lax.map(
        partial(of_draws, by_draw, log_limit, kept, count), jnp.arange(MOST)
    )
    return Crossings(roots.T, kept[0])


# -- rows ------------------------------------------------------------------------------


def pad_columns(
    roots: Float[np.ndarray, "draw crossing"], columns: int
) -> Float[np.ndarray, "draw column"]:
    """Roots with columns of none added, shape (draw, columns)."""
    missing = columns - roots.shape[1]
    return np.pad(roots, ((0, 0), (0, missing)), constant_values=np.inf)


@compiled
def take_rows(
    tree: PyTree[Shaped[jax.Array, "draw ..."]], rows: Int[jax.Array, " row"]
) -> PyTree[Shaped[jax.Array, "row ..."]]:
    """The same rows, shape (row,), of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)
