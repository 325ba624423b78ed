"""The plan: the cheapest adaptation (tokens and replay) that keeps its promises with a stated probability.

Solves min D over D >= 0 and replay in [0, 1] such that P(forgetting <= delta and target loss <= tau) >= confidence
under the joint posterior of target and source: the problem of Goffinet 2025, section 4, with its two constraints made
one chance constraint.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast

import numpy as np

from bayeslaw import _engine
from bayeslaw import _plan_value as value
from bayeslaw._plan_question import (
    FORGETTING,
    TARGET,
    PlanError,
    Question,
    check_names,
    check_settings,
    forgetting_limit,
    models_of,
    of_model,
    of_source,
    point_piece,
    pose,
    positive,
)
from bayeslaw._plan_search import Choice, Problem, quick_scan, search
from bayeslaw._posterior import Piece, Posterior
from bayeslaw._words import people_number

PLUG_IN_ROWS = 256  # replays looked at in one call


@dataclass(frozen=True)
class Plan:
    """The answer, with all that a report shows. Every field survives JSON.

    Parameters
    ----------
    feasible
        Whether the confidence is reached. If not, there is no plan (and ``explanation`` says why), except within a
        budget, where the plan is the most probable one.
    atpp, D, replay, flops
        The plan: adaptation tokens per parameter, adaptation tokens, share of source data, 6 N D.
    probability, probability_target, probability_forgetting
        Share of draws in which the plan keeps all promises, the target's, and those of all sources.
    binding
        The promises (or caps) that keep it from being cheaper; without a plan, the promises in the way.
    plug_in
        ``atpp``, ``replay``, ``D``, ``flops`` that parameters without uncertainty would choose, and the ``probability``
        with which that keeps the promises.
    promises
        By promise: ``limit``, ``unit``, ``probability``, ``mean``, ``low``, ``high`` (90%) of the loss in nats per
        token or the forgetting, and ``worth``: the share of tokens saved (within a budget: the probability gained)
        if the limit were higher by a thousandth of the loss.
    frontier
        The cheapest plan at each confidence.
    region
        Probability over ``replay`` and ``atpp``: ``probability[replay][atpp]``.
    tradeoff
        Forgetting and target loss along replay at the plan's ATPP, with 90% bands.
    truth
        The plan one would choose knowing the truth: quantiles of ATPP and replay, ``regret`` and
        ``perfect_information`` in tokens.
    candidates
        One line per model considered.
    explanation
        Where the confidence is not reached: ``message``, the ``best`` that can be had, ``relax`` by promise.
    warnings
        What makes the posteriors less than trustworthy.
    """

    feasible: bool
    N: float
    ptpp: float
    atpp: float | None
    D: float | None
    replay: float | None
    flops: float | None
    probability: float | None
    probability_target: float | None
    probability_forgetting: float | None
    binding: str
    plug_in: dict[str, float | None]
    confidence: float | dict[str, float]
    promises: list[dict[str, Any]]
    frontier: list[dict[str, Any]]
    region: dict[str, Any]
    tradeoff: dict[str, Any]
    truth: dict[str, Any]
    candidates: list[dict[str, Any]]
    explanation: dict[str, Any] | None
    settings: dict[str, Any]
    warnings: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON holds it."""
        return asdict(self)

    def sentence(self) -> str:
        """The answer in words."""
        if self.D is None:
            return str((self.explanation or {})["message"])
        odds = ", ".join(f"{p['name']} {p['probability']:.1%}" for p in self.promises)
        short = "" if self.feasible else "The budget does not reach the confidence asked for; most probable within it: "
        lines = [
            f"{short}Adapt N = {people_number(self.N)} at ptpp {self.ptpp:g} on {self.atpp:.3g} tokens per parameter "
            f"({people_number(self.D)} tokens, {self.flops:.2g} FLOPs) with {self.replay:.0%} replay.",
            f"{'A new run' if self.settings['new_run'] else 'The law'} keeps all promises with probability {self.probability:.1%} ({odds}); bound by {self.binding}.",
        ]
        if self.plug_in["atpp"] is not None:
            lines.append(
                f"Parameters without uncertainty would say {self.plug_in['atpp']:.3g} tokens per parameter with "
                f"{self.plug_in['replay']:.0%} replay, which keeps them with probability {self.plug_in['probability']:.1%}."
            )
        return "\n".join(lines)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Plan:
        """The plan of `to_dict`.

        Raises
        ------
        PlanError
            A key is missing or unknown.
        """
        known = {f.name for f in fields(cls)}
        odd = sorted(known ^ set(given))
        if odd:
            raise PlanError(f"not a saved plan: {odd[0]!r} is {'missing' if odd[0] in known else 'unknown'}")
        return cls(**given)


