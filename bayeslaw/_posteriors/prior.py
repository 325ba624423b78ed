"""Make a posterior from laws' priors alone, before any run is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.machine import runtime
from bayeslaw._base.streams import Stream, generator
from bayeslaw._inference.discrepancy.process import (
    PRIORS,
    process_of,
)
from bayeslaw._inference.noise import ERROR
from bayeslaw._law.find import as_law
from bayeslaw._law.law import Law
from bayeslaw._law.priors import Prior
from bayeslaw._posteriors.experience import choose_priors
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, Piece
from bayeslaw._tables import fitting
from bayeslaw._tables.runs import as_design

if TYPE_CHECKING:
    from jaxtyping import Float

NOTHING_MEASURED = (
    "nothing is measured yet: this is what the priors of {laws} say{source}; the first "
    "runs will change it"
)


@dataclass(frozen=True, eq=False)
class PriorOnly:
    """Laws' priors as a posterior. Made by `prior_only`.

    Parameters
    ----------
    parts
        The laws, each with draws from the priors of its parameters, its misfit and its
        noise.
    laws
        The laws with the priors that were used.
    experience
        Name of the tables that the priors were learned from; ``"none"`` for the laws'
        own priors.
    """

    parts: tuple[Piece, ...]
    laws: tuple[Law, ...]
    experience: str = "none"
    is_prior_only: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name of the priors."""
        return f"prior of {', '.join(law.name for law in self.laws)}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line: nothing is measured. Every result repeats it."""
        names = ", ".join(law.name for law in self.laws)
        learned = self.experience != "none"
        source = f", learned from {self.experience}" if learned else ""
        return (NOTHING_MEASURED.format(laws=names, source=source),)

    def pieces(self) -> tuple[Piece, ...]:
        """The draws of each law."""
        return self.parts

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draw the log loss, shape (draw, run); with ``noise``, of a new run.

        Raises
        ------
        RunTableError
            The table lacks a column that a law reads.
        """
        runtime.start()
        rng, parts = generator(seed, Stream.NEW_RUN), []
        for law, piece in zip(self.laws, self.parts, strict=True):
            log_loss = piece.at(fitting.covariates(law, runs))
            if noise:
                log_loss = log_loss + piece.noise.draw(len(runs), rng)
            parts.append(log_loss)
        return np.concatenate(parts)


def prior_only(
    law: Law | str | None = None,
    runs: pd.DataFrame | None = None,
    *,
    priors: Mapping[str, Prior | str] | None = None,
    reference: Mapping[str, float] | None = None,
    experience: str | None = None,
    draws: int = 2000,
    seed: int = 0,
) -> PriorOnly:
    """Use a law's prior as a posterior, before any run is measured.

    `forecast`, `plan`, `anchors` and `report` take it like a fit. Intervals are as wide
    as the priors, and warnings say that nothing is measured.

    Parameters
    ----------
    law
        A law, its name, a formula, or a Python file that defines ``LAW``.
    runs
        Runs to forecast, to plan or to buy. The law's misfit gets its prior over their
        range. Without them, the noise of a run includes the misfit.
    priors, reference, experience
        As `fit` takes them.
    draws
        Number of draws of the prior.
    seed
        Same seed, same machine: same numbers.

    Raises
    ------
    LawError
        There is no such law or experience, or a prior does not suit its parameter.

    Examples
    --------
    >>> nothing = bayeslaw.prior_only("chinchilla")
    >>> wide = bayeslaw.forecast(nothing, large)
    >>> bool((wide["high"] > 1.3 * wide["low"]).all())
    True
    """
    if runs is not None:
        runs = as_design(runs)
    record = as_law(law, runs)
    stated = reference or (record.reference if priors else None)
    unmeasured = None if runs is None else runs.drop(columns="loss", errors="ignore")
    chosen = choose_priors(record, unmeasured, experience, reference=stated)
    changed = chosen.law.with_priors(priors or {}).with_reference(reference or {})
    return from_priors([changed], unmeasured, seed, draws, chosen.name)


def from_priors(
    laws: Sequence[Law],
    offered: pd.DataFrame | None,
    seed: int = 0,
    draws: int = 2000,
    experience: str = "none",
) -> PriorOnly:
    """Draw from the priors of each law, in equal numbers.

    Parameters
    ----------
    offered
        Runs on offer; the misfit's prior spans their range.
    draws
        Draws of each law's prior.
    experience
        Name of the tables that the priors were learned from.
    """
    rng = generator(seed, Stream.PRIORS)
    parts = tuple(_of_law(law, offered, draws, rng) for law in laws)
    return PriorOnly(parts, tuple(laws), experience)


def _of_law(
    law: Law, offered: pd.DataFrame | None, draws: int, rng: np.random.Generator
) -> Piece:
    """Draw one law's parameters, misfit and noise from their priors."""
    values = {name: prior.draw(rng, draws) for name, prior in law.priors.items()}
    columns = {} if offered is None else fitting.covariates(law, offered)
    process = process_of(columns) if columns else None
    if process is not None:
        scales = [np.log(prior.draw(rng, draws)) for prior in process.priors.values()]
        # Weights of the basis are normal given the scales, and each draw has its own
        # scales. So a draw is one function from the misfit's whole prior.
        by_draw = np.stack(scales, axis=1)
        sds = np.exp(process.spectrum.log_variances(by_draw) / 2)
        values[WEIGHTS] = sds * rng.standard_normal(sds.shape)
    values["sigma"] = ERROR.sigma.draw(rng, draws)
    if not columns:
        total = PRIORS.of_all_pieces(law.covariates)
        values["sigma"] = np.hypot(values["sigma"], total.draw(rng, draws))
    values["dof"] = ERROR.dof_min + rng.gamma(
        ERROR.dof_shape, 1 / ERROR.dof_rate, draws
    )
    return LogLoss(law, process).piece(values)
