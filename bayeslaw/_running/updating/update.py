"""Update posteriors by a longer table: fit again, and say what changed and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from bayeslaw._base.arguments import takes
from bayeslaw._base.errors import (
    BayeslawError,
    FitWarning,
    LawError,
    RunTableError,
    warn,
)
from bayeslaw._base.frames import Table
from bayeslaw._base.numbers import format_count
from bayeslaw._base.progress.time_left import Progress, Stages
from bayeslaw._law.columns import starts_from_losses
from bayeslaw._plans.plan import plan
from bayeslaw._plans.question import FORGETTING, TARGET
from bayeslaw._posteriors.averaging.loading import load, refit_like
from bayeslaw._posteriors.posterior import (
    KeptPosterior,
    columns_read,
    is_kept,
)
from bayeslaw._running.updating.changes import (
    RowChanges,
    check_enough,
    forecast_shifts,
    largest_rows,
    law_shifts,
    parameter_shifts,
    row_changes,
)
from bayeslaw._running.updating.plans import plan_change, planned_rows
from bayeslaw._running.updating.surprise import (
    Foreseen,
    Surprise,
    attribute,
    foresee,
    surprise_of,
)
from bayeslaw._running.updating.updated import Updated, UpdatedDomain
from bayeslaw._tables.before import of_source
from bayeslaw._tables.fitting import check_full, losses, own_rows
from bayeslaw._tables.proposals import check_columns
from bayeslaw._tables.runs import as_runs

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class UpdateArguments:
    # documented in `update`

    old: KeptPosterior | str | Path
    table: Table | str | Path
    _: KW_ONLY
    source: KeptPosterior | str | Path | None = None
    question: Mapping[str, Any] | None = None
    at: Table | Mapping[str, Any] | None = None
    allow_missing: bool = False
    seed: int = 0
    on_failure: str = "raise"
    progress: Progress | None = None
    tell: Tell | None = None


class _Batch(NamedTuple):
    """A domain before its refit: its rows, and the old forecast of new ones."""

    name: str
    old: KeptPosterior
    rows: pd.DataFrame
    changes: RowChanges
    foreseen: Foreseen | None = None
    surprise: Surprise | None = None


@takes(UpdateArguments)
def update(arguments: UpdateArguments) -> Updated:
    """Fit the same laws again to a longer table, and say what changed and why.

    Before anything is fitted, the new rows are compared with their forecasts by the old
    posterior.

    Parameters
    ----------
    old
        A `Fit` or an `Average`, or the path of one; with ``source`` the target's.
    table
        Old rows and new ones, or the path of a file; rows of other domains than the
        fit's are left out.
    source
        Posterior of the source loss, made before; ``old`` is then the target's. Both
        are updated from the one table.
    question
        Keywords of `plan`, to compare the plan before and after. It needs ``source``.
    at
        Runs to forecast before and after: ``{"N": "8.1B", "D": "70B", "ptpp": 279}``;
        by default the plan's, and the largest in the table. One as a mapping, or a
        table; reasons are given for the first.
    allow_missing
        Go on if the table lacks most of the old rows.
    seed
        Same seed, same machine: same numbers.
    on_failure
        ``"raise"``, ``"warn"`` or ``"ignore"`` when the diagnostics of a refit fail.
    progress
        Called with the work done and the total, over refits and comparisons.
    tell
        Called with each line of the answer that is known before the refits: which rows
        are new, and whether they were foreseen.

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
    if arguments.question is not None and arguments.source is None:
        raise LawError("a plan needs the source's fit too: give source")
    seed = arguments.seed
    runs = as_runs(arguments.table)
    # by their role in a plan: target, and forgetting of the source
    olds = {TARGET: _take_posterior(arguments.old)}
    if arguments.source is not None:
        olds[FORGETTING] = _take_posterior(arguments.source)
    batches = {
        role: _find_batch(old, runs, arguments.allow_missing)
        for role, old in olds.items()
    }
    # This needs only the old posteriors and is fast, so users see it before the refits,
    # which take minutes.
    for role, batch in batches.items():
        line = f"{batch.name}: {batch.changes.sentence()}"
        if len(batch.changes.new):
            _warn_of_one_run(batch)
            foreseen = foresee(batch.old, batch.changes.new, seed)
            surprise = surprise_of(foreseen, seed)
            batches[role] = batch._replace(foreseen=foreseen, surprise=surprise)
            line = f"{line}; {surprise.sentence()}"
        if arguments.tell is not None:
            arguments.tell(line)
    # The old plan and the goals come before the refits, too: if the question or a
    # forecast lacks something, the error comes at once.
    before, planned, goals = None, {}, {}
    keywords = {"seed": seed, **(arguments.question or {})}
    if arguments.question is not None:
        pair = olds[TARGET], olds[FORGETTING]
        before = plan(*pair, **keywords)
        planned = planned_rows(pair, keywords, before)
    at = None if arguments.at is None else as_runs(arguments.at)
    for role, batch in batches.items():
        if at is not None:
            rows = at if role == TARGET else of_source(at)
            goals[role] = _name_rows(rows, "the run asked for")
            continue
        # only covariates: the row of the plan has no other columns
        rows = [planned[role]] if role in planned else []
        covariates = columns_read(olds[role], there=rows[0] if rows else batch.rows)
        largest = largest_rows(batch.rows, covariates)
        rows = [*rows, _name_rows(largest, "the largest run")]
        goals[role] = pd.concat([part[covariates] for part in rows])
    losses_before = {
        role: olds[role].log_loss(goal.iloc[[0]])[:, 0] for role, goal in goals.items()
    }
    changed = [role for role, batch in batches.items() if batch.changes.any]
    # time of the comparisons, relative to a refit; with a question it includes a plan
    times = dict.fromkeys(changed, 1.0) | {"compared": 0.1 if before is None else 0.5}
    stages, news = Stages(arguments.progress, times), dict(olds)
    for role in changed:
        news[role] = refit_like(
            olds[role],
            batches[role].rows,
            seed=seed,
            on_failure=arguments.on_failure,
            progress=stages.of(role),
        )
    # first the plans, then the forecasts, of which the first is at the old plan's run
    change = None
    if before is not None:
        try:
            change = plan_change(before, (news[TARGET], news[FORGETTING]), keywords)
        except BayeslawError as error:
            # a warning and not an error, so that the new fits are not lost
            warn(f"no plan after the update: {error}", FitWarning)
    domains = {}
    for role, batch in batches.items():
        old, new, goal = batch.old, news[role], goals[role]
        losses_after = new.log_loss(goal.iloc[[0]])[:, 0]
        attribution = None
        if batch.foreseen is not None:
            attribution = attribute(batch.foreseen, losses_before[role], losses_after)
        domains[batch.name] = UpdatedDomain(
            name=batch.name,
            before=old,
            after=new,
            changes=batch.changes,
            surprise=batch.surprise,
            parameters=parameter_shifts(old, new),
            laws=law_shifts(old, new),
            forecasts=forecast_shifts(old, new, goal, seed=seed),
            attribution=attribution,
        )
    stages.finish("compared")
    return Updated(domains, change)


