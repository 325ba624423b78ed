"""Forecast new rows by the old posterior, judge whether they agree with it (coverage,
misses, and the share of simulated batches that stray as far), and explain why a forecast
moved: the part of each group of new rows, computed from the old draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bayeslaw._base.numbers import format_chance, format_level
from bayeslaw._base.schema import CELLS
from bayeslaw._base.shown import InJson, as_json
from bayeslaw._base.streams import Stream, generator
from bayeslaw._forecasts.check import within
from bayeslaw._forecasts.forecast import ONE_SD
from bayeslaw._inference.diagnostics import TRUSTED_K, pareto_smoothed
from bayeslaw._inference.table import shared_error
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import RowErrors, error_sizes, log_losses, noise_of
from bayeslaw._posteriors.posterior import Posterior, columns_read, row_sds
from bayeslaw._running.following.followed import SURPRISING, UNUSUAL
from bayeslaw._tables.fitting import losses

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

# largest error of an explained shift, as a share of the refit's shift or in sds; and the
# share of a shift that a group must add to be its reason
CLOSE, CLOSE_SD, MOST = 0.4, 0.35, 0.5


@dataclass(frozen=True, eq=False)
class Foreseen:
    """Measured rows, and their distribution by the draws of a posterior."""

    rows: pd.DataFrame  # the rows, sorted so that points of one run follow each other
    y: Float[np.ndarray, " row"]  # measured log losses
    law: Float[np.ndarray, "draw row"]  # the law's log loss
    effects: Float[np.ndarray, "draw row"]  # effects of checkpoints, runs and settings
    errors: RowErrors  # the rows' own errors, correlated along a run

    @property
    def shared(self) -> Float[np.ndarray, "draw row"]:
        """Add the shared effects to the law, shape (draw, row)."""
        return self.law + self.effects

    @cached_property
    def own_covariance(self) -> Float[np.ndarray, "row row"]:
        """Compute the covariance of the rows' own errors, which are correlated along a
        run; averaged over draws, shape (row, row).

        Errors are Student-t. The covariance is that of the normal errors which tell as
        much about the law (`RunNoise.learned_at`).
        """
        carried = self.errors.carried
        dof = self.errors.dof[:, None]
        squared = self.errors.scale**2 / (1 - carried**2) * (dof + 3) / (dof + 1)
        sd = np.sqrt(squared.mean(axis=0))
        correlation = np.eye(len(sd))
        for j, step in enumerate(carried.mean(axis=0)[1:], start=1):
            # it is 0 at the first point of a run, so that runs are uncorrelated
            correlation[:j, j] = correlation[j, :j] = correlation[:j, j - 1] * step
        return sd[:, None] * correlation * sd

    def simulate(self, seed: int) -> Float[np.ndarray, "draw row"]:
        """Simulate a table of log losses for each draw, with shared effects."""
        rng = generator(seed, Stream.FORESEEN_ROWS)
        return self.shared + self.errors.draw(rng)

    def log_likelihood(
        self, picked: Bool[np.ndarray, " row"]
    ) -> Float[np.ndarray, " draw"]:
        """Compute the log likelihood of complete runs under each draw."""
        carried, scale, dof = self.errors.carried, self.errors.scale, self.errors.dof
        errors = RowErrors(carried[:, picked], scale[:, picked], dof)
        return errors.log_density((self.y - self.shared)[:, picked])


def foresee(posterior: Posterior, rows: pd.DataFrame, seed: int = 0) -> Foreseen:
    """Evaluate rows that a posterior has not seen, under its draws.

    If the posterior has seen a row's checkpoint (a `Fit`: or its run), the row gets the
    learned effect. A new point shares the effect of its run with the run's old points;
    any further correlation with the last old point is ignored.
    """
    parts = all_draws(posterior.pieces())
    along = [c for c in ("run", "step", "D") if c in rows]
    if "run" in along:
        # Points of one run follow each other in its order. Sort positions, because a
        # user's table may repeat labels. Sort names as text, because one run may be
        # called 3 and another a3.
        named = rows[along].assign(run=rows["run"].astype(str)).reset_index(drop=True)
        rows = rows.iloc[named.sort_values(along, kind="stable").index]
    has_length = any("run_length" in part.piece.values for part in parts)
    length = None if has_length else 0.0
    noise = noise_of(parts, length, settings_apart=True)
    # without a length the errors of rows are independent, as in the fit
    gap = shared_error(rows).gap
    if gap is None:
        gap = np.full(len(rows), np.inf)
    law = log_losses(parts, rows, "the table")
    sizes = error_sizes(parts, rows, "the table")
    own_sizes = noise.size_with(sizes, row_sds(rows, law))
    rng = generator(seed, Stream.FORESEEN_ROWS, 1)
    members = getattr(posterior, "members", ())
    if any(member.effects for member in members):
        drawn = [member.draw_effects(rows, rng) for member in members]
        effects = np.concatenate(drawn)
    else:
        untuned = columns_read(posterior, there=())
        effects = sizes * noise.draw_shared(rows, untuned, rng)
    return Foreseen(
        rows=rows,
        y=np.log(losses(rows)),
        law=law,
        effects=effects,
        errors=RowErrors.along_runs(noise, np.asarray(gap, float), own_sizes),
    )


@dataclass(frozen=True, eq=False)
class Surprise(InJson):
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

    KEYS: ClassVar = {
        "n coverage p_value": ...,
        "miss": (float, "Mean log of losses over their forecasts."),
        "rows": [{"median low high loss miss z": float, **CELLS}],
        "groups": [{"by level": str, "rows": int, "miss sd p_value": float}],
    }

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
            f"average {format_miss(self.miss)} the forecast; "
            f"{format_chance(self.p_value)} of batches that were foreseen stray as far"
        )

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return super().to_dict() | {"rows": as_json(self.rows.reset_index())}


def format_miss(miss: float) -> str:
    # the mean log of losses over their forecasts, as a share of these
    return f"{abs(np.expm1(miss)):.1%} {'above' if miss > 0 else 'below'}"


def surprise_of(foreseen: Foreseen, seed: int = 0) -> Surprise:
    """Judge how surprising rows are under the posterior that forecast them."""
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

    def judge(picked: Bool[np.ndarray, " row"]) -> dict[str, float]:
        """Rank the mean miss of a group among those of simulated batches."""
        simulated = (batches - median)[:, picked].mean(axis=1)
        mean = miss[picked].mean()
        # two-sided; never 0, because the number of simulated batches is finite
        beyond = min(np.sum(simulated >= mean), np.sum(simulated <= mean))
        p_value = min(1.0, 2 * (1 + beyond) / (1 + len(simulated)))
        return {"miss": float(mean), "sd": float(simulated.std()), "p_value": p_value}

    levels = (0.5, 0.8, 0.9, 0.95)
    return Surprise(
        n=len(y),
        coverage={f"{p:g}": float(within(batches, y, p).mean()) for p in levels},
        p_value=joint(foreseen, batches, seed),
        rows=missed,
        groups=tabulate_groups(rows, judge, lambda table: table["miss"] / table["sd"]),
    )


def tabulate_groups(
    rows: pd.DataFrame,
    measure: Callable[[Bool[np.ndarray, " row"]], dict[str, float]],
    size: Callable[[pd.DataFrame], pd.Series],
    most_levels: int = 300,
    most: int = 12,
) -> pd.DataFrame:
    """Make a table of the groups of rows at each level of a column: the column (``by``),
    the ``level`` in words, the number of ``rows``, and what ``measure`` says of a mask
    of them. It has at most ``most`` groups of each column, of the largest ``size``.
    """
    groups = []
    for column in [c for c in ("ptpp", "N", "replay", "run") if c in rows]:
        levels = rows[column].dropna().unique()
        if len(levels) > most_levels:
            continue  # with so many levels the column names rows and not groups
        for level in sorted(levels, key=lambda v: (isinstance(v, str), v)):
            picked = (rows[column] == level).to_numpy()
            # computed shares have many digits
            is_share = column == "replay"
            words = f"{level:.3g}" if is_share else format_level(column, level)
            group = {"by": column, "level": words, "rows": int(picked.sum())}
            groups.append(group | measure(picked))
    if not groups:  # of no rows, in the same columns
        none = measure(np.ones(len(rows), bool))
        return pd.DataFrame(columns=["by", "level", "rows", *none])
    table = pd.DataFrame(groups)
    order = size(table).abs().groupby(table["by"])
    rank = order.rank(ascending=False, method="first")
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


# -- attribution -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attribution(InJson):
    """The shift of one run's forecast and its parts, in log loss.

    Parameters
    ----------
    shift
        Shift of the law's mean at that run, from the old posterior to the new one.
    sd
        Sd of the law's log loss at that run, by the old posterior.
    together
        The shift that all new rows give the old draws (`attribute`).
    groups
        A row for each level of a column (``by``, ``level``), with its number of
        ``rows``. ``adds`` is the group's part of ``together``; parts of a column's
        levels add up to it. ``alone`` is the shift that the group would give without
        the other new rows, by reweighting the old draws, and ``khat`` that of the
        weights; from .7 on ``alone`` is NaN.
    """

    shift: float
    sd: float
    together: float
    groups: pd.DataFrame

    KEYS: ClassVar = {
        "shift sd together": ...,
        "told": (bool, "Whether the new rows tell the shift."),
        "reason": str,
        "groups": [{"by level": str, "rows": int, "adds alone khat": float}],
    }

    @property
    def is_told(self) -> bool:
        """Tell whether the old draws predict the refit's shift."""
        # a shift that is small compared with the old sd need not be explained exactly
        allowed = max(CLOSE * abs(self.shift), CLOSE_SD * self.sd)
        return abs(self.together - self.shift) <= allowed

    @property
    def reasons(self) -> pd.DataFrame:
        """List the groups that add most of the shift, if it is explained."""
        if not self.is_told:
            return self.groups.iloc[:0]
        along = self.groups["adds"] * np.sign(self.shift)
        return self.groups[along >= MOST * abs(self.shift)]

    def sentence(self) -> str:
        """Describe how much of the shift is explained, and by which rows."""
        part_told = f"of {self.shift:+.2%} the new rows tell {self.together:+.2%}"
        if not self.is_told:
            return (
                f"{part_told}; the rest is what only the refit shows (misfit and noise "
                "learned again, weights and drift of laws, rows changed or gone), so "
                "that it cannot be told by which rows"
            )
        # A column with one level explains nothing, and single runs are too many to list,
        # unless there are no others. Of the rest the three largest parts.
        levels = self.groups.groupby("by")["level"].transform("size")
        several = self.groups[(levels > 1) & (self.groups["by"] != "run")]
        groups = several if len(several) else self.groups
        order = groups["adds"].abs().sort_values(ascending=False).index
        parts = [
            f"{group['by']} {group['level']} {group['adds']:+.2%}"
            for _, group in groups.loc[order[:3]].iterrows()
        ]
        return f"{part_told}: {', '.join(parts)}"

    told, reason = is_told, sentence  # as they are called in JSON


