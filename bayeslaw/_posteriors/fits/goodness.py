"""Check whether a law fits its own runs, before anything is forecast with it, and what
they tell of its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np
import pandas as pd

from bayeslaw._inference.table import shared_error
from bayeslaw._law.law import NATS, Law, as_arrays, log_loss
from bayeslaw._posteriors.posterior import LogLoss, over_draws
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import NUMERIC, TEXT
from bayeslaw._tables.surface import CLEAR, partial_slope

if TYPE_CHECKING:
    from jaxtyping import Float

LARGE_MISS = 0.05  # median distance of rows; laws miss tiny models by 3%

REASONS = (
    "noise, an accuracy in place of a loss, losses of other domains or units, and a "
    "validation set that leaks into training look so"
)


class Goodness(NamedTuple):
    """Goodness of fit of a law by itself, without its misfit, at its own runs.

    ``explained``: share of the spread of log losses that the law explains (by squared
    median distances from the median), NaN where the runs cannot show it;
    ``with_effects``: with an effect of each checkpoint, or run. ``miss``: median distance
    of rows from the law, in log loss. ``doubts``: reasons to doubt the law, a line each.
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
    law: Law, values: Mapping[str, Float[np.ndarray, "draw ..."]], runs: pd.DataFrame
) -> Goodness:
    """Measure a law's fit to its own runs, from draws of its parameters by name."""
    x, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    # the law's log loss at the runs, averaged over at most 24 draws
    draws = len(next(iter(values.values())))
    index = np.linspace(0, draws - 1, min(24, draws)).astype(int)
    of_law = {name: np.asarray(values[name])[index] for name in law.priors}
    residuals = y - over_draws(LogLoss(law), of_law, x).mean(axis=0)
    miss = median_distance(residuals)
    explained = explained_share(residuals, y)
    # What the rows of a checkpoint, or run, have in common: the means of their
    # residuals, shrunk by their error (one-way analysis of variance).
    beside, shared = residuals, shared_error(runs)
    if shared.kind is not None:
        rows = pd.Series(residuals).groupby(np.asarray(shared.group.code))
        means, counts = rows.transform("mean"), rows.transform("size")
        freedom = len(residuals) - rows.ngroups
        noise = float(((residuals - means) ** 2).sum() / freedom)
        of_means = (means - residuals.mean()) ** 2
        between = max(0.0, float((of_means - noise / counts).mean()))
        if between > 0:
            shrunk = means * between / (between + noise / counts)
            beside = residuals - shrunk.to_numpy()
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
    elif miss > (0.03 if are_large(runs) else LARGE_MISS):
        doubts.append(
            f"half of the rows lie over {miss:.1%} off law {law.name!r}, where seeds "
            "differ by .05-.6%: another law may suit them (`compare`)"
        )
    elif miss < 1e-4 and has_enough:  # no measured losses lie so near any law
        digits = min(9, int(-np.log10(max(miss, 1e-9))))
        doubts.append(
            f"losses follow law {law.name!r} to {digits} digits, where seeds "
            "differ by .05-.6%: are they simulated, or a formula's? then intervals say "
            "nothing of real runs"
        )
    rise = rise_with_size(runs) if "N" in law.covariates else None
    unread = unread_column(law, runs, residuals)
    doubts += [line for line in (rise, unread) if line is not None]
    if len(runs) <= len(law.free_priors) and not doubts:
        explained = with_effects = np.nan
    return Goodness(explained, miss, tuple(doubts), with_effects)


def are_large(runs: pd.DataFrame) -> bool:
    """Tell whether all models have 10M parameters or more: laws miss them by .1-1%."""
    return "N" in runs and bool((runs["N"] >= 1e7).all())


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
    """Name a column outside the schema that explains most of a law's residuals: at least
    ``least_share`` of the variance of their ranks. Where rows miss by less than
    ``least_miss``, no column is searched, because seeds differ by .05-.6%.
    """
    if np.median(np.abs(residuals)) < least_miss:
        return None
    # columns of the schema are skipped, because users know that laws read them
    schema = {*NUMERIC, *TEXT}
    ranks, shares = pd.Series(residuals).rank(), {}
    for name, column in runs.items():
        if name in schema or name in law.covariates:
            continue
        is_number = pd.api.types.is_numeric_dtype(column)
        if is_number:
            has_gap = not np.isfinite(column.to_numpy(float, na_value=np.nan)).all()
        else:
            has_gap = not all(isinstance(value, str) for value in column)
        if has_gap or _is_determined(law, runs, column):
            continue
        level, names = pd.factorize(column)
        if is_number and len(names) > 8:
            # four parts of equal counts
            level = pd.qcut(column, 4, labels=False, duplicates="drop").to_numpy()
        counts = np.bincount(level)
        counts = counts[counts > 0]
        if len(counts) < 2 or counts.min() < 3:
            continue
        # adjusted R2 of a one-way analysis of variance on the residuals' ranks
        within = ranks - ranks.groupby(level).transform("mean")
        freedom = len(ranks) - len(counts)
        inside = (within**2).sum() / max(freedom, 1)
        shares[name] = float(1 - inside / ranks.var()) if freedom > 0 else 0.0
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


