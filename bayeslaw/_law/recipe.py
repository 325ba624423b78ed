"""Describe a law by a recipe (name, origin, priors, reference run), and find the law of
a recipe: when a saved fit is loaded, or in another process.
"""

from __future__ import annotations

import copyreg
import json
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from bayeslaw._base.errors import LawError
from bayeslaw._law.expression import REFERENCE
from bayeslaw._law.find import file_digest, law_from_origin
from bayeslaw._law.law import Law
from bayeslaw._law.priors import Prior
from bayeslaw._law.variants.setting import base_of


def recipe_of(law: Law) -> dict:
    """Describe a law by what is needed to find it again, as JSON types."""
    recipe = {
        "name": law.name,
        "version": law.version,
        "origin": law.origin,
        # numbers, because a prior's text has only six digits
        "priors": {
            n: asdict(p) | {"args": [*map(float, p.args)]}
            for n, p in law.priors.items()
        },
        "reference": {c: float(v) for c, v in law.reference.items()},
    }
    return recipe | ({"digest": law.digest} if law.digest else {})


def law_of(recipe: dict, *, trust_law_file: bool = False) -> Law:
    """Find the law of a recipe.

    If the law is defined by a Python file, the file is run. This needs
    ``trust_law_file=True``, and the file must not have been edited since the fit.

    Raises
    ------
    LawError
        The law is missing, its version or file has changed, or its file may not be run.
    """
    origin = recipe["origin"]
    file = base_of(origin)
    if file.startswith("file:"):
        path = Path(file.removeprefix("file:"))
        _check_file(path, recipe["digest"], trust_law_file)
    own_columns = {c: v for c, v in recipe["reference"].items() if c not in REFERENCE}
    base = law_from_origin(recipe["name"], origin, own_columns)
    if base.version != recipe["version"]:
        raise LawError(
            f"version {recipe['version']} of law {base.name!r} is asked for, "
            f"here is version {base.version}; fit again"
        )
    priors = {
        name: Prior(entry["family"], tuple(entry["args"]), entry["source"])
        for name, entry in recipe["priors"].items()
    }
    changed = {n: prior for n, prior in priors.items() if base.priors.get(n) != prior}
    moved = {c: v for c, v in recipe["reference"].items() if base.reference[c] != v}
    return base.with_priors(changed).with_reference(moved) if changed or moved else base


def _check_file(path: Path, digest: str, trust: bool) -> None:
    """Refuse to run a law file that is not trusted, is missing, or was edited."""
    if not trust:
        raise LawError(
            f"it is the Python file {path}, which would be run; read that file, then "
            "load with trust_law_file=True (--trust-law-file on the command line)"
        )
    if not path.is_file():
        raise LawError(f"{path}: no such file; put the law's file back, or fit again")
    if file_digest(path.read_bytes()) != digest:
        raise LawError(
            f"{path} was edited after the fit; put the old text back, or fit again"
        )


@lru_cache(maxsize=64)
def law_of_text(recipe: str) -> Law:
    """Find the law of a recipe in JSON. The same text gives the same object, so that a
    process compiles the law's programs once.

    Law files are trusted here: the process that sent the recipe has already run them.
    """
    parts = json.loads(recipe)
    return law_of(parts, trust_law_file=True)


def _as_recipe(law: Law) -> tuple:
    """Pickle a law as its recipe, because its functions cannot be pickled."""
    text = json.dumps(recipe_of(law))
    return law_of_text, (text,)


copyreg.pickle(Law, _as_recipe)
