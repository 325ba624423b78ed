"""Choose the learned priors of a fit: the ones that the user names; or, for a handful
of runs, those for the kind of table that the columns show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from bayeslaw._law.catalogue import law as law_by_name
from bayeslaw._law.catalogue import law_names
from bayeslaw._law.experience.priors import (
    NONE,
    Measured,
    experienced,
    populations,
)
from bayeslaw._law.law import Law
from bayeslaw._tables import fitting
from bayeslaw._tables.fitting import HANDFUL
from bayeslaw._tables.kinds import kind_of

if TYPE_CHECKING:
    import pandas as pd

    from bayeslaw._law.experience.tables import TableFits

FEWEST_LABS = 3  # least number of labs behind default priors


class ChosenPriors(NamedTuple):
    """A law with its priors, the ``name`` of the experience that they come from, and
    ``why`` it was chosen.
    """

    law: Law
    name: str
    why: str


def choose_priors(
    law: Law,
    runs: pd.DataFrame | None,
    asked: str | None = None,
    *,
    reference: Mapping[str, float] | None = None,
    experience: TableFits | None = None,
) -> ChosenPriors:
    """Take a law's priors from fits of other tables.

    Parameters
    ----------
    runs
        The table, whose losses determine the level; None before there is a table.
    asked
        A kind of tables, a lab, a table, or ``"none"``. By default, for up to `HANDFUL`
        runs, the kind that the columns show. A law with changed priors keeps them.
    reference
        Columns of the run at which contributions are stated.

    Raises
    ------
    LawError
        No kind, lab or table has this name.
    """
    name, why = asked, "asked for"
    if name is None:
        many = runs is not None and len(runs) > HANDFUL
        if many or not _is_unchanged(law):
            return ChosenPriors(law, NONE, "the law's own priors")
        name, why = kind_of(law, runs)
    if name == NONE:
        return ChosenPriors(law, NONE, why)
    found = populations(law, name, experience)
    labs = max((population.labs for population in found.values()), default=0)
    if not labs or (asked is None and labs < FEWEST_LABS):
        return ChosenPriors(law, NONE, f"{labs} labs of {name} teach of law {law.name}")
    measured = None
    if runs is not None and "loss" in runs:
        measured = Measured(fitting.covariates(law, runs), fitting.losses(runs))
    learned = experienced(
        law, name, reference=reference, measured=measured, experience=experience
    )
    return ChosenPriors(learned, name, why)


def _is_unchanged(law: Law) -> bool:
    """Tell whether a law has the catalogue's priors and reference run."""
    if law.name not in law_names():
        return False
    shipped = law_by_name(law.name)
    return law.priors == shipped.priors and dict(law.reference) == dict(
        shipped.reference
    )
