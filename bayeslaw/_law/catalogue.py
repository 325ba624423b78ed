"""Load laws of the catalogue by their names: ``law("chinchilla")``, ``laws()``."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache, lru_cache

from bayeslaw._base.errors import LawError
from bayeslaw._law.law import Law

PACKAGE = "bayeslaw.models"


@lru_cache(maxsize=1)
def _find_modules() -> dict[str, str]:
    """Map catalogue names to modules, without importing any law."""
    try:
        package = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        raise LawError(
            "the laws (package bayeslaw.models) are not installed beside this "
            "bayeslaw: install it with `pip install -e .`, "
            "or work in another folder than its source"
        ) from None
    return {
        m.name.replace("_", "-"): f"{PACKAGE}.{m.name}"
        for m in pkgutil.iter_modules(package.__path__)
        if not m.name.startswith("_")
    }


def law_names() -> tuple[str, ...]:
    """List the catalogue names, sorted; imports no law."""
    return tuple(sorted(_find_modules()))


@cache
def law(name: str, domains: tuple[str, ...] = ()) -> Law:
    """Load the law of this catalogue name.

    A law of mixtures is made for any ``domains`` (the loss's own domain first) by the
    function ``law_of`` of its file. Without ``domains`` it has the domains of the
    file's example.

    Raises
    ------
    LawError
        There is no such law; the message lists the names of all laws.

    Examples
    --------
    >>> law = bayeslaw.law("chinchilla")
    >>> law.covariates, sorted(law.priors)
    (('N', 'D'), ['A_nats', 'B_nats', 'E_nats', 'alpha', 'beta'])
    """
    modules = _find_modules()
    if name not in modules:
        names = law_names()
        close = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise LawError(f"unknown law {name!r}; {hint}known: {', '.join(names)}")
    module = importlib.import_module(modules[name])
    make = getattr(module, "law_of", None)
    return make(domains) if make and domains else module.LAW


def laws() -> tuple[Law, ...]:
    """Load all laws, sorted by name.

    Examples
    --------
    >>> "chinchilla" in {law.name for law in bayeslaw.laws()}
    True
    """
    names = law_names()
    return tuple(map(law, names))
