"""Ten thousand generated tables against `read_runs`: units, spellings, separators, encodings, orders, and faults.

    python tests/studies/strange_tables.py [--tables 10000]

What a table means is known before it is written, so the reader is judged by an oracle that never reads. Prints, by fault, how
many tables were read as meant, refused in one line, misread, or ended in a traceback.
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
import bayeslaw
from bayeslaw._base.errors import RunTableError
from known.strange_tables import COLUMNS, Table, strange_table


class Judged(NamedTuple):
    """What came of one table: ``outcome`` is read, refused, misread or traceback."""

    seed: int
    fault: str
    outcome: str
    message: str


def judge(seeds: Iterable[int], folder: Path) -> list[Judged]:
    """Write and read each table."""
    return [_one(seed, folder) for seed in seeds]


def _one(seed: int, folder: Path) -> Judged:
    table = strange_table(seed)
    path = folder / f"table{table.suffix}"
    path.write_bytes(table.content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runs = bayeslaw.read_runs(path)
    except RunTableError as error:
        return Judged(seed, table.fault, "refused", str(error))
    except Exception as error:
        return Judged(
            seed, table.fault, "traceback", f"{type(error).__name__}: {error}"
        )
    return Judged(
        seed, table.fault, "read" if _as_meant(runs, table) else "misread", ""
    )


def _as_meant(runs: pd.DataFrame, table: Table) -> bool:
    """To the last digits that a number written out has."""
    if len(runs) != len(table.meant):
        return False
    read = runs[list(COLUMNS)].to_numpy(float)
    return bool(np.allclose(read, table.meant[list(COLUMNS)], rtol=1e-12, atol=0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=10_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        judged = judge(range(given.tables), Path(folder))
    rows = pd.DataFrame(judged)
    print(pd.crosstab(rows["fault"].replace("", "(none)"), rows["outcome"]).to_string())
    for row in judged:
        right = "refused" if row.fault else "read"
        if row.outcome != right:
            print(row, file=sys.stderr)


if __name__ == "__main__":
    main()
