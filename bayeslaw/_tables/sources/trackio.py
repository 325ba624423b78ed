"""Trackio's local projects: ``trackio:PROJECT``, in the folder that Trackio itself uses
(its environment variable ``TRACKIO_DIR`` names another).
"""

from __future__ import annotations

import sqlite3
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.library import imported
from bayeslaw._tables.sources.points import LoggedRun, by_step, points

OWN = ("step", "timestamp")  # of a row, beside its metrics


def read(place: str) -> pd.DataFrame:
    """The points of a project's runs.

    Raises
    ------
    RunTableError
        There is no such project, or Trackio is not installed.
    """
    where = f"trackio:{place}"
    trackio = imported("trackio", "trackio")
    storage = imported("trackio.sqlite_storage", "trackio").SQLiteStorage
    try:
        projects = storage.get_projects()
        if place not in projects:
            known = ", ".join(projects) or "none"
            raise RunTableError(
                f"{where}: no such project; there are: {known} (TRACKIO_DIR names "
                "another folder)"
            )
        runs = [_run(storage, place, run) for run in trackio.Api().runs(place)]
    except sqlite3.Error as error:
        raise RunTableError(f"{where}: cannot be read ({error})") from None
    return points(runs, where)


def _run(storage: Any, project: str, run: Any) -> LoggedRun:
    rows = storage.get_logs(project, run.name, run_id=run.id)
    logged = [
        (row["step"], {key: value for key, value in row.items() if key not in OWN})
        for row in rows
    ]
    config = run.config or {}
    settings = {key: value for key, value in config.items() if key[:1] != "_"}
    return LoggedRun(run.name, settings, by_step(logged))
