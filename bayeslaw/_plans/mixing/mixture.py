"""Plan a mixture: the cheapest tokens and shares that keep limits on several evaluation
sets with a stated probability; or the best shares at a budget, and how much they may vary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import COUNT, RATE, checked
from bayeslaw._base.numbers import format_count
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._costs.costs import Costs
from bayeslaw._plans.mixing.candidates import simplex_lattice
from bayeslaw._plans.mixing.problem import (
    BestMixtureArguments,
    MixtureArguments,
    MixtureChoice,
    MixtureProblem,
    kept_share,
    pose,
    quantiles,
)
from bayeslaw._plans.mixing.search import (
    best_of_each,
    draw_back,
    least_mean,
    least_mixture,
    onto_simplex,
    reach,
    search,
)
from bayeslaw._tables.beyond import PLACE, describe_place, read_places

# keys in JSON of a limit, and of the question
LIMIT = {"name unit": str, f"limit max_loss probability {INTERVAL}": float}
QUESTION = {
    "confidence max_epochs D? max_tokens?": float,
    "weights least largest unique_tokens": dict[str, float],
    "covariates": dict[str, dict[str, float]],
    "baseline_run": dict[str, float],
    "new_run": bool,
    "draws seed": int,
}


@dataclass(frozen=True, repr=False)
class MixturePlan(Shown):
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
        For each limit: ``name``, ``limit``, ``unit`` (as in `Plan`), ``max_loss`` (the
        limit on the loss in nats per token), ``probability``, and ``median``, ``low``,
        ``high`` (90%) of the loss, or of its rise.
    binding
        The limit that most draws miss, and the tokens of domains whose unique tokens are
        used up; empty without either.
    mean
        ``median``, ``low``, ``high`` (90%) of the weighted mean of the losses.
    along
        For each domain its ``share`` over the bounds. For each share, at the plan's
        tokens and the nearest mixture: the ``probability``, and ``losses`` by limit in
        nats per token, as ``median``, ``low``, ``high`` (90%).
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

    KEYS: ClassVar = {
        "*": ...,
        "limits": [LIMIT],
        "along": {
            "**": {
                "share probability": list[float],
                "losses": {"**": {INTERVAL: list[float]}},
            }
        },
        "region": {"shares?": list[list[float]], "probability?": list[float]},
        "settings": QUESTION,
        "mean": INTERVAL,
        "distance": {"**": PLACE},
    }

    def sentence(self) -> str:
        """Describe the plan in words."""
        opening = f"Train N = {format_count(self.N)} on {format_count(self.D)} tokens"
        if not self.feasible:
            opening = (
                "No mixture within the bounds reaches the confidence; most probable: "
                f"{format_count(self.D)} tokens"
            )
        place = describe_place(read_places(self.distance))
        lines = [
            f"{opening} ({self.flops:.2g} FLOPs): {_list_shares(self.shares)}"
            + (f"; {place}." if place else ".")
        ]
        is_best = self.settings.get("D") is not None and self.feasible
        if is_best:
            lines.append(
                f"The {_name_mean(self.settings)} is least there, "
                f"{_format_interval(self.mean)}."
            )
        if self.limits:
            # at a budget the least mean decides, and no limit need bind
            bound = "" if is_best else f"; bound by {self.binding}"
            lines.append(f"{_list_chances(self.limits, self.probability)}{bound}.")
        return "\n".join(lines)

    def table(self) -> pd.DataFrame:
        """Make a table of the limits, by name."""
        return pd.DataFrame(self.limits).set_index("name")


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
        Upper limit on a set's loss, by its name, with its unit as `plan` reads it: in
        nats per token, ``"0.9bpb"``, ``"6.5ppl"``, or with a sign on its rise over
        ``loss_before``, ``"-10%"``.
    max_forgetting
        Upper limit on a set's rise over the loss before adaptation, by its name: ``0.02``,
        ``"2%"``, ``"0.05nats"``, ``"0.03bpb"``, ``"3%ppl"``.
    max_mean_loss, weights
        Upper limit on the mean of the losses, or with a sign of their rises, and the
        weight of each set in it, of which those not named have none; by default equal
        weights.
    bytes_per_token
        Bytes of a token, or by evaluation set, for limits in bits per byte.
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
    baseline_run
        Another run of this model as the baseline of limits on a rise, by the same laws
        and draws, in place of ``loss_before``: its tokens and shares, ``{"D": 10e9,
        "web": 0.7, "code": 0.3}``. Domains that are left out have no share.
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
    problem: MixtureProblem


def posed_and_solved(arguments: MixtureArguments) -> PosedMixture:
    """Find the plan of `plan_mixture`, and keep the problem for further questions.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    problem = pose(arguments)
    # The best choice for some draws looks too good with the same draws, so it is judged
    # by others.
    fresh = pose(replace(arguments, seed=arguments.seed + 1))
    if arguments.D is None:
        choice = search(problem, seed=arguments.seed)
        # the shares get as many tokens as they need with these draws
        needed = fresh.cheapest(choice.shares) if choice.is_kept else None
        choice = fresh.choice(
            choice.log_tokens if needed is None else needed, choice.shares
        )
    else:
        choice = draw_back(fresh, *least_mixture(problem))
    told = fresh.describe(choice)
    tokens, rows = math.exp(choice.log_tokens), told["limits"]
    by_domain = fresh.by_domain(tokens * choice.shares)
    # the limit that most draws miss, and the domains of which a plan takes all tokens
    # that may be seen, but for the search's reserve
    missed = [min(rows, key=lambda row: row["probability"])["name"]] if rows else []
    supply = zip(by_domain.items(), fresh.supply, strict=True)
    used_up = [f"tokens of {name}" for (name, n), most in supply if n >= 0.95 * most]
    settings = problem.settings() | {
        "D": arguments.D and checked("D", arguments.D, COUNT),
        "max_tokens": fresh.tokens[1],
    }
    plan = MixturePlan(
        **told,
        D=tokens,
        atpp=tokens / fresh.size,
        flops=(arguments.costs or Costs()).flops_per_token(fresh.size) * tokens,
        tokens=by_domain,
        epochs={
            name: by_domain[name] / there
            for name, there in settings["unique_tokens"].items()
        },
        probability=choice.probability,
        binding=" and ".join([*missed, *used_up]),
        mean=quantiles(fresh.mean_losses(choice.log_tokens, choice.shares)),
        along=_along(fresh, choice),
        region=_region(fresh, choice),
        settings=settings,
    )
    return PosedMixture(plan, fresh)


