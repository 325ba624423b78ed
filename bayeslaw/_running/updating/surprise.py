"""Judge whether new rows were foreseen: coverage, misses, and the share of simulated
batches that stray as far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bayeslaw._base.numbers import format_chance, format_level
from bayeslaw._forecasts.forecast import ONE_SD
from bayeslaw._posteriors.streams import Stream, generator
from bayeslaw._running.following.track import SURPRISING, UNUSUAL
from bayeslaw._running.updating.foreseen import Foreseen

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Surprise:
    """Comparison of new rows with their forecasts.

    Parameters
    ----------
    n
        Rows.
    coverage
        Share of rows inside the central intervals of a new run, by probability.
    p_value
        Share of simulated batches that lie as far off, over all rows together with
        their shared effects (`joint`).
    rows
        One for each: what was foreseen (``median``, ``low``, ``high`` of 90%), the
        ``loss``, ``miss`` (its log over the median) and ``z``, in sds of the forecast.
    groups
        By level of a column (``by``, ``level``): ``rows``, their mean ``miss``,
        ``sd`` of that as foreseen, and ``p_value``.
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
        inside = round(self.coverage["0.9"] * self.n)
        inside_text = f"{inside} of {self.n} new rows lie in their 90% intervals"
        lies = f"on average {abs(self.miss):.1%} {above(self.miss)} the forecast"
        rare = (
            f"{format_chance(self.p_value)} of batches that were foreseen stray as far"
        )
        if self.p_value >= UNUSUAL:
            return f"as foreseen: {inside_text}, {lies}; {rare}"
        word = "surprising" if self.is_surprising else "unusual"
        return f"{word}: {inside_text}, {lies}; {rare}"

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
    """Judge how surprising rows are under the posterior that foresaw them, by
    intervals of these probabilities among others.
    """
    y, rows = foreseen.y, foreseen.rows
    batches = foreseen.simulate(seed)
    # quantiles, not moments: a Student-t's log loss may have no variance
    median, below, over = np.quantile(batches, [0.5, *ONE_SD], axis=0)
    miss, sd = y - median, (over - below) / 2
    low, high = np.quantile(batches, [0.05, 0.95], axis=0)
    # columns that say which row it is
    naming = ("run", "domain", "N", "D", "replay", "ptpp", "step")
    missed = rows[[c for c in naming if c in rows]].assign(
        loss=rows["loss"],
        median=np.exp(median),
        low=np.exp(low),
        high=np.exp(high),
        miss=miss,
        z=miss / sd,
    )
    return Surprise(
        n=len(y),
        coverage={f"{p:g}": _coverage(batches, y, p) for p in probs},
        p_value=joint(foreseen, batches, seed),
        rows=missed,
        groups=telling(_groups(rows, batches - median, miss), ["miss", "sd"]),
    )


def telling(
    groups: Iterator[dict[str, Any]], columns: list[str], most: int = 12
) -> pd.DataFrame:
    """Put groups in a table; of each column of rows at most so many, the largest by the
    first of ``columns``, over the second if there is one.
    """
    table = pd.DataFrame(list(groups))
    size = table[columns[0]].abs()
    if len(columns) > 1:
        size = size / table[columns[1]]
    rank = size.groupby(table["by"]).rank(ascending=False, method="first")
    return table[rank <= most].reset_index(drop=True)


def joint(
    foreseen: Foreseen, batches: Float[np.ndarray, "draw row"], seed: int = 0
) -> float:
    """Compute the share of simulated batches that lie as far from the forecast as the
    measured one, by the distance that is most extreme (`_distances`).

    Distances are learned from half of the draws; the other half are the batches among
    which the measured one is ranked. Under the posterior it is one of them, so that the
    share is uniform whatever the tails.
    """
    rng = generator(seed, Stream.RANKED_BATCHES)
    order = rng.permutation(len(batches))
    half = len(order) // 2
    learned, ranked = order[:half], order[half:]
    means = foreseen.shared[learned]
    away = np.vstack([foreseen.y, batches[ranked]]) - means.mean(axis=0)
    distances = _distances(away, covariance_of(means), foreseen.own_covariance)
    # how rare the rarest distance of each batch is: the least of three shares, which
    # is itself to be ranked
    # the measured batch is the first, ranked as any other
    shares = np.stack([rankdata(-distance, method="max") for distance in distances])
    rarest = shares.min(axis=0)
    return float(np.mean(rarest <= rarest[0]))


def _distances(
    away: Float[np.ndarray, "batch row"],
    of_law: Float[np.ndarray, "row row"],
    of_rows: Float[np.ndarray, "row row"],
) -> tuple[Float[np.ndarray, " batch"], ...]:
    """Measure the distances of batches, each of shape (batch,): Mahalanobis' distance
    over all rows, which many rows blunt; the same along axes on which the law moves by
    more than the rows' own errors, where it would have to bend; and the mean.
    """
    # in units of the rows' own errors, turned to the axes of what the law moves
    root = np.linalg.cholesky(of_rows)
    half_white = np.linalg.solve(root, of_law)
    white = np.linalg.solve(root, half_white.T)
    variance, axes = np.linalg.eigh((white + white.T) / 2)
    along = np.linalg.solve(root, away.T).T @ axes
    squares = along**2 / (1 + np.maximum(variance, 0))
    # an axis along which the law moves by less than one row's error is none to bend
    # along; the largest is one whatever its size
    is_law = variance >= min(1.0, variance.max())
    level = np.abs(away.mean(axis=1))
    return squares.sum(axis=1), squares[:, is_law].sum(axis=1), level


def covariance_of(
    draws: Float[np.ndarray, "draw row"],
) -> Float[np.ndarray, "row row"]:
    """Compute the covariance of the columns, shape (row, row), also for a single
    column.
    """
    return np.atleast_2d(np.cov(draws, rowvar=False))


def members(
    rows: pd.DataFrame,
    columns: tuple[str, ...] = ("ptpp", "N", "replay", "run"),
    most_levels: int = 300,
) -> Iterator[tuple[str, str, Bool[np.ndarray, " row"]]]:
    """Group rows by the levels of these columns: the column, the level in words, and
    which rows, shape (row,).
    """
    for column in columns:
        if column not in rows:
            continue
        levels = rows[column].dropna().unique()
        if len(levels) > most_levels:
            continue  # it names rows, not groups
        for level in sorted(levels, key=lambda v: (isinstance(v, str), v)):
            yield column, _words(column, level), (rows[column] == level).to_numpy()


def _words(column: str, level: Any) -> str:
    # shares that were worked out have many digits
    return f"{level:.3g}" if column == "replay" else format_level(column, level)


def _groups(
    rows: pd.DataFrame,
    away: Float[np.ndarray, "draw row"],
    miss: Float[np.ndarray, " row"],
) -> Iterator[dict[str, Any]]:
    """Rank the mean miss of each group among those of simulated batches."""
    for by, level, picked in members(rows):
        simulated = away[:, picked].mean(axis=1)
        mean = miss[picked].mean()
        # two-sided, and never 0: so many batches were simulated and no more
        beyond = min(np.sum(simulated >= mean), np.sum(simulated <= mean))
        yield {
            "by": by,
            "level": level,
            "rows": int(picked.sum()),
            "miss": float(mean),
            "sd": float(simulated.std()),
            "p_value": min(1.0, 2 * (1 + beyond) / (1 + len(simulated))),
        }


def _coverage(
    batches: Float[np.ndarray, "draw row"], y: Float[np.ndarray, " row"], prob: float
) -> float:
    low, high = np.quantile(batches, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    return float(np.mean((low <= y) & (y <= high)))
