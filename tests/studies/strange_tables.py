"""Test `read_runs` and the review's check of units on twenty thousand generated tables, with various spellings, separators,
encodings and orders, repeated curves, columns in other units, and faults.

    python tests/studies/strange_tables.py [--tables 20000] [--processes 16]

The content of a table is known before the table is written, so the check does not depend on any reader. Prints, by fault,
how many tables were read correctly, refused in one line, misread, or ended in a traceback.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))
from processes import processes

import bayeslaw
from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.rows.levels import with_levels
from bayeslaw._tables.suspicions import describe_unjudged_units, suspicions
from known.strange_tables import (
    COLUMNS,
    CURVE_TWICE,
    TWICE,
    UNIT_FAULTS,
    Table,
    strange_table,
)


class Judged(NamedTuple):
    """What came of one table: ``outcome`` is read, refused, warned (rows twice), told or named (units that are odd, or
    that it says it did not judge), called right, misread or traceback.
    """

    seed: int
    fault: str
    outcome: str
    message: str


RIGHT = {TWICE: {"warned"}, CURVE_TWICE: {"refused"}, "": {"read"}}
RIGHT |= {fault: {"told", "named"} for fault in UNIT_FAULTS}


def is_right(row: Judged) -> bool:
    """Whether a table came to what its fault should; a fault of a cell or a line is refused."""
    return row.outcome in RIGHT.get(row.fault, {"refused"})


PART = 250  # tables that a process judges at once


def judge(seeds: Iterable[int]) -> list[Judged]:
    """Write and read each table."""
    with tempfile.TemporaryDirectory() as folder:
        return [_one(seed, Path(folder)) for seed in seeds]


def _one(seed: int, folder: Path) -> Judged:
    table = strange_table(seed)
    path = folder / f"table{table.suffix}"
    path.write_bytes(table.content)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            runs = bayeslaw.read_runs(path)
    except RunTableError as error:
        return Judged(seed, table.fault, "refused", str(error))
    except Exception as error:
        return Judged(
            seed, table.fault, "traceback", f"{type(error).__name__}: {error}"
        )
    lines = [str(warning.message) for warning in caught]
    if not _as_meant(runs, table):
        return Judged(seed, table.fault, "misread", "")
    if table.fault in UNIT_FAULTS:
        return _of_units(seed, table.fault, runs, lines)
    twice = any("the same as an earlier row" in line for line in lines)
    return Judged(seed, table.fault, "warned" if twice else "read", "; ".join(lines))


def _of_units(seed: int, fault: str, runs: pd.DataFrame, lines: list[str]) -> Judged:
    """What is said of a column that is in another unit: by reading, or by the review."""
    odd = suspicions(runs, "units")
    said = "; ".join([*lines, *odd])
    if said:
        return Judged(seed, fault, "told", said)
    _, phrase = UNIT_FAULTS[fault]
    unjudged = describe_unjudged_units(runs)
    return Judged(
        seed, fault, "named" if phrase in unjudged else "called right", unjudged
    )


def _as_meant(runs: pd.DataFrame, table: Table) -> bool:
    """To the last digits that a number written out has, where no two values are so near
    that they are one level.
    """
    if len(runs) != len(table.meant):
        return False
    read = runs[list(COLUMNS)].to_numpy(float)
    meant = with_levels(table.meant)[list(COLUMNS)]
    return bool(np.allclose(read, meant, rtol=1e-12, atol=0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    seeds = range(given.tables)
    parts = [seeds[k : k + PART] for k in range(0, len(seeds), PART)]
    with processes(given.processes) as executor:
        run = executor.map if executor else map
        judged = [row for rows in run(judge, parts) for row in rows]
    rows = pd.DataFrame(judged)
    print(pd.crosstab(rows["fault"].replace("", "(none)"), rows["outcome"]).to_string())
    for row in judged:
        if not is_right(row):
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
