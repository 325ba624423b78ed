"""Hold the arguments of `bayeslaw.plan` in one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from bayeslaw._costs.costs import Costs
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.accuracy import AccuracyLink
from bayeslaw._posteriors.averaging.loading import Posteriors, by_name
from bayeslaw._posteriors.posterior import Posterior


@dataclass(frozen=True, eq=False)
class PlanArguments:
    # raw arguments, documented in `bayeslaw.plan`

    target: Posteriors
    source: Posteriors
    _: KW_ONLY
    N: float | Sequence[float]
    ptpp: float | Sequence[float] | None = None
    max_target_loss: float | str | Mapping[str, float | str] | None = None
    min_accuracy: float | str | None = None
    accuracy: AccuracyLink | pd.DataFrame | str | Path | None = None
    max_forgetting: float | str | Mapping[str, float | str] | None = None
    max_loss: Mapping[str, float | str] | None = None
    max_mean_loss: float | str | None = None
    mean_weights: Mapping[str, float] | None = None
    excess_price: Mapping[str, float] | None = None
    confidence: float | Mapping[str, float] = 0.9
    forgetting_unit: Literal["relative", "nats"] = "relative"
    baseline_loss: Any = None
    baseline_tokens: float | Mapping[str, float] | None = None
    baseline_run: Mapping[str, float] | None = None
    correlation: float | None = None
    covariates: Mapping[str, Any] | None = None
    max_flops: float | None = None
    max_tokens: float | None = None
    costs: Costs | None = None
    max_cost: float | None = None
    max_days: float | None = None
    unique_target_tokens: float | None = None
    max_epochs: float | None = None
    bytes_per_token: float | Mapping[str, float] | None = None
    min_replay: float | None = None
    max_replay: float | None = None
    new_run: bool = True
    point: Mapping[str, Mapping[str, float]] | None = None
    draws: int = 4000
    seed: int = 0

    @property
    def targets(self) -> dict[str, Posterior]:
        """Collect the posteriors of targets by name; one without a name is ``target``."""
        return by_name(self.target, TARGET)

    @property
    def sources(self) -> dict[str, Posterior]:
        """Collect the posteriors of sources by name; one without a name is
        ``forgetting``.
        """
        return by_name(self.source, FORGETTING)

    def bytes_of(self, name: str) -> float | None:
        """Find the bytes of a token of one domain's text."""
        given = self.bytes_per_token
        return given.get(name) if isinstance(given, Mapping) else given


NAMES = tuple(f.name for f in fields(PlanArguments) if f.kw_only)
