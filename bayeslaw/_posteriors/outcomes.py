"""Simulate outcomes of new runs under the draws of a posterior: log losses, the noise
around them, and errors that rows of one run share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import PlanError, RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._inference.noise import GAUSSIAN, RunNoise, log_student
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._posteriors.draws import Draws
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.runs import NUMERIC

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Correlation length of the error along a run in e-folds, if none was learned: the prior
# median.
RUN_LENGTH = 0.5
SURE = 1e-6  # error scale of a posterior that has no error
BATCHES = 10  # batches of draws, for the Monte Carlo error of gains


def _count(parts: Sequence[Draws]) -> int:
    return sum(len(part.rows) for part in parts)


def log_losses(
    parts: Sequence[Draws], table: pd.DataFrame, what: str
) -> Float[np.ndarray, "draw row"]:
    """Compute the law's log loss at each row of a table, shape (draw, row), or raise a
    `RunTableError` if it lacks a column that a law reads, or a number in it. ``what``
    names the table.
    """
    log_loss = np.empty((_count(parts), len(table)))
    for part in parts:
        names = part.piece.columns_in(table)
        columns = {name: _column(table, name, what) for name in names}
        log_loss[part.rows] = part.piece.at(columns)
    bad = ~np.isfinite(log_loss).all(axis=0)
    if bad.any():
        row = table.index[np.flatnonzero(bad)[0]]
        raise RunTableError(
            f"{what}, row {row}: the law has no finite loss there; leave the row out"
        )
    return log_loss


def check_readable(table: pd.DataFrame, names: Iterable[str], what: str) -> None:
    """Refuse a table that lacks columns or numbers, before it is evaluated."""
    for name in names:
        _column(table, name, what)


def check_covariates(
    covariates: Any, read: Collection[str], set_elsewhere: Mapping[str, str]
) -> None:
    """Refuse covariates that other arguments set, or that no law reads; most of the
    latter have a misspelt name.

    Parameters
    ----------
    read
        Columns that the laws read.
    set_elsewhere
        Columns that the question sets by other arguments, and how.
    """
    if not isinstance(covariates, Mapping):
        raise PlanError(
            f"covariates are by column, loss_before=2.3; got {covariates!r}"
        )
    for column in covariates:
        if column in set_elsewhere:
            raise PlanError(
                f"covariates cannot set {column!r}: {set_elsewhere[column]}"
            )
        if column not in read:
            raise PlanError(
                f"no law reads the covariate {column!r}; "
                f"they read {', '.join(sorted(read))}"
            )


def error_sizes(
    parts: Sequence[Draws], table: pd.DataFrame, what: str
) -> Float[np.ndarray, "draw row"]:
    """Compute the scale of each row's error relative to the longest training runs, shape
    (draw, row); raises as `log_losses` does.
    """
    sizes = np.empty((_count(parts), len(table)))
    for part in parts:
        names = part.piece.columns_in(table)
        columns = {name: _column(table, name, what) for name in names}
        sizes[part.rows] = part.piece.error_size(columns)
    return sizes


def _column(table: pd.DataFrame, name: str, what: str) -> Float[np.ndarray, " row"]:
    """Convert a column to numbers, shape (row,), or raise an error that names the row."""
    why = f" ({NUMERIC.get(name, 'covariate')}), which the law reads"
    check_columns(table, [name], why, what)
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    if not np.isfinite(values).all():
        first, how = table[~np.isfinite(values)].iloc[0], ""
        of_checkpoint = name in (LOSS_BEFORE, SOURCE_LOSS_BEFORE)
        if of_checkpoint and first.get("checkpoint_cost", 0) > 0:
            at = [f"{c} {format_count(first[c])}" for c in ("N", "ptpp") if c in first]
            how = (
                f"; its checkpoint ({', '.join(at)}) does not exist yet: offer "
                "checkpoints that do, give its loss in the table, or that of six other "
                "checkpoints, from which `bayeslaw anchors --offer` forecasts it"
            )
        raise RunTableError(
            f"{what}, row {first.name}, column {name!r}: empty or not a number{how}"
        )
    return values


def batches(parts: Sequence[Draws]) -> Int[np.ndarray, " draw"]:
    """Assign each draw to a batch, shape (draw,)."""
    batch = np.empty(_count(parts), int)
    for part in parts:
        size = len(part.rows)
        place = np.arange(size)
        batch[part.rows] = place * BATCHES // size
    return batch


def noise_of(
    parts: Sequence[Draws],
    run_length: float | None = None,
    *,
    settings_apart: bool = False,
) -> RunNoise:
    """Compute the error of a run by draw. The leaf ``sigma`` is the total error of a
    new run; its parts ``tau_model``, ``tau_checkpoint`` and ``tau_run`` are
    shared.

    ``run_length`` replaces the posterior's length, or `RUN_LENGTH` if it has none. The
    effect of a setting counts as part of a row's own error, unless ``settings_apart``.
    """
    # a new checkpoint is of a new run of pre-training
    model = _leaf(parts, "tau_model", 0.0)
    checkpoint = np.hypot(model, _leaf(parts, "tau_checkpoint", 0.0))
    run = np.abs(_leaf(parts, "tau_run", 0.0))
    scale = _leaf(parts, "sigma", SURE)
    setting = _leaf(parts, "tau_setting", 0.0) * settings_apart
    shared = checkpoint**2 + run**2 + setting**2
    own_scale = np.sqrt(np.maximum(scale**2 - shared, SURE**2))
    if run_length is None:
        length = _leaf(parts, "run_length", RUN_LENGTH)
    else:
        length = np.full(len(own_scale), float(run_length))
    dof = _leaf(parts, "dof", GAUSSIAN)
    return RunNoise(
        own_scale,
        dof,
        tau_checkpoint=checkpoint,
        tau_run=run,
        tau_setting=setting,
        run_length=length,
    )


def _leaf(
    parts: Sequence[Draws], name: str, otherwise: float
) -> Float[np.ndarray, " draw"]:
    """Collect one leaf of every draw, with ``otherwise`` for formulas without it."""
    leaf = np.full(_count(parts), otherwise)
    for part in parts:
        if name in part.piece.values:
            leaf[part.rows] = np.asarray(part.piece.values[name], float)
    return leaf


class RowErrors(NamedTuple):
    """The own errors of rows: a first-order autoregression along each run, with its
    rows in order.

    ``carried``: correlation with the previous row of the run, shape (draw,
    measurement); ``scale``: scale of the innovation of each row, of the same shape;
    ``dof``: degrees of freedom of its Student-t, shape (draw,).
    """

    carried: Float[np.ndarray, "draw measurement"]
    scale: Float[np.ndarray, "draw measurement"]
    dof: Float[np.ndarray, " draw"]

    @classmethod
    def along_runs(
        cls,
        noise: RunNoise,
        gap: Float[np.ndarray, " measurement"],
        size: Float[np.ndarray, "*#draw measurement"],
    ) -> RowErrors:
        """Build the errors of rows from their distances in e-folds to the previous row
        of the run (infinite for the first). ``size``: scale of a row's error over the
        noise's, shape (measurement,) or (draw, measurement).
        """
        length = noise.run_length[:, None]
        decay = np.exp(-gap / np.where(length > 0, length, 1.0))
        carried = np.where(length > 0, decay, 0.0)
        # With this scale, every point along a run has the variance of a single point.
        scale = np.sqrt(1 - carried**2) * noise.sigma[:, None] * size
        return cls(carried, scale, noise.dof)

    def draw(
        self, rng: np.random.Generator, truth: Any = slice(None)
    ) -> Float[np.ndarray, "*draw measurement"]:
        """Simulate errors under every draw, or under the draw ``truth``."""
        carried, dof = self.carried[truth], self.dof[truth]
        error = self.scale[truth] * rng.standard_t(dof[..., None], carried.shape)
        # in the order of the run, because each row carries a part of the previous error
        for j in np.flatnonzero(np.atleast_2d(carried).any(axis=0)):
            error[..., j] += carried[..., j] * error[..., j - 1]
        return error

    def log_density(
        self, error: Float[np.ndarray, "draw measurement"]
    ) -> Float[np.ndarray, " draw"]:
        """Compute the joint log density of all errors of each draw."""
        # The first row of a run carries nothing, so the value that `roll` moves there
        # is not used.
        before = np.roll(error, 1, axis=1)
        standard = (error - self.carried * before) / self.scale
        log_p = log_student(standard, self.dof[:, None]) - np.log(self.scale)
        return log_p.sum(axis=1)
