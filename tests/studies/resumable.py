"""Run studies: one task for many jobs. Rows are written to a file as they are made, so
an interrupted study can resume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.files import atomic_write
from bayeslaw._base.machine.executors import as_done
from bayeslaw._base.progress.time_left import Progress

Job = Mapping[str, Any]
Results = list[dict[str, Any]]
"""Rows that jobs made, as the file keeps them."""


def study(
    task: Callable[..., Results],
    jobs: Sequence[Job],
    path: Path | None = None,
    *,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Collect the rows of all jobs: read the rows of jobs already in the file, and make
    the rest.

    Parameters
    ----------
    task
        Called with a job's items as keyword arguments; it returns rows, which get the
        job's items as columns.
    path
        CSV of rows, rewritten after each job. Rows of other jobs in it stay.
    executor
        Where to run, one task for each job; by default in this process. Workers need
        this package.
    progress
        Called with the number of jobs done and the number of all jobs.

    Raises
    ------
    RunTableError
        The file is not a table of such jobs.
    """
    rows = _read(path, jobs)
    names = tuple(jobs[0])
    order = {_key(job, names): position for position, job in enumerate(jobs)}
    done = {_key(row, names) for row in rows} & set(order)
    report = progress or (lambda done, total: None)
    report(len(done), len(jobs))
    missing = [job for job in jobs if _key(job, names) not in done]
    tasks = [partial(task, **job) for job in missing]
    for position, results in as_done(tasks, executor):
        job = missing[position]
        rows += [{**job, **result} for result in results]
        done.add(_key(job, names))
        if path is not None:
            with atomic_write(path) as part:
                pd.DataFrame(rows).to_csv(part, index=False)
        report(len(done), len(jobs))
    wanted = [row for row in rows if _key(row, names) in order]
    wanted.sort(key=lambda row: order[_key(row, names)])
    return pd.DataFrame(wanted)


def _key(row: Mapping[Any, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Write a row's job as text, with 1 and 1.0 as equal."""
    items = [row[name] for name in names]
    return tuple(f"{v:g}" if isinstance(v, int | float) else str(v) for v in items)


def _read(path: Path | None, jobs: Sequence[Job]) -> Results:
    """Read the rows that a study has written so far; none if there is no file."""
    if path is None or not path.exists():
        return []
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:  # errors of pandas and of encodings
        reason = " ".join(str(error).split())
        raise RunTableError(
            f"{path}: cannot be read as the rows of a study ({reason}); give another file"
        ) from None
    missing = [name for name in jobs[0] if name not in table]
    if missing:
        raise RunTableError(
            f"{path} holds no rows of this study: it lacks column {missing[0]!r}; give "
            "another file"
        )
    records = table.to_dict("records")
    return [{str(name): v for name, v in record.items()} for record in records]
