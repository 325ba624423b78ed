"""What runs say about a goal, in the linear-Gaussian approximation.

The log losses of candidates and goal vary together over posterior draws: in principal
coordinates of the draws (and one for each checkpoint's effect) all that is known is a
Gaussian with unit covariance. A measured run adds its rows to the precision. So a set
of runs is a sum of small matrices, whatever its order, and the gain of every run on
offer, up to every point of it, comes from one batched Cholesky factorisation.

With loadings A (measurement, coordinate) and noise covariance R, measuring takes the
precision P to P + A' R^-1 A (Bayesian linear regression: Gelman et al. 2013, BDA3,
section 14.2). It does not depend on what is measured, so the worth of runs is known
before they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Pick = tuple[int, int]
"""A run and the stop it is bought up to."""

FIRST_RANK = 16  # random projections begin with twice as many coordinates


def principal(
    columns: Float[np.ndarray, "draw column"], tolerance: float, seed: int = 0
) -> tuple[Float[np.ndarray, "draw rank"], Float[np.ndarray, "column rank"]]:
    """Principal coordinates of the draws, by random projections (Halko, Martinsson and
    Tropp 2011).

    Parameters
    ----------
    columns
        Draws, shape (draw, column).
    tolerance
        Variance of a column that may be left out.

    Returns
    -------
    Orthonormal coordinates of the draws, shape (draw, rank), and each column's
    loadings, shape (column, rank): their products are the covariances.
    """
    centred = (columns - columns.mean(axis=0)) / np.sqrt(len(columns) - 1)
    basis, loadings = _random_basis(centred, tolerance, seed)
    rank = basis.shape[1]

    # Turned to principal axes, the largest first, what the last ones hold of any column
    # can be left out.
    turn = np.linalg.eigh(loadings.T @ loadings)[1][:, ::-1]
    loadings = loadings @ turn
    by_the_last = np.cumsum(loadings[:, ::-1] ** 2, axis=1)
    left_out = by_the_last.max(axis=0)
    spare = int(np.searchsorted(left_out, tolerance, "right"))
    keep = max(rank - spare, 1)
    return basis @ turn[:, :keep], loadings[:, :keep]


def _random_basis(
    centred: Float[np.ndarray, "draw column"], tolerance: float, seed: int
) -> tuple[Float[np.ndarray, "draw rank"], Float[np.ndarray, "column rank"]]:
    """An orthonormal basis, shape (draw, rank), that leaves at most the tolerance of any
    column's variance out, and the columns' loadings on it, shape (column, rank).
    """
    variance = (centred**2).sum(axis=0)
    rng = np.random.default_rng(seed)
    full = min(centred.shape)
    rank = FIRST_RANK
    while True:
        rank = min(2 * rank, full)
        # The range of A G with a random G holds the leading directions of A (Halko et
        # al. 2011, algorithm 4.1); the rank is doubled until what is missing of every
        # column is small (as in their algorithm 4.2).
        directions = rng.standard_normal((centred.shape[1], rank))
        basis, _ = np.linalg.qr(centred @ directions)
        loadings = centred.T @ basis
        # Pythagoras: the basis is orthonormal.
        missing = variance - (loadings**2).sum(axis=1)
        if rank == full or missing.max() <= tolerance:
            return basis, loadings


@dataclass(frozen=True, eq=False)
class Offer:
    """Runs on offer in principal coordinates.

    Parameters
    ----------
    loadings
        Of each run's measurements in order (several at a stop where there are several
        domains), shape (run, measurement, coordinate); zeros past a run's end.
    noise
        Covariance of a run's measurements given the law and its checkpoint, shape (run,
        measurement, measurement).
    each
        Measurements at a stop.
    cost
        Of a run up to each stop, shape (run, stop); infinite where it is not to be had.
    checkpoint
        Index of each run's checkpoint, shape (run,).
    checkpoint_cost
        What each checkpoint costs if it is used at all, shape (checkpoint,).
    """

    loadings: Float[np.ndarray, "run measurement coordinate"]
    noise: Float[np.ndarray, "run measurement measurement"]
    each: int
    cost: Float[np.ndarray, "run stop"]
    checkpoint: Int[np.ndarray, " run"]
    checkpoint_cost: Float[np.ndarray, " checkpoint"]

    @property
    def coordinates(self) -> int:
        return self.loadings.shape[2]

    def information(self, pick: Pick) -> Float[np.ndarray, "coordinate coordinate"]:
        """What a pick adds to the precision, shape (coordinate, coordinate)."""
        return self._informations[pick]

    @cached_property
    def _informations(self) -> Float[np.ndarray, "run stop coordinate coordinate"]:
        """A' R^-1 A of each run up to each stop, shape (run, stop, coordinate,
        coordinate).
        """
        # With R = L L', the first rows of L^-1 A whiten the first measurements alone,
        # so that sums along the run give every stop at once.
        whitened = np.linalg.solve(np.linalg.cholesky(self.noise), self.loadings)
        at_stop = whitened.reshape(len(whitened), -1, self.each, self.coordinates)
        added = at_stop.transpose(0, 1, 3, 2) @ at_stop
        return np.cumsum(added, axis=1)

    def factors(
        self, covariance: Float[np.ndarray, "coordinate coordinate"]
    ) -> tuple[
        Float[np.ndarray, "run measurement coordinate"],
        Float[np.ndarray, "run measurement measurement"],
    ]:
        """Loadings times a covariance S of the coordinates, A S, shape (run,
        measurement, coordinate), and the Cholesky factor of A S A' + R, how each run's
        measurements will vary, shape (run, measurement, measurement).
        """
        # Before they are made, measurements vary by what is not known of the
        # coordinates and by their own noise: A S A' + R.
        moved = self.loadings @ covariance
        known = moved @ self.loadings.transpose(0, 2, 1)
        predictive = known + self.noise
        return moved, np.linalg.cholesky(predictive)

    def at_stops(
        self, sums: Float[np.ndarray, "run measurement *goal"]
    ) -> Float[np.ndarray, "run stop *goal"]:
        """Of running sums over measurements those at each stop, shape (run,
        measurement, ...) -> (run, stop, ...).
        """
        # The last measurement of each stop closes its sum.
        return sums[:, self.each - 1 :: self.each]

    def price(self, picks: Sequence[Pick]) -> float:
        """Cost of all picks, each checkpoint paid once."""
        used = np.unique([self.checkpoint[run] for run, _ in picks]).astype(int)
        # A checkpoint is trained once, however many runs start from it.
        runs = sum(self.cost[pick] for pick in picks)
        checkpoints = self.checkpoint_cost[used].sum()
        return float(runs + checkpoints)


def precision_of(
    offer: Offer,
    picks: Sequence[Pick],
    start: Float[np.ndarray, "coordinate coordinate"] | None = None,
) -> Float[np.ndarray, "coordinate coordinate"]:
    """Precision of the coordinates once these runs are measured, shape (coordinate,
    coordinate).
    """
    base = np.eye(offer.coordinates) if start is None else start
    if not picks:
        return base
    # Runs are independent given law and checkpoints: their precisions add.
    return base + np.sum([offer.information(p) for p in picks], axis=0)