def plan(
    target: Posterior,
    source: Posterior | Mapping[str, Posterior],
    *,
    N: float | Sequence[float],
    ptpp: float | Sequence[float],
    max_target_loss: float,
    max_forgetting: float | Mapping[str, float],
    confidence: float | Mapping[str, float] = 0.9,
    forgetting_unit: Literal["relative", "nats"] = "relative",
    baseline_loss: Any = None,
    baseline_tokens: float | Mapping[str, float] | None = None,
    covariates: Mapping[str, Any] | None = None,
    max_flops: float | None = None,
    max_tokens: float | None = None,
    unique_target_tokens: float | None = None,
    max_epochs: float = 1.0,
    min_replay: float = 0.0,
    new_run: bool = True,
    point: Mapping[str, Mapping[str, float]] | None = None,
    draws: int = 4000,
    seed: int = 0,
) -> Plan:
    """The cheapest adaptation that keeps its promises with probability ``confidence``.

    Parameters
    ----------
    target, source
        Posteriors of the target and source loss, independent of each other; several sources by name.
    N, ptpp
        The model: parameters and pre-training tokens per parameter; or sequences (of one length, or one number for
        all), of which the model that is cheapest in FLOPs is chosen.
    max_target_loss
        In nats per token.
    max_forgetting
        Rise of the source loss over its baseline: 0.02 is 2%, or with ``forgetting_unit="nats"`` nats per token.
    confidence
        Of all promises together, or one per promise: ``{"target": .9, "forgetting": .95}`` (several sources: their
        names).
    baseline_loss
        Source loss before adaptation, as measured. Else it is the covariate ``source_loss_before``; else the source
        law at ``baseline_tokens`` of pure replay (0 if not given, which a law that diverges there refuses).
    covariates
        Further columns the laws read, such as ``loss_before`` and ``source_loss_before``. A number, or draws of it
        (shape (draw,)) that another posterior forecasts. With several models, a sequence of one per model.
        ``max_forgetting``, baselines and ``source_loss_before`` may be given by source's name.
    max_flops, max_tokens
        Budget of adaptation: then the most probable plan within it, and the cheapest among equals.
    unique_target_tokens, max_epochs
        Target tokens there are, and how often each may be seen: D (1 - replay) is at most their product.
    min_replay
        Least replay.
    new_run
        Whether promises are about the loss of the run that will be made, with its noise, or about the law's mean.
    point
        Values without uncertainty by promise (a point fit; `Law.from_paper`) for the plug-in plan; by default the
        posterior mean of the law with most draws.
    draws, seed
        Pairs of draws to work with, and the seed that pairs them and draws the noise.

    Raises
    ------
    PlanError
        The question is ill-posed: a number out of range, a covariate or a baseline missing.
    """
    asked = {
        "N": N, "ptpp": ptpp, "max_target_loss": max_target_loss, "max_forgetting": max_forgetting,
        "confidence": confidence, "forgetting_unit": forgetting_unit, "baseline_loss": baseline_loss,
        "baseline_tokens": baseline_tokens, "covariates": covariates, "max_flops": max_flops, "max_tokens": max_tokens,
        "unique_target_tokens": unique_target_tokens, "max_epochs": max_epochs, "min_replay": min_replay,
        "new_run": new_run, "draws": draws, "seed": seed,
    }  # fmt: skip
    posteriors = _named(target, source, confidence, point)
    questions = _questions(posteriors, **asked)
    pieces = questions[0].pieces
    points = {name: (point_piece(own, (point or {}).get(name), name),) for name, own in pieces.items()}
    solved = [(q, *_solve(q)) for q in questions]
    question, problem, choice = min(solved, key=lambda s: _rank(s[1], s[2]))
    lines = [_line(p, c) for _, p, c in solved]
    warnings = [f"{name}: {w}" for name, p in posteriors.items() for w in p.warnings]
    return _answer(question, problem, choice, _plug_in(question, problem, points), lines, warnings)


def problem_of(target: Posterior, source: Posterior | Mapping[str, Posterior], **asked: Any) -> Problem:
    """The chance-constrained problem that `plan` solves for its first model when it is asked the same."""
    given = inspect.signature(plan).bind(target, source, **asked)
    given.apply_defaults()
    rest = {k: v for k, v in given.arguments.items() if k not in ("target", "source", "point")}
    question = _questions(_named(target, source, rest["confidence"], None), **rest)[0]
    return pose(question, question.pieces)


