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

The effect of a checkpoint that no goal is about matters to its own runs only. So the
precision is kept in blocks, one for each such checkpoint of which a run is measured,
and what is known of the rest is a Schur complement (Boyd and Vandenberghe 2004,
appendix A.5.5): a thousand checkpoints on offer cost no more than their runs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Pick = tuple[int, int]
"""A run and the stop it is bought up to."""


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
    centred: Float[np.ndarray, "draw column"],
    tolerance: float,
    seed: int,
    first_rank: int = 32,
) -> tuple[Float[np.ndarray, "draw rank"], Float[np.ndarray, "column rank"]]:
    """Find an orthonormal basis, shape (draw, rank), that leaves at most the tolerance
    of any column's variance out, and the columns' loadings on it, shape (column, rank).
    """
    variance = (centred**2).sum(axis=0)
    rng = np.random.default_rng(seed)
    full = min(centred.shape)
    rank = first_rank
    while True:
        rank = min(rank, full)
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
        rank = 2 * rank


@dataclass(frozen=True, eq=False)
class CheckpointBlock:
    """What measurements say of a checkpoint's effects, which begin with unit precision.

    Parameters
    ----------
    between
        Precision between the coordinates and the effects, shape (coordinate, effect).
    effects
        What is added to that of the effects, shape (effect, effect).
    """

    between: Float[np.ndarray, "coordinate effect"]
    effects: Float[np.ndarray, "effect effect"]

    def __add__(self, block: CheckpointBlock) -> CheckpointBlock:
        return CheckpointBlock(
            self.between + block.between, self.effects + block.effects
        )

    @property
    def precision(self) -> Float[np.ndarray, "effect effect"]:
        """Precision of the effects, the coordinates given."""
        return np.eye(len(self.effects)) + self.effects

    @cached_property
    def covariance(self) -> Float[np.ndarray, "effect effect"]:
        """Covariance of the effects, the coordinates given."""
        return np.linalg.inv(self.precision)

    @cached_property
    def lift(self) -> Float[np.ndarray, "coordinate effect"]:
        """What the effects move by with the coordinates."""
        return -self.between @ self.covariance

    @cached_property
    def added(self) -> Float[np.ndarray, "coordinate coordinate"]:
        """To the precision of the coordinates where the effects are not given."""
        return self.between @ self.lift.T


@dataclass(frozen=True, eq=False)
class Precision:
    """What is known of the coordinates, and of effects of checkpoints beside them.

    Parameters
    ----------
    shared
        Precision of the coordinates, shape (coordinate, coordinate), the effects given.
    blocks
        By checkpoint of which a run is measured, but for those among the coordinates.
    """

    shared: Float[np.ndarray, "coordinate coordinate"]
    blocks: Mapping[int, CheckpointBlock] = field(default_factory=dict)

    @classmethod
    def of(
        cls, precision: Precision | Float[np.ndarray, "coordinate coordinate"]
    ) -> Precision:
        return precision if isinstance(precision, Precision) else cls(precision)

    def __add__(
        self, addend: Precision | Float[np.ndarray, "coordinate coordinate"]
    ) -> Precision:
        more = Precision.of(addend)
        blocks = dict(self.blocks)
        for checkpoint, block in more.blocks.items():
            had = blocks.get(checkpoint)
            blocks[checkpoint] = block if had is None else had + block
        return Precision(self.shared + more.shared, blocks)

    @cached_property
    def marginal(self) -> Float[np.ndarray, "coordinate coordinate"]:
        """Precision of the coordinates, whatever the effects: a Schur complement."""
        return sum((block.added for block in self.blocks.values()), self.shared)

    @property
    def log_det(self) -> float:
        """Logarithm of the determinant, effects included."""
        blocks = [block.precision for block in self.blocks.values()]
        return sum(map(_log_det, (self.marginal, *blocks)))


def _log_det(matrix: Float[np.ndarray, "coordinate coordinate"]) -> float:
    factor = np.linalg.cholesky(matrix)
    log_diagonal = np.log(np.diagonal(factor))
    return float(2 * log_diagonal.sum())


