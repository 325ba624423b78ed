"""Where promises are kept: intervals of adaptation tokens per draw, and the cheapest tokens over all draws.

A promise is an upper limit on a loss. At a given replay every draw keeps it in a union of intervals of log tokens,
whose ends are roots in log tokens. Several promises are kept where their intervals meet. The share of draws that keep
them changes only at interval ends, so the smallest budget that reaches a share is one of the intervals' starts: it is
found by sorting, without a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

Intervals = tuple[np.ndarray, np.ndarray]
"""Starts and ends in log tokens, each of shape (draw, interval); a start of +inf says that there is none."""

CONVERGED = 1e-9  # of log loss at a root
BLOCK = 64  # draws whose roots Newton's method does not find, in one call
MONOTONE, WAVY = (25, 1), (65, 3)  # rungs of the ladder, most crossings (an odd number)
MOST = 11  # crossings of the few draws that have more: each end of the training runs may bend a loss that drifts


def _run(fixed, log_tokens, replay) -> dict:
    """A table of one run."""
    return {c: v[None] for c, v in (fixed | {"D": jnp.exp(log_tokens), "replay": replay}).items()}


@partial(jax.jit, static_argnames="log_loss")
def _losses(log_loss, values, fixed, log_tokens, replay):
    """Log loss of each draw at its own tokens and replay, shape (draw,)."""
    return jax.vmap(lambda v, f, x, r: log_loss(v, _run(f, x, r))[0])(values, fixed, log_tokens, replay)


@partial(jax.jit, static_argnames="log_loss")
def _losses_on_grid(log_loss, values, fixed, log_tokens, replay):
    """Log loss of each draw on a grid, shape (draw, replay, tokens).

    Mapped axis by axis, so that a term in tokens alone is computed once for all replays and the other way round.
    """

    def one(v, f):
        return jax.vmap(lambda r: jax.vmap(lambda x: log_loss(v, _run(f, x, r))[0])(log_tokens))(replay)

    return jax.vmap(one)(values, fixed)


@partial(jax.jit, static_argnames="log_loss")
def _kept_on_grid(log_loss, values, fixed, log_limit, log_tokens, replay):
    """Whether each draw keeps its limit on a grid, shape (draw, replay, tokens)."""
    return _losses_on_grid(log_loss, values, fixed, log_tokens, replay) <= log_limit[:, None, None]


def _find_root(solver, excess, exists, guess, low, high, max_steps):
    """A root of ``excess`` by optimistix, and whether it is one; +inf where none ``exists``."""
    solution = optx.root_find(
        lambda x, _: jnp.where(exists, excess(x), x - guess),
        solver, guess, options={"lower": low, "upper": high}, max_steps=max_steps, throw=False,
    ).value  # fmt: skip
    return jnp.where(exists, solution, jnp.inf), ~exists | (jnp.abs(excess(solution)) < CONVERGED)


@partial(jax.jit, static_argnames="log_loss")
def _crossing(log_loss, values, fixed, log_limit, replay, span):
    """Where each draw's log loss crosses its limit, if it is monotone: Newton's method from the middle.

    Returns
    -------
    Log tokens of shape (draw, 1), +inf where it does not cross; whether the limit is kept at the low end, and whether
    the roots converged, each of shape (draw,).
    """

    def one(v, f, limit, r):
        def excess(x):
            return log_loss(v, _run(f, x, r))[0] - limit

        first, last = excess(span[0]) <= 0, excess(span[1]) <= 0
        solver, middle = optx.Newton(rtol=1e-8, atol=1e-8), (span[0] + span[1]) / 2
        root, converged = _find_root(solver, excess, first != last, middle, span[0], span[1], 12)
        return root[None], first, converged

    return jax.vmap(one)(values, fixed, log_limit, replay)


@partial(jax.jit, static_argnames=("log_loss", "rungs", "most", "newton"))
def _crossings(log_loss, values, fixed, log_limit, replay, span, rungs, most, newton):
    """Where each draw's log loss crosses its limit: sign changes on a ladder of log tokens, then roots between rungs.

    Returns
    -------
    As `_crossing`, with up to ``most`` crossings; a draw that has more has not converged.
    """
    ladder = jnp.linspace(span[0], span[1], rungs)
    solver = optx.Newton(rtol=1e-8, atol=1e-8) if newton else optx.Bisection(rtol=1e-13, atol=1e-13, flip="detect")

    def is_kept(x):  # rung by rung: all draws at one rung stay in the processor's cache
        return jax.vmap(lambda v, f, limit, r: log_loss(v, _run(f, x, r))[0] <= limit)(values, fixed, log_limit, replay)

    def one(v, f, limit, r, kept):
        def excess(x):
            return log_loss(v, _run(f, x, r))[0] - limit

        count = jnp.cumsum(kept[1:] != kept[:-1])

        def root(k):
            i = jnp.argmax(count > k)
            a, b = ladder[i], ladder[i + 1]
            return _find_root(solver, excess, count[-1] > k, (a + b) / 2, a, b, 12 if newton else 60)

        roots, converged = jax.vmap(root)(jnp.arange(most))
        return roots, kept[0], converged.all() & (count[-1] <= most)

    return jax.vmap(one)(values, fixed, log_limit, replay, jax.lax.map(is_kept, ladder).T)


@partial(jax.jit, static_argnames="log_loss")
def _rises_and_falls(log_loss, values, fixed, replay, span):
    """Whether any draw's loss both rises and falls with tokens."""
    ladder = jnp.linspace(span[0], span[1], WAVY[0])

    def one(v, f, r):
        step = jnp.diff(jax.vmap(lambda x: log_loss(v, _run(f, x, r))[0])(ladder))
        return (step > 1e-12).any() & (step < -1e-12).any()

    return jax.vmap(one)(values, fixed, replay).any()


