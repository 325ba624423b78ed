"""Define the planner's question, checked and complete: its domains and their limits, the
models, and the budget. What a plan chooses beside tokens, its levers, is replay, or the
shares of a mixture.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._base.draws import Draws
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.numbers import format_many
from bayeslaw._costs.costs import COST_LIMITS, Costs
from bayeslaw._law.columns import SHARE
from bayeslaw._plans.constraint import Constraint
from bayeslaw._posteriors.accuracy import AccuracyLink
from bayeslaw._posteriors.pairs import ErrorCorrelation
from bayeslaw._posteriors.posterior import Piece, Posterior

if TYPE_CHECKING:
    from jaxtyping import Float

Levers = Any  # what a plan chooses beside tokens: replay, or shares by domain
# names of constraints: on a target and a source without a name, on a mean, on an accuracy
TARGET, FORGETTING = "target", "forgetting"
MEAN, ACCURATE = "mean", "accuracy"


@dataclass(frozen=True, eq=False)
class Model:
    """A checkpoint that may be adapted, and its known values."""

    N: float
    ptpp: float | None  # pre-training tokens per parameter; None: not known
    # by domain, the columns of the planned run that its law may read: numbers or `Draws`
    columns: Mapping[str, Mapping[str, Any]]
    # by domain, its loss before adaptation: the column that has it, or tokens of pure
    # replay at which the law gives it; None: no tokens
    baselines: Mapping[str, str | float | None]
    # domains that are neither target nor source: their loss is limited, and
    # ``source_loss_before`` is not their loss
    further_domains: tuple[str, ...] = ()
    targets: tuple[str, ...] = (TARGET,)  # domains that are adapted to
    # tokens and levers of another run, whose loss is the baseline of all limits on a rise
    baseline_run: tuple[float, Levers] | None = None
    tokens: tuple[float, float] = (0.0, math.inf)  # fewest and most that are sought

    def at_means(self) -> Model:
        means = {
            domain: {name: float(np.mean(x)) for name, x in of_domain.items()}
            for domain, of_domain in self.columns.items()
        }
        return replace(self, columns=means)


@dataclass(frozen=True, eq=False, kw_only=True)
class Budget:
    """Limits on the spending for the adaptation, and its costs.

    Within finite FLOPs or tokens the most probable plan is sought; within limits on the
    bill, too, if the cheapest plan exceeds them.
    """

    costs: Costs = field(default_factory=Costs)
    max_flops: float = math.inf
    max_tokens: float = math.inf
    cost_limits: Mapping[str, float] = field(default_factory=dict)  # of `COST_LIMITS`
    # numbers of unique tokens, by name of `SUPPLIES` or by domain of a mixture, and how
    # often each may be seen
    supplies: Mapping[str, float] = field(default_factory=dict)
    epochs: float = 1.0
    domains: tuple[str, ...] = ()  # that are mixed; empty if the lever is replay
    # smallest and largest replay; or shares of the domains, shape (domain,)
    least: Levers = 0.0
    largest: Levers = 1.0
    # bounds of replay, or domains, whose bounds are ends of the fitted values
    fitted: tuple[str, ...] = ()

    def asked(self) -> dict[str, float]:
        """Collect the given limits on spending and data, as `plan` names them."""
        limits = {"max_flops": self.max_flops, "max_tokens": self.max_tokens}
        limits |= {**self.supplies, **self.cost_limits}
        given = {name: most for name, most in limits.items() if math.isfinite(most)}
        if any(map(self._is_repeated, self.supplies)):
            given["max_epochs"] = self.epochs
        return given

    def tokens(self, N: float) -> float:
        return min(self.max_tokens, self.max_flops / self.costs.flops_per_token(N))

    def paid_tokens(self, model: Model) -> dict[str, float]:
        """Compute the most tokens that each limit on the bill allows, by name."""
        tokens = {}
        for name, limit in COST_LIMITS.items():
            most = self.cost_limits.get(name, math.inf)
            within = self.costs.most_tokens(model.N, model.ptpp, **{name: most})
            tokens[limit.binding] = within
        return tokens

    @property
    def seen(self) -> dict[str, float]:
        """Most tokens that may be seen of each supply, repetitions included."""
        return {
            name: tokens * (self.epochs if self._is_repeated(name) else 1.0)
            for name, tokens in self.supplies.items()
        }

    def _is_repeated(self, supply: str) -> bool:
        return supply not in SUPPLIES or SUPPLIES[supply].is_repeated

    def taken(self, supply: str, levers: Levers) -> Any:
        """Compute the share of the tokens that is taken from a supply at some levers:
        replays of any shape, or shares, shape (..., domain).
        """
        if supply in self.domains:
            return levers[..., self.domains.index(supply)]
        return SUPPLIES[supply].share(levers)

    def most_shares(self, tokens: float) -> Float[np.ndarray, " domain"]:
        """Compute the largest share of each domain that a mixture of so many tokens may
        have within its bounds and its supply, shape (domain,).
        """
        seen = np.array([self.seen.get(name, math.inf) for name in self.domains])
        return np.minimum(self.largest, seen / tokens)

    def columns_of(self, levers: Levers) -> Any:
        """Give levers as draws take them (`SampledConstraint`): replay as it is, shares
        by the columns of their domains.
        """
        if not self.domains:
            return levers
        shares = np.moveaxis(np.asarray(levers), -1, 0)
        return {f"{SHARE}{n}": s for n, s in zip(self.domains, shares, strict=True)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """A question of the planner."""

    # draws and posteriors by domain, the targets first
    pieces: Mapping[str, tuple[Piece, ...]]
    posteriors: Mapping[str, Posterior]
    # on domains, in the order of ``pieces``, and on their mean
    constraints: tuple[Constraint, ...]
    models: tuple[Model, ...]  # candidates, of which the cheapest is chosen
    budget: Budget
    # of all constraints together, or of each by name
    confidence: float | Mapping[str, float]
    new_run: bool
    draws: int
    seed: int
    # of the domains in the mean that a mixture minimises at a budget
    weights: Mapping[str, float] = field(default_factory=dict)
    excess_price: Mapping[str, float] = field(default_factory=dict)  # of soft limits
    # parameter values of the plan without uncertainty, by domain
    point: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # reasons to distrust the posteriors
    notes: tuple[str, ...] = ()  # values that were taken from the tables of the fits
    errors: ErrorCorrelation | None = None  # None: forecasts' errors are independent
    link: AccuracyLink | None = (
        None  # from the first target's loss to a limited accuracy
    )


# -- what was given for one, or for all ------------------------------------------------


def check_names(
    what: str, given: Any, there: Collection[str], kind: str = "domain"
) -> None:
    """Refuse what is not by name, or names something that there is not."""
    names = ", ".join(there)
    if not isinstance(given, Mapping):
        raise PlanError(
            f"{what} is by {kind}, {names.split(', ')[0]}=...; got {given!r} (there are: "
            f"{names})"
        )
    unknown = [name for name in given if name not in there]
    if unknown:
        raise PlanError(f"{what} names no {unknown[0]!r}; there are: {names}")


def setting_for(setting: Any, source: str) -> Any:
    """Find the value that was given for one source, or for all."""
    if not isinstance(setting, Mapping):
        return setting
    if source not in setting:
        raise PlanError(
            f"nothing given for source {source!r}; given: {', '.join(map(str, setting))}"
        )
    return setting[source]


def bytes_of(given: Any, domain: str) -> float | None:
    return given.get(domain) if isinstance(given, Mapping) else given


def setting_of_model(name: str, setting: Any, model: int, models: int) -> Any:
    """Find the value of one model: a number, text or `Draws` holds for all of them, and
    any other sequence has one value for each. A mapping is read domain by domain.
    """
    if isinstance(setting, Mapping):
        return {
            domain: setting_of_model(f"{name} of {domain}", of_domain, model, models)
            for domain, of_domain in setting.items()
        }
    if isinstance(setting, str | Draws) or not np.iterable(setting):
        return setting
    values = list(setting)
    if len(values) != models:
        raise PlanError(
            f"{name}: {len(values)} values for {format_many(models, 'model')} (N): "
            "give one for each, one number for all, or draws of one value as "
            "bayeslaw.Draws(values)"
        )
    return values[model]
