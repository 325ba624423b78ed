"""Define the plan as a record with everything that a report shows and JSON stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.limits import SUPPLIES
from bayeslaw._base.numbers import format_count
from bayeslaw._base.schema import INTERVAL
from bayeslaw._base.shown import Shown
from bayeslaw._base.terminal import printable
from bayeslaw._costs.costs import AMOUNTS, COST_LIMITS, Bill
from bayeslaw._tables.beyond import PLACE, Distance, describe_place, read_places

# keys of a choice of tokens and replay, and of its probabilities
CHOICE = {"atpp D replay flops": float, "cost?": AMOUNTS}
CHANCES = "probability probability_target? probability_forgetting?"


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """The answer, with everything that a report shows. Every field can be stored in
    JSON.

    Parameters
    ----------
    feasible
        Whether the confidence is reached. If not, there is no plan (and ``explanation``
        says why), except within a budget, where the plan is the most probable one.
    atpp, D, replay, flops
        The plan: adaptation tokens per parameter, adaptation tokens, share of source
        data, FLOPs (6 N D, or by the formula of the costs).
    cost
        The total cost, if the hardware is known: ``flops``, ``device_hours``, ``days``
        and, with a price, ``money``. It includes a checkpoint that must be trained
        first and the fixed cost of a run.
    probability, probability_target, probability_forgetting
        Share of draws in which the plan keeps all promises, the target's promises, and
        those of all sources.
    binding
        The promises (or caps) that keep the plan from being cheaper; without a plan,
        the promises that prevent one.
    plug_in
        The plan without uncertainty: ``atpp``, ``replay``, ``D``, ``flops``, and the
        ``probability`` with which it keeps the promises.
    promises
        For each promise: ``limit``, ``unit``, ``probability``; ``mean``, ``low``,
        ``high`` (90%) of the loss in nats per token, or of the forgetting; and
        ``worth``: the share of tokens saved (within a budget: the probability gained)
        if the limit were higher by a thousandth of the loss.
    frontier
        The cheapest plan at each confidence.
    region
        Probability over ``replay`` and ``atpp``: ``probability[replay][atpp]``.
    tradeoff
        Forgetting and target loss along replay at the plan's ATPP, with 90% bands.
    truth
        The plan if each draw were the truth: quantiles of ATPP and replay, and
        ``regret`` and ``perfect_information`` in tokens (`value.perfect_information`).
    candidates
        A dictionary for each candidate model.
    explanation
        If the confidence is not reached: ``message``, the ``best`` possible choice,
        ``relax`` by promise, and the choice at which promises are ``shown``.
    warnings
        Reasons to distrust the posteriors.
    distance
        By column (``N``, ``ptpp``, ``D/N``, ``replay``), where the plan lies relative to
        the fitted runs: ``value``; their ``low`` and ``high``; ``times``, the factor over
        ``high`` or of ``low`` (1 inside; None without end); ``inside``; and ``tested``,
        the farthest left-out runs as a factor over the others' largest (1: none).
    """

    feasible: bool
    N: float
    ptpp: float | None
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
    cost: dict[str, float] | None = None
    distance: dict[str, dict[str, Any]] = field(default_factory=dict)

    KEYS: ClassVar = {
        "*": ...,
        "plug_in": {"*": CHOICE, "probability": float},
        "promises": [
            {"name unit": str, "limit probability mean low high worth": float}
        ],
        "frontier": [{"*": CHOICE, "confidence": float}],
        "region": {"atpp replay": list[float], "probability": list[list[float]]},
        "tradeoff": {
            "atpp": float,
            "replay": list[float],
            "bands": {"**": {"limit": float, "unit": str, INTERVAL: list[float]}},
        },
        "truth": {
            "share_with_a_plan regret perfect_information": float,
            "quantiles": list[float],
            "atpp replay": list[float] | None,
        },
        "candidates": [{"*": CHOICE, "N ptpp probability": float, "feasible": bool}],
        "explanation": {
            "message": str,
            "best": {"*": CHOICE, CHANCES: float},
            "relax": [
                {
                    "*": CHOICE,
                    "promise unit": str,
                    "limit probability_alone needed": float,
                    "enough?": {"*": CHOICE, "limit": float, "words": str},
                    "comfortable?": {"*": CHOICE, "limit": float},
                }
            ],
            "caps": [{"*": CHOICE, "cap": str, "limit needed": float}],
            "shown": CHOICE,
        },
        "settings": {
            "baseline asked": dict[str, float],
            "max_tokens min_replay max_replay": float,
            " ".join(supply.setting for supply in SUPPLIES.values()): float,
            "".join(f"{name}? " for name in COST_LIMITS): float,
            "costs?": str,
            "fitted notes": list[str],
            "new_run": bool,
            "draws seed": int,
            "soft?": {"prices excess": dict[str, float], "cost training": float},
            "errors?": {
                "sentence": str,
                "names": list[str],
                "correlation": list[list[float]],
                "probability_if_independent D_if_independent": float,
            },
        },
        "cost": AMOUNTS,
        "distance": {"**": PLACE},
    }

    def sentence(self) -> str:
        """Describe the answer in words."""
        if self.D is None:
            message = str((self.explanation or {})["message"])
            place = f". The model lies {self.place()}" if self.distance else ""
            return f"{message}{place}"
        place = self.place()
        odds = [f"{row['name']} {row['probability']:.1%}" for row in self.promises]
        subject = "A new run" if self.settings["new_run"] else "The law"
        sentences = [
            f"Adapt N = {format_count(self.N)}"
            + ("" if self.ptpp is None else f" at ptpp {self.ptpp:g}")
            + f" on {self.atpp:.3g} tokens per parameter "
            f"({format_count(self.D)} tokens, {self.flops:.2g} FLOPs) "
            f"with {self.replay:.0%} replay" + (f": {place}." if place else "."),
            f"{subject} keeps all promises with probability {self.probability:.1%} "
            f"({', '.join(odds)}); bound by {self.binding}.",
        ]
        soft = self.settings.get("soft")
        if soft is not None:
            over = [f"{n} by {x:.3g} nats" for n, x in soft["excess"].items()]
            sentences.append(
                f"In expectation it costs {soft['cost']:.4g}, of which training "
                f"{soft['training']:.4g}, and exceeds {', '.join(over)}."
            )
        if self.cost is not None:
            bill = Bill.from_dict(self.cost).sentence()
            sentences.insert(1, f"It costs {bill} ({self.settings['costs']}).")
        if not self.feasible:
            short = "The budget does not reach the confidence asked for"
            sentences[0] = f"{short}; most probable within it: {sentences[0]}"
        point = self.plug_in
        if point["atpp"] is not None:
            sentences.append(
                "Parameters without uncertainty would say "
                f"{point['atpp']:.3g} tokens per parameter "
                f"with {point['replay']:.0%} replay, "
                f"which keeps them with probability {point['probability']:.1%}."
            )
        errors = self.settings.get("errors")
        if errors is not None and self.probability is not None:
            independent = errors["probability_if_independent"]
            sentences.append(
                f"The {errors['sentence']}: if they were independent, it would be "
                f"{independent:.1%}."
            )
        notes = self.settings.get("notes", [])
        return "\n".join(map(printable, [*sentences, *notes]))

    def most_probable(self) -> dict[str, Any]:
        """Collect ``atpp``, ``D``, ``replay``, ``flops``, ``cost`` and ``probability`` of
        the plan; without one, of the most probable choice.
        """
        if self.D is None:
            return dict((self.explanation or {})["best"])
        names = ("atpp", "D", "replay", "flops", "cost", "probability")
        return {name: getattr(self, name) for name in names}

    def ways(self) -> list[str]:
        """Describe how each limit alone would have to be relaxed for a plan."""
        explanation = self.explanation or {"relax": (), "caps": ()}
        return list_ways(explanation["relax"], explanation["caps"])

    def places(self) -> dict[str, Distance]:
        """Return where the plan lies relative to the fitted runs, by column."""
        return read_places(self.distance)

    def place(self) -> str:
        """Describe where the plan lies relative to the fitted runs, if known."""
        return describe_place(self.places())

    def table(self) -> pd.DataFrame:
        """Make a table of the promises, by name."""
        return pd.DataFrame(self.promises).set_index("name")

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """Read the plan of `to_dict`.

        Raises
        ------
        PlanError
            A key is missing or unknown.
        """
        names = {one.name for one in fields(cls)}
        # plans of early versions have no costs and no distance
        odd = sorted(names ^ {"cost", "distance", *content})
        if odd:
            fault = "missing" if odd[0] in names else "unknown"
            raise PlanError(f"not a saved plan: {odd[0]!r} is {fault}")
        return cls(**content)


def list_ways(
    relax: Sequence[Mapping[str, Any]],
    caps: Sequence[Mapping[str, Any]],
    place: Callable[[Mapping[str, Any]], str] | None = None,
) -> list[str]:
    """Describe how each limit, or cap, alone would have to be relaxed for a plan, and
    the ``place`` of that.
    """
    word, at = (" limit", place) if place else ("", lambda row: "")
    ways = [
        f"{row['promise']}{word} {row['enough']['words']}{at(row['enough'])}"
        for row in relax
        if row["needed"] is not None
    ]
    for row in caps:
        write = "{:.1%}".format if row["cap"].endswith("replay") else format_count
        change = f"{row['cap']} {write(row['limit'])} -> {write(row['needed'])}"
        ways.append(change + at(row))
    return ways
