"""Measure a grid: pre-train each size to its stages, adapt every checkpoint, and
measure losses on the way.

Rows are appended one by one, and states are saved every minute. After a kill, the next
start goes on from the last saved state.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from bayeslaw._base.errors import RunTableError
from harness.adaptation import (
    SOURCE,
    Adaptation,
    at_replays,
    varied,
)
from harness.model import SIZES, parameters
from harness.table import Checkpoint, Run, Table, rows
from harness.train import steps_for, tokens_per_step
from harness.work import Work, adapt, losses, pretrain

Cell = tuple[str, int]  # size and seed


@dataclass(frozen=True)
class Grid:
    """Levels of a grid of runs.

    Parameters
    ----------
    cells
        Size and seed of each model, in the order in which they are trained.
    stages
        Pre-training tokens per parameter, in rising order.
    adaptations
        Adaptations that every checkpoint gets.
    ladder
        Adaptation tokens per parameter at which losses are measured, in rising order.
    packed
        Whether the checkpoints of all stages of a cell adapt together, to fill a GPU.

    Raises
    ------
    RunTableError
        A size is unknown, a seed is below 0, levels are missing, not above 0 or not
        rising, or adaptations are missing, doubled or to different target domains.
    """

    cells: tuple[Cell, ...] = (
        ("12k", 0),
        ("12k", 1),
        ("23k", 0),
        ("54k", 0),
        ("54k", 1),
        ("123k", 0),
        ("259k", 0),
        ("23k", 1),
        ("123k", 1),
    )
    stages: tuple[float, ...] = (15.0, 31.0, 93.0, 279.0)
    adaptations: tuple[Adaptation, ...] = at_replays((0.05, 0.1, 0.25, 0.5, 0.75))
    ladder: tuple[float, ...] = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
    packed: bool = False

    def __post_init__(self) -> None:
        for size, seed in self.cells:
            if size not in SIZES:
                raise RunTableError(f"no size {size!r}; there are: {', '.join(SIZES)}")
            if seed < 0:
                raise RunTableError(f"seed {seed}: give a whole number from 0")
        for name in ("stages", "ladder"):
            levels = getattr(self, name)
            if not levels or any(a >= b for a, b in pairwise((0.0, *levels))):
                raise RunTableError(
                    f"{name} {levels}: give levels above 0, in rising order"
                )
        names = [adaptation.name for adaptation in self.adaptations]
        if not names or len(set(names)) < len(names):
            raise RunTableError(f"adaptations {names}: give some, each once")
        if len({adaptation.targets for adaptation in self.adaptations}) > 1:
            raise RunTableError(f"adaptations {names}: all to the same target domains")

    def checkpoints(self, cell: Cell) -> list[Checkpoint]:
        return [Checkpoint(*cell, ptpp) for ptpp in self.stages]

    def steps(self, size: str) -> list[int]:
        """Convert the ladder to training steps of a size."""
        return [steps_for(size, d * parameters(size)) for d in self.ladder]

    def packs(self, cell: Cell) -> list[list[Checkpoint]]:
        """Group the checkpoints of a cell whose adaptations train together."""
        checkpoints = self.checkpoints(cell)
        return [checkpoints] if self.packed else [[c] for c in checkpoints]


def measure(grid: Grid, work: Work, output: Path) -> None:
    """Measure the rows of a grid that a table of runs lacks, and append them.

    Raises
    ------
    RunTableError
        A run diverged, the file cannot be added to, or the target domains of the text
        are not those of the grid.
    """
    domains, targets = tuple(work.corpora), grid.adaptations[0].targets
    if domains != (SOURCE, *targets):
        raise RunTableError(
            f"the grid adapts to {', '.join(targets)}, and there is text of "
            f"{', '.join(domains[1:])}: give a folder for each, of that name, in this "
            "order (--target)"
        )
    with Table(output, varied(grid.adaptations), domains) as table:
        # counted first, so that the first line of progress has the time to the end
        remaining = {cell: _tokens(grid, work, table, cell) for cell in grid.cells}
        progress = GridProgress(remaining, table)
        for cell in grid.cells:
            if remaining[cell]:
                _measure_cell(grid, work, table, cell, progress)


def _measure_cell(
    grid: Grid, work: Work, table: Table, cell: Cell, progress: GridProgress
) -> None:
    """Measure the missing rows of a cell: train its checkpoints and its adaptations,
    pack by pack.
    """
    size, checkpoints = cell[0], grid.checkpoints(cell)
    trainer = work.trainer(size)

    def tick(tokens: int, seconds: float, doing: str) -> None:
        progress.trained(cell, tokens, seconds, doing)

    for pack in grid.packs(cell):
        adaptations, steps = _missing(grid, table, pack)
        if not adaptations:
            continue
        before = {}
        for checkpoint in pack:
            # All stages are one run of pre-training: each goes on from the one before.
            stages = checkpoints[: checkpoints.index(checkpoint) + 1]
            state = pretrain(work, trainer, stages, tick)
            (before[checkpoint],) = losses(trainer, state)
        runs = [_run(work, c, a, steps[-1]) for c in pack for a in adaptations]
        for step, measured in adapt(work, trainer, pack, adaptations, steps, tick):
            for run, loss in zip(runs, measured, strict=True):
                for row in rows(run, step, loss, before[run.checkpoint]):
                    table.append(row)


def _run(work: Work, checkpoint: Checkpoint, adaptation: Adaptation, last: int) -> Run:
    tokens = last * tokens_per_step(checkpoint.size)
    unique = adaptation.unique(tokens, last, sum(work.available))
    return Run(checkpoint, adaptation, last, unique)


def _missing(
    grid: Grid, table: Table, pack: list[Checkpoint]
) -> tuple[list[Adaptation], list[int]]:
    """List the adaptations of a pack that lack measurements, and the steps to measure.

    The adaptations train together, so all of them start at the first step that any of
    them lacks.
    """
    steps = grid.steps(pack[0].size)
    lacking = [
        (adaptation, step)
        for checkpoint in pack
        for adaptation in grid.adaptations
        for step in steps
        if table.lacks(checkpoint.run(adaptation), step)
    ]
    first = min((step for _, step in lacking), default=0)
    adaptations = list(dict.fromkeys(adaptation for adaptation, _ in lacking))
    return adaptations, [step for step in steps if step >= first]


def _tokens(grid: Grid, work: Work, table: Table, cell: Cell) -> int:
    """Count the tokens that a cell must still train on; 0 if no row is missing.

    Pre-training goes on from the latest saved checkpoint.
    """
    size, checkpoints = cell[0], grid.checkpoints(cell)
    runs = sum(
        len(pack) * len(_missing(grid, table, pack)[0]) for pack in grid.packs(cell)
    )
    if not runs:
        return 0
    saved = [c.ptpp for c in checkpoints if work.saved(c).exists()]
    ptpp_left = grid.stages[-1] - max(saved, default=0.0)
    pretraining = int(ptpp_left * parameters(size))
    adaptation = grid.steps(size)[-1] * tokens_per_step(size)
    return runs * adaptation + pretraining


# -- progress --------------------------------------------------------------------------


@dataclass
class GridProgress:
    """Progress of a grid, written to stderr with an estimate of the time to the end.

    Parameters
    ----------
    remaining
        Tokens that each cell must still train on.
    every
        Seconds between two lines.
    newest
        Weight of the newest speed in the running mean.
    """

    remaining: dict[Cell, int]
    table: Table
    every: float = 15.0
    newest: float = 0.2
    # tokens per second by size, a running mean
    speed: dict[str, float] = field(default_factory=dict)
    said: float = 0.0

    def trained(self, cell: Cell, tokens: int, seconds: float, doing: str) -> None:
        size, seed = cell
        self.remaining[cell] = max(0, self.remaining[cell] - tokens)
        # a running mean, because other work on the machine comes and goes
        now = tokens / seconds
        before = self.speed.get(size, now)
        speed = (1 - self.newest) * before + self.newest * now
        self.speed[size] = speed
        if time.monotonic() - self.said < self.every:
            return
        self.said = time.monotonic()
        here, everything = self.remaining[cell] / speed, self._seconds(size)
        line = (
            f"{time.strftime('%H:%M:%S')} {size} seed {seed} {doing}: "
            f"{speed:,.0f} tokens/s, {len(self.table.done)} rows, "
            f"left {_duration(here)} of {_duration(everything)}"
        )
        print(line, file=sys.stderr, flush=True)

    def _seconds(self, size: str) -> float:
        """Estimate the seconds to the end. The speed of a size that has not trained yet
        is guessed from the speed of ``size``.
        """
        # speed falls with width, to about the power 1.3
        speed = {
            name: self.speed[size] * (SIZES[size].width / there.width) ** 1.3
            for name, there in SIZES.items()
        }
        speed |= self.speed
        return sum(tokens / speed[name] for (name, _), tokens in self.remaining.items())


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"
