"""Find the rows of a table that are new, changed or gone since a posterior was fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.numbers import format_many
from bayeslaw._tables.rows.levels import number_alike
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.runs import (
    TEXT,
    numeric_columns,
    point_columns,
)

if TYPE_CHECKING:
    from jaxtyping import Int


class RowChanges(NamedTuple):
    """Comparison of a table's rows with a posterior's training rows.

    Parameters
    ----------
    new
        Rows of the table that were not fitted.
    changed
        Rows of the table whose loss has changed; the old loss is ``loss_was``.
    gone
        Training rows that the table lacks.
    same
        Number of rows that are equal in both.
    """

    new: pd.DataFrame
    changed: pd.DataFrame
    gone: pd.DataFrame
    same: int

    @property
    def any(self) -> bool:
        return bool(len(self.new) or len(self.changed) or len(self.gone))

    def sentence(self) -> str:
        """Describe the changes: 12 new rows, 1 changed, 1 gone, 58 as they were."""
        parts = [format_many(len(self.new), "new row")]
        if len(self.changed):
            parts.append(f"{len(self.changed)} changed")
        if len(self.gone):
            parts.append(f"{len(self.gone)} gone")
        return ", ".join([*parts, f"{self.same} as they were"])


def row_changes(before: pd.DataFrame, after: pd.DataFrame) -> RowChanges:
    """Match rows by the run's name and the position along it; without names, by all
    columns that identify a run. Replicates are matched by their losses first.
    """
    naming = point_columns(before)
    if "run" not in naming or not set(naming) <= set(after):
        # measurements and costs do not identify a run
        columns = numeric_columns(before)
        numbers = [c for c in columns if c != "cost" and "loss" not in c]
        texts = [c for c in TEXT if c != "run" and c in before]
        naming = [c for c in (*numbers, *texts) if c in after]
    values = [c for c in numeric_columns(before) if c in after]
    # Rows with equal losses are matched first. A new replicate of an old run then stays
    # unmatched, because its loss differs.
    same_before, same_after = _pair_rows(before, after, [*naming, *values])
    left_before = np.setdiff1d(np.arange(len(before)), same_before)
    left_after = np.setdiff1d(np.arange(len(after)), same_after)
    place_before, place_after = _pair_rows(
        before.iloc[left_before], after.iloc[left_after], naming
    )
    was, now = left_before[place_before], left_after[place_after]
    losses = before["loss"].to_numpy(float)[was]
    return RowChanges(
        new=after.iloc[np.setdiff1d(left_after, now)],
        changed=after.iloc[now].assign(loss_was=losses),
        gone=before.iloc[np.setdiff1d(left_before, was)],
        same=len(same_after),
    )


def check_enough(changes: RowChanges, before: pd.DataFrame, what: str) -> None:
    """Refuse a table that lacks most of the rows that ``what`` was fitted to."""
    if len(changes.gone) <= len(before) / 2:
        return
    raise RunTableError(
        f"the table lacks {len(changes.gone)} of the {len(before)} rows that {what} was "
        f"fitted to ({named_rows(changes.gone.index)} there): give old rows and new ones "
        "in one table, or --allow-missing to go on without them"
    )


def _pair_rows(
    before: pd.DataFrame, after: pd.DataFrame, columns: list[str]
) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
    """Match rows equal in these columns, each used once, in the order of ``after``."""
    was, now = (
        pd.DataFrame(
            {"alike": alike, "nth": pd.Series(alike).groupby(alike).cumcount()}
        )
        for alike in number_alike(before, after, columns)
    )
    pairs = now.reset_index().merge(was.reset_index(), on=["alike", "nth"])
    return pairs["index_y"].to_numpy(), pairs["index_x"].to_numpy()
