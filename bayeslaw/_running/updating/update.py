"""``update``: a longer table, what it says of the posterior made before, and what
changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bayeslaw._base.errors import BayeslawError, FitWarning, LawError, RunTableError
from bayeslaw._base.numbers import format_count
from bayeslaw._base.progress.time_left import Progress, Stages
from bayeslaw._plans.plan import plan
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.loading import load
from bayeslaw._posteriors.averaging.refitting import refit_like
from bayeslaw._posteriors.posterior import KeptPosterior, Posterior, is_kept
from bayeslaw._running.updating.attribution import attribute
from bayeslaw._running.updating.foreseen import foresee
from bayeslaw._running.updating.plans import plan_change, planned_rows
from bayeslaw._running.updating.rows import RowChanges, check_enough, row_changes
from bayeslaw._running.updating.shifts import (
    forecast_shifts,
    largest_rows,
    law_shifts,
    parameter_shifts,
)
from bayeslaw._running.updating.surprise import surprise_of
from bayeslaw._running.updating.updated import Updated, UpdatedDomain
from bayeslaw._tables.fitting import check_full, losses
from bayeslaw._tables.runs import as_runs

Told = Callable[[str], None]


def update(
    old: KeptPosterior | str | Path,
    table: pd.DataFrame | str | Path,
    *,
    source: KeptPosterior | str | Path | None = None,
    question: Mapping[str, Any] | None = None,
    at: pd.DataFrame | None = None,
    allow_missing: bool = False,
    seed: int = 0,
    on_failure: str = "raise",
    progress: Progress | None = None,
    tell: Told | None = None,
) -> Updated:
    """Fit the same laws again to a longer table, and say what changed and why.

    Before anything is fitted, the new rows are laid beside what the old posterior
    foresaw of them.

    Parameters
    ----------
    old
        A `Fit` or an `Average`, or the path of one; with ``source`` the target's.
    table
        Old rows and new ones, or the path of a file; rows of other domains than the
        fit's are left out.
    source
        The source's posterior, updated from the same table.
    question
        What to plan for, before and after: keywords of `plan`. It needs ``source``.
    at
        Runs to forecast before and after, the first of which is the one that reasons
        are given for; by default that of the old plan, and the largest of the table.
    allow_missing
        Go on where the table lacks most of the old rows.
    seed
        Same seed, same machine: same numbers.
    on_failure
        ``"raise"``, ``"warn"`` or ``"ignore"`` when the diagnostics of a refit fail.
    progress
        Called with what is done of the refits and of comparing them, and how much that
        is.
    tell
        Called with each line that is known before the refits: which rows are new, and
        whether they were foreseen.

    Raises
    ------
    RunTableError
        The table lacks the fit's domain, its columns or most of its rows.
    PlanError
        The question is ill-posed.
    DiagnosticsError
        The diagnostics fail and ``on_failure`` is ``"raise"``.

    Examples
    --------
    >>> first = bayeslaw.fit(pretrained[pretrained["N"] < 5e9], "chinchilla", preview=True)
    >>> updated = bayeslaw.update(first, pretrained)
    >>> bool(len(updated.first.changes.new) == (pretrained["N"] >= 5e9).sum())
    True
    """
    if question is not None and source is None:
        raise LawError("a plan needs the source's fit too: give source")
    runs = as_runs(table)
    olds = {TARGET: _posterior(old)}
    if source is not None:
        olds[FORGETTING] = _posterior(source)
    batches = {
        role: _batch(posterior, runs, allow_missing) for role, posterior in olds.items()
    }
    # cheap, and of the old posterior: said before the refits, which take minutes
    surprises = {}
    for role, (_, changes, _) in batches.items():
        line = f"{batches[role][2]}: {changes.sentence()}"
        if len(changes.new):
            foreseen = foresee(olds[role], changes.new, seed)
            surprises[role] = foreseen, surprise_of(foreseen, seed)
            line += f"; {surprises[role][1].sentence()}"
        if tell is not None:
            tell(line)
    keywords: dict[str, Any] = {"seed": seed} | dict(question or {})
    planned_before = None
    planned: Mapping[str, pd.DataFrame] = {}
    if question is not None:
        # what the question lacks is said before minutes of fitting
        planned_before = plan(olds[TARGET], olds[FORGETTING], **keywords)
        pair = (olds[TARGET], olds[FORGETTING])
        planned = planned_rows(pair, keywords, planned_before)
    goals = {
        role: _goal(olds[role], part, planned.get(role), at)
        for role, (part, _, _) in batches.items()
    }
    # what a forecast lacks is said now, too
    asked_before = {
        role: olds[role].log_loss(goal.iloc[[0]]) for role, goal in goals.items()
    }
    changed = [role for role, (_, changes, _) in batches.items() if changes.any]
    # in times that a refit takes, with the plan made again and without
    compared = 0.1 if planned_before is None else 0.5
    stages = Stages(progress, dict.fromkeys(changed, 1.0) | {"compared": compared})
    news = dict(olds)
    for role in changed:
        part = batches[role][0]
        tick = stages.of(role)
        news[role] = refit_like(
            olds[role], part, seed=seed, on_failure=on_failure, progress=tick
        )
    # the plan comes before the forecasts, whose first is that of the old plan's run
    change = None
    if planned_before is not None:
        new = (news[TARGET], news[FORGETTING])
        try:
            change = plan_change(planned_before, new, keywords)
        except BayeslawError as error:  # the new fits are not lost with the plan
            warnings.warn(
                f"no plan after the update: {error}", FitWarning, stacklevel=2
            )
    domains = {}
    for role, (_, changes, name) in batches.items():
        goal = goals[role]
        foreseen, surprise = surprises.get(role, (None, None))
        first = goal.iloc[[0]]
        before, after = asked_before[role], news[role].log_loss(first)
        domains[name] = UpdatedDomain(
            name=name,
            before=olds[role],
            after=news[role],
            changes=changes,
            surprise=surprise,
            parameters=parameter_shifts(olds[role], news[role]),
            laws=law_shifts(olds[role], news[role]),
            forecasts=forecast_shifts(olds[role], news[role], goal, seed=seed),
            attribution=None
            if foreseen is None
            else attribute(foreseen, before[:, 0], after[:, 0]),
        )
    stages.finish("compared")
    return Updated(domains, change)


def _posterior(old: object) -> KeptPosterior:
    if isinstance(old, str | Path):
        return load(old)
    if is_kept(old):
        return old
    raise LawError(
        f"{type(old).__name__} cannot be updated: give a fit or an average "
        "(`bayeslaw fit`), or the path of one"
    )


def _batch(
    old: KeptPosterior, runs: pd.DataFrame, allow_missing: bool
) -> tuple[pd.DataFrame, RowChanges, str]:
    """The rows of a posterior's own domain, which of them are new, and its name."""
    part, name = _own_domain(old.runs, runs)
    covariates = dict.fromkeys(c for piece in old.pieces() for c in piece.covariates)
    missing = [c for c in covariates if c not in part]
    if missing:
        raise RunTableError(
            f"the table lacks column {missing[0]!r}, which the fit's laws read; it has: "
            f"{', '.join(map(str, part.columns))}"
        )
    for column in covariates:
        check_full(part, column, "the fit's laws need")
    losses(part)
    changes = row_changes(old.runs, part)
    if not allow_missing:
        check_enough(changes, old.runs, f"the fit of {name}")
    return part, changes, name


