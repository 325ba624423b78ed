"""How errors of forecasts of several domains are correlated, and draws that are so.

Domains are fitted one by one, so their draws know nothing of each other. Their errors
are not independent: what a run has too little of one domain it has too much of
another. Of regressions on the same rows, errors of forecasts, parameters and noise
together, are correlated as the residuals are (Zellner 1962, seemingly unrelated
regressions): so the correlation of residuals at rows measured in both domains is what
whole draws are paired by, without a change of any domain's own forecast (Iman and
Conover 1982).
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

if TYPE_CHECKING:
    from jaxtyping import Float

# columns that tell whether rows of two domains are of one measured model
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
    rows, groups
        Rows that are measured in two domains, the least of any pair, and of how many
        checkpoints (else runs) they are; 0 of a correlation that was given.
    atpp, replay
        Middle of those rows, tokens per parameter and replay: where draws are paired.
    """

    names: tuple[str, ...]
    matrix: Float[np.ndarray, "domain domain"]
    rows: int = 0
    groups: int = 0
    atpp: float = 10.0
    replay: float = 0.25

    @property
    def is_none(self) -> bool:
        """Whether all are independent."""
        return bool(np.allclose(self.matrix, np.eye(len(self.names))))

    def sentence(self) -> str:
        """Say it in words: of two domains the number, of more the ends."""
        away = self.matrix[np.triu_indices(len(self.names), 1)]
        size = f"{away[0]:+.2f}"
        if len(away) > 1:
            size = f"{away.min():+.2f} to {away.max():+.2f}"
        basis = "as given"
        if self.rows:
            basis = f"residuals at {self.rows} common rows of {self.groups} checkpoints"
        return f"errors of {', '.join(self.names)} are correlated by {size} ({basis})"


def error_correlation(
    posteriors: Mapping[str, Posterior], correlation: float | None = None
) -> ErrorCorrelation | None:
    """Estimate the correlation of the errors of several domains' forecasts, from
    residuals at rows that are measured in each pair of them; None where nothing says it.

    It is shrunk towards none by how well it is known: by the jackknife over checkpoints
    (else runs, else rows), with one intensity for all pairs (Schaefer and Strimmer
    2005), so that the matrix stays one of correlations.

    Parameters
    ----------
    posteriors
        By domain; those without a table are independent of the others.
    given
        A correlation to take instead, of two domains; 0, of any number, for independent
        ones.

    Raises
    ------
    PlanError
        The given one is none, or of more than two domains.
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
        groups=least["group"].nunique(),
        atpp=10.0 if middle is None else float(np.exp(middle)),
        replay=float(least["replay"].mean()) if "replay" in least else 0.25,
    )
    return None if result.is_none else result


def _given(names: tuple[str, ...], correlation: float) -> ErrorCorrelation | None:
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
    """Measured log loss less the law's mean, a row for each model that was measured;
    None of a posterior without a table.
    """
    runs = table_of(posterior)
    if runs is None or "loss" not in runs:
        return None
    try:
        draws = log_losses(all_draws(posterior.pieces()), runs, "the fitted table")
    except BayeslawError:  # of a table that lacks what a chain forecasts
        return None
    keys = [column for column in KEYS if column in runs]
    table = runs[keys].astype(float).fillna(-1.0)
    table["group"] = _groups(runs)
    table["residual"] = np.log(runs["loss"].to_numpy(float)) - draws.mean(axis=0)
    # repeats that no column tells apart are one row
    return table.groupby(keys, as_index=False).agg(
        {"group": "first", "residual": "mean"}
    )


def _groups(runs: pd.DataFrame) -> list[str]:
    """Label rows whose errors may be alike: by checkpoint, else by run, else alone."""
    for kind in ("checkpoint", "run"):
        names = labels(kind, runs)
        if names is not None and 3 <= names.nunique() < len(runs):
            return list(map(str, names))
    return [str(row) for row in range(len(runs))]


def _common(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame | None:
    """Rows that both have, with both residuals; None of fewer than four."""
    keys = [column for column in KEYS if column in left and column in right]
    if not keys:
        return None
    pair = left.merge(right.drop(columns="group"), on=keys, suffixes=("", "_other"))
    varies = (
        len(pair) >= 4 and pair["residual"].std() * pair["residual_other"].std() > 0
    )
    return pair if varies else None


def _correlation(pair: pd.DataFrame) -> float:
    return float(np.corrcoef(pair["residual"], pair["residual_other"])[0, 1])


def _jackknife(pair: pd.DataFrame) -> float:
    """Variance of a correlation by the jackknife over groups of rows."""
    names = pair["group"].unique()
    without = [_correlation(pair[pair["group"] != name]) for name in names]
    spread = np.asarray(without) - np.mean(without)
    return float((len(names) - 1) / len(names) * np.nansum(spread**2))


def _nearest(
    matrix: Float[np.ndarray, "domain domain"], least: float = 1e-6
) -> Float[np.ndarray, "domain domain"]:
    """The matrix with its negative eigenvalues raised, which correlations of different
    rows may have.
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
        What is forecast under each draw, shape (domain, draw), domains as the
        correlation names them.
    """
    draws = scores.shape[1]
    root = np.linalg.cholesky(correlation.matrix + 1e-9 * np.eye(len(scores)))
    normal = root @ rng.standard_normal((len(scores), draws))
    ranks = np.argsort(np.argsort(normal, axis=1), axis=1)
    return np.take_along_axis(np.argsort(scores, axis=1, kind="stable"), ranks, axis=1)