def _named(target: Posterior, source: Posterior | Mapping[str, Posterior], confidence, point) -> dict[str, Posterior]:
    """Posteriors by promise, the target first."""
    sources = dict(source) if isinstance(source, Mapping) else {FORGETTING: source}
    check_names(sources, confidence, point)
    return {TARGET: target} | sources


def _questions(
    posteriors: Mapping[str, Posterior], *, N, ptpp, max_target_loss, max_forgetting, confidence, forgetting_unit,
    baseline_loss, baseline_tokens, covariates, max_flops, max_tokens, unique_target_tokens, max_epochs, min_replay,
    new_run, draws, seed,
) -> list[Question]:  # fmt: skip
    """What `plan` is asked, checked: a question for each model."""
    _engine.start()
    sources = [name for name in posteriors if name != TARGET]
    limits = {
        "max_target_loss": max_target_loss,
        "max_epochs": max_epochs,
        "unique_target_tokens": unique_target_tokens,
    }
    for name, given in (limits | {"max_flops": max_flops, "max_tokens": max_tokens}).items():
        if given is not None:
            positive(name, given)
    check_settings(confidence, min_replay, forgetting_unit, draws, baseline_loss, baseline_tokens)
    models = models_of(N, ptpp)
    pieces = {name: tuple(p.pieces()) for name, p in posteriors.items()}
    most = max(sum(p.draws for p in own) for own in pieces.values())
    chances = {k: float(v) for k, v in confidence.items()} if isinstance(confidence, Mapping) else float(confidence)
    return [
        Question(
            pieces=pieces, N=n, ptpp=s, max_target_loss=float(max_target_loss),
            max_forgetting={name: forgetting_limit(max_forgetting, name) for name in sources},
            unit=forgetting_unit,
            baseline_loss={name: of_model(of_source(baseline_loss, name), k, len(models)) for name in sources},
            baseline_tokens={name: of_source(baseline_tokens, name) for name in sources},
            covariates={c: of_model(v, k, len(models)) for c, v in (covariates or {}).items()},
            confidence=chances,
            max_tokens=min(max_tokens or math.inf, (max_flops or math.inf) / (6 * n)),
            unique_tokens=(unique_target_tokens or math.inf) * max_epochs,
            min_replay=float(min_replay), new_run=new_run, draws=draws if new_run else min(draws, most), seed=seed,
        )
        for k, (n, s) in enumerate(models)
    ]  # fmt: skip


# -- the answer ------------------------------------------------------------------------------------------------------


def _solve(question: Question) -> tuple[Problem, Choice]:
    """The problem of one model and its best plan; D = 0 if that keeps the promises already."""
    problem = pose(question, question.pieces)
    nothing = Choice(-math.inf, problem.min_replay, problem.margin_at(-math.inf, problem.min_replay))
    return problem, nothing if nothing.margin >= 0 else search(problem)


def _rank(problem: Problem, choice: Choice) -> tuple[float, float]:
    """Order of candidates: reached before not, then FLOPs; or the most probable."""
    flops = choice.log_tokens + math.log(problem.N)
    if problem.most_probable or choice.margin < 0:
        return max(-choice.margin, 0.0 if not problem.most_probable else -1.0), flops
    return -2.0, flops


def _line(problem: Problem, choice: Choice) -> dict[str, Any]:
    """One candidate model in the plan's list; the most probable attempt where the confidence is not reached."""
    line = {"N": problem.N, "ptpp": problem.ptpp, "feasible": choice.margin >= 0}
    chance = value.probabilities(problem, choice.log_tokens, choice.replay) if choice.log_tokens < math.inf else {}
    return line | value.budget(problem, *choice[:2]) | {"probability": chance.get("probability", 0.0)}


def _plug_in(question: Question, problem: Problem, points: Mapping[str, tuple[Piece, ...]]) -> dict[str, float | None]:
    """The plan of parameters without uncertainty, and its probability under the posterior.

    All rows of this problem are one draw, so that one call looks at as many replays as there are rows; three calls,
    each between the neighbours of the last one's best.
    """
    means = {c: v if isinstance(v, Mapping) else np.mean(v) for c, v in question.covariates.items()}
    baselines = {name: None if b is None else np.mean(b) for name, b in question.baseline_loss.items()}
    asked = replace(
        question, new_run=False, covariates=means, baseline_loss=baselines, draws=max(question.draws, PLUG_IN_ROWS)
    )
    sure = pose(asked, points)
    low, high = 0.0, 1.0
    for _ in range(3):
        u = np.linspace(low, high, asked.draws)
        x = value.log_tokens_needed(sure, sure.replay(u))
        best = int(np.argmin(x))
        low, high = u[max(best - 1, 0)], u[min(best + 1, asked.draws - 1)]
    replay = float(sure.replay(u[best]))
    chosen = value.budget(problem, x[best], replay)
    kept = problem.kept(x[best], replay).all(axis=0).mean() if np.isfinite(x[best]) else None
    return chosen | {"probability": None if kept is None else float(kept)}


