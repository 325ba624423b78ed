"""Drift: what a law and its misfit may be off by beyond the training runs, all runs alike.

Inside the range of the training runs there is none. Beyond, log loss is off by a drift
times the distance in e-folds, one drift along each axis and side, each normal with the
law's own scale tau. In the spirit of Kennedy and O'Hagan 2001.

tau is learned from the law's own failures: its forecasts, misfit included, of stages
left out (`folds`).
Its prior is of what the misfit leaves, whose walks widen beyond the runs by themselves:
on published tables of N and D intervals were nearest to what they state with a median of
.0005 to .001 an e-fold, and on tiny models any below .002 did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from bayeslaw._inference.discrepancy.axes import COUNT_UNIT, position
from bayeslaw._law.priors import lognormal

if TYPE_CHECKING:
    from jaxtyping import Float

    from bayeslaw._base.arrays import AnyArray

TAU = lognormal(
    0.0007, 1.0, "left beside the misfit on public tables (docs/discrepancy.md)"
)
GRID = np.geomspace(1e-4, 0.2, 60)  # of tau
# e-folds: a budget of nothing is not infinitely far from a small one
FARTHEST_BELOW = 3.0
OUTLIER = 5.0  # robust sds of a stage's residuals from their median

# Axis: powers of the columns whose product it is, in e-folds (or what moves a loss about
# as much: .45 of the log of the target's share, as of the misfit; a tenth of a loss).
_POWERS = {
    "N": {"N": 1.0},
    "D": {"D": 1.0},
    "D/N": {"D": 1.0, "N": -1.0},
    "N*D": {"D": 1.0, "N": 1.0},
    "ptpp": {"ptpp": 1.0},
    "S1_pt": {"S1_pt": 1.0},
    "S1_cpt": {"S1_cpt": 1.0},
}
_LOSS = ("loss_before", "source_loss_before", "source_loss", "target_loss")
SHARE, LOSS_UNIT = "1 - replay", 0.1


class Range(NamedTuple):
    """Ends of the training runs along each axis; plain tuples, so that it can key
    compiled programs.
    """

    axes: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def positions(
    covariates: Mapping[str, Any], xp: ModuleType = jnp
) -> dict[str, Float[AnyArray, "*run"]]:
    """Where each run lies along the axes that its covariates make up, each of shape
    (run,).
    """
    logs = {
        column: xp.log(xp.maximum(xp.asarray(values), 1e-12))
        for column, values in covariates.items()
        if column != "replay"
    }
    at: dict[str, Any] = {
        axis: sum(
            (power * logs[column] for column, power in powers.items()), xp.zeros(())
        )
        for axis, powers in _POWERS.items()
        if set(powers) <= set(logs)
    }
    at |= {column: logs[column] / LOSS_UNIT for column in _LOSS if column in logs}
    if "replay" in covariates:
        # of the misfit's units two make an e-fold; the less target data, the farther
        at[SHARE] = -COUNT_UNIT * position("replay", covariates, xp)
    return at


def of_saved(known: Mapping[str, Any]) -> Range:
    """A range as it was saved; along replay itself, as it was once, with ends in quarters
    of it.
    """
    axes = known["axes"]

    def ends(of_axes: Sequence[float]) -> tuple[float, ...]:
        pairs = zip(axes, of_axes, strict=True)
        return tuple(_of_quarters(x) if axis == "replay" else x for axis, x in pairs)

    named = tuple(SHARE if axis == "replay" else axis for axis in axes)
    return Range(named, ends(known["low"]), ends(known["high"]))


def _of_quarters(end: float) -> float:
    at = positions({"replay": np.array([end / 4])}, np)
    return float(at[SHARE][0])


def training_range(covariates: Mapping[str, Float[np.ndarray, " run"]]) -> Range:
    """The range of the training runs."""
    at = positions(covariates, np)
    return Range(
        tuple(at),
        tuple(float(v.min()) for v in at.values()),
        tuple(float(v.max()) for v in at.values()),
    )


def distances(
    covariates: Mapping[str, Any], known: Range, xp: ModuleType = jnp
) -> Float[AnyArray, "*run side"]:
    """Distance of each run beyond the range, above and below along each axis, shape
    (run, 2 axes).
    """
    at, sides = positions(covariates, xp), []
    for axis, low, high in zip(known.axes, known.low, known.high, strict=True):
        sides += [
            xp.maximum(at[axis] - high, 0.0),
            xp.clip(low - at[axis], 0.0, FARTHEST_BELOW),
        ]
    return xp.stack(xp.broadcast_arrays(*sides), axis=-1)


class Miss(NamedTuple):
    """Held-out runs of a fold: residuals of log loss, covariance of the forecast with a
    new run's noise, distances.
    """

    residual: Float[np.ndarray, " run"]
    covariance: Float[np.ndarray, "run run"]
    distance: Float[np.ndarray, "run side"]


def tau_posterior(misses: Sequence[Miss]) -> Float[np.ndarray, " tau"]:
    """Probability of each tau of `GRID` given the law's forecasts of the stages left
    out.
    """
    log_p = -0.5 * (np.log(GRID / TAU.args[0]) / TAU.args[1]) ** 2
    for miss in misses:
        drift = miss.distance @ miss.distance.T
        residual = _without_outliers(miss.residual)
        for i, tau in enumerate(GRID):
            log_p[i] += _log_normal(residual, miss.covariance + tau**2 * drift)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def _without_outliers(residual: Float[np.ndarray, " run"]) -> Float[np.ndarray, " run"]:
    """Residuals of a stage, single gross ones drawn in: a drift moves them together."""
    middle = np.median(residual)
    away = np.abs(residual - middle)
    # the sd of a normal from the median of its absolute deviations
    spread = 1.4826 * np.median(away)
    reach = OUTLIER * spread
    return np.clip(residual, middle - reach, middle + reach)


def _log_normal(
    x: Float[np.ndarray, " run"], covariance: Float[np.ndarray, "run run"]
) -> float:
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(x)))
    whitened = np.linalg.solve(root, x)
    log_size = np.sum(np.log(np.diag(root)))
    square = np.sum(whitened**2)
    return float(-0.5 * square - log_size)


def draw_drift(
    probability: Float[np.ndarray, " tau"],
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> Float[np.ndarray, "draw side"]:
    """Draws of the drifts, shape (draw, 2 axes): a tau each, normal drifts of that
    scale.
    """
    draws, _ = shape
    tau = rng.choice(GRID, size=(draws, 1), p=probability)
    standard = rng.standard_normal(shape)
    return tau * standard
