"""Foresee what bought runs do for new runs at the goal: their interval, and the verdict
on a limit of their loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from bayeslaw._base.numbers import Z90, format_many
from bayeslaw._base.schema import LABEL
from bayeslaw._costs.costs import format_money
from bayeslaw._designs.criteria import variances_at
from bayeslaw._designs.evidence import Domain, Gaussian
from bayeslaw._designs.gaussian import Pick, precision_of

# keys of `foresee_verdicts` in JSON
VERDICTS = {
    "max_loss confidence changes": float,
    "runs": [{"row": LABEL, "now": str, "probability kept broken unsure": float}],
}
HARDLY = 0.05  # probability of another verdict below which runs hardly decide


def foresee_new_run(domain: Domain, before: float, after: float) -> dict[str, float]:
    """Compute half of a new run's 90% interval in log loss, where the goal's sd is as
    ``before`` and ``after`` all picks.
    """
    own = _own_variance(domain, float(np.mean(domain.at >= 0)))
    sds = {"before": before, "after": after}
    return {name: Z90 * math.sqrt(sd**2 + own) for name, sd in sds.items()}


def foresee_verdicts(
    approximation: Gaussian,
    domain: Domain,
    picks: Sequence[Pick],
    goal: pd.DataFrame,
    max_loss: float,
    confidence: float,
) -> dict[str, Any]:
    """Foresee the verdict on a limit of a new run's loss, for each run of the goal.

    It is kept, or broken, if that has at least the confidence, and else unsure. Before
    runs are measured, the mean to which they will lead is normal around today's, with
    the variance that they take away (Raiffa and Schlaifer 1961, chapter 5). So the
    probability of each verdict after them follows in closed form.
    """
    before, after = (
        variances_at(precision_of(approximation.offer, some), approximation.goals)
        for some in ((), picks)
    )
    own = np.array([_own_variance(domain, float(at >= 0)) for at in domain.at])

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
    told.insert(0, "row", goal.index)
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


def _own_variance(domain: Domain, at_offered: float) -> float:
    """Compute the variance of a new run's log loss around the law. ``at_offered``: share
    of runs whose checkpoint is on offer; its effect is then part of the goal's sd.
    """
    noise = domain.noise
    in_goal = at_offered * noise.tau_checkpoint**2
    return float(np.mean(noise.capped_variance + noise.shared_variance - in_goal))