def _answer(question: Question, problem: Problem, choice: Choice, plug_in, candidates, warnings) -> Plan:
    reached = choice.margin >= 0
    given = reached or (problem.most_probable and math.isfinite(choice.log_tokens))
    shown = Choice(*_shown(problem, choice))
    worth = value.worth(problem, shown) if given and choice.log_tokens > -math.inf else {}
    promises = value.promises(problem, choice if given else shown)
    saved = {name: 1 - math.exp(-w) if not problem.most_probable else w for name, w in worth.items()}
    explanation = None if reached else _explanation(problem, choice)
    in_the_way = [r["promise"] for r in (explanation or {"relax": []})["relax"] if r["needed"] is not None]
    nothing = dict.fromkeys(("probability", "probability_target", "probability_forgetting"))
    return Plan(
        feasible=reached, N=problem.N, ptpp=problem.ptpp,
        **value.budget(problem, *choice[:2] if given else (math.inf, math.nan)),
        **(value.probabilities(problem, *choice[:2]) if given else nothing),
        binding=value.binding(problem, choice, worth) if worth else " and ".join(in_the_way) or "none",
        plug_in=plug_in, confidence=cast(Any, problem.confidence),
        promises=[p | {"worth": saved.get(p["name"])} for p in promises],
        frontier=value.frontier(problem, quick_scan(problem), choice),
        region=value.region(problem, shown.log_tokens), tradeoff=value.tradeoff(problem, shown.log_tokens),
        truth=value.knowing_the_truth(problem, choice if given else Choice(math.inf, choice.replay, choice.margin)),
        candidates=candidates, explanation=explanation, settings=_settings(question, problem), warnings=warnings,
    )  # fmt: skip


def _shown(problem: Problem, choice: Choice) -> tuple[float, float, float]:
    """The choice at which pictures are drawn: with a finite number of tokens more than none."""
    middle = sum(problem.span) / 2
    x = choice.log_tokens if choice.log_tokens < math.inf else middle
    return max(x, problem.span[0]), choice.replay, choice.margin


def _settings(question: Question, problem: Problem) -> dict[str, Any]:
    """What was asked, so far as the other fields do not say it."""
    return {
        "baseline": {p.name: float(p.baseline.mean()) for p in problem.promises[1:]},
        "max_tokens": value.number(problem.max_tokens),
        "max_target_tokens": value.number(problem.unique_tokens),
        "min_replay": problem.min_replay, "new_run": question.new_run, "draws": problem.draws, "seed": question.seed,
    }  # fmt: skip


def _explanation(problem: Problem, choice: Choice) -> dict[str, Any]:
    """Why there is no plan, and what would make one."""
    relax = value.relaxations(problem)
    best = search(replace(problem, max_tokens=min(problem.max_tokens, math.exp(problem.span[1]))))
    chance = value.probabilities(problem, *best[:2]) if best.log_tokens < math.inf else {"probability": 0.0}
    best_of = value.budget(problem, *best[:2]) | chance

    def limit(row: Mapping[str, Any], key: str) -> str:
        return f"{row[key]:.2%}" if row["unit"] == "relative" else f"{row[key]:.4g} nats"

    ways = [
        f"{r['promise']} limit {limit(r, 'limit')} -> {limit(r, 'needed')} at {r['atpp']:.3g} tokens per parameter, "
        f"{r['replay']:.0%} replay"
        for r in relax
        if r["needed"] is not None
    ]
    where = (
        f", at {best_of['atpp']:.3g} tokens per parameter with {best_of['replay']:.0%} replay"
        if best_of["atpp"]
        else ""
    )
    message = (
        f"no plan keeps the promises with the confidence asked for; at best {best_of['probability']:.1%} of draws do{where}. "
        + (f"Relax one: {'; '.join(ways)}" if ways else "Relaxing one promise alone does not help")
    )
    return {"message": message, "best": best_of, "relax": relax}
