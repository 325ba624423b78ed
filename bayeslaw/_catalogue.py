"""The laws by name: ``law("chinchilla")``, ``laws()``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache, lru_cache

from bayeslaw._errors import LawError
from bayeslaw._law import Law

PACKAGE = "bayeslaw.models"


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """Catalogue name -> module, without importing any law."""
    try:
        package = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        raise LawError(
            "the laws (package bayeslaw.models) are not installed beside this bayeslaw: install it with `pip install -e .`, "
            "or work in another folder than its source"
        ) from None
    return {
        m.name.replace("_", "-"): f"{PACKAGE}.{m.name}"
        for m in pkgutil.iter_modules(package.__path__)
        if not m.name.startswith("_")
    }


def law_names() -> tuple[str, ...]:
    """Catalogue names, sorted; imports no law."""
    return tuple(sorted(_modules()))


@cache
def law(name: str) -> Law:
    """The law of this catalogue name.

    Raises
    ------
    LawError
        No such law; the message lists those there are.
    """
    if name not in _modules():
        close = difflib.get_close_matches(name, law_names(), 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise LawError(f"unknown law {name!r}; {hint}known: {', '.join(law_names())}")
    return importlib.import_module(_modules()[name]).LAW


def laws() -> tuple[Law, ...]:
    """All laws, in the order of their names."""
    return tuple(law(name) for name in law_names())
