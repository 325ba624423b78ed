"""Describe a chosen mixture: its limits, and reasons to distrust it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslaw._law.columns import SHARE
from bayeslaw._plans.mixing.question import MixtureQuestion, Simplex, fitted_range
from bayeslaw._plans.mixing.search import MixtureChoice, SimplexProblem
from bayeslaw._posteriors.averaging.distance import doubts_of_place, tell_distance

if TYPE_CHECKING:
    from jaxtyping import Float


def chances(limits: Sequence[Mapping[str, Any]], probability: float) -> str:
    """Say how probable it is that limits are kept: together, and each by itself."""
    of_each = ", ".join(f"{row['name']} {row['probability']:.1%}" for row in limits)
    return f"All limits are kept with probability {probability:.1%} ({of_each})"


def limit_rows(problem: SimplexProblem, choice: MixtureChoice) -> list[dict[str, Any]]:
    """Describe each limit at the plan."""
    margins = problem.margins(choice.log_tokens, choice.shares)
    rows = []
    limits = problem.limits
    for name, most, margin in zip(limits.names, limits.most, margins, strict=True):
        rows.append(
            {
                "name": name,
                "limit": float(most),
                "probability": float((margin >= 0).mean()),
                **quantiles(most * np.exp(-margin)),
            }
        )
    return rows


def quantiles(
    losses: Float[np.ndarray, " draw"], tail: float = 0.05
) -> dict[str, float]:
    """Summarise a loss by its median and 90% interval."""
    low, median, high = np.quantile(losses, [tail, 0.5, 1 - tail])
    return {"median": float(median), "low": float(low), "high": float(high)}


def tell_place(simplex: Simplex, choice: MixtureChoice) -> dict[str, dict[str, Any]]:
    """Tell where a chosen run lies, as `tell_distance` does."""
    return tell_distance(simplex.posteriors, _planned_run(simplex, choice))


def _planned_run(simplex: Simplex, choice: MixtureChoice) -> dict[str, float]:
    """Give the columns of a chosen run that say how far it lies from the fitted ones."""
    return {"N": simplex.size, "D": math.exp(choice.log_tokens)}


def doubts(
    question: MixtureQuestion,
    simplex: Simplex,
    choice: MixtureChoice,
    near: float = 1e-3,
) -> list[str]:
    """Collect warnings about the plan: those of the fits, and plans at an end of a
    range.
    """
    posteriors = simplex.posteriors
    lines = [f"{n}: {line}" for n, p in posteriors.items() for line in p.warnings]
    lines += simplex.notes
    lines += doubts_of_place(posteriors, _planned_run(simplex, choice))
    ends = zip(simplex.domains, choice.shares, simplex.low, simplex.high, strict=True)
    for name, share, low, high in ends:
        if name in question.bounds:
            lines += _share_outside(name, share, simplex, near)
            continue
        at = "least" if share - low < near else "largest" if high - share < near else ""
        if at:
            lines.append(
                f"the share of {name}, {share:.1%}, is the {at} that was fitted: beyond "
                f"it nothing was checked; bounds={{{name!r}: (0, 1)}} looks there "
                f"(--share {name}=0:100%; of report --plan share_{name}=0:100%)"
            )
    return lines


def _share_outside(name: str, share: float, simplex: Simplex, near: float) -> list[str]:
    """Write a line if a share within bounds that were given lies beyond the fitted ones."""
    low, high = fitted_range(simplex.posteriors, f"{SHARE}{name}") or (0.0, 1.0)
    if low - near < share < high + near:
        return []
    return [
        f"the share of {name}, {share:.1%}, lies beyond those that were fitted "
        f"({low:.1%} to {high:.1%}): nothing was checked there"
    ]
