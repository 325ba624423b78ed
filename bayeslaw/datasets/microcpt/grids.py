"""The grids of the bundled tables, by the tables' names."""

from __future__ import annotations

from bayeslaw.datasets.microcpt.adaptation import Adaptation, at_replays
from bayeslaw.datasets.microcpt.grid import Grid

SMALLER = (("12k", 0), ("23k", 0), ("54k", 0))
TWO_SEEDS = (("12k", 0), ("12k", 1), ("23k", 0), ("23k", 1), ("54k", 0), ("54k", 1))
FEWER_STAGES = (15.0, 93.0, 279.0)
LOW_AND_HIGH = (0.1, 0.5)  # replay
CHANGES = ((0.1, 0.5), (0.5, 0.1))
CHANGED_AT = (0.25, 0.5)  # shares of the run at which replay changes
RATES = (0.5, 1.0, 2.0)  # times the usual
EPOCHS = (None, 1.0, 2.0, 4.0, 8.0, 16.0)
EVERY = 0.4  # tokens per parameter between two points of a curve: a fiftieth of 20
CURVE = tuple(round(EVERY * k, 1) for k in range(1, 51))

ON_GPU = (("0.26M", 0), ("0.55M", 0), ("0.96M", 0), ("2.1M", 0))
LONG_RUNS = (0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0)
MINICPT = Grid(ON_GPU, ladder=LONG_RUNS, packed=True)

PHASES = (
    *at_replays((0.1, 0.25, 0.5)),
    *(
        Adaptation(first, then, share)
        for first, then in CHANGES
        for share in CHANGED_AT
    ),
)

GRIDS = {
    "microcpt": Grid(),
    "microcpt-de": Grid(TWO_SEEDS),
    "microcpt-phases": Grid(SMALLER, FEWER_STAGES, PHASES),
    "microcpt-repeats": Grid(
        SMALLER,
        FEWER_STAGES,
        tuple(
            Adaptation(replay, epochs=epochs)
            for replay in LOW_AND_HIGH
            for epochs in EPOCHS
        ),
    ),
    "microcpt-rates": Grid(
        SMALLER,
        FEWER_STAGES,
        tuple(
            Adaptation(replay, rate=rate) for replay in LOW_AND_HIGH for rate in RATES
        ),
    ),
    "microcpt-curves": Grid((("54k", 0),), ladder=CURVE),
    "minicpt": MINICPT,
    "minicpt-de": MINICPT,
}
