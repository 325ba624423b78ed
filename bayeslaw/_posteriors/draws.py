"""Select draws of a mixture by their index among all draws, grouped by formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._posteriors.posterior import Piece

if TYPE_CHECKING:
    from jaxtyping import Int


@dataclass(frozen=True, eq=False)
class Draws:
    """The draws of one formula in a posterior.

    Parameters
    ----------
    piece
        The draws; leaves of shape (row, ...).
    rows
        Their indices among all draws, shape (row,).
    """

    piece: Piece
    rows: Int[np.ndarray, " row"]


def all_draws(pieces: Sequence[Piece]) -> list[Draws]:
    """List the draws of each piece, in the order of the pieces."""
    parts = []
    first = 0  # index of a piece's first draw among all draws
    for piece in pieces:
        rows = np.arange(first, first + piece.draws)
        parts.append(Draws(piece, rows))
        first += piece.draws
    return parts


def take_draws(pieces: Sequence[Piece], index: Int[np.ndarray, " draw"]) -> list[Draws]:
    """Select draws by ``index`` among those of all pieces, by formula."""
    which, place = places(pieces, index)
    parts = []
    for number, piece in enumerate(pieces):
        rows = np.flatnonzero(which == number)
        if rows.size:
            parts.append(Draws(piece.take(place[rows]), rows))
    return parts


def places(
    pieces: Sequence[Piece], index: Int[np.ndarray, " draw"]
) -> tuple[Int[np.ndarray, " draw"], Int[np.ndarray, " draw"]]:
    """Find the piece that holds each draw, and the draw's place in it."""
    ends = np.cumsum([piece.draws for piece in pieces])
    which = np.searchsorted(ends, index, side="right")
    firsts = np.concatenate([[0], ends])
    return which, index - firsts[which]


def pair_draws(
    counts: Sequence[int], rng: np.random.Generator, size: int | None = None
) -> list[Int[np.ndarray, " pair"]]:
    """Pair draws of independent posteriors at random: those of the first in order, with
    those of each other shuffled. ``counts``: their numbers of draws. Returns the
    indices of each one's draws, shape (pair,): ``size`` of them, by default as many as
    the largest number.
    """
    size = max(counts) if size is None else size
    in_order = np.resize(np.arange(counts[0]), size)
    return [in_order, *(shuffled(rng, count, size) for count in counts[1:])]


def shuffled(
    rng: np.random.Generator, draws: int, size: int
) -> Int[np.ndarray, " taken"]:
    """Choose ``size`` indices of draws by permutations of all draws, one after the
    other, shape (size,). So the counts of any two draws differ by one at most.
    """
    permutations = -(-size // draws)
    index = np.tile(np.arange(draws), (permutations, 1))
    permuted = rng.permuted(index, axis=1)
    return permuted.ravel()[:size]
