"""Check whether a law fits its own runs, before anything is forecast with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._inference.table import SharedError, shared_error
from bayeslaw._law.law import Law
from bayeslaw._posteriors.posterior import LogLoss, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import NUMERIC, TEXT
from bayeslaw._tables.surface import CLEAR, partial_slope

if TYPE_CHECKING:
    from jaxtyping import Float, Int

LARGE_MISS = 0.05  # median distance of rows; laws miss tiny models by 3%

REASONS = (
    "noise, an accuracy in place of a loss, losses of other domains or units, and a "
    "validation set that leaks into training look so"
)


class Goodness(NamedTuple):
    """Goodness of fit of a law by itself, without its misfit, at its own runs.

    ``explained``: share of the spread of log losses that the law explains (the spread
    is the squared median distance from the median), NaN where the runs cannot show it.
    ``miss``: median distance of rows from the law, in log loss. ``doubts``: reasons to
    doubt the law, a line each. ``with_effects``: share that the law explains with an
    effect of each checkpoint, or run.
    """

    explained: float
    miss: float
    doubts: tuple[str, ...]
    with_effects: float

    def sentence(self) -> str:
        """Describe the fit in words."""
        if np.isnan(self.explained):
            return (
                "these runs cannot show how well the law fits: they are no more than its "
                "parameters, through which almost any law passes; add runs"
            )
        return (
            f"by itself the law explains {self.explained:.1%} of how the losses differ; "
            f"half of the rows lie within {self.miss:.2%} of it"
        )


def goodness(
    law: Law, values: Mapping[str, Float[np.ndarray, " draw"]], runs: pd.DataFrame
) -> Goodness:
    """Measure a law's fit to its own runs.

    Parameters
    ----------
    values
        Draws of the law's parameters by name.
    runs
        The table it was fitted to.
    """
    x, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    residuals = y - _centre(law, values, x)
    miss = median_distance(residuals)
    explained = explained_share(residuals, y)
    shared = shared_error(runs)
    beside = residuals - _effects(residuals, shared)
    with_effects = explained_share(beside, y)
    doubts = []
    # with fewer than two rows for each parameter, a law fits anything
    has_enough = len(runs) >= 2 * len(law.priors)
    if explains_little(explained, y) and not explains_little(with_effects, y):
        doubts.append(
            f"law {law.name!r} by itself explains {explained:.0%} of how the losses "
            f"differ, and with an effect of each {shared.kind} {with_effects:.0%} (half "
            f"of the rows within {median_distance(beside):.1%}): forecasts of another "
            f"{shared.kind} are off by its effect"
        )
    elif explains_little(explained, y):
        doubts.append(
            f"law {law.name!r} explains {explained:.0%} of how the losses differ, and "
            f"half of the rows lie over {miss:.1%} off it: {REASONS}; plot the table"
        )
    elif miss > _large_miss(runs):
        doubts.append(
            f"half of the rows lie over {miss:.1%} off law {law.name!r}, where seeds "
            "differ by .05-.6%: another law may suit them (`compare`)"
        )
    elif miss < 1e-4 and has_enough:  # no measured losses lie so near any law
        doubts.append(
            f"losses follow law {law.name!r} to {_digits(miss)} digits, where seeds "
            "differ by .05-.6%: are they simulated, or a formula's? then intervals say "
            "nothing of real runs"
        )
    rise = rise_with_size(runs) if "N" in law.covariates else None
    unread = unread_column(law, runs, residuals)
    doubts += [line for line in (rise, unread) if line is not None]
    if len(runs) <= len(law.free_priors) and not doubts:
        explained = with_effects = np.nan
    return Goodness(explained, miss, tuple(doubts), with_effects)


def _effects(
    residuals: Float[np.ndarray, " row"], shared: SharedError
) -> Float[np.ndarray, " row"]:
    """Estimate what the rows of a checkpoint, or run, have in common, shape (row,): the
    means of their residuals, shrunk by their error (one-way analysis of variance).
    """
    if shared.kind is None:
        return np.zeros(len(residuals))
    group = pd.Series(np.asarray(shared.group.code))
    rows = pd.Series(residuals).groupby(group)
    means, counts = rows.transform("mean"), rows.transform("size")
    freedom = len(residuals) - rows.ngroups
    noise = float(((residuals - means) ** 2).sum() / freedom)
    of_means = (means - residuals.mean()) ** 2
    between = max(0.0, float((of_means - noise / counts).mean()))
    if between == 0:
        return np.zeros(len(residuals))
    return (means * between / (between + noise / counts)).to_numpy()


def _large_miss(
    runs: pd.DataFrame, of_large: float = 0.03, least_size: float = 1e7
) -> float:
    """Choose the median distance of rows above which a law does not suit them: a lower
    one for models from ``least_size`` parameters on, which laws miss by .1-1%.
    """
    is_large = "N" in runs and bool((runs["N"] >= least_size).all())
    return of_large if is_large else LARGE_MISS


def _digits(miss: float) -> int:
    """Count the leading digits that are equal in numbers which differ by this share."""
    return min(9, int(-np.log10(max(miss, 1e-9))))


def explained_share(
    residuals: Float[np.ndarray, " row"], y: Float[np.ndarray, " row"]
) -> float:
    """Compute the explained share of the spread of log losses ``y``, given their
    ``residuals``, by squared median distances. Both have shape (row,).
    """
    spread = median_distance(y - np.median(y))
    if spread == 0:
        return 1.0
    return max(0.0, 1 - (median_distance(residuals) / spread) ** 2)


def explains_little(explained: float, y: Float[np.ndarray, " row"]) -> bool:
    """Tell whether that share is under a half, for log losses of shape (row,) that
    differ by more than a hundredth.
    """
    spread = median_distance(y - np.median(y))
    return explained < 0.5 and spread > 0.01


def rise_with_size(runs: pd.DataFrame) -> str | None:
    """Write a line if losses clearly rise with N, with the other columns held fixed."""
    slope, error = partial_slope(runs, "N", ("D", "replay", "ptpp"))
    if not slope > CLEAR * error > 0:
        return None
    return (
        f"losses rise with N, by {slope:.1%} an e-fold at the same D, replay "
        f"and ptpp: {REASONS}"
    )


def _centre(
    law: Law,
    values: Mapping[str, Float[np.ndarray, " draw"]],
    x: Mapping[str, Float[np.ndarray, " row"]],
    most: int = 24,
) -> Float[np.ndarray, " row"]:
    """Average the law's log loss at the runs over at most a number of draws."""
    first = next(iter(values.values()))
    draws = len(first)
    count = min(most, draws)
    index = np.linspace(0, draws - 1, count).astype(int)
    of_law = {name: np.asarray(values[name])[index] for name in law.priors}
    formula = LogLoss(law)
    log_losses = over_draws(formula)(of_law, dict(x))
    return np.asarray(log_losses).mean(axis=0)