def _along(
    problem: MixtureProblem, choice: MixtureChoice, points: int = 13
) -> dict[str, dict[str, Any]]:
    """Compute probabilities and losses along each share, with the other shares as near
    to the plan's as possible.
    """
    rows, log_tokens = {}, np.array([choice.log_tokens])
    for j, name in enumerate(problem.domains):
        ends = problem.low.sum() - problem.low[j], problem.high.sum() - problem.high[j]
        shares = np.linspace(
            max(problem.low[j], 1 - ends[1]), min(problem.high[j], 1 - ends[0]), points
        )
        low = np.tile(problem.low, (points, 1))
        high = np.tile(problem.high, (points, 1))
        low[:, j] = high[:, j] = shares
        mixtures = onto_simplex(np.tile(choice.shares, (points, 1)), low, high)
        below = problem.below(log_tokens, mixtures)[..., 0]
        rows[name] = {
            "share": shares.tolist(),
            "probability": kept_share(below).tolist(),
            "losses": {
                limit.name: quantiles(np.exp(limit.log_limit[:, None] - of_limit))
                for limit, of_limit in zip(problem.limits, below, strict=True)
            },
        }
    return rows


def _region(
    problem: MixtureProblem, choice: MixtureChoice, steps: int = 20
) -> dict[str, list[Any]]:
    if len(problem.domains) != 3:
        return {}
    mixtures = simplex_lattice(3, steps)
    slack = 0.5 / steps
    is_within = (mixtures >= problem.low - slack) & (mixtures <= problem.high + slack)
    inside = onto_simplex(mixtures[is_within.all(axis=1)], problem.low, problem.high)
    chances = problem.probabilities(np.array([choice.log_tokens]), inside)[:, 0]
    return {"shares": inside.tolist(), "probability": chances.tolist()}


