"""Pose the question of plans and best mixtures: posteriors by evaluation set, and
bounds of the shares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import (
    CHANCE,
    COUNT,
    KINDS,
    LOSS,
    NUMBER,
    POSITIVE,
    SHARE,
    check_count,
    checked,
)
from bayeslaw._base.numbers import format_count
from bayeslaw._law.columns import SHARE as PREFIX
from bayeslaw._law.columns import share_domains
from bayeslaw._plans.mixing.sampled import SampledLosses
from bayeslaw._plans.mixing.search import MixtureChoice, SetLimits, SimplexProblem
from bayeslaw._plans.reading import check_covariates
from bayeslaw._posteriors.averaging.distance import doubts_of_place, tell_distance
from bayeslaw._posteriors.averaging.loading import as_posterior
from bayeslaw._posteriors.pairs import table_of
from bayeslaw._posteriors.posterior import Posterior, columns_read
from bayeslaw._posteriors.repetition import NO_CORPUS, epochs_allowed

if TYPE_CHECKING:
    from jaxtyping import Float

MEAN = "mean"  # name of the limit on the weighted mean
SET = "evaluation set"


@dataclass(frozen=True, eq=False)
class MixtureQuestion:
    """Arguments that `plan_mixture` and `best_mixture` share, documented there."""

    losses: Mapping[str, Posterior | str | Path]
    _: KW_ONLY
    N: float
    max_loss: Mapping[str, float] = field(default_factory=dict)
    max_mean_loss: float | None = None
    confidence: float = 0.9
    weights: Mapping[str, float] | None = None
    bounds: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    unique_tokens: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float = 1.0
    covariates: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    new_run: bool = True
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Simplex:
    """Posteriors, their paired draws, and the bounds of shares.

    ``size``: model parameters; ``low``, ``high``: bounds of each domain's share,
    (domain,); ``unique``: unique tokens of each domain, (domain,), infinite where not
    stated; ``epochs``: how often each may be seen; ``notes``: what was assumed.
    """

    posteriors: Mapping[str, Posterior]
    size: float
    losses: SampledLosses
    low: Float[np.ndarray, " domain"]
    high: Float[np.ndarray, " domain"]
    unique: Float[np.ndarray, " domain"]
    epochs: float
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, question: MixtureQuestion) -> Simplex:
        """Check a question's arguments and pair the draws.

        Raises
        ------
        PlanError
            The arguments are inconsistent.
        """
        if not isinstance(question.losses, Mapping) or not question.losses:
            raise PlanError(
                "give a posterior of at least one evaluation set, by its name"
            )
        posteriors = {
            name: as_posterior(posterior) for name, posterior in question.losses.items()
        }
        if MEAN in posteriors:
            raise PlanError(
                f"no evaluation set can be named {MEAN!r}: that is the limit on the mean"
            )
        domains, sets = _domains(posteriors), tuple(posteriors)
        size = checked("N", question.N, KINDS["N"])
        shares = {
            f"{PREFIX}{name}": "bounds say what a plan chooses" for name in domains
        }
        set_elsewhere = {"N": "it is given as N", "D": "it is the budget", **shares}
        read = {column for p in posteriors.values() for column in columns_read(p)}
        check_covariates(question.covariates, read, set_elsewhere)
        # further columns: common to all sets, or given for each
        fixed = {name: {"N": size} for name in sets}
        for column, value in question.covariates.items():
            by_set = value if isinstance(value, Mapping) else dict.fromkeys(sets, value)
            _check_names(f"covariates {column}", by_set, sets, SET)
            for name, one in by_set.items():
                kind = KINDS.get(column, POSITIVE)
                fixed[name][column] = checked(column, one, kind)
        check_count("draws", question.draws)
        losses = SampledLosses.of(
            posteriors,
            domains,
            list(fixed.values()),
            question.draws,
            question.seed,
            question.new_run,
        )
        low, high = _bounds(question, posteriors, domains)
        given = question.unique_tokens
        _check_names("unique_tokens", given, domains)
        unique = [
            checked(f"unique_tokens of {name}", given[name], COUNT)
            if name in given
            else math.inf
            for name in domains
        ]
        # how often a token may be seen is decided as by `plan`
        epochs = checked("max_epochs", question.max_epochs, KINDS["max_epochs"])
        notes = [NO_CORPUS] * (epochs != MixtureQuestion.max_epochs)
        if given:
            pieces = [piece for p in posteriors.values() for piece in p.pieces()]
            epochs, notes = epochs_allowed(epochs, pieces, None)
        return cls(
            posteriors, size, losses, low, high, np.array(unique), epochs, tuple(notes)
        )

    def problem(
        self, question: MixtureQuestion, tokens: tuple[float, float]
    ) -> SimplexProblem:
        """Pose the problem of a question between two budgets.

        Raises
        ------
        PlanError
            A limit is ill-posed, or the domains have fewer tokens than the smallest
            budget.
        """
        supply = self.epochs * self.unique
        high = np.minimum(self.high, supply / tokens[0])
        if high.sum() < 1 - 1e-9:
            raise PlanError(
                f"the domains have {format_count(high.sum() * tokens[0])} tokens within "
                f"their bounds, and the least budget is {format_count(tokens[0])}: give "
                "max_epochs, or plan for less"
            )
        if (self.low > high + 1e-9).any():
            name = self.domains[int((self.low > high + 1e-9).argmax())]
            raise PlanError(
                f"{name} has too few tokens for its least share at "
                f"{format_count(tokens[0])} tokens: lower the share, or give max_epochs"
            )
        return SimplexProblem(
            self.losses,
            _limits(question, self.losses.sets),
            checked("confidence", question.confidence, KINDS["confidence"]),
            self.low,
            high,
            tokens,
            supply,
        )

    def settings(self, question: MixtureQuestion) -> dict[str, Any]:
        """Collect what was asked, as JSON types."""
        sets = self.losses.sets
        given = {n: u for n, u in self.by_domain(self.unique).items() if u < math.inf}
        return {
            "confidence": checked("confidence", question.confidence, CHANCE),
            "weights": dict(
                zip(sets, mean_weights(question.weights, sets), strict=True)
            ),
            "least": self.by_domain(self.low),
            "largest": self.by_domain(self.high),
            "unique_tokens": given,
            "max_epochs": self.epochs,
            "covariates": dict(zip(sets, map(dict, self.losses.fixed), strict=True)),
            "new_run": question.new_run,
            "draws": question.draws,
            "seed": question.seed,
        }

    def doubts(
        self, question: MixtureQuestion, choice: MixtureChoice, near: float = 1e-3
    ) -> list[str]:
        """Collect warnings about a plan: those of the fits, and plans at an end of a
        range.
        """
        lines = [f"{n}: {x}" for n, p in self.posteriors.items() for x in p.warnings]
        lines += self.notes
        lines += doubts_of_place(self.posteriors, self._planned_run(choice))
        for name, share, low, high in zip(
            self.domains, choice.shares, self.low, self.high, strict=True
        ):
            column = f"{PREFIX}{name}"
            least, most = fitted_range(self.posteriors, column) or (0.0, 1.0)
            at = "largest" if high - share < near else ""
            at = "least" if share - low < near else at
            if name in question.bounds and not least - near < share < most + near:
                lines.append(
                    f"the share of {name}, {share:.1%}, lies beyond those that were "
                    f"fitted ({least:.1%} to {most:.1%}): nothing was checked there"
                )
            elif name not in question.bounds and at:
                lines.append(
                    f"the share of {name}, {share:.1%}, is the {at} that was fitted: "
                    f"beyond it nothing was checked; bounds={{{name!r}: (0, 1)}} looks "
                    f"there (--share {name}=0:100%; of report --plan "
                    f"share_{name}=0:100%)"
                )
        return lines

    def distance(self, choice: MixtureChoice) -> dict[str, dict[str, Any]]:
        """Tell where a chosen run lies, as `tell_distance` does."""
        return tell_distance(self.posteriors, self._planned_run(choice))

    def _planned_run(self, choice: MixtureChoice) -> dict[str, float]:
        return {"N": self.size, "D": math.exp(choice.log_tokens)}

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains that are mixed."""
        return self.losses.domains

    def by_domain(self, shares: Float[np.ndarray, " domain"]) -> dict[str, float]:
        """Name the shares."""
        return dict(zip(self.domains, map(float, shares), strict=True))


