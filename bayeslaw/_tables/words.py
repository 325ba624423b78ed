"""Read a column's name: its words, its unit, a tracker's prefix."""

from __future__ import annotations

import re

# how W&B, MLflow and TensorBoard name columns in their tables
EXPORTED = re.compile(r"(?:config|summary|params|metrics|hparam|tags)[./](.+)")
# the unit in brackets at the end of a name: tokens (B), Trainingstoken [Mrd.]
BRACKETS = re.compile(r"(.*\S)\s*[\[(]([^\[\]()]*)[\])]\s*")
# units that the first or last word of a name may state
FACTORS = {
    "k": "*1e3",
    "m": "*1e6",
    "million": "*1e6",
    "millions": "*1e6",
    "b": "*1e9",
    "bn": "*1e9",
    "billion": "*1e9",
    "billions": "*1e9",
    "bil": "*1e9",
    "tsd": "*1e3",
    "mio": "*1e6",
    "mill": "*1e6",
    "mrd": "*1e9",
    "md": "*1e9",
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
    return _words(exported[1] if exported else name)


def _words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|%", text)]


def without_unit(name: str) -> str:
    """Drop the unit in brackets at the end of a column's name."""
    bracketed = BRACKETS.fullmatch(name)
    return bracketed[1] if bracketed else name


def named_words(name: str) -> list[str]:
    """Split a column's name into words, without its unit in brackets."""
    return name_words(without_unit(name))


def is_word(word: str, wanted: str) -> bool:
    """Tell whether a word of a name is the wanted one, in the singular or plural, or
    ends in it as compounds do: ``trainingstoken``.
    """
    stem, wanted_stem = word.removesuffix("s"), wanted.removesuffix("s")
    is_long = len(wanted_stem) > 3
    return word == wanted or (is_long and stem.endswith(wanted_stem))


def quoted(name: str) -> str:
    """Quote a column's name for a query."""
    return name if name.isidentifier() else f"`{name}`"


def unit_of_name(name: str) -> str:
    """Find the factor that a name's unit in brackets, or its last or first word, states;
    empty for other names.
    """
    bracketed = BRACKETS.fullmatch(name)
    in_brackets = (
        [FACTORS[w] for w in _words(bracketed[2]) if w in FACTORS] if bracketed else []
    )
    if in_brackets:
        return in_brackets[0]
    words = named_words(name)
    ends = [words[-1], words[0]] if len(words) > 1 else []
    units = [FACTORS[word] for word in ends if word in FACTORS]
    return units[0] if units else ""
