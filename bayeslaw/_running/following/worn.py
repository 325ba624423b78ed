"""Where a run's points have worn out the weights: the same laws fitted again, with the
points among the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError
from bayeslaw._posteriors.averaging.refitting import refit_like
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior, is_kept
from bayeslaw._running.following.course import (
    Course,
    Schedules,
    course,
    other_courses,
    planned,
    unit_of,
)
from bayeslaw._tables.runs import TEXT

if TYPE_CHECKING:
    from jaxtyping import Float

OWN = "followed"  # what the run is called among the rows
LATER = 2.0  # times the tokens of a refit, before which there is no other


class Again(NamedTuple):
    """How a posterior is fitted again along a run.

    ``rows``: of the run, whose columns the laws read; ``schedule``, ``until`` and
    ``seed`` as for `follow`.
    """

    posterior: KeptPosterior
    rows: pd.DataFrame
    until: float
    schedule: Schedules
    seed: int

    @classmethod
    def of(
        cls,
        posterior: Posterior,
        rows: pd.DataFrame,
        until: float,
        schedule: Schedules,
        seed: int,
    ) -> Again:
        """Or why it cannot be.

        Raises
        ------
        LawError
            The posterior is neither a fit nor an average.
        """
        if not is_kept(posterior):
            raise LawError(
                f"{type(posterior).__name__} cannot be fitted again along a run: give "
                "a fit or an average (`bayeslaw fit`), or leave refit out"
            )
        return cls(posterior, rows, until, schedule, seed)

    def fitted(self, points: Sequence[tuple[float, float]]) -> Refitted:
        """With these points of the run, (tokens or steps, loss), among the rows.

        Raises
        ------
        RunTableError
            The laws cannot be fitted to these rows.
        """
        known = self.posterior.runs
        unit = unit_of(self.posterior)
        own = points_as_rows(known, self._along(unit, points), unit)
        table = pd.concat([known, own], ignore_index=True)
        # a run that goes on is not ended by the diagnostics of a fit: they are told
        new = refit_like(self.posterior, table, seed=self.seed, on_failure="ignore")
        along = course(new, self.rows, self.until, planned(self.schedule), self.seed)
        others = other_courses(new, self.rows, self.schedule, self.seed)
        return Refitted(along, others, len(own), tuple(new.warnings))

    def _along(
        self, unit: str, points: Sequence[tuple[float, float]]
    ) -> Mapping[str, Float[np.ndarray, " point"]]:
        """What is known of the run at its points, by column."""
        at, loss = np.asarray(points, float).T
        last = self.rows.iloc[-1].to_dict()
        told = {str(name): np.full(len(at), value) for name, value in last.items()}
        if {"D", "step"} <= set(told):
            # how far along a run its points are is read of its steps first
            told["step"] = at * float(last["step"]) / float(last["D"])
        schedule = planned(self.schedule)
        if schedule is not None:
            steps = schedule[unit].to_numpy(float)
            off = np.abs(steps[:, None] - at)
            there = schedule.iloc[np.argmin(off, axis=0)]
            columns = there.to_dict("list")
            told |= {str(name): np.asarray(v) for name, v in columns.items()}
        return told | {unit: at, "loss": loss}


class Refitted(NamedTuple):
    """The law along the run, by its schedule and by others, fitted again with so many of
    its points among the rows.
    """

    course: Course
    others: Mapping[str, Course]
    points: int
    warnings: tuple[str, ...]


def points_as_rows(
    known: pd.DataFrame, along: Mapping[str, np.ndarray], unit: str
) -> pd.DataFrame:
    """Points of a run in the columns of a table that was fitted.

    What the table calls its rows and the run does not tell, the run has of its own;
    numbers that no law reads are empty.
    """
    columns = {}
    for name in known:
        column = str(name)
        if column == "domain":
            value = known[column].iloc[0]
        elif column in along:
            value = along[column]
        elif column == "step":
            # only how many times one point's are another's counts
            value = along[unit]
        else:
            value = OWN if column in TEXT else np.nan
        columns[column] = value
    return pd.DataFrame(columns, index=range(len(along["loss"])))
