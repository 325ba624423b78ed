"""The two phases of a training, their learning rates and areas: what a question about loss curves is asked of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bayeslaw._errors import PlanError
from bayeslaw._schedule import LAMBDA, Areas, areas

ENDLESS = 1e18  # steps: a loss that is not back within them never is
INSIDE, AFTER = 1000, 480  # steps looked at within a schedule and after its end


@dataclass(frozen=True, eq=False)
class Phases:
    """Learning rates of both phases of training, and what else the laws read.

    Parameters
    ----------
    pretraining
        Rates at steps 1, 2, ..., shape (step,), as `bayeslaw._schedule` makes them; None where it is unknown (laws of
        `open_weights`: the last rate is then taken as 0).
    adaptation
        Rates of the adaptation phase, shape (step,); None for a curve of pre-training only.
    covariates
        Other columns the laws read, such as ``{"replay": 0.25}`` or ``{"N": 1e9}``.
    carry_momentum, lr_power, batch_ratio
        As in `schedule_areas`: those of the tables that the laws were fitted to.

    Raises
    ------
    PlanError
        No rates, or rates or covariates that are no numbers.
    """

    pretraining: np.ndarray | None
    adaptation: np.ndarray | None = None
    covariates: Mapping[str, float] = field(default_factory=dict)
    carry_momentum: bool = True
    lr_power: float = 0.0
    batch_ratio: float = 1.0

    def __post_init__(self) -> None:
        if self.pretraining is None and self.adaptation is None:
            raise PlanError("phases need the learning rates of pre-training, of adaptation, or of both")
        for name in ("pretraining", "adaptation"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _rates(name, getattr(self, name)))
        object.__setattr__(self, "covariates", {c: number(c, v) for c, v in self.covariates.items()})
        if not number("batch_ratio", self.batch_ratio) > 0:
            raise PlanError(f"batch_ratio must be above 0, got {self.batch_ratio!r}")
        number("lr_power", self.lr_power)


def _rates(name: str, given: Any) -> np.ndarray:
    try:
        rates = np.asarray(given, float)
    except (TypeError, ValueError):
        rates = np.array(np.nan)
    if rates.ndim != 1 or not len(rates) or not np.isfinite(rates).all() or (rates < 0).any():
        raise PlanError(f"{name} must be learning rates at steps 1, 2, ...: numbers of at least 0 in one dimension")
    return rates


def number(name: str, given: Any) -> float:
    """A finite number, or a refusal that names it."""
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise PlanError(f"{name} must be a number, got {given!r}"[:200])
    return value


class Path(NamedTuple):
    """Areas after any number of steps of one phase, which goes on at its last rate when its schedule is over."""

    rates: np.ndarray  # at steps 0, 1, ...
    areas: Areas  # after steps 0, 1, ...
    weight: float  # of the momentum, at the last rate
    batch_ratio: float

    @property
    def steps(self) -> int:
        return len(self.rates) - 1

    @property
    def last(self) -> float:
        return float(self.rates[-1])

    def at(self, steps: Any) -> Areas:
        """Areas and momentum, of the shape of ``steps``, which may go beyond the schedule."""
        steps = np.asarray(steps, float)
        i = np.minimum(steps, self.steps).astype(int)
        more = self.batch_ratio * np.maximum(steps - self.steps, 0)
        left = LAMBDA**more
        s1, s2, momentum = (a[i] for a in self.areas)
        fading = self.weight * LAMBDA / (1 - LAMBDA) * momentum * (1 - left)
        return Areas(s1 + more * self.last, s2 + np.where(more > 0, fading, 0.0), momentum * left)

    def rate(self, steps: Any) -> np.ndarray:
        """Learning rate at a step."""
        return self.rates[np.minimum(steps, self.steps).astype(int)]

    def grid(self) -> np.ndarray:
        """Steps to look at: all parts of the schedule, its beginning closely, and after it up to no end."""
        inside = np.concatenate([np.linspace(1, self.steps, INSIDE // 2), np.geomspace(1, self.steps, INSIDE // 2)])
        beyond = self.steps + np.geomspace(1, ENDLESS, AFTER) if self.last > 0 else []
        return np.unique(np.round(np.concatenate([inside, beyond])))


def _path(
    rates: np.ndarray, phases: Phases, before: float = 0.0, momentum: float = 0.0, batch_ratio: float = 1.0
) -> Path:
    power = phases.lr_power
    summed = areas(rates, before=before, momentum=momentum, lr_power=power, batch_ratio=batch_ratio)
    start = (0.0, 0.0, momentum)
    from_0 = Areas(*(np.concatenate([[s], a]) for s, a in zip(start, summed, strict=True)))
    return Path(np.concatenate([[before], rates]), from_0, rates[-1] ** power if power else 1.0, batch_ratio)


def paths(phases: Phases) -> tuple[Path | None, Path | None]:
    """Pre-training and adaptation, which starts from the last rate and momentum of pre-training."""
    first = None if phases.pretraining is None else _path(phases.pretraining, phases)
    if phases.adaptation is None:
        return first, None
    momentum = float(first.areas.momentum[-1]) if first and phases.carry_momentum else 0.0
    return first, _path(phases.adaptation, phases, first.last if first else 0.0, momentum, phases.batch_ratio)


def columns_of(first: Areas | None, second: Any = (0.0, 0.0)) -> dict[str, np.ndarray]:
    """Areas of both phases by the name of their column, of one shape; before adaptation its areas are 0."""
    named: dict[str, Any] = {} if first is None else {"S1_pt": first.S1, "S2_pt": first.S2}
    named |= {"S1_cpt": second[0], "S2_cpt": second[1]}
    return dict(zip(named, np.broadcast_arrays(*map(np.asarray, named.values())), strict=True))


def both_paths(phases: Phases) -> tuple[Path | None, Path]:
    """The paths of phases that must have an adaptation."""
    first, second = paths(phases)
    if second is None:
        raise PlanError("the phases have no adaptation: Phases(pretraining, adaptation)")
    return first, second


def finished(path: Path | None) -> Areas | None:
    """Areas after the schedule of a phase, if it is known."""
    return None if path is None else path.at(path.steps)


def after_both(phases: Phases) -> dict[str, np.ndarray]:
    """Areas after both schedules, scalars."""
    first, second = both_paths(phases)
    return columns_of(finished(first), second.at(second.steps))
