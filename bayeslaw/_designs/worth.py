"""Foresee what bought runs do: for new runs at the goal their interval, and the verdict
on a limit of their loss; for a choice its chance and regret; and check this by
simulated outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri
from scipy.stats import sem

from bayeslaw._base.numbers import Z90, format_many
from bayeslaw._base.schema import LABEL
from bayeslaw._base.streams import Stream, generator
from bayeslaw._costs.costs import format_money
from bayeslaw._designs.appraisal import Appraisal, Market
from bayeslaw._designs.criteria import variances_at
from bayeslaw._designs.evidence import Domain
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.plan import PlanGoal
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.diagnostics import TRUSTED_K, pareto_smoothed
from bayeslaw._inference.noise import draw_new_effects
from bayeslaw._inference.table import MIN_GAP
from bayeslaw._plans.search import search
from bayeslaw._posteriors.outcomes import RowErrors

if TYPE_CHECKING:
    from jaxtyping import Float

# keys of `foresee_verdicts` in JSON
VERDICTS = {
    "max_loss confidence changes": float,
    "runs": [{"row": LABEL, "now": str, "probability kept broken unsure": float}],
}
HARDLY = 0.05  # probability of another verdict below which runs hardly decide


def foresee_new_run(market: Market, bought: Appraisal) -> dict[str, float]:
    """Compute half of a new run's 90% interval in log loss, now and after picks."""
    (domain,) = market.goal.domains
    own = float(_own_variances(domain).mean())
    sds = {"before": bought.sds[0], "after": bought.sds[-1]}
    return {name: Z90 * math.sqrt(sd**2 + own) for name, sd in sds.items()}


def foresee_verdicts(
    market: Market,
    picks: Sequence[Pick],
    rows: pd.Index,
    max_loss: float,
    confidence: float,
) -> dict[str, Any]:
    """Foresee the verdict on a limit of a new run's loss, for each run of the goal;
    ``rows`` are their labels.

    It is kept, or broken, if that has at least the confidence, and else unsure. Before
    runs are measured, the mean to which they will lead is normal around today's, with
    the variance that they take away (Raiffa and Schlaifer 1961, chapter 5). So the
    probability of each verdict after them follows in closed form.
    """
    (domain,) = market.goal.domains
    before, after = (
        variances_at(precision_of(market.offer, some), market.approximation.goals)
        for some in ((), picks)
    )
    own = _own_variances(domain)
    margin = math.log(max_loss) - domain.goal.mean(axis=0)
    probability = ndtr(margin / np.sqrt(before + own))
    # a verdict is sure if the new mean is this far from the limit
    needed = ndtri(confidence) * np.sqrt(after + own)
    moved = np.sqrt(np.maximum(before - after, 1e-18))
    kept, broken = ndtr((margin - needed) / moved), ndtr((-margin - needed) / moved)
    chances = {"kept": kept, "broken": broken, "unsure": 1 - kept - broken}

    is_sure = [probability >= confidence, probability <= 1 - confidence]
    now = np.select(is_sure, ["kept", "broken"], "unsure")
    told = pd.DataFrame({"now": now, "probability": probability, **chances})
    told.insert(0, "row", rows)
    runs = told.to_dict(orient="records")
    changes = float(np.mean([1 - run[run["now"]] for run in runs]))
    return {
        "max_loss": max_loss,
        "confidence": confidence,
        "changes": changes,
        "runs": runs,
    }


def describe_verdicts(verdicts: dict[str, Any], spent: float | None) -> str:
    """Say whether runs are expected to decide about a limit, and what a changed verdict
    then costs on average; ``spent``: money, None if it is not known.
    """
    runs, changes = verdicts["runs"], verdicts["changes"]
    names = ("kept", "unsure", "broken")
    counts = {name: sum(run["now"] == name for run in runs) for name in names}
    chances = {name: np.mean([run[name] for run in runs]) for name in names}
    now = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    if len(runs) == 1:
        now = f"{runs[0]['now']} (kept with {runs[0]['probability']:.0%})"
    limit, confidence = verdicts["max_loss"], verdicts["confidence"]
    shares = ", ".join(f"{name} {chance:.0%}" for name, chance in chances.items())
    cost = ""
    if changes < HARDLY:
        cost = ": they hardly decide"
    elif spent is not None:
        cost = f": {format_money(spent / changes)} for each verdict that changes"
    return (
        f"the verdict on {format_many(len(runs), 'new run')} at a limit of {limit:.4g} "
        f"with {confidence:.0%} is now {now}, and after them another with {changes:.0%} "
        f"({shares}){cost}"
    )


