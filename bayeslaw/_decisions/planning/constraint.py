"""A constraint: an upper limit on a loss, or on forgetting, and the unit it is in.

All that depends on the unit is here: a new unit is one more entry of `UNITS`, and
nothing else in the planner knows them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bayeslaw._base.errors import PlanError, RunTableError
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
        """The constraint that a person writes: ``2%``, ``0.05nats``, ``1.8``.

        Parameters
        ----------
        text
            A number. ``%`` says that it is a share of the baseline, ``nats`` that it is
            in nats per token.
        unit
            Of a number without either; with ``"loss"``, the limit is on the loss
            itself.

        Raises
        ------
        PlanError
            It is not a number, or not one that such a limit can be.
        """
        plain = text.strip().lower()
        in_nats, is_share = plain.endswith("nats"), plain.endswith("%")
        try:
            limit = parse_number(plain.removesuffix("nats"))
        except RunTableError as error:
            raise PlanError(f"limit of {name}: {error}") from None
        if unit == "loss":
            if is_share:
                raise PlanError(
                    f"limit of {name} {text}: "
                    "it is a loss in nats per token, not a share"
                )
            return cls(name, limit, unit)
        if in_nats:
            return cls(name, limit, "nats")
        if is_share:
            return cls(name, limit, "relative")
        if unit == "relative":
            check_share(f"limit of {name}", limit, text)
        return cls(name, limit, unit)

    def format(self, limit: float | None = None) -> str:
        """The limit, or another one in its unit, for a person."""
        return UNITS[self.unit].template.format(self.limit if limit is None else limit)


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
