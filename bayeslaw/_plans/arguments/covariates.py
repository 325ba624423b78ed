"""Check the columns that a question sets for its laws."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from bayeslaw._base.errors import PlanError


def check_covariates(
    covariates: Any, read: Collection[str], set_elsewhere: Mapping[str, str]
) -> None:
    """Refuse covariates that other arguments set, or that no law reads; most of the
    latter have a misspelt name.

    Parameters
    ----------
    read
        Columns that the laws read.
    set_elsewhere
        Columns that the question sets by other arguments, and how.
    """
    if not isinstance(covariates, Mapping):
        raise PlanError(
            f"covariates are by column, loss_before=2.3; got {covariates!r}"
        )
    for column in covariates:
        if column in set_elsewhere:
            raise PlanError(
                f"covariates cannot set {column!r}: {set_elsewhere[column]}"
            )
        if column not in read:
            raise PlanError(
                f"no law reads the covariate {column!r}; "
                f"they read {', '.join(sorted(read))}"
            )
