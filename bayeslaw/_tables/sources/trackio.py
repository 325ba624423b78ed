"""Read Trackio's local projects: ``trackio:PROJECT``, in Trackio's own folder (its
environment variable ``TRACKIO_DIR`` names another).
"""

from __future__ import annotations

import sqlite3

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.library import imported
from bayeslaw._tables.sources.points import LoggedRun, by_step, points


def read(place: str) -> pd.DataFrame:
    """Read the points of a project's runs."""
    where = f"trackio:{place}"
    trackio = imported("trackio", "trackio")
    storage = imported("trackio.sqlite_storage", "trackio").SQLiteStorage
    try:
        projects = storage.get_projects()
        if place not in projects:
            names = ", ".join(projects) or "none"
            raise RunTableError(
                f"{where}: no such project; there are: {names} (TRACKIO_DIR names "
                "another folder)"
            )
        runs = []
        for run in trackio.Api().runs(place):
            logged = []
            for row in storage.get_logs(place, run.name, run_id=run.id):
                beside = ("step", "timestamp")
                metrics = {k: v for k, v in row.items() if k not in beside}
                logged.append((row["step"], metrics))
            settings = {k: v for k, v in (run.config or {}).items() if k[:1] != "_"}
            runs.append(LoggedRun(run.name, settings, by_step(logged)))
    except sqlite3.Error as error:
        raise RunTableError(f"{where}: cannot be read ({error})") from None
    return points(runs, where)
