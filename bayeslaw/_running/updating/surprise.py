"""Judge whether new rows agree with their forecasts: coverage, misses, and the share of
simulated batches that stray as far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bayeslaw._base.numbers import format_chance, format_level
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.check import within
from bayeslaw._forecasts.forecast import ONE_SD
from bayeslaw._running.following.followed import SURPRISING, UNUSUAL
from bayeslaw._running.updating.foreseen import Foreseen

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Surprise:
    """Comparison of new rows with their forecasts.

    Parameters
    ----------
    n
        Number of rows.
    coverage
        Share of rows inside the central intervals of a new run, by probability.
    p_value
        Share of simulated batches that lie at least as far from the forecast. All rows
        count together, with their shared effects (`joint`).
    rows
        For each row the forecast (``median``, and ``low``, ``high`` of 90%), the
        measured ``loss``, ``miss`` (log of loss over median) and ``z``, the miss in sds
        of the forecast.
    groups
        For each level of a column (``by``, ``level``) the number of ``rows``, their
        mean ``miss``, the ``sd`` of this mean by the forecast, and its ``p_value``.
    """

    n: int
    coverage: dict[str, float]
    p_value: float
    rows: pd.DataFrame
    groups: pd.DataFrame

    @property
    def worst(self) -> pd.DataFrame:
        """List the five rows with the largest misses, in sds of their forecasts."""
        order = self.rows["z"].abs().sort_values(ascending=False).index
        return self.rows.loc[order[:5]]

    @property
    def is_surprising(self) -> bool:
        return self.p_value < SURPRISING

    @property
    def miss(self) -> float:
        """Compute the mean log of losses over their forecasts."""
        return float(self.rows["miss"].mean())

    def sentence(self) -> str:
        """Describe the batch: as foreseen, unusual or surprising, and by how much."""
        word = "surprising" if self.is_surprising else "unusual"
        if self.p_value >= UNUSUAL:
            word = "as foreseen"
        inside = round(self.coverage["0.9"] * self.n)
        return (
            f"{word}: {inside} of {self.n} new rows lie in their 90% intervals, on "
            f"average {abs(self.miss):.1%} {above(self.miss)} the forecast; "
            f"{format_chance(self.p_value)} of batches that were foreseen stray as far"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return {
            "n": self.n,
            "coverage": self.coverage,
            "p_value": self.p_value,
            "miss": self.miss,
            "rows": self.rows.reset_index().to_dict(orient="records"),
            "groups": self.groups.to_dict(orient="records"),
        }


def above(miss: float) -> str:
    return "above" if miss > 0 else "below"


def surprise_of(
    foreseen: Foreseen,
    seed: int = 0,
    probs: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95),
) -> Surprise:
    """Judge how surprising rows are under the posterior that forecast them. The
    coverage is that of intervals with the given probabilities.
    """
    y, rows = foreseen.y, foreseen.rows
    batches = foreseen.simulate(seed)
    # quantiles, not moments: a Student-t's log loss may have no variance
    median, below, over = np.quantile(batches, [0.5, *ONE_SD], axis=0)
    miss, sd = y - median, (over - below) / 2
    low, high = np.quantile(batches, [0.05, 0.95], axis=0)
    # columns that identify a row
    naming = ("run", "domain", "N", "D", "replay", "ptpp", "step")
    missed = rows[[c for c in naming if c in rows]].assign(
        loss=rows["loss"],
        median=np.exp(median),
        low=np.exp(low),
        high=np.exp(high),
        miss=miss,
        z=miss / sd,
    )
    # rank the mean miss of each group among those of simulated batches
    groups = []
    for group, picked in members(rows):
        simulated = (batches - median)[:, picked].mean(axis=1)
        mean = miss[picked].mean()
        # two-sided; never 0, because the number of simulated batches is finite
        beyond = min(np.sum(simulated >= mean), np.sum(simulated <= mean))
        groups.append(
            {
                **group,
                "miss": float(mean),
                "sd": float(simulated.std()),
                "p_value": min(1.0, 2 * (1 + beyond) / (1 + len(simulated))),
            }
        )
    return Surprise(
        n=len(y),
        coverage={f"{p:g}": float(within(batches, y, p).mean()) for p in probs},
        p_value=joint(foreseen, batches, seed),
        rows=missed,
        groups=telling(groups, ["miss", "sd"]),
    )


def telling(
    groups: list[dict[str, Any]], columns: list[str], most: int = 12
) -> pd.DataFrame:
    """Make a table of groups, with at most ``most`` groups of each column. These have
    the largest size of ``columns[0]``, divided by ``columns[1]`` if there is one.
    """
    table = pd.DataFrame(groups)
    size = table[columns[0]].abs()
    if len(columns) > 1:
        size = size / table[columns[1]]
    rank = size.groupby(table["by"]).rank(ascending=False, method="first")
    return table[rank <= most].reset_index(drop=True)


def joint(
    foreseen: Foreseen, batches: Float[np.ndarray, "draw row"], seed: int = 0
) -> float:
    """Compute the share of simulated batches that lie as far from the forecast as the
    measured one, by the distance that is most extreme.

    Half of the draws give the mean and covariance for the distances. The other half
    give the simulated batches, among which the measured batch is ranked. If the
    posterior is right, the measured batch is a further draw, so the share is uniform
    for any distribution.
    """
    rng = generator(seed, Stream.RANKED_BATCHES)
    order = rng.permutation(len(batches))
    half = len(order) // 2
    learned, ranked = order[:half], order[half:]
    means = foreseen.shared[learned]
    # the measured batch is the first
    away = np.vstack([foreseen.y, batches[ranked]]) - means.mean(axis=0)

    # whiten by the rows' own errors, and rotate to the principal axes of the law
    root = np.linalg.cholesky(foreseen.own_covariance)
    half_white = np.linalg.solve(root, covariance_of(means))
    white = np.linalg.solve(root, half_white.T)
    variance, axes = np.linalg.eigh((white + white.T) / 2)
    along = np.linalg.solve(root, away.T).T @ axes
    squares = along**2 / (1 + np.maximum(variance, 0))
    # axes on which the law varies by more than one row's error; always the largest one
    is_law = variance >= min(1.0, variance.max())
    # The Mahalanobis distance over all rows loses power with many rows; hence the same
    # along the law's axes, and the absolute mean.
    level = np.abs(away.mean(axis=1))
    distances = squares.sum(axis=1), squares[:, is_law].sum(axis=1), level

    # For each batch and distance, compute the share of batches that lie as far off. The
    # least of a batch's three shares is its test statistic, which is ranked among all
    # batches in turn.
    shares = np.stack([rankdata(-distance, method="max") for distance in distances])
    rarest = shares.min(axis=0)
    return float(np.mean(rarest <= rarest[0]))


def covariance_of(draws: Float[np.ndarray, "draw row"]) -> Float[np.ndarray, "row row"]:
    """Compute the covariance of the columns, shape (row, row), also of a single one."""
    return np.atleast_2d(np.cov(draws, rowvar=False))


def members(
    rows: pd.DataFrame,
    columns: tuple[str, ...] = ("ptpp", "N", "replay", "run"),
    most_levels: int = 300,
) -> Iterator[tuple[dict[str, Any], Bool[np.ndarray, " row"]]]:
    """Yield the groups of rows at each level of these columns: the column (``by``), the
    ``level`` in words and the number of ``rows``, and a mask of rows, shape (row,).
    """
    for column in columns:
        if column not in rows:
            continue
        levels = rows[column].dropna().unique()
        if len(levels) > most_levels:
            continue  # with so many levels the column names rows and not groups
        for level in sorted(levels, key=lambda v: (isinstance(v, str), v)):
            picked = (rows[column] == level).to_numpy()
            # computed shares have many digits
            is_share = column == "replay"
            words = f"{level:.3g}" if is_share else format_level(column, level)
            yield {"by": column, "level": words, "rows": int(picked.sum())}, picked
