"""Priors learned from real tables, by kind of table and law."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from bayeslaw._base.errors import LawError
from bayeslaw._law.priors import Prior, parse_prior

LEARNED = Path(__file__).with_name("learned.toml")


@dataclass(frozen=True)
class Learned:
    """The prior of a further table's parameter, and how many labs and tables taught it."""

    prior: Prior
    labs: int
    tables: int


@dataclass(frozen=True)
class Experience:
    """What tables of one kind taught of one law.

    ``reference``: the run at which contributions are stated, by column; ``learned``: by
    name of a parameter of the law, or of a scale beside it (``"sigma"``, ``"drift"``,
    ``"walk N*D"``, ...; the file's head lists them).
    """

    reference: Mapping[str, float]
    learned: Mapping[str, Learned]

    def priors(self) -> dict[str, Prior]:
        """The priors by name."""
        return {name: found.prior for name, found in self.learned.items()}


@cache
def experiences(path: Path = LEARNED) -> dict[str, dict[str, Experience]]:
    """Read what was learned: by kind of table (``"web-text"``, ``"code"``,
    ``"adaptation"``, ``"fine-tuning"``), then by law.

    Examples
    --------
    >>> found = experiences()["web-text"]["chinchilla"].learned["alpha"]
    >>> found.prior.family
    'lognormal'
    """
    content = tomllib.loads(path.read_text())
    return {
        kind: {law: _experience(kind, table) for law, table in laws.items()}
        for kind, laws in content.items()
    }


def experience(kind: str, law: str, path: Path = LEARNED) -> Experience:
    """Find what tables of a kind taught of a law.

    Raises
    ------
    LawError
        There are no such tables, or none of them was fitted with the law.
    """
    found = experiences(path)
    if kind not in found:
        raise LawError(
            f"no kind of table is called {kind!r}; there are {', '.join(found)}"
        )
    if law not in found[kind]:
        raise LawError(
            f"nothing is learned of law {law!r} from {kind} tables, only of "
            f"{', '.join(found[kind])}"
        )
    return found[kind][law]


def _experience(kind: str, table: Mapping) -> Experience:
    learned = {
        name: Learned(
            replace(parse_prior(entry["prior"]), source=_source(kind, entry)),
            entry["labs"],
            entry["tables"],
        )
        for name, entry in table.items()
        if name != "reference"
    }
    return Experience(table["reference"], learned)


def _source(kind: str, entry: Mapping) -> str:
    labs, tables = entry["labs"], entry["tables"]
    return f"{tables} {kind} table{'s' * (tables > 1)} of {labs} lab{'s' * (labs > 1)}"