def median_distance(away: Float[np.ndarray, " row"]) -> float:
    """Compute the median absolute distance, from signed distances of shape (row,)."""
    distance = np.abs(away)
    return float(np.median(distance))


# -- columns that no law reads ---------------------------------------------------------


def unread_column(
    law: Law,
    runs: pd.DataFrame,
    residuals: Float[np.ndarray, " run"],
    least_miss: float = 0.002,
    least_share: float = 0.5,
) -> str | None:
    """Name a column outside the schema that explains most of a law's residuals.

    Parameters
    ----------
    residuals
        Distance of each log loss above the law, shape (run,).
    least_miss
        Least median distance of rows, in log loss. Below it no column is searched,
        because seeds differ by .05-.6%.
    least_share
        Least share of the variance of the residuals' ranks that such a column explains.
    """
    if np.median(np.abs(residuals)) < least_miss:
        return None
    # columns of the schema are skipped, because users know that laws read them
    schema = {*NUMERIC, *TEXT}
    shares = {}
    for name, column in runs.items():
        if name in schema or name in law.covariates or not _is_plain(column):
            continue
        if _is_determined(law, runs, column):
            continue
        level = _levels(column)
        if level is not None:
            shares[name] = _share_told(level, residuals)
    if not shares:
        return None
    name = max(shares, key=lambda column: shares[column])
    if shares[name] < least_share:
        return None
    return (
        f"column {name!r}, which law {law.name!r} does not read, tells {shares[name]:.0%} "
        "of what the law misses: call it by a name that laws read (replay, ptpp, domain "
        "...; docs/howto/own_table.md), or fit its values apart (--where, in Python a "
        "part of the table)"
    )


def _is_plain(column: pd.Series) -> bool:
    """Tell whether a column holds finite numbers, or words, without a gap."""
    if pd.api.types.is_numeric_dtype(column):
        return bool(np.isfinite(column.to_numpy(float, na_value=np.nan)).all())
    return all(isinstance(value, str) for value in column)


def _levels(column: pd.Series) -> Int[np.ndarray, " run"] | None:
    """Find the level of each row; None if there is one level, or if a level has fewer
    than three rows.

    A column of numbers with over eight levels is cut into four parts of equal counts.
    """
    codes, names = pd.factorize(column)
    is_number = pd.api.types.is_numeric_dtype(column)
    if is_number and len(names) > 8:
        codes = pd.qcut(column, 4, labels=False, duplicates="drop").to_numpy()
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    if len(counts) < 2 or counts.min() < 3:
        return None
    return codes


def _share_told(
    level: Int[np.ndarray, " run"], residuals: Float[np.ndarray, " run"]
) -> float:
    """Compute the adjusted R2 of a one-way analysis of variance on the residuals'
    ranks.
    """
    ranks = pd.Series(residuals).rank()
    within = ranks - ranks.groupby(level).transform("mean")
    rows, levels = len(ranks), len(np.unique(level))
    if rows <= levels:
        return 0.0
    inside = (within**2).sum() / (rows - levels)
    return float(1 - inside / ranks.var())


def _is_determined(law: Law, runs: pd.DataFrame, column: pd.Series) -> bool:
    """Tell whether the columns that the law reads determine this column, as N
    determines layers, and N and D determine compute. If so, the law's form is wrong,
    and the law does not lack the column.
    """
    covariates = [c for c in law.covariates if c in runs]
    for covariate in covariates:
        if (column.groupby(runs[covariate]).nunique() <= 1).all():
            return True
    if not pd.api.types.is_numeric_dtype(column) or not (column > 0).all():
        return False
    axes = [np.log(runs[c].to_numpy(float).clip(1e-12)) for c in covariates]
    design = np.column_stack([*axes, np.ones(len(runs))])
    y = np.log(column.to_numpy(float))
    coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
    residuals = y - design @ coefficients
    # a plane in the law's columns explains 99.9% of it
    return bool(residuals.var() <= 0.001 * y.var())
