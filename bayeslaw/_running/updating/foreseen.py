"""Forecast new rows by the old posterior: draws of the measurements, and the likelihood
of the measured losses under each draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.table import shared_error
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import RowErrors, error_sizes, log_losses, noise_of
from bayeslaw._posteriors.posterior import Posterior, columns_read, row_sds
from bayeslaw._tables.fitting import losses

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Foreseen:
    """Measured rows, and their distribution by the draws of a posterior."""

    rows: pd.DataFrame  # the rows, sorted so that points of one run follow each other
    y: Float[np.ndarray, " row"]  # measured log losses
    law: Float[np.ndarray, "draw row"]  # the law's log loss
    effects: Float[np.ndarray, "draw row"]  # effects of checkpoints, runs and settings
    errors: RowErrors  # the rows' own errors, correlated along a run

    @property
    def shared(self) -> Float[np.ndarray, "draw row"]:
        """Add the shared effects to the law, shape (draw, row)."""
        return self.law + self.effects

    @property
    def own_covariance(self) -> Float[np.ndarray, "row row"]:
        """Compute the covariance of the rows' own errors, which are correlated along a
        run; averaged over draws, shape (row, row).

        Errors are Student-t. The covariance is that of the normal errors which tell as
        much about the law (`RunNoise.learned_at`).
        """
        carried = self.errors.carried
        dof = self.errors.dof[:, None]
        squared = self.errors.scale**2 / (1 - carried**2) * (dof + 3) / (dof + 1)
        sd = np.sqrt(squared.mean(axis=0))
        step_correlation = carried.mean(axis=0)
        correlation = np.eye(len(sd))
        for j in range(1, len(sd)):
            # it is 0 at the first point of a run, so that runs are uncorrelated
            correlation[:j, j] = correlation[:j, j - 1] * step_correlation[j]
        correlation = correlation + np.triu(correlation, 1).T
        return sd[:, None] * correlation * sd

    def simulate(self, seed: int) -> Float[np.ndarray, "draw row"]:
        """Simulate measured log losses, one table for each draw; rows of one run or
        checkpoint share their effects.
        """
        rng = generator(seed, Stream.FORESEEN_ROWS)
        return self.shared + self.errors.draw_each(rng)

    def log_likelihood(
        self, picked: Bool[np.ndarray, " row"]
    ) -> Float[np.ndarray, " draw"]:
        """Compute the log likelihood of some rows under each draw, shape (draw,); runs
        must be complete.
        """
        carried, scale, dof = self.errors.carried, self.errors.scale, self.errors.dof
        errors = RowErrors(carried[:, picked], scale[:, picked], dof)
        return errors.log_density((self.y - self.shared)[:, picked])


def foresee(posterior: Posterior, rows: pd.DataFrame, seed: int = 0) -> Foreseen:
    """Evaluate rows that a posterior has not seen, under its draws.

    If a `Fit` has seen a row's checkpoint or run, the row gets the learned effect. An
    `Average` keeps no effects, so all effects are drawn anew. A new point shares the
    effect of its run with the run's old points; any further correlation with the last
    old point is ignored.
    """
    parts = all_draws(posterior.pieces())
    along = [c for c in ("run", "step", "D") if c in rows]
    if "run" in along:
        # Points of one run follow each other in its order. Sort positions, because a
        # user's table may repeat labels. Sort names as text, because one run may be
        # called 3 and another a3.
        named = rows[along].assign(run=rows["run"].astype(str)).reset_index(drop=True)
        rows = rows.iloc[named.sort_values(along, kind="stable").index]
    has_length = any("run_length" in part.piece.values for part in parts)
    length = None if has_length else 0.0
    noise = noise_of(parts, length, settings_apart=True)
    # without a length the errors of rows are independent, as in the fit
    gap = shared_error(rows).gap
    if gap is None:
        gap = np.full(len(rows), np.inf)
    law = log_losses(parts, rows, "the table")
    sizes = error_sizes(parts, rows, "the table")
    own_sizes = noise.size_with(sizes, row_sds(rows, law))
    rng = generator(seed, Stream.FORESEEN_ROWS, 1)
    members = getattr(posterior, "members", ())
    if any(member.effects for member in members):
        drawn = [member.draw_effects(rows, rng) for member in members]
        effects = np.concatenate(drawn)
    else:
        effects = sizes * noise.draw_shared(rows, columns_read(posterior), rng)
    return Foreseen(
        rows=rows,
        y=np.log(losses(rows)),
        law=law,
        effects=effects,
        errors=RowErrors.along_runs(noise, np.asarray(gap, float), own_sizes),
    )
