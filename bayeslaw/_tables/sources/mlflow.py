"""Read stores of MLflow: ``mlflow:PLACE#EXPERIMENT``, where PLACE is a folder of runs,
a SQLite file or a server's address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import LoggedRun, by_time, imported


def read(place: str) -> list[LoggedRun]:
    """Read an experiment's runs, by default those of the only experiment."""
    store, _, experiment = place.partition("#")
    address = _find_address(store)
    tracking = imported("mlflow.tracking", "mlflow")
    try:
        with _allow_folders():
            client = tracking.MlflowClient(tracking_uri=address)
            chosen = _find_experiment(client, experiment, store)
            return [*_iterate_runs(client, chosen.experiment_id)]
    except ModuleNotFoundError as error:  # the SQL library; folders do not need it
        raise RunTableError(f'{error}; pip install "bayeslaw[mlflow]"') from None


@contextmanager
def _allow_folders() -> Iterator[None]:
    """Allow stores that are folders. MLflow refuses them so that people move to
    databases, but here they are only read.
    """
    variable = "MLFLOW_ALLOW_FILE_STORE"
    before = os.environ.get(variable)
    os.environ[variable] = "true"
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


def _find_address(store: str) -> str:
    """Find the store's URI. A missing place is refused, because MLflow would create it."""
    if re.match(r"https?:/", store):
        # `Path` removes one of the two slashes of an address
        return re.sub(r"^(https?):/+", r"\1://", store)
    path = Path(store)
    # both are checked before MLflow runs, which would create what is missing
    if path.is_dir():
        return path.resolve().as_uri()
    if path.is_file():
        return f"sqlite:///{path.resolve()}"
    raise RunTableError(
        "no such store; give a folder (mlruns), a SQLite file (mlflow.db) or "
        "a server's address"
    )


def _find_experiment(client: Any, name: str, store: str) -> Any:
    """Find the named experiment, else the only one with runs."""
    experiments = {e.name: e for e in client.search_experiments()}
    if name:
        if name not in experiments:
            names = ", ".join(experiments) or "none"
            raise RunTableError(f"no experiment {name!r}; there are: {names}")
        return experiments[name]
    used = [
        e
        for e in experiments.values()
        if client.search_runs([e.experiment_id], max_results=1)
    ]
    if len(used) == 1:
        return used[0]
    if not used:
        raise RunTableError("no runs in any experiment")
    raise RunTableError(
        f"runs in {len(used)} experiments; name one, as in "
        f"mlflow:{store}#{used[0].name}: "
        f"{', '.join(e.name for e in used)}"
    )


def _iterate_runs(client: Any, experiment_id: str) -> Iterator[LoggedRun]:
    """Yield all runs that were not deleted, oldest first."""
    token = None
    while True:
        page = client.search_runs(
            [experiment_id],
            max_results=1000,
            order_by=["attributes.start_time ASC"],
            page_token=token,
        )
        for run in page:
            logged = [
                (metric.timestamp, metric.step, name, metric.value)
                for name in run.data.metrics
                for metric in client.get_metric_history(run.info.run_id, name)
            ]
            settings = {name: _parse(text) for name, text in run.data.params.items()}
            name = run.info.run_name or run.info.run_id
            yield LoggedRun(name, settings, by_time(logged))
        token = page.token
        if not token:
            return


def _parse(text: str) -> float | str:
    """Parse a setting, since MLflow keeps all settings as text."""
    try:
        return float(text)
    except ValueError:
        return text
