"""Treat one domain of a pool as a posterior, and measure how much of it comes from the
domain's own runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.machine import runtime
from bayeslaw._inference.discrepancy.learning import Misfit
from bayeslaw._law.law import Law
from bayeslaw._posteriors.fits.misfit import TrainingRuns, learn_misfit, with_misfit
from bayeslaw._posteriors.posterior import LogLoss, Piece, log_loss_at

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class DomainPosterior:
    """Hold one domain's share of a `Pool`; forecast, check and plan take it like a
    `Fit`.

    Parameters
    ----------
    values
        Draws of the law's values, ``sigma`` and ``dof``, each of shape (draw,).
    domain, runs
        The domain's name and its number of runs; an unseen domain has no name and no
        runs.
    own
        Share of the information about each parameter that comes from the domain's own
        runs, by name. The rest comes from the population.
    others
        Number of other domains in the pool.
    training
        The domain's own runs, from which the law's misfit on this domain is learned.
        None for the law alone; ``sigma`` then holds the misfit.
    training_rows
        The domain's own rows of the table; None for an unseen domain.
    """

    law: Law
    values: Mapping[str, Float[np.ndarray, " draw"]]
    domain: str | None
    runs: int
    own: Mapping[str, float]
    others: int
    warnings: tuple[str, ...]
    training: TrainingRuns | None = None
    training_rows: pd.DataFrame | None = None

    @cached_property
    def misfit(self) -> Misfit | None:
        """Learn the law's misfit on this domain, for each draw (`Fit.misfit`)."""
        if self.training is None:
            return None
        runtime.start()
        return learn_misfit(self.law, self.values, self.training, seed=0)

    @property
    def name(self) -> str:
        return f"{self.law.name} ({self.domain or 'another domain'})"

    def pieces(self) -> tuple[Piece, ...]:
        """List the one piece of this posterior: all draws, with the law and its misfit."""
        process = None if self.misfit is None else self.misfit.process
        values = with_misfit(self.values, self.misfit)
        return (Piece(LogLoss(self.law, process), values, self.law.covariates),)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Compute draws of the log loss, shape (draw, run): for the law, or with
        ``noise`` for a new run.

        Raises
        ------
        RunTableError
            The table lacks a column that the law reads.
        """
        (piece,) = self.pieces()
        return log_loss_at(self.law, piece, runs, noise=noise, seed=seed)

    def statement(self, borrowed_below: float = 0.5) -> str:
        """State how much of the information is from the domain's own runs, and list the
        borrowed parameters, in which these runs have a weight below
        ``borrowed_below``.
        """
        if not self.runs:
            return (
                "A domain without runs: all that is known of it is borrowed from "
                f"{self.others} domains."
            )
        mean = float(np.mean(list(self.own.values())))
        count = f"{self.runs} run{'s' * (self.runs > 1)}"
        what = (
            f"Domain {self.domain!r} has {count}: they carry {mean:.0%} of what is "
            "known of its parameters"
        )
        other_domains = f"the other {self.others} domain{'s' * (self.others > 1)}"
        borrowed = [
            f"{name} ({weight:.0%} own)"
            for name, weight in self.own.items()
            if weight < borrowed_below
        ]
        if not borrowed:
            return f"{what}, and most of each; the rest is from {other_domains}."
        return f"{what}; mostly borrowed from {other_domains}: {', '.join(borrowed)}."
