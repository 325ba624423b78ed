"""Plan the cheapest adaptation (tokens and replay) that keeps its promises with a
stated probability.

Solves min D over D >= 0 and replay in [0, 1] such that P(forgetting <= delta and target
loss <= tau) >= confidence under the joint posterior of target and source: the problem
of Goffinet 2025, section 4, with its two constraints made one chance constraint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.numbers import format_count
from bayeslaw._base.shown import as_json
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw._plans import value
from bayeslaw._plans.arguments import PlanArguments
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.posing import point_pieces, pose
from bayeslaw._plans.problem import AT_A_BOUND, Choice, PosedPlan, Problem
from bayeslaw._plans.question import Model, Question
from bayeslaw._plans.reading import ATPP_RANGE, question_of
from bayeslaw._plans.result import Plan, list_ways
from bayeslaw._plans.sampled import DRAWS
from bayeslaw._plans.search import expected_cost, least_expected_cost, search
from bayeslaw._posteriors.averaging.distance import doubts, tell_distance
from bayeslaw._posteriors.posterior import Piece


@takes(PlanArguments, PlanError)
def plan(arguments: PlanArguments) -> Plan:
    """Find the cheapest adaptation that keeps its promises with probability
    ``confidence``.

    Parameters
    ----------
    target, source
        Posteriors of the target and source loss; several of either by name.
    N
        Model parameters: ``"8.1B"``; of several the cheapest model is chosen, by money
        if ``costs`` have a ``price``, else by days if they have ``hardware``, else by
        FLOPs.
    ptpp
        Pre-training tokens per parameter: ``43``; one, or one for each ``N``; needed
        where a law reads them.
    max_target_loss
        Target loss to reach: nats per token; ``"0.9bpb"`` (bits per byte, with
        ``bytes_per_token``); ``"6.5ppl"`` (perplexity); with a sign over
        ``loss_before``, or over ``baseline_run``: ``"-10%"``, ``"-0.2nats"``,
        ``"-0.03bpb"``, ``"-20%ppl"``; of several targets ``{"fi": 1.8, "sv": "-5%"}``;
        not needed with ``min_accuracy``.
    min_accuracy
        Least accuracy of an evaluation, by the link of ``accuracy``: ``"60%"``. The
        promise is called ``accuracy`` and is stated as the share of wrong answers.
    accuracy
        The link from the first target's loss to it: an `accuracy_link`, or its table.
    max_forgetting
        Rise of the source loss over its baseline: ``"2%"``, ``"0.05nats"``,
        ``"0.03bpb"``, ``"3%ppl"``; or by source, ``{"code": "2%", "en": "1%"}``; not
        needed with ``max_mean_loss`` or ``max_loss``. A number is a share, or with
        ``forgetting_unit="nats"`` in nats per token; a share of 1 or more is refused,
        because percent are meant. Sources without a limit are limited in their mean
        only.
    bytes_per_token
        Bytes of a token, for limits in bits per byte: ``4.2``, or by domain,
        ``{"target": 4.2, "code": 3.1}``.
    max_loss
        Loss of a third domain, by its name in ``source``, in place of its forgetting:
        ``{"code": 1.2}``. It needs no baseline; if its law reads ``loss_before``, give
        that by name in ``baseline_loss``. Units as in ``max_target_loss``.
    max_mean_loss
        Limit on the weighted mean of all sources: ``"+0.03bpb"`` or ``"+2%"`` of their
        rises, ``2.9`` of their losses. The promise is called ``mean``.
    mean_weights
        Weights of that mean, by domain: ``{"web": 2, "code": 1}``; by default all
        sources alike.
    excess_price
        Soft limits: the price of a nat over each, by its name, ``{"forgetting":
        50000}``, in money if ``costs`` have a ``price``, else in days or FLOPs; the
        least expected cost of training and excess is then sought. The other limits are
        kept with the confidence.
    confidence
        Probability of keeping all promises together; or of each, ``{"target": 0.9,
        "forgetting": 0.95}`` (several sources: their names).
    baseline_loss
        Measured source loss before adaptation; or by source, ``{"web": 1.64, "code":
        0.92}``; one, or one for each ``N``. By default the covariate
        ``source_loss_before``.
    baseline_tokens
        Else the source law at this budget of pure replay: ``"1B"``. By default 0, which
        a law that diverges there refuses.
    baseline_run
        Limits on a rise compare with another run of this model, by the same laws and
        draws: ``{"D": "10B", "replay": "30%"}``.
    correlation
        Correlation of the errors of target and source; by default that of their
        residuals at rows measured in both domains, shrunk by its uncertainty; ``0``:
        independent. It pairs the draws (`error_correlation`). This changes only the
        probability of all promises together.
    covariates
        Further columns that the laws read: ``{"loss_before": 2.3}``. A number, or draws
        of shape (draw,) that another posterior forecasts. With several models, a
        sequence with one for each model. ``max_forgetting``, baselines and
        ``source_loss_before`` may be given by source's name.
    max_flops, max_tokens
        Budget of adaptation: then the most probable plan within it; among equally
        probable plans, the cheapest.
    costs
        Costs of training (`Costs`): hardware, price, formula of the FLOPs; by default 6
        N D FLOPs.
    max_cost
        Money that the plan may cost at most (with ``price``). Within ``max_cost`` and
        ``max_days`` the answer is the cheapest plan, if there is one, else the most
        probable plan.
    max_days
        Days that it may take at most: ``3``, ``"36h"`` (with ``hardware``).
    unique_target_tokens
        Target tokens there are: D (1 - replay) is at most as many, times
        ``max_epochs``.
    max_epochs
        How often each of them may be seen; by default once, or with a law of repetition
        (one that reads ``U``, as `data-constrained` does) as often as the fitted runs
        saw theirs. Without such a law, it is at most that, or four.
    min_replay
        Least replay; by default the least fitted; ``0``: any.
    max_replay
        Largest replay; by default the largest fitted, beyond which nothing was checked;
        ``"100%"``: any less.
    new_run
        False: promises are about the law's mean, not about the run that will be made,
        with its noise.
    point
        Parameter values by promise for the plug-in plan, without uncertainty (a point
        fit; `Law.from_paper`); by default the posterior mean of the law with most
        draws.
    draws, seed
        Number of pairs of draws, and the seed that pairs them and draws the noise.

    Raises
    ------
    PlanError
        The question is ill-posed: a keyword unknown or missing, a number out of range,
        a covariate or a baseline missing.

    Examples
    --------
    >>> limits = {"max_target_loss": 1.9, "max_forgetting": "3%"}
    >>> planned = bayeslaw.plan(target, source, N=8.1e9, ptpp=279, baseline_loss=1.64, **limits)
    >>> planned.feasible, bool(planned.probability >= 0.9)
    (True, True)
    """
    return answered(question_of(arguments)).plan


# `question_of`, given the arguments of `plan`
posed = takes(PlanArguments, PlanError, name="plan")(question_of)


def answered(question: Question) -> PosedPlan:
    """Solve a question, and tell where its plan lies relative to the fitted runs."""
    certain = point_pieces(question, question.point)
    prices = question.excess_price
    solutions = [_solve_model(question, model) for model in question.models]
    best = min(solutions, key=lambda solution: solution.rank(prices))
    problem, choice = best.problem, best.choice

    # pictures need a finite, positive budget; without a plan, promises need one, too
    pictured = problem.at_finite_tokens(choice)
    at, explanation = choice, None
    if not best.is_plan:
        at = choice._replace(log_tokens=math.inf)
    if not best.is_reached:
        shown = value.budget(problem, *pictured[:2])
        explanation = _explain(problem, choice) | {"shown": shown}
    names = ("probability", "probability_target", "probability_forgetting")
    chances = dict.fromkeys(names)
    if best.is_plan:
        chances |= value.probabilities(problem, *at[:2])

    worth = {}
    if prices:
        binding = f"the price of {', '.join(prices)}"
    elif best.is_plan and choice.log_tokens > -math.inf:
        worth = value.worth(problem, pictured)
        binding = value.binding(problem, choice, worth)
    else:
        binding = name_in_the_way(explanation)
    answer = Plan(
        feasible=best.is_reached,
        N=problem.N,
        ptpp=problem.ptpp,
        **value.budget(problem, *at[:2]),
        **chances,
        binding=binding,
        plug_in=_plug_in(question, best, certain),
        confidence=cast(Any, problem.confidence),
        promises=value.promises(problem, at if best.is_plan else pictured, worth),
        frontier=value.frontier(problem, search(problem) if prices else choice),
        region=value.region(problem, pictured.log_tokens),
        tradeoff=value.tradeoff(problem, pictured.log_tokens),
        truth=value.perfect_information(problem, at),
        candidates=[solution.describe() for solution in solutions],
        explanation=explanation,
        settings=_tell_settings(question, best),
        warnings=list(question.warnings),
    )

    # the plan's run; without a plan, the most probable attempt
    most_probable = answer.most_probable()
    (name, target), *others = question.posteriors.items()
    run = {c: x for c, x in best.model.columns[name].items() if np.ndim(x) == 0}
    if most_probable["D"]:
        run |= {name: most_probable[name] for name in ("D", "replay")}
    baselines = {*answer.settings["baseline"].values()}
    if len(baselines) == 1:
        run |= {SOURCE_LOSS_BEFORE: baselines.pop()}
    more = doubts(target, dict(others), run) + _doubt_ends(answer)
    far = tell_distance(question.posteriors, run)
    answer = replace(answer, warnings=answer.warnings + more, distance=far)
    return PosedPlan(answer, best.posed)


def _doubt_ends(answer: Plan) -> list[str]:
    """Warn if the plan has the smallest budget of the search, or if it (or the most
    probable attempt) lies at an end of the fitted replays.
    """
    lines, least = [], ATPP_RANGE[0]
    # within a thousandth in log tokens it is the smallest budget of the search
    if answer.atpp and math.log(answer.atpp / least) <= 1e-3:
        lines.append(
            "the promises hold already at the least budget that is looked at "
            f"({least:g} tokens per parameter), so the cheapest may be any under it: "
            "look at the limits again"
        )
    replay = None if answer.D == 0 else answer.most_probable()["replay"]
    what = "the cheapest plan" if answer.feasible else "the most probable plan"
    for name, at, end in (("min_replay", "least", 0), ("max_replay", "largest", 1)):
        bound = answer.settings[name]
        is_fitted = name in answer.settings["fitted"]
        if is_fitted and replay is not None and abs(replay - bound) < AT_A_BOUND:
            lines.append(
                f"{what} is at the {at} fitted replay, {bound:.4g}: beyond it nothing was "
                f"checked, and no plan is sought; to seek one there give {name}={end} "
                f"(--{name.replace('_', '-')} {end})"
            )
    return lines


@takes(PlanArguments, PlanError, name="plan")
def problem_of(arguments: PlanArguments) -> Problem:
    """Pose the problem that `plan` solves for its first model, given the same question."""
    return pose(question_of(arguments))


# -- one model -------------------------------------------------------------------------


class Solution(NamedTuple):
    """A model's problem and its best choice."""

    model: Model
    posed: Problem  # as the question poses it
    # as it was solved: with the limit on its bill as a budget, if the cheapest plan
    # exceeds it
    problem: Problem
    choice: Choice

    @property
    def is_reached(self) -> bool:
        return self.choice.is_kept

    @property
    def is_plan(self) -> bool:
        """Tell whether there is a plan; within a budget any choice is one."""
        return self.is_reached or (
            self.problem.most_probable and math.isfinite(self.choice.log_tokens)
        )

    def rank(
        self, excess_prices: Mapping[str, float] | None = None
    ) -> tuple[float, float]:
        """Compute a sort key: confidence, then price; within a budget probability."""
        problem, choice = self.problem, self.choice
        short = max(-choice.margin, 0.0)
        if excess_prices:
            expected = expected_cost(problem, excess_prices, *choice[:2])
            return short, expected["cost"]
        tokens = float(np.exp(choice.log_tokens))
        price = problem.costs.of_run(problem.N, tokens, problem.ptpp).price
        if problem.most_probable:
            return max(-choice.margin, -1.0), price
        return (-2.0 if self.is_reached else short), price

    def describe(self) -> dict[str, Any]:
        """Describe a candidate model, or its most probable attempt, in a list."""
        problem, at = self.problem, (self.choice.log_tokens, self.choice.replay)
        row = {"N": problem.N, "ptpp": problem.ptpp, "feasible": self.is_reached}
        probability = value.probabilities(problem, *at)["probability"]
        return row | value.budget(problem, *at) | {"probability": probability}


