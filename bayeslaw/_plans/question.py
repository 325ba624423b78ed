"""Define the models and the budget of the planner's question, and the names in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayeslaw._base.draws import Draws
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.numbers import format_many
from bayeslaw._costs.costs import COST_LIMITS, Costs

# names of constraints: on a target and a source without a name, on a mean, on an accuracy
TARGET, FORGETTING = "target", "forgetting"
MEAN, ACCURATE = "mean", "accuracy"


@dataclass(frozen=True, eq=False)
class Model:
    """A checkpoint that may be adapted, and its known values.

    Parameters
    ----------
    N, ptpp
        Parameters, and pre-training tokens per parameter; None: not known.
    columns
        By domain, the columns of the planned run that its law may read: each a number
        or `Draws`.
    baselines
        By domain, its loss before adaptation: the column that has it, or tokens of pure
        replay at which the law gives it; None: no tokens.
    further_domains
        Domains that are neither target nor source. Their loss is limited, and
        ``source_loss_before`` is not their loss.
    targets
        Domains that are adapted to.
    baseline_run
        Tokens and replay of another run; its loss by the law is the baseline of all
        limits on a rise.
    """

    N: float
    ptpp: float | None
    columns: Mapping[str, Mapping[str, Any]]
    baselines: Mapping[str, str | float | None]
    further_domains: tuple[str, ...] = ()
    targets: tuple[str, ...] = (TARGET,)
    baseline_run: tuple[float, float] | None = None

    def at_means(self) -> Model:
        """Replace draws by their means."""
        means = {
            domain: {name: float(np.mean(x)) for name, x in of_domain.items()}
            for domain, of_domain in self.columns.items()
        }
        return replace(self, columns=means)


@dataclass(frozen=True, eq=False, kw_only=True)
class Budget:
    """Limits on the spending for the adaptation, and its costs.

    Parameters
    ----------
    costs
        Costs of training.
    max_flops, max_tokens
        Budget of the adaptation. If either is finite, the most probable plan within it
        is searched.
    cost_limits
        Limits on the plan's bill, by name (`COST_LIMITS`). If the cheapest plan exceeds
        them, the most probable plan within them is searched.
    supplies
        Number of unique tokens, by name of `SUPPLIES`.
    epochs
        How often each of them may be seen.
    min_replay, max_replay
        Smallest and largest share of source data.
    fitted
        Names of the replay bounds that are ends of the fitted replays, not given by the
        user.
    """

    costs: Costs = field(default_factory=Costs)
    max_flops: float = math.inf
    max_tokens: float = math.inf
    cost_limits: Mapping[str, float] = field(default_factory=dict)
    supplies: Mapping[str, float] = field(default_factory=dict)
    epochs: float = 1.0
    min_replay: float = 0.0
    max_replay: float = 1.0
    fitted: tuple[str, ...] = ()

    def asked(self) -> dict[str, float]:
        """Collect the limits on spending and data that were given, by their names as
        arguments of `plan`.
        """
        limits = {"max_flops": self.max_flops, "max_tokens": self.max_tokens}
        limits |= {**self.supplies, **self.cost_limits}
        given = {name: most for name, most in limits.items() if math.isfinite(most)}
        if any(SUPPLIES[name].is_repeated for name in self.supplies):
            given["max_epochs"] = self.epochs
        return given

    def tokens(self, N: float) -> float:
        """Compute the most adaptation tokens of a model of ``N`` parameters by tokens
        and FLOPs.
        """
        return min(self.max_tokens, self.max_flops / self.costs.flops_per_token(N))

    def paid_tokens(self, model: Model) -> dict[str, float]:
        """Compute the most adaptation tokens that each limit on the bill allows, by its
        name where it binds.
        """
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
            name: tokens * (self.epochs if SUPPLIES[name].is_repeated else 1.0)
            for name, tokens in self.supplies.items()
        }


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
    """Find the bytes of a token of one domain's text."""
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
