"""Draws of equal weight by importance sampling, in place of chains: a preview, and what
chains leave undecided between modes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayeslaw._base.errors import LawError
from bayeslaw._base.programs.compiled import ONCE
from bayeslaw._inference import coordinates, diagnostics
from bayeslaw._inference.importance import (
    Approximation,
    approximate,
    vectors_at,
)
from bayeslaw._inference.noise import unconstrain_error
from bayeslaw._inference.nuts import Chains, WhitenedPosterior
from bayeslaw._law.law import Law


class Quality(NamedTuple):
    """How good the weights are: Pareto k-hat and effective draws; and R-hat of the
    chains that they replace.
    """

    khat: float
    ess: float
    chains_rhat: float | None = None

    @property
    def attrs(self) -> dict[str, float]:
        """For an artifact."""
        weights = {"preview_khat": self.khat, "preview_ess": self.ess}
        if self.chains_rhat is None:
            return weights
        return weights | {"chains_rhat": self.chains_rhat}

    def reason(self, name: str) -> str:
        """Why there are no chains, for the law of this name."""
        return (
            f"law {name!r}: the chains disagreed (R-hat {self.chains_rhat:.3f}), as they "
            "do between modes and in heavy tails; drawn by importance sampling from "
            f"where they have been instead (k-hat {self.khat:.2f}, {self.ess:.0f} "
            "effective draws), which does not see a thin tail that they did not reach"
        )


def preview(
    law: Law, problem: WhitenedPosterior, draws: int, seed: int
) -> tuple[Chains, Quality]:
    """Draws around the mode, as if of one chain.

    Raises
    ------
    LawError
        There is no mode.
    """
    table, points = problem.table, problem.points
    approximation = approximate(
        law,
        table,
        points,
        problem.centre[None],
        seed=seed,
        level=ONCE,
    )
    if not len(approximation.weight):
        raise LawError(
            f"law {law.name!r}: no posterior mode was found to preview around; "
            "fit it without preview"
        )
    return _as_one_chain(law, problem, approximation, draws, seed)


def where_chains_disagree(
    law: Law,
    problem: WhitenedPosterior,
    sampled: Chains,
    seed: int,
    *,
    long_chain: int = 1000,
    thin: int = 4,
) -> tuple[Chains, Quality] | None:
    """Draw anew in place of long chains that disagree; None where they agree, or where
    the weights are not to be trusted either.

    Chains that stay at a mode each do not know how much each weighs. Together they say
    where to propose, and the weights say the rest.

    Parameters
    ----------
    long_chain
        Draws of a chain from which disagreement is no want of draws.
    thin
        One of so many draws of the chains is for the proposal.
    """
    rhat, _ = diagnostics.of_chains(sampled.sites)
    chains, draws = sampled.stats["diverging"].shape
    if rhat <= diagnostics.MAX_RHAT or draws < long_chain:
        return None
    table, points = problem.table, problem.points
    thinned = {
        name: draws_of_site.reshape(-1, *draws_of_site.shape[2:])[::thin]
        for name, draws_of_site in sampled.sites.items()
    }
    visited = vectors_at(law, table, points, thinned)
    approximation = approximate(
        law,
        table,
        points,
        problem.centre[None],
        seed=seed,
        visited=visited,
        level=ONCE,
    )
    if not approximation.is_trusted(diagnostics.MIN_ESS):
        return None
    instead, quality = _as_one_chain(
        law, problem, approximation, chains * long_chain, seed
    )
    return instead, quality._replace(chains_rhat=rhat)


def _as_one_chain(
    law: Law,
    problem: WhitenedPosterior,
    approximation: Approximation,
    draws: int,
    seed: int,
) -> tuple[Chains, Quality]:
    values = approximation.resample(draws, seed)
    of_law = coordinates.unconstrain(law, values, np)
    of_error = unconstrain_error(values, problem.table.shared)
    sites = of_law | of_error
    # statistics that a sampler would have, for the artifact
    stats = {
        "n_steps": np.zeros((1, draws), int),
        "diverging": np.zeros((1, draws), bool),
    }
    chains = Chains({name: v[None] for name, v in sites.items()}, stats)
    return chains, Quality(approximation.k, approximation.ess)