def _solve_model(question: Question, model: Model) -> Solution:
    posed = problem = pose(question, model)
    if question.excess_price:
        choice = least_expected_cost(problem, question.excess_price)
        return Solution(model, posed, problem, choice)
    nothing = problem.judge(-math.inf, problem.least)
    if nothing.is_kept:
        return Solution(model, posed, problem, nothing)
    choice = search(problem)
    # The cheapest plan costs more than allowed, so no affordable plan reaches the
    # confidence.
    paid = question.budget.paid_tokens(model)
    cap = min(paid, key=paid.__getitem__)
    if choice.log_tokens > math.log(paid[cap]):
        problem = replace(problem, max_tokens=paid[cap], cap=cap)
        choice = search(problem, posed.scan)
    return Solution(model, posed, problem, choice)


def _plug_in(
    question: Question, solution: Solution, certain: Mapping[str, tuple[Piece, ...]]
) -> dict[str, float | None]:
    """Find the plan without uncertainty, and its probability by the posterior."""
    # all draws are the same one, as many as one call evaluates
    few = min(question.draws, DRAWS)
    sure = replace(question, pieces=certain, new_run=False, draws=few)
    if question.link is not None:
        sure = replace(sure, link=question.link.at_means())
    model = solution.model.at_means()
    sure = pose(sure, model)
    choice = search(replace(sure, confidence=1.0, max_tokens=math.inf))
    log_tokens, replay = choice[:2]
    most = min(sure.max_tokens, *question.budget.paid_tokens(model).values())
    if choice.margin < 0 or log_tokens > math.log(most):
        nothing = value.budget(solution.problem, *value.NO_CHOICE)
        return nothing | {"probability": None}
    row = value.budget(solution.problem, log_tokens, replay)
    is_kept = solution.problem.kept(log_tokens, replay).all(axis=0)
    return row | {"probability": float(is_kept.mean())}


