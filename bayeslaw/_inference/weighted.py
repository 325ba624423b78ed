"""Replace chains by importance sampling: for a preview, or where chains disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayeslaw._base.errors import LawError
from bayeslaw._base.programs import ONCE
from bayeslaw._inference import coordinates, diagnostics
from bayeslaw._inference.importance import (
    Approximation,
    approximate,
    vectors_at,
)
from bayeslaw._inference.modes import Peak
from bayeslaw._inference.noise import unconstrain_error
from bayeslaw._inference.nuts import Chains, WhitenedPosterior
from bayeslaw._law.law import Law


class Quality(NamedTuple):
    """Pareto k-hat and effective draws of the importance weights, and R-hat of the
    chains that they replace (None for a preview).
    """

    khat: float
    ess: float
    chains_rhat: float | None = None

    @property
    def attrs(self) -> dict[str, float]:
        """Attributes for the saved fit."""
        weights = {"preview_khat": self.khat, "preview_ess": self.ess}
        if self.chains_rhat is None:
            return weights
        return weights | {"chains_rhat": self.chains_rhat}

    def reason(self, name: str) -> str:
        """Say why importance sampling replaced the chains of the law ``name``."""
        return (
            f"law {name!r}: the chains disagreed (R-hat {self.chains_rhat:.3f}), as they "
            "do between modes and in heavy tails; importance sampling around the chains' "
            f"draws replaced them (k-hat {self.khat:.2f}, {self.ess:.0f} effective "
            "draws); it misses a thin tail that no chain reached"
        )


def preview(
    law: Law,
    problem: WhitenedPosterior,
    peaks: Sequence[Peak],
    draws: int,
    seed: int,
) -> tuple[Chains, Quality]:
    """Draw by importance sampling around the posterior's peaks; return the draws as one
    chain.

    Raises
    ------
    LawError
        No mode was found.
    """
    table, points = problem.table, problem.points
    approximation = approximate(
        law,
        table,
        points,
        peaks,
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
    peaks: Sequence[Peak],
    sampled: Chains,
    seed: int,
    *,
    long_chain: int = 1000,
    thin: int = 4,
) -> tuple[Chains, Quality] | None:
    """Replace long chains that disagree by importance sampling. Returns None if the
    chains agree or are short, or if the importance weights fail their diagnostics.

    Chains that each stay in one mode do not estimate the modes' weights. Importance
    sampling does, with a proposal fitted to the draws of all chains.

    Parameters
    ----------
    long_chain
        Least draws per chain; shorter chains may disagree only because they are short.
    thin
        Every ``thin``-th draw of the chains is used to fit the proposal.
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
        peaks,
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
    """Resample to equal weights, and arrange the draws as one chain's."""
    values = approximation.resample(draws, seed)
    of_law = coordinates.unconstrain(law, values, np)
    of_error = unconstrain_error(values, problem.table.shared)
    sites = of_law | of_error
    # the sampler statistics that the saved fit expects
    stats = {
        "n_steps": np.zeros((1, draws), int),
        "diverging": np.zeros((1, draws), bool),
    }
    chains = Chains({name: v[None] for name, v in sites.items()}, stats)
    return chains, Quality(approximation.k, approximation.ess)
