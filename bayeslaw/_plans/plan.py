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
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count
from bayeslaw._costs.costs import COST_LIMITS
from bayeslaw._law.columns import SOURCE_LOSS_BEFORE
from bayeslaw._plans import value
from bayeslaw._plans.arguments import PlanArguments
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.posing import ATPP_RANGE, point_pieces, pose
from bayeslaw._plans.question import Model, Question
from bayeslaw._plans.reading import question_of
from bayeslaw._plans.result import Plan
from bayeslaw._plans.search import AT_A_BOUND, Choice, Problem, search
from bayeslaw._plans.soft import expected_cost, least_expected_cost
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
    N, ptpp
        The model: parameters and pre-training tokens per parameter. With sequences of
        equal length (or one number for all models), the cheapest model is chosen: by
        money if ``costs`` have a price, else by days if they have hardware, else by
        FLOPs.
    max_target_loss
        A number is in nats per token; text has its own unit: ``"0.9bpb"`` (bits per
        byte, with ``bytes_per_token``), ``"6.5ppl"`` (perplexity). With a sign it
        limits the rise over ``loss_before``, or over ``baseline_run``: ``"-10%"``,
        ``"-0.2nats"``, ``"-0.03bpb"``, ``"-20%ppl"``. Several targets: limits by name.
    min_accuracy, accuracy
        Lower limit on the accuracy of an evaluation, and the link from the first
        target's loss to it: an `accuracy_link`, or its table. The promise is called
        ``accuracy`` and is stated as the share of wrong answers.
    max_forgetting
        Upper limit on the rise of the source loss over its baseline: 0.02 is 2%; with
        ``forgetting_unit="nats"`` it is in nats per token. Text has its own unit:
        ``"2%"``, ``"0.05nats"``, ``"0.03bpb"``, ``"3%ppl"``. A bare number of 1 or more
        is refused, because percent are meant. Sources without a limit are limited in
        their mean only.
    bytes_per_token
        Bytes of a token, or by domain (``"target"``, names of sources), for limits in bits
        per byte.
    max_loss
        For a third domain, by its name among the sources: upper limit on its loss, in
        nats per token, in place of a limit on its forgetting. It needs no baseline; if
        its law reads ``loss_before``, give that by name in ``baseline_loss``. Units as
        in ``max_target_loss``.
    max_mean_loss, mean_weights
        Limit on the weighted mean of domains, in the same units: ``"+0.03bpb"`` limits
        the mean of their rises, ``2.9`` the mean of their losses. Weights are by name;
        by default all sources have equal weights. The promise is called ``mean``.
    excess_price
        Soft limits: the price of a nat over each limit, by the limit's name, in money
        if ``costs`` have a price, else in days or FLOPs. The plan then minimises the
        expected cost of training and excess, and keeps the other limits with the
        confidence.
    confidence
        Confidence of all promises together, or one per promise: ``{"target": .9, "forgetting":
        .95}`` (several sources: their names).
    baseline_loss
        Measured source loss before adaptation. By default the covariate
        ``source_loss_before``; without it, the source law at ``baseline_tokens`` of
        pure replay (default 0, which a law that diverges there refuses).
    baseline_run
        Another run as the baseline of limits on a rise, in place of the model before
        adaptation: ``{"D": 10e9, "replay": 0.3}``. It is forecast by the same laws and
        draws.
    correlation
        Correlation of the errors of the target's and the source's forecast. By default
        it is estimated from residuals at rows measured in both domains, and shrunk by
        its uncertainty; 0: independent. It pairs the draws (`error_correlation`). This
        changes only the probability of all promises together.
    covariates
        Further columns that the laws read, such as ``loss_before`` and
        ``source_loss_before``: a number, or draws of shape (draw,) that another
        posterior forecasts. With several models, a sequence with one for each model.
        ``max_forgetting``, baselines and ``source_loss_before`` may be given by
        source's name.
    max_flops, max_tokens
        Budget of adaptation. The answer is then the most probable plan within it; among
        equally probable plans, the cheapest.
    costs
        Costs of training (`Costs`): hardware, price, formula of the FLOPs; by default 6
        N D FLOPs.
    max_cost, max_days
        Most money and days for the plan. The answer is the cheapest plan if it stays
        within them, else the most probable plan within them.
    unique_target_tokens, max_epochs
        Number of unique target tokens, and how often each may be seen: D (1 - replay)
        is at most their product. By default each is seen once. With a law of repetition
        (one that reads ``U``, as `data-constrained` does) the default is the most
        epochs of the training runs. Without such a law, ``max_epochs`` is at most the
        epochs of the training runs, or four.
    min_replay, max_replay
        Smallest and largest replay. The default is the fitted range, because no run
        shows how far a law holds beyond it. With 0 and 1 any replay is allowed, except
        100%.
    new_run
        True: promises are about the loss of the planned run, with its noise. False:
        about the law's mean.
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
    return posed_and_solved(arguments).plan