def _tell_settings(question: Question, solution: Solution) -> dict[str, Any]:
    """Record the parts of the question that the other fields of the plan do not have,
    and what correlated errors and soft limits do.
    """
    problem, choice = solution.problem, solution.choice
    baselines = {
        c.name: float(c.baseline.mean())
        for c in problem.constraints
        if UNITS[c.unit].has_baseline
    }
    settings: dict[str, Any] = {"baseline": baselines, "asked": question.budget.asked()}
    settings["max_tokens"] = as_json(float(problem.max_tokens))
    if problem.costs.has_time:
        settings["costs"] = problem.costs.sentence(problem.N)
        limits = dict.fromkeys(COST_LIMITS, math.inf) | dict(
            question.budget.cost_limits
        )
        settings |= {name: as_json(float(most)) for name, most in limits.items()}
    settings |= {
        **{supply.setting: problem.seen.get(name) for name, supply in SUPPLIES.items()},
        "min_replay": problem.least,
        "max_replay": problem.largest,
        "fitted": list(problem.fitted),
        "new_run": question.new_run,
        "draws": problem.draws,
        "seed": question.seed,
        "notes": list(question.notes),
    }
    prices, errors = question.excess_price, question.errors
    if prices:
        expected = expected_cost(problem, prices, *choice[:2])
        settings["soft"] = {"prices": dict(prices)} | expected
    elif errors is not None:
        # the plan's probability for independent errors, and the tokens that it would take
        independent = pose(replace(question, errors=None), solution.model)
        independent = replace(independent, max_tokens=problem.max_tokens)
        probability = None
        if solution.is_plan:
            is_kept = independent.kept(*choice[:2]).all(axis=0)
            probability = float(is_kept.mean())
        alternative = search(independent)
        tokens = math.exp(alternative.log_tokens) if alternative.margin >= 0 else None
        settings["errors"] = {
            "sentence": errors.sentence(),
            "names": list(errors.names),
            "correlation": errors.matrix.tolist(),
            "probability_if_independent": probability,
            "D_if_independent": tokens,
        }
    return settings