def _own_variances(domain: Domain) -> Float[np.ndarray, " goal"]:
    """Compute the variance of a new run's log loss around the law, for each run of the
    goal. What is learned of its checkpoint's effect, and all of it if the checkpoint is
    on offer, is part of the goal's sd.
    """
    noise = domain.noise
    in_goal = np.where(domain.at >= 0, 1.0, 1.0 - domain.new_of_goal)
    whole = np.mean(noise.capped_variance + noise.shared_variance)
    return whole - in_goal * np.mean(noise.tau_checkpoint**2)


# -- choices ---------------------------------------------------------------------------


def foresee_choice(
    market: Market, picks: Sequence[Pick], seed: int, outcomes: int = 20_000
) -> dict[str, Any] | None:
    """Find the option that is best on average, the probability that it is the best, and
    its regret. For recipes, simulated outcomes also give both numbers after the runs.
    None if there is nothing to choose.
    """
    goal = market.goal
    if goal.options is None:
        return None
    now = goal.options.now()
    if goal.gain != "best":
        return now
    # In principal coordinates the posterior is a standard normal. Split it into the
    # part that the runs reveal and the remaining part.
    rows = market.approximation.goals
    covariance = np.linalg.inv(precision_of(market.offer, picks).marginal)
    rng = generator(seed, Stream.CHOICES)
    learned = np.eye(len(covariance)) - covariance
    moves = []
    for part in (learned, covariance):
        # an eigenvalue may be below zero by rounding
        values, vectors = np.linalg.eigh(rows @ part @ rows.T)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        moves.append(rng.standard_normal((outcomes, len(rows))) @ root.T)
    posterior_mean = goal.options.worse.mean(axis=0) + moves[0]
    truth = posterior_mean + moves[1]
    chosen = np.argmin(posterior_mean, axis=1)
    lost = truth[np.arange(outcomes), chosen] - truth.min(axis=1)
    return now | {
        "chance_after": float(np.mean(chosen == np.argmin(truth, axis=1))),
        "regret_after": float(lost.mean()),
    }


# -- check ------------------------------------------------------------------------------


def check_by_reweighting(
    market: Market, bought: Appraisal, outcomes: int, seed: int
) -> dict[str, Any]:
    """Compare the approximation with reweighted draws, on as many of the first picks as
    the draws allow: their number is halved until the weights are reliable.
    """
    goal, count = market.goal, len(bought.picks)
    while True:
        views = [
            reweight(market.menu, domain, bought.picks[:count], outcomes, seed + k)
            for k, domain in enumerate(goal.domains)
        ]
        khat = max(view.khat for view in views)
        if count == 1 or khat <= TRUSTED_K:
            break
        count = count // 2
    by_goal = np.hstack([view.variance() for view in views])
    variances = by_goal.mean(axis=1)  # of each outcome
    sd = math.sqrt(variances.mean())
    # the error of a square root is the variance's error over twice the root
    error = sem(variances) / (2 * sd) if len(variances) > 1 else math.nan
    record = {
        "picks": count,
        "outcomes": len(variances),
        "goal_sd": sd,
        "error": float(error),
        "goal_sd_approximate": bought.sds[count],
        "correction": sd / bought.sds[count],
        "khat": khat,
        "reliable": khat <= TRUSTED_K,
    }
    if goal.options is not None:
        (view,) = views
        _, chance, regret = goal.options.expect(view.weights)
        record |= {"chance": float(chance.mean()), "regret": float(regret.mean())}
    elif goal.plan is not None:
        record |= _plan_again(goal.plan, views, seed)
    return record


