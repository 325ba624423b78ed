"""A constraint: an upper limit on a loss, or on forgetting, and the unit it is in.

All that depends on the unit is here: a new unit is one more entry of `UNITS`, and
nothing else in the planner knows them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.limits import LARGEST_LOSS, LARGEST_SHARE, LOSS, checked
from bayeslaw._base.numbers import parse_number

UnitName = Literal["loss", "relative", "nats"]


class Unit(NamedTuple):
    """What a limit limits, as functions of a loss and its baseline.

    Losses and baselines are in nats per token, arrays that broadcast or numbers.
    """

    outcome: Callable[[Any, Any], Any]
    """What is limited, from (loss, baseline)."""
    most_loss: Callable[[Any, Any], Any]
    """The loss at the limit, from (limit, baseline)."""
    size: Callable[[float, float], float]
    """The whole loss in this unit, from (limit, mean baseline)."""
    template: str
    """How a limit is printed."""
    has_baseline: bool = True
    """Whether the loss before adaptation matters."""


UNITS: dict[UnitName, Unit] = {
    "loss": Unit(
        outcome=lambda loss, baseline: loss,
        most_loss=lambda limit, baseline: limit,
        size=lambda limit, baseline: limit,
        template="{:.4g} nats",
        has_baseline=False,
    ),
    "relative": Unit(
        outcome=lambda loss, baseline: loss / baseline - 1,
        most_loss=lambda limit, baseline: baseline * (1 + limit),
        size=lambda limit, baseline: 1.0,
        template="{:.2%}",
    ),
    "nats": Unit(
        outcome=lambda loss, baseline: loss - baseline,
        most_loss=lambda limit, baseline: baseline + limit,
        size=lambda limit, baseline: baseline,
        template="{:.4g} nats",
    ),
}


@dataclass(frozen=True)
class Constraint:
    """An upper limit on what one posterior forecasts.

    Parameters
    ----------
    name
        ``"target"``, or the name of a source.
    limit
        Nats per token for a loss; for forgetting a share of the baseline (0.02 is 2%),
        or nats per token above it.
    unit
        ``"loss"``, ``"relative"`` or ``"nats"``.
    """

    name: str
    limit: float
    unit: UnitName

    @classmethod
    def parse(cls, name: str, text: str, unit: UnitName = "relative") -> Constraint:
        """Parse the constraint that a person writes: ``2%``, ``0.05nats``, ``1.8``.

        Parameters
        ----------
        text
            A number. ``%`` says that it is a share of the baseline, ``nats`` that it is
            in nats per token.
        unit
            Unit of a number without either; with ``"loss"``, the limit is on the loss
            itself.

        Raises
        ------
        PlanError
            It is not a number, or not one that such a limit can be.
        """
        what = f"limit of {name}"
        if unit == "loss":
            plain = text.strip().lower().removesuffix("nats")
            return cls(name, checked(what, plain, LOSS), unit)
        return cls(name, *forgetting_limit(what, text, unit))

    def format(self, limit: float | None = None) -> str:
        """Write the limit, or another one in its unit, for a person."""
        return UNITS[self.unit].template.format(self.limit if limit is None else limit)


def forgetting_limit(
    what: str, written: object, unit: UnitName = "relative"
) -> tuple[float, UnitName]:
    """Read a limit on forgetting and its unit: of a number in this one, or of text that
    says its own (``2%``, ``0.05nats``).

    Parameters
    ----------
    what
        What it is called where it was given.

    Raises
    ------
    PlanError
        It is no number, or none that such a limit can be.
    """
    limit: Any = written
    is_bare = True
    if isinstance(written, str):
        plain = written.strip().lower()
        in_nats, is_share = plain.endswith("nats"), plain.endswith("%")
        is_bare = not (in_nats or is_share)
        if not is_bare:
            unit = "nats" if in_nats else "relative"
        try:
            limit = parse_number(plain.removesuffix("nats"), counts=False)
        except RunTableError as error:
            raise PlanError(f"{what}: {error}") from None
    least, most = (
        (-1.0, LARGEST_SHARE) if unit == "relative" else (-LARGEST_LOSS, LARGEST_LOSS)
    )
    is_number = isinstance(limit, int | float | np.number)
    if is_number and is_bare and unit == "relative":
        check_share(what, float(limit), written)
    if not (is_number and least < limit <= most):  # a NaN is neither
        raise PlanError(
            f"{what} must be a number over {least:g} and at most {most:g} (0.02 is 2%), "
            f"got {written!r}"
        )
    return float(limit), unit


def check_share(what: str, limit: float, written: object) -> None:
    """Refuse a bare number of 1 or more as a share of the baseline: a loss does not
    double, so percent are meant. With its sign, 150% may be asked for.

    Raises
    ------
    PlanError
        What to write instead.
    """
    if limit >= 1:
        raise PlanError(
            f"{what} {written} is {limit:.0%}; write {written}% or {limit / 100:g}"
        )
