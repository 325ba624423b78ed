"""Plan for limits that lie at the forecast medians of a run that is asked for."""

from typing import Any

import numpy as np
import pandas as pd

import bayeslaw

CONFIDENCES = (0.5, 0.7, 0.8, 0.9)
Asked = dict[str, float]
ASKED: Asked = {"atpp": 8.0, "replay": 0.3}
LOOSER = (0.0, 0.01, 0.02, 0.04, 0.08)  # until a plan exists


def medians(
    target, source, n: float, ptpp: float, before: dict[str, float], asked: Asked
) -> tuple[float, float]:
    """The median target loss and forgetting forecast for the run that is asked for."""
    run = pd.DataFrame(
        [{"N": n, "D": asked["atpp"] * n, "replay": asked["replay"], "ptpp": ptpp}]
    )
    run = run.assign(source_loss_before=before["source"])
    after = {
        name: float(
            np.exp(np.median(fit.log_loss(run.assign(loss_before=before[name]))))
        )
        for name, fit in (("target", target), ("source", source))
    }
    return after["target"], after["source"] / before["source"] - 1


def known_before(before: dict[str, float]) -> dict[str, float]:
    """Losses of the checkpoint, as a plan's covariates."""
    return {"loss_before": before["target"], "source_loss_before": before["source"]}


def planned(
    target,
    source,
    n: float,
    ptpp: float,
    before: dict[str, float],
    confidence: float,
    asked: Asked = ASKED,
) -> tuple[dict, bayeslaw.Plan]:
    """Limits and the plan."""
    middle, risen = medians(target, source, n, ptpp, before, asked)
    for looser in LOOSER:
        limits = {
            "max_target_loss": middle * (1 + looser),
            "max_forgetting": risen + looser,
        }
        plan = bayeslaw.plan(
            target, source, N=n, ptpp=ptpp, confidence=confidence, baseline_loss=before["source"],
            covariates=known_before(before), **limits,
        )  # fmt: skip
        if plan.feasible:
            break
    return limits | {"looser": looser}, plan


def outcome_of(
    plan: bayeslaw.Plan, limits: dict[str, float], target_loss: float, forgetting: float
) -> dict[str, Any]:
    """What came of a plan: whether its run kept each limit, and the forecast intervals."""
    told = {
        "atpp": plan.atpp,
        "replay": plan.replay,
        "probability": plan.probability,
        "target_loss": target_loss,
        "forgetting": forgetting,
        "kept_target": target_loss <= limits["max_target_loss"],
        "kept_forgetting": forgetting <= limits["max_forgetting"],
    }
    for name, promise in zip(("target", "forgetting"), plan.promises, strict=True):
        told |= {f"{name}_low": promise["low"], f"{name}_high": promise["high"]}
    return told
