"""Choosing runs by what they say about a goal, in the linear-Gaussian approximation.

The log losses of candidates and goal vary together over posterior draws: in principal coordinates of the draws (and one
for each checkpoint's effect) all that is known is a Gaussian with unit covariance. A measured run adds its rows to the
precision. So a set of runs is a sum of small matrices, whatever its order, and the gain of every run on offer, up to
every point of it, comes from one batched Cholesky factorisation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np

POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of the cost, by which greedy searches divide gains
SWEEPS = 3  # over the list, dropping each pick and buying again
FEW = 30  # affordable picks of a short menu
SHORT = 10  # picks of a list of which pairs are dropped too

Pick = tuple[int, int]
"""A run and the stop it is bought up to."""


def principal(columns: np.ndarray, tolerance: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Principal coordinates of the draws, by random projections (Halko, Martinsson and Tropp 2011).

    Parameters
    ----------
    columns
        Draws, shape (draw, column).
    tolerance
        Variance of a column that may be left out.

    Returns
    -------
    Orthonormal coordinates of the draws, shape (draw, rank), and each column's loadings, shape (column, rank): their
    products are the covariances.
    """
    x = (columns - columns.mean(axis=0)) / np.sqrt(len(columns) - 1)
    variance, rng, rank = (x**2).sum(axis=0), np.random.default_rng(seed), 16
    while True:
        rank = min(2 * rank, *x.shape)
        q, _ = np.linalg.qr(x @ rng.standard_normal((x.shape[1], rank)))
        loadings = x.T @ q
        if rank == min(x.shape) or (variance - (loadings**2).sum(axis=1)).max() <= tolerance:
            break
    turn = np.linalg.eigh(loadings.T @ loadings)[1][:, ::-1]
    loadings = loadings @ turn
    left_out = np.cumsum(loadings[:, ::-1] ** 2, axis=1).max(axis=0)  # by the last, the last two, ...
    keep = max(rank - int(np.searchsorted(left_out, tolerance, "right")), 1)
    return q @ turn[:, :keep], loadings[:, :keep]


