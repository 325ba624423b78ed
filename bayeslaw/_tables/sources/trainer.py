"""Folders of a Hugging Face Trainer: ``hf:FOLDER``, with the ``trainer_state.json`` of
each run or of its checkpoints.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import LoggedRun, by_step, points

STATE = "trainer_state.json"
CHECKPOINT = "checkpoint-"
SETTINGS = ("train_batch_size", "max_steps", "num_train_epochs", "trial_params")


def read(place: str) -> pd.DataFrame:
    """The points of all runs below a folder (or of one state file).

    A run's checkpoints each hold its log so far: the longest is read.

    Raises
    ------
    RunTableError
        There are none, or one is not what a Trainer writes.
    """
    where, folder = f"hf:{place}", Path(place)
    if not folder.exists():
        raise RunTableError(f"{where}: no such folder; give a Trainer's output_dir")
    files = [folder] if folder.is_file() else sorted(folder.rglob(STATE))
    if not files:
        raise RunTableError(f"{where}: no {STATE} in it or below")
    longest: dict[Path, dict[str, Any]] = {}
    for file in files:
        at, state = _run_folder(file), _state(file)
        if at not in longest or state["global_step"] > longest[at]["global_step"]:
            longest[at] = state
    runs = [_run(_name(at, folder), state) for at, state in longest.items()]
    return points(runs, where)


def _run_folder(file: Path) -> Path:
    folder = file.parent
    # a checkpoint's state is that of its run so far
    if folder.name.startswith(CHECKPOINT):
        return folder.parent
    return folder


def _name(at: Path, folder: Path) -> str:
    # one state file, or one checkpoint, is below no folder that was given
    if at == folder or not at.is_relative_to(folder):
        return at.resolve().name
    inside = at.relative_to(folder)
    return inside.as_posix()


def _state(file: Path) -> dict[str, Any]:
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(state["log_history"], list) and state["global_step"] >= 0:
            return state
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise RunTableError(f"{file}: not a state that a Trainer has written")


def _called(metric: str) -> str:
    """A metric as the Trainer's own loggers show it: its bare ``loss`` is of training."""
    # as `rewrite_logs` of its integrations does
    if metric.startswith("eval_"):
        evaluated = metric.removeprefix("eval_")
        return f"eval/{evaluated}"
    return f"train/{metric}"


def _run(name: str, state: dict[str, Any]) -> LoggedRun:
    settings = {key: state[key] for key in SETTINGS if key in state}
    logged = [
        (row["step"], {_called(k): v for k, v in row.items() if k != "step"})
        for row in state["log_history"]
        if isinstance(row, dict) and "step" in row
    ]
    return LoggedRun(name, settings, by_step(logged))
