"""Draws of a mixture: taken by their number among all, and grouped by formula."""

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
    """Draws of one formula among those of a posterior.

    Parameters
    ----------
    piece
        The draws; leaves of shape (row, ...).
    rows
        Which of all draws they are, shape (row,).
    """

    piece: Piece
    rows: Int[np.ndarray, " row"]


def all_draws(pieces: Sequence[Piece]) -> list[Draws]:
    """The draws of each piece, in the order of the pieces."""
    parts = []
    first = 0  # of a piece's draws among all
    for piece in pieces:
        rows = np.arange(first, first + piece.draws)
        parts.append(Draws(piece, rows))
        first += piece.draws
    return parts


def take_draws(pieces: Sequence[Piece], index: Int[np.ndarray, " draw"]) -> list[Draws]:
    """The draws ``index``, shape (draw,), of all that the pieces have; of each formula
    that has some of them.
    """
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
    """The piece that holds each draw, and the draw's place in it, each of shape
    (draw,), as ``index``.
    """
    ends = np.cumsum([piece.draws for piece in pieces])
    which = np.searchsorted(ends, index, side="right")
    firsts = np.concatenate([[0], ends])
    return which, index - firsts[which]


def shuffled(
    rng: np.random.Generator, draws: int, size: int
) -> Int[np.ndarray, " taken"]:
    """Indices of draws in random order, shape (size,): permutations of all, one after
    the other.

    Each draw so comes as often as any other, or once more.
    """
    permutations = -(-size // draws)
    index = np.tile(np.arange(draws), (permutations, 1))
    permuted = rng.permuted(index, axis=1)
    return permuted.ravel()[:size]
