"""Measure how far the runs narrowed each parameter of a law from its prior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._law.law import Law
from bayeslaw._law.priors import Prior

if TYPE_CHECKING:
    from jaxtyping import Float


def narrowed(
    law: Law,
    draws: Mapping[str, Float[np.ndarray, " draw"]],
    few: float = 1 / 3,
    most: float = 2 / 3,
) -> pd.DataFrame:
    """Compare the posterior's 90% interval of each sampled value with the prior's.

    Parameters
    ----------
    draws
        Draws by site, shape (draw,) each: contributions in nats, and exponents.
    few, most
        Bounds of ``narrowed`` for ``whose``: up to ``few`` it is ``prior``, from
        ``most`` on ``runs``, and in between ``both``.

    Returns
    -------
    DataFrame
        By site: ``prior_low``, ``prior_high``, ``low``, ``high``, ``narrowed`` (the
        share of the prior's interval that the runs took away, on a logarithmic scale
        for positive values; never below 0), ``whose``, and the prior's ``source``.
    """
    rows = {}
    for site, prior in law.free_priors.items():
        before = np.array([prior.quantile(0.05), prior.quantile(0.95)])
        after = np.quantile(draws[site], [0.05, 0.95])
        share = max(1 - _length(after, prior) / _length(before, prior), 0.0)
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


def _length(ends: Float[np.ndarray, " 2"], prior: Prior) -> float:
    """Measure the length of an interval, on a logarithmic scale for positive values."""
    low, high = np.log(ends) if prior.support == "positive" else ends
    return float(high - low)
