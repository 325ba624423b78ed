"""Read Trackio's local projects: ``trackio:PROJECT``, in Trackio's own folder (its
environment variable ``TRACKIO_DIR`` names another).
"""

from __future__ import annotations

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import LoggedRun, by_step, imported


def read(place: str) -> list[LoggedRun]:
    """Read a project's runs."""
    trackio = imported("trackio", "trackio")
    storage = imported("trackio.sqlite_storage", "trackio").SQLiteStorage
    projects = storage.get_projects()
    if place not in projects:
        names = ", ".join(projects) or "none"
        raise RunTableError(
            f"no such project; there are: {names} (TRACKIO_DIR names another folder)"
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
    return runs