@dataclass(frozen=True, repr=False)
class BestMixture(Shown):
    """The mixture with the lowest mean loss. Every field can be stored in JSON.

    Parameters
    ----------
    N, D
        Model and tokens.
    shares
        By domain: the shares with the lowest posterior mean of the weighted loss.
    loss
        ``median``, ``low``, ``high`` (90%) of the weighted loss there.
    optimum
        By domain: ``low``, ``median``, ``high`` (90%) of the best share of each draw.
        It shows how sure the optimum is.
    free
        By domain: ``low``, ``high`` of the shares at which some mixture's mean loss is
        within the tolerance of the lowest.
    tolerance
        As a share of the loss.
    feasible, probability
        Whether the limits are kept with the confidence; if not, the mixture is the most
        probable one. The probability is that of draws that were not searched; None
        without limits.
    limits
        As in `MixturePlan`.
    settings, warnings
        The question, and warnings about the answer.
    distance
        As in `Plan`, of ``N`` and ``D/N``.
    """

    N: float
    D: float
    shares: dict[str, float]
    loss: dict[str, float]
    optimum: dict[str, dict[str, float]]
    free: dict[str, dict[str, float]]
    tolerance: float
    feasible: bool = True
    probability: float | None = None
    limits: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    distance: dict[str, dict[str, Any]] = field(default_factory=dict)

    KEYS: ClassVar = {
        "*": ...,
        "loss": INTERVAL,
        "optimum": {"**": INTERVAL},
        "free": {"**": "low high"},
        "limits": [LIMIT],
        "settings": QUESTION,
        "distance": {"**": PLACE},
    }

    def sentence(self) -> str:
        """Describe the answer in words."""
        mixture = _list_shares(self.shares)
        at = f"At N = {format_count(self.N)}, D = {format_count(self.D)}"
        place = describe_place(read_places(self.distance))
        at += f", {place}," if place else ""
        value = _format_interval(self.loss)
        odds = ""
        if self.limits:
            odds = f"{_list_chances(self.limits, self.probability or 0)}."
        if not self.feasible:
            return (
                f"{at} no mixture within the bounds reaches the confidence; most "
                f"probable: {mixture}, with a {_name_mean(self.settings)} of "
                f"{value}.\n{odds}"
            )
        width = {name: ends["high"] - ends["low"] for name, ends in self.free.items()}
        least = max(width, key=lambda name: width[name])
        ends = self.free[least]
        under = " under the limits" if self.limits else ""
        mean = _name_mean(self.settings)
        lines = [f"{at} the {mean} is least{under}, {value}, with {mixture}.", odds]
        if width[least] > 1e-6:  # not all shares are fixed
            lines.append(
                f"The share of {least} matters least: from {ends['low']:.1%} to "
                f"{ends['high']:.1%} some mixture is within {self.tolerance:.2%} of that."
            )
        return "\n".join(line for line in lines if line)

    def table(self) -> pd.DataFrame:
        """Make a table of the shares, by domain."""
        rows = {
            name: {
                "best": share,
                "sure from": self.optimum[name]["low"],
                "to": self.optimum[name]["high"],
                "free from": self.free[name]["low"],
                "free to": self.free[name]["high"],
            }
            for name, share in self.shares.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")


@takes(BestMixtureArguments, PlanError)
def best_mixture(arguments: BestMixtureArguments) -> BestMixture:
    """Find the mixture of the least weighted mean of losses at a budget, among those
    that keep limits with probability ``confidence``.

    Parameters
    ----------
    losses
        Posteriors by evaluation set, independent of each other.
    N, D
        Model parameters and tokens.
    weights
        Weight of each set in the mean, in which sets that are not named have none; by
        default equal weights.
    max_loss, max_forgetting, max_mean_loss, bytes_per_token, confidence
        Upper limits as in `plan_mixture`, and the probability with which all are kept
        together; by default there is none. `optimum` leaves them aside.
    bounds, unique_tokens, max_epochs, baseline_run
        As in `plan_mixture`.
    tolerance
        Share of the loss within which mixtures count as good as the best.
    covariates
        Further columns that the laws read, each a number or numbers by evaluation set:
        ``{"loss_before": {"fr": 3.2, "de": 3.4}, "source_loss_before": 2.7}``.
    new_run
        True: the loss of a new run, with its noise. False: the law's mean.
    draws, seed
        Number of draws, and the seed that pairs them.

    Raises
    ------
    PlanError
        The question is ill-posed: an unknown set or domain, bounds that leave no
        mixture.

    Examples
    --------
    >>> runs = bayeslaw.simulate("mixture-coupled", design="mixtures", seed=1)
    >>> web = bayeslaw.fit(runs, "mixture-coupled", preview=True)
    >>> best = bayeslaw.best_mixture({"web": web}, N=1e9, D=2e10)
    >>> max(best.shares, key=best.shares.get)
    'web'
    """
    tolerance = checked("tolerance", arguments.tolerance, RATE)
    problem = pose(arguments)
    least = least_mixture(problem)
    of_each = best_of_each(problem, least_mean(problem))
    judge = problem
    if problem.limits:
        # limits look too well kept by the draws that chose the mixture: others judge it
        judge = pose(replace(arguments, seed=arguments.seed + 1))
    choice = draw_back(judge, *least)
    losses = judge.mean_losses(choice.log_tokens, choice.shares)
    free = {}
    for j, name in enumerate(problem.domains):
        # a share may not move at all where no limits are kept
        low = high = float(choice.shares[j])
        if choice.is_kept:
            most = losses.mean() * (1 + tolerance)
            low, high = reach(judge, j, choice.shares, most)
        free[name] = {"low": low, "high": high}
    return BestMixture(
        **judge.describe(choice),
        D=problem.tokens[1],
        settings=problem.settings() | {"D": problem.tokens[1]},
        loss=quantiles(losses),
        optimum={
            name: quantiles(of_each[:, j]) for j, name in enumerate(problem.domains)
        },
        free=free,
        tolerance=tolerance,
        probability=choice.probability if problem.limits else None,
    )


# -- words -----------------------------------------------------------------------------


def _name_mean(settings: Mapping[str, Any]) -> str:
    """Name the mean loss, with the weights of the sets if they are not alike."""
    weights = settings["weights"]
    alike = len({*weights.values()}) == 1
    return "mean loss" if alike else f"mean loss ({_list_shares(weights)})"


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _format_interval(loss: Mapping[str, float]) -> str:
    return f"{loss['median']:.4g} ({loss['low']:.4g} to {loss['high']:.4g})"


def _list_chances(limits: Sequence[Mapping[str, Any]], probability: float) -> str:
    """Say how probable it is that limits are kept: together, and each by itself."""
    of_each = ", ".join(f"{row['name']} {row['probability']:.1%}" for row in limits)
    return f"All limits are kept with probability {probability:.1%} ({of_each})"
