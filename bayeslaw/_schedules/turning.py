"""Find turning lengths and critical points (Wang 2025, section 4).

Turning length: steps of adaptation until the source loss is back at its start. Critical
point: step of pre-training after which adaptation never brings the loss back. Both are
computed for every draw, by a grid of steps and bisection to the exact step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import Kind, checked
from bayeslaw._base.numbers import format_count
from bayeslaw._posteriors.answer import Answer, format_probability
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._schedules.phases import (
    ENDLESS,
    Phases,
    both_paths,
    columns_of,
    finished,
    name_of_loss,
    sides_of,
    weighted_loss,
)
from bayeslaw._tables.rates.areas import LAMBDA

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    # the same steps for each draw, or steps of its own
    Steps = Float[np.ndarray, " step"] | Float[np.ndarray, "draw step"]

SAME = 1e-12  # relative difference up to which two losses are equal
RATE = Kind(lambda x: x >= 0, "a rate of at least 0")


def _format_steps(count: float) -> str:
    if math.isinf(count):
        return "never"
    return format_count(count) if count < 1e15 else f"{count:.0e}"


@dataclass(frozen=True, eq=False)
class TurningLength(Answer):
    """Hold the steps of adaptation after which a loss is back at its start: 0 if the
    loss never rises above its start, infinite if it never returns.

    Parameters
    ----------
    planned
        Steps of the given schedule; its last rate, if above 0, continues for ever.
    about
        Name of the loss, in words.
    """

    planned: int
    about: str

    @property
    def never(self) -> float:
        """Compute the probability that the loss never returns."""
        return float(np.mean(np.isinf(self.draws)))

    @property
    def never_above(self) -> float:
        """Compute the probability that the loss never rises above its start."""
        return self.probability(high=0)

    def statement(self) -> str:
        about = self.about[0].upper() + self.about[1:]
        if self.never_above > 0.5:
            return (
                f"{about} never rises above where it was, with probability "
                f"{format_probability(self.never_above)}."
            )
        in_time = format_probability(self.probability(high=self.planned))
        planned = (
            f"within the {_format_steps(self.planned)} steps planned, it returns with "
            f"probability {in_time}"
        )
        never = format_probability(self.never)
        if self.never > 0.5:
            return (
                f"{about} never returns to where it was, with probability {never}; "
                f"{planned}."
            )
        low, high = self.interval
        return (
            f"{about} is back where it was after {_format_steps(self.median)} steps of "
            f"adaptation (90% interval {_format_steps(low)} to {_format_steps(high)}); with "
            f"probability {never} it never is; {planned}."
        )


def turning_length(
    source: Posterior | None,
    phases: Phases,
    *,
    target: Posterior | None = None,
    source_weight: float = 1.0,
    seed: int = 0,
) -> TurningLength:
    """Find the steps of adaptation until the source loss is back at its start (Wang
    2025, section 4.4, fig. 7c).

    The result is the first step at which the loss is no longer above its start, after
    it has been above. With a target, the loss is the weighted sum of eq. 5 (section
    5.1, fig. 13).

    Parameters
    ----------
    source, target
        Posteriors of the losses on the two domains, independent of each other.
    phases
        The schedule. After its end adaptation continues at the last rate, if above 0.
    source_weight
        lambda_1 of eq. 5; the target's weight is 1 - lambda_1.
    seed
        Seed of the pairing of source and target draws.

    Raises
    ------
    PlanError
        The phases have no adaptation, or lack a column that a law reads.

    Examples
    --------
    >>> turning = bayeslaw.turning_length(curves, phases)
    >>> 0 <= turning.never <= 1
    True
    """
    covariates = dict(phases.covariates)
    sides = sides_of(source, target, source_weight, seed, covariates, ("S1_cpt",))
    first, second = both_paths(phases)
    pretrained = finished(first)
    start = weighted_loss(sides, columns_of(pretrained) | covariates)

    def is_above(steps: Steps) -> Bool[np.ndarray, "draw step"]:
        """Tell in each draw whether the loss is above its start."""
        areas = columns_of(pretrained, second.at(steps))
        return weighted_loss(sides, areas | covariates) > start * (1 + SAME)

    grid = second.grid()
    above = is_above(grid)
    back = np.maximum.accumulate(above, axis=1) & ~above
    first_back = np.argmax(back, axis=1)
    last_above = np.maximum(first_back - 1, 0)
    crossing = _bisect(is_above, grid[last_above], grid[first_back])
    # of draws whose loss is never back: infinite if it was above its start, else 0
    never_back = np.where(above.any(axis=1), np.inf, 0.0)
    turning = np.where(back.any(axis=1), crossing, never_back)
    return TurningLength(turning, second.steps, name_of_loss(sides))


def _bisect(
    holds: Callable[[Float[np.ndarray, "draw 1"]], Bool[np.ndarray, "draw 1"]],
    low: Float[np.ndarray, " draw"],
    high: Float[np.ndarray, " draw"],
) -> Float[np.ndarray, " draw"]:
    """Find by bisection the first whole number at which ``holds`` is false, shape
    (draw,); ``holds`` is true at ``low`` and false at ``high``.
    """
    for _ in range(64):
        middle = np.floor((low + high) / 2)
        if (middle <= low).all():
            break
        true = holds(middle[:, None])[:, 0]
        low = np.where(true, middle, low)
        high = np.where(true, high, middle)
    return high


@dataclass(frozen=True, eq=False)
class CriticalPoint(Answer):
    """Hold the step of pre-training after which adaptation never brings the source loss
    back to its start; infinite if there is no such step.

    Parameters
    ----------
    pretrained
        Steps of the given pre-training; its last rate, if above 0, continues for ever.
    start, limit
        Source loss after ``pretrained`` steps, and the loss to which endless adaptation
        converges, shape (draw,).
    """

    pretrained: int
    start: Float[np.ndarray, " draw"]
    limit: Float[np.ndarray, " draw"]

    @property
    def passed(self) -> float:
        """Compute the probability that a pre-training is past the critical point."""
        return float(np.mean(self.limit > self.start * (1 + SAME)))

    def statement(self) -> str:
        low, high = self.interval
        where = (
            f"at step {_format_steps(self.median)} of pre-training (90% interval "
            f"{_format_steps(low)} to {_format_steps(high)})"
        )
        if math.isinf(self.median):
            nowhere = format_probability(self.probability(low=math.inf))
            where = (
                "not reached by pre-training on this schedule, with probability "
                f"{nowhere}"
            )
        return (
            f"The critical point is {where}. With probability "
            f"{format_probability(self.passed)} the {_format_steps(self.pretrained)} steps "
            "given are past it: by adaptation without end the source loss goes from "
            f"{np.median(self.start):.4g} to {np.median(self.limit):.4g} nats per "
            "token (medians)."
        )


def critical_point(
    source: Posterior, phases: Phases, *, final_lr: float | None = None
) -> CriticalPoint:
    """Find the step of pre-training after which adaptation never brings the source loss
    back to its start (Wang 2025, section 4.4, fig. 7c).

    The result is the last step of pre-training whose loss endless adaptation can still
    reach or undercut: the limit is not above that loss. For eq. 4 without annealing it
    is the step at which A S1pt^-alpha = B.

    Parameters
    ----------
    phases
        Pre-training and adaptation. Adaptation has no end here, so only its last rate
        and ``covariates`` matter.
    final_lr
        Rate at the end of adaptation; by default the schedule's last rate. With 0 the
        rate is annealed at the end, which gives the lowest loss.

    Raises
    ------
    PlanError
        Pre-training is unknown, or the phases lack a column that the law reads.

    Examples
    --------
    >>> point = bayeslaw.critical_point(curves, phases)
    >>> 0 <= point.passed <= 1
    True
    """
    covariates = dict(phases.covariates)
    sides = sides_of(source, None, 1.0, 0, covariates, ("S1_cpt",))
    first, second = both_paths(phases)
    if first is None:
        raise PlanError(
            "the critical point is a step of pre-training, whose rates are not given"
        )
    final = second.last if final_lr is None else checked("final_lr", final_lr, RATE)
    peak = max(final, float(second.rates[1:].max()))
    endless = ENDLESS * phases.batch_ratio * peak

    def losses(
        steps: Steps,
    ) -> tuple[Float[np.ndarray, "draw step"], Float[np.ndarray, "draw step"]]:
        """Compute the loss before adaptation, and the limit of endless adaptation."""
        now = first.at(steps)
        # A drop of the rate enters momentum once and decays by lambda at every step, so
        # its sum tends to drop / (1 - lambda). Drops: the momentum carried over from
        # pre-training, and the change to the final rate.
        drops = first.rate(steps) - final
        if phases.carry_momentum:
            drops = drops + LAMBDA * now.momentum
        weight = final**phases.lr_power if phases.lr_power else 1.0
        areas = (endless, weight * drops / (1 - LAMBDA))
        before = weighted_loss(sides, columns_of(now) | covariates)
        limit = weighted_loss(sides, columns_of(now, areas) | covariates)
        return before, limit

    def returns(steps: Steps) -> Bool[np.ndarray, "draw step"]:
        before, limit = losses(steps)
        return limit <= before * (1 + SAME)

    start, limit = losses(np.array([float(first.steps)]))
    # the first whole number after which the limit is always above: infinite if it is not
    # at the grid's end, and 0 if it is everywhere
    grid = first.grid()
    true = returns(grid)
    end = len(grid) - 1
    last = end - np.argmax(true[:, ::-1], axis=1)
    inner = np.minimum(last, end - 1)
    crossing = _bisect(returns, grid[inner], grid[inner + 1])
    reached = np.where(last < end, crossing, np.inf)
    point = np.where(true.any(axis=1), reached, 0.0)
    return CriticalPoint(point, first.steps, start[:, 0], limit[:, 0])
