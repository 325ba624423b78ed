"""Check that posteriors can be of one target and its sources, and pair their draws with
the correlation of their errors.

Domains are fitted one by one, so their draws are independent. Their errors are not,
because a run with too little of one domain has too much of another. In regressions on
the same rows, forecast errors (of parameters and noise together) are correlated like
the residuals (Zellner 1962, seemingly unrelated regressions). So draws are paired with
the correlation of residuals at rows measured in both domains. This does not change the
forecast of any single domain (Iman and Conover 1982).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError, PlanError
from bayeslaw._base.numbers import format_count, format_many
from bayeslaw._inference.table import labels
from bayeslaw._law.formula import units_of
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import log_losses
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._tables.beyond import distances, own_beyond
from bayeslaw._tables.fitting import fitted
from bayeslaw._tables.rows.levels import find_checkpoints, with_common_levels
from bayeslaw._tables.surface import BESIDE_REPLAY, CLEAR, partial_slope

if TYPE_CHECKING:
    from jaxtyping import Float

# rows of two domains that are equal in these columns are of the same measured model
KEYS = ("N", "ptpp", "D", "replay", "step", "seed")


def check_posteriors(target: Posterior, sources: Mapping[str, Posterior]) -> None:
    """Refuse a target and a source of the same domain or losses, or that are swapped by
    their domains' names, with a `PlanError`.
    """
    table, domain = table_of(target), one_domain(target)
    for name, posterior in sources.items():
        source, of_source = table_of(posterior), one_domain(posterior)
        if table is None or source is None:
            continue
        if domain is not None and domain == of_source:
            raise PlanError(
                f"the fits of target and of {name} are both of domain {domain!r}: fit "
                "each to its own domain's losses"
            )
        if len(table) == len(source) and fitted(table, source).all():
            raise PlanError(
                f"the fits of target and of {name} are of the same {len(table)} losses: "
                "give each domain its own fit"
            )
        if of_source == "target" or domain in ("source", name):
            raise PlanError(
                f"the fit given as target is of domain {domain!r} and that of {name} of "
                f"{of_source!r}: they are swapped"
            )


def own_far(posterior: Posterior, runs: pd.DataFrame) -> list[str]:
    """Write a line for each of the user's columns in which runs lie far beyond."""
    table = table_of(posterior)
    if table is None:
        return []
    units: dict[str, str] = {}
    for member in getattr(posterior, "members", ()):
        units |= units_of(member.law)
    return own_beyond(table, runs, columns_read(posterior), units=units)


def new_sizes_of_plain_fits(
    posteriors: Iterable[Posterior], runs: pd.DataFrame
) -> list[str]:
    """Write a line if runs have a size beyond those of a fit without misfit."""
    for posterior in posteriors:
        # a chain forecasts by the posterior in it
        fits = (posterior, getattr(posterior, "posterior", None))
        table = table_of(posterior)
        if table is None or not any(getattr(fit, "is_plain", False) for fit in fits):
            continue
        farthest = distances(table, runs, ["N"], above=0).get("N")
        if farthest is not None and not farthest.is_inside:
            return [
                f"N = {format_count(farthest.value)} is {farthest.phrase('fitted')}, and "
                f"the fit {posterior.name} is of the law alone: its interval leaves out "
                "how far a law misses a new size (where 90% was stated, 35% has held); "
                "fit with discrepancy=True, the default (without --plain)"
            ]
    return []


def doubts_of_tables(
    name: str, target: pd.DataFrame, source: pd.DataFrame
) -> list[str]:
    """List reasons why two tables may not be of a target and its source ``name``."""
    lines, keys = [], ["N", "ptpp"]
    if set(keys) <= set(target) & set(source):
        checkpoints, others = (t[keys].drop_duplicates() for t in (target, source))
        if not np.any(find_checkpoints(checkpoints, others) >= 0):
            lines.append(
                f"the fits of target and of {name} have no checkpoint (N, ptpp) in "
                "common: are they of the same models?"
            )
    target_slope, target_error = partial_slope(target, "replay", BESIDE_REPLAY)
    source_slope, source_error = partial_slope(source, "replay", BESIDE_REPLAY)
    # Many runs share a misfit, which the standard errors do not count. So a slope must
    # also be over 3%.
    falls = -target_slope > max(CLEAR * target_error, 0.03)
    rises = source_slope > max(CLEAR * source_error, 0.03)
    if falls and rises:
        lines.append(
            f"the target's losses fall with replay and those of {name} rise: if target "
            "and source are swapped, so is the plan"
        )
    return lines


