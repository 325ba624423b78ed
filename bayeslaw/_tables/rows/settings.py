"""Find settings of runs that no law reads: learning rate, weight decay, batch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._law.columns import is_share
from bayeslaw._tables.rates.areas import COLUMNS
from bayeslaw._tables.rows.levels import ROUNDING, at_levels
from bayeslaw._tables.rows.naming import DESIGN, is_name, named_rows
from bayeslaw._tables.runs import NUMERIC, TEXT
from bayeslaw._tables.words import NOT_SET, name_words, quoted

if TYPE_CHECKING:
    from jaxtyping import Int


NEEDED = 3  # levels in a cell, for a parabola


class Alike(NamedTuple):
    """Rows that are equal in all columns that laws read, and differ in other settings.

    ``columns``: these other settings. ``rows``: all such rows. ``apart``: largest ratio
    of losses among rows that are equal for laws, minus one. ``spread``: sd of their log
    losses. ``tunable``: settings that `tuned` takes together. ``beside``: settings that
    are swept beside them.
    """

    columns: tuple[str, ...]
    rows: tuple[Any, ...]
    apart: float
    spread: float
    tunable: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def readable(self) -> tuple[str, ...]:
        """Settings to tune that a law can read: all, if their names are words."""
        are_words = all(map(str.isidentifier, self.tunable))
        return self.tunable if are_words and not self.beside else ()

    def sentence(self, law: str = "NAME") -> str:
        line = (
            f"{self.describe('all that laws read')}: taken as noise around their mean, "
            "so that forecasts are of a run of middling settings; keep the runs with the "
            "settings you will use, by --where"
        )
        if not self.tunable:
            return line
        at_one = f" with one level of {', '.join(self.beside)}" if self.beside else ""
        option = shlex.quote(",".join(self.tunable))
        # a law's name has those of its settings, as words
        words = {c: re.sub(r"\W+|^(?=\d)", "_", c).rstrip("_") for c in self.tunable}
        renamed = [
            f"--column {shlex.quote(f'{word}={column}')} "
            for column, word in words.items()
            if word != column
        ]
        swept = shlex.quote("+".join([law, *words.values()]))
        which = "it" if len(self.tunable) == 1 else "each"
        return (
            f"{line}, or{at_one} the tuned loss of each cell, by --best-of {option}, or "
            f"name a law with an optimum of {which}, {''.join(renamed)}--law {swept}"
        )

    def describe(self, same: str) -> str:
        names = ", ".join(map(repr, self.columns))
        return (
            f"{named_rows(self.rows)}: alike in {same}, and up to {self.apart:.1%} apart "
            f"in loss, at other settings of {names}"
        )


def alike_but_settings(
    runs: pd.DataFrame, inputs: Collection[str] = ()
) -> Alike | None:
    """Find rows that are equal in all columns of the schema (and in ``inputs`` of a
    law) but differ in settings: columns of whole runs with few levels, as ``lr``, and
    not names, seeds or measurements. None if there are no such rows.
    """
    if "loss" not in runs:
        return None
    keys = [c for c in runs if _is_read(c) or c in inputs]
    schema = {*NUMERIC, *TEXT, *inputs}
    if not {"step", *COLUMNS} & set(runs):
        # here lr is a setting of the run and not the rate of a step
        schema.discard("lr")
    settings = [c for c in runs if c not in schema and _is_setting(runs, c)]
    if not keys or not settings:
        return None
    for c in runs[settings].select_dtypes("float"):
        runs = runs.assign(**{str(c): at_levels(runs[c].to_numpy(), ROUNDING)})
    alike = runs.groupby(keys, dropna=False, sort=False)
    group, levels = alike.ngroup().to_numpy(), alike[settings].nunique()
    differ = [c for c in settings if (levels[c] > 1).any()]
    if not differ:
        return None
    mixed = (levels[differ].max(axis=1) > 1).to_numpy()[group]
    # a new index, because joined tables repeat labels
    logs = pd.Series(np.log(runs["loss"].to_numpy(float)[mixed]))
    of_cells = logs.groupby(group[mixed])
    apart = float(np.expm1((of_cells.max() - of_cells.min()).max()))
    away = logs - of_cells.transform("mean")
    spread = float(np.sqrt(np.sum(away**2) / (len(away) - of_cells.ngroups)))
    # settings of numbers above 0 with enough levels in two cells
    cells = cells_of(runs)
    can_be_tuned = [
        str(c)
        for c in runs
        if c in {*settings, "lr"}
        and are_levels(runs[c])
        and (runs[c].groupby(cells).nunique() >= NEEDED).sum() >= 2
    ]
    tunable = tuple(str(c) for c in differ if str(c) in can_be_tuned)[:1]
    further = swept_beside(runs, tunable)
    tunable += tuple(c for c in further if c in can_be_tuned)
    beside = swept_beside(runs, tunable)
    rows = tuple(runs.index[mixed])
    return Alike(tuple(map(str, differ)), rows, apart, spread, tunable, beside)


def tell_read(runs: pd.DataFrame, laws: Sequence[str]) -> str | None:
    """Describe rows that differ in settings, and what laws that read them do."""
    alike = alike_but_settings(runs) if laws else None
    if alike is None:
        return None
    in_step = [repr(c) for c in alike.columns if c not in alike.tunable]
    read = ", ".join(map(repr, alike.tunable))
    what = f"{read}, with which {', '.join(in_step)} moves" if in_step else "them"
    return (
        f"{alike.describe('all else')}: {', '.join(laws)} read {what}; a run without "
        "these columns is taken to have the best settings of the sweep"
    )


def are_levels(cells: pd.Series) -> bool:
    """Tell whether cells are numbers above 0, which have logarithms."""
    if pd.api.types.is_bool_dtype(cells):
        return False
    values = pd.to_numeric(cells, errors="coerce")
    return bool((np.isfinite(values) & (values > 0)).all())


def swept_beside(runs: pd.DataFrame, settings: Sequence[str]) -> tuple[str, ...]:
    """List further settings that differ among rows of a cell at one level of each of
    ``settings``, or do not move with them in one direction: the cell is a sweep of all.
    """
    # lr also in a table of steps: rows of one cell are of one step
    schema = {*NUMERIC, *TEXT} - {"lr"} | {*settings}
    others = [c for c in runs if c not in schema and _is_setting(runs, c)]
    beside = set()
    cells = pd.Series(cells_of(runs))
    for setting in settings:
        # at one level of the others a cell is a sweep of this one
        keys = [runs[name].to_numpy() for name in settings if name != setting]
        parts = cells.groupby([cells, *keys], sort=False).ngroup().to_numpy()
        beside |= {c for c in others if _is_beside(runs, parts, setting, c)}
    return tuple(str(c) for c in runs if c in beside)


def _is_beside(
    runs: pd.DataFrame, cells: Int[np.ndarray, " row"], setting: str, other: Any
) -> bool:
    level = pd.to_numeric(runs[setting]).to_numpy(float)
    value = pd.Series(runs[other].factorize(sort=False)[0])
    if (value.groupby([cells, level]).nunique() > 1).any():
        return True
    if not pd.api.types.is_numeric_dtype(runs[other]):
        levels = pd.Series(level).groupby([cells, value.to_numpy()]).nunique()
        several = value.groupby(cells).transform("nunique") > 1
        return bool(several.any() and (levels > 1).any())
    table = pd.DataFrame(
        {"cell": cells, "level": level, "other": runs[other].to_numpy(float)}
    )
    steps = table.sort_values(["cell", "level"]).groupby("cell")["other"].diff()
    rises = (steps > 0).groupby(table["cell"]).any()
    falls = (steps < 0).groupby(table["cell"]).any()
    return bool((rises & falls).any())


def at_commonest(runs: pd.DataFrame, columns: Collection[str]) -> str:
    """Write a query for the commonest setting of ``columns``; of equals, the best."""
    names = list(columns)
    losses = runs.groupby(names, sort=False)["loss"].agg(["size", "mean"])
    # a setting may be called size or mean, too
    first = losses.index[np.lexsort([losses["mean"], -losses["size"]])[0]]
    levels = first if isinstance(first, tuple) else (first,)
    return " and ".join(
        f"{quoted(name)} == {level.item() if hasattr(level, 'item') else level!r}"
        for name, level in zip(names, levels, strict=True)
    )


def _is_read(column: Any) -> bool:
    """Tell whether laws read a column: a setting of a design, D, or a share."""
    return column in ("D", *DESIGN) or is_share(column)


def cells_of(runs: pd.DataFrame) -> Int[np.ndarray, " row"]:
    """Number the cell of each row: rows equal in all columns that laws read."""
    keys = [column for column in runs if _is_read(column)]
    if not keys:
        raise RunTableError(
            f"cells are alike in what laws read, and the table has none of "
            f"{', '.join(('D', *DESIGN))}"
        )
    return runs.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()


def _is_setting(runs: pd.DataFrame, column: Any) -> bool:
    """Tell whether a column has few levels, constant along runs, and no losses."""
    # a column with more levels is a name or a measurement
    if not 1 < runs[column].nunique() <= max(2, len(runs) / 2):
        return False
    name = str(column)
    if "loss" in name.lower() or is_name(column) or NOT_SET & {*name_words(name)}:
        return False
    # a column that changes along a run is not a setting
    return "run" not in runs or bool((runs.groupby("run")[column].nunique() <= 1).all())
