"""Hold the arguments of `bayeslaw.next_runs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pandas as pd

from bayeslaw._costs.costs import Costs
from bayeslaw._designs.goals.kinds import GainName
from bayeslaw._law.law import Law


@dataclass(frozen=True, eq=False)
class NextArguments:
    # documented in `next_runs`

    candidates: pd.DataFrame
    goal: pd.DataFrame | Mapping[str, Any]
    budget: float
    _: KW_ONLY
    measured: pd.DataFrame | None = None
    laws: Sequence[Law | str] | None = None
    source_laws: Sequence[Law | str] | None = None
    batch: int | None = None
    enough: float = 0.0
    least: float = 1.0
    gain: GainName | None = None
    reference: Mapping[str, float] | None = None
    seed: int = 0
    costs: Costs | None = None
