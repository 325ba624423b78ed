"""``python -m bayeslaw.datasets.microcpt --source DIR --target DIR -o runs.csv``: measure the grid, or what is missing of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bayeslaw._errors import BayeslawError
from bayeslaw._runs import parse_number
from bayeslaw.datasets.microcpt.grid import CELLS, LADDER, REPLAYS, STAGES, Cell, Grid, measure
from bayeslaw.datasets.microcpt.model import WIDTHS
from bayeslaw.datasets.microcpt.work import open_work


def _written(levels: tuple[float, ...]) -> str:
    return ",".join(f"{x:g}" for x in levels)


def _levels(text: str) -> tuple[float, ...]:
    return tuple(sorted({parse_number(x) for x in text.split(",")}))


def _cells(sizes: str | None, seeds: str | None) -> tuple[Cell, ...]:
    if sizes is None and seeds is None:
        return CELLS
    named = sizes.split(",") if sizes else list(WIDTHS)
    return tuple((size, int(seed)) for size in named for seed in _levels(seeds or "0"))


def main(
    source: Annotated[Path, typer.Option(help="Folder of text of the source domain.")],
    target: Annotated[Path, typer.Option(help="Folder of text of the target domain.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Table of runs (CSV); rows are appended.")],
    work: Annotated[
        Path | None, typer.Option(help="Folder of saved states (default: the table's name with .work).")
    ] = None,
    sizes: Annotated[str | None, typer.Option(help=f"Some of {','.join(WIDTHS)}.")] = None,
    seeds: Annotated[str | None, typer.Option(help="For instance 0,1.")] = None,
    stages: Annotated[str, typer.Option(help="Pre-training tokens per parameter.")] = _written(STAGES),
    replay: Annotated[str, typer.Option(help="Shares of source data.")] = _written(REPLAYS),
    ladder: Annotated[str, typer.Option(help="Adaptation tokens per parameter.")] = _written(LADDER),
) -> None:
    """Pre-train byte-level decoders on one folder of text, adapt them to another, and write down the losses.

    Run it again after a kill: it goes on. Without --sizes and --seeds: the bundled grid, in its working order.
    """
    try:
        grid = Grid(_cells(sizes, seeds), _levels(stages), _levels(replay), _levels(ladder))
        measure(grid, open_work(source, target, work or output.with_suffix(".work")), output)
    except BayeslawError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