def table_of(posterior: Posterior) -> pd.DataFrame | None:
    """Find the table that a posterior was fitted to; None if the posterior does not
    keep it. For a chain it is the table of the law that starts from the checkpoint.
    """
    chained = getattr(posterior, "posterior", None)
    candidates = (
        getattr(posterior, "runs", None),
        getattr(chained, "runs", None),
        getattr(posterior, "training_rows", None),
    )
    # for a domain of a pool ``runs`` is a number
    return next((runs for runs in candidates if isinstance(runs, pd.DataFrame)), None)


def fitted_range(
    posteriors: Mapping[str, Posterior], column: str
) -> tuple[float, float] | None:
    """Find the range of a column that the tables of all laws that read it cover, as
    (low, high); None if no law reads it, or if the ranges do not overlap.
    """
    low, high = -np.inf, np.inf
    for posterior in posteriors.values():
        table = table_of(posterior)
        if table is not None and column in {*columns_read(posterior)} & {*table}:
            low = max(low, float(table[column].min()))
            high = min(high, float(table[column].max()))
    return (low, high) if -np.inf < low <= high else None


def one_domain(posterior: Posterior) -> str | None:
    """Find the one domain of a posterior's table; None if there is none, or several."""
    table = table_of(posterior)
    if table is None or "domain" not in table:
        return None
    domains = table["domain"].astype(str).unique()
    return domains[0] if len(domains) == 1 else None


# -- pairs of draws -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ErrorCorrelation:
    """Correlation of the errors of several domains' forecasts.

    ``rows``: number of rows that are measured in two domains, the smallest of any pair,
    of ``groups`` checkpoints or runs (``kind``); 0 for a given correlation. ``atpp``,
    ``replay``: the middle of those rows, where draws are paired.
    """

    names: tuple[str, ...]
    matrix: Float[np.ndarray, "domain domain"]
    rows: int = 0
    groups: int = 0
    kind: str = "row"
    atpp: float = 10.0
    replay: float = 0.25

    def sentence(self) -> str:
        """Describe the correlation: the number for two domains, else the range."""
        away = self.matrix[np.triu_indices(len(self.names), 1)]
        size = f"{away[0]:+.2f}"
        if len(away) > 1:
            size = f"{away.min():+.2f} to {away.max():+.2f}"
        basis = "as given"
        if self.rows:
            basis = f"residuals at {self.rows} common rows"
            if self.kind != "row":
                basis += f" of {format_many(self.groups, self.kind)}"
        return f"errors of {', '.join(self.names)} are correlated by {size} ({basis})"


