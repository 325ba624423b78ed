"""What a posterior offers downstream: draws of the log loss at any table of runs. Nothing else is known about laws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import jax
import numpy as np
import pandas as pd
from jax import Array

Draw = Mapping[str, Array]


@dataclass(frozen=True)
class Piece:
    """Draws that share one formula: all of a `Fit`, or the share of an `Average` that fell to one law.

    Parameters
    ----------
    log_loss
        ``log_loss(draw, covariates)``: the law's log loss of one draw at each run, shape (run,); pure, so that it
        can be jitted, differentiated and mapped over draws.
    values
        Leaves of shape (draw, ...), by name; a draw is one slice of them. ``sigma`` and ``dof`` are the scale and
        degrees of freedom of a new run's Student-t noise on log loss.
    covariates
        Columns that ``log_loss`` reads.
    """

    log_loss: Callable[[Draw, Mapping[str, Array]], Array]
    values: Mapping[str, np.ndarray]
    covariates: tuple[str, ...]

    @property
    def draws(self) -> int:
        return len(next(iter(self.values.values())))


def new_run_scale(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Scale of a new run's error, effects of a new checkpoint or curve included, shape (draw,)."""
    return np.sqrt(sum(values[n] ** 2 for n in ("sigma", "tau_checkpoint", "tau_run") if n in values))


@lru_cache(maxsize=64)
def over_draws(log_loss: Callable) -> Callable:
    """Compiled map over draws of a piece's log loss at a table, shape (draw, run)."""
    return jax.jit(jax.vmap(log_loss, in_axes=(0, None)))


class Posterior(Protocol):
    """A `Fit` or an `Average`."""

    @property
    def name(self) -> str:
        """Name of the law, or of the average."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for everything that makes this posterior less than trustworthy (failed diagnostics, ...)."""
        ...

    def pieces(self) -> tuple[Piece, ...]:
        """The posterior's draws, grouped by formula."""
        ...

    def log_loss(self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0) -> np.ndarray:
        """Draws of the log loss, shape (draw, run): of the law, or with ``noise`` of a new run."""
        ...
