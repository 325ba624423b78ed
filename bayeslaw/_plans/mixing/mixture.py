"""Plan a mixture: the cheapest tokens and shares that keep limits on several evaluation
sets with a stated probability.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.html import paragraphs, table_html
from bayeslaw._base.limits import COUNT, checked
from bayeslaw._base.machine import runtime
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import Costs
from bayeslaw._plans.mixing.least import MeanLoss, least_mixture
from bayeslaw._plans.mixing.question import (
    MixtureQuestion,
    Simplex,
    fitted_range,
    mean_weights,
)
from bayeslaw._plans.mixing.search import (
    MixtureChoice,
    SimplexProblem,
    chances,
    kept_share,
    limit_rows,
    onto_simplex,
    quantiles,
    search,
)
from bayeslaw._tables.beyond import describe_place, read_places


@dataclass(frozen=True, eq=False)
class MixtureArguments(MixtureQuestion):
    # documented in `plan_mixture`

    _: KW_ONLY
    D: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None


@dataclass(frozen=True)
class MixturePlan:
    """A mixture's plan. Every field can be stored in JSON.

    Parameters
    ----------
    feasible
        Whether the confidence is reached; if not, the plan is the most probable one.
    N, D, atpp, flops
        The model, tokens, tokens per parameter, and FLOPs.
    shares, tokens, epochs
        By domain: share, tokens, and number of epochs (if the number of unique tokens
        is given).
    probability
        Share of draws that keep all limits. The draws are not those of the search: they
        are paired anew, with other noise.
    limits
        For each limit: ``name``, ``limit`` (nats per token), ``probability``, and
        ``median``, ``low``, ``high`` (90%) of the loss.
    binding
        The limit that most draws miss, and the tokens of domains whose unique tokens are
        used up; empty without either.
    mean
        ``median``, ``low``, ``high`` (90%) of the weighted mean of the losses.
    along
        For each domain its ``share`` over the bounds. For each share, at the plan's
        tokens and the nearest mixture: the ``probability``, and ``losses`` by limit, as
        ``median``, ``low``, ``high`` (90%).
    region
        For three domains: ``shares`` and ``probability`` of mixtures over the simplex
        at the plan's tokens; empty otherwise.
    settings, warnings
        The question, and warnings about the plan.
    distance
        As in `Plan`, of ``N`` and ``D/N``.
    """

    feasible: bool
    N: float
    D: float
    atpp: float
    flops: float
    shares: dict[str, float]
    tokens: dict[str, float]
    epochs: dict[str, float]
    probability: float
    limits: list[dict[str, Any]]
    binding: str
    along: dict[str, dict[str, Any]]
    region: dict[str, list[Any]]
    settings: dict[str, Any]
    warnings: list[str]
    mean: dict[str, float] = field(default_factory=dict)
    distance: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Convert the plan to JSON types."""
        return asdict(self)

    def sentence(self) -> str:
        """Describe the plan in words."""
        mixture = ", ".join(
            f"{name} {share:.1%}" for name, share in self.shares.items()
        )
        opening = f"Train N = {format_count(self.N)} on {format_count(self.D)} tokens"
        if not self.feasible:
            opening = (
                "No mixture within the bounds reaches the confidence; most probable: "
                f"{format_count(self.D)} tokens"
            )
        place = describe_place(read_places(self.distance))
        lines = [
            f"{opening} ({self.flops:.2g} FLOPs): {mixture}"
            + (f"; {place}." if place else ".")
        ]
        is_best = self.settings.get("D") is not None and self.feasible
        if is_best:
            mean = self.mean
            lines.append(
                f"The mean loss is least there, {mean['median']:.4g} ({mean['low']:.4g} "
                f"to {mean['high']:.4g})."
            )
        if self.limits:
            # at a budget the least mean decides, and no limit need bind
            bound = "" if is_best else f"; bound by {self.binding}"
            lines.append(f"{chances(self.limits, self.probability)}{bound}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"MixturePlan({self.sentence().splitlines()[0]})"

    def _repr_html_(self) -> str:
        """Show the plan, and each limit, in notebooks."""
        return paragraphs(self.sentence()) + table_html(
            pd.DataFrame(self.limits).set_index("name")
        )


@takes(MixtureArguments, PlanError)
def plan_mixture(arguments: MixtureArguments) -> MixturePlan:
    """Find the cheapest tokens and shares that keep all limits with probability
    ``confidence``.

    Minimises D over D and shares on the simplex such that P(all losses keep their limits)
    >= confidence, over draws of the posteriors (Luedtke and Ahmed 2008), by SLSQP from
    several mixtures. At a given budget ``D``, minimises the weighted mean of the losses
    over the shares, under the same limits.

    Parameters
    ----------
    losses
        Posteriors by evaluation set, independent of each other.
    N
        Model parameters.
    max_loss
        Upper limit on a set's loss, by its name, in nats per token.
    max_mean_loss, weights
        Upper limit on the mean of the losses, in nats per token, and the weight of each
        set in it; by default equal weights.
    confidence
        Probability with which all limits are kept together.
    D
        Budget, if it is given: then the mixture is planned, and limits may be left out.
    bounds
        Least and largest share by domain, or a fixed share; by default the least and the
        largest that were fitted.
    unique_tokens, max_epochs
        Number of unique tokens by domain, and how often each may be seen: up to four
        times, unless the laws say what a repeated token is worth.
    max_tokens
        Largest budget; by default ten times the largest fitted.
    covariates
        Further columns that the laws read, each a number or numbers by evaluation set:
        ``{"loss_before": {"fr": 3.2, "de": 3.4}, "source_loss_before": 2.7}``.
    costs
        Formula of the FLOPs; 6 N D by default.
    new_run
        True: limits are on the losses of the planned run, with its noise. False: on the
        law's mean.
    draws, seed
        Number of draws, and the seed that pairs them and draws the noise.

    Raises
    ------
    PlanError
        The question is ill-posed: no limit, an unknown set or domain, bounds that leave
        no mixture.

    Examples
    --------
    >>> runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    >>> web = bayeslaw.fit(runs, "mixture-coupled", preview=True)
    >>> planned = bayeslaw.plan_mixture({"web": web}, N=1e9, max_loss={"web": 2.6})
    >>> planned.feasible, round(sum(planned.shares.values()), 6)
    (True, 1.0)
    """
    return posed_and_solved(arguments).plan


class PosedMixture(NamedTuple):
    """A plan, and the problem over the draws that gave its probability."""

    plan: MixturePlan
    simplex: Simplex
    problem: SimplexProblem


def posed_and_solved(arguments: MixtureArguments) -> PosedMixture:
    """Find the plan of `plan_mixture`, and keep the problem for further questions.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    simplex, problem = posed(arguments)
    # The best choice for some draws looks too good with the same draws, so it is judged
    # by others.
    others, fresh = posed(replace(arguments, seed=arguments.seed + 1))
    weights = np.array(mean_weights(arguments.weights, problem.losses.sets))
    if arguments.D is None:
        choice = search(problem, seed=arguments.seed)
        # the shares get as many tokens as they need with these draws
        needed = fresh.cheapest(choice.shares) if choice.is_kept else None
        if needed is not None:
            choice = choice._replace(log_tokens=needed)
        chance = fresh.probability(choice.log_tokens, choice.shares)
        is_kept = chance >= fresh.confidence
        choice = choice._replace(probability=chance, is_kept=is_kept)
    else:
        least = least_mixture(MeanLoss(problem, weights), arguments.seed)
        choice = least.judged_by(fresh)
    plan = _answer(arguments, simplex, MeanLoss(fresh, weights), choice)
    return PosedMixture(plan, others, fresh)


def posed(arguments: MixtureArguments) -> tuple[Simplex, SimplexProblem]:
    """Check a question, and pose it over paired draws.

    Raises
    ------
    PlanError
        As `plan_mixture` does.
    """
    runtime.start()
    simplex = Simplex.of(arguments)
    if arguments.D is not None:
        if arguments.max_tokens is not None:
            raise PlanError("give D, the budget, or max_tokens, not both")
        least = most = checked("D", arguments.D, COUNT)
    else:
        # from ten times below to ten times above the fitted budgets
        low, high = fitted_range(simplex.posteriors, "D") or (1e6, 1e13)
        most = 10.0 * high
        if arguments.max_tokens is not None:
            most = checked("max_tokens", arguments.max_tokens, COUNT)
        least = min(low / 10.0, most / 10.0)
    problem = simplex.problem(arguments, (least, most))
    if not problem.limits.names and arguments.D is None:
        raise PlanError(
            "give a limit: max_loss by evaluation set, or max_mean_loss; or a budget D, "
            "at which the mean of the losses is least"
        )
    return simplex, problem


def _answer(
    arguments: MixtureArguments,
    simplex: Simplex,
    mean: MeanLoss,
    choice: MixtureChoice,
) -> MixturePlan:
    """Build the record of a plan from the chosen tokens and shares."""
    problem = mean.problem
    tokens = math.exp(choice.log_tokens)
    shares = simplex.by_domain(choice.shares)
    rows = limit_rows(problem, choice)
    by_domain = {name: tokens * share for name, share in shares.items()}
    # the limit that most draws miss, and the domains of which a plan takes all tokens
    # that may be seen, but for the search's reserve
    missed = [min(rows, key=lambda row: row["probability"])["name"]] if rows else []
    supply = zip(by_domain.items(), problem.supply, strict=True)
    used_up = [f"tokens of {name}" for (name, n), most in supply if n >= 0.95 * most]
    unique = simplex.settings(arguments)["unique_tokens"]
    costs = arguments.costs or Costs()
    return MixturePlan(
        feasible=choice.is_kept,
        N=simplex.size,
        D=tokens,
        atpp=tokens / simplex.size,
        flops=costs.flops_per_token(simplex.size) * tokens,
        shares=shares,
        tokens=by_domain,
        epochs={name: by_domain[name] / there for name, there in unique.items()},
        probability=choice.probability,
        limits=rows,
        binding=" and ".join([*missed, *used_up]),
        mean=quantiles(mean.draws(choice.shares, choice.log_tokens)),
        along=_along(problem, choice),
        region=_region(problem, choice),
        settings={
            **simplex.settings(arguments),
            "D": arguments.D and checked("D", arguments.D, COUNT),
            "max_tokens": problem.tokens[1],
        },
        warnings=simplex.doubts(arguments, choice),
        distance=simplex.distance(choice),
    )


def _along(
    problem: SimplexProblem, choice: MixtureChoice, points: int = 13
) -> dict[str, dict[str, Any]]:
    """Compute probabilities and losses along each share, with the other shares as near
    to the plan's as possible.
    """
    rows = {}
    limits = problem.limits
    for j, name in enumerate(problem.losses.domains):
        most = min(problem.high[j], 1 - (problem.low.sum() - problem.low[j]))
        least = max(problem.low[j], 1 - (problem.high.sum() - problem.high[j]))
        shares = np.linspace(least, most, points)
        margins = []
        for share in shares:
            low, high = problem.low.copy(), problem.high.copy()
            low[j] = high[j] = share
            mixture = onto_simplex(choice.shares, low, high)
            margins.append(problem.margins(choice.log_tokens, mixture))
        losses = limits.most[:, None] * np.exp(-np.array(margins))
        rows[name] = {
            "share": shares.tolist(),
            "probability": [kept_share(m) for m in margins],
            "losses": {
                limit: pd.DataFrame(
                    [quantiles(of_point) for of_point in losses[:, i]]
                ).to_dict("list")
                for i, limit in enumerate(limits.names)
            },
        }
    return rows


def _region(
    problem: SimplexProblem, choice: MixtureChoice, steps: int = 20
) -> dict[str, list[Any]]:
    """Compute probabilities over the simplex of three domains, within the bounds."""
    if len(problem.losses.domains) != 3:
        return {}
    lattice = np.array(
        [(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)]
    )
    mixtures = lattice / steps
    slack = 0.5 / steps
    is_within = (mixtures >= problem.low - slack) & (mixtures <= problem.high + slack)
    inside = onto_simplex(mixtures[is_within.all(axis=1)], problem.low, problem.high)
    chances = [problem.probability(choice.log_tokens, shares) for shares in inside]
    return {"shares": inside.tolist(), "probability": chances}
