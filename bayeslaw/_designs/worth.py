"""Foresee what bought runs do: for new runs at the goal their interval, and the verdict
on a limit of their loss; for a choice its chance and regret; and check this by
simulated outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from bayeslaw._base.numbers import Z90, format_many
from bayeslaw._base.schema import LABEL
from bayeslaw._base.streams import Stream, generator
from bayeslaw._costs.costs import format_money
from bayeslaw._designs.appraisal import Appraisal, Market
from bayeslaw._designs.criteria import variances_at
from bayeslaw._designs.evidence import Domain
from bayeslaw._designs.gaussian import Pick, precision_of
from bayeslaw._designs.goals.plan import replan
from bayeslaw._designs.reweighting import reweight
from bayeslaw._inference.diagnostics import TRUSTED_K

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
    mean = goal.options.worse.mean(axis=0)
    learned = np.eye(len(covariance)) - covariance
    posterior_mean = mean + _draw_losses(rows, learned, outcomes, rng)
    truth = posterior_mean + _draw_losses(rows, covariance, outcomes, rng)
    chosen = np.argmin(posterior_mean, axis=1)
    lost = truth[np.arange(outcomes), chosen] - truth.min(axis=1)
    return now | {
        "chance_after": float(np.mean(chosen == np.argmin(truth, axis=1))),
        "regret_after": float(lost.mean()),
    }


def _draw_losses(
    rows: Float[np.ndarray, "option coordinate"],
    covariance: Float[np.ndarray, "coordinate coordinate"],
    count: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, "outcome option"]:
    """Draw losses of options, linear in coordinates of this covariance."""
    # an eigenvalue may be below zero by rounding
    values, vectors = np.linalg.eigh(rows @ covariance @ rows.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((count, len(rows))) @ root.T


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
        khat = max(view.median_khat for view in views)
        if count == 1 or khat <= TRUSTED_K:
            break
        count = count // 2
    by_goal = np.hstack([view.variance() for view in views])
    variances = by_goal.mean(axis=1)  # of each outcome
    sd, error = math.sqrt(variances.mean()), math.nan
    if len(variances) > 1:
        # the error of a square root is the variance's error over twice the root
        error = variances.std(ddof=1) / math.sqrt(len(variances)) / (2 * sd)
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
        record |= replan(goal.plan, views, seed)
    return record
