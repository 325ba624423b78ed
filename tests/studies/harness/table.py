"""Write the table of measured losses: names of runs, rows, and a file that only grows."""

from __future__ import annotations

import csv
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from harness.adaptation import (
    SOURCE,
    TARGET,
    Adaptation,
    cells_of,
)
from harness.model import parameters
from harness.train import tokens_per_step

DOMAINS = (SOURCE, TARGET)
COLUMNS = (
    "run",
    "checkpoint",
    "seed",
    "step",
    "domain",
    "N",
    "D",
    "replay",
    "ptpp",
    "loss",
    "loss_before",
    "source_loss_before",
    "cost",
)


@dataclass(frozen=True)
class Checkpoint:
    """A model of one size and seed after ``ptpp`` pre-training tokens per parameter."""

    size: str
    seed: int
    ptpp: float

    @property
    def name(self) -> str:
        return f"{self.size}-s{self.seed}-ptpp{self.ptpp:g}"

    def run(self, adaptation: Adaptation) -> str:
        """Name the run in which this checkpoint gets ``adaptation``."""
        return f"{self.name}-{adaptation.name}"


@dataclass(frozen=True)
class Run:
    """An adaptation of a checkpoint: ``last`` steps in all, on ``unique_target`` bytes
    of target text.
    """

    checkpoint: Checkpoint
    adaptation: Adaptation
    last: int
    unique_target: int

    @property
    def name(self) -> str:
        return self.checkpoint.run(self.adaptation)


def rows(
    run: Run, step: int, losses: dict[str, float], before: dict[str, float]
) -> list[dict[str, Any]]:
    """Make the rows of one measurement, a row for each domain.

    Losses are in nats per byte. The cost is that of the adaptation in FLOPs, 6 N D
    (Kaplan 2020, section 2.1). The rows have `COLUMNS` and the columns of
    `adaptation.varied`.

    Raises
    ------
    RunTableError
        A loss is not finite.
    """
    checkpoint = run.checkpoint
    for domain in losses:
        if not np.isfinite(losses[domain]):
            raise RunTableError(
                f"run {run.name}, step {step}: the {domain} loss is {losses[domain]}; "
                "the run diverged"
            )
    n, d = parameters(checkpoint.size), step * tokens_per_step(checkpoint.size)
    of_run = {
        "run": run.name,
        "checkpoint": checkpoint.name,
        "seed": checkpoint.seed,
        "step": step,
        "N": n,
        "D": d,
        **cells_of(run.adaptation, step, run.last, d, run.unique_target),
        "ptpp": checkpoint.ptpp,
        "source_loss_before": round(before[SOURCE], 6),
        "cost": 6 * n * d,
    }
    return [
        {
            **of_run,
            "domain": domain,
            "loss": round(loss, 6),
            "loss_before": round(before[domain], 6),
        }
        for domain, loss in losses.items()
    ]


class Table:
    """A CSV file of runs, to which one process at a time adds rows.

    Its columns are `COLUMNS` and ``varied``, the settings in which its adaptations
    differ. A measurement is one row for each of ``domains``. If a kill cut the last
    line short, that line is removed when the file is opened.

    Raises
    ------
    RunTableError
        The file holds another table, or another process is adding to it.
    """

    def __init__(
        self,
        path: Path,
        varied: tuple[str, ...] = (),
        domains: tuple[str, ...] = DOMAINS,
    ) -> None:
        self.columns, self.domains = (*COLUMNS, *varied), domains
        path.parent.mkdir(parents=True, exist_ok=True)
        self.stream = path.open("a", newline="")
        try:
            self.done = self._open(path)
        except BaseException:
            self.stream.close()
            raise

    def _open(self, path: Path) -> set[tuple[Any, ...]]:
        """Lock the file, remove a line that was cut short, and return the run, step and
        domain of every row.
        """
        try:
            fcntl.flock(self.stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunTableError(
                f"{path}: another process is measuring into it; wait or name another "
                "file"
            ) from None
        # A line that was cut short has no end of line: keep all up to the last one.
        text = path.read_bytes()
        os.truncate(path, text.rfind(b"\n") + 1)
        self.writer: csv.DictWriter[str] = csv.DictWriter(
            self.stream,
            self.columns,
            extrasaction="ignore",
            lineterminator="\n",
        )
        if b"\n" not in text:
            self.writer.writeheader()
            self.stream.flush()
        written = pd.read_csv(path)
        if tuple(written.columns) != self.columns:
            columns = ", ".join(map(str, written))
            raise RunTableError(
                f"{path}: not a table of this harness and grid; its columns are "
                f"{columns}"
            )
        return set(zip(written["run"], written["step"], written["domain"], strict=True))

    def lacks(self, run: str, step: int) -> bool:
        """Tell whether any domain's row of a measurement is missing."""
        return any((run, step, domain) not in self.done for domain in self.domains)

    def append(self, row: dict[str, Any]) -> None:
        """Write a row to the disk, unless the file has it already."""
        key = (row["run"], row["step"], row["domain"])
        if key not in self.done:
            # The row must be on the disk before training goes on.
            self.writer.writerow(row)
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.done.add(key)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
