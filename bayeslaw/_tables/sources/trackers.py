"""Read the stores of experiment trackers, each by its tracker's own library, which is
imported when a store is read.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import (
    LoggedRun,
    by_step,
    by_time,
    files_below,
    imported,
    name_below,
)

TEXTS = ("args/text_summary", "model_config/text_summary")  # JSON that the Trainer logs


def read_tensorboard(place: str) -> list[LoggedRun]:
    """Read all runs below a folder (or of one event file); a folder is a run."""
    folder, files = files_below(place, "*tfevents*", "one with event files")
    places = sorted({file if folder.is_file() else file.parent for file in files})
    logs = {at: _read_events(at) for at in places}
    runs = []
    for at, (config, history) in logs.items():
        # `add_hparams` writes the settings to a folder below that of the run
        if config and at.parent in logs:
            continue
        below = [
            of_folder for place, (of_folder, _) in logs.items() if place.parent == at
        ]
        settings = {name: x for one in [*below, config] for name, x in one.items()}
        runs.append(LoggedRun(name_below(folder, at), settings, history))
    return runs


def _read_events(at: Path) -> tuple[dict[str, Any], dict[float, dict[str, float]]]:
    accumulator = imported(
        "tensorboard.backend.event_processing.event_accumulator", "tensorboard"
    )
    tensor_util = imported("tensorboard.util.tensor_util", "tensorboard")
    # 0: all points, not a sample of them
    events = accumulator.EventAccumulator(str(at), {"scalars": 0, "tensors": 0})
    try:
        events.Reload()
    except Exception as error:  # the decoder raises errors of many types
        raise RunTableError(f"{at}: event files cannot be read ({error})") from None
    logged = []
    texts: dict[str, str] = {}
    tags = events.Tags()
    for tag in tags["scalars"]:
        logged += [(e.wall_time, e.step, tag, e.value) for e in events.Scalars(tag)]
    for tag in tags["tensors"]:
        plugin = events.SummaryMetadata(tag).plugin_data.plugin_name
        values = [
            (e.wall_time, e.step, tag, tensor_util.make_ndarray(e.tensor_proto))
            for e in events.Tensors(tag)
        ]
        if plugin == "scalars":
            logged += [(*when, float(value)) for *when, value in values]
        elif tag in TEXTS:
            texts[tag] = values[-1][-1].ravel()[0].decode()
    # hyperparameters, and the settings that a Trainer logs
    settings: dict[str, Any] = {}
    for tag in reversed(TEXTS):
        with suppress(ValueError):
            settings |= json.loads(texts.get(tag, "{}"))
    hparams = events.summary_metadata.get("_hparams_/session_start_info")
    if hparams is not None:
        content = hparams.plugin_data.content
        messages = imported(
            "tensorboard.plugins.hparams.plugin_data_pb2", "tensorboard"
        )
        start = messages.HParamsPluginData.FromString(content).session_start_info
        for name, value in start.hparams.items():
            settings[name] = getattr(value, value.WhichOneof("kind"))
    return settings, by_time(logged)


def read_mlflow(place: str) -> list[LoggedRun]:
    """Read the runs of an experiment, by default of the only one: PLACE#EXPERIMENT, where
    PLACE is a folder of runs, a SQLite file or a server's address.
    """
    store, _, experiment = place.partition("#")
    path = Path(store)
    # both are checked before MLflow runs, which would create what is missing
    if re.match(r"https?:/", store):
        # `Path` removes one of the two slashes of an address
        address = re.sub(r"^(https?):/+", r"\1://", store)
    elif path.is_dir():
        address = path.resolve().as_uri()
    elif path.is_file():
        address = f"sqlite:///{path.resolve()}"
    else:
        raise RunTableError(
            "no such store; give a folder (mlruns), a SQLite file (mlflow.db) or "
            "a server's address"
        )
    tracking = imported("mlflow.tracking", "mlflow")
    # MLflow refuses folders so that people move to databases; here they are only read
    variable = "MLFLOW_ALLOW_FILE_STORE"
    before = os.environ.get(variable)
    os.environ[variable] = "true"
    try:
        client = tracking.MlflowClient(tracking_uri=address)
        chosen = _find_experiment(client, experiment, store)
        return [*_iterate_runs(client, chosen.experiment_id)]
    except ModuleNotFoundError as error:  # the SQL library; folders do not need it
        raise RunTableError(f'{error}; pip install "bayeslaw[mlflow]"') from None
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


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
            settings = {
                name: _parse_setting(text) for name, text in run.data.params.items()
            }
            name = run.info.run_name or run.info.run_id
            yield LoggedRun(name, settings, by_time(logged))
        token = page.token
        if not token:
            return


def _parse_setting(text: str) -> float | str:
    """Parse a setting, since MLflow keeps all settings as text."""
    try:
        return float(text)
    except ValueError:
        return text


def read_trackio(place: str) -> list[LoggedRun]:
    """Read a project's runs in Trackio's folder, or the one of ``TRACKIO_DIR``."""
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
        beside = ("step", "timestamp")
        logged = [
            (row["step"], {k: v for k, v in row.items() if k not in beside})
            for row in storage.get_logs(place, run.name, run_id=run.id)
        ]
        settings = _drop_internal(run.config or {})
        runs.append(LoggedRun(run.name, settings, by_step(logged)))
    return runs


def read_trainer(place: str) -> list[LoggedRun]:
    """Read all runs below a folder with the ``trainer_state.json`` of each run or of its
    checkpoints (or of one state file). Each checkpoint of a run holds the log so far; the
    longest is read.
    """
    folder, files = files_below(place, "trainer_state.json", "a Trainer's output_dir")
    longest: dict[Path, dict[str, Any]] = {}
    for file in files:
        # a checkpoint's state file belongs to the run in the folder above
        is_checkpoint = file.parent.name.startswith("checkpoint-")
        at = file.parent.parent if is_checkpoint else file.parent
        state = _read_state(file)
        if at not in longest or state["global_step"] > longest[at]["global_step"]:
            longest[at] = state

    def rename(metric: str) -> str:
        # as the Trainer's loggers do: a bare ``loss`` is that of training
        is_evaluated = metric.startswith("eval_")
        return f"eval/{metric[5:]}" if is_evaluated else f"train/{metric}"

    runs = []
    for at, state in longest.items():
        names = ("train_batch_size", "max_steps", "num_train_epochs", "trial_params")
        settings = {name: state[name] for name in names if name in state}
        logged = [
            (row["step"], {rename(k): v for k, v in row.items() if k != "step"})
            for row in state["log_history"]
            if isinstance(row, dict) and "step" in row
        ]
        runs.append(LoggedRun(name_below(folder, at), settings, by_step(logged)))
    return runs


def _read_state(file: Path) -> dict[str, Any]:
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(state["log_history"], list) and state["global_step"] >= 0:
            return state
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise RunTableError(f"{file}: not a state that a Trainer has written")


def read_wandb(place: str) -> list[LoggedRun]:
    """Read the runs of ENTITY/PROJECT by the API, or of offline runs below a folder."""
    wandb = imported("wandb", "wandb")
    if Path(place).exists() or place.count("/") != 1:
        what = "one, or wandb:ENTITY/PROJECT"
        _, files = files_below(place, "run-*.wandb", what)
        # `latest-run` is a link to one of them
        return [_read_offline(f) for f in {f.resolve(): f for f in files}]
    runs = []
    for run in wandb.Api().runs(place):
        # the full log, not a sample of it
        rows = enumerate(run.scan_history())
        logged = by_step([(row.get("_step", number), row) for number, row in rows])
        runs.append(LoggedRun(run.name or run.id, _drop_internal(run.config), logged))
    return runs


def _drop_internal(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if not key.startswith("_")}


def _read_offline(file: Path) -> LoggedRun:
    messages = imported("wandb.proto.wandb_internal_pb2", "wandb")
    name, config, logged = file.stem, {}, []
    for content in _read_records(file):
        record = messages.Record.FromString(content)
        match record.WhichOneof("record_type"):
            case "run":
                name = record.run.display_name or record.run.run_id
                config |= _parse_update(record.run.config)
            case "config":
                config |= _parse_update(record.config)
            case "history":
                row = {
                    _join_key(i): json.loads(i.value_json) for i in record.history.item
                }
                logged.append((row.get("_step", record.history.step.num), row))
    return LoggedRun(name, _drop_internal(config), by_step(logged))


def _parse_update(config: Any) -> dict[str, Any]:
    return {_join_key(item): json.loads(item.value_json) for item in config.update}


def _join_key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _read_records(file: Path) -> Iterator[bytes]:
    """Read a log's records; an unfinished run's may end in half a record.

    The file is a log in the framing of LevelDB (with a plain CRC-32), whose records are
    messages of the `wandb` library. The library no longer has a reader of this framing.
    """
    content = file.read_bytes()
    if content[:4] != b":W&B":
        raise RunTableError(f"{file}: not a file of W&B's offline runs")
    # The file, and each chunk, begins with a header of 7 bytes. In a chunk these are 4
    # of crc, 2 of length and 1 of type.
    header, block = 7, 2**15
    full, first, last = 1, 2, 4  # types of chunks; 3 is a middle chunk of a record
    at, parts = header, b""
    while at + header <= len(content):
        # a chunk lies within one block; a record may have chunks in several
        in_block = block - at % block
        if in_block < header:  # zeros fill a block's end that is too short for a chunk
            at += in_block
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind = content[at + 6]
        chunk = content[at + header : at + header + length]
        if len(chunk) < length:
            return  # the run is not finished, or was killed
        checksum = int.from_bytes(content[at : at + 4], "little")
        if checksum != zlib.crc32(bytes([kind]) + chunk):
            raise RunTableError(f"{file}: damaged at byte {at}")
        parts = chunk if kind in (full, first) else parts + chunk
        if kind in (full, last):
            yield parts
        at += header + length


# scheme -> what reads the store at a place
TRACKERS: dict[str, Callable[[str], list[LoggedRun]]] = {
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
    "wandb": read_wandb,
    "hf": read_trainer,
}
