"""What is known before and after each batch: the priors of several laws, and what runs
make of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.machine import runtime
from bayeslaw._inference.discrepancy.process import process_of
from bayeslaw._inference.noise import DOF_MIN, DOF_RATE, DOF_SHAPE, SIGMA
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.average import average_part
from bayeslaw._posteriors.averaging.compare import Comparing, default_laws
from bayeslaw._posteriors.fits.fit import fit
from bayeslaw._posteriors.posterior import WEIGHTS, LogLoss, Piece, Posterior
from bayeslaw._tables import fitting

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class PriorKnowledge:
    """What laws' priors say before any run: a posterior of no data.

    ``parts``: the laws, each with draws of its prior, of its misfit's and of the
    noise's.
    """

    parts: tuple[Piece, ...]

    @property
    def name(self) -> str:
        return "priors"

    @property
    def warnings(self) -> tuple[str, ...]:
        return ("nothing is measured yet: this is what the laws' priors say",)

    def pieces(self) -> tuple[Piece, ...]:
        return self.parts

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> Float[np.ndarray, "draw run"]:
        """Draws of the log loss, shape (draw, run); with ``noise`` of a new run."""
        runtime.start()
        rng, parts = np.random.default_rng(seed), []
        for piece in self.parts:
            columns = {c: runs[c].to_numpy(float) for c in piece.covariates}
            log_loss = piece.at(columns)
            if noise:
                log_loss = log_loss + piece.noise.draw(len(runs), rng)
            parts.append(log_loss)
        return np.concatenate(parts)


def laws_for(table: pd.DataFrame, laws: Sequence[Law | str] | None) -> list[Law]:
    """The laws asked for, or those that suit the table's columns.

    Raises
    ------
    LawError
        A law is unknown, or none suits the columns.
    """
    wanted = default_laws(table) if laws is None else list(laws)
    return [find_law(law, table) if isinstance(law, str) else law for law in wanted]


def from_priors(
    laws: Sequence[Law], offered: pd.DataFrame, seed: int = 0, draws: int = 2000
) -> PriorKnowledge:
    """Draw from the priors what they say of losses anywhere, equally of each law.

    Parameters
    ----------
    offered
        Runs on offer: the misfit's prior spans what they span.
    draws
        Draws of each law's prior.
    """
    rng = np.random.default_rng(seed)
    return PriorKnowledge(tuple(_of_law(law, offered, draws, rng) for law in laws))


def _of_law(
    law: Law, offered: pd.DataFrame, draws: int, rng: np.random.Generator
) -> Piece:
    columns = {c: offered[c].to_numpy(float) for c in law.covariates}
    values = {name: prior.draw(rng, draws) for name, prior in law.priors.items()}
    process = process_of(columns)
    if process is not None:
        scales = [np.log(prior.draw(rng, draws)) for prior in process.priors.values()]
        # Weights of the basis are normal given the scales, which each draw has of its
        # own: so a draw is one function from the misfit's whole prior.
        by_draw = np.stack(scales, axis=1)
        sds = np.exp(process.spectrum.log_variances(by_draw) / 2)
        values[WEIGHTS] = sds * rng.standard_normal(sds.shape)
    values["sigma"] = SIGMA.draw(rng, draws)
    values["dof"] = DOF_MIN + rng.gamma(DOF_SHAPE, 1 / DOF_RATE, draws)
    return LogLoss(law, process).piece(values)


def what_is_known(
    table: pd.DataFrame,
    measured: Bool[np.ndarray, " row"],
    laws: Sequence[Law],
    seed: int,
) -> Posterior:
    """The average of the laws on the runs measured; with too few runs to leave any out
    the first law that can be fitted, and with too few for that the priors.

    Parameters
    ----------
    table
        Runs measured and on offer; of these ``loss`` is any number.
    measured
        Which are measured, shape (row,).
    """
    measured_runs = table[measured]
    settings = Comparing(seed=seed)
    if len(measured_runs) > fewest(laws):
        try:
            return average_part(
                table, measured, list(laws), settings, on_failure="ignore"
            )
        except RunTableError:
            pass  # levels too few to leave one out
    for law in laws:
        try:
            fitting.check_fittable(law, measured_runs)
        except RunTableError:
            continue
        return fit(measured_runs, law, seed=seed, preview=True, on_failure="ignore")
    return from_priors(laws, table, seed)


def fewest(laws: Sequence[Law]) -> int:
    """Runs that a first batch holds at least: two more than the largest law has
    parameters.
    """
    return max(len(law.priors) for law in laws) + 2
