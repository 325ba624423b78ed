"""Tables that come with the package: ``load("simulated-ptpp-grid")``. Each has a card that says what it is."""

from __future__ import annotations

from importlib.resources import files

import pandas as pd

from bayeslaw._errors import RunTableError

CARDS = {
    "simulated-ptpp-grid": "SIMULATED, not measured: the grid of Goffinet 2025 with losses drawn from Form 3 (target) "
    "and Form 1 (source) at stated parameters",
}
DEFAULT = "simulated-ptpp-grid"


def load(name: str = DEFAULT) -> pd.DataFrame:
    """A bundled table, as `read_runs` returns it.

    Raises
    ------
    RunTableError
        No such table; the message lists those there are.
    """
    from bayeslaw._runs import read_runs

    if name not in CARDS:
        raise RunTableError(f"no bundled table {name!r}; there are: {', '.join(CARDS)}")
    with files("bayeslaw.datasets").joinpath(name.replace("-", "_") + ".csv").open() as stream:
        return read_runs(pd.read_csv(stream))
