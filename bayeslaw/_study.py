"""Studies: a task done for many worlds, its rows kept in a file as they are made, so that an interrupted study goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._engine import as_done
from bayeslaw._errors import RunTableError
from bayeslaw._files import whole

Job = Mapping[str, Any]
Rows = list[dict[str, Any]]


def study(
    task: Callable[..., Rows],
    jobs: Sequence[Job],
    path: Path | None = None,
    *,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Rows of all jobs; those of jobs already in the file are read, the rest are made.

    Parameters
    ----------
    task
        Called with a job's items as keyword arguments, it returns rows; they get the job's items as columns.
    path
        CSV of rows, written anew after each job. Rows of other jobs in it stay.
    executor
        Where to run, one job a task; by default here. Workers need this package.
    progress
        Called with jobs done and to do.

    Raises
    ------
    RunTableError
        The file is not a table of such jobs.
    """
    rows = _read(path, jobs)
    wanted = [_key(job, job) for job in jobs]
    done = {_key(row, jobs[0]) for row in rows} & set(wanted)
    tell = progress or (lambda done, total: None)
    tell(len(done), len(jobs))
    open_ = [j for j, k in zip(jobs, wanted, strict=True) if k not in done]
    for i, found in as_done([partial(task, **job) for job in open_], executor):
        job = open_[i]
        rows += [{**job, **row} for row in found]
        done.add(_key(job, job))
        if path is not None:
            with whole(path) as part:
                pd.DataFrame(rows).to_csv(part, index=False)
        tell(len(done), len(jobs))
    order = {key: i for i, key in enumerate(wanted)}
    mine = [row for row in rows if _key(row, jobs[0]) in order]
    mine.sort(key=lambda row: order[_key(row, jobs[0])])
    return pd.DataFrame(mine)


def _key(row: Mapping[Any, Any], job: Job) -> tuple[str, ...]:
    """A row's job, as text: 1 and 1.0 are one."""
    return tuple(f"{v:g}" if isinstance(v := row[name], (int, float)) else str(v) for name in job)


def _read(path: Path | None, jobs: Sequence[Job]) -> Rows:
    if path is None or not path.exists():
        return []
    table = pd.read_csv(path)
    odd = [name for name in jobs[0] if name not in table]
    if odd:
        raise RunTableError(f"{path} holds no rows of this study: it lacks column {odd[0]!r}; give another file")
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]
