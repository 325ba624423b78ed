"""Read runs of Weights & Biases: ``wandb:ENTITY/PROJECT`` by its API, or
``wandb:FOLDER`` with the files of offline runs (or those that a run leaves on its
machine).

An offline file is a log in the framing of LevelDB (with a plain CRC-32), whose records
are messages of the `wandb` library. The library no longer has a reader of this framing,
so this file has one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import LoggedRun, by_step, files_below, imported


def read(place: str) -> list[LoggedRun]:
    """Read all runs of a project, or of offline runs below a folder."""
    wandb = imported("wandb", "wandb")
    if not Path(place).exists() and place.count("/") == 1:
        return [_read_online(run) for run in wandb.Api().runs(place)]
    what = "one, or wandb:ENTITY/PROJECT"
    _, files = files_below(place, "run-*.wandb", what)
    # `latest-run` is a link to one of them
    return [_read_offline(f) for f in {f.resolve(): f for f in files}]


# -- by the API ------------------------------------------------------------------------


def _read_online(run: Any) -> LoggedRun:
    """Read the full log of a run of `wandb.Api`, not a sample of it."""
    logged = [
        (row.get("_step", number), row) for number, row in enumerate(run.scan_history())
    ]
    return LoggedRun(run.name or run.id, _drop_internal(run.config), by_step(logged))


def _drop_internal(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if not key.startswith("_")}


# -- offline ---------------------------------------------------------------------------


def _read_offline(file: Path) -> LoggedRun:
    """Read an offline run from its records: name, settings, and metrics by step."""
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
    """Read a log's records; an unfinished run's may end in half a record."""
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
