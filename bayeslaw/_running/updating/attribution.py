"""Explain why a forecast moved: the part of each group of new rows, computed from the
old draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bayeslaw._inference.diagnostics import TRUSTED_K, pareto_smoothed
from bayeslaw._running.updating.foreseen import Foreseen
from bayeslaw._running.updating.surprise import covariance_of, members, telling

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(frozen=True, eq=False)
class Attribution:
    """The shift of one run's forecast and its parts, in log loss.

    Parameters
    ----------
    shift
        Shift of the law's mean at that run, from the old posterior to the new one.
    sd
        Sd of the law's log loss at that run, by the old posterior.
    together
        The shift that all new rows give the old draws (`attribute`).
    groups
        A row for each level of a column (``by``, ``level``), with its number of
        ``rows``. ``adds`` is the group's part of ``together``; parts of a column's
        levels add up to it. ``alone`` is the shift that the group would give without
        the other new rows, by reweighting the old draws, and ``khat`` that of the
        weights; from .7 on ``alone`` is NaN.
    close, close_sd
        Largest error of an explained shift: as a share of the refit's shift, or in
        ``sd``.
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
        # a shift that is small compared with the old sd need not be explained exactly
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
        # A column with one level explains nothing, and single runs are too many to list,
        # unless there are no others. Of the rest the three largest parts.
        levels = self.groups.groupby("by")["level"].transform("size")
        several = self.groups[(levels > 1) & (self.groups["by"] != "run")]
        groups = several if len(several) else self.groups
        order = groups["adds"].abs().sort_values(ascending=False).index
        parts = [
            f"{group['by']} {group['level']} {group['adds']:+.2%}"
            for _, group in groups.loc[order[:3]].iterrows()
        ]
        return f"{part_told}: {', '.join(parts)}"

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
    The old draws of the forecast and of the new rows are assumed to be jointly normal.
    The forecast's mean then moves by a sum over rows: a gain times the difference of
    the row from its own forecast (the update of an ensemble Kalman filter; Evensen
    1994). Reweighting the draws by the rows' likelihood does not need this assumption.
    Its result is reported if its k-hat allows, which is mostly for a few rows. Neither
    method covers what a refit learns again: the misfit's scales, and the weights and
    drift of an average.
    """
    # Effects are added to the law, so that rows of one odd checkpoint, which share its
    # effect, move the law less.
    shared = foreseen.shared
    covariance = covariance_of(shared) + foreseen.own_covariance
    away = shared - shared.mean(axis=0)
    together_with = (before - before.mean()) @ away / (len(before) - 1)
    # a row's gain falls if other rows carry the same information
    gain = np.linalg.solve(covariance, together_with)
    adds = gain * (foreseen.y - shared.mean(axis=0))
    groups = []
    for group, picked in members(foreseen.rows):
        weight, khat = pareto_smoothed(foreseen.log_likelihood(picked))
        alone = float(weight @ before - before.mean())
        groups.append(
            {
                **group,
                "adds": float(adds[picked].sum()),
                "alone": alone if khat < TRUSTED_K else float("nan"),
                "khat": khat,
            }
        )
    return Attribution(
        shift=float(after.mean() - before.mean()),
        sd=float(before.std()),
        together=float(adds.sum()),
        groups=telling(groups, ["adds"]),
    )
