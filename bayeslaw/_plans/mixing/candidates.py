"""List mixtures that could be trained next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.frames import Table
from bayeslaw._base.limits import COUNT, checked
from bayeslaw._plans.mixing.search import onto_simplex
from bayeslaw._tables.rows.shares import share_columns
from bayeslaw._tables.runs import as_design

if TYPE_CHECKING:
    from jaxtyping import Float


def mixture_candidates(
    runs: Table,
    *,
    N: Sequence[float],
    D: Sequence[float],
    steps: int = 4,
) -> pd.DataFrame:
    """List runs on mixtures evenly spread over the simplex, for `anchors`.

    Parameters
    ----------
    runs
        Table with columns ``share_NAME``; mixtures stay between its smallest and its
        largest share of each domain.
    N, D
        Levels of model parameters and of tokens.
    steps
        Fineness of the lattice of shares (simplex lattice design, Scheffe 1958): shares
        are multiples of 1 / ``steps``.

    Returns
    -------
    DataFrame
        ``N``, ``D`` and the shares, a row for each run.

    Raises
    ------
    RunTableError
        The table has no shares, or a level is not a positive number.

    Examples
    --------
    >>> runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    >>> len(bayeslaw.mixture_candidates(runs, N=[1e8], D=[2e9], steps=2))
    6
    """
    runs = as_design(runs)
    columns = share_columns(runs)
    if len(columns) < 2:
        raise RunTableError(
            "candidates on the simplex need a table with columns share_NAME"
        )
    if steps < 1:
        raise RunTableError(f"steps must be at least 1, got {steps}")
    shares = runs[columns].to_numpy(float)
    lattice = simplex_lattice(len(columns), steps)
    mixtures = onto_simplex(lattice, shares.min(axis=0), shares.max(axis=0))
    # points outside the bounds are moved to their edge
    mixtures = np.unique(mixtures.round(9), axis=0)
    sizes = [checked("N", size, COUNT) for size in N]
    budgets = [checked("D", tokens, COUNT) for tokens in D]
    rows = [(n, d, *p) for n, d, p in product(sizes, budgets, mixtures)]
    return pd.DataFrame(rows, columns=["N", "D", *columns])


def simplex_lattice(parts: int, steps: int) -> Float[np.ndarray, "mixture part"]:
    """List all mixtures whose shares are multiples of 1 / ``steps``."""
    # stars and bars: choose parts - 1 of steps + parts - 1 places as ends of parts
    places = steps + parts - 1
    bars = np.array(list(combinations(range(places), parts - 1))).reshape(-1, parts - 1)
    ends = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
    return (np.diff(ends, axis=1) - 1) / steps