# -- parameters that another sign would suit -------------------------------------------


def other_signs(
    law: Law,
    draws: Mapping[str, Float[np.ndarray, " draw"]],
    runs: pd.DataFrame,
    clear: float = 3.0,
) -> list[str]:
    """Write a line for each positive parameter of a formula that fits better below 0.

    Such a parameter lies at the low end of its prior, and least squares without the
    prior put it ``clear`` standard errors below 0: one Gauss-Newton step from the
    posterior's median, over all parameters together.
    """
    free = {n: prior for n, prior in law.free_priors.items() if n in draws}
    at_low_end = [
        name
        for name, prior in free.items()
        if prior.support == "positive"
        and np.quantile(draws[name], 0.5) < prior.quantile(0.05)
    ]
    if not law.is_formula or not at_low_end or len(runs) <= len(free):
        return []
    names = list(free)
    medians = {name: float(np.median(draws[name])) for name in law.priors}
    columns, y = fitting.covariates(law, runs), fitting.log_losses(runs)
    at = as_arrays(medians)
    slopes = jax.jacfwd(lambda some: log_loss(law, columns, at | some))(
        {name: at[name] for name in names}
    )
    jacobian = np.stack([np.asarray(slopes[name]) for name in names], axis=1)
    residuals = y - np.asarray(log_loss(law, columns, at))
    # columns of length 1, so that the rank does not depend on the parameters' units
    length = np.linalg.norm(jacobian, axis=0)
    length[length == 0] = 1.0
    scaled = jacobian / length
    step, _, rank, _ = np.linalg.lstsq(scaled, residuals, rcond=1e-10)
    if rank < len(names):
        return []
    left = residuals - scaled @ step
    variance = left @ left / (len(y) - len(names))
    error = np.sqrt(variance * np.diag(np.linalg.inv(scaled.T @ scaled))) / length
    best = np.array([medians[name] for name in names]) + step / length
    signs = {term.coefficient: term.sign for term in law.terms}
    lines = []
    for site in at_low_end:
        i = names.index(site)
        if best[i] >= -clear * error[i]:
            continue
        name = site.removesuffix(NATS)
        write = f"-{name} in place of {name}"
        if name in signs:
            write = f"- {name}*... in place of + {name}*..."
            if signs[name] < 0:
                write = f"+ {name}*... in place of - {name}*..."
        unit = " nats at the reference run" if site.endswith(NATS) else ""
        lines.append(
            f"{name} is above 0 by its prior, and the runs put it at about "
            f"{best[i]:.2g}{unit}: write {write} in the formula, or give it a prior of "
            f'both signs, {name} = "normal(0, {2 * abs(best[i]):.1g})"'
        )
    return lines


# -- what the runs narrowed ------------------------------------------------------------


def narrowed(
    law: Law,
    draws: Mapping[str, Float[np.ndarray, " draw"]],
    few: float = 1 / 3,
    most: float = 2 / 3,
) -> pd.DataFrame:
    """Compare the posterior's 90% interval of each sampled value with the prior's.

    ``narrowed`` is the share of the prior's interval that the runs took away, on a
    logarithmic scale for positive values; up to ``few`` the value is the ``prior``'s,
    from ``most`` on the ``runs``'.
    """
    rows = {}
    for site, prior in law.free_priors.items():
        before = np.array([prior.quantile(0.05), prior.quantile(0.95)])
        after = np.quantile(draws[site], [0.05, 0.95])
        ends = np.stack([before, after])
        length, length_after = np.diff(
            np.log(ends) if prior.support == "positive" else ends
        )[:, 0]
        share = max(float(1 - length_after / length), 0.0)
        whose = "both" if share < most else "runs"
        rows[site] = {
            "prior_low": before[0],
            "prior_high": before[1],
            "low": after[0],
            "high": after[1],
            "narrowed": share,
            "whose": "prior" if share <= few else whose,
            "source": prior.source,
        }
    return pd.DataFrame.from_dict(rows, orient="index")
