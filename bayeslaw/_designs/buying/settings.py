"""How a sequence buys: the keywords of `bayeslaw.next_runs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, no_type_check

import pandas as pd

from bayeslaw._costs.costs import Costs
from bayeslaw._designs.goals.kinds import Gain
from bayeslaw._law.law import Law


class NextOptions(TypedDict, total=False):
    """Keywords of `next_runs`, as editors show them; `Buying` has their defaults."""

    measured: pd.DataFrame | None
    laws: Sequence[Law | str] | None
    source_laws: Sequence[Law | str] | None
    batch: int | None
    enough: float
    least: float
    gain: Gain | None
    reference: Mapping[str, float] | None
    seed: int
    costs: Costs | None


@no_type_check  # at run time: what is given wrongly is refused in words
@dataclass(frozen=True)
class Buying:
    """How runs are bought: the keywords of `next_runs`, which says what they are."""

    measured: pd.DataFrame | None = None
    laws: Sequence[Law | str] | None = None
    source_laws: Sequence[Law | str] | None = None
    batch: int | None = None
    enough: float = 0.0
    least: float = 1.0
    gain: Gain | None = None
    reference: Mapping[str, float] | None = None
    seed: int = 0
    costs: Costs | None = None
