"""Measure the grid, or what is missing of it.

``python -m bayeslaw.datasets.microcpt --source DIR --target DIR -o runs.csv``
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayeslaw._base.errors import BayeslawError
from bayeslaw._base.numbers import parse_number
from bayeslaw.datasets.microcpt.grid import (
    CELLS,
    LADDER,
    REPLAYS,
    STAGES,
    Cell,
    Grid,
    measure,
)
from bayeslaw.datasets.microcpt.model import WIDTHS
from bayeslaw.datasets.microcpt.work import open_work


def _written(levels: tuple[float, ...]) -> str:
    texts = [f"{level:g}" for level in levels]
    return ",".join(texts)


def _levels(text: str) -> tuple[float, ...]:
    levels = {parse_number(word) for word in text.split(",")}
    return tuple(sorted(levels))


def _cells(sizes: str | None, seeds: str | None) -> tuple[Cell, ...]:
    """Every size with every seed; the bundled grid where neither is given."""
    if sizes is None and seeds is None:
        return CELLS
    names = sizes.split(",") if sizes else list(WIDTHS)
    numbers = [int(seed) for seed in _levels(seeds or "0")]
    return tuple((name, number) for name in names for number in numbers)


def main(
    source: Annotated[Path, typer.Option(help="Folder of text of the source domain.")],
    target: Annotated[Path, typer.Option(help="Folder of text of the target domain.")],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Table of runs (CSV); rows are appended."),
    ],
    work: Annotated[
        Path | None,
        typer.Option(
            help="Folder of saved states (default: the table's name with .work)."
        ),
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help=f"Some of {','.join(WIDTHS)}.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="For instance 0,1.")] = None,
    stages: Annotated[
        str, typer.Option(help="Pre-training tokens per parameter.")
    ] = _written(STAGES),
    replay: Annotated[str, typer.Option(help="Shares of source data.")] = _written(
        REPLAYS
    ),
    ladder: Annotated[
        str, typer.Option(help="Adaptation tokens per parameter.")
    ] = _written(LADDER),
) -> None:
    """Pre-train byte-level decoders on one folder of text, adapt them to another, and
    write down the losses.

    Run it again after a kill: it goes on. Without --sizes and --seeds: the bundled
    grid, in its working order.
    """
    # The default stands beside the table, so that the next start finds it.
    folder = work or output.with_suffix(".work")
    try:
        cells = _cells(sizes, seeds)
        grid = Grid(cells, _levels(stages), _levels(replay), _levels(ladder))
        measure(grid, open_work(source, target, folder), output)
    except BayeslawError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