def _limits(question: MixtureQuestion, sets: tuple[str, ...]) -> SetLimits:
    """Read the limits on evaluation sets and on their weighted mean."""
    _check_names("max_loss", question.max_loss, sets, SET)
    names, weights, most = [], [], []
    for name, limit in question.max_loss.items():
        names.append(name)
        weights.append([float(single == name) for single in sets])
        most.append(checked(f"max_loss of {name}", limit, LOSS))
    mean = mean_weights(question.weights, sets)
    if question.max_mean_loss is not None:
        names.append(MEAN)
        weights.append(mean)
        most.append(checked("max_mean_loss", question.max_mean_loss, LOSS))
    shape = (len(names), len(sets))
    return SetLimits(tuple(names), np.reshape(weights, shape), np.array(most))


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


def mean_weights(weights: Any, sets: tuple[str, ...]) -> list[float]:
    """Compute the weights of evaluation sets in a mean; they sum to one.

    Raises
    ------
    PlanError
        A set is unknown, or no weight is above 0.
    """
    given = dict.fromkeys(sets, 1.0) if weights is None else weights
    _check_names("weights", given, sets, SET)
    by_set = {n: checked(f"weight of {n}", w, NUMBER) for n, w in given.items()}
    total = sum(by_set.values())
    if min(by_set.values(), default=0.0) < 0 or not 0 < total < math.inf:
        raise PlanError("weights must be at least 0, and one of them above")
    return [by_set.get(name, 0.0) / total for name in sets]


