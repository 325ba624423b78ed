"""Compare the plan before and after, and evaluate the old plan by the new posterior."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from bayeslaw._base.numbers import format_chance, format_count
from bayeslaw._base.shown import InJson
from bayeslaw._plans import value
from bayeslaw._plans.arguments import PlanArguments
from bayeslaw._plans.plan import plan
from bayeslaw._plans.posing import pose
from bayeslaw._plans.question import FORGETTING, TARGET, Model, Question
from bayeslaw._plans.reading import question_of
from bayeslaw._plans.result import Plan
from bayeslaw._plans.search import Choice
from bayeslaw._posteriors.posterior import Posterior


@dataclass(frozen=True)
class PlanChange(InJson):
    """A plan before and after new rows.

    Parameters
    ----------
    before, after
        The plans.
    kept
        ``probability``, ``probability_target``, ``probability_forgetting`` of the old
        plan under the new posterior; empty if there was no plan.
    regret_before, regret
        Tokens that the old plan spends beyond the cheapest plan of each draw, in draws
        that keep its promises: by the old and by the new posterior (`Plan.truth`); None
        without such draws.
    """

    before: Plan
    after: Plan
    kept: dict[str, float]
    regret_before: float | None
    regret: float | None

    KEYS: ClassVar = {
        "*": ...,
        "kept": "probability? probability_target? probability_forgetting?",
        "moved": bool,
        "still_keeps": bool | None,
    }

    @property
    def moved(self) -> bool:
        """Tell whether the plan changed: by a tenth of its tokens, by 5 points of
        replay, or because there is a plan only before or only after.
        """
        before, after = self.before, self.after
        if before.feasible != after.feasible:
            return True
        if not (before.D and after.D):
            return before.D != after.D
        # the same factor up and down
        other_tokens = abs(math.log(after.D / before.D)) > math.log1p(0.1)
        other_replay = abs(_get_replay(after) - _get_replay(before)) > 0.05
        return other_tokens or other_replay

    @property
    def still_keeps(self) -> bool | None:
        """Tell whether the old plan keeps its promises with the confidence under the
        new posterior; None without an old plan, or with one confidence for each
        promise.
        """
        confidence = self.after.confidence
        if not self.kept or isinstance(confidence, dict):
            return None
        return self.kept["probability"] >= confidence

    def headline(self) -> str:
        """Describe how the plan changed."""
        before, after = _describe(self.before), _describe(self.after)
        return f"the plan goes from {before} to {after}"

    def stays(self) -> str:
        """Describe that the plan did not change."""
        has_plan = self.before.D is not None
        return "the plan stays" if has_plan else "still no plan can be promised"

    def sentence(self) -> str:
        """Describe the old plan then and now."""
        if not self.kept:
            if self.after.D is None:
                return "No plan could be promised before, and none can be now."
            return f"No plan could be promised before; now: {_describe(self.after)}."
        then = format_chance(float(self.before.probability or 0.0))
        now = format_chance(self.kept["probability"])
        lines = [
            f"The old plan ({_describe(self.before)}) keeps its promises with probability "
            f"{now}; {then} was foreseen."
        ]
        if self.regret is not None and self.before.D:
            more = self.regret / self.before.D
            lines.append(
                f"Where it keeps them, it spends {format_count(self.regret)} tokens "
                f"({more:.0%} of its own) more than knowing the truth would."
            )
        return " ".join(lines)


def _get_replay(record: Plan) -> float:
    return float(record.replay or 0.0)


def _describe(record: Plan) -> str:
    if record.D is None:
        return "none"
    replay = f"{format_count(record.D)} tokens with {_get_replay(record):.0%} replay"
    return replay if record.feasible else f"{replay} (short of the confidence)"


Sources = Posterior | Mapping[str, Posterior]


def plan_change(
    before: Plan, new: tuple[Posterior, Sources], keywords: Mapping[str, Any]
) -> PlanChange:
    """Plan with new posteriors by the same question; compare with the old plan."""
    after = plan(*new, **keywords)
    if before.D is None:
        return PlanChange(before, after, {}, None, None)
    of_new, model = _pose_of_plan(new, keywords, before)
    problem = pose(of_new, model)
    log_tokens = math.log(before.D) if before.D else -math.inf
    # evaluated with the same pairs of draws and the same noise as the new plan
    choice = Choice(log_tokens, _get_replay(before), 0.0)
    kept = value.probabilities(problem, *choice[:2])
    truth = value.perfect_information(problem, choice) if before.D else {}
    then, now = before.truth.get("regret"), truth.get("regret")
    return PlanChange(before, after, kept, regret_before=then, regret=now)


def _pose_of_plan(
    pair: tuple[Posterior, Sources], keywords: Mapping[str, Any], planned: Plan
) -> tuple[Question, Model]:
    """Read the question, and the model among its models that was planned."""
    question = question_of(PlanArguments(*pair, **keywords))
    models = {(model.N, model.ptpp): model for model in question.models}
    return question, models[planned.N, planned.ptpp]


def planned_rows(
    old: tuple[Posterior, Sources], keywords: Mapping[str, Any], planned: Plan
) -> dict[str, pd.DataFrame]:
    """Build the planned run, if there is one, as a row for each constraint."""
    if not planned.D:
        return {}
    question, model = _pose_of_plan(old, keywords, planned)
    chosen = {"D": planned.D, "replay": _get_replay(planned)}
    columns = model.at_means().columns
    return {
        name: pd.DataFrame([{**columns[name], **chosen}], index=["the old plan"])
        for name in (TARGET, FORGETTING)
        if name in question.pieces
    }
