"""Define a constraint: an upper limit on a loss, or on forgetting, with its unit.

A new unit is one more entry of `UNITS`: planner, page and plots read what depends on a
unit there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.limits import (
    KINDS,
    LARGEST_LOSS,
    LARGEST_SHARE,
    LOSS,
    NUMBER,
    PERPLEXITY,
    RISE,
    check_share,
    checked,
)
from bayeslaw._base.numbers import parse_number

UnitName = Literal["loss", "relative", "nats", "error"]
ENDINGS = ("ppl", "bpb", "nats", "%")  # of a limit's text, by which it says its unit


class Unit(NamedTuple):
    """The quantity that a limit bounds, as functions of a loss and its baseline.

    Losses and baselines are in nats per token, arrays that broadcast or numbers.
    """

    outcome: Callable[[Any, Any], Any]  # what is limited, from (loss, baseline)
    most_loss: Callable[[Any, Any], Any]  # at the limit, from (limit, baseline)
    # the whole loss in this unit, from (limit, mean baseline)
    size: Callable[[float, float], float]
    template: str  # how a limit is printed
    quantity: str  # what is limited, on an axis
    has_baseline: bool = True  # whether the loss before adaptation matters
    is_share: bool = False  # whether people write it in percent
    # on which the page's map interpolates outcomes; None: not on the map
    scale: Literal["log", "log1p", "linear"] | None = "linear"


UNITS: dict[UnitName, Unit] = {
    "loss": Unit(
        outcome=lambda loss, baseline: loss,
        most_loss=lambda limit, baseline: limit,
        size=lambda limit, baseline: limit,
        template="{:.4g} nats",
        quantity="loss",
        has_baseline=False,
        scale="log",
    ),
    "relative": Unit(
        outcome=lambda loss, baseline: loss / baseline - 1,
        most_loss=lambda limit, baseline: baseline * (1 + limit),
        size=lambda limit, baseline: 1.0,
        template="{:.2%}",
        quantity="forgetting",
        is_share=True,
        scale="log1p",  # it may be negative, but not below -1
    ),
    "nats": Unit(
        outcome=lambda loss, baseline: loss - baseline,
        most_loss=lambda limit, baseline: baseline + limit,
        size=lambda limit, baseline: baseline,
        template="{:.4g} nats",
        quantity="forgetting",
    ),
    # a share of an evaluation's answers; draws of the link map a loss to it (`sampled`)
    "error": Unit(
        outcome=lambda loss, baseline: loss,
        most_loss=lambda limit, baseline: limit,
        size=lambda limit, baseline: 1.0,
        template="{:.1%} wrong",
        quantity="wrong answers",
        has_baseline=False,
        is_share=True,
        scale=None,
    ),
}


@dataclass(frozen=True)
class Constraint:
    """An upper limit on the forecast of one posterior, or of a weighted mean of some."""

    name: str  # ``"target"``, or the name of a source
    # nats per token for a loss, and share of wrong answers for an error; for forgetting a
    # share of the baseline (0.02 is 2%), or nats per token above it
    limit: float
    unit: UnitName
    # for a limit on a weighted mean: its domains, each with its weight
    weights: tuple[tuple[str, float], ...] = ()

    def loosened(self, limit: float) -> Loosened:
        """Round a higher limit up to two digits of its rise over this one."""
        unit = UNITS[self.unit]
        scale = 100 if unit.is_share else 1
        rise = max(scale * (limit - self.limit), 1e-9)
        digits = max(1 - math.floor(math.log10(rise)), 0)
        higher = math.ceil(round(scale * limit * 10**digits, 6)) / 10**digits
        sign = "%" if unit.is_share else ""
        _, _, word = unit.template.rpartition("}")
        now = f"{scale * self.limit:.{max(digits, 6)}g}{sign}"
        after = f"{higher:.{digits}f}{sign}"
        word = word.removeprefix("%")
        return Loosened(higher / scale, f"{now}{word} -> {after}{word}")


class Loosened(NamedTuple):
    """A higher limit as a person writes it, and words for the change to it."""

    limit: float
    words: str


def read_limit(
    what: str,
    written: object,
    unit: UnitName = "relative",
    bytes_per_token: float | None = None,
) -> tuple[float, UnitName]:
    """Read a limit and its unit, from a number or from text with its own unit: on a rise
    (``2%``, ``0.05nats``, ``0.03bpb``, ``3%ppl``), or for a loss on the loss itself
    (``1.8``, ``0.9bpb``, ``6.5ppl``) or, with a sign and a unit, on its rise (``+2%``,
    ``-0.05nats``).

    Parameters
    ----------
    what
        Name of the argument in error messages.
    unit
        Unit of a number; ``"loss"`` for a limit on a loss.
    bytes_per_token
        Bytes of a token, for bits per byte.

    Raises
    ------
    PlanError
        The limit is not a number, or the number is out of its range.
    """
    text = written.strip().lower() if isinstance(written, str) else ""
    ending = next((each for each in ENDINGS if text.endswith(each)), "")
    number: Any = text.removesuffix(ending).strip() if text else written
    is_loss, limit = unit == "loss" and not says_rise(written), number
    if ending == "ppl" and is_loss:
        limit = math.log(checked(what, number, PERPLEXITY))
    elif ending == "ppl" and not number.endswith("%"):
        raise PlanError(
            f"{what} {number}ppl: a rise of the perplexity is a share of it, such as 3%ppl"
        )
    elif ending == "ppl":
        limit = math.log1p(checked(what, number, RISE))
    elif ending == "bpb" and bytes_per_token is None:
        raise PlanError(
            f"{what} {written} is in bits per byte: give bytes_per_token "
            "(--bytes-per-token 4.2)"
        )
    elif ending == "bpb":
        in_bytes = checked("bytes_per_token", bytes_per_token, KINDS["bytes_per_token"])
        limit = checked(what, number, NUMBER) * math.log(2) * in_bytes
    elif text and not is_loss:
        try:
            limit = parse_number(text.removesuffix("nats"), counts=False)
        except RunTableError as error:
            raise PlanError(f"{what}: {error}") from None
    if is_loss:
        return checked(what, written if ending == "%" else limit, LOSS), unit
    if ending:
        unit = "relative" if ending == "%" else "nats"
    most = LARGEST_SHARE if unit == "relative" else LARGEST_LOSS
    least = -1.0 if unit == "relative" else -most
    is_truth = isinstance(limit, bool)
    is_number = isinstance(limit, int | float | np.number) and not is_truth
    if is_number and not ending and unit == "relative":
        check_share(what, float(limit), written)
    if not (is_number and least < limit <= most):  # a NaN fails both
        raise PlanError(
            f"{what} must be a number over {least:g} and at most {most:g} (0.02 is 2%), "
            f"got {written!r}"
        )
    return float(limit), unit


def says_rise(written: object) -> bool:
    """Tell whether a limit is on a rise: it then has a sign and a unit."""
    text = written.strip().lower() if isinstance(written, str) else ""
    return text[:1] in ("+", "-") and text.endswith(ENDINGS)
