"""Read the fits of measured tables, a few numbers each, from which priors are learned.

``tables.toml`` is written by ``python tests/studies/experience.py``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NATS_PER_TOKEN = "nats per token"


@dataclass(frozen=True)
class LearnedTable:
    """The posterior of a law's parameters on one measured table.

    Parameters
    ----------
    name, lab, source
        The table's name, who made it, and where it is published. Tables of one lab
        count as one.
    kind
        ``"web-text"``, ``"code"``, ``"adaptation"`` or ``"fine-tuning"``.
    law
        Name of the law that was fitted.
    unit
        Unit of the losses.
    logs
        Mean and sd of each parameter's log, by site. Contributions in nats are stated
        at the run in `TableFits.reference`. If the law has a floor, they are shares of
        the floor, which do not depend on the unit of the loss.
    """

    name: str
    lab: str
    kind: str
    law: str
    unit: str
    rows: int
    source: str
    logs: Mapping[str, tuple[float, float]]

    def is_called(self, name: str) -> bool:
        """Tell whether a name means this table: its own name, its lab's, or the common
        name of a table's two domains.
        """
        without_domain = self.name.removesuffix(" target").removesuffix(" source")
        return name in (self.lab, self.name, without_domain)


@dataclass(frozen=True)
class TableFits:
    """All fits of measured tables.

    Parameters
    ----------
    tables
        A record for each fit.
    reference
        By law: the run at which contributions are stated, in the middle of the tables.
    same
        Laws whose parameters mean the same as those of another law, by name.
    """

    tables: tuple[LearnedTable, ...]
    reference: Mapping[str, Mapping[str, float]]
    same: Mapping[str, str]

    def of_law(self, law: str) -> tuple[LearnedTable, ...]:
        """Select the tables that inform a law."""
        teacher = self.same.get(law, law)
        return tuple(table for table in self.tables if table.law == teacher)

    def without(self, lab: str) -> TableFits:
        """Leave all tables of a lab out."""
        tables = tuple(table for table in self.tables if table.lab != lab)
        return TableFits(tables, self.reference, self.same)


@cache
def learned() -> TableFits:
    """Read the fits that come with the package."""
    path = Path(__file__).with_name("tables.toml")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = [
        LearnedTable(
            **entry | {"logs": {n: tuple(v) for n, v in entry["logs"].items()}}
        )
        for entry in content["table"]
    ]
    return TableFits(tuple(tables), content["reference"], content["same"])
