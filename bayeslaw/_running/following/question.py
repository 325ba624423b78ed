"""Define the question about a run: its end, its limits, and the confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import COUNT, EVEN_CHANCE, LOSS, RATE
from bayeslaw._base.limits import checked as checked_limit

LossLimits = float | Mapping[str, float] | None


class RunQuestion(NamedTuple):
    """The question about a run, see `follow`; ``limits`` by domain."""

    until: float
    limits: Mapping[str, float]
    confidence: float
    prob: float
    within: float


def checked(
    domains: list[str],
    until: float,
    max_loss: LossLimits,
    confidence: float,
    prob: float,
    within: float,
) -> RunQuestion:
    """Check the question.

    Raises
    ------
    PlanError
        A number is out of its range, or a limit is for a domain that is not followed.
    """
    limits = _by_domain(domains, max_loss)
    return RunQuestion(
        checked_limit("until", until, COUNT),
        {
            name: checked_limit(f"max_loss of {name}", v, LOSS)
            for name, v in limits.items()
        },
        checked_limit("confidence", confidence, EVEN_CHANCE),
        checked_limit("prob", prob, EVEN_CHANCE),
        checked_limit("within", within, RATE),
    )


def _by_domain(domains: list[str], max_loss: LossLimits) -> Mapping[str, float]:
    """Read the limits on losses by domain; one number belongs to the only domain."""
    if max_loss is None:
        return {}
    if not isinstance(max_loss, Mapping):
        if len(domains) > 1:
            raise PlanError("max_loss: say of which domain, {'target': 1.8, ...}")
        return {domains[0]: max_loss}
    unknown = [name for name in max_loss if name not in domains]
    if unknown:
        followed = ", ".join(domains)
        raise PlanError(f"max_loss of {unknown[0]!r}: the fits are of {followed}")
    return max_loss