@takes(PlanArguments, PlanError, name="plan")
def posed(arguments: PlanArguments) -> Question:
    """Check the question of `plan`, given the same arguments, without its answer.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    return question_of(arguments)


class PosedPlan(NamedTuple):
    """A plan, and the problem of the chosen model that it solves."""

    plan: Plan
    problem: Problem


def posed_and_solved(arguments: PlanArguments) -> PosedPlan:
    """Find the plan of `plan`, and keep the problem for further questions.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    question = question_of(arguments)
    answer, problem = solve(question, arguments.point)
    run = _planned_run(answer)
    (first, target), *further = arguments.targets.items()
    others = dict(further) | arguments.sources
    more = doubts(target, others, run) + _at_the_end(answer)
    warnings = answer.warnings + more + _at_fitted_replay(answer)
    far = tell_distance({first: target, **others}, run)
    return PosedPlan(replace(answer, warnings=warnings, distance=far), problem)


def _planned_run(answer: Plan) -> dict[str, float]:
    """Collect the known columns of the plan's run; without a plan, of the most probable
    attempt.
    """
    columns = {"N": answer.N, "ptpp": answer.ptpp}
    best = (answer.explanation or {}).get("best") or {}
    tokens = best.get("D") if answer.D is None else answer.D
    if tokens:
        replay = best.get("replay") if answer.replay is None else answer.replay
        columns |= {"D": tokens, "replay": replay}
    baselines = {*answer.settings["baseline"].values()}
    if len(baselines) == 1:
        columns |= {SOURCE_LOSS_BEFORE: baselines.pop()}
    return {name: x for name, x in columns.items() if x is not None}


def _at_fitted_replay(answer: Plan) -> list[str]:
    """Warn if the plan (or the best attempt) lies at an end of the fitted replays."""
    best = answer.explanation["best"] if answer.explanation else None
    replay = answer.replay if answer.D else (best or {}).get("replay")
    what = "the cheapest plan" if answer.feasible else "the most probable plan"
    lines = []
    for name, at in (("min_replay", "least"), ("max_replay", "largest")):
        bound = answer.settings[name]
        is_fitted = name in answer.settings["fitted"]
        if not is_fitted or replay is None:
            continue
        if abs(replay - bound) < AT_A_BOUND:
            end = "0" if name == "min_replay" else "1"
            lines.append(
                f"{what} is at the {at} fitted replay, {bound:.4g}: beyond it nothing was "
                f"checked, and no plan is sought; to seek one there give {name}={end} "
                f"(--{name.replace('_', '-')} {end})"
            )
    return lines


def _at_the_end(answer: Plan) -> list[str]:
    """Warn if the plan has the smallest budget of the search."""
    least = ATPP_RANGE[0]
    # within a thousandth in log tokens it is the smallest budget of the search
    if not answer.atpp or math.log(answer.atpp / least) > 1e-3:
        return []
    return [
        "the promises hold already at the least budget that is looked at "
        f"({least:g} tokens per parameter), so the cheapest may be any under it: "
        "look at the limits again"
    ]


def solve(
    question: Question, points: Mapping[str, Mapping[str, float]] | None = None
) -> PosedPlan:
    """Solve the question: find its plan.

    Parameters
    ----------
    points
        Values without uncertainty by constraint, for the plug-in plan; by default the
        posterior mean.

    Raises
    ------
    PlanError
        The question is ill-posed.
    """
    certain = point_pieces(question, points or {})
    solutions = [_solution(question, model) for model in question.models]
    rank = partial(_rank, excess_prices=question.excess_prices)
    best = min(solutions, key=rank)
    plug_in = _plug_in(question, best, certain)
    candidates = [_candidate(solution) for solution in solutions]
    return PosedPlan(_answer(question, best, plug_in, candidates), best.posed)


