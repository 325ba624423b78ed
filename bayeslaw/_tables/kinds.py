"""Find the kind of experience that a table belongs to, by its columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bayeslaw._law.columns import LOSSES_BEFORE
from bayeslaw._tables.runs import TEXT

if TYPE_CHECKING:
    import pandas as pd

    from bayeslaw._law.law import Law

CODE = re.compile(r"code|coder|github|stack|python|java\b|software", re.IGNORECASE)
FINE_TUNING = ("finetune", "rectified", "forgetting")


def kind_of(law: Law, runs: pd.DataFrame | None = None) -> tuple[str, str]:
    """Name the kind of a table, with the reason: the law's columns, else names in the
    table's texts.

    Examples
    --------
    >>> from bayeslaw._tables.kinds import kind_of
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
