"""Read what a user names as a table: a file, or a tracker's store as ``SCHEME:PLACE``."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._law.catalogue import law_names
from bayeslaw._tables.sources.files import read_table_file, sheet_of
from bayeslaw._tables.sources.points import points
from bayeslaw._tables.sources.trackers import TRACKERS

FORMATS = "CSV, JSON lines, Parquet or Excel"


def is_tracker(source: object) -> bool:
    """Tell whether a source names a tracker's store, not a file."""
    if not isinstance(source, str | Path):
        return False
    scheme, colon, _ = str(source).partition(":")
    return bool(colon) and scheme in TRACKERS


def read_source(
    source: str | Path, *, grows: bool = False, names: Collection[str] = ()
) -> pd.DataFrame:
    """Read the table of a file (`read_table_file`), or the points of a tracker's runs,
    under their own names. Every error is a `RunTableError` of one line.
    """
    is_store = is_tracker(source)
    try:
        if is_store:
            return _read_store(str(source))
        name = str(source).lower()
        if not sheet_of(source)[0].is_file():
            if name in law_names():
                raise RunTableError(
                    f"{str(source)!r} is a law, not a table of runs; the table comes "
                    f"first: fit(runs, {name!r}), and at the command line fit RUNS --law "
                    f"{name}"
                )
            raise RunTableError(
                f"{source}: no such file; give a table of runs as {FORMATS}, or a "
                f"tracker's store as {':..., '.join(TRACKERS)}:..."
            )
        return read_table_file(Path(source), grows=grows, names=names)
    except RunTableError:
        raise
    except Exception as error:  # every codec, parser and tracker raises its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        do = (
            "see that it is whole and can be reached" if is_store else f"give {FORMATS}"
        )
        raise RunTableError(
            f"{source}: cannot be read as a table ({reason}); {do}"
        ) from None


def _read_store(source: str) -> pd.DataFrame:
    scheme, _, place = source.partition(":")
    if not place:
        raise RunTableError(f"{source}: of which store? write {scheme}:PLACE")
    with warnings.catch_warnings():
        # trackers' libraries warn of their own dependencies
        warnings.simplefilter("ignore")
        try:
            runs = TRACKERS[scheme](place)
        except RunTableError as error:
            # that of a file or folder in the store names its path
            of_part = str(error).startswith(place)
            where = f"{scheme}:" if of_part else f"{source}: "
            raise RunTableError(f"{where}{error}") from None
        return points(runs, source)