class ReweightedDraws(NamedTuple):
    """Draws reweighted by outcomes."""

    # importance weights under each outcome, smoothed and normalised
    weights: Float[np.ndarray, "outcome draw"]
    khat: float  # median Pareto k-hat of the weights
    # draws of the goal with the effects of its checkpoint
    goal: Float[np.ndarray, "draw goal"]

    def variance(self) -> Float[np.ndarray, "outcome goal"]:
        """Compute the variance of each goal under each outcome, shape (outcome, goal),
        corrected for the effective number of draws.
        """
        mean = self.weights @ self.goal
        square = self.weights @ self.goal**2
        # with n effective draws (Kish) a variance is too small by the factor 1 - 1/n
        inverse_size = (self.weights**2).sum(axis=1, keepdims=True)
        return (square - mean**2) / np.maximum(1 - inverse_size, 1e-3)


def reweight(
    menu: Menu, domain: Domain, picks: Sequence[Pick], outcomes: int, seed: int
) -> ReweightedDraws:
    """Simulate outcomes of all rows that these picks measure from draws and weight all
    other draws by their likelihood.

    Effects of checkpoints and runs are drawn with each draw, so draws of law and
    effects are reweighted together. A run that continues measured points shares an
    error with these points, which is ignored.
    """
    by_pick = [menu.measured_by(pick) for pick in picks]
    rows = np.concatenate(by_pick)
    of_pick = np.repeat(np.arange(len(picks)), [len(r) for r in by_pick])
    checkpoint = menu.checkpoint[[run for run, _ in picks]][of_pick]
    # e-folds since the pick's previous row, infinite at its first
    gaps = [np.diff(menu.along[rows], prepend=-np.inf) for rows in by_pick]
    gap = np.maximum(np.concatenate(gaps), MIN_GAP)

    rng = generator(seed, Stream.REWEIGHTING)
    noise = domain.noise
    checkpoints = int(max(checkpoint.max(), *domain.at)) + 1
    effects = draw_new_effects(noise.tau_checkpoint, checkpoints, rng)
    effects = effects * np.sqrt(domain.new_of_checkpoint[:checkpoints])
    of_runs = draw_new_effects(noise.tau_run, len(picks), rng)
    centre = domain.log_loss[:, rows] + effects[:, checkpoint] + of_runs[:, of_pick]
    # a goal that starts from a measured checkpoint has the same effect
    goal = domain.goal + np.where(domain.at >= 0, effects[:, domain.at], 0.0)

    draws = len(centre)
    truths = rng.choice(draws, min(outcomes, draws), replace=False)
    error = RowErrors.along_runs(noise, gap, domain.error_size[rows])
    smoothed = []
    for truth in truths:
        outcome = centre[truth] + error.draw(rng, truth)
        log_likelihood = error.log_density(outcome - centre)  # under all draws
        # A draw explains its own outcome too well, so it is left out: its log
        # likelihood is set far below all others.
        log_likelihood[truth] = log_likelihood.min() - 100.0
        smoothed.append(pareto_smoothed(log_likelihood))
    weights, khat = zip(*smoothed, strict=True)
    return ReweightedDraws(np.stack(weights), float(np.median(khat)), goal)


def _plan_again(
    goal: PlanGoal, views: Sequence[ReweightedDraws], seed: int, draws: int = 2000
) -> dict[str, Any]:
    """Plan again under each outcome, with a limited number of draws. Returns the mean
    FLOPs over outcomes with a plan, its Monte Carlo error, and the share of outcomes
    with a plan.

    ``views``: the draws of each constraint, reweighted.
    """
    rng = generator(seed, Stream.REPLANS)
    problem = goal.problem
    few = min(draws, problem.draws)
    flops = []
    for outcome in range(len(views[0].weights)):
        constraints = tuple(
            constraint.take(rng.choice(problem.draws, few, p=view.weights[outcome]))
            for constraint, view in zip(problem.constraints, views, strict=True)
        )
        flops.append(goal.flops_of(search(replace(problem, constraints=constraints))))
    is_planned = np.isfinite(flops)
    planned = np.array(flops)[is_planned]
    return {
        "flops": float(planned.mean()) if len(planned) else None,
        "flops_error": float(sem(planned)) if len(planned) > 1 else None,
        "share_with_a_plan": float(is_planned.mean()),
    }