@takes(PlanArguments, PlanError, name="plan")
def problem_of(arguments: PlanArguments) -> Problem:
    """Pose the problem that `plan` solves for its first model, given the same question."""
    question = question_of(arguments)
    first = question.models[0]
    return pose(question, first)


# -- one model -------------------------------------------------------------------------


class Solution(NamedTuple):
    """A model's problem and its best choice.

    Parameters
    ----------
    posed
        The problem as the question poses it.
    problem
        The problem that was solved: with the limit on its bill as a budget, if the
        cheapest plan exceeds it.
    """

    model: Model
    posed: Problem
    problem: Problem
    choice: Choice

    @property
    def is_reached(self) -> bool:
        """Tell whether the confidence is reached."""
        return self.choice.margin >= 0

    @property
    def is_plan(self) -> bool:
        """Tell whether there is a plan. Within a budget, a less probable plan counts,
        too.
        """
        return self.is_reached or (
            self.problem.most_probable and math.isfinite(self.choice.log_tokens)
        )


def _solution(question: Question, model: Model) -> Solution:
    """Find the best plan of one model; D = 0 if that already keeps the constraints."""
    posed = problem = pose(question, model)
    if question.excess_prices:
        choice = least_expected_cost(problem, question.excess_prices)
        return Solution(model, posed, problem, choice)
    no_tokens, replay = -math.inf, problem.min_replay
    nothing = Choice(no_tokens, replay, problem.margin_at(no_tokens, replay))
    if nothing.margin >= 0:
        return Solution(model, posed, problem, nothing)
    choice = search(problem)
    # The cheapest plan costs more than allowed, so no affordable plan reaches the
    # confidence.
    paid = question.budget.paid_tokens(model, question.costs)
    cap = min(paid, key=paid.__getitem__)
    if choice.log_tokens > math.log(paid[cap]):
        problem = replace(problem, max_tokens=paid[cap], cap=cap)
        choice = search(problem, posed.scan)
    return Solution(model, posed, problem, choice)


def _rank(
    solution: Solution, excess_prices: Mapping[str, float] | None = None
) -> tuple[float, float]:
    """Compute a sort key of candidates: first those that reach the confidence, then by
    price; within a budget by probability.
    """
    problem, choice = solution.problem, solution.choice
    if excess_prices:
        expected = expected_cost(
            problem, excess_prices, choice.log_tokens, choice.replay
        )
        return max(-choice.margin, 0.0), expected["cost"]
    tokens = float(np.exp(choice.log_tokens))
    price = problem.costs.of_run(problem.N, tokens, problem.ptpp).price
    if problem.most_probable:
        return max(-choice.margin, -1.0), price
    if not solution.is_reached:
        return max(-choice.margin, 0.0), price
    return -2.0, price


def _probabilities(problem: Problem, choice: Choice) -> dict[str, float]:
    """Compute `value.probabilities`; 0 where no tokens were found."""
    if choice.log_tokens == math.inf:
        return {"probability": 0.0}
    return value.probabilities(problem, choice.log_tokens, choice.replay)


def _candidate(solution: Solution) -> dict[str, Any]:
    """Describe one candidate model in the plan's list.

    If the confidence is not reached, the most probable attempt is described.
    """
    problem, choice = solution.problem, solution.choice
    row = {"N": problem.N, "ptpp": problem.ptpp, "feasible": solution.is_reached}
    budget = value.budget(problem, choice.log_tokens, choice.replay)
    probability = _probabilities(problem, choice)["probability"]
    return row | budget | {"probability": probability}


def _plug_in(
    question: Question, solution: Solution, certain: Mapping[str, tuple[Piece, ...]]
) -> dict[str, float | None]:
    """Find the plan of parameters without uncertainty, and its probability by the
    posterior.
    """
    # all draws are the same one, as many as compiled programs are of
    sure = replace(question, pieces=certain, new_run=False)
    if question.link is not None:
        sure = replace(sure, link=question.link.at_means())
    sure = pose(sure, solution.model.at_means())
    choice = search(replace(sure, confidence=1.0, max_tokens=math.inf))
    log_tokens, replay = choice.log_tokens, choice.replay
    if choice.margin < 0 or log_tokens > math.log(sure.max_tokens):
        nothing = value.budget(solution.problem, *value.NO_CHOICE)
        return nothing | {"probability": None}
    row = value.budget(solution.problem, log_tokens, replay)
    is_kept = solution.problem.kept(log_tokens, replay).all(axis=0)
    return row | {"probability": float(is_kept.mean())}


