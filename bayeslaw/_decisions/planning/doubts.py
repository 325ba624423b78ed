"""What to know of a plan that its probability does not say."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from bayeslaw._decisions.planning.posing import ATPP_RANGE
from bayeslaw._decisions.planning.record import Plan
from bayeslaw._decisions.planning.together import table_of
from bayeslaw._posteriors.posterior import Posterior
from bayeslaw._tables.beyond import far_beyond

AT_THE_END = 1e-3  # of log tokens: as good as the least budget that is looked at
CHECKPOINT = ["N", "ptpp"]


def doubts(
    target: Posterior, sources: Mapping[str, Posterior], made: Plan
) -> list[str]:
    """Far beyond the runs that were fitted, fits of other checkpoints, the end of what
    is looked at: a line each.
    """
    run = {"N": made.N, "ptpp": made.ptpp}
    if made.D:
        run["D"] = made.D
    asked = pd.DataFrame([run])
    table = table_of(target)
    lines = [f"the plan's {line}" for line in far_beyond(table, asked)]
    for name, posterior in sources.items():
        lines += _checkpoints_differ(name, table, table_of(posterior))
    least = ATPP_RANGE[0]
    if made.atpp and math.log(made.atpp / least) < AT_THE_END:
        lines.append(
            "the promises hold already at the least budget that is looked at "
            f"({least:g} tokens per parameter), so the cheapest may be any under it: "
            "look at the limits again"
        )
    return lines


def _checkpoints_differ(
    name: str, target: pd.DataFrame | None, source: pd.DataFrame | None
) -> list[str]:
    if target is None or source is None:
        return []
    if not set(CHECKPOINT) <= set(target) & set(source):
        return []
    ours = set(target[CHECKPOINT].itertuples(index=False, name=None))
    theirs = set(source[CHECKPOINT].itertuples(index=False, name=None))
    if ours & theirs:
        return []
    return [
        f"the fits of target and of {name} have no checkpoint (N, ptpp) in common: are "
        "they of the same models?"
    ]