def _wide(roots: np.ndarray, columns: int) -> np.ndarray:
    """Roots with columns of none added."""
    return np.pad(roots, ((0, 0), (0, columns - roots.shape[1])), constant_values=np.inf)


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    """Blocks of `BLOCK` rows, the last one filled up with repeats, so that one compiled program serves all."""
    return [np.resize(rows[i : i + BLOCK], BLOCK) for i in range(0, len(rows), BLOCK)]


@jax.jit
def _rows_of(tree, rows):
    """The same rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@dataclass(frozen=True, eq=False)
class Part:
    """Draws of one formula among a promise's draws.

    Parameters
    ----------
    rows
        Which of the promise's draws these are, shape (row,).
    values, fixed
        The draws and the covariates that a plan does not choose; leaves of shape (row, ...).
    """

    log_loss: Callable
    values: dict[str, jax.Array]
    fixed: dict[str, jax.Array]
    rows: np.ndarray

    def take(self, index: np.ndarray, draws: int) -> Part:
        """The part of the draws ``index`` (repeats allowed) of all ``draws``."""
        place = np.full(draws, -1)
        place[self.rows] = np.arange(len(self.rows))
        rows = np.flatnonzero(place[index] >= 0)
        local = place[index][rows]
        values, fixed = _rows_of((self.values, self.fixed), local)
        return Part(self.log_loss, values, fixed, rows)


@dataclass(frozen=True, eq=False)
class Promise:
    """A limit on a loss, with what each draw says about that loss.

    Parameters
    ----------
    name
        ``"target"``, or the name of a source.
    limit
        In nats per token for a loss; for forgetting relative to the baseline, or in nats per token above it.
    unit
        ``"loss"``, ``"relative"`` or ``"nats"``.
    baseline
        Loss before adaptation in nats per token, shape (draw,); ones for a loss.
    noise
        Of a new run, on log loss, shape (draw,); zeros for the law's mean.
    span
        Log tokens between which roots are sought.
    ladder
        Rungs and most crossings where roots must be bracketed; None where Newton's method finds them from anywhere.
    """

    name: str
    limit: float
    unit: str
    parts: tuple[Part, ...]
    baseline: np.ndarray
    noise: np.ndarray
    span: tuple[float, float]
    ladder: tuple[int, int] | None = None

    @property
    def draws(self) -> int:
        return len(self.noise)

    @cached_property
    def log_limit(self) -> np.ndarray:
        """The most that the law's log loss may be, shape (draw,)."""
        top = {"loss": self.limit, "relative": self.baseline * (1 + self.limit), "nats": self.baseline + self.limit}
        return np.log(top[self.unit]) - self.noise

    def outcome(self, log_loss: np.ndarray) -> np.ndarray:
        """What is promised (a loss, or forgetting) from the law's log loss, draws on the first axis."""
        shape = (-1,) + (1,) * (log_loss.ndim - 1)
        loss, baseline = np.exp(log_loss + self.noise.reshape(shape)), self.baseline.reshape(shape)
        return {"loss": loss, "relative": loss / baseline - 1, "nats": loss - baseline}[self.unit]

    def take(self, index: np.ndarray) -> Promise:
        """The same promise to the draws ``index``, repeats allowed."""
        parts = tuple(p for p in (part.take(index, self.draws) for part in self.parts) if len(p.rows))
        return replace(self, parts=parts, baseline=self.baseline[index], noise=self.noise[index])

    def with_shape_checked(self) -> Promise:
        """The promise with ``ladder`` set by looking at every draw, each at a replay of its own."""
        replay, limit, ladder = np.arange(self.draws) * 0.6180339887 % 1, self.log_limit, None
        for p in self.parts:
            given = p.log_loss, p.values, p.fixed
            if _rises_and_falls(*given, replay[p.rows], self.span):
                return replace(self, ladder=WAVY)
            if not _crossing(*given, limit[p.rows], replay[p.rows], self.span)[2].all():
                ladder = MONOTONE
        return replace(self, ladder=ladder)

    def _by_part(self, function: Callable[[Part], np.ndarray]) -> np.ndarray:
        """Results of all parts in the order of the draws."""
        results = [(p.rows, np.asarray(function(p))) for p in self.parts]
        if len(results) == 1:
            return results[0][1]
        out = np.empty((self.draws, *results[0][1].shape[1:]), results[0][1].dtype)
        for rows, result in results:
            out[rows] = result
        return out

    def log_losses(self, log_tokens, replay) -> np.ndarray:
        """The law's log loss of each draw, shape (draw,), at common or own log tokens and replay."""
        x, r = (np.broadcast_to(np.asarray(a, float), self.draws) for a in (log_tokens, replay))
        return self._by_part(lambda p: _losses(p.log_loss, p.values, p.fixed, x[p.rows], r[p.rows]))

    def log_losses_on_grid(self, log_tokens: np.ndarray, replay: np.ndarray) -> np.ndarray:
        """The law's log loss, shape (draw, replay, tokens)."""
        return self._by_part(lambda p: _losses_on_grid(p.log_loss, p.values, p.fixed, log_tokens, replay))

    def kept_on_grid(self, log_tokens: np.ndarray, replay: np.ndarray) -> np.ndarray:
        """Whether each draw keeps the promise, shape (draw, replay, tokens)."""
        limit = self.log_limit
        return self._by_part(lambda p: _kept_on_grid(p.log_loss, p.values, p.fixed, limit[p.rows], log_tokens, replay))

    def intervals(self, replay: np.ndarray) -> Intervals:
        """Log tokens at which each draw keeps the promise, at its own replay of shape (draw,)."""
        limit = self.log_limit
        kept: np.ndarray = np.empty(self.draws, bool)

        def crossings(part: Part):
            given = (part.log_loss, part.values, part.fixed, limit[part.rows], replay[part.rows], self.span)
            found = _crossings(*given, *self.ladder, newton=True) if self.ladder else _crossing(*given)
            roots, at_low_end, converged = map(np.array, found)
            kept[part.rows] = at_low_end
            for hard in _blocks(np.flatnonzero(~converged)):  # few as a rule: dips that touch the limit, many crossings
                given = (part.log_loss, *_rows_of((part.values, part.fixed), hard))
                at = (limit[part.rows][hard], replay[part.rows][hard], self.span)
                rungs, most = (WAVY[0], MOST) if self.ladder == WAVY else MONOTONE
                found = np.array(_crossings(*given, *at, rungs, most, newton=False)[0])
                roots = _wide(roots, MOST if np.isfinite(found[:, roots.shape[1] :]).any() else roots.shape[1])
                roots[hard] = found[:, : roots.shape[1]]
            return roots

        results = [crossings(part) for part in self.parts]
        roots = np.empty((self.draws, max(r.shape[1] for r in results)))
        for part, result in zip(self.parts, results, strict=True):
            roots[part.rows] = _wide(result, roots.shape[1])
        low, never = np.full((self.draws, 1), self.span[0]), np.full((self.draws, 1), np.inf)
        edges = np.where(kept[:, None], np.hstack([low, roots]), np.hstack([roots, never]))
        return edges[:, 0::2], edges[:, 1::2]