# -- the answer ------------------------------------------------------------------------


def _answer(
    question: Question,
    solution: Solution,
    plug_in: dict[str, float | None],
    candidates: list[dict[str, Any]],
) -> Plan:
    """Build the record of a solution, with all that a report shows."""
    problem, choice = solution.problem, solution.choice
    explanation, best = None, choice
    if not solution.is_reached:
        best = _most_probable(problem)
        explanation = _explanation(problem, best)
    # pictures need a finite budget; without a plan, promises need one, too
    pictured = _shown(problem, choice if solution.is_plan else best)
    if explanation:
        explanation["shown"] = value.budget(problem, *pictured[:2])
    if solution.is_plan:
        at = choice
        budget = value.budget(problem, choice.log_tokens, choice.replay)
        shares: dict[str, Any] = _probabilities(problem, choice)
    else:
        at = Choice(math.inf, choice.replay, choice.margin)
        budget = value.budget(problem, *value.NO_CHOICE)
        names = ("probability", "probability_target", "probability_forgetting")
        shares = dict.fromkeys(names)
    is_soft = bool(question.excess_prices)
    has_worth = solution.is_plan and choice.log_tokens > -math.inf and not is_soft
    worth = value.worth(problem, pictured) if has_worth else {}
    if worth:
        binding = value.binding(problem, choice, worth)
    elif is_soft:
        binding = f"the price of {', '.join(question.excess_prices)}"
    else:
        binding = _in_the_way(explanation)
    return Plan(
        feasible=solution.is_reached,
        N=problem.N,
        ptpp=problem.ptpp,
        **budget,
        **shares,
        binding=binding,
        plug_in=plug_in,
        confidence=cast(Any, problem.confidence),
        promises=_promises(problem, choice if solution.is_plan else pictured, worth),
        frontier=value.frontier(problem, search(problem) if is_soft else choice),
        region=value.region(problem, pictured.log_tokens),
        tradeoff=value.tradeoff(problem, pictured.log_tokens),
        truth=value.perfect_information(problem, at),
        candidates=candidates,
        explanation=explanation,
        settings=_settings(question, problem)
        | _of_errors(question, solution)
        | _of_prices(question, solution),
        warnings=list(question.warnings),
    )


def _shown(problem: Problem, choice: Choice) -> Choice:
    """Move a choice to where pictures can be drawn: a finite, positive number of
    tokens.
    """
    low, high = problem.span
    x = choice.log_tokens
    if x == math.inf:
        x = (low + high) / 2
    return choice._replace(log_tokens=max(x, low))


