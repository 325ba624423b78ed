"""Pose the question of plans and best mixtures: posteriors by evaluation set, and
bounds of the shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import KINDS, POSITIVE, SHARE, checked
from bayeslaw._law.columns import SHARE as PREFIX
from bayeslaw._law.columns import share_domains
from bayeslaw._plans.mixing.sampled import SampledLosses
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class MixtureQuestion:
    """Arguments that `plan_mixture` and `best_mixture` share, documented there."""

    losses: Mapping[str, Posterior | str | Path]
    _: KW_ONLY
    N: float
    weights: Mapping[str, float] | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unique_tokens: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float = 1.0
    covariates: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    new_run: bool = True
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Simplex:
    """Posteriors, their paired draws, and the bounds of shares.

    ``low``, ``high``: bounds of each domain's share, (domain,); ``supply``: tokens of
    each domain that may be seen, repetitions included, (domain,).
    """

    posteriors: Mapping[str, Posterior]
    losses: SampledLosses
    low: Float[np.ndarray, " domain"]
    high: Float[np.ndarray, " domain"]
    supply: Float[np.ndarray, " domain"]

    @classmethod
    def of(cls, question: MixtureQuestion) -> Simplex:
        """Check a question's arguments and pair the draws.

        Raises
        ------
        PlanError
            The arguments are inconsistent.
        """
        posteriors = {
            name: as_posterior(posterior) for name, posterior in question.losses.items()
        }
        if not posteriors:
            raise PlanError("give a posterior of at least one evaluation set")
        domains = _domains(posteriors)
        size = checked("N", question.N, KINDS["N"])
        fixed = [
            {"N": size, **_covariates(question, name, tuple(posteriors))}
            for name in posteriors
        ]
        losses = SampledLosses.of(
            posteriors, domains, fixed, question.draws, question.seed, question.new_run
        )
        low, high = _bounds(question, posteriors, domains)
        return cls(posteriors, losses, low, high, _supply(question, domains))

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains that are mixed."""
        return self.losses.domains

    def by_domain(self, shares: Float[np.ndarray, " domain"]) -> dict[str, float]:
        """Name the shares."""
        return dict(zip(self.domains, map(float, shares), strict=True))


def _covariates(
    question: MixtureQuestion, name: str, sets: tuple[str, ...]
) -> dict[str, float]:
    """Collect the further columns of one evaluation set; a value is common to all sets
    or given for each.
    """
    columns = {}
    for column, value in question.covariates.items():
        by_set = value if isinstance(value, Mapping) else dict.fromkeys(sets, value)
        unknown = [other for other in by_set if other not in sets]
        if unknown:
            raise PlanError(unknown_name(f"covariates {column}", unknown[0], sets))
        if name in by_set:
            columns[column] = float(by_set[name])
    return columns


def _supply(
    question: MixtureQuestion, domains: tuple[str, ...]
) -> Float[np.ndarray, " domain"]:
    """Compute the tokens of each domain that may be seen, repetitions included, shape
    (domain,).
    """
    unknown = [name for name in question.unique_tokens if name not in domains]
    if unknown:
        raise PlanError(unknown_name("unique_tokens", unknown[0], domains))
    epochs = checked("max_epochs", question.max_epochs, POSITIVE)
    there = [question.unique_tokens.get(name, math.inf) for name in domains]
    return epochs * np.array(there, float)


def _domains(posteriors: Mapping[str, Posterior]) -> tuple[str, ...]:
    """Find the domains of the laws' shares, which must be the same for all laws."""
    domains_of: dict[str, set[str]] = {}
    for name, posterior in posteriors.items():
        domains_of[name] = set(share_domains(columns_read(posterior)))
        if not domains_of[name]:
            raise PlanError(
                f"the law of {name} reads no shares: fit a law of mixtures "
                "(mixture-coupled) to a table with columns share_NAME"
            )
    first, domains = next(iter(domains_of.items()))
    for name, others in domains_of.items():
        if others != domains:
            apart = ", ".join(sorted(others ^ domains))
            raise PlanError(
                f"the fits of {first} and {name} differ in domains: {apart}"
            )
    return tuple(sorted(domains))


def mean_weights(
    weights: Mapping[str, float] | None, sets: tuple[str, ...]
) -> list[float]:
    """Compute the weights of evaluation sets in a mean; they sum to one.

    Raises
    ------
    PlanError
        A set is unknown, or no weight is above 0.
    """
    by_set = dict.fromkeys(sets, 1.0) if weights is None else dict(weights)
    unknown = [name for name in by_set if name not in sets]
    if unknown:
        raise PlanError(unknown_name("weights", unknown[0], sets))
    total = sum(by_set.values())
    if min(by_set.values()) < 0 or not 0 < total < math.inf:
        raise PlanError("weights must be at least 0, and one of them above")
    return [by_set.get(name, 0.0) / total for name in sets]


def unknown_name(what: str, name: str, there: tuple[str, ...]) -> str:
    return f"{what} names no {name!r}; there are: {', '.join(there)}"


def _bounds(
    question: MixtureQuestion,
    posteriors: Mapping[str, Posterior],
    domains: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Find the smallest and largest share of each domain: the given ones, else the
    fitted ones.
    """
    unknown = [name for name in question.bounds if name not in domains]
    if unknown:
        raise PlanError(unknown_name("bounds", unknown[0], domains))
    ends = []
    for name in domains:
        fitted = fitted_range(posteriors, f"{PREFIX}{name}") or (0.0, 1.0)
        low, high = question.bounds.get(name, fitted)
        what = f"bounds of {name}"
        ends.append((checked(what, low, SHARE), checked(what, high, SHARE)))
        if low > high:
            raise PlanError(
                f"{what}: the least, {low:g}, is over the largest, {high:g}"
            )
    low, high = np.array(ends).T
    if low.sum() > 1 + 1e-9 or high.sum() < 1 - 1e-9:
        raise PlanError(
            f"bounds leave no mixture: least shares sum to {low.sum():.3g} and largest "
            f"to {high.sum():.3g}; 1 must lie between"
        )
    return low, high


def fitted_range(
    posteriors: Mapping[str, Posterior], column: str
) -> tuple[float, float] | None:
    """Find the range of a column that all tables cover; None if no table has it."""
    tables = [table_of(posterior) for posterior in posteriors.values()]
    columns = [
        table[column] for table in tables if table is not None and column in table
    ]
    if not columns:
        return None
    return max(float(c.min()) for c in columns), min(float(c.max()) for c in columns)
