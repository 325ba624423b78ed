"""Define the value of a set of runs: less variance of a goal, information, a better
choice, a cheaper plan.

The value is computed before the runs are made (preposterior analysis: Raiffa and
Schlaifer 1961; designs by it: Lindley 1956, Chaloner and Verdinelli 1995). In the
linear-Gaussian approximation the posterior's covariance does not depend on the outcome,
so the expectation over outcomes has a closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from bayeslaw._designs.gaussian import Offer, Precision

if TYPE_CHECKING:
    from jaxtyping import Float

# share of the possible gain; smaller gains may be rounding errors, and count as 0
ROUNDING = 1e-9


class Criterion(ABC):
    """The value of a set of runs, from the precision of the coordinates."""

    @abstractmethod
    def value(self, precision: Precision) -> float:
        """Compute the gain of this precision."""

    @abstractmethod
    def gains(
        self, precision: Precision, offer: Offer
    ) -> Float[np.ndarray, "run stop"]:
        """Compute the further gain of each run up to each stop, shape (run, stop)."""

    @property
    def total(self) -> float:
        """Size of the largest possible gain; 1 for gains in nats, which have no limit."""
        return 1.0

    @property
    def rounding(self) -> float:
        """The largest gain that may be a rounding error."""
        return ROUNDING * self.total


@dataclass(frozen=True, eq=False)
class Information(Criterion):
    """Expected information, in nats, about the measurements of the goal's runs; without
    ``goal``, about everything.

    ``goal`` is the precision that measuring the goal's runs would add, shape
    (coordinate, coordinate). Without it the gain is that of a D-optimal design, half
    the logarithm of the precision's determinant (Chaloner and Verdinelli 1995, section
    2.2).

    Let G be ``goal``, and let data raise the precision from I to P. Their mutual
    information with the goal's runs is their information about everything, minus their
    information once the goal's runs are known: ``(log|P| - log|I|) / 2 - (log|P + G| -
    log|I + G|) / 2``.
    """

    goal: Float[np.ndarray, "coordinate coordinate"] | None

    def value(self, precision: Precision) -> float:
        about_all = precision.log_det / 2
        if self.goal is None:
            return about_all
        known_before = Precision(np.eye(len(self.goal)) + self.goal).log_det
        known_after = (precision + Precision(self.goal)).log_det
        return about_all + (known_before - known_after) / 2

    def gains(
        self, precision: Precision, offer: Offer
    ) -> Float[np.ndarray, "run stop"]:
        # A measurement adds log(sd predicted now / sd predicted if the goal's runs were
        # known). If everything is the goal, only noise would be left.
        now = _log_diagonal(offer.factors(precision)[1])
        if self.goal is None:
            if_goal_known = _log_diagonal(np.linalg.cholesky(offer.noise))
        else:
            if_known = precision + Precision(self.goal)
            if_goal_known = _log_diagonal(offer.factors(if_known)[1])
        return np.cumsum(now - if_goal_known, axis=1)[:, offer.last_of_stop]


def _log_diagonal(
    factor: Float[np.ndarray, "run measurement measurement"],
) -> Float[np.ndarray, "run measurement"]:
    return np.log(np.diagonal(factor, axis1=1, axis2=2))


def variances_at(
    precision: Precision, rows: Float[np.ndarray, "goal coordinate"]
) -> Float[np.ndarray, " goal"]:
    """Compute the variance of each goal, from its loadings ``rows``."""
    return (rows * np.linalg.solve(precision.marginal, rows.T).T).sum(axis=1)


@dataclass(frozen=True, eq=False)
class OfGoals(Criterion):
    """A gain from the variances of goals with loadings ``rows``."""

    rows: Float[np.ndarray, "goal coordinate"]

    @abstractmethod
    def worth(self, variances: Float[np.ndarray, "*case goal"]) -> Float[Any, "*case"]:
        """Compute the gain once the goals have these variances, shape (..., goal) ->
        (...).
        """

    def value(self, precision: Precision) -> float:
        return float(self.worth(variances_at(precision, self.rows)))

    def gains(
        self, precision: Precision, offer: Offer
    ) -> Float[np.ndarray, "run stop"]:
        # Measurements with loadings A, noise R lower the variance of r'z, whose
        # covariance is S, by r'S A' (A S A' + R)^-1 A S r (Rasmussen and Williams 2006,
        # eq. 2.26). If L L' is the matrix in brackets, this is the sum of squares of
        # L^-1 A S r. For the first measurements alone it is the sum over their entries,
        # because L is triangular.
        moved, factor = offer.factors(precision)
        squares = np.linalg.solve(factor, moved @ self.rows.T) ** 2
        lowered = np.cumsum(squares, axis=1)[:, offer.last_of_stop]  # (run, stop, goal)
        return self.improve(variances_at(precision, self.rows), lowered)

    def improve(
        self,
        now: Float[np.ndarray, " goal"],
        lowered: Float[np.ndarray, "run stop goal"],
    ) -> Float[np.ndarray, "run stop"]:
        """Compute the further gain if variances are lowered by so much from now."""
        return self.worth(np.maximum(now - lowered, 0.0)) - self.worth(now)


@dataclass(frozen=True, eq=False)
class Variance(OfGoals):
    """Expected reduction of the mean variance of the goals."""

    @property
    def total(self) -> float:
        """Compute the mean variance of the goals before anything is measured."""
        return float((self.rows**2).sum(axis=1).mean())

    def worth(self, variances: Float[np.ndarray, "*case goal"]) -> Float[Any, "*case"]:
        return self.total - variances.mean(axis=-1)

    def improve(
        self,
        now: Float[np.ndarray, " goal"],
        lowered: Float[np.ndarray, "run stop goal"],
    ) -> Float[np.ndarray, "run stop"]:
        # not as a difference, whose rounding would order equal runs
        return lowered.mean(axis=-1)


@dataclass(frozen=True, eq=False)
class Choosing(OfGoals):
    """Expected gain from choosing among options after the runs are measured, in the
    unit of the options' losses.

    Each option is compared with the one that is best on average. The runs will move
    their difference by d, a Gaussian with the variance that the runs take away. If d
    makes the other option the better one, it is chosen. This gains ``E max(d - gap,
    0)`` (the knowledge gradient of Frazier, Powell and Dayanik 2009). The gains are
    added over all other options: exact for two options, an upper bound for more.

    ``rows``: loadings of each other option minus the best one's.
    """

    gap: Float[np.ndarray, " other"]  # mean disadvantage of each other option

    @classmethod
    def between(
        cls,
        rows: Float[np.ndarray, "option coordinate"],
        mean: Float[np.ndarray, " option"],
    ) -> Choosing:
        """Compare options with these loadings and mean losses."""
        best = int(np.argmin(mean))
        competitors = np.delete(np.arange(len(mean)), best)
        return cls(rows[competitors] - rows[best], mean[competitors] - mean[best])

    @property
    def total(self) -> float:
        """Compute the gain of perfect information."""
        return float(self.worth(np.zeros(len(self.rows))))

    def worth(self, variances: Float[np.ndarray, "*case goal"]) -> Float[Any, "*case"]:
        # rounding may make a variance reduction 0 or negative
        learned = (self.rows**2).sum(axis=1) - variances
        sd = np.sqrt(np.maximum(learned, 1e-30))
        z = self.gap / sd
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return (sd * density - self.gap * ndtr(-z)).sum(axis=-1)


@dataclass(frozen=True, eq=False)
class Saving(OfGoals):
    """Expected saving of a plan at the same confidence, in the units of its cost.

    The plan's cost is linear in its constraints' margins on a log scale: ``cost *
    exp(sum_p price_p (z_p (s'_p - s_p) + d_p))``, where s_p and s'_p are the sds of
    constraint p's log loss before and after the new runs, and d_p, with variance s_p^2
    - s'_p^2, is the shift of its mean. This is the expected value of sample information
    (Raiffa and Schlaifer 1961, chapter 4).

    ``rows``: loadings of the constrained log losses at the plan.
    """

    # variance of each constraint that no run lowers (the noise of the planned run)
    unlearnable: Float[np.ndarray, " constraint"]
    # log cost saved for each unit of log loss by which a constraint's limit is raised
    price: Float[np.ndarray, " constraint"]
    z: Float[np.ndarray, " constraint"]  # margin at the plan, in sds
    cost: float  # of the present plan

    def expected_cost(
        self, variances: Float[np.ndarray, "*case constraint"]
    ) -> Float[Any, "*case"]:
        """Compute the expected cost of the plan after the constrained losses have these
        variances, shape (..., constraint) -> (...).
        """
        before = (self.rows**2).sum(axis=1)
        sd_before = np.sqrt(before + self.unlearnable)
        sd_after = np.sqrt(variances + self.unlearnable)
        narrower = self.price * self.z * (sd_after - sd_before)
        # E exp(price d) for a Gaussian d: the mean of a log-normal
        moved = self.price**2 * (before - variances) / 2
        log_ratio = (narrower + moved).sum(axis=-1)
        return self.cost * np.exp(log_ratio)

    def worth(self, variances: Float[np.ndarray, "*case goal"]) -> Float[Any, "*case"]:
        return self.cost - self.expected_cost(variances)

    @property
    def total(self) -> float:
        return self.cost
