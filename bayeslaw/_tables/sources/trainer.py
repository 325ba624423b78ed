"""Read folders of a Hugging Face Trainer: ``hf:FOLDER``, with the
``trainer_state.json`` of each run or of its checkpoints.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayeslaw._base.errors import RunTableError
from bayeslaw._tables.sources.points import LoggedRun, by_step, files_below, name_below


def read(place: str) -> list[LoggedRun]:
    """Read all runs below a folder (or of one state file).

    Each checkpoint of a run holds the log so far; the longest is read.
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
    runs = []
    for at, state in longest.items():
        names = ("train_batch_size", "max_steps", "num_train_epochs", "trial_params")
        settings = {name: state[name] for name in names if name in state}
        logged = [
            (row["step"], {_rename(k): v for k, v in row.items() if k != "step"})
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


def _rename(metric: str) -> str:
    """Name a metric as the Trainer's own loggers do (`rewrite_logs` in the integrations of
    `transformers`): a bare ``loss`` is the training loss.
    """
    if metric.startswith("eval_"):
        return f"eval/{metric.removeprefix('eval_')}"
    return f"train/{metric}"