def attribute(
    foreseen: Foreseen,
    before: Float[np.ndarray, " draw"],
    after: Float[np.ndarray, " later"],
) -> Attribution:
    """Attribute the shift of a forecast to the new rows.

    ``foreseen``: the new rows under the old draws. ``before``, ``after``: draws of the
    law's log loss at the run to forecast, of the old and the new posterior.

    Notes
    -----
    The old draws of the forecast and of the new rows are assumed to be jointly normal.
    The forecast's mean then moves by a sum over rows: a gain times the difference of
    the row from its own forecast (the update of an ensemble Kalman filter; Evensen
    1994). Reweighting the draws by the rows' likelihood does not need this assumption.
    Its result is reported if its k-hat allows, which is mostly for a few rows. Neither
    method covers what a refit learns again: the misfit's scales, and the weights and
    drift of an average.
    """
    # Effects are added to the law, so that rows of one odd checkpoint, which share its
    # effect, move the law less.
    shared = foreseen.shared
    covariance = covariance_of(shared) + foreseen.own_covariance
    away = shared - shared.mean(axis=0)
    together_with = (before - before.mean()) @ away / (len(before) - 1)
    # a row's gain falls if other rows carry the same information
    gain = np.linalg.solve(covariance, together_with)
    adds = gain * (foreseen.y - shared.mean(axis=0))

    def explain(picked: Bool[np.ndarray, " row"]) -> dict[str, float]:
        weight, khat = pareto_smoothed(foreseen.log_likelihood(picked))
        alone = float(weight @ before - before.mean()) if khat < TRUSTED_K else np.nan
        return {"adds": float(adds[picked].sum()), "alone": alone, "khat": khat}

    return Attribution(
        shift=float(after.mean() - before.mean()),
        sd=float(before.std()),
        together=float(adds.sum()),
        groups=tabulate_groups(foreseen.rows, explain, lambda table: table["adds"]),
    )
