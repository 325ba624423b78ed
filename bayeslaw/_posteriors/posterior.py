"""Define the protocol of posteriors: draws of the log loss at any table of runs.
Forecasts, plans and designs read laws only through it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

import jax
import numpy as np
import pandas as pd
from jax import Array
from jax.tree_util import Partial

from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import compiled
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.discrepancy.drift import Range, distances
from bayeslaw._inference.discrepancy.process import Process
from bayeslaw._inference.noise import NOISE, RunNoise
from bayeslaw._law.law import Law, log_loss
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from bayeslaw._base.arrays import AnyArray

Draw = Mapping[str, Array]
# names of leaves: the misfit's weights, and log loss per unit of distance by side
WEIGHTS, DRIFT = "misfit", "drift"


@dataclass(frozen=True)
class Piece:
    """Draws that share one formula: those of a `Fit`, or of one law in an `Average`.

    Parameters
    ----------
    log_loss
        Pure function ``log_loss(draw, covariates)`` that returns the law's log loss for
        one draw at each run, shape (run,).
    values
        Leaves of shape (draw, ...), by name; index i of every leaf is draw i. ``sigma``
        and ``dof`` are the scale and degrees of freedom of a new run's Student-t noise
        on log loss.
    covariates
        Columns that ``log_loss`` reads.
    """

    log_loss: Callable[
        [Draw, Mapping[str, Float[AnyArray, " run"]]], Float[Array, " run"]
    ]
    values: Mapping[str, Float[np.ndarray, "draw ..."]]
    covariates: tuple[str, ...]

    @property
    def draws(self) -> int:
        leaf = next(iter(self.values.values()))
        return len(leaf)

    @property
    def noise(self) -> RunNoise:
        """Error of a new run."""
        return RunNoise.of_piece(self.values)

    def at(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, "draw run"]:
        """Evaluate the law's log loss at runs with these columns, shape (draw, run)."""
        log_losses = over_draws(self.log_loss)
        return np.asarray(log_losses(dict(self.values), covariates))

    def error_size(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, " run"] | float:
        """Scale of a run's error relative to `noise`, shape (run,)."""
        if not isinstance(self.log_loss, LogLoss):
            return 1.0
        return self.log_loss.error_size(covariates)

    def take(self, index: Int[np.ndarray, " taken"]) -> Piece:
        """Select the draws ``index``, shape (taken,); repeats are allowed."""
        values = {name: np.asarray(leaf)[index] for name, leaf in self.values.items()}
        return replace(self, values=values)


