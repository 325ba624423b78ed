"""Estimate how the forecast errors of several domains are correlated, and pair draws
with that correlation.

Domains are fitted one by one, so their draws are independent. Their errors are not,
because a run with too little of one domain has too much of another. In regressions on
the same rows, forecast errors (of parameters and noise together) are correlated like
the residuals (Zellner 1962, seemingly unrelated regressions). So draws are paired with
the correlation of residuals at rows measured in both domains. This does not change the
forecast of any single domain (Iman and Conover 1982).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import BayeslawError, PlanError
from bayeslaw._inference.table import labels
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import log_losses
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.rows.levels import with_common_levels

if TYPE_CHECKING:
    from jaxtyping import Float

# rows of two domains that are equal in these columns are of the same measured model
KEYS = ("N", "ptpp", "D", "replay", "step", "seed")


@dataclass(frozen=True, eq=False)
class ErrorCorrelation:
    """Correlation of the errors of several domains' forecasts.

    Parameters
    ----------
    names
        The domains.
    matrix
        Correlations, shape (domain, domain).
    rows, groups, kind
        Number of rows that are measured in two domains, the smallest of any pair, and
        number of their checkpoints, or else runs; 0 for a given correlation.
    atpp, replay
        Tokens per parameter and replay in the middle of those rows, where draws are
        paired.
    """

    names: tuple[str, ...]
    matrix: Float[np.ndarray, "domain domain"]
    rows: int = 0
    groups: int = 0
    kind: str = "row"
    atpp: float = 10.0
    replay: float = 0.25

    @property
    def is_none(self) -> bool:
        """Tell whether all domains are independent."""
        return bool(np.allclose(self.matrix, np.eye(len(self.names))))

    def sentence(self) -> str:
        """Describe the correlation in words: the number for two domains, the range for
        more.
        """
        away = self.matrix[np.triu_indices(len(self.names), 1)]
        size = f"{away[0]:+.2f}"
        if len(away) > 1:
            size = f"{away.min():+.2f} to {away.max():+.2f}"
        basis = "as given"
        if self.rows:
            basis = f"residuals at {self.rows} common rows"
            if self.kind != "row":
                basis += f" of {self.groups} {self.kind}{'s' * (self.groups > 1)}"
        return f"errors of {', '.join(self.names)} are correlated by {size} ({basis})"


def error_correlation(
    posteriors: Mapping[str, Posterior], correlation: float | None = None
) -> ErrorCorrelation | None:
    """Estimate the correlation of the forecast errors of several domains, from
    residuals at rows that are measured in both domains of each pair; None if there are
    no such rows.

    The estimate is shrunk towards zero by its variance, from a jackknife over
    checkpoints (else runs, else rows). All pairs share one intensity (Schaefer and
    Strimmer 2005), so the matrix stays a correlation matrix.

    Parameters
    ----------
    posteriors
        Posteriors by domain; those without a table are independent of the others.
    given
        A correlation to use instead, for two domains; 0 means independence, for any
        number of domains.

    Raises
    ------
    PlanError
        The given number is not a correlation, or there are more than two domains.
    """
    names = tuple(posteriors)
    if correlation is not None:
        return _given(names, correlation)
    residuals = {name: _residuals(p) for name, p in posteriors.items()}
    matrix, variance, counts = np.eye(len(names)), 0.0, []
    for i, j in itertools.combinations(range(len(names)), 2):
        left, right = residuals[names[i]], residuals[names[j]]
        pair = None if left is None or right is None else _common(left, right)
        if pair is None:
            continue
        matrix[i, j] = matrix[j, i] = _correlation(pair)
        variance += _jackknife(pair)
        counts.append(pair)
    size = float((matrix[np.triu_indices(len(names), 1)] ** 2).sum())
    if not counts or size == 0:
        return None
    share = 1 - min(variance / size, 1.0)
    shrunk = np.where(np.eye(len(names)) > 0, 1.0, share * matrix)
    least = min(counts, key=len)
    middle = (
        np.log(least["D"] / least["N"]).mean() if {"D", "N"} <= set(least) else None
    )
    result = ErrorCorrelation(
        names,
        _nearest(shrunk),
        rows=len(least),
        groups=least["name"].nunique(),
        kind=least["kind"].iloc[0],
        atpp=10.0 if middle is None else float(np.exp(middle)),
        replay=float(least["replay"].mean()) if "replay" in least else 0.25,
    )
    return None if result.is_none else result


def _given(names: tuple[str, ...], correlation: float) -> ErrorCorrelation | None:
    """Check a given correlation and build its matrix; None for independent errors."""
    if correlation == 0:
        return None
    is_possible = isinstance(correlation, int | float) and -1 < correlation < 1
    if not is_possible or len(names) != 2:
        raise PlanError(
            "correlation is a number between -1 and 1, of a target and one source (0: "
            f"independent, of any number of them); got {correlation!r} for {', '.join(names)}"
        )
    return ErrorCorrelation(names, np.array([[1.0, correlation], [correlation, 1.0]]))


def _residuals(posterior: Posterior) -> pd.DataFrame | None:
    """Compute measured log loss minus the law's mean, a row for each measured model;
    None for a posterior without a table.
    """
    runs = table_of(posterior)
    if runs is None or "loss" not in runs:
        return None
    try:
        draws = log_losses(all_draws(posterior.pieces()), runs, "the fitted table")
    except BayeslawError:  # the table may lack a column that a chain forecasts
        return None
    keys = [column for column in KEYS if column in runs]
    table = runs[keys].astype(float).fillna(-1.0)
    table["kind"], table["name"] = _names(runs, fewest=1)
    table["group"] = _names(runs, fewest=3)[1]
    table["residual"] = np.log(runs["loss"].to_numpy(float)) - draws.mean(axis=0)
    # rows that are equal in all keys are averaged
    return table.groupby(keys, as_index=False).agg(
        {"kind": "first", "name": "first", "group": "first", "residual": "mean"}
    )


def _names(runs: pd.DataFrame, fewest: int) -> tuple[str, list[str]]:
    """Name the groups of rows that may share an error: of a checkpoint, or else of a
    run, if there are as many; else each row is a group.
    """
    for kind in ("checkpoint", "run"):
        names = labels(kind, runs)
        if names is not None and fewest <= names.nunique() < len(runs):
            return kind, list(map(str, names))
    return "row", [str(row) for row in range(len(runs))]


def _common(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame | None:
    """Join the rows that both domains have, with both residuals; None if there are
    fewer than four.
    """
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


def _correlation(pair: pd.DataFrame) -> float:
    return float(np.corrcoef(pair["residual"], pair["residual_other"])[0, 1])


def _jackknife(pair: pd.DataFrame) -> float:
    """Estimate the variance of a correlation by the jackknife over groups of rows."""
    names = pair["group"].unique()
    without = [_correlation(pair[pair["group"] != name]) for name in names]
    spread = np.asarray(without) - np.mean(without)
    return float((len(names) - 1) / len(names) * np.nansum(spread**2))


def _nearest(
    matrix: Float[np.ndarray, "domain domain"], least: float = 1e-6
) -> Float[np.ndarray, "domain domain"]:
    """Make a matrix positive semidefinite by raising negative eigenvalues, which it may
    have if correlations come from different rows.
    """
    values, vectors = np.linalg.eigh(matrix)
    raised = vectors @ np.diag(np.maximum(values, least)) @ vectors.T
    sizes = np.sqrt(np.diag(raised))
    return raised / np.outer(sizes, sizes)


def coupled(
    scores: Float[np.ndarray, "domain draw"],
    correlation: ErrorCorrelation,
    rng: np.random.Generator,
) -> np.ndarray:
    """Order each domain's draws so that their scores have a Gaussian copula of this
    correlation (Iman and Conover 1982); shape (domain, draw), indices of draws.

    Parameters
    ----------
    scores
        The forecast under each draw, shape (domain, draw), with domains in the
        correlation's order.
    """
    draws = scores.shape[1]
    root = np.linalg.cholesky(correlation.matrix + 1e-9 * np.eye(len(scores)))
    normal = root @ rng.standard_normal((len(scores), draws))
    ranks = np.argsort(np.argsort(normal, axis=1), axis=1)
    return np.take_along_axis(np.argsort(scores, axis=1, kind="stable"), ranks, axis=1)
