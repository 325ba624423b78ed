"""The plan as a goal: what new runs are worth to the cheapest adaptation that keeps its promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw import _plan_value
from bayeslaw._anchors_check import Reweighted
from bayeslaw._anchors_design import Saving
from bayeslaw._anchors_evidence import Domain, Rows, batches, checkpoints_of, log_losses, noise_of
from bayeslaw._anchors_menu import Menu
from bayeslaw._errors import PlanError
from bayeslaw._feasible import Promise
from bayeslaw._plan_question import (
    FORGETTING,
    TARGET,
    Question,
    check_names,
    check_settings,
    forgetting_limit,
    of_source,
    pose,
    positive,
)
from bayeslaw._plan_search import Choice, Problem, search
from bayeslaw._posterior import Posterior

REQUIRED = ("N", "ptpp", "max_target_loss", "max_forgetting")
REPLANNED = 2000  # draws with which a plan is made again for each outcome


class Planned(NamedTuple):
    """A planning problem and its plan; ``covariates``: what each formula reads."""

    problem: Problem
    choice: Choice
    covariates: Mapping[Callable, tuple[str, ...]]

    @property
    def flops(self) -> float:
        return 6 * self.problem.N * math.exp(self.choice.log_tokens)


def planned(target: Posterior, source: Posterior | Mapping[str, Posterior], asked: Mapping[str, Any]) -> Planned:
    """Pose and solve the question that `bayeslaw.plan` would be asked, for one model without a budget.

    Raises
    ------
    PlanError
        The question is ill-posed, no plan reaches the confidence, or the plan costs nothing.
    """
    sources = dict(source) if isinstance(source, Mapping) else {FORGETTING: source}
    missing = [name for name in REQUIRED if name not in asked]
    if missing:
        raise PlanError(
            f"the plan as a goal needs {', '.join(missing)}, as plan() does; got {', '.join(asked) or 'nothing'}"
        )
    question = _question(target, sources, **asked)
    problem = pose(question, question.pieces)
    choice = search(problem)
    if choice.margin < 0:
        raise PlanError(
            "no plan reaches the confidence yet, so runs cannot be priced by what they save; give the run to be planned "
            "as the goal (a table), and plan again once its forecast is narrower"
        )
    if choice.log_tokens <= problem.span[0]:
        raise PlanError("the promises are kept without adapting at all: no run can make that cheaper")
    read = {p.log_loss: p.covariates for own in question.pieces.values() for p in own}
    return Planned(problem, choice, read)


def _all(target: Posterior, sources: Mapping[str, Posterior]) -> dict[str, Posterior]:
    return {TARGET: target} | dict(sources)


def _question(
    target: Posterior, sources: Mapping[str, Posterior], *, N, ptpp, max_target_loss, max_forgetting, confidence=0.9,
    forgetting_unit="relative", baseline_loss=None, baseline_tokens=None, covariates=None, unique_target_tokens=None,
    max_epochs=1.0, min_replay=0.0, new_run=True, draws=4000, seed=0, **unknown,
) -> Question:  # fmt: skip
    if unknown:
        raise PlanError(f"{next(iter(unknown))!r} is not part of a question that anchors can be chosen for")
    check_names(sources, confidence, None)
    check_settings(confidence, min_replay, forgetting_unit, draws, baseline_loss, baseline_tokens)
    unique = math.inf if unique_target_tokens is None else positive("unique_target_tokens", unique_target_tokens)
    return Question(
        pieces={n: tuple(p.pieces()) for n, p in _all(target, sources).items()},
        N=positive("N", N), ptpp=positive("ptpp", ptpp), max_target_loss=positive("max_target_loss", max_target_loss),
        max_forgetting={n: forgetting_limit(max_forgetting, n) for n in sources}, unit=forgetting_unit,
        baseline_loss={n: of_source(baseline_loss, n) for n in sources},
        baseline_tokens={n: of_source(baseline_tokens, n) for n in sources}, covariates=dict(covariates or {}),
        confidence={k: float(v) for k, v in confidence.items()} if isinstance(confidence, Mapping) else float(confidence),
        max_tokens=math.inf, unique_tokens=unique * positive("max_epochs", max_epochs), min_replay=float(min_replay),
        new_run=new_run, draws=draws, seed=seed,
    )  # fmt: skip


def domains_of(made: Planned, offered: Menu, run_length: float | None) -> list[Domain]:
    """What each promise's draws say of the candidates, and of the log loss at the plan above its limit (a new run's noise
    left out).
    """
    model = pd.DataFrame([{"N": made.problem.N, "ptpp": made.problem.ptpp}])
    at = checkpoints_of(offered, model)
    return [_domain(made, p, _as_read(offered.table, p.name), at, run_length) for p in made.problem.promises]


def _domain(made: Planned, promise: Promise, table: pd.DataFrame, at: np.ndarray, run_length: float | None) -> Domain:
    parts = [
        Rows(p.log_loss, {k: np.asarray(v) for k, v in p.values.items()}, made.covariates[p.log_loss], p.rows)
        for p in promise.parts
    ]
    excess = promise.log_losses(*made.choice[:2]) - promise.log_limit - promise.noise
    law = log_losses(parts, table, "the table of candidates")
    return Domain(promise.name, law, excess[:, None], at, noise_of(parts, run_length), batches(parts))


def _as_read(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A source's ``loss_before`` is its own."""
    if name == TARGET or "source_loss_before" not in table:
        return table
    return table.assign(loss_before=table["source_loss_before"])


def saving(made: Planned, domains: Sequence[Domain], rows: np.ndarray) -> Saving:
    """What lower variance of the promised losses saves, from the shadow price of each promise's limit.

    ``rows``: loadings of the domains' goals, shape (promise, coordinate).
    """
    problem, choice, _ = made
    worth = _plan_value.worth(problem, choice)
    price, z, rest = [], [], []
    for p, d in zip(problem.promises, domains, strict=True):
        looser = replace(p, limit=p.limit + _plan_value.limit_step(p))
        price.append(worth[p.name] / float(np.mean(looser.log_limit - p.log_limit)))
        margin = p.log_limit - p.log_losses(choice.log_tokens, choice.replay)
        z.append(float(margin.mean() / margin.std()))
        rest.append(max(float(p.noise.var() - np.mean(d.noise.checkpoint**2) * (d.at[0] >= 0)), 0.0))
    return Saving(rows, np.array(rest), np.array(price), np.array(z), made.flops)


def replanned(made: Planned, found: Sequence[Reweighted], seed: int) -> dict[str, Any]:
    """The plan made again under each outcome: mean FLOPs where there is one, now and then, with the same few draws."""
    rng = np.random.default_rng(seed)
    costs = []
    draws = made.problem.draws
    few = min(REPLANNED, draws)
    for k in range(len(found[0].weights)):
        promises = tuple(
            p.take(rng.choice(draws, few, p=f.weights[k])) for p, f in zip(made.problem.promises, found, strict=True)
        )
        choice = search(replace(made.problem, promises=promises))
        costs.append(6 * made.problem.N * math.exp(choice.log_tokens) if choice.margin >= 0 else math.inf)
    kept = np.isfinite(costs)
    some = np.array(costs)[kept]
    return {
        "flops": float(some.mean()) if len(some) else None,
        "flops_error": float(some.std(ddof=1) / math.sqrt(len(some))) if len(some) > 1 else None,
        "share_with_a_plan": float(kept.mean()),
    }