def _promises(
    problem: Problem, choice: Choice, worth: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Report each promise, with the saving from a looser limit.

    The saving is a share of the tokens, or within a budget the probability gained; None
    if unknown.
    """
    rows = value.promises(problem, choice)
    for row in rows:
        gain = worth.get(row["name"])
        if gain is not None and not problem.most_probable:
            gain = 1 - math.exp(-gain)
        row["worth"] = gain
    return rows


def _settings(question: Question, problem: Problem) -> dict[str, Any]:
    """Record the parts of the question that the other fields do not have."""
    return {
        "baseline": {
            c.name: float(c.baseline.mean())
            for c in problem.constraints
            if UNITS[c.unit].has_baseline
        },
        "asked": question.budget.asked(),
        "max_tokens": value.number(problem.max_tokens),
        **_cost_settings(question),
        "max_target_tokens": value.number(problem.unique_tokens),
        "min_replay": problem.min_replay,
        "max_replay": problem.max_replay,
        "fitted": list(problem.fitted),
        "new_run": question.new_run,
        "draws": problem.draws,
        "seed": question.seed,
        "notes": list(question.notes),
    }


def _of_errors(question: Question, solution: Solution) -> dict[str, Any]:
    """Describe the effect of the correlation of the domains' errors: the plan's
    probability for independent errors, and the tokens that it would then take.
    """
    errors, choice = question.errors, solution.choice
    if errors is None or question.excess_prices:
        return {}
    independent = pose(replace(question, errors=None), solution.model)
    independent = replace(independent, max_tokens=solution.problem.max_tokens)
    probability = None
    if solution.is_plan:
        is_kept = independent.kept(choice.log_tokens, choice.replay).all(axis=0)
        probability = float(is_kept.mean())
    alternative = search(independent)
    is_reached = alternative.margin >= 0
    return {
        "errors": {
            "sentence": errors.sentence(),
            "names": list(errors.names),
            "correlation": errors.matrix.tolist(),
            "probability_if_independent": probability,
            "D_if_independent": math.exp(alternative.log_tokens)
            if is_reached
            else None,
        }
    }


def _of_prices(question: Question, solution: Solution) -> dict[str, Any]:
    """Describe the expected cost of a plan with soft limits, and its expected excess."""
    prices, choice = question.excess_prices, solution.choice
    if not prices:
        return {}
    expected = expected_cost(solution.problem, prices, choice.log_tokens, choice.replay)
    return {"soft": {"prices": dict(prices)} | expected}


def _cost_settings(question: Question) -> dict[str, Any]:
    """Record the formula of the costs and their limits, if they were given."""
    if not question.costs.has_time:
        return {}
    limits = dict.fromkeys(COST_LIMITS, math.inf) | dict(question.budget.cost_limits)
    return {"costs": question.costs.sentence()} | {
        name: value.number(most) for name, most in limits.items()
    }


# -- why there is none -----------------------------------------------------------------


def _in_the_way(explanation: Mapping[str, Any] | None) -> str:
    """Name the constraints that must be relaxed for a plan, joined by "and"."""
    rows: Sequence[Mapping[str, Any]] = explanation["relax"] if explanation else ()
    names = [row["promise"] for row in rows if row["needed"] is not None]
    names += [row["cap"] for row in (explanation or {}).get("caps", ())]
    # no limit is in the way alone: all of them are together
    return " and ".join(names or [row["promise"] for row in rows]) or "none"


def _most_probable(problem: Problem) -> Choice:
    """Find the choice that most probably keeps all constraints."""
    # with a finite budget the search finds the most probable plan, not the cheapest
    anything = min(problem.max_tokens, math.exp(problem.span[1]))
    return search(replace(problem, max_tokens=anything), problem.scan)


def _explanation(problem: Problem, choice: Choice) -> dict[str, Any]:
    """Explain why there is no plan, and which changes would allow one.

    ``choice``: the most probable one.
    """
    relax = value.relaxations(problem)
    budget = value.budget(problem, choice.log_tokens, choice.replay)
    best = budget | _probabilities(problem, choice)
    caps = value.caps_in_the_way(problem)
    message = _message(problem.N, best, relax, caps)
    return {"message": message, "best": best, "relax": relax, "caps": caps}


def _message(
    N: float,
    best: Mapping[str, Any],
    relax: Sequence[Mapping[str, Any]],
    caps: Sequence[Mapping[str, Any]],
) -> str:
    """Write the message of an infeasible plan: the best probability, and the limits to
    relax.
    """
    where = f", {_at(N, best)}" if best["atpp"] else ""
    ways = [
        f"{row['promise']} limit {row['enough']['words']} {_at(N, row['enough'])}"
        for row in relax
        if row["needed"] is not None
    ]
    ways += [_lifted(N, row) for row in caps]
    advice = "Relaxing one promise alone does not help"
    if ways:
        advice = f"Relax one: {'; '.join(ways)}"
    return (
        "no plan keeps the promises with the confidence asked for; "
        f"at best {best['probability']:.1%} of draws do{where}. {advice}"
    )


def _at(N: float, row: Mapping[str, Any]) -> str:
    """Describe a choice of tokens and replay."""
    if not row["atpp"]:
        return "without adapting"
    return (
        f"at {row['atpp']:.3g} tokens per parameter ({format_count(N * row['atpp'])} "
        f"tokens) with {row['replay']:.0%} replay"
    )


def _lifted(N: float, row: Mapping[str, Any]) -> str:
    """Describe how a limit on data would have to be relaxed."""
    write = format_count if row["cap"] == "unique target tokens" else "{:.1%}".format
    return f"{row['cap']} {write(row['limit'])} -> {write(row['needed'])} {_at(N, row)}"
