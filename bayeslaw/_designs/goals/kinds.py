"""List the kinds of gain from buying runs."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bayeslaw._costs.costs import Costs

GainName = Literal[
    "variance", "information", "parameters", "plan", "best", "law", "optimum"
]


class GoalKind(NamedTuple):
    """A kind of gain: its unit, the least gain (per cost, or for the whole budget) for
    which a run is bought, and a name for the sd of its goal.
    """

    unit: str
    least: float
    sd_of: str = "the goal's sd"
    of_what: str = " of the loss"
    is_share: bool = True

    def shown(self, sd: float) -> str:
        """Format the goal's sd."""
        return f"{sd:.2%}" if self.is_share else f"{sd:.3g}"


def unit_of(gain: str, costs: Costs | None) -> str:
    """Name the unit of a gain, for runs priced in FLOPs or in money."""
    if gain == "plan" and costs is not None:
        return "money of the plan"
    return KINDS[gain].unit


KINDS: dict[str, GoalKind] = {
    "variance": GoalKind("squared log loss", 0.01),
    "information": GoalKind("nats about new runs at the goal", 0.01),
    "parameters": GoalKind("nats about all parameters", 0.0),
    "plan": GoalKind("FLOPs of the plan", 1.0),
    "best": GoalKind("log loss of what is chosen", 0.01),
    "law": GoalKind("squared probability", 0.01, "the sd of which law is right", ""),
    "optimum": GoalKind(
        "squared position", 0.01, "the sd of the optimum's position", "", False
    ),
}