@dataclass(frozen=True)
class LogLoss:
    """A law's log loss for one draw, plus misfit and drift.

    Equal records share a compiled program.

    Parameters
    ----------
    law
        The law, which reads the leaves with the names of its priors.
    process
        Basis of the misfit, with weights in the leaf `WEIGHTS` of shape (function,).
        None: no misfit.
    training_range
        Range of the training runs. Outside it the leaf `DRIFT`, shape (side,), times
        the distance is added. None: no drift.
    """

    law: Law
    process: Process | None = None
    training_range: Range | None = None

    def __call__(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[Array, " run"]:
        """Evaluate the log loss at each run, shape (run,)."""
        columns = {c: covariates[c] for c in self.law.covariates}
        value = log_loss(self.law, columns, draw)
        if self.process is not None:
            value = value + self.process.features(columns) @ draw[WEIGHTS]
        if self.training_range is not None:
            value = value + distances(columns, self.training_range) @ draw[DRIFT]
        return value

    def beyond(
        self, covariates: Mapping[str, Float[np.ndarray, " run"]]
    ) -> Float[np.ndarray, "run side"]:
        """Compute how far each run lies beyond the training runs, to each side, shape
        (run, side), for a law that drifts.
        """
        assert self.training_range is not None
        columns = {c: covariates[c] for c in self.law.covariates}
        return np.asarray(distances(columns, self.training_range, np))

    def error_size(
        self, covariates: Mapping[str, Float[AnyArray, " run"]]
    ) -> Float[np.ndarray, " run"]:
        """Scale of a run's error relative to the longest training run, shape (run,)."""
        if self.process is None or self.process.fading is None:
            columns = [np.shape(covariates[c]) for c in self.law.covariates]
            return np.ones(np.broadcast_shapes(*columns))
        return self.process.fading.sizes(covariates)

    def piece(self, draws: Mapping[str, Float[np.ndarray, "draw ..."]]) -> Piece:
        """Build the piece of a law's draws, by name. Its ``sigma`` is the total scale
        of a new run's error: effects of checkpoint and run included.
        """
        law = self.law
        names = {*law.priors, *NOISE, WEIGHTS, DRIFT}
        values = {name: leaf for name, leaf in draws.items() if name in names}
        noise = RunNoise.of(draws)
        values["sigma"] = noise.scale
        return Piece(self, values, law.covariates)

    def along_tokens(
        self, draw: Draw, covariates: Mapping[str, Float[AnyArray, ""]]
    ) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
        """Return one draw's log loss as a function of one run's tokens D, shape ().

        The other covariates, each of shape (), are fixed. Their part of the misfit is
        computed once.
        """
        law_and_drift = LogLoss(self.law, training_range=self.training_range)
        values = {name: leaf for name, leaf in draw.items() if name != WEIGHTS}
        beside_misfit = Partial(partial(_at_tokens, law_and_drift), values, covariates)
        if self.process is None:
            return beside_misfit
        columns = {c: covariates[c] for c in self.law.covariates if c in covariates}
        misfit = self.process.along("D", draw[WEIGHTS], columns)
        return Partial(_sum_at, beside_misfit, misfit)


def along_tokens(
    log_loss: Callable, draw: Draw, covariates: Mapping[str, Float[AnyArray, ""]]
) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
    """Return any piece's log loss of one draw as a function of tokens D, shape ().

    The other covariates, each of shape (), are fixed. The function is a pytree, so
    `jax.vmap` over draws can return it.
    """
    method = getattr(log_loss, "along_tokens", None)
    if method is not None:
        return method(draw, covariates)
    return Partial(partial(_at_tokens, log_loss), draw, covariates)


def _at_tokens(
    log_loss: Callable,
    draw: Draw,
    covariates: Mapping[str, Float[AnyArray, ""]],
    tokens: Float[Array, ""],
) -> Float[Array, ""]:
    """Evaluate a log loss at one run with these tokens, shape ()."""
    run = {**covariates, "D": tokens}
    return log_loss(draw, {name: column[None] for name, column in run.items()})[0]


def _sum_at(
    beside_misfit: Callable, misfit: Callable, tokens: Float[Array, ""]
) -> Float[Array, ""]:
    return beside_misfit(tokens) + misfit(tokens)


def over_draws(log_loss: Callable) -> Callable:
    """Compile a piece's log loss, mapped over draws, at a table: shape (draw, run)."""
    return partial(_over_draws, log_loss)


@compiled(static_argnums=0)
def _over_draws(
    log_loss: Callable,
    draws: Draw,
    covariates: Mapping[str, Float[AnyArray, " run"]],
) -> Float[Array, "draw run"]:
    """Map a log loss over draws at a table, shape (draw, run)."""
    return jax.vmap(log_loss, in_axes=(0, None))(draws, covariates)


def row_sds(
    runs: pd.DataFrame, log_loss: Float[np.ndarray, "draw run"]
) -> Float[np.ndarray, " run"]:
    """Convert the standard errors ``loss_sd`` of a table to sds of log loss, at the
    median of the draws, shape (run,); 0 if the table has none.
    """
    nats = np.exp(np.median(log_loss, axis=0))
    row_sd = fitting.sds_of_log_loss(runs, nats)
    return np.zeros(len(runs)) if row_sd is None else row_sd


def log_loss_at(
    law: Law, piece: Piece, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
) -> Float[np.ndarray, "draw run"]:
    """Draw a law's log loss at a table of runs, shape (draw, run): of the law, or with
    ``noise`` of a new run, if the draws have its scale.

    Raises
    ------
    RunTableError
        The table lacks a column the law reads.
    """
    runtime.start()
    log_loss = piece.at(fitting.covariates(law, runs))
    if not noise or "sigma" not in piece.values:
        return log_loss
    size = piece.noise.size_with(np.ones(len(runs)), row_sds(runs, log_loss))
    rng = generator(seed, Stream.NEW_RUN)
    return log_loss + size * piece.noise.draw(len(runs), rng)


class Posterior(Protocol):
    """A `Fit` or an `Average`."""

    @property
    def name(self) -> str:
        """Name of the law, or of the average."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for distrust, one line each (failed diagnostics, ...)."""
        ...

    def pieces(self) -> tuple[Piece, ...]:
        """Group the posterior's draws by formula."""
        ...

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the law's log loss, or with ``noise`` a new run's, shape (draw, run)."""
        ...


class KeptPosterior(Posterior, Protocol):
    """A posterior that keeps its training runs and can be saved to a file."""

    @property
    def runs(self) -> pd.DataFrame:
        """The training runs."""
        ...

    @property
    def seconds(self) -> float:
        """Duration of the fit."""
        ...

    def parameters(self, prob: float = 0.9) -> pd.DataFrame:
        """Summarize each parameter in the paper's units."""
        ...

    def parameter_draws(self) -> Mapping[str, Any]:
        """Collect draws of each parameter in the paper's units, each of shape (draw,)."""
        ...

    def draws(self) -> pd.DataFrame:
        """Tabulate draws of each parameter in the paper's units, a row for each draw."""
        ...

    def save(self, path: str | Path) -> Path:
        """Write the posterior to a NetCDF file."""
        ...


def columns_read(*posteriors: Posterior) -> list[str]:
    """List the columns that laws of posteriors read, each once."""
    pieces = [piece for posterior in posteriors for piece in posterior.pieces()]
    return list(dict.fromkeys(c for piece in pieces for c in piece.covariates))


def without_prefix(prefix: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values whose names begin with a prefix; remove the prefix."""
    return {
        name.removeprefix(prefix): leaf
        for name, leaf in leaves.items()
        if name.startswith(prefix)
    }


def is_prior_only(posterior: object) -> bool:
    """Tell whether a posterior is only a prior, without measured runs."""
    return getattr(posterior, "is_prior_only", False)


def is_kept(posterior: object) -> TypeGuard[KeptPosterior]:
    """Tell whether a posterior keeps its training runs, as fits and averages do."""
    return hasattr(posterior, "runs") and hasattr(posterior, "parameter_draws")
