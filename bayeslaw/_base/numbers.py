"""Read and print numbers as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from bayeslaw._base.errors import RunTableError

Z90 = 1.6449  # standard errors on each side of a 90% interval


def format_count(x: Any) -> str:
    """Write a count as people say it: 8.1B, 517M, 12k."""
    # rounded first: 999.9M is 1B, not 1e+03M
    rounded = float(f"{x:.3g}")
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(rounded) >= size:
            return f"{rounded / size:.3g}{unit}"
    return f"{rounded:.3g}"


def format_counts(low: float, high: float) -> str:
    """Write a range of counts: 259k to 8.1M; 259k where both read the same."""
    return " to ".join(dict.fromkeys(map(format_count, (low, high))))


def format_many(count: int, noun: str) -> str:
    """Write a number of things: 1 run, 3 runs."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_level(column: str, level: Any) -> str:
    """Write a level of a column as people write it: sizes as 259k."""
    if column == "N":
        return format_count(level)
    return f"{level:g}" if isinstance(level, float) else str(level)


def format_chance(p: float) -> str:
    """Write a probability in percent; never 0% or 100%, which finite draws cannot show."""
    if p > 0.999:
        return "over 99.9%"
    if p < 0.001:
        return "under 0.1%"
    return f"{p:.1%}"


def format_factor(x: float) -> str:
    """Write a factor with one digit after the point, or with two where one would read
    1.0; a factor above 1 is never written as 1.
    """
    text = f"{x:.1f}"
    if text != "1.0":
        return text
    return f"{max(x, 1.01) if x > 1 else x:.2f}"


def format_spread(log: float, form: str) -> str:
    """Write a spread of log losses as a share; a large one as the factor that it is."""
    return f"{log:{form}}" if log < 0.5 else f"a factor of {math.exp(log):.3g}"


def format_interval(
    ends: Mapping[str, Any], form: str | Callable[[Any], str], prob: float | None = None
) -> str:
    """Write ``median``, ``low`` and ``high``: ``2.27 (2.25 to 2.28)``; with the
    probability inside, ``2.27 (2.25 to 2.28, 90%)``.
    """
    write = form if callable(form) else f"{{:{form}}}".format
    middle, low, high = (write(ends[end]) for end in ("median", "low", "high"))
    inside = "" if prob is None else f", {prob:.0%}"
    return f"{middle} ({low} to {high}{inside})"


MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12, "%": 0.01}
NUMBER = re.compile(
    r"([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([kmbgt%]?)", re.IGNORECASE
)
LARGEST_COUNT = 1e24  # parameters or tokens; a larger count is a typing error
MULTIPLES_OF_COUNTS = "kmbgt"


def parse_number(
    text: object, *, counts: bool = True, suffixes: str = f"{MULTIPLES_OF_COUNTS}%"
) -> float:
    """Read a number as people write it: ``8.1B``, ``517M``, ``2e20``, ``34%``.

    Commas may only group thousands. ``1,000`` is 1 to some readers and 1000 to others.
    It is read as 1000 if ``counts`` says that numbers are large (parameters, tokens,
    steps). It is refused for losses, shares and limits, or before a unit (``1,500M``).
    ``suffixes`` are the allowed units: a loss has none.

    Raises
    ------
    RunTableError
        The text is not a finite number, or has a comma that may be a decimal comma.
    """
    if is_truth(text):
        raise RunTableError(f"{text} is a truth value, not a number")
    if isinstance(text, Real):
        try:
            return float(text)
        except OverflowError:
            what = "an integer of more than 308 digits is too large a number"
            raise RunTableError(what) from None
    match = NUMBER.fullmatch(str(text).strip())
    if not match:
        raise RunTableError(
            f"{str(text)!r} is not a number; write it like 8.1B, 517M, 2e20, 34% or 0.34"
        )
    digits, unit = match[1], match[2].lower()
    if unit and unit not in suffixes:
        raise RunTableError(
            f"{str(text)!r} ends in {match[2]!r}, a unit that is not allowed here; write "
            "the number in full, like 2.35"
        )
    if "," in digits:
        _check_commas(str(text).strip(), digits, counts and not unit)
    plain = digits.replace(",", "").replace("_", "")
    value = drop_rounding(float(plain) * MULTIPLES[unit]) if unit else float(plain)
    if not math.isfinite(value):
        raise RunTableError(f"{str(text)!r} is too large a number")
    return value


def is_truth(value: object) -> bool:
    """Tell whether a value is True or False, of Python or of NumPy, which it does not
    import: the command line answers ``--help`` without it.
    """
    return type(value).__name__ in ("bool", "bool_")


def drop_rounding(x: float) -> float:
    """Round to 15 digits: 4.1 * 1e9 is 4099999999.9999995, and 4.1e9 was meant."""
    return float(f"{x:.15g}")


def _check_commas(text: str, digits: str, counts: bool) -> None:
    """Refuse a comma that does not, or may not, group thousands."""
    # 1,234 and 1,234,567.8, but neither 1,8 nor 0,250 nor 12,34,567
    if not re.fullmatch(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", digits):
        is_decimal = digits.count(",") == 1 and "." not in digits
        point = text.replace(",", ".") if is_decimal else "1.8"
        raise RunTableError(
            f"{text!r} has a comma that does not group thousands; write decimals with a "
            f"point ({point}), and thousands with commas (1,234,567) or without"
        )
    ambiguous = digits.count(",") == 1 and "." not in digits
    if ambiguous and not counts:
        raise RunTableError(
            f"{text!r} may mean {text.replace(',', '.')} or {text.replace(',', '')}; "
            "write the one that is meant, without a comma"
        )