# -- why there is none -----------------------------------------------------------------


def name_in_the_way(explanation: Mapping[str, Any] | None) -> str:
    """Name the constraints that must be relaxed for a plan, joined by "and"."""
    rows: Sequence[Mapping[str, Any]] = explanation["relax"] if explanation else ()
    names = [row["promise"] for row in rows if row["needed"] is not None]
    names += [row["cap"] for row in (explanation or {}).get("caps", ())]
    # no limit is in the way alone: all of them are together
    return " and ".join(names or [row["promise"] for row in rows]) or "none"


def _explain(problem: Problem, choice: Choice) -> dict[str, Any]:
    """Explain why there is no plan at the most probable choice, and what would allow one."""

    def place(row: Mapping[str, Any]) -> str:
        if not row["atpp"]:
            return " without adapting"
        return (
            f" at {row['atpp']:.3g} tokens per parameter "
            f"({format_count(problem.N * row['atpp'])} tokens) with "
            f"{row['replay']:.0%} replay"
        )

    relax, caps = value.relaxations(problem), value.caps_in_the_way(problem)
    best = value.budget(problem, *choice[:2])
    best |= value.probabilities(problem, *choice[:2])
    ways = list_ways(relax, caps, place)
    where = f",{place(best)}" if best["atpp"] else ""
    advice = "Relaxing one promise alone does not help"
    if ways:
        advice = f"Relax one: {'; '.join(ways)}"
    message = (
        "no plan keeps the promises with the confidence asked for; "
        f"at best {best['probability']:.1%} of draws do{where}. {advice}"
    )
    return {"message": message, "best": best, "relax": relax, "caps": caps}
