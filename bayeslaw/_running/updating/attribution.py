"""Explain why a forecast moved: the part of each group of new rows, computed from the
old draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._inference.diagnostics import TRUSTED_K, pareto_smoothed
from bayeslaw._running.updating.foreseen import Foreseen
from bayeslaw._running.updating.surprise import covariance_of, members, telling

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


@dataclass(frozen=True, eq=False)
class Attribution:
    """The shift of one run's forecast and its parts, in log loss.

    Parameters
    ----------
    shift
        Shift of the law's mean there, from the old posterior to the new one.
    sd
        Standard deviation of the law's log loss there before.
    together
        The shift that all new rows give the old draws (`attribute`).
    groups
        By level of a column (``by``, ``level``): ``rows``; ``adds``, their part of
        ``together``, to which the levels of a column add up; ``alone``, the shift that
        they would give without the other new rows, by reweighting the old draws, and
        the weights' ``khat``: from .7 on ``alone`` is no number.
    close, close_sd
        Largest error of an attributed shift, in the refit's shift and in sds before.
    most
        Share of a shift that a group must add to be its reason.
    """

    shift: float
    sd: float
    together: float
    groups: pd.DataFrame
    close: float = 0.4
    close_sd: float = 0.35
    most: float = 0.5

    @property
    def is_told(self) -> bool:
        """Tell whether the old draws predict the refit's shift, so that its parts are
        meaningful.
        """
        # a shift that is small beside what was unknown needs no exact account
        allowed = max(self.close * abs(self.shift), self.close_sd * self.sd)
        return abs(self.together - self.shift) <= allowed

    @property
    def reasons(self) -> pd.DataFrame:
        """List the groups that add most of the shift; none if the shift cannot be
        explained.
        """
        if not self.is_told:
            return self.groups.iloc[:0]
        along = self.groups["adds"] * np.sign(self.shift)
        return self.groups[along >= self.most * abs(self.shift)]

    def sentence(self) -> str:
        """Describe how much of the shift is explained, and by which rows."""
        part_told = f"of {self.shift:+.2%} the new rows tell {self.together:+.2%}"
        if not self.is_told:
            return (
                f"{part_told}; the rest is what only the refit shows (misfit and noise "
                "learned again, weights and drift of laws, rows changed or gone), so "
                "that it cannot be told by which rows"
            )
        parts = [
            f"{group['by']} {group['level']} {group['adds']:+.2%}"
            for _, group in self.largest.iterrows()
        ]
        return f"{part_told}: {', '.join(parts)}"

    @property
    def largest(self) -> pd.DataFrame:
        """List the three groups with the largest parts, from columns with several
        levels if there are any.
        """
        levels = self.groups.groupby("by")["level"].transform("size")
        # a column of one level says no more than that all rows moved it; runs are many
        several = self.groups[(levels > 1) & (self.groups["by"] != "run")]
        groups = several if len(several) else self.groups
        order = groups["adds"].abs().sort_values(ascending=False).index
        return groups.loc[order[:3]]

    def to_dict(self) -> dict[str, Any]:
        """Convert the record to JSON types."""
        return {
            "shift": self.shift,
            "sd": self.sd,
            "together": self.together,
            "told": self.is_told,
            "reason": self.sentence(),
            "groups": self.groups.to_dict(orient="records"),
        }


def attribute(
    foreseen: Foreseen,
    before: Float[np.ndarray, " draw"],
    after: Float[np.ndarray, " later"],
) -> Attribution:
    """Attribute the shift of a forecast to the new rows.

    Parameters
    ----------
    foreseen
        The new rows under the old draws.
    before, after
        Draws of the law's log loss at the run to forecast, of the old and the new
        posterior.

    Notes
    -----
    The old draws of the forecast and of the new rows are taken as jointly normal. The
    forecast's mean then moves by a gain times how far each row lies from its own (the
    update of an ensemble Kalman filter; Evensen 1994), which adds up over rows.
    Reweighting the draws by the rows' likelihood needs no such assumption; it is
    reported if its k-hat allows, as a rule for a few rows. Neither covers what a refit
    learns again: the misfit's scales, and an average's weights and drift.
    """
    # effects are part of what rows share: a checkpoint that is off moves no law
    shared = foreseen.shared
    covariance = covariance_of(shared) + foreseen.own_covariance
    away = shared - shared.mean(axis=0)
    together_with = (before - before.mean()) @ away / (len(before) - 1)
    # a row weighs by what it shares with the forecast, less what other rows say too
    gain = np.linalg.solve(covariance, together_with)
    adds = gain * (foreseen.y - shared.mean(axis=0))
    return Attribution(
        shift=float(after.mean() - before.mean()),
        sd=float(before.std()),
        together=float(adds.sum()),
        groups=telling(_groups(foreseen, before, adds), ["adds"]),
    )


def _groups(
    foreseen: Foreseen,
    before: Float[np.ndarray, " draw"],
    adds: Float[np.ndarray, " row"],
) -> Iterator[dict[str, Any]]:
    """Yield each group of new rows with its part of the shift, and the shift from it
    alone.
    """
    for by, level, picked in members(foreseen.rows):
        alone, khat = _alone(foreseen, picked, before)
        yield {
            "by": by,
            "level": level,
            "rows": int(picked.sum()),
            "adds": float(adds[picked].sum()),
            "alone": alone if khat < TRUSTED_K else float("nan"),
            "khat": khat,
        }


def _alone(
    foreseen: Foreseen,
    picked: Bool[np.ndarray, " row"],
    before: Float[np.ndarray, " draw"],
) -> tuple[float, float]:
    """Compute the shift of the draws' mean by the likelihood of some rows, and the
    weights' k-hat.
    """
    weight, khat = pareto_smoothed(foreseen.log_likelihood(picked))
    return float(weight @ before - before.mean()), khat
