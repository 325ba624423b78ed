"""Read event files of TensorBoard: ``tensorboard:FOLDER``; a folder is a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import (
    LoggedRun,
    by_time,
    files_below,
    imported,
    name_below,
)

TEXTS = ("args/text_summary", "model_config/text_summary")  # JSON that the Trainer logs


def read(place: str) -> list[LoggedRun]:
    """Read all runs below a folder (or of one event file)."""
    folder, files = files_below(place, "*tfevents*", "one with event files")
    places = sorted({file if folder.is_file() else file.parent for file in files})
    logs = {at: _read_run(at) for at in places}
    runs = []
    for at, (config, history) in logs.items():
        # `add_hparams` writes the settings to a folder below that of the run
        if config and at.parent in logs:
            continue
        settings: dict[str, Any] = {}
        for place_below, (settings_below, _) in logs.items():
            if place_below.parent == at:
                settings |= settings_below
        name = name_below(folder, at)
        runs.append(LoggedRun(name, settings | config, history))
    return runs


def _read_run(at: Path) -> tuple[dict[str, Any], dict[float, dict[str, float]]]:
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
        try:
            settings |= json.loads(texts.get(tag, "{}"))
        except ValueError:
            continue
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
