"""Second batches whose posterior is known: lines in log tokens with normal draws, whose update is conjugate; and fits of a
law to a table that grows.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._posteriors.posterior import Piece

SIGMA, TAU = 0.004, 0.006  # of a row, and of what rows of a run share
PRIOR_MEAN, PRIOR_SD = np.array([0.7, -0.05]), np.array([0.02, 0.01])


def line(draw, covariates):
    return draw["a"] + draw["b"] * covariates["D"]


@dataclass(frozen=True, eq=False)
class Lines:
    """Normal draws of a level and a slope of the log loss in D (a number, not tokens)."""

    values: dict
    name: str = "lines"
    warnings: tuple[str, ...] = ()

    def pieces(self):
        return (Piece(line, self.values, ("D",)),)


def lines(draws=4000, seed=0, tau=0.0) -> Lines:
    rng = np.random.default_rng(seed)
    a, b = (PRIOR_MEAN + PRIOR_SD * rng.standard_normal((draws, 2))).T
    values = {"a": a, "b": b, "sigma": np.full(draws, np.hypot(SIGMA, tau))}
    return Lines(values | ({"tau_run": np.full(draws, tau)} if tau else {}))


def batch(rng, truth, runs=3, points=4, tau=0.0) -> pd.DataFrame:
    """Rows of a line, whose runs lie off it together."""
    D = np.tile(np.linspace(0.5, 3.0, points), runs)
    run = np.repeat(np.arange(runs), points)
    log_loss = truth[0] + truth[1] * D + SIGMA * rng.standard_normal(len(D))
    log_loss += tau * rng.standard_normal(runs)[run]
    return pd.DataFrame({"run": run.astype(str), "D": D, "loss": np.exp(log_loss)})


def conjugate(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of level and slope once these rows are known, in closed form."""
    design = np.column_stack([np.ones(len(rows)), rows["D"]])
    precision = np.diag(PRIOR_SD**-2) + design.T @ design / SIGMA**2
    covariance = np.linalg.inv(precision)
    seen = PRIOR_MEAN / PRIOR_SD**2 + design.T @ np.log(rows["loss"]) / SIGMA**2
    return covariance @ seen, covariance


@cache
def grown() -> pd.DataFrame:
    """Runs of a law, of which those of the largest model are the second batch."""
    runs = bayeslaw.simulate("chinchilla", seed=3).assign(domain="target")
    runs = runs[runs["replay"] == 0.1]
    return runs.drop(columns=[c for c in ("checkpoint",) if c in runs])


def first_batch() -> pd.DataFrame:
    runs = grown()
    return runs[runs["N"] < runs["N"].max()]


def with_second(factor=1.0) -> pd.DataFrame:
    """All runs, the losses of the second batch times a factor."""
    runs = grown()
    new = runs["N"] == runs["N"].max()
    return runs.assign(loss=runs["loss"].where(~new, factor * runs["loss"]))


@cache
def old_fit():
    return bayeslaw.fit(first_batch(), "chinchilla", preview=True, seed=1)
