"""Compare plans of one question with other limits, sizes or prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from bayeslaw._base.errors import PlanError
from bayeslaw._base.numbers import format_count
from bayeslaw._base.shown import table_html
from bayeslaw._costs.costs import format_money
from bayeslaw._plans.plan import answered, posed
from bayeslaw._plans.result import Plan
from bayeslaw._posteriors.averaging.loading import Posteriors

BASE = "as asked"  # the scenario without changes


@dataclass(frozen=True)
class WhatIf:
    """Plans by scenario. Made by `what_if`.

    Parameters
    ----------
    plans
        Plans by name of the scenario, `BASE` first.
    changes
        Changes of each scenario, by name.
    """

    plans: Mapping[str, Plan]
    changes: Mapping[str, Mapping[str, Any]]

    KEYS: ClassVar = {"**": {"changes": dict[str, str], "plan": Plan}}

    def table(self) -> pd.DataFrame:
        """Show a row for each scenario: ``feasible``, ``N``, ``D``, ``atpp``,
        ``replay``, ``flops``, ``money`` and ``days`` if they are known, ``probability``
        and ``binding``. Where no plan reaches the confidence they are those of the most
        probable choice, and ``relax`` says how far a limit is from a plan. ``dearer`` is
        the extra spending over `BASE`, as a share of its FLOPs.
        """
        rows = {}
        first = self.plans[BASE].flops
        names = ("D", "atpp", "replay", "flops")
        for scenario, answer in self.plans.items():
            shown = answer.most_probable()
            row: dict[str, Any] = {"feasible": answer.feasible, "N": answer.N}
            row |= {name: shown[name] for name in names}
            cost = shown.get("cost") or {}
            row |= {name: cost[name] for name in ("money", "days") if name in cost}
            row |= {"probability": shown["probability"], "binding": answer.binding}
            row["relax"] = "; ".join(answer.ways())
            row["dearer"] = None
            if answer.flops is not None and first:
                row["dearer"] = answer.flops / first - 1
            rows[scenario] = row
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("scenario")

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types: the plan of every scenario, and its changes."""
        record = {}
        for name, plan in self.plans.items():
            changes = {key: str(value) for key, value in self.changes[name].items()}
            record[name] = {"changes": changes, "plan": plan.to_dict()}
        return record

    def sentence(self) -> str:
        """Describe each scenario in a line."""
        return "\n".join(
            f"{name}: {self._said(answer)}" for name, answer in self.plans.items()
        )

    def _said(self, answer: Plan) -> str:
        if answer.D is None:
            best = answer.most_probable()
            at = ""
            if best["D"]:
                at = (
                    f" ({format_count(best['D'])} tokens with {best['replay']:.0%} "
                    "replay)"
                )
            ways = answer.ways() or ["no limit alone is in the way"]
            return (
                f"no plan can be promised ({answer.binding} in the way): at best "
                f"{best['probability']:.1%}{at}; {'; '.join(ways)}"
            )
        replay = f"{format_count(answer.D)} tokens with {answer.replay:.0%} replay"
        money = (answer.cost or {}).get("money")
        price = "" if money is None else f", {format_money(money)} in money"
        reached = "" if answer.feasible else ", short of the confidence"
        return (
            f"{replay}{price}; promises kept with {answer.probability:.1%}{reached}, "
            f"bound by {answer.binding}"
        )

    def _repr_html_(self) -> str:
        return table_html(self.table())


def what_if(
    target: Posteriors,
    source: Posteriors,
    scenarios: Mapping[str, Mapping[str, Any]],
    **question: Any,
) -> WhatIf:
    """Plan one question, and plan it again with the changes of each scenario.

    Parameters
    ----------
    target, source
        As for `plan`.
    scenarios
        Name -> the keyword arguments of `plan` that differ, such as limits, sizes,
        ``costs``.
    **question
        Keyword arguments of `plan` that all scenarios share.

    Raises
    ------
    PlanError
        There is no scenario, or a question is ill-posed; the message names the
        scenario.

    Examples
    --------
    >>> question = {"N": 8.1e9, "ptpp": 279, "max_target_loss": 1.9, "baseline_loss": 1.64}
    >>> stricter = {"stricter": {"max_forgetting": "2.5%"}}
    >>> looked_at = bayeslaw.what_if(
    ...     target, source, stricter, max_forgetting="3%", **question
    ... )
    >>> looked_at.table()["D"].is_monotonic_increasing
    True
    """
    if not scenarios:
        raise PlanError("give a scenario: {'stricter': {'max_forgetting': '1%'}}")
    changes: dict[str, Mapping[str, Any]] = {BASE: {}} | dict(scenarios)
    # check all questions first, so that an error comes before any plan is made
    questions, plans = {}, {}
    for name, changed in changes.items():
        with _named(name):
            questions[name] = posed(target, source, **{**question, **changed})
    for name, asked in questions.items():
        with _named(name):
            plans[name] = answered(asked).plan
    return WhatIf(plans, changes)


@contextmanager
def _named(scenario: str) -> Iterator[None]:
    try:
        yield
    except PlanError as error:
        place = "" if scenario == BASE else f"scenario {scenario!r}: "
        raise PlanError(f"{place}{error}") from None
