"""Plan a mixture: the cheapest tokens and shares that keep limits on several evaluation
sets with a stated probability; or the best shares at a budget, and how much they may vary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import RATE, checked
from bayeslaw._base.numbers import format_count, format_interval
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._law.columns import SHARE
from bayeslaw._plans.mixing.candidates import simplex_lattice
from bayeslaw._plans.mixing.question import (
    BestMixtureArguments,
    MixtureArguments,
    question_of,
)
from bayeslaw._plans.mixing.search import (
    best_of_each,
    bounds_of,
    cheapest_mixture,
    draw_back,
    least_mean,
    least_mixture,
    mean_losses,
    onto_simplex,
    reach,
)
from bayeslaw._plans.posing import pose
from bayeslaw._plans.problem import Choice, PosedPlan, Problem
from bayeslaw._plans.question import Question
from bayeslaw._plans.search import search
from bayeslaw._plans.value import quantiles
from bayeslaw._posteriors.averaging.distance import doubts_of_place, tell_distance
from bayeslaw._posteriors.pairs import fitted_range
from bayeslaw._tables.beyond import PLACE, describe_place, read_places

if TYPE_CHECKING:
    from jaxtyping import Float

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
                f"{format_interval(self.mean, '.4g')}."
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
        Model parameters: ``"1B"``.
    max_loss
        Most of a set's loss, by its name: ``{"code": 1.2}`` (nats per token),
        ``{"code": "0.9bpb"}``, ``{"code": "3.3ppl"}``, or with a sign of its rise over
        ``loss_before``, ``{"code": "-10%"}``.
    max_forgetting
        Most of a set's rise over ``loss_before``, by its name: ``{"code": "2%"}``,
        ``{"code": "0.05nats"}``. Units as `plan` reads them.
    max_mean_loss
        Most of the weighted mean of the losses, or with a sign of their rises:
        ``"+2%"``.
    weights
        Weight of a set in the mean: ``{"code": 2}``; sets without one are not in it; by
        default all alike.
    bytes_per_token
        Bytes of a token, for limits in bits per byte: ``4.2``, or by evaluation set,
        ``{"code": 3.1}``.
    confidence
        Probability of keeping all limits together.
    D
        Budget: then the mixture of the least mean loss for so many tokens, under the
        limits if there are any.
    bounds
        Least and largest share of a domain: ``{"code": ("5%", "30%")}``, or one that is
        fixed, ``{"code": "30%"}``; by default those fitted.
    unique_tokens
        Tokens there are of a domain: ``{"wiki": "3B"}``.
    max_epochs
        How often each of them may be seen: up to four times, unless the laws say what a
        repeated token is worth.
    max_tokens
        Largest budget: ``"20B"``; by default ten times the largest fitted.
    covariates
        Further columns that the laws read: ``{"source_loss_before": 2.7}``, or by
        evaluation set, ``{"loss_before": {"fr": 3.2, "de": 3.4}}``.
    baseline_run
        Limits on a rise compare with another run of this model, by the same laws and
        draws: its tokens and shares, ``{"D": "10B", "web": "70%", "code": "30%"}``.
        Domains that are left out have no share.
    costs
        Formula of the FLOPs; 6 N D by default.
    new_run
        False: limits are on the law's mean, not on the run that will be made, with its
        noise.
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


def posed_and_solved(arguments: MixtureArguments) -> PosedPlan:
    """Find the plan of `plan_mixture`, and keep the problem for further questions."""
    question = question_of(arguments)
    (model,) = question.models
    problem = pose(question, model)
    # The best choice for some draws looks too good with the same draws, so it is judged
    # by others.
    fresh = pose(replace(question, seed=question.seed + 1), model)
    if arguments.D is None:
        choice = cheapest_mixture(problem, seed=question.seed)
        if choice.is_kept:
            # the shares get as many tokens as they need with these draws
            choice = search(replace(fresh, path=(choice.levers, choice.levers)))
        else:
            choice = fresh.judge(*choice[:2])
    else:
        choice = draw_back(fresh, *least_mixture(problem, question.seed))
    told = _describe(question, fresh, choice)
    told["settings"]["max_tokens"] = model.tokens[1]
    tokens, rows = math.exp(choice.log_tokens), told["limits"]
    by_domain = _by_domain(fresh, tokens * choice.levers)
    # the limit that most draws miss, and the domains of which a plan takes all tokens
    # that may be seen, but for the search's reserve
    missed = [min(rows, key=lambda row: row["probability"])["name"]] if rows else []
    used_up = fresh.supplies_met(*choice[:2], within=-math.log(0.95))
    plan = MixturePlan(
        **told,
        D=tokens,
        atpp=tokens / fresh.N,
        flops=fresh.costs.flops_per_token(fresh.N) * tokens,
        tokens=by_domain,
        epochs={name: by_domain[name] / n for name, n in fresh.supplies.items()},
        binding=" and ".join([*missed, *used_up]),
        mean=quantiles(mean_losses(fresh, choice.levers[None])[:, 0]),
        along=_along(fresh, choice),
        region=_region(fresh, choice),
    )
    return PosedPlan(plan, fresh)


def _by_domain(
    problem: Problem, shares: Float[np.ndarray, " domain"]
) -> dict[str, float]:
    return dict(zip(problem.domains, map(float, shares), strict=True))


def _describe(question: Question, problem: Problem, choice: Choice) -> dict[str, Any]:
    """Describe a chosen run in the fields that all answers have."""
    log_losses = problem.log_losses_at(*choice[:2])
    pairs = zip(problem.constraints, log_losses, strict=True)
    limited = [(c, of_limit) for c, of_limit in pairs if math.isfinite(c.limit)]
    return {
        "feasible": choice.is_kept,
        "probability": float(problem.kept_share(log_losses)),
        "N": problem.N,
        "shares": _by_domain(problem, choice.levers),
        "limits": [
            {
                "name": c.name,
                "limit": c.limit,
                "unit": c.unit,
                "max_loss": float(np.exp(c.log_limit.mean())),
                "probability": float((log_loss <= c.log_limit).mean()),
                **quantiles(c.outcome(log_loss)),
            }
            for c, log_loss in limited
        ],
        "settings": _tell_settings(question, problem),
        **_place(question, problem, choice),
    }


def _tell_settings(question: Question, problem: Problem) -> dict[str, Any]:
    (model,) = question.models
    fewest, most = model.tokens
    baseline_run = {}
    if model.baseline_run is not None:
        tokens, shares = model.baseline_run
        baseline_run = {"D": tokens} | _by_domain(problem, shares)
    return {
        "D": most if fewest == most else None,
        "confidence": question.confidence,
        "weights": {name: question.weights.get(name, 0.0) for name in problem.sets},
        "least": _by_domain(problem, problem.least),
        "largest": _by_domain(problem, problem.largest),
        "unique_tokens": dict(problem.supplies),
        "max_epochs": problem.epochs,
        "covariates": {name: dict(row) for name, row in model.columns.items()},
        "baseline_run": baseline_run,
        "new_run": question.new_run,
        "draws": question.draws,
        "seed": question.seed,
    }


def _place(
    question: Question, problem: Problem, choice: Choice, near: float = 1e-3
) -> dict[str, Any]:
    """Tell where a chosen run lies: its ``distance``, as `tell_distance` does, and
    ``warnings``: those of the fits, and of plans at an end of a range.
    """
    posteriors, (model,) = question.posteriors, question.models
    columns = {c: x for row in model.columns.values() for c, x in row.items()}
    run = columns | {"D": math.exp(choice.log_tokens)}
    lines = [f"{n}: {x}" for n, p in posteriors.items() for x in p.warnings]
    lines += [*question.notes, *doubts_of_place(posteriors, run)]
    for name, share, low, high in zip(
        problem.domains, choice.levers, problem.least, problem.largest, strict=True
    ):
        least, most = fitted_range(posteriors, f"{SHARE}{name}") or (0.0, 1.0)
        at = "largest" if high - share < near else ""
        at = "least" if share - low < near else at
        is_given = name not in problem.fitted
        if is_given and not least - near < share < most + near:
            lines.append(
                f"the share of {name}, {share:.1%}, lies beyond those that were "
                f"fitted ({least:.1%} to {most:.1%}): nothing was checked there"
            )
        elif not is_given and at:
            lines.append(
                f"the share of {name}, {share:.1%}, is the {at} that was fitted: "
                f"beyond it nothing was checked; bounds={{{name!r}: (0, 1)}} looks "
                f"there (--share {name}=0:100%; of report --plan "
                f"share_{name}=0:100%)"
            )
    return {"distance": tell_distance(posteriors, run), "warnings": lines}


def _along(
    problem: Problem, choice: Choice, points: int = 13
) -> dict[str, dict[str, Any]]:
    """Compute probabilities and losses along each share; others move least."""
    rows, log_tokens = {}, np.array([choice.log_tokens])
    least, most = bounds_of(problem)
    for j, name in enumerate(problem.domains):
        ends = least.sum() - least[j], most.sum() - most[j]
        shares = np.linspace(
            max(least[j], 1 - ends[1]), min(most[j], 1 - ends[0]), points
        )
        low, high = (np.tile(end, (points, 1)) for end in (least, most))
        low[:, j] = high[:, j] = shares
        mixtures = onto_simplex(np.tile(choice.levers, (points, 1)), low, high)
        log_losses = problem.log_losses(log_tokens, mixtures)
        pairs = zip(problem.constraints, log_losses, strict=True)
        rows[name] = {
            "share": shares.tolist(),
            "probability": problem.kept_share(log_losses)[:, 0].tolist(),
            "losses": {
                c.name: quantiles(np.exp(of_limit[..., 0]))
                for c, of_limit in pairs
                if math.isfinite(c.limit)
            },
        }
    return rows


def _region(problem: Problem, choice: Choice, steps: int = 20) -> dict[str, list[Any]]:
    if len(problem.domains) != 3:
        return {}
    mixtures, (low, high) = simplex_lattice(3, steps), bounds_of(problem)
    slack = 0.5 / steps
    is_within = (mixtures >= low - slack) & (mixtures <= high + slack)
    inside = onto_simplex(mixtures[is_within.all(axis=1)], low, high)
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
        value = format_interval(self.loss, ".4g")
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
    max_loss, max_forgetting, max_mean_loss, bytes_per_token, confidence
        Upper limits as in `plan_mixture`, and the probability with which all are kept
        together; by default there is none. `optimum` leaves them aside.
    weights, bounds, unique_tokens, max_epochs, covariates, baseline_run, new_run
        As for `plan_mixture`.
    tolerance
        Share of the loss within which mixtures count as good as the best.
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
    question = question_of(arguments)
    (model,) = question.models
    problem = pose(question, model)
    least = least_mixture(problem, question.seed)
    of_each = best_of_each(problem, least_mean(problem))
    judge = problem
    if problem.limits:
        # limits look too well kept by the draws that chose the mixture: others judge it
        judge = pose(replace(question, seed=question.seed + 1), model)
    choice = draw_back(judge, *least)
    losses = mean_losses(judge, choice.levers[None])[:, 0]
    free = {}
    for j, name in enumerate(problem.domains):
        # a share may not move at all where no limits are kept
        low = high = float(choice.levers[j])
        if choice.is_kept:
            most = losses.mean() * (1 + tolerance)
            low, high = reach(judge, j, choice.levers, most)
        free[name] = {"low": low, "high": high}
    told = _describe(question, judge, choice)
    if not problem.limits:
        told["probability"] = None
    return BestMixture(
        **told,
        D=model.tokens[1],
        loss=quantiles(losses),
        optimum={
            name: quantiles(of_each[:, j]) for j, name in enumerate(problem.domains)
        },
        free=free,
        tolerance=tolerance,
    )


# -- words -----------------------------------------------------------------------------


def _name_mean(settings: Mapping[str, Any]) -> str:
    weights = settings["weights"]
    alike = len({*weights.values()}) == 1
    return "mean loss" if alike else f"mean loss ({_list_shares(weights)})"


def _list_shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _list_chances(limits: Sequence[Mapping[str, Any]], probability: float) -> str:
    of_each = ", ".join(f"{row['name']} {row['probability']:.1%}" for row in limits)
    return f"All limits are kept with probability {probability:.1%} ({of_each})"
