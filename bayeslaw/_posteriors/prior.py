"""Choose the priors of a fit: learned ones that the user names, or, for a handful of
runs, those for the kind of table that the columns show. Make a posterior from priors
alone, before any run is measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.frames import Table
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.discrepancy.process import (
    PRIORS,
    TINY,
    process_of,
)
from bayeslaw._inference.noise import ERROR
from bayeslaw._law.catalogue import law as law_by_name
from bayeslaw._law.catalogue import law_names
from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._law.experience.priors import NONE, Measured, experienced, populations
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._law.priors import Prior
from bayeslaw._posteriors.posterior import WEIGHTS, LawPosterior, Member
from bayeslaw._tables import fitting
from bayeslaw._tables.fitting import HANDFUL
from bayeslaw._tables.runs import TEXT, as_design

if TYPE_CHECKING:
    from bayeslaw._law.experience.tables import TableFits


FEWEST_LABS = 3  # least number of labs behind default priors
# how a table and a law tell the kind of experience that they belong to
CODE = re.compile(r"code|coder|github|stack|python|java\b|software", re.IGNORECASE)
FINE_TUNING = ("finetune", "rectified", "broken", "forgetting")


def kind_of(law: Law, runs: pd.DataFrame | None = None) -> tuple[str, str]:
    """Name the kind of a table, with the reason: the law's columns, else names in the
    table's texts.

    Examples
    --------
    >>> from bayeslaw._posteriors.prior import kind_of
    >>> kind_of(bayeslaw.law("state-target"))[0]
    'adaptation'
    """
    if law.name.startswith(FINE_TUNING):
        return "fine-tuning", f"law {law.name}"
    adapted = [c for c in law.covariates if c in ("replay", "ptpp", *LOSSES_BEFORE)]
    if adapted:
        return "adaptation", f"the law reads {adapted[0]}"
    if runs is not None:
        texts = [c for c in runs if c in TEXT or runs[c].dtype == object]
        for column in texts:
            names = runs[column].dropna().astype(str).unique()
            if len(names) and all(CODE.search(name) for name in names):
                return "code", f"column {column} says {names[0]!r}"
    return "web-text", "no column says otherwise"


class ChosenPriors(NamedTuple):
    """A law with its priors, their experience's ``name``, and ``why`` that."""

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

    ``asked``: a kind of tables, a lab, a table, or ``"none"``. By default, for up to
    `HANDFUL` runs, the kind that the columns show; a law with changed priors keeps them.
    The losses of ``runs`` determine the level; ``reference`` is the run at which
    contributions are stated.

    Raises
    ------
    LawError
        No kind, lab or table has this name.
    """
    name, why = asked, "asked for"
    if name is None:
        many = runs is not None and len(runs) > HANDFUL
        # the catalogue's priors and reference run, or the user's own?
        is_own = law.name not in law_names()
        if not is_own:
            shipped = law_by_name(law.name)
            is_own = law.priors != shipped.priors
            is_own |= dict(law.reference) != dict(shipped.reference)
        if many or is_own:
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


@dataclass(frozen=True, eq=False)
class PriorOnly(LawPosterior):
    """Laws' priors as a posterior. Made by `prior_only`.

    Parameters
    ----------
    members
        The laws with the priors that were used, each with draws from the priors of its
        parameters, its misfit and its noise.
    experience
        Name of the tables that the priors were learned from; ``"none"`` for the laws'
        own priors.
    """

    members: tuple[Member, ...]
    experience: str = "none"
    is_prior_only: ClassVar[bool] = True

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws with the priors that were used."""
        return tuple(member.law for member in self.members)

    @property
    def name(self) -> str:
        """Name of the priors."""
        return f"prior of {', '.join(law.name for law in self.laws)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line: nothing is measured. Every result repeats it."""
        laws = ", ".join(law.name for law in self.laws)
        learned = self.experience != "none"
        source = f", learned from {self.experience}" if learned else ""
        return (
            f"nothing is measured yet: this is what the priors of {laws} say{source}; the "
            "first runs will change it",
        )


def prior_only(
    law: Law | str | None = None,
    runs: Table | None = None,
    *,
    priors: Mapping[str, Prior | str] | None = None,
    reference: Mapping[str, float] | None = None,
    experience: str | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> PriorOnly:
    """Use a law's prior as a posterior, before any run is measured.

    `forecast`, `plan`, `anchors` and `report` take it like a fit. Intervals are as wide
    as the priors, and warnings say that nothing is measured.

    Parameters
    ----------
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    runs
        Runs to forecast, to plan or to buy. The law's misfit gets its prior over their
        range. Without them, the noise of a run includes the misfit.
    priors, reference, experience
        As `fit` takes them.
    draws
        Number of draws of the prior.
    seed
        Same seed, same machine: same numbers.

    Raises
    ------
    LawError
        There is no such law or experience, or a prior does not suit its parameter.

    Examples
    --------
    >>> nothing = bayeslaw.prior_only("chinchilla")
    >>> wide = bayeslaw.forecast(nothing, large)
    >>> bool((wide["high"] > 1.3 * wide["low"]).all())
    True
    """
    if runs is not None:
        runs = as_design(runs)
    record = as_law(law, runs)
    stated = reference or (record.reference if priors else None)
    unmeasured = None if runs is None else runs.drop(columns="loss", errors="ignore")
    chosen = choose_priors(record, unmeasured, experience, reference=stated)
    changed = chosen.law.with_priors(priors or {}).with_reference(reference or {})
    return from_priors([changed], unmeasured, seed, draws, chosen.name)


def from_priors(
    laws: Sequence[Law],
    offered: pd.DataFrame | None,
    seed: int = 0,
    draws: int = 2000,
    experience: str = "none",
) -> PriorOnly:
    """Draw from the priors of each law; the misfit's spans the runs on offer."""
    rng, members = generator(seed, Stream.PRIORS), []
    for law in laws:
        values = {name: prior.draw(rng, draws) for name, prior in law.priors.items()}
        columns = {} if offered is None else fitting.covariates(law, offered)
        process = process_of(columns) if columns else None
        if process is not None:
            scales = [np.log(p.draw(rng, draws)) for p in process.priors.values()]
            # Weights of the basis are normal given the scales, and each draw has its own
            # scales. So a draw is one function from the misfit's whole prior.
            by_draw = np.stack(scales, axis=1)
            sds = np.exp(process.spectrum.log_variances(by_draw) / 2)
            values[WEIGHTS] = sds * rng.standard_normal(sds.shape)
        values["sigma"] = ERROR.sigma.draw(rng, draws)
        if not columns:
            size = law.reference.get("N", TINY)
            total = PRIORS.of_all_pieces(law.covariates, size)
            values["sigma"] = np.hypot(values["sigma"], total.draw(rng, draws))
        above_2 = rng.gamma(ERROR.dof_shape, 1 / ERROR.dof_rate, draws)
        values["dof"] = ERROR.dof_min + above_2
        members.append(Member(law, 1 / len(laws), process, None, values))
    return PriorOnly(tuple(members), experience)
