"""Fit the same laws again with a run's points among the rows, when few draws of the
laws explain the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError
from bayeslaw._posteriors.averaging.refitting import refit_like
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior, is_kept
from bayeslaw._running.following.course import (
    Course,
    Schedules,
    course,
    planned,
    unit_of,
)
from bayeslaw._tables.runs import TEXT


class RunSetting(NamedTuple):
    """A run that is followed by a posterior.

    ``rows``: rows of the run, with the columns that the laws read; ``schedule``,
    ``until`` and ``seed``: as for `follow`.
    """

    posterior: Posterior
    rows: pd.DataFrame
    until: float
    schedule: Schedules
    seed: int

    def courses(
        self, posterior: Posterior, fitted: pd.DataFrame | None = None
    ) -> tuple[Course, dict[str, Course]]:
        """Compute the law along the run by its planned schedule (`course`), and by each
        further one up to that schedule's end. ``fitted``: the runs that were fitted
        before this one, which is no other run of its setting.
        """
        run, schedule, seed = self.rows, self.schedule, self.seed
        along = course(
            posterior, run, self.until, planned(schedule), seed, fitted=fitted
        )
        others = {}
        further = list(schedule.items())[1:] if isinstance(schedule, Mapping) else []
        for name, table in further:
            if along.unit not in table:
                raise RunTableError(f"schedule {name!r} lacks column {along.unit!r}")
            end = float(table[along.unit].max())
            others[name] = course(posterior, run, end, table, seed, fitted=fitted)
        return along, others

    def fit(
        self, points: Sequence[tuple[float, float]]
    ) -> tuple[Course, dict[str, Course], tuple[str, ...]]:
        """Fit again with these points of the run, (tokens or steps, loss), among the
        rows. Returns the law along the run, by its schedule and by others, and the
        warnings of the fit.

        Raises
        ------
        RunTableError
            The laws cannot be fitted to these rows.
        """
        kept = keep_for_refits(self.posterior)
        before, unit = kept.runs, unit_of(kept)
        # the columns of the run at its points
        at, loss = np.asarray(points, float).T
        last = self.rows.iloc[-1].to_dict()
        along = {str(name): np.full(len(at), value) for name, value in last.items()}
        if {"D", "step"} <= set(along):
            # tables are sorted along a run by steps first, so points need steps, too
            along["step"] = at * float(last["step"]) / float(last["D"])
        schedule = planned(self.schedule)
        if schedule is not None:
            steps = schedule[unit].to_numpy(float)
            nearest = np.argmin(np.abs(steps[:, None] - at), axis=0)
            there = schedule.iloc[nearest].to_dict("list")
            along |= {str(name): np.asarray(values) for name, values in there.items()}
        new_rows = points_as_rows(before, along | {unit: at, "loss": loss}, unit)
        table = pd.concat([before, new_rows], ignore_index=True)
        # If the diagnostics fail, the run is still followed; `warnings` say so.
        new = refit_like(kept, table, seed=self.seed, on_failure="ignore")
        return *self.courses(new, fitted=before), tuple(new.warnings)


def keep_for_refits(posterior: Posterior) -> KeptPosterior:
    """Check that a posterior can be fitted again."""
    if not is_kept(posterior):
        raise LawError(
            f"{type(posterior).__name__} cannot be fitted again along a run: give "
            "a fit or an average (`bayeslaw fit`), or leave refit out"
        )
    return posterior


def points_as_rows(
    table: pd.DataFrame,
    along: Mapping[str, np.ndarray],
    unit: str,
    name: str = "followed",
) -> pd.DataFrame:
    """Write points of a run in the columns of a table that was fitted.

    Missing texts, such as the run's name, become ``name``; numbers that no law reads
    are empty.
    """
    columns = {}
    for column in map(str, table):
        if column == "domain":
            value = table[column].iloc[0]
        elif column in along:
            value = along[column]
        elif column == "step":
            # any unit of steps will do, because only their ratios matter
            value = along[unit]
        else:
            value = name if column in TEXT else np.nan
        columns[column] = value
    return pd.DataFrame(columns, index=range(len(along["loss"])))
