"""Read a column's name: its words, its unit, a tracker's prefix."""

from __future__ import annotations

import re

# how W&B, MLflow and TensorBoard name columns in their tables
EXPORTED = re.compile(r"(?:config|summary|params|metrics|hparam|tags)[./](.+)")
# the last word of a name may be its unit, or the first
FACTORS = {
    "k": "*1e3",
    "m": "*1e6",
    "million": "*1e6",
    "millions": "*1e6",
    "b": "*1e9",
    "bn": "*1e9",
    "billion": "*1e9",
    "billions": "*1e9",
    "pct": "/100",
    "percent": "/100",
    "%": "/100",
}


def is_setting(name: str) -> bool:
    """Tell whether a tracker's prefix says that a column is a setting, not a
    measurement.
    """
    return re.fullmatch(r"(?:config|params|hparam)[./].+", name) is not None


def name_words(name: str) -> list[str]:
    """Split a column's name into words, without a tracker's prefix."""
    exported = EXPORTED.fullmatch(name)
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|%", exported[1] if exported else name)
    return [word.lower() for word in words]


def quoted(name: str) -> str:
    """Quote a column's name for a query."""
    return name if name.isidentifier() else f"`{name}`"


def unit_of_name(name: str) -> str:
    """Find the factor that a name's first or last word states; empty for other names."""
    words = name_words(name)
    ends = [words[-1], words[0]] if len(words) > 1 else []
    units = [FACTORS[word] for word in ends if word in FACTORS]
    return units[0] if units else ""