@dataclass(frozen=True, eq=False)
class Offer:
    """Runs on offer in principal coordinates.

    Parameters
    ----------
    loadings
        Loadings of each run's measurements in order (several at a stop where there are several
        domains), shape (run, measurement, coordinate); zeros past a run's end.
    noise
        Covariance of a run's measurements given the law and its checkpoint, shape (run,
        measurement, measurement).
    per_stop
        Measurements at a stop.
    cost
        Cost of a run up to each stop, shape (run, stop); infinite where it is not to be had.
    checkpoint
        Index of each run's checkpoint, shape (run,).
    checkpoint_cost
        What each checkpoint costs if it is used at all, shape (checkpoint,).
    effects
        Loadings on effects of the run's own checkpoint that no goal is about, shape
        (run, measurement, effect); by default there are none.
    """

    loadings: Float[np.ndarray, "run measurement coordinate"]
    noise: Float[np.ndarray, "run measurement measurement"]
    per_stop: int
    cost: Float[np.ndarray, "run stop"]
    checkpoint: Int[np.ndarray, " run"]
    checkpoint_cost: Float[np.ndarray, " checkpoint"]
    effects: Float[np.ndarray, "run measurement effect"] | None = None

    @property
    def coordinates(self) -> int:
        return self.loadings.shape[2]

    @cached_property
    def _effects(self) -> Float[np.ndarray, "run measurement effect"]:
        if self.effects is not None:
            return self.effects
        return np.zeros((*self.loadings.shape[:2], 0))

    @cached_property
    def _runs_of(self) -> list[Int[np.ndarray, " run"]]:
        """The runs of each checkpoint."""
        count = len(self.checkpoint_cost)
        return [np.flatnonzero(self.checkpoint == c) for c in range(count)]

    @cached_property
    def _whitened(self) -> Float[np.ndarray, "run measurement coordinate_and_effect"]:
        # With R = L L', the first rows of L^-1 A whiten the first measurements alone.
        all_loadings = np.concatenate([self.loadings, self._effects], axis=2)
        return np.linalg.solve(np.linalg.cholesky(self.noise), all_loadings)

    def information(self, pick: Pick) -> Precision:
        """What a pick adds to the precision."""
        if pick not in self._informations:
            self._informations[pick] = self._information(*pick)
        return self._informations[pick]

    @cached_property
    def _informations(self) -> dict[Pick, Precision]:
        """Informations of the picks that were asked for."""
        return {}

    def _information(self, run: int, stop: int) -> Precision:
        rows = self._whitened[run, : (stop + 1) * self.per_stop]
        shared, of_effects = np.split(rows, [self.coordinates], axis=1)
        blocks = {}
        if of_effects.any():
            block = CheckpointBlock(shared.T @ of_effects, of_effects.T @ of_effects)
            blocks[int(self.checkpoint[run])] = block
        return Precision(shared.T @ shared, blocks)

    def factors(
        self, precision: Precision | Float[np.ndarray, "coordinate coordinate"]
    ) -> tuple[
        Float[np.ndarray, "run measurement coordinate"],
        Float[np.ndarray, "run measurement measurement"],
    ]:
        """Loadings times the covariance S of the coordinates, A S, shape (run,
        measurement, coordinate), and the Cholesky factor of A S A' + R, how each run's
        measurements will vary, shape (run, measurement, measurement).
        """
        conditions = Precision.of(precision)
        # Before they are made, measurements vary by what is not known of the
        # coordinates and of the checkpoint, and by their own noise.
        loadings, conditional = self.loadings, self._rest
        if conditions.blocks:
            loadings, conditional = loadings.copy(), conditional.copy()
        for checkpoint, block in conditions.blocks.items():
            runs = self._runs_of[checkpoint]
            effects = self._effects[runs]
            loadings[runs] += effects @ block.lift.T
            of_effects = effects @ block.covariance @ effects.transpose(0, 2, 1)
            conditional[runs] = self.noise[runs] + of_effects
        moved = loadings @ np.linalg.inv(conditions.marginal)
        covariance = moved @ loadings.transpose(0, 2, 1) + conditional
        return moved, np.linalg.cholesky(covariance)

    @cached_property
    def _rest(self) -> Float[np.ndarray, "run measurement measurement"]:
        """Covariance of each run's measurements given the coordinates, where nothing is
        measured of its checkpoint.
        """
        return self.noise + self._effects @ self._effects.transpose(0, 2, 1)

    def at_stops(
        self, sums: Float[np.ndarray, "run measurement *goal"]
    ) -> Float[np.ndarray, "run stop *goal"]:
        """Take the running sums at each stop, shape (run,
        measurement, ...) -> (run, stop, ...).
        """
        # The last measurement of each stop closes its sum.
        return sums[:, self.per_stop - 1 :: self.per_stop]

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
) -> Precision:
    """Precision of the coordinates once these runs are measured."""
    # Runs are independent given law and checkpoints: their precisions add.
    precision = Precision(np.eye(offer.coordinates) if start is None else start)
    for pick in picks:
        precision = precision + offer.information(pick)
    return precision
