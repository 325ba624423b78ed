"""Measure a grid of runs, or those runs of it that a table lacks.

``python -m harness --source DIR --target DIR -o runs.csv``
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from pathlib import Path

import typer

from bayeslaw._base.arguments import command, option
from bayeslaw._base.errors import BayeslawError, RunTableError
from bayeslaw._base.numbers import parse_number
from harness.adaptation import at_replays
from harness.grid import Cell, Grid, measure
from harness.grids import GRIDS
from harness.model import SIZES
from harness.work import open_work


def _levels(text: str) -> tuple[float, ...]:
    levels = {parse_number(word) for word in text.split(",")}
    return tuple(sorted(levels))


def _cells(sizes: str | None, seeds: str | None) -> tuple[Cell, ...]:
    """Combine every size with every seed; None: all sizes, seed 0."""
    names = sizes.split(",") if sizes else list(SIZES)
    numbers = [int(seed) for seed in _levels(seeds or "0")]
    return tuple((name, number) for name in names for number in numbers)


def _grid(table: str) -> Grid:
    if table not in GRIDS:
        raise RunTableError(f"no table {table!r}; there are: {', '.join(GRIDS)}")
    return GRIDS[table]


def _targets(folders: list[Path]) -> Path | dict[str, Path]:
    """Return the only folder, or several folders by their names."""
    if len(folders) == 1:
        return folders[0]
    return {folder.name: folder for folder in folders}


@dataclass(frozen=True, kw_only=True)
class MeasureArguments:
    """Arguments of ``python -m harness``."""

    source: Path = option("Folder of text of the source domain.", default=MISSING)
    target: list[Path] = option(
        "Folder of text of the target domain; of several each, named so.",
        default=MISSING,
    )
    output: Path = option(
        "Table of runs (CSV); rows are appended.", "-o", "--output", default=MISSING
    )
    work: Path | None = option(
        "Folder of saved states (default: the table's name with .work)."
    )
    table: str = option(
        f"A bundled table's grid: {', '.join(GRIDS)}.", default="microcpt"
    )
    sizes: str | None = option(f"Some of {','.join(SIZES)}.")
    seeds: str | None = option("For instance 0,1.")
    stages: str | None = option("Pre-training tokens per parameter.")
    replay: str | None = option("Shares of source data, in the usual runs.")
    ladder: str | None = option("Adaptation tokens per parameter.")


@command
def main(arguments: MeasureArguments) -> None:
    """Pre-train byte-level decoders on one folder of text, adapt them to another, and
    write down the losses.

    Run it again after a kill: it goes on. What is not given is as in the bundled
    table's grid, in its working order.
    """
    # The default folder lies beside the table, so that the next start finds it.
    folder = arguments.work or arguments.output.with_suffix(".work")
    try:
        grid = _grid(arguments.table)
        if arguments.sizes or arguments.seeds:
            grid = replace(grid, cells=_cells(arguments.sizes, arguments.seeds))
        if arguments.stages:
            grid = replace(grid, stages=_levels(arguments.stages))
        if arguments.replay:
            grid = replace(grid, adaptations=at_replays(_levels(arguments.replay)))
        if arguments.ladder:
            grid = replace(grid, ladder=_levels(arguments.ladder))
        measure(
            grid,
            open_work(arguments.source, _targets(arguments.target), folder),
            arguments.output,
        )
    except BayeslawError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
