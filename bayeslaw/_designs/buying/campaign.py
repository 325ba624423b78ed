"""Define the question of a sequence of purchases, and read the runs bought so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._costs.costs import Costs
from bayeslaw._designs.goals.kinds import GainName
from bayeslaw._law.law import Law
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._tables.before import of_source


@dataclass(frozen=True)
class BuyingRules:
    """Thresholds of a campaign.

    Parameters
    ----------
    first_share
        Largest share of the budget for runs chosen by the priors alone.
    trifle
        Share of the budget below which a run is not offered. A law is fitted before its
        misfit, so many small runs, far from the goal, distort the law. With such runs
        forecasts got worse (docs/anchors.md).
    least_fall
        Least share by which the rest of the budget must lower the goal's sd.
    odd
        A loss is called odd if a loss at least as far from its forecast has a lower
        probability than this.
    """

    first_share: float = 0.2
    trifle: float = 2e-3
    least_fall: float = 0.05
    odd: float = 1e-3


@dataclass(frozen=True, eq=False)
class Campaign:
    """A sequence of purchases: the arguments of `next_runs`, with defaults filled in.

    ``goal``: runs to forecast, or the keywords of a plan. ``laws``: laws by domain; for
    a plan target and source. ``gain``: kind of gain for runs to forecast. ``costs``:
    prices, if the budget is money.
    """

    candidates: pd.DataFrame
    goal: pd.DataFrame | Mapping[str, Any]
    budget: float
    measured: pd.DataFrame
    laws: Mapping[str, tuple[Law, ...]]
    batch: int | None
    enough: float
    least: float
    gain: GainName
    seed: int
    costs: Costs | None
    rules: BuyingRules = BuyingRules()

    def table(self, domain: str) -> pd.DataFrame:
        """Convert candidates to the columns that the laws of a domain read."""
        return as_read(self.candidates, domain)


def losses_of(goal: pd.DataFrame | Mapping[str, Any]) -> dict[str, str]:
    """Name the columns of the losses that are measured for a run, by domain."""
    if isinstance(goal, pd.DataFrame):
        return {TARGET: "loss"}
    return {TARGET: "loss", FORGETTING: "source_loss"}


def as_read(table: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Convert a table to the columns that the laws of a domain read."""
    return table if domain == TARGET else of_source(table)


def read_measured(
    offered: pd.DataFrame,
    measured: pd.DataFrame | None,
    columns: Mapping[str, str],
) -> pd.DataFrame:
    """Read rows and losses, and check that every row is among the candidates.

    Raises
    ------
    RunTableError
        A column is missing, a row is not among the candidates or occurs twice, or a
        loss is invalid.
    """
    losses = [*columns.values()]
    if measured is None or not len(measured):
        return pd.DataFrame({"row": [], **{column: [] for column in losses}})
    for column in ("row", *losses):
        if column not in measured:
            raise RunTableError(
                f"the table of measured runs lacks column {column!r}: give the rows "
                "that were to be measured, with their losses"
            )
    strange = [row for row in measured["row"] if row not in offered.index]
    if strange:
        raise RunTableError(
            f"measured row {strange[0]!r} is none of the candidates: give the table "
            "they were chosen from"
        )
    table = measured[["row"]].assign(
        **{c: _convert_losses(measured, c) for c in losses}
    )
    _check_whole(table, losses)
    # if a failed run was repeated, only the row with its losses counts
    gave = table.dropna(subset=losses)
    failed = table[~table["row"].isin(gave["row"])].drop_duplicates("row")
    twice = gave["row"][gave["row"].duplicated()]
    if len(twice):
        raise RunTableError(
            f"measured row {twice.iloc[0]!r} is there twice: give each batch once"
        )
    is_kept = table.index.isin([*gave.index, *failed.index])
    return table[is_kept].reset_index(drop=True)


def _convert_losses(measured: pd.DataFrame, column: str) -> pd.Series:
    """Convert losses to numbers, with NaN for failed runs."""
    losses = pd.to_numeric(measured[column], errors="coerce")
    written = measured[column].notna() & (
        measured[column].astype(str).str.strip() != ""
    )
    wrong = (losses.isna() & written) | (losses <= 0) | np.isinf(losses)
    if wrong.any():
        first = measured[wrong].iloc[0]
        raise RunTableError(
            f"measured row {first['row']!r}, column {column!r}: {first[column]!r} is no "
            "loss above 0; leave it empty if the run failed"
        )
    return losses


def _check_whole(table: pd.DataFrame, losses: list[str]) -> None:
    """Refuse a run that has the loss of one domain only: it is unclear whether the run
    failed or the other loss was forgotten.
    """
    is_missing = table[losses].isna()
    half = is_missing.any(axis=1) & ~is_missing.all(axis=1)
    if half.any():
        row = table["row"][half].iloc[0]
        lacks = is_missing.columns[is_missing[half].iloc[0]][0]
        raise RunTableError(
            f"measured row {row!r} has no {lacks!r} beside its other loss: a plan needs "
            "both; leave both empty if the run failed"
        )
