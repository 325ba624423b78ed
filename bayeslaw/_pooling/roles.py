"""Rename shares by role: in a pool of evaluation sets, each set's own share becomes
``share_own``.

In a law of mixtures the first domain is that of the loss, so every evaluation set would
have its own law. A pool has one law, whose first domain is ``own``. The share of a
set's own domain is ``share_own``, and the column with the domain's name is then 0. So
the transfer factor of domain k is one parameter for all sets. Only the set of domain k
itself has no information about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._law import catalogue
from bayeslaw._law.columns import OWN, SHARE, own_first, share_domains
from bayeslaw._posteriors.fits.candidates import law_for

if TYPE_CHECKING:
    from bayeslaw._law.law import Law


class Roles(NamedTuple):
    """A law, the rows that it is fitted to, and the name of each row's domain."""

    law: Law
    runs: pd.DataFrame
    names: pd.Series


def by_role(law: Law | str | None, runs: pd.DataFrame, by: str) -> Roles:
    """Find the law that all domains share, and convert the table to its columns.

    A law of mixtures and the table change only if the evaluation sets, named in column
    ``by``, are domains of the mixtures.

    Raises
    ------
    LawError
        The law is a record, made for one domain's losses or with other priors.
    RunTableError
        The table lacks the column, or names one domain only, or one called ``own``.
    """
    named = law_for(law, runs)
    names = _domain_names(runs, by)
    domains, sets = share_domains(named.covariates), set(names)
    evaluated = sets & set(domains) & set(share_domains(runs))
    # a formula or a user's file names its shares itself
    if named.origin or not evaluated:
        return Roles(named, runs, names)
    if not isinstance(law, str):
        raise LawError(
            f"pool takes a law of mixtures by its name, {named.name!r}: evaluation sets "
            f"share one whose first domain is {OWN!r}; priors={{...}} replaces priors"
        )
    if OWN in {*domains, *sets}:
        raise RunTableError(
            f"a domain is called {OWN!r}, the name that a pool gives each evaluation "
            "set's own share: give it another one"
        )
    pooled = catalogue.law(named.name, (OWN, *domains))
    return Roles(pooled, with_own_shares(runs, names), names)


def _domain_names(runs: pd.DataFrame, by: str) -> pd.Series:
    """Read each row's domain as text; refuse a table of one domain."""
    if by not in runs:
        raise RunTableError(
            f"the table has no column {by!r} to pool by; "
            f"it has: {', '.join(map(str, runs.columns))}"
        )
    empty = runs.index[runs[by].isna()]
    if len(empty):
        raise RunTableError(
            f"row {empty[0]}, column {by!r}: empty; every row belongs to a domain"
        )
    names = runs[by].astype(str)
    count = names.nunique()
    if count < 2:
        raise RunTableError(
            f"column {by!r} has one domain only ({names.iloc[0]!r}): "
            "there is none to pool it with; use fit"
        )
    return names


def with_own_shares(runs: pd.DataFrame, names: pd.Series) -> pd.DataFrame:
    """Move each row's own share, that of its set, to ``share_own`` (`own_first`)."""
    order = np.argsort(np.argsort(names.to_numpy(), kind="stable"))
    parts = [
        rows.assign(**own_first(_shares(rows), name))
        for name, rows in runs.groupby(names.to_numpy())
    ]
    return pd.concat(parts).iloc[order]


def _shares(runs: pd.DataFrame) -> dict[str, pd.Series]:
    return {f"{SHARE}{name}": runs[f"{SHARE}{name}"] for name in share_domains(runs)}


def reads_own(law: Law) -> bool:
    """Tell whether a law reads ``share_own``."""
    return f"{SHARE}{OWN}" in law.covariates


def law_for_set(law: Law, name: str) -> Law:
    """Make the law of one evaluation set (`law_of_set`)."""
    return catalogue.law_of_set(law, name) if reads_own(law) else law


def unread(law: Law, name: str) -> set[str]:
    """List the parameters about which a set has no information: the transfer factor of
    its own domain.
    """
    if not reads_own(law):
        return set()
    return {e.name for e in law.exponents if e.covariate == f"{SHARE}{name}"}
