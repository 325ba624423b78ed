"""The grid: pre-train each size to its stages, adapt each stage at each replay, measure along the way.

Rows are appended one by one and states are saved every minute, so that the next start after a kill goes on from there.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bayeslaw._errors import RunTableError
from bayeslaw.datasets.microcpt.model import WIDTHS, parameters
from bayeslaw.datasets.microcpt.table import Checkpoint, Table, rows
from bayeslaw.datasets.microcpt.train import TOKENS_PER_STEP, steps_for
from bayeslaw.datasets.microcpt.work import Work, adapt, losses, pretrain

Cell = tuple[str, int]  # size and seed
CELLS = (("12k", 0), ("12k", 1), ("23k", 0), ("54k", 0), ("54k", 1), ("123k", 0), ("259k", 0), ("23k", 1), ("123k", 1))
STAGES = (15.0, 31.0, 93.0, 279.0)  # pre-training tokens per parameter
REPLAYS = (0.05, 0.1, 0.25, 0.5, 0.75)
LADDER = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)  # adaptation tokens per parameter


@dataclass(frozen=True)
class Grid:
    """What is measured: cells in working order, and the levels of the other covariates in rising order.

    Raises
    ------
    RunTableError
        An unknown size, or levels that are none.
    """

    cells: tuple[Cell, ...] = CELLS
    stages: tuple[float, ...] = STAGES
    replays: tuple[float, ...] = REPLAYS
    ladder: tuple[float, ...] = LADDER

    def __post_init__(self) -> None:
        for size, seed in self.cells:
            if size not in WIDTHS:
                raise RunTableError(f"no size {size!r}; there are: {', '.join(WIDTHS)}")
            if seed < 0:
                raise RunTableError(f"seed {seed}: give a whole number from 0")
        for name in ("stages", "replays", "ladder"):
            levels = getattr(self, name)
            if not levels or any(a >= b for a, b in pairwise((0.0, *levels))):
                raise RunTableError(f"{name} {levels}: give levels above 0, in rising order")
        if self.replays[-1] > 1:
            raise RunTableError(f"replay {self.replays[-1]:g}: a share of source data, at most 1")

    def checkpoints(self, cell: Cell) -> list[Checkpoint]:
        return [Checkpoint(*cell, ptpp) for ptpp in self.stages]

    def steps(self, size: str) -> list[int]:
        """The ladder of D in steps."""
        return [steps_for(d * parameters(size)) for d in self.ladder]


def measure(grid: Grid, work: Work, output: Path) -> None:
    """Measure what a table of runs lacks of a grid, and append it.

    Raises
    ------
    RunTableError
        A run diverged, or the file cannot be added to.
    """
    with Table(output) as table:
        progress = Progress({cell: _tokens(grid, work, table, cell) for cell in grid.cells}, table)
        for cell in grid.cells:
            if progress.left[cell]:
                _measure_cell(grid, work, table, cell, progress)


def _measure_cell(grid: Grid, work: Work, table: Table, cell: Cell, progress: Progress) -> None:
    size, checkpoints = cell[0], grid.checkpoints(cell)
    trainer = work.trainer(size)

    def tick(tokens: int, seconds: float, doing: str) -> None:
        progress.trained(cell, tokens, seconds, doing)

    for k, checkpoint in enumerate(checkpoints, 1):
        replays, steps = _missing(grid, table, checkpoint)
        if not replays:
            continue
        state = pretrain(work, trainer, checkpoints[:k], tick)
        (before,) = losses(trainer, state)
        for step, measured in adapt(work, trainer, checkpoint, replays, steps, tick):
            for replay, loss in zip(replays, measured, strict=True):
                for row in rows(checkpoint, replay, step, loss, before):
                    table.append(row)


def _missing(grid: Grid, table: Table, checkpoint: Checkpoint) -> tuple[list[float], list[int]]:
    """The replays of a checkpoint that lack measurements, and the steps from the first that is lacking."""
    steps = grid.steps(checkpoint.size)
    lacking = [(r, s) for r in grid.replays for s in steps if table.lacks(checkpoint.run(r), s)]
    first = min((s for _, s in lacking), default=0)
    return sorted({r for r, _ in lacking}), [s for s in steps if s >= first]


def _tokens(grid: Grid, work: Work, table: Table, cell: Cell) -> int:
    """Training tokens that a cell still takes, to the nearest saved checkpoint; 0 when its rows are all there."""
    checkpoints = grid.checkpoints(cell)
    runs = sum(len(_missing(grid, table, c)[0]) for c in checkpoints)
    reached = max((c.ptpp for c in checkpoints if work.saved(c).exists()), default=0.0)
    pretraining = int((grid.stages[-1] - reached) * parameters(cell[0]))
    return runs and runs * grid.steps(cell[0])[-1] * TOKENS_PER_STEP + pretraining


# -- progress --------------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """Says on stderr where the work stands and how long it may take."""

    left: dict[Cell, int]  # training tokens
    table: Table
    every: float = 15.0  # seconds
    speed: dict[str, float] = field(default_factory=dict)  # tokens per second by size, the latest counting most
    said: float = 0.0

    def trained(self, cell: Cell, tokens: int, seconds: float, doing: str) -> None:
        size, seed = cell
        self.left[cell] = max(0, self.left[cell] - tokens)
        now = tokens / seconds
        speed = 0.8 * self.speed.get(size, now) + 0.2 * now
        self.speed[size] = speed
        if time.monotonic() - self.said < self.every:
            return
        self.said = time.monotonic()
        here, everything = self.left[cell] / speed, self._seconds(size)
        print(
            f"{time.strftime('%H:%M:%S')} {size} seed {seed} {doing}: {speed:,.0f} tokens/s, "
            f"{len(self.table.done)} rows, left {_duration(here)} of {_duration(everything)}",
            file=sys.stderr,
            flush=True,
        )

    def _seconds(self, size: str) -> float:
        """Of all that is left; a size not yet met is taken as slower than this one by the ratio of widths to the power 1.3."""
        speed = {s: self.speed[size] * (WIDTHS[size] / WIDTHS[s]) ** 1.3 for s in WIDTHS} | self.speed
        return sum(tokens / speed[s] for (s, _), tokens in self.left.items())


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"
