"""Define the grids of the bundled tables, by the names of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from harness.adaptation import (
    Adaptation,
    at_replays,
    simplex_mixtures,
)
from harness.grid import Grid


def small_grid(adaptations: Iterable[Adaptation]) -> Grid:
    """Make a grid of the three smallest models (one seed) at three stages."""
    cells = (("12k", 0), ("23k", 0), ("54k", 0))
    return Grid(cells, (15.0, 93.0, 279.0), tuple(adaptations))


def gpu_grid() -> Grid:
    """Make the grid of the models that a GPU trains; each run has nine points."""
    sizes = ("0.26M", "0.55M", "0.96M", "2.1M", "4.0M", "8.3M")
    cells = tuple((size, 0) for size in sizes)
    ladder = (0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0)
    return Grid(cells, ladder=ladder, packed=True)


GRIDS = {
    "microcpt": Grid(),
    "microcpt-de": Grid(tuple(product(("12k", "23k", "54k"), (0, 1)))),
    # constant replay, then replay that changes at a quarter or at half of the run
    "microcpt-phases": small_grid(
        [
            *at_replays((0.1, 0.25, 0.5)),
            Adaptation(0.1, 0.5, 0.25),
            Adaptation(0.1, 0.5, 0.5),
            Adaptation(0.5, 0.1, 0.25),
            Adaptation(0.5, 0.1, 0.5),
        ]
    ),
    "microcpt-repeats": small_grid(
        Adaptation(replay, epochs=epochs)
        for replay in (0.1, 0.5)
        for epochs in (None, 1.0, 2.0, 4.0, 8.0, 16.0)
    ),
    "microcpt-rates": small_grid(
        Adaptation(replay, rate=rate)
        for replay in (0.1, 0.5)
        for rate in (0.5, 1.0, 2.0)
    ),
    # 50 points along each run, up to 20 tokens per parameter
    "microcpt-curves": Grid(
        (("54k", 0),), ladder=tuple(round(0.4 * k, 1) for k in range(1, 51))
    ),
    # three languages: the checkpoints were pre-trained on the first
    "microcpt-mixtures": Grid(
        (("12k", 0), ("23k", 0), ("12k", 1), ("23k", 1)),
        (15.0, 31.0, 93.0),
        simplex_mixtures(("fr", "de")),
    ),
    "minicpt": gpu_grid(),
    "minicpt-de": gpu_grid(),
}