def error_correlation(
    posteriors: Mapping[str, Posterior], correlation: float | None = None
) -> ErrorCorrelation | None:
    """Estimate the correlation of the forecast errors of several domains, from residuals
    at rows that are measured in both domains of each pair; None if there are no such
    rows. ``correlation``: a number to use instead, for two domains, or 0.

    The estimate is shrunk towards zero by its variance, from a jackknife over
    checkpoints (else runs, else rows). All pairs share one intensity (Schaefer and
    Strimmer 2005), so the matrix stays a correlation matrix.

    Raises
    ------
    PlanError
        The given number is not a correlation, or there are more than two domains.
    """
    names = tuple(posteriors)
    if correlation == 0:
        return None
    if correlation is not None:
        is_possible = isinstance(correlation, int | float) and -1 < correlation < 1
        if not is_possible or len(names) != 2:
            raise PlanError(
                "correlation is a number between -1 and 1, of a target and one source (0: "
                "independent, of any number of them); "
                f"got {correlation!r} for {', '.join(names)}"
            )
        matrix = np.array([[1.0, correlation], [correlation, 1.0]])
        return ErrorCorrelation(names, matrix)
    residuals = {name: _find_residuals(p) for name, p in posteriors.items()}
    matrix, variance, pairs = np.eye(len(names)), 0.0, []
    for i, j in itertools.combinations(range(len(names)), 2):
        left, right = residuals[names[i]], residuals[names[j]]
        pair = None if left is None or right is None else _join_rows(left, right)
        if pair is None:
            continue
        matrix[i, j] = matrix[j, i] = _correlate(pair)
        # variance by the jackknife over groups of rows
        groups = pair["group"].unique()
        without = [_correlate(pair[pair["group"] != name]) for name in groups]
        spread = np.asarray(without) - np.mean(without)
        share = (len(groups) - 1) / len(groups)
        variance += float(share * np.nansum(spread**2))
        pairs.append(pair)
    size = float((matrix[np.triu_indices(len(names), 1)] ** 2).sum())
    if not pairs or size == 0:
        return None
    share = 1 - min(variance / size, 1.0)
    shrunk = np.where(np.eye(len(names)) > 0, 1.0, share * matrix)
    # Correlations of different rows may give a matrix with negative eigenvalues: raise
    # them.
    values, vectors = np.linalg.eigh(shrunk)
    raised = vectors @ np.diag(np.maximum(values, 1e-6)) @ vectors.T
    sds = np.sqrt(np.diag(raised))
    least = min(pairs, key=len)
    atpp = 10.0
    if {"D", "N"} <= set(least):
        atpp = float(np.exp(np.log(least["D"] / least["N"]).mean()))
    result = ErrorCorrelation(
        names,
        raised / np.outer(sds, sds),
        rows=len(least),
        groups=least["name"].nunique(),
        kind=least["kind"].iloc[0],
        atpp=atpp,
        replay=float(least["replay"].mean()) if "replay" in least else 0.25,
    )
    is_none = np.allclose(result.matrix, np.eye(len(names)))
    return None if is_none else result


def _find_residuals(posterior: Posterior) -> pd.DataFrame | None:
    """Compute log loss minus the law's mean at measured models, if kept."""
    runs = table_of(posterior)
    if runs is None or "loss" not in runs:
        return None
    try:
        draws = log_losses(all_draws(posterior.pieces()), runs, "the fitted table")
    except BayeslawError:  # the table may lack a column that a chain forecasts
        return None
    keys = [column for column in KEYS if column in runs]
    table = runs[keys].astype(float).fillna(-1.0)
    table["kind"], table["name"] = _name_groups(runs, fewest=1)
    table["group"] = _name_groups(runs, fewest=3)[1]
    table["residual"] = np.log(runs["loss"].to_numpy(float)) - draws.mean(axis=0)
    # rows that are equal in all keys are averaged
    return table.groupby(keys, as_index=False).agg(
        {"kind": "first", "name": "first", "group": "first", "residual": "mean"}
    )


def _name_groups(runs: pd.DataFrame, fewest: int) -> tuple[str, list[str]]:
    """Name the groups of rows that may share an error: of a checkpoint, or else of a
    run, if there are as many; else each row is a group.
    """
    for kind in ("checkpoint", "run"):
        names = labels(kind, runs)
        if names is not None and fewest <= names.nunique() < len(runs):
            return kind, list(map(str, names))
    return "row", [str(row) for row in range(len(runs))]


def _join_rows(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame | None:
    keys = [column for column in KEYS if column in left and column in right]
    if not keys:
        return None
    left, right = with_common_levels(left, right, keys)
    others = right[[*keys, "residual"]]
    pair = left.merge(others, on=keys, suffixes=("", "_other"))
    varies = (
        len(pair) >= 4 and pair["residual"].std() * pair["residual_other"].std() > 0
    )
    return pair if varies else None


def _correlate(pair: pd.DataFrame) -> float:
    return float(np.corrcoef(pair["residual"], pair["residual_other"])[0, 1])


def coupled(
    scores: Float[np.ndarray, "domain draw"],
    correlation: ErrorCorrelation,
    rng: np.random.Generator,
) -> np.ndarray:
    """Order each domain's draws so that their scores (the forecasts under each draw) have
    a Gaussian copula of this correlation (Iman and Conover 1982): indices of draws.
    """
    draws = scores.shape[1]
    root = np.linalg.cholesky(correlation.matrix + 1e-9 * np.eye(len(scores)))
    normal = root @ rng.standard_normal((len(scores), draws))
    ranks = np.argsort(np.argsort(normal, axis=1), axis=1)
    return np.take_along_axis(np.argsort(scores, axis=1, kind="stable"), ranks, axis=1)
