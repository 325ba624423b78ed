"""Judge left-out stages by split conformal prediction (Vovk, Gammerman and Shafer
2005), with a stage in place of a row. The score of a stage is the factor by which its
90% intervals would have had to be wider. No distribution is assumed.

If the next stage is exchangeable with m left-out stages, its factor is below the
largest of theirs with probability m / (m + 1). A statement at 90% needs nine stages.
This is a check, not a promise: in an extrapolation stages may not be exchangeable.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from bayeslaw._base.html import paragraphs, table_html

# with nine stages m / (m + 1) is .9, so a statement at 90% is possible
NEEDED = 9


@dataclass(frozen=True)
class Stage:
    """A stage that was forecast from the stages below it.

    ``n``: number of its runs. ``coverage90``: share of the runs inside 90% intervals.
    ``stretch``: factor by which the intervals would have had to widen to hold 90% of
    the runs. ``failed``: whether the posterior that made the forecast failed its
    diagnostics.
    """

    name: str
    n: int
    coverage90: float
    stretch: float
    failed: bool = False


@dataclass(frozen=True)
class StagesCheck:
    """Left-out stages, and the conclusion about the next one.

    Parameters
    ----------
    column
        Column of the stages; None if the runs have one stage only.
    stages
        The stages, each forecast from all stages below it.
    skipped
        Stages that could not be left out, with the reason, a line each.
    """

    column: str | None
    stages: tuple[Stage, ...]
    skipped: tuple[str, ...] = ()

    @property
    def largest(self) -> float | None:
        """The largest stretch; None without stages."""
        return max((stage.stretch for stage in self.stages), default=None)

    @property
    def factor(self) -> float | None:
        """Factor that makes 90% intervals hold 90% of the next stage's runs with
        `probability`: the largest stretch, at least 1; None without stages.
        """
        return None if self.largest is None else max(1.0, self.largest)

    @property
    def probability(self) -> float | None:
        """Probability that the next stage's stretch is below the largest, if it is
        exchangeable with the left-out stages; None without stages.
        """
        m = len(self.stages)
        return m / (m + 1) if m else None

    @property
    def factor90(self) -> float | None:
        """Like `factor`, with a probability of at least 90%; None with fewer than nine
        stages, which allow no such statement.
        """
        m = len(self.stages)
        if m < NEEDED:
            return None
        # of m + 1 exchangeable stretches the last is the k-th smallest or below with
        # probability k / (m + 1)
        k = math.ceil(0.9 * (m + 1) - 1e-9)
        ordered = sorted(stage.stretch for stage in self.stages)
        return max(1.0, ordered[k - 1])

    @property
    def table(self) -> pd.DataFrame:
        """Make a table with a row for each stage, by name."""
        rows = [asdict(stage) for stage in self.stages]
        columns = ["name", "n", "coverage90", "stretch", "failed"]
        return pd.DataFrame(rows, columns=columns).set_index("name")

    @property
    def lines(self) -> tuple[str, ...]:
        """Describe the result in words, line by line."""
        if self.factor is None:
            return (f"stages left out: {self._nothing()}",)
        m = len(self.stages)
        stretches = ", ".join(
            f"{s.stretch:.2f} ({s.name}, {s.n} runs)" for s in self.stages
        )
        chance = f"{m}/{m + 1} = {self.probability:.0%}"
        if self.factor > 1:
            wide = f"{self.factor:.2f} times as wide"
        else:
            wide, chance = "as they are", f"at least {chance}"
        lines = [
            f"stages left out along {self.column}, each forecast from those below: to "
            f"hold 90% of its runs, 90% intervals would have had to be {stretches} times as "
            "wide",
            f"if the next stage is exchangeable with {_these(m)}, 90% intervals {wide} "
            f"hold 90% of its runs with probability {chance}",
        ]
        if self.factor90 is None:
            lines.append(
                "that is all that can be said without assuming a distribution: a "
                f"statement at 90% takes {NEEDED} stages, and here are {m}"
            )
        else:
            lines.append(f"and {self.factor90:.2f} times as wide with 90% at least")
        lines.append(
            "this is a check and no promise: a next stage that lies further beyond the "
            "runs than the stages left out did is not exchangeable with them"
        )
        failed = [stage.name for stage in self.stages if stage.failed]
        if failed:
            lines.append(f"diagnostics failed in forecasting {', '.join(failed)}")
        return (*lines, *(f"not left out: {why}" for why in self.skipped))

    def sentence(self) -> str:
        """Describe the result in one line."""
        return "; ".join(self.lines)

    def _nothing(self) -> str:
        """Describe why no stage could be left out."""
        if self.column is None:
            return "the fitted runs have one stage only, so there is nothing to say"
        reasons = "; ".join(self.skipped)
        return (
            f"none can be left out along {self.column}, so there is nothing to say of the "
            f"next one ({reasons})"
        )

    def __repr__(self) -> str:
        return f"StagesCheck({self.sentence()})"

    def _repr_html_(self) -> str:
        """Show the sentence, and a row for each stage, in notebooks."""
        return paragraphs(self.sentence()) + table_html(self.table)

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return {
            "column": self.column,
            "stages": [asdict(stage) for stage in self.stages],
            "skipped": list(self.skipped),
            "largest": self.largest,
            "factor": self.factor,
            "probability": self.probability,
            "factor90": self.factor90,
            "stages_for_90": NEEDED,
            "reason": self.sentence(),
        }


def _these(count: int) -> str:
    return "this one" if count == 1 else f"these {count}"
