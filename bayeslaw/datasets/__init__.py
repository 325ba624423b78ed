"""Load the tables that come with the package: ``load("microcpt")``.

`TABLES` describes each of them. The harness that measured all but the simulated one is
beside the studies (``tests/studies/harness``). The room imports `_running` and the rooms below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pandas as pd

from bayeslaw._base.errors import RunTableError


@dataclass(frozen=True)
class Bundled:
    """A table that comes with the package.

    Parameters
    ----------
    card
        Description of the table, in one sentence.
    where
        Rows that the report fits, as a pandas query; None: all rows.
    measured
        Rows that it does not fit, but compares with its forecasts, as a pandas query;
        None: none.
    reference
        Run at which priors in nats are stated, if the reference runs of the laws are
        far from the table's runs; else empty.
    question
        Plan that the report looks for, as keyword arguments of `plan`.
    unit
        Unit of the losses.
    """

    card: str
    where: str | None = None
    measured: str | None = None
    reference: Mapping[str, float] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    unit: str = "nats per token"


# the reference run for models of 12 to 259 thousand parameters
TINY = {"N": 1e5, "D": 1e6, "ptpp": 100.0}
# the reference run for models of a quarter of a million to eight million parameters
MINI = {"N": 1e6, "D": 1e7, "ptpp": 100.0}
BYTES = "nats per byte"

TABLES = {
    "microcpt": Bundled(
        "measured for this package: byte-level decoders of 12 to 259 thousand "
        "parameters, pre-trained on English documentation and adapted to French with "
        "replay. Tiny models",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-de": Bundled(
        "measured for this package: the checkpoints of microcpt of 12, 23 and 54 "
        "thousand parameters, two seeds each, adapted to German instead of French",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-phases": Bundled(
        "measured for this package: decoders of 12, 23 and 54 thousand parameters, as in "
        "microcpt, whose share of replay changes on the way from `replay_first` to "
        "`replay_then` at `changed_at` of the run (1: it does not); `replay` is the "
        "share of all tokens so far",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-repeats": Bundled(
        "measured for this package: decoders of 12, 23 and 54 thousand parameters, as in "
        "microcpt, that read a small French text again and again: `unique_target` bytes "
        "of it, drawn from `epochs` times so far in the mean, up to 1, 2, 4, 8 and 16 "
        "times at the end of the run, or less than once (all French text)",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-rates": Bundled(
        "measured for this package: decoders of 12, 23 and 54 thousand parameters, as in "
        "microcpt, adapted at half, once and twice the learning rate (`rate`: times "
        "the usual)",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-curves": Bundled(
        "measured for this package: the runs of microcpt of 54 thousand parameters and "
        "one seed, at every fiftieth of 20 tokens per parameter",
        reference=TINY,
        unit=BYTES,
    ),
    "microcpt-mixtures": Bundled(
        "measured for this package: decoders of 12 and 23 thousand parameters, as in "
        "microcpt, two seeds each, adapted to ten mixtures of three languages: English "
        "(`source`, which the checkpoints know), French and German; losses on each",
        reference=TINY,
        unit=BYTES,
    ),
    "minicpt": Bundled(
        "measured for this package on one GPU: byte-level decoders of .26, .55, .96, 2.1, "
        "4.0 and 8.3 million parameters, pre-trained on the English text of microcpt and "
        "adapted to French; losses in nats per byte; up to nine points along every run. "
        "Fitted here are the models up to 2.1 million; the plan is for the largest, and "
        "what it lost when it was trained stands beside the forecasts",
        where="N < 3e6 and D > 0.9 * N and D < 6 * N",
        measured="N > 8e6 and D > 0.9 * N",
        reference=MINI,
        question={
            "N": 8_186_688.0,
            "ptpp": 93.0,
            "max_target_loss": 0.97,
            "max_forgetting": 0.1,
            "baseline_loss": 1.159874,
            "covariates": {"loss_before": 3.159902, "source_loss_before": 1.159874},
        },
        unit=BYTES,
    ),
    "minicpt-de": Bundled(
        "measured for this package on one GPU: the checkpoints of minicpt, adapted to "
        "German instead of French; the largest at 279 up to 7.5 tokens per parameter",
        reference=MINI,
        unit=BYTES,
    ),
    "simulated-ptpp-grid": Bundled(
        "SIMULATED, not measured: the grid of Goffinet 2025 with losses drawn from "
        "Form 3 (target) and Form 1 (source) at stated parameters",
        question={
            "N": 8.1e9,
            "ptpp": 279.0,
            "max_target_loss": 1.8,
            "max_forgetting": 0.02,
            "baseline_loss": 1.6448,
        },
    ),
}


DEFAULT = "minicpt"


def load(name: str = DEFAULT) -> pd.DataFrame:
    """Load a bundled table as `read_runs` returns it. ``attrs["loss_unit"]`` has the
    unit of its losses.

    Raises
    ------
    RunTableError
        There is no such table; the message lists the names of all tables.
    """
    from bayeslaw._tables.runs import read_runs

    if name not in TABLES:
        raise RunTableError(
            f"no bundled table {name!r}; there are: {', '.join(TABLES)}"
        )
    file = files("bayeslaw.datasets").joinpath(f"{name.replace('-', '_')}.csv")
    with file.open() as stream:
        runs = read_runs(pd.read_csv(stream))
    # an attribute, not a column: all rows have the same unit
    runs.attrs["loss_unit"] = TABLES[name].unit
    return runs
