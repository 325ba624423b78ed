"""Chance constraints over draws: feasible intervals of each draw, and cheapest tokens.

At a given replay a draw keeps a constraint in a union of intervals of log tokens, whose
ends are roots (`roots`). Several constraints are kept in the intersection. The share of
draws that keep them changes only at interval ends, so the smallest budget that reaches
a share is an interval's start, found by sorting, without a grid.

References
----------
Charnes and Cooper 1959 state chance constraints. Replacing the probability by the share
of draws is the sample approximation of Luedtke and Ahmed 2008 (SIAM J. Optim. 19, 674).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._plans.constraint import UNITS, Constraint, Unit, UnitName
from bayeslaw._plans.roots import (
    Batch,
    bend_of,
    ladder,
    pad_columns,
    rise_and_fall,
)
from bayeslaw._posteriors.accuracy import AccuracyLink

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    Intervals = tuple[
        Float[np.ndarray, "draw _interval"], Float[np.ndarray, "draw _interval"]
    ]
    """Starts and ends in log tokens, each of shape (draw, interval).

    A start of +inf says that there is no interval.
    """


@dataclass(frozen=True, eq=False)
class Part:
    """Draws of one formula among a constraint's draws.

    Parameters
    ----------
    log_loss
        The formula, as in `Piece`.
    values, fixed
        The draws, and the covariates that a plan does not choose; leaves of shape (row,
        ...).
    rows
        Indices of these draws among the constraint's draws, shape (row,).
    """

    log_loss: Callable
    values: dict[str, Float[np.ndarray, "row ..."]]
    fixed: dict[str, Float[np.ndarray, " row"]]
    rows: Int[np.ndarray, " row"]

    def take(self, index: Int[np.ndarray, " taken"], draws: int) -> Part:
        """Take the part of the draws ``index``, shape (taken,), of all ``draws``.

        Repeats are allowed.
        """
        place = np.full(draws, -1)  # position of each draw in this part; -1: elsewhere
        place[self.rows] = np.arange(len(self.rows))
        places = place[index]
        rows = np.flatnonzero(places >= 0)
        values, fixed = self._at(places[rows])
        return Part(self.log_loss, values, fixed, rows)

    def batches(
        self, size: int
    ) -> Iterator[tuple[Batch, Int[np.ndarray, " batch_row"]]]:
        """Split the draws into batches of this size, each with its rows among all
        draws.
        """
        for first in range(0, len(self.rows), size):
            part = slice(first, first + size)
            values, fixed = self._at(part)
            yield Batch.of(self.log_loss, values, fixed, size), self.rows[part]

    def _at(
        self, places: Int[np.ndarray, " taken"] | slice
    ) -> tuple[
        dict[str, Float[np.ndarray, "taken ..."]],
        dict[str, Float[np.ndarray, " taken"]],
    ]:
        """Take values and covariates at places among these rows."""
        values = {name: leaf[places] for name, leaf in self.values.items()}
        fixed = {name: leaf[places] for name, leaf in self.fixed.items()}
        return values, fixed


@dataclass(frozen=True, eq=False)
class SampledConstraint:
    """A constraint with draws of the loss that it limits.

    Parameters
    ----------
    constraint
        Name, limit and unit.
    parts
        The draws, by formula.
    baseline
        Loss before adaptation in nats per token, shape (draw,); 1 if the unit needs no
        baseline.
    noise
        Noise of a new run, on log loss, shape (draw,); zeros for the law's mean.
    span
        Log tokens between which roots are sought.
    is_wavy
        Whether losses are not monotone, so may cross the limit several times.
    bend
        Bound on the distance of losses from linear interpolation (`roots.bend_of`).
    link
        Link from the loss to the accuracy, for a limit on an evaluation's errors.
    """

    constraint: Constraint
    parts: tuple[Part, ...]
    baseline: Float[np.ndarray, " draw"]
    noise: Float[np.ndarray, " draw"]
    span: tuple[float, float]
    is_wavy: bool = False
    bend: float = math.inf
    link: AccuracyLink | None = None

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

    @property
    def _unit(self) -> Unit:
        """Find the unit's functions; with a link, they go through the draws of the
        accuracy.
        """
        unit = UNITS[self.constraint.unit]
        link = self.link
        if link is None:
            return unit
        return unit._replace(
            outcome=lambda loss, baseline: 1 - link.accuracy(loss),
            most_loss=lambda limit, baseline: link.loss_at(1 - limit),
        )

    @cached_property
    def log_limit(self) -> Float[np.ndarray, " draw"]:
        """Upper limit of the law's log loss, shape (draw,)."""
        most = self._unit.most_loss(self.limit, self.baseline)
        with np.errstate(divide="ignore"):  # for an accuracy that no loss reaches
            log_most = np.log(most)
        return log_most - self.noise

    @property
    def size(self) -> float:
        """Size of the loss itself at the limit, in the unit of the limit."""
        return self._unit.size(self.limit, float(self.baseline.mean()))

    def outcome(
        self, log_loss: Float[np.ndarray, " draw *point"]
    ) -> Float[np.ndarray, " draw *point"]:
        """Convert the law's log loss to the limited quantity: a loss, or forgetting.

        Draws are on the first axis: shape (draw, ...), as ``log_loss``.
        """
        loss = np.exp(log_loss + along_draws(self.noise, log_loss.ndim))
        return self._unit.outcome(loss, along_draws(self.baseline, log_loss.ndim))

    def take(self, index: Int[np.ndarray, " taken"]) -> SampledConstraint:
        """Take the same constraint over the draws ``index``, shape (taken,).

        Repeats are allowed.
        """
        parts = [part.take(index, self.draws) for part in self.parts]
        return replace(
            self,
            parts=tuple(part for part in parts if len(part.rows)),
            baseline=self.baseline[index],
            noise=self.noise[index],
            link=None if self.link is None else self.link.take(index),
        )

    def with_limit(self, limit: float) -> SampledConstraint:
        """Replace the limit."""
        constraint = replace(self.constraint, limit=limit)
        return replace(self, constraint=constraint)

    def with_shape_checked(self) -> SampledConstraint:
        """Set ``is_wavy`` and ``bend`` from every draw's losses, at a replay per draw."""
        # Multiples of the golden ratio, modulo 1, fill the unit interval evenly in any
        # number (Weyl's sequence; Niederreiter 1992, section 3).
        replay = np.arange(self.draws) * 0.6180339887 % 1
        losses = self._losses(ladder(self.span, is_wavy=True), replay)
        return replace(self, is_wavy=rise_and_fall(losses), bend=bend_of(losses))

    # -- losses ------------------------------------------------------------------------

    @cached_property
    def _batches(self) -> list[tuple[Batch, Int[np.ndarray, " batch_row"]]]:
        """Batches of draws, each with its rows among all draws.

        Batches have one size, so that each formula is compiled once, and fit the
        processor's cache.
        """
        size = min(self.draws, 1000)
        return [batch for part in self.parts for batch in part.batches(size)]

    def _losses(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        replay: Float[np.ndarray, " draw"],
    ) -> Float[np.ndarray, "tokens draw"]:
        """Compute the law's log loss at several tokens, each draw at its own replay."""
        losses = np.empty((len(log_tokens), self.draws))
        for batch, rows in self._batches:
            losses[:, rows] = batch.at(replay[rows]).losses(log_tokens)
        return losses

    def log_losses(
        self, log_tokens: float, replay: Float[np.ndarray, " draw"] | float
    ) -> Float[np.ndarray, " draw"]:
        """Compute the law's log loss of each draw, shape (draw,).

        ``replay``: one number, or one for each draw, shape (draw,).
        """
        own_replay = np.broadcast_to(np.asarray(replay, float), self.draws)
        (losses,) = self._losses(np.array([log_tokens]), own_replay)
        return losses

    def log_losses_on_grid(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        replay: Float[np.ndarray, " replay"],
    ) -> Float[np.ndarray, "draw replay tokens"]:
        """Compute the law's log loss, shape (draw, replay, tokens)."""
        losses = np.empty((len(replay), len(log_tokens), self.draws))
        for batch, rows in self._batches:
            losses[..., rows] = batch.losses_on_grid(log_tokens, replay)
        return losses.transpose(2, 0, 1)

    def kept_on_grid(
        self,
        log_tokens: Float[np.ndarray, " tokens"],
        replay: Float[np.ndarray, " replay"],
    ) -> Bool[np.ndarray, "draw replay tokens"]:
        """Tell whether each draw keeps the constraint, shape (draw, replay, tokens)."""
        is_kept = np.empty((len(replay), len(log_tokens), self.draws), bool)
        for batch, rows in self._batches:
            losses = batch.losses_on_grid(log_tokens, replay)
            is_kept[..., rows] = losses <= self.log_limit[rows]
        return is_kept.transpose(2, 0, 1)

    # -- intervals ---------------------------------------------------------------------

    def intervals(self, replay: Float[np.ndarray, " draw"]) -> Intervals:
        """Find the log tokens at which each draw keeps the constraint.

        ``replay``: one for each draw, shape (draw,).
        """
        rungs = ladder(self.span, self.is_wavy)
        results = [
            batch.at(replay[rows]).crossings(self.log_limit[rows], rungs, self.bend)
            for batch, rows in self._batches
        ]
        most = max(some_roots.shape[1] for some_roots, _ in results)
        roots = np.empty((self.draws, most))
        is_kept = np.empty(self.draws, bool)  # at the low end of the span
        for (_, rows), (some_roots, at_low_end) in zip(
            self._batches, results, strict=True
        ):
            roots[rows] = pad_columns(some_roots, most)
            is_kept[rows] = at_low_end
        # Edges alternate: start, end, start, ... A draw that keeps its limit at the low
        # end starts there; the others start at their first root. Their number is even.
        low = np.full((self.draws, 1), self.span[0])
        never = np.full((self.draws, 1), np.inf)
        from_low = np.hstack([low, roots])
        from_root = np.hstack([roots, never])
        edges = np.where(is_kept[:, None], from_low, from_root)
        return edges[:, 0::2], edges[:, 1::2]


