"""Losses of all draws along tokens, and where they cross their limits: compiled.

Roots are sought in log tokens, by Newton's method where the loss is monotone, or from a
bracket; by bisection where Newton's method fails, which halves a sign change and so
cannot (Brent 1973, chapters 3 and 4; Press et al. 2007, section 9.4, on combining the
two). Both are optimistix's, and every root is checked.

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
import optimistix as optx
from jax.tree_util import Partial

from bayeslaw._base.programs.compiled import OFTEN, compiled
from bayeslaw._posteriors.posterior import along_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jaxtyping import Bool, Float, Int, PyTree, Shaped

CONVERGED = 1e-9  # of log loss at a root
BLOCK = 64  # draws whose roots Newton's method does not find, in one call
MONOTONE, WAVY = (25, 1), (65, 3)  # rungs of the ladder, most crossings (an odd number)
# crossings of the few draws that have more: each end of the training runs may bend a
# loss that drifts
MOST = 11
NEWTON_STEPS, BISECTION_STEPS = 12, 60  # from a rung apart to 1e-13
FLAT = 1e-12  # smaller steps of log loss are rounding errors

NEWTON = optx.Newton(rtol=1e-8, atol=1e-8)
BISECTION = optx.Bisection(rtol=1e-13, atol=1e-13, flip="detect")


class Crossings(NamedTuple):
    """Where each draw's log loss crosses its limit.

    Parameters
    ----------
    roots
        Log tokens, shape (draw, crossing); +inf where there is none.
    is_kept
        Whether the limit is kept at the low end of the span, shape (draw,).
    converged
        Whether all roots are found, shape (draw,).
    """

    roots: Float[jax.Array, "draw crossing"]
    is_kept: Bool[jax.Array, " draw"]
    converged: Bool[jax.Array, " draw"]


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
    ladder = jnp.linspace(span[0], span[1], WAVY[0])

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


def _find_root(
    excess: Callable,
    exists: Bool[jax.Array, ""],
    low: Float[jax.Array, ""],
    high: Float[jax.Array, ""],
    newton: bool,
) -> tuple[Float[jax.Array, ""], Bool[jax.Array, ""]]:
    """A root of ``excess`` between two ends, and whether it is one.

    +inf, and true, where none ``exists``: there the solver is given a line instead, so
    that it ends at once.
    """
    guess = (low + high) / 2
    solution = optx.root_find(
        lambda x, _: jnp.where(exists, excess(x), x - guess),
        NEWTON if newton else BISECTION,
        guess,
        options={"lower": low, "upper": high},
        max_steps=NEWTON_STEPS if newton else BISECTION_STEPS,
        throw=False,
    ).value
    is_root = jnp.abs(excess(solution)) < CONVERGED
    # Newton's method may end anywhere: a root is what makes the
    # excess vanish, whatever the solver says of itself.
    return jnp.where(exists, solution, jnp.inf), ~exists | is_root


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

    Newton's method from the middle of the span. ``log_limit`` and ``replay`` have shape
    (draw,).
    """

    def of_draw(
        v: Mapping[str, Float[jax.Array, " ..."]],
        f: dict[str, Float[jax.Array, ""]],
        limit: Float[jax.Array, ""],
        r: Float[jax.Array, ""],
    ) -> Crossings:
        loss_at = _of_log_tokens(log_loss, v, f, r)

        def excess(x: Float[jax.Array, ""]) -> Float[jax.Array, ""]:
            return loss_at(x) - limit

        # A monotone function crosses if and only if its ends have different signs.
        first, last = excess(span[0]) <= 0, excess(span[1]) <= 0
        root, converged = _find_root(excess, first != last, *span, newton=True)
        return Crossings(root[None], first, converged)

    return jax.vmap(of_draw)(values, fixed, log_limit, replay)


@compiled(static_argnums=(0, 6, 7), level=OFTEN)
def crossings(
    log_loss: Callable,
    values: Mapping[str, Float[jax.Array, "draw ..."]],
    fixed: dict[str, Float[jax.Array, " draw"]],
    log_limit: Float[jax.Array, " draw"],
    replay: Float[jax.Array, " draw"],
    span: tuple[Float[jax.Array, ""], Float[jax.Array, ""]],
    ladder: tuple[int, int],
    newton: bool,
) -> Crossings:
    """The crossings of each draw, any number up to that of the ladder.

    Sign changes between rungs of log tokens, then a root between each pair of rungs. A
    draw with more crossings has not converged. ``ladder``: rungs, and most crossings.
    """
    count_of_rungs, most = ladder
    rungs = jnp.linspace(span[0], span[1], count_of_rungs)

    by_draw = jax.vmap(partial(_of_log_tokens, log_loss))(values, fixed, replay)

    # rung by rung: all draws at one rung stay in the processor's cache
    def is_kept(x: Float[jax.Array, ""]) -> Bool[jax.Array, " draw"]:
        losses = jax.vmap(lambda loss_at: loss_at(x))(by_draw)
        return losses <= log_limit

    def of_draw(
        loss_at: Callable, limit: Float[jax.Array, ""], kept: Bool[jax.Array, " rung"]
    ) -> Crossings:
        def excess(x: Float[jax.Array, ""]) -> Float[jax.Array, ""]:
            return loss_at(x) - limit

        count = jnp.cumsum(kept[1:] != kept[:-1])  # crossings up to each rung

        def root(
            k: Int[jax.Array, ""],
        ) -> tuple[Float[jax.Array, ""], Bool[jax.Array, ""]]:
            # The first rung after which more than k signs have changed has crossing k;
            # argmax of booleans is the first true one.
            rung = jnp.argmax(count > k)
            low, high = rungs[rung], rungs[rung + 1]
            return _find_root(excess, count[-1] > k, low, high, newton)

        roots, converged = jax.vmap(root)(jnp.arange(most))
        return Crossings(roots, kept[0], converged.all() & (count[-1] <= most))

    kept = jax.lax.map(is_kept, rungs).T
    return jax.vmap(of_draw)(by_draw, log_limit, kept)


# -- rows ------------------------------------------------------------------------------


def pad_columns(
    roots: Float[np.ndarray, "draw crossing"], columns: int
) -> Float[np.ndarray, "draw column"]:
    """Roots with columns of none added, shape (draw, columns)."""
    missing = columns - roots.shape[1]
    return np.pad(roots, ((0, 0), (0, missing)), constant_values=np.inf)


def blocks(rows: Int[np.ndarray, " row"]) -> list[Int[np.ndarray, " block"]]:
    """Blocks of `BLOCK` rows; the last is filled up with repeats.

    So one compiled program serves all.
    """
    starts = range(0, len(rows), BLOCK)
    parts = [rows[start : start + BLOCK] for start in starts]
    # np.resize repeats what there is
    return [np.resize(part, BLOCK) for part in parts]


@compiled
def take_rows(
    tree: PyTree[Shaped[jax.Array, "draw ..."]], rows: Int[jax.Array, " row"]
) -> PyTree[Shaped[jax.Array, "row ..."]]:
    """The same rows, shape (row,), of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)