@dataclass(frozen=True, eq=False)
class Offer:
    """Runs on offer in principal coordinates.

    Parameters
    ----------
    loadings
        Of each run's measurements in order (several at a stop where there are several domains), shape (run,
        measurement, coordinate); zeros past a run's end.
    noise
        Covariance of a run's measurements given the law and its checkpoint, shape (run, measurement, measurement).
    each
        Measurements at a stop.
    cost, checkpoint, checkpoint_cost
        As in `Menu`.
    """

    loadings: np.ndarray
    noise: np.ndarray
    each: int
    cost: np.ndarray
    checkpoint: np.ndarray
    checkpoint_cost: np.ndarray

    @property
    def coordinates(self) -> int:
        return self.loadings.shape[2]

    def information(self, pick: Pick) -> np.ndarray:
        """What a pick adds to the precision, shape (coordinate, coordinate)."""
        return self._informations[pick]

    @cached_property
    def _informations(self) -> np.ndarray:
        """Of each run up to each stop, shape (run, stop, coordinate, coordinate)."""
        whitened = np.linalg.solve(np.linalg.cholesky(self.noise), self.loadings)  # row by row along the run
        at_stop = whitened.reshape(len(whitened), -1, self.each, self.coordinates)
        return np.cumsum(at_stop.transpose(0, 1, 3, 2) @ at_stop, axis=1)

    def factors(self, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Loadings times covariance, shape (run, measurement, coordinate), and the Cholesky factor of each run's
        measurements, noise included.
        """
        moved = self.loadings @ covariance
        return moved, np.linalg.cholesky(moved @ self.loadings.transpose(0, 2, 1) + self.noise)

    def price(self, picks: Sequence[Pick]) -> float:
        """Cost of all picks, each checkpoint paid once."""
        used = np.unique([self.checkpoint[run] for run, _ in picks]).astype(int)
        return float(sum(self.cost[p] for p in picks) + self.checkpoint_cost[used].sum())


class Goal(Protocol):
    """What a set of runs is worth, from the precision of the coordinates."""

    def value(self, precision: np.ndarray) -> float:
        """Gain of having this precision."""
        ...

    def gains(self, precision: np.ndarray, offer: Offer) -> np.ndarray:
        """Further gain of each run up to each stop, shape (run, stop)."""
        ...


class Limits(NamedTuple):
    """Budget, how often one run may be bought, and how many picks."""

    budget: float
    replicates: int
    picks: int


def precision_of(offer: Offer, picks: Sequence[Pick], start: np.ndarray | None = None) -> np.ndarray:
    """Precision of the coordinates once these runs are measured."""
    base = np.eye(offer.coordinates) if start is None else start
    return base + np.sum([offer.information(p) for p in picks], axis=0) if picks else base


def choose(offer: Offer, goal: Goal, limits: Limits) -> list[Pick]:
    """The best set of runs found: greedy searches by gain over powers of cost, then exchanges; in order of worth."""
    dear = [int(c) for c in np.flatnonzero(offer.checkpoint_cost > 0) if offer.checkpoint_cost[c] < limits.budget]
    starts = [greedy(offer, goal, limits, power) for power in POWERS]
    starts += [greedy(offer, goal, limits, power, given=c) for c in dear for power in POWERS[::2]]
    if max(map(len, starts)) <= SHORT:
        starts += [greedy(offer, goal, limits, power, bought=[p]) for p in _few(offer, limits) for power in POWERS[::2]]
    best = max(starts, key=lambda picks: goal.value(precision_of(offer, picks)))
    return ordered(offer, goal, exchanged(offer, goal, limits, best))


def _few(offer: Offer, limits: Limits) -> list[Pick]:
    """All affordable picks of a short menu: each is tried as the first (Sviridenko 2004)."""
    cost = _costs_now(offer, set())
    affordable = np.argwhere(cost <= limits.budget)
    return [(int(run), int(stop)) for run, stop in affordable] if len(affordable) <= FEW else []


def greedy(
    offer: Offer, goal: Goal, limits: Limits, power: float, bought: Sequence[Pick] = (), given: int | None = None
) -> list[Pick]:
    """Buy, while the budget lasts, what has the largest gain / cost**power; of that list, the start worth most.

    ``bought`` is had already, and ``given`` is a checkpoint to pay for first.
    """
    picks, precision = list(bought), precision_of(offer, bought)
    spent = offer.price(picks)
    used = {int(offer.checkpoint[run]) for run, _ in picks}
    if given is not None and given not in used:
        used, spent = used | {given}, spent + offer.checkpoint_cost[given]
    counts = np.bincount([run for run, _ in picks], minlength=len(offer.cost))
    worth = [goal.value(precision)]
    while len(picks) < limits.picks:
        cost = _costs_now(offer, used)
        open_ = (cost <= (limits.budget - spent) * (1 + 1e-12)) & (counts < limits.replicates)[:, None]
        if not open_.any():
            break
        scores = np.where(open_, _score(goal.gains(precision, offer), cost, power), -np.inf)
        run, stop = np.unravel_index(np.argmax(scores), cost.shape)
        pick = (int(run), int(stop))
        picks.append(pick)
        precision = precision + offer.information(pick)
        worth.append(goal.value(precision))
        spent, counts[run] = spent + cost[pick], counts[run] + 1
        used.add(int(offer.checkpoint[run]))
    return picks[: len(bought) + int(np.argmax(worth))]


def what_fits(offer: Offer, picks: Sequence[Pick], limits: Limits) -> tuple[bool, bool]:
    """Whether any run fits the rest of the budget, and whether one does that has not been bought as often as allowed."""
    cost = _costs_now(offer, {int(offer.checkpoint[run]) for run, _ in picks}).min(axis=1)
    fits = cost <= limits.budget - offer.price(list(picks))
    often = np.bincount([run for run, _ in picks], minlength=len(cost)) >= limits.replicates
    return bool(fits.any()), bool((fits & ~often).any())


def _costs_now(offer: Offer, used: set[int]) -> np.ndarray:
    """Cost of each run up to each stop, with its checkpoint unless that is paid."""
    due = offer.checkpoint_cost.copy()
    due[list(used)] = 0.0
    return offer.cost + due[offer.checkpoint][:, None]


def _score(gains: np.ndarray, cost: np.ndarray, power: float) -> np.ndarray:
    """Gain per cost**power; what costs nothing is taken to cost a trifle. Past a run's end there is nothing to gain."""
    real = np.isfinite(cost)
    trifle = 1e-9 * np.min(cost[real & (cost > 0)], initial=np.inf)
    return gains / np.maximum(np.where(real, cost, 1.0), trifle if np.isfinite(trifle) else 1.0) ** power


def exchanged(offer: Offer, goal: Goal, limits: Limits, picks: list[Pick]) -> list[Pick]:
    """Drop each pick in turn (of short lists each pair) and spend what it cost anew, as long as that is better."""
    best, worth = list(picks), goal.value(precision_of(offer, picks))
    for _ in range(SWEEPS):
        before = worth
        singles = [(p,) for p in sorted(set(best))]
        pairs = sorted(set(combinations(sorted(best), 2))) if len(best) <= SHORT else []
        for dropped in [*singles, *pairs]:
            if Counter(dropped) - Counter(best):
                continue  # sold already
            rest = list((Counter(best) - Counter(dropped)).elements())
            for power in POWERS[::2]:
                other = greedy(offer, goal, limits, power, bought=rest)
                if (value := goal.value(precision_of(offer, other))) > worth * (1 + 1e-9):
                    best, worth = other, value
        if worth <= before * (1 + 1e-3):
            break
    return best


def ordered(offer: Offer, goal: Goal, picks: Sequence[Pick]) -> list[Pick]:
    """The same picks, each the best gain for its cost after those before it."""
    left, out, precision, used = sorted(picks), [], np.eye(offer.coordinates), set()
    while left:
        cost = _costs_now(offer, used)
        scores = _score(goal.gains(precision, offer), cost, 1.0)
        out.append(max(left, key=lambda p: scores[p]))
        left.remove(out[-1])
        precision = precision + offer.information(out[-1])
        used.add(int(offer.checkpoint[out[-1][0]]))
    return out


# -- goals -----------------------------------------------------------------------------------------------------------


def _reductions(precision: np.ndarray, offer: Offer, rows: np.ndarray) -> np.ndarray:
    """By how much each run up to each stop lowers the variance of each goal, shape (run, stop, goal)."""
    moved, factor = offer.factors(np.linalg.inv(precision))
    each = np.linalg.solve(factor, moved @ rows.T) ** 2
    return np.cumsum(each, axis=1)[:, offer.each - 1 :: offer.each]


def _variances(precision: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Variance of each goal, shape (goal,)."""
    return (rows * np.linalg.solve(precision, rows.T).T).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Variance:
    """Expected reduction of the mean variance of the goals; ``rows``: their loadings, shape (goal, coordinate)."""

    rows: np.ndarray

    def value(self, precision: np.ndarray) -> float:
        return float((self.rows**2).sum(axis=1).mean() - _variances(precision, self.rows).mean())

    def gains(self, precision: np.ndarray, offer: Offer) -> np.ndarray:
        return _reductions(precision, offer, self.rows).mean(axis=2)


@dataclass(frozen=True, eq=False)
class Information:
    """Expected information, in nats, about what the goal's runs will measure; without ``goal``, about everything.

    ``goal`` is what measuring the goal's runs would add to the precision. Without it the gain is that of a D-optimal
    design.
    """

    goal: np.ndarray | None

    def value(self, precision: np.ndarray) -> float:
        about_all = _log_det(precision) / 2
        if self.goal is None:
            return about_all
        return about_all + (_log_det(np.eye(len(self.goal)) + self.goal) - _log_det(precision + self.goal)) / 2

    def gains(self, precision: np.ndarray, offer: Offer) -> np.ndarray:
        scale = _log_diagonal(offer.factors(np.linalg.inv(precision))[1])
        if self.goal is None:
            base = _log_diagonal(np.linalg.cholesky(offer.noise))
        else:
            base = _log_diagonal(offer.factors(np.linalg.inv(precision + self.goal))[1])
        return np.cumsum(scale - base, axis=1)[:, offer.each - 1 :: offer.each]


def _log_det(matrix: np.ndarray) -> float:
    return float(2 * np.log(np.diagonal(np.linalg.cholesky(matrix))).sum())


def _log_diagonal(factor: np.ndarray) -> np.ndarray:
    return np.log(np.diagonal(factor, axis1=1, axis2=2))


@dataclass(frozen=True, eq=False)
class Saving:
    """Expected saving of a plan at the same confidence, in its own units.

    The plan's cost is linear in its promises' margins on a log scale: ``cost * exp(sum_p price_p (z_p (s'_p - s_p) +
    d_p))``, where s_p and s'_p are the sds of promise p's log loss before and after the new runs, and d_p, of variance
    s_p^2 - s'_p^2, is how far they will move its mean. The value of sample information (Raiffa and Schlaifer 1961).

    Parameters
    ----------
    rows
        Loadings of the promised log losses at the plan, shape (promise, coordinate).
    rest
        Variance of each that no run lowers (the noise of the run to plan), shape (promise,).
    price
        Log cost saved per unit of log loss by which a promise's limit were higher, shape (promise,).
    z
        Sds by which each promise is kept at the plan, shape (promise,).
    cost
        Of the plan as it stands.
    """

    rows: np.ndarray
    rest: np.ndarray
    price: np.ndarray
    z: np.ndarray
    cost: float

    def expected_cost(self, variances: np.ndarray) -> np.ndarray:
        """Of the plan made once the promises have these variances, shape (..., promise) -> (...)."""
        before = (self.rows**2).sum(axis=1)
        shorter = np.sqrt(variances + self.rest) - np.sqrt(before + self.rest)
        moved = self.price**2 * (before - variances) / 2
        return self.cost * np.exp((self.price * self.z * shorter + moved).sum(axis=-1))

    def value(self, precision: np.ndarray) -> float:
        return self.cost - float(self.expected_cost(_variances(precision, self.rows)))

    def gains(self, precision: np.ndarray, offer: Offer) -> np.ndarray:
        now = _variances(precision, self.rows)
        after = np.maximum(now - _reductions(precision, offer, self.rows), 0.0)
        return self.expected_cost(now) - self.expected_cost(after)
