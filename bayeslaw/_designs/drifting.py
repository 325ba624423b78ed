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


def less_drift(
    parts: Sequence[Draws],
    candidates: pd.DataFrame,
    goal: pd.DataFrame,
    seed: int = 11,
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
            far = offered[:, side]
            line = drifts[:, side] - drifts[:, side].mean()  # its mean is not learned
            tau = np.sqrt(np.mean(line**2))  # scale of the drift to this side
            process = _given_the_line(far, farthest[side], line, tau, rng)
            added[part.rows] += process - line[:, None] * far
    return added


def covariance(
    a: Float[np.ndarray, "*#pair"], b: Float[np.ndarray, "*#pair"]
) -> Float[np.ndarray, "*pair"]:
    """Compute the covariance of the process at pairs of distances, for a scale of 1."""
    near, far = np.minimum(a, b), np.maximum(a, b)
    return near**1.5 * np.sqrt(2 * far - near)


def _given_the_line(
    far: Float[np.ndarray, " candidate"],
    goal: float | np.floating,
    line: Float[np.ndarray, " draw"],
    tau: float | np.floating,
    rng: np.random.Generator,
    count: int = 33,
) -> Float[np.ndarray, "draw candidate"]:
    """Draw the process at distances ``far``, shape (draw, candidate), given that each
    draw equals its line at the goal. The process is linear between ``count`` knots.
    """
    knots = np.linspace(0.0, far.max(), count)
    # Condition the normals on the value at the goal, which is goal * line.
    with_goal = covariance(knots, np.full(count, goal))
    share = with_goal / goal
    conditional = covariance(knots[:, None], knots) - np.outer(share, share)
    # a small share of the largest variance makes the Cholesky factorisation possible
    jitter = 1e-9 * far.max() ** 2
    root = np.linalg.cholesky(conditional + jitter * np.eye(count))
    standard = rng.standard_normal((len(line), count))
    at_knots = line[:, None] * share + tau * (standard @ root.T)
    return at_knots @ _interpolate_weights(knots, far)


def _interpolate_weights(
    knots: Float[np.ndarray, " knot"], far: Float[np.ndarray, " candidate"]
) -> Float[np.ndarray, "knot candidate"]:
    """Compute the weights of the knots in values between them, shape (knot, candidate)."""
    unit = np.eye(len(knots))
    return np.stack([np.interp(far, knots, row) for row in unit])
