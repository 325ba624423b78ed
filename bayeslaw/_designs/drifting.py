"""Limit what runs beyond the data teach about a posterior's drift.

In each draw of a posterior the drift beyond the runs is a straight line, so one run
beyond the data would determine the drift at any distance. A refit learns less: after
the run is measured, the law drifts from that run on. With a run at distance c, the
drift at a goal at distance g has scale tau (g - c). So in the design the drift is a
process w of the distance. It has the variance of the line, and after a run at c the
variance of a refit,

    Var w(g) = tau^2 g^2,    Var(w(g) | w(c)) = tau^2 (g - c)^2    for c <= g,

which has the covariance tau^2 c^1.5 (2 g - c)^.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.streams import Stream, generator
from bayeslaw._posteriors.draws import Draws
from bayeslaw._posteriors.posterior import DRIFT, LogLoss

if TYPE_CHECKING:
    from jaxtyping import Float

KNOTS = 33  # distances at which a drift is drawn


def less_drift(
    parts: Sequence[Draws], candidates: pd.DataFrame, goal: pd.DataFrame, seed: int = 11
) -> Float[np.ndarray, "draw candidate"]:
    """Compute terms to add to the log losses of candidates, shape (draw, candidate).
    With them, candidates tell no more about the drift at the goal than a refit would
    learn.
    """
    counts = [len(part.rows) for part in parts]
    added = np.zeros((sum(counts), len(candidates)))
    rng = generator(seed, Stream.CANDIDATES_DRIFT)
    for part in parts:
        formula = part.piece.log_loss
        if not isinstance(formula, LogLoss) or formula.training_range is None:
            continue
        drifts = np.asarray(part.piece.values[DRIFT])
        names = formula.law.covariates
        offered, wanted = (
            formula.beyond({c: table[c].to_numpy(float) for c in names})
            for table in (candidates, goal)
        )
        farthest = wanted.max(axis=0)
        for side in np.flatnonzero((farthest > 0) & (offered > 0).any(axis=0)):
            far, at = offered[:, side], farthest[side]
            line = drifts[:, side] - drifts[:, side].mean()  # its mean is not learned
            tau = np.sqrt(np.mean(line**2))  # scale of the drift to this side
            # Draw the process at knots, given that each draw equals its line at the
            # goal: condition normals on the value at the goal, which is at * line.
            knots = np.linspace(0.0, far.max(), KNOTS)
            share = covariance(knots, np.full(KNOTS, at)) / at
            conditional = covariance(knots[:, None], knots) - np.outer(share, share)
            # a small share of the largest variance makes the factorisation possible
            jitter = 1e-9 * far.max() ** 2
            root = np.linalg.cholesky(conditional + jitter * np.eye(KNOTS))
            standard = rng.standard_normal((len(line), KNOTS))
            at_knots = line[:, None] * share + tau * (standard @ root.T)
            # the process is linear between knots
            weights = [np.interp(far, knots, unit) for unit in np.eye(KNOTS)]
            process = at_knots @ np.stack(weights)
            added[part.rows] += process - line[:, None] * far
    return added


def covariance(
    a: Float[np.ndarray, "*#pair"], b: Float[np.ndarray, "*#pair"]
) -> Float[np.ndarray, "*pair"]:
    """Compute the covariance of the process at pairs of distances, for a scale of 1."""
    near, far = np.minimum(a, b), np.maximum(a, b)
    return near**1.5 * np.sqrt(2 * far - near)