def along_draws(
    values: Float[np.ndarray, " draw"], axes: int
) -> Float[np.ndarray, " draw *one"]:
    """Reshape values of shape (draw,) to (draw, 1, ...), to broadcast over ``axes``
    axes.
    """
    return values.reshape(-1, *(1,) * (axes - 1))


# -- shares of draws -------------------------------------------------------------------


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Intersect two unions of intervals, draw by draw.

    Every interval of one is intersected with every interval of the other.
    """
    (a_start, a_end), (b_start, b_end) = a, b
    starts = np.maximum(a_start[:, :, None], b_start[:, None, :])
    ends = np.minimum(a_end[:, :, None], b_end[:, None, :])
    is_empty = starts > ends
    draws = len(starts)
    starts = np.where(is_empty, np.inf, starts).reshape(draws, -1)
    ends = np.where(is_empty, np.inf, ends).reshape(draws, -1)
    # Empty intervals are dropped, so that their number does not grow as a product: the
    # intersection of n and m intervals has at most n + m - 1.
    most = max(int(np.isfinite(starts).sum(axis=1).max()), 1)
    if starts.shape[1] <= most:
        return starts, ends
    order = np.argsort(starts, axis=1, kind="stable")[:, :most]
    return (
        np.take_along_axis(starts, order, axis=1),
        np.take_along_axis(ends, order, axis=1),
    )


def draws_needed(share: float, draws: int) -> int:
    """Count the draws that make up at least this share."""
    # .9 of 10 draws is 9, even if the product rounds up
    needed = np.ceil(share * draws - 1e-9)
    return int(needed)


def cheapest(
    groups: Sequence[Intervals],
    confidence: Sequence[float],
    cap: float,
    most_probable: bool = False,
) -> tuple[float, float]:
    """Find the smallest log tokens, at most ``cap``, at which every group reaches its
    share of draws.

    If none do, or if ``most_probable``: the smallest log tokens with the largest margin.
    The count of draws at x is the number of starts up to x minus ends before x; without
    ends, the answer is the `draws_needed`-th smallest start.

    Returns
    -------
    Log tokens, and the margin: share of draws minus confidence, the least over groups.
    """
    starts = [np.sort(start[np.isfinite(start)]) for start, _ in groups]
    ends = [np.sort(end[np.isfinite(end)]) for _, end in groups]
    # The share of draws rises only where an interval starts: starts are the candidates.
    budgets = starts[0] if len(starts) == 1 else np.sort(np.concatenate(starts))
    budgets = budgets[: np.searchsorted(budgets, cap, "right")]
    if not budgets.size:
        return np.inf, -max(confidence)
    margins = []
    for k, share in enumerate(confidence):
        draws = len(groups[k][0])
        started = np.searchsorted(starts[k], budgets, "right")
        ended = np.searchsorted(ends[k], budgets, "left")
        margins.append((started - ended - draws_needed(share, draws)) / draws)
    margin = np.min(margins, axis=0)
    is_reached = margin >= 0
    if most_probable or not is_reached.any():
        first = np.argmax(margin)
    else:
        first = np.argmax(is_reached)
    return float(budgets[first]), float(margin[first])