def meet(a: Intervals, b: Intervals) -> Intervals:
    """Where both unions of intervals hold, draw by draw."""
    start = np.maximum(a[0][:, :, None], b[0][:, None, :]).reshape(len(a[0]), -1)
    end = np.minimum(a[1][:, :, None], b[1][:, None, :]).reshape(len(a[0]), -1)
    empty = start > end
    return np.where(empty, np.inf, start), np.where(empty, np.inf, end)


def cheapest(
    groups: Sequence[Intervals], confidence: Sequence[float], cap: float, most_probable: bool = False
) -> tuple[float, float]:
    """The smallest log tokens, at most ``cap``, at which every group reaches its share of the draws.

    Where none does, or if ``most_probable``, the smallest at which the margin is largest.

    Returns
    -------
    Log tokens, and the margin: share of draws minus confidence, of the group that has least of it.
    """
    starts = [np.sort(s[np.isfinite(s)]) for s, _ in groups]
    ends = [np.sort(e[np.isfinite(e)]) for _, e in groups]
    at = starts[0] if len(starts) == 1 else np.sort(np.concatenate(starts))
    at = at[: np.searchsorted(at, cap, "right")]
    if not at.size:
        return np.inf, -max(confidence)
    margins = []
    for (s, e), group, share in zip(zip(starts, ends, strict=True), groups, confidence, strict=True):
        kept = np.searchsorted(s, at, "right") - np.searchsorted(e, at, "left")
        draws = len(group[0])
        margins.append((kept - needed(share, draws)) / draws)
    margin = np.min(margins, axis=0)
    first = np.argmax(margin >= 0) if not most_probable and margin.max() >= 0 else np.argmax(margin)
    return float(at[first]), float(margin[first])


def needed(share: float, draws: int) -> int:
    """How many of the draws make up this share at least."""
    return int(np.ceil(share * draws - 1e-9))