def _own_domain(fitted: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Rows of the domains that were fitted, and their name; "loss" where none is told."""
    if "domain" not in fitted:
        if "domain" in runs and runs["domain"].nunique() > 1:
            raise RunTableError(
                "the table has rows of several domains, and the fit's tells none: "
                "select one of them (--where \"domain == 'target'\")"
            )
        return runs, "loss"
    if "domain" not in runs:
        raise RunTableError(
            "the table lacks column 'domain', which the fit's table has; add it"
        )
    names = list(dict.fromkeys(fitted["domain"].astype(str)))
    of_domains = runs[runs["domain"].astype(str).isin(names)]
    name = " and ".join(names)
    if of_domains.empty:
        there = ", ".join(map(str, runs["domain"].unique()[:5]))
        raise RunTableError(
            f"the table has no rows of domain {name}, which was fitted; it has: {there}"
        )
    return of_domains, name


def _goal(
    old: Posterior,
    part: pd.DataFrame,
    planned: pd.DataFrame | None,
    at: pd.DataFrame | None,
) -> pd.DataFrame:
    """The runs to forecast before and after, named."""
    if at is not None:
        return _named(at, "the run asked for")
    covariates = tuple(
        dict.fromkeys(c for piece in old.pieces() for c in piece.covariates)
    )
    # other columns would be empty in the row of the plan
    largest = _named(largest_rows(part, covariates), "the largest run")
    if planned is None:
        return largest
    return pd.concat([planned[list(covariates)], largest[list(covariates)]])


def _named(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows by a name for people; several by what they are."""
    if len(rows) == 1:
        return rows.set_axis(pd.Index([name]))
    columns = [c for c in ("N", "D", "replay", "ptpp") if c in rows]
    words = [
        ", ".join(f"{c} {format_count(row[c])}" for c in columns)
        for _, row in rows.iterrows()
    ]
    return rows.set_axis(pd.Index(words))
