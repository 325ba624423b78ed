"""A law as the few words from which it can be found again: in a saved fit, in another process."""

from __future__ import annotations

import json
from functools import lru_cache

from bayeslaw._errors import LawError
from bayeslaw._law import Law


def recipe_of(law: Law) -> dict:
    """What it takes to find the law again, as JSON types."""
    return {
        "name": law.name,
        "version": law.version,
        "origin": law.origin,
        "priors": {n: str(p) for n, p in law.priors.items()},
        "reference": dict(law.reference),
    }


def law_of(recipe: dict) -> Law:
    """The law of a recipe.

    Raises
    ------
    LawError
        The law is not here, or is no longer what it was.
    """
    from bayeslaw._formula import law_from_origin

    base = law_from_origin(recipe["name"], recipe["origin"])
    if base.version != recipe["version"]:
        raise LawError(
            f"version {recipe['version']} of law {base.name!r} is asked for, here is version {base.version}; fit again"
        )
    changed = {n: p for n, p in recipe["priors"].items() if str(base.priors.get(n)) != p}
    moved = {c: v for c, v in recipe["reference"].items() if base.reference[c] != v}
    return base.with_priors(changed).with_reference(moved) if changed or moved else base


@lru_cache(maxsize=64)
def law_of_text(recipe: str) -> Law:
    """`law_of` JSON; the same object each time, so that its programs are compiled once in a process."""
    return law_of(json.loads(recipe))
