"""List what looks wrong in a table of runs, whenever one is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pandas as pd

from bayeslaw._tables.before import finished_query, unfinished
from bayeslaw._tables.checks.parts import gaps
from bayeslaw._tables.checks.units import odd_units
from bayeslaw._tables.rows.naming import named_rows


def suspicions(runs: pd.DataFrame, mapped: Collection[str]) -> Iterator[str]:
    """Yield a line for each suspicion; ``mapped`` lists the columns that were read from
    columns of other names.
    """
    yield from _unfinished(runs)
    yield from _renamed_runs(runs)
    yield from _twins(runs)
    yield from odd_units(runs, "read")
    if {"N", "D"} & {*mapped}:
        yield from odd_units(runs, "mapped")
    yield from gaps(runs)


def _unfinished(runs: pd.DataFrame) -> Iterator[str]:
    """Tell of rows of unfinished runs."""
    for name, states, count in unfinished(runs):
        yield (
            f"{count} of {len(runs)} rows are of runs that did not end ({name} "
            f"{', '.join(states)}): their losses may be of another schedule; leave "
            f'them out by --where "{finished_query(runs)}"'
        )


def _renamed_runs(runs: pd.DataFrame) -> Iterator[str]:
    """Tell of rows of one run that differ in what is set before a run."""
    if "run" not in runs:
        return
    settings = [c for c in ("N", "ptpp") if c in runs]
    levels = runs.groupby("run")[settings].nunique()
    for name in settings:
        several = levels.index[levels[name] > 1]
        # where most runs have several, the column does not name runs
        if 0 < len(several) <= 0.2 * len(levels):
            rows = runs.index[(runs["run"] == several[0]).to_numpy()]
            yield (
                f"{named_rows(rows)} are of one run, {several[0]!r}, and differ in "
                f"{name!r}: is a run's name there twice?"
            )
            return


def _twins(runs: pd.DataFrame) -> Iterator[str]:
    """Tell of rows exported twice, which would count as replicates, that is, as more
    runs.
    """
    twins = runs.duplicated(keep="first").to_numpy()
    if "loss" in runs and twins.any():
        yield (
            f"{named_rows(runs.index[twins])}: the same as an earlier row in every "
            "column, and counted as further runs; drop them if the table was exported "
            "twice, name the runs apart (column 'run') if they are replicates"
        )
