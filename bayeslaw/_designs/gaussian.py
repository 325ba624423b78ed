"""Compute the information of runs about a goal, in the linear-Gaussian approximation.

Log losses of candidate runs and of the goal are correlated over posterior draws. In
principal coordinates of the draws (and one per checkpoint effect) the posterior is
approximated by a standard Gaussian. A measured run adds a small matrix to the
precision; the order of runs does not matter. One batched Cholesky factorisation gives
the gain of every run on offer at every stop.

With loadings A (measurement, coordinate) and noise covariance R, measuring changes the
precision P to P + A' R^-1 A (Bayesian linear regression: Gelman et al. 2013, BDA3,
section 14.2). The change does not depend on the measured values, so the worth of a run
is computed before the run.

Effects of a checkpoint outside the goal act on its runs only. Each such checkpoint with
measured runs has one block of precision, and a Schur complement integrates the blocks
out (Boyd and Vandenberghe 2004, appendix A.5.5). Other checkpoints cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._base.streams import Stream, generator
from bayeslaw._designs.menu import Pick, Priced

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def principal(
    columns: Float[np.ndarray, "draw column"], tolerance: float, seed: int = 0
) -> tuple[Float[np.ndarray, "draw rank"], Float[np.ndarray, "column rank"]]:
    """Compute principal coordinates of the draws, by random projections (Halko,
    Martinsson and Tropp 2011).

    ``columns``: draws, shape (draw, column). ``tolerance``: variance of a column that
    may be lost.

    Returns
    -------
    Orthonormal coordinates of the draws, shape (draw, rank), and loadings L of the
    columns, shape (column, rank): L L' is the covariance of the columns.
    """
    centred = (columns - columns.mean(axis=0)) / np.sqrt(len(columns) - 1)
    variance = (centred**2).sum(axis=0)
    rng = generator(seed, Stream.BASIS)
    full, rank = min(centred.shape), 32
    while True:
        rank = min(rank, full)
        # The range of A G with a random G holds the leading directions of A (Halko et
        # al. 2011, algorithm 4.1). The rank doubles until every column's missing
        # variance is small (as in their algorithm 4.2).
        directions = rng.standard_normal((centred.shape[1], rank))
        basis, _ = np.linalg.qr(centred @ directions)
        loadings = centred.T @ basis
        # the basis is orthonormal, so squared loadings add up to the variance they
        # explain
        missing = variance - (loadings**2).sum(axis=1)
        if rank == full or missing.max() <= tolerance:
            break
        rank = 2 * rank
    # Rotate to principal axes, the largest first. Drop the last axes while no column
    # loses more variance than the tolerance.
    rotation = np.linalg.eigh(loadings.T @ loadings)[1][:, ::-1]
    loadings = loadings @ rotation
    lost = np.cumsum(loadings[:, ::-1] ** 2, axis=1).max(axis=0)
    dropped = int(np.searchsorted(lost, tolerance, "right"))
    keep = max(rank - dropped, 1)
    return basis @ rotation[:, :keep], loadings[:, :keep]


@dataclass(frozen=True, eq=False)
class Precision:
    """Joint precision of the coordinates and of the checkpoints' effects."""

    # of the coordinates given the effects
    shared: Float[np.ndarray, "coordinate coordinate"]
    # of measured checkpoints whose effects are not coordinates, by index: precision
    # between coordinates and effects, and below it that added to the effects' prior I
    blocks: Mapping[int, Float[np.ndarray, "coordinate_and_effect effect"]] = field(
        default_factory=dict
    )

    def __add__(self, more: Precision) -> Precision:
        blocks = dict(self.blocks)
        for checkpoint, block in more.blocks.items():
            blocks[checkpoint] = blocks.get(checkpoint, 0.0) + block
        return Precision(self.shared + more.shared, blocks)

    @cached_property
    def given(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """By checkpoint the covariance of its effects given the coordinates x, and
        their regression on these: E[effects | x] = lift' x.
        """
        given = {}
        for checkpoint, block in self.blocks.items():
            between, own = np.split(block, [len(self.shared)])
            covariance = np.linalg.inv(np.eye(len(own)) + own)
            given[checkpoint] = covariance, -between @ covariance
        return given

    @cached_property
    def marginal(self) -> Float[np.ndarray, "coordinate coordinate"]:
        """Marginal precision of the coordinates: a Schur complement."""
        added = [
            self.blocks[checkpoint][: len(self.shared)] @ lift.T
            for checkpoint, (_, lift) in self.given.items()
        ]
        return sum(added, self.shared)

    @property
    def log_det(self) -> float:
        """Log determinant of the joint precision."""
        of_effects = [np.linalg.slogdet(given)[1] for given, _ in self.given.values()]
        return float(np.linalg.slogdet(self.marginal)[1] - sum(of_effects))


@dataclass(frozen=True, eq=False)
class Offer(Priced):
    """Runs on offer in principal coordinates."""

    # loadings of each run's measurements in order of stops (one per domain at a stop);
    # zeros after a run's end
    loadings: Float[np.ndarray, "run measurement coordinate"]
    # covariance of a run's measurements given law and checkpoint
    noise: Float[np.ndarray, "run measurement measurement"]
    per_stop: int  # number of measurements at a stop
    # loadings on effects of the run's checkpoint that are not in the goal
    effects: Float[np.ndarray, "run measurement effect"]

    @property
    def coordinates(self) -> int:
        return self.loadings.shape[2]

    @cached_property
    def _whitened(self) -> Float[np.ndarray, "run measurement coordinate_and_effect"]:
        # With R = L L', the first k rows of L^-1 A whiten the first k measurements,
        # because L is triangular.
        all_loadings = np.concatenate([self.loadings, self.effects], axis=2)
        return np.linalg.solve(np.linalg.cholesky(self.noise), all_loadings)

    def given(self, had: Bool[np.ndarray, "run measurement"]) -> Offer:
        """Condition the runs on measurements that already exist. ``had``: mask of these
        measurements, shape (run, measurement). They give no further information.
        """
        # Conditioning of Gaussians (Rasmussen and Williams 2006, eq. A.6). Measurements
        # that do not exist get variance 1 and covariance 0, so they have no effect.
        is_had = had[:, :, None] * 1.0
        eye = np.eye(had.shape[1])
        covariance = self.noise * (is_had * had[:, None, :]) + eye * (1.0 - is_had)
        weights = np.linalg.solve(covariance, is_had * self.noise).transpose(0, 2, 1)
        # loadings of existing measurements cancel, up to rounding
        is_missing = 1.0 - is_had
        noise = (
            is_missing
            * (self.noise - weights @ self.noise)
            * is_missing.transpose(0, 2, 1)
        )
        return replace(
            self,
            loadings=is_missing * (self.loadings - weights @ self.loadings),
            noise=noise + eye * is_had,
            effects=is_missing * (self.effects - weights @ self.effects),
        )

    def going_on(self, picks: Sequence[Pick]) -> Offer:
        """Offer to continue bought runs to later stops, at the difference in cost."""
        runs, stops = np.array(picks).T
        paid = self.cost[runs, stops]
        later = np.arange(self.cost.shape[1]) > stops[:, None]
        offer = replace(
            self,
            loadings=self.loadings[runs],
            noise=self.noise[runs],
            cost=np.where(later, self.cost[runs] - paid[:, None], np.inf),
            checkpoint=self.checkpoint[runs],
            checkpoint_cost=np.zeros(len(self.checkpoint_cost)),
            effects=self.effects[runs],
        )
        return offer.given(np.repeat(~later, self.per_stop, axis=1))

    def information(self, pick: Pick) -> Precision:
        """Compute the precision that a run up to a stop adds."""
        run, stop = pick
        rows = self._whitened[run, : (stop + 1) * self.per_stop]
        shared, of_effects = np.split(rows, [self.coordinates], axis=1)
        blocks = {}
        if of_effects.any():
            blocks[int(self.checkpoint[run])] = rows.T @ of_effects
        return Precision(shared.T @ shared, blocks)

    def factors(
        self, precision: Precision
    ) -> tuple[
        Float[np.ndarray, "run measurement coordinate"],
        Float[np.ndarray, "run measurement measurement"],
    ]:
        """Compute A S, shape (run, measurement, coordinate), with S the coordinates'
        covariance, and the Cholesky factor of each run's predictive covariance
        A S A' + R, shape (run, measurement, measurement).
        """
        # Predictive covariance = coordinates' part + checkpoint effects' part + noise.
        # Effects of measured checkpoints are regressed on the coordinates first.
        loadings, conditional = self.loadings, self._conditional
        if precision.blocks:
            loadings, conditional = loadings.copy(), conditional.copy()
        for checkpoint, (known, lift) in precision.given.items():
            runs = np.flatnonzero(self.checkpoint == checkpoint)
            effects = self.effects[runs]
            loadings[runs] += effects @ lift.T
            of_effects = effects @ known @ effects.transpose(0, 2, 1)
            conditional[runs] = self.noise[runs] + of_effects
        moved = loadings @ np.linalg.inv(precision.marginal)
        covariance = moved @ loadings.transpose(0, 2, 1) + conditional
        return moved, np.linalg.cholesky(covariance)

    @cached_property
    def _conditional(self) -> Float[np.ndarray, "run measurement measurement"]:
        """Covariance of measurements given coordinates, of new checkpoints."""
        return self.noise + self.effects @ self.effects.transpose(0, 2, 1)

    @property
    def last_of_stop(self) -> slice:
        """The last measurement of each stop."""
        return slice(self.per_stop - 1, None, self.per_stop)


def precision_of(offer: Offer, picks: Sequence[Pick]) -> Precision:
    """Compute the precision after measuring these runs."""
    # Precisions add: runs are independent given the law and the checkpoints.
    return sum(map(offer.information, picks), Precision(np.eye(offer.coordinates)))