def _check_names(
    what: str, given: Any, there: tuple[str, ...], kind: str = "domain"
) -> None:
    """Refuse what is not by name, or names something that there is not."""
    if not isinstance(given, Mapping):
        raise PlanError(
            f"{what} is by {kind}, {there[0]}=...; got {given!r} (there are: "
            f"{', '.join(there)})"
        )
    unknown = [name for name in given if name not in there]
    if unknown:
        raise PlanError(
            f"{what} names no {unknown[0]!r}; there are: {', '.join(there)}"
        )


def _bounds(
    question: MixtureQuestion,
    posteriors: Mapping[str, Posterior],
    domains: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Find the smallest and largest share of each domain: the given ones, else the
    fitted ones.
    """
    _check_names("bounds", question.bounds, domains)
    ends = []
    for name in domains:
        if name in question.bounds:
            ends.append(_bounds_of(name, question.bounds[name]))
        else:
            ends.append(fitted_range(posteriors, f"{PREFIX}{name}") or (0.0, 1.0))
    low, high = np.array(ends).T
    if low.sum() > 1 + 1e-9 or high.sum() < 1 - 1e-9:
        raise PlanError(
            f"bounds leave no mixture: least shares sum to {low.sum():.3g} and largest "
            f"to {high.sum():.3g}; 1 must lie between"
        )
    return low, high


def _bounds_of(name: str, bounds: Any) -> tuple[float, float]:
    """Read the least and the largest share of a domain, or one that is fixed."""
    what = f"bounds of {name}"
    ends = (bounds, bounds) if np.ndim(bounds) == 0 else tuple(bounds)
    if len(ends) != 2:
        raise PlanError(f"{what}: give the least and the largest share; got {bounds!r}")
    low, high = (checked(what, end, SHARE) for end in ends)
    if low > high:
        raise PlanError(f"{what}: the least, {low:g}, is over the largest, {high:g}")
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
