"""Discrepancy: how far a law may be off beyond its training runs.

Inside the range of the training runs a law's error is what its noise and effects say. Beyond, its exponents may drift:
log loss is off by a drift times the distance in e-folds, one drift along each axis and side, each normal with the
law's own scale tau. In the spirit of Kennedy and O'Hagan 2001, with the model error where no run can see it.

tau is learned from the law's own failures: its forecasts of stages left out (`_folds`). Its prior: a separable law
fitted to published over-training runs (Gadre et al. 2024) up to 40 tokens per parameter is 2% low at 80 and 8% low at
640, which is 2.9% an e-fold; laws that suit their runs miss a stage 2.2 e-folds away by 2%, which is .9%.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslaw._priors import lognormal

TAU = lognormal(0.002, 1.2, "Gadre 2024: .029 where a law fails; .009 where it suits (tiny models)")
GRID = np.geomspace(1e-4, 0.2, 60)  # of tau
FARTHEST_BELOW = 3.0  # e-folds: a budget of nothing is not infinitely far from a small one

# axis: columns and the value in e-folds (or what moves a loss about as much: a quarter of replay, a tenth of a loss)
_LOG = {"N": ("N",), "D": ("D",), "D/N": ("D", "N"), "ptpp": ("ptpp",), "S1_pt": ("S1_pt",), "S1_cpt": ("S1_cpt",)}
_LOSS = ("loss_before", "source_loss_before", "source_loss", "target_loss")
REPLAY_UNIT, LOSS_UNIT = 0.25, 0.1


class Range(NamedTuple):
    """Ends of the training runs along each axis; plain tuples, so that it can key compiled programs."""

    axes: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def positions(covariates: Mapping[str, Any]) -> dict[str, Array]:
    """Where each run lies along the axes that its covariates make up, each of shape (run,)."""
    log = {c: jnp.log(jnp.maximum(jnp.asarray(v), 1e-12)) for c, v in covariates.items() if c != "replay"}
    found = {a: log[c[0]] - (log[c[1]] if len(c) > 1 else 0.0) for a, c in _LOG.items() if set(c) <= set(log)}
    found |= {c: log[c] / LOSS_UNIT for c in _LOSS if c in log}
    return found | ({"replay": jnp.asarray(covariates["replay"]) / REPLAY_UNIT} if "replay" in covariates else {})


def training_range(covariates: Mapping[str, np.ndarray]) -> Range:
    """The range of the training runs."""
    at = {a: np.asarray(v) for a, v in positions(covariates).items()}
    return Range(tuple(at), tuple(float(v.min()) for v in at.values()), tuple(float(v.max()) for v in at.values()))


def distances(covariates: Mapping[str, Any], known: Range) -> Array:
    """Distance of each run beyond the range, above and below along each axis, shape (run, 2 axes)."""
    at, sides = positions(covariates), []
    for axis, low, high in zip(known.axes, known.low, known.high, strict=True):
        sides += [jnp.maximum(at[axis] - high, 0.0), jnp.clip(low - at[axis], 0.0, FARTHEST_BELOW)]
    return jnp.stack(jnp.broadcast_arrays(*sides), axis=-1)


class Miss(NamedTuple):
    """Held-out runs of a fold: residuals of log loss, covariance of the forecast with a new run's noise, distances."""

    residual: np.ndarray
    covariance: np.ndarray
    distance: np.ndarray


def tau_posterior(misses: Sequence[Miss]) -> np.ndarray:
    """Probability of each tau of `GRID` given the law's forecasts of the stages left out."""
    log_p = -0.5 * (np.log(GRID / TAU.args[0]) / TAU.args[1]) ** 2
    for miss in misses:
        drift = miss.distance @ miss.distance.T
        for i, tau in enumerate(GRID):
            log_p[i] += _log_normal(miss.residual, miss.covariance + tau**2 * drift)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def _log_normal(x: np.ndarray, covariance: np.ndarray) -> float:
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(x)))
    return float(-0.5 * np.sum(np.linalg.solve(root, x) ** 2) - np.sum(np.log(np.diag(root))))


def draw_drift(probability: np.ndarray, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draws of the drifts, shape (draw, 2 axes): a tau each, normal drifts of that scale."""
    return rng.choice(GRID, size=(shape[0], 1), p=probability) * rng.standard_normal(shape)