def _take_posterior(old: object) -> KeptPosterior:
    posterior = load(old) if isinstance(old, str | Path) else old
    if is_kept(posterior):
        return posterior
    raise LawError(
        f"{type(old).__name__} cannot be updated: give a fit or an average "
        "(`bayeslaw fit`), or the path of one"
    )


def _find_batch(old: KeptPosterior, runs: pd.DataFrame, allow_missing: bool) -> _Batch:
    if "domain" in old.runs:
        do = "read it as that one was, or add it"
        check_columns(runs, ["domain"], f", which the fit's table has: {do}")
        name = " and ".join(dict.fromkeys(old.runs["domain"].astype(str)))
        part = own_rows(old.runs, runs)
    else:
        if "domain" in runs and runs["domain"].nunique() > 1:
            raise RunTableError(
                "the table has rows of several domains, and the fit's table has no domain: "
                "select one of them (--where \"domain == 'target'\")"
            )
        name, part = "loss", runs
    covariates = columns_read(old)
    check_columns(part, covariates, ", which the fit's laws read")
    for column in covariates:
        check_full(part, column, "the fit's laws need")
    losses(part)
    changes = row_changes(old.runs, part)
    if not allow_missing:
        check_enough(changes, old.runs, f"the fit of {name}")
    return _Batch(name, old, part, changes)


def _warn_of_one_run(batch: _Batch) -> None:
    """Warn if all new rows are of one run of a larger model. Laws that read the
    checkpoint's losses know its size by them, and gain nothing from such rows
    (docs/howto/update.md, measured).
    """
    old, new = batch.old.runs, batch.changes.new
    read = columns_read(batch.old)
    if not {"N"} <= {*old} & {*new} or not starts_from_losses(read):
        return
    settings = [c for c in ("run", "N", "ptpp", "replay") if c in new]
    is_larger = new["N"].min() > old["N"].max()
    if is_larger and len(new[settings].drop_duplicates()) == 1:
        warn(
            f"{batch.name}: all new rows are of one run of a larger model, and the laws "
            "read the checkpoint's losses: they tell little of its other runs (of those "
            "measured, 90% intervals held 85%, and 89% without these rows). Forecast these "
            "with the fit of before, and this run with `follow`",
            FitWarning,
        )


def _name_rows(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Name rows by their index; of several, each by the row's settings."""
    if len(rows) == 1:
        return rows.set_axis(pd.Index([name]))
    columns = [c for c in ("N", "D", "replay", "ptpp") if c in rows]
    words = [
        ", ".join(f"{c} {format_count(row[c])}" for c in columns)
        for _, row in rows.iterrows()
    ]
    return rows.set_axis(pd.Index(words))
