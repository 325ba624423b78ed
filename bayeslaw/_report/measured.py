"""Compare a page's forecasts and plan with runs that were trained afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.interpolate import LinearNDInterpolator

from bayeslaw._base.errors import RunTableError
from bayeslaw._base.shown import InJson
from bayeslaw._forecasts.check import Check, check
from bayeslaw._forecasts.forecast import forecast
from bayeslaw._plans.constraint import UNITS
from bayeslaw._plans.mixing.mixture import MixturePlan
from bayeslaw._plans.question import FORGETTING
from bayeslaw._plans.result import Plan
from bayeslaw._report import figures
from bayeslaw._report.buying import Fits
from bayeslaw._report.domains import PageSetting
from bayeslaw._report.summary import Expected, expected_of, outcome_text
from bayeslaw._tables import fitting
from bayeslaw._tables.rows.levels import is_of_model


@dataclass(frozen=True)
class Measured(InJson):
    """What runs say that no fit of the page has seen.

    Parameters
    ----------
    checks
        Check of the forecasts of these runs, by domain.
    kept
        Each limit of the plan with its measured value, and whether it was kept; empty if
        the measured runs do not surround the plan, and None without a plan.
    pictures
        The forecasts of these runs and their losses, by domain.
    """

    checks: Mapping[str, Check]
    kept: Sequence[Kept] | None
    pictures: Mapping[str, figures.Picture]

    KEYS: ClassVar = {
        "checks": ...,
        "plan": [{"name": str, "measured": float, "kept": bool}],
    }

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types."""
        plan = [
            {"name": one.name, "measured": one.value, "kept": one.is_kept}
            for one in self.kept or ()
        ]
        return super().to_dict() | {"plan": plan}

    def sentence(self) -> str:
        """Say how the forecasts and the plan came out."""
        parts = [
            f"{name}: 90% intervals hold {result.coverage['0.9']:.0%} of {result.n} losses, "
            f"medians miss by {result.mae_rel:.1%}"
            for name, result in self.checks.items()
        ]
        parts += [
            f"{one.expected.label} measured {one.text}, at most {one.expected.limit}: "
            f"{'kept' if one.is_kept else 'NOT kept'}"
            for one in self.kept or ()
        ]
        return f"measured afterwards: {'; '.join(parts)}"


@dataclass(frozen=True)
class Kept:
    """A limit of the plan, what was expected and what was measured."""

    name: str
    expected: Expected
    value: float
    text: str
    is_kept: bool


def check_measured(
    measured: Mapping[str, pd.DataFrame], fitted: Mapping[str, pd.DataFrame]
) -> None:
    for domain, runs in measured.items():
        if domain not in fitted:
            raise RunTableError(
                f"measured runs of the domain {domain!r}, of which none is fitted"
            )
        both = int(fitting.fitted(fitted[domain], runs).sum())
        if both:
            raise RunTableError(
                f"{both} rows of {domain!r} are fitted and measured at once: leave "
                "them out of the fitted ones (--where)"
            )


def compare_measured(
    runs: Mapping[str, pd.DataFrame],
    fits: Fits,
    plan: Plan | MixturePlan | None,
    setting: PageSetting,
) -> Measured:
    checks = {
        name: check(fits[name], part, seed=setting.seed) for name, part in runs.items()
    }
    pictures = {
        name: figures.forecast_grid(
            part,
            forecast(fits[name], part, seed=setting.seed),
            title=f"{name}: measured afterwards",
            caption=f"{name}: forecasts (dashed: median; band: 90% interval of a new run) "
            "and what was measured afterwards (dots), by replay.",
            unit=setting.unit,
        )
        for name, part in runs.items()
        if {"N", "D"} <= set(part)
    }
    if not isinstance(plan, Plan) or not plan.feasible:
        return Measured(checks, None, pictures)
    kept = []
    for promise in plan.promises:
        name = str(promise["name"])
        domain = "source" if name == FORGETTING else name
        loss = loss_between(runs[domain], plan) if domain in runs else None
        if loss is None:
            continue
        # in the limit's unit
        baseline = plan.settings["baseline"].get(name, np.nan)
        value = float(UNITS[promise["unit"]].outcome(loss, baseline))
        kept.append(
            Kept(
                name=name,
                expected=expected_of(promise),
                value=value,
                text=outcome_text(promise, value),
                is_kept=value <= promise["limit"],
            )
        )
    return Measured(checks, tuple(kept), pictures)


def loss_between(runs: pd.DataFrame, plan: Plan) -> float | None:
    """Read the loss at the plan's tokens and replay, linear between the measured runs of
    its model in the log of tokens, replay and the log of the loss; None if they do not
    surround the plan.
    """
    assert plan.D is not None
    assert plan.replay is not None
    stage = plan.ptpp if "ptpp" in runs else None
    of_model = runs[is_of_model(runs, plan.N, stage)]
    same = of_model.groupby(["D", "replay"])["loss"].mean().reset_index()
    if same["D"].nunique() < 2 or same["replay"].nunique() < 2:
        return None
    log_loss = LinearNDInterpolator(
        np.column_stack([np.log(same["D"]), same["replay"]]), np.log(same["loss"])
    )
    (loss,) = np.exp(log_loss([[np.log(plan.D), plan.replay]]))
    return float(loss) if np.isfinite(loss) else None
