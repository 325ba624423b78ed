"""Check limits that people set: an impossible one is refused in one line."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import LARGEST_COUNT, is_truth, parse_number

LARGEST_LOSS = 20.0  # nats per token; a guess among 256,000 tokens loses 12.5
LARGEST_SHARE = 10.0  # the most forgetting: a loss eleven times as large as before


class Kind(NamedTuple):
    """Define which numbers a limit may be. ``is_possible`` tests a finite number.
    ``words`` describe the possible numbers. ``what`` names the quantity of a limit that
    may not be written in percent. ``units`` are those that a text may end in, with
    their factors.
    """

    is_possible: Callable[[float], bool]
    words: str
    what: str = "a number"
    units: Mapping[str, float] = MappingProxyType({})


POSITIVE = Kind(lambda x: x > 0, "a positive number")
NUMBER = Kind(math.isfinite, "a number")
PERPLEXITY = Kind(lambda x: x > 1, "a perplexity above 1")
RISE = Kind(lambda x: -1 < x <= LARGEST_SHARE, "a share over -100%, such as 3%", "")
LOSS = Kind(
    lambda x: 0 < x <= LARGEST_LOSS,
    "a positive number in nats per token, at most 20 (a guess among 256,000 tokens "
    "loses 12.5)",
    "a loss in nats per token",
)
COUNT = Kind(
    lambda x: 0 < x <= LARGEST_COUNT,
    f"a positive number of at most {LARGEST_COUNT:g}: no model and no corpus is larger",
)
COST = Kind(lambda x: 0 < x <= 1e40, "a positive number of at most 1e+40")  # FLOPs
TOKENS = Kind(lambda x: 0 <= x <= LARGEST_COUNT, "a number of tokens")
SHARE = Kind(lambda x: 0 <= x <= 1, "a share in [0, 1]; write 10% as 0.1", "")
CHANCE = Kind(
    lambda x: 0 < x < 1,
    "a probability below 1, such as .99: finitely many draws can promise nothing for "
    "sure",
    "",
)
EVEN_CHANCE = Kind(lambda x: 0.5 <= x < 1, "a probability in [0.5, 1)", "")
RATE = Kind(lambda x: 0 < x < 1, "a positive number below 1, such as 0.02", "")


class Supply(NamedTuple):
    """Data of which a plan takes no more tokens than there are.

    ``words``: its name in answers. ``domain``: of the data. ``shares``: the share of a
    run's tokens that is taken from it, without replay and with nothing else; linear
    between. ``is_repeated``: whether a token may be seen in each of several epochs.
    """

    words: str
    domain: str
    shares: tuple[float, float]
    is_repeated: bool

    @property
    def setting(self) -> str:
        """Name the plan's setting that says how many of its tokens may be seen."""
        return f"max_{self.domain}_tokens"

    def share(self, replay: Any) -> Any:
        """Compute the share of the tokens that is taken from it, of any shape."""
        none, all_replay = self.shares
        return none + (all_replay - none) * replay


# argument of `plan` -> the data of which it says how many unique tokens there are
SUPPLIES = {
    "unique_target_tokens": Supply("unique target tokens", "target", (1.0, 0.0), True)
}

# keyword of `plan`, or column of its covariates -> kind
KINDS: dict[str, Kind] = {
    "N": COUNT,
    "ptpp": COUNT,
    "max_target_loss": LOSS,
    "max_loss": LOSS,
    "max_mean_loss": LOSS,
    "baseline_loss": LOSS,
    "loss_before": LOSS,
    "source_loss_before": LOSS,
    "confidence": CHANCE,
    "baseline_tokens": TOKENS,
    "max_flops": COST,
    "max_tokens": COUNT,
    "bytes_per_token": Kind(
        lambda x: 0 < x <= 100, "a positive number of bytes, at most 100"
    ),
    "max_cost": Kind(lambda x: x > 0, "a positive amount of money", "an amount"),
    "max_days": Kind(
        lambda x: x > 0,
        "a positive number of days",
        "a number of days",
        units={
            **dict.fromkeys(("h", "hour", "hours"), 1 / 24),
            **dict.fromkeys(("d", "day", "days"), 1.0),
            **dict.fromkeys(("w", "week", "weeks"), 7.0),
        },
    ),
    **dict.fromkeys(SUPPLIES, COUNT),
    "max_epochs": COUNT,
    "correlation": Kind(lambda x: -1 < x < 1, "a number between -1 and 1", ""),
    "min_replay": SHARE,
    "max_replay": SHARE,
}


def checked(name: str, value: Any, kind: Kind) -> float:
    """Convert a limit to a number, from a number or from text (``1.8``, ``90%``; days
    also as ``36h``, ``3d``).

    Parameters
    ----------
    name
        Name of the argument, for messages.

    Raises
    ------
    PlanError
        The value is not a number, or a limit of this kind cannot be this number.
    """
    is_text = isinstance(value, str)
    if is_text and kind is LOSS and value.strip().startswith("+"):
        text = value.strip()
        raise PlanError(
            f"{name} {text}: a sign makes it a rise, which has a unit: write {text}% or "
            f"{text}nats; or the loss itself, without a sign"
        )
    if is_truth(value):
        raise PlanError(f"{name} must be {kind.words}, got {value}")
    plain, factor = _without_unit(value, kind.units) if is_text else (value, 1.0)
    try:
        number = parse_number(plain, counts=False) if is_text else float(value)
    except RunTableError as error:
        raise PlanError(f"{name} must be {kind.words}; {error}") from None
    except (TypeError, ValueError):
        number = math.nan
    if is_text and "%" in value and kind.what:
        raise PlanError(f"{name} {value}: it is {kind.what}, not a share")
    number *= factor
    is_chance = kind in (CHANCE, EVEN_CHANCE) and "%" not in str(value)
    # 90 for 90%; by 1.2 no chance of 1.2% is meant
    if is_chance and number >= 2 and kind.is_possible(number / 100):
        check_share(name, number, value)
    if not (math.isfinite(number) and kind.is_possible(number)):
        raise PlanError(f"{name} must be {kind.words}, got {value!r}")
    return number


def read_numbers(record: Any, kinds: Mapping[str, Kind], what: str = "") -> None:
    """Check and convert numbers of a frozen record, by field; None stays. Messages call
    a field by its name after ``what``.
    """
    for field, kind in kinds.items():
        value = getattr(record, field)
        if value is not None:
            number = checked(f"{what} {field}".lstrip(), value, kind)
            object.__setattr__(record, field, number)


def check_share(what: str, limit: float, written: object) -> None:
    """Refuse a bare number of 1 or more as a share: a loss does not double, and
    nothing is surer than sure, so percent are meant. Text with a sign may ask for 150%.

    Raises
    ------
    PlanError
        The number is 1 or more; the message says what to write instead.
    """
    if limit >= 1:
        raise PlanError(
            f"{what} {written} is {limit:.0%}; write {written}% or {limit / 100:g}"
        )


def check_count(name: str, count: Any, least: int = 1) -> None:
    """Refuse a count that is not a whole number, or below ``least``."""
    is_number = isinstance(count, Real)
    if not (is_number and float(count).is_integer() and float(count) >= least):
        raise PlanError(
            f"{name} must be a whole number of at least {least}, got {count!r}"
        )


def _without_unit(text: str, units: Mapping[str, float]) -> tuple[str, float]:
    """Split a unit from the end of a text, and return its factor; 1 without a unit."""
    number = text.strip().rstrip(string.ascii_letters)
    unit = text.strip()[len(number) :].lower()
    return (number, units[unit]) if unit in units else (text, 1.0)
