"""Find settings of runs that no law reads: learning rate, weight decay, batch."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from bayeslaw._base.errors import RunTableError, warn
from bayeslaw._law.columns import is_share
from bayeslaw._tables.rates.areas import COLUMNS
from bayeslaw._tables.rows.levels import ROUNDING, at_levels
from bayeslaw._tables.rows.naming import is_name
from bayeslaw._tables.runs import NUMERIC, TEXT, named_rows

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int


class Alike(NamedTuple):
    """Rows that are equal in all columns that laws read, and differ in other settings.

    ``columns``: these other settings. ``rows``: all such rows. ``apart``: largest ratio
    of losses among rows that are equal for laws, minus one.
    """

    columns: tuple[str, ...]
    rows: tuple[Any, ...]
    apart: float

    def sentence(self) -> str:
        """Describe the rows, how far apart their losses are, and what to do."""
        names = ", ".join(map(repr, self.columns))
        first = self.columns[0]
        return (
            f"{named_rows(self.rows)}: alike in all that laws read, and up to "
            f"{self.apart:.1%} apart in loss, at other settings of {names}: taken as "
            "noise around their mean, so that forecasts are of a run of middling "
            "settings; keep the runs with the settings you will use, by --where, or the "
            f"tuned loss of each cell, by --best-of {shlex.quote(first)}, or name a law "
            f"with an optimum of it, --law {shlex.quote(f'NAME+{first}')}"
        )


def alike_but_settings(
    runs: pd.DataFrame, inputs: Collection[str] = ()
) -> Alike | None:
    """Find rows that are equal in all columns of the schema (and in ``inputs`` of a
    law) but differ in other columns, such as ``lr``.

    A setting belongs to a whole run and has few levels; names, seeds and measurements
    are not settings. Returns None if there are no such rows.
    """
    if "loss" not in runs:
        return None
    schema = {*NUMERIC, *TEXT, *inputs}
    if not {"step", *COLUMNS} & set(runs):
        schema.discard(
            "lr"
        )  # here lr is a setting of the run and not the rate of a step
    keys = [c for c in runs if _is_read(c) or c in inputs]
    settings = [c for c in runs if c not in schema and _is_setting(runs, c)]
    if not keys or not settings:
        return None
    numbers = runs[settings].select_dtypes("float")
    runs = runs.assign(
        **{str(c): at_levels(numbers[c].to_numpy(), ROUNDING) for c in numbers}
    )
    alike = runs.groupby(keys, dropna=False, sort=False)
    group = alike.ngroup()
    levels = alike[settings].nunique()
    differ = [c for c in settings if (levels[c] > 1).any()]
    if not differ:
        return None
    group = group.to_numpy()
    mixed = (levels.loc[:, differ].max(axis=1) > 1).to_numpy()[group]
    # a new index, because joined tables repeat labels
    losses = pd.Series(runs["loss"].to_numpy(float)[mixed]).groupby(group[mixed])
    apart = float((losses.max() / losses.min()).max() - 1)
    return Alike(tuple(map(str, differ)), tuple(runs.index[mixed]), apart)


# columns that are equal for runs of one design; areas and steps follow from D and the
# schedule
_ALIKE_IN = ("N", "D", "U", "replay", "ptpp", "domain", "checkpoint", "schedule")


def _is_read(column: Any) -> bool:
    """Tell whether laws read a column: one of `_ALIKE_IN`, or the share of a domain."""
    return column in _ALIKE_IN or is_share(column)


def cells_of(runs: pd.DataFrame) -> Int[np.ndarray, " row"]:
    """Number the cell of each row, shape (row,): rows of a cell are equal in all
    columns that laws read.

    Raises
    ------
    RunTableError
        The table has no column for laws.
    """
    keys = [column for column in runs if _is_read(column)]
    if not keys:
        raise RunTableError(
            f"cells are alike in what laws read, and the table has none of "
            f"{', '.join(_ALIKE_IN)}"
        )
    return runs.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()


def _is_setting(runs: pd.DataFrame, column: Any) -> bool:
    """Tell whether a column is a setting: few levels, not a loss or a name, and
    constant along a run.
    """
    levels = runs[column].nunique()
    # a column with more levels is a name or a measurement
    if not 1 < levels <= max(2, len(runs) / 2):
        return False
    if "loss" in str(column).lower() or is_name(column):
        return False
    if "run" not in runs:
        return True
    # a column that changes along a run is not a setting
    return bool((runs.groupby("run")[column].nunique() <= 1).all())


def warn_settings(runs: pd.DataFrame, inputs: Collection[str] = ()) -> None:
    """Warn of rows that differ only in settings that no law reads."""
    alike = alike_but_settings(runs, inputs)
    if alike is not None:
        warn(alike.sentence())
