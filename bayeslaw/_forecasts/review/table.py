"""Review a table of runs before anything is fitted: what can be learned from it, and
what looks wrong.

Only a smooth surface is fitted here, in milliseconds. A review should answer before the
first program is compiled, and should not blame a table for a law's faults.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError, RunTableWarning
from bayeslaw._base.numbers import format_count
from bayeslaw._base.terminal import quote
from bayeslaw._forecasts.check import FEW
from bayeslaw._forecasts.review import oddities
from bayeslaw._forecasts.review.findings import Finding, judged, labelled
from bayeslaw._forecasts.review.reach import review_reach, tested
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law
from bayeslaw._posteriors.averaging.folds import Fold, default_axes, folds
from bayeslaw._posteriors.fits.candidates import candidate_laws
from bayeslaw._posteriors.fits.goodness import (
    LARGE_MISS,
    REASONS,
    explained_share,
    explains_little,
    median_distance,
)
from bayeslaw._posteriors.pairs import doubts_of_tables
from bayeslaw._tables import fitting
from bayeslaw._tables.checks.rises import PastMinimumWarning
from bayeslaw._tables.checks.slopes import Surface, apart, outliers
from bayeslaw._tables.checks.units import odd_units
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.rows.settings import (
    Alike,
    alike_but_settings,
    at_commonest,
    cells_of,
)
from bayeslaw._tables.runs import NUMERIC, read_with_notes
from bayeslaw._tables.where import select


class TableName(NamedTuple):
    """A table as commands to paste name it: its path, the query that selects its rows,
    and the mappings of its columns.
    """

    path: str
    where: str | None = None
    columns: Sequence[str] = ()

    def words(self, domain: str = "") -> str:
        """Write path and options, for the rows of one domain if it has a name."""
        queries = [self.where] if self.where else []
        queries += [f"domain == {domain!r}"] if domain else []
        if len(queries) > 1:
            queries = [f"({queries[0]}) and {queries[1]}"]
        words = [shlex.quote(self.path)]
        words += [f"--column {quote(mapping)}" for mapping in self.columns]
        words += [f"--where {quote(query)}" for query in queries]
        return " ".join(words)


def review_table(
    table: pd.DataFrame, name: TableName, goal: pd.DataFrame | None = None
) -> list[Finding]:
    """Review a table of runs, each of its domains, and the needs of a plan.

    Parameters
    ----------
    table
        As `read_runs` returns it.
    name
        Its name in a command.
    goal
        Runs to forecast.

    Raises
    ------
    RunTableError
        The table cannot be read.
    """
    runs, warned = _read(table)
    findings = [
        _contents(runs),
        _reading(warned, name),
        oddities.units(runs, name.words()),
    ]
    if "loss" not in runs:
        return findings
    parts = fitting.by_domain(runs)
    several = len(parts) > 1
    for domain, part in parts.items():
        command = _fit_command(part, name, domain if several else "")
        of_domain = _review_domain(part, command, goal)
        findings += labelled(of_domain, domain if several else "")
    if several:
        findings.append(_plan(parts))
    return findings


def _read(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Check the table again, and collect the warnings without findings of their own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunTableWarning)
        # it has a finding of its own in each domain
        warnings.simplefilter("ignore", PastMinimumWarning)
        runs = read_with_notes(table).runs
    told = odd_units(runs)  # a finding of their own
    if len(runs) == len(table):
        # rows keep the numbers that they have in their file
        runs = runs.set_axis(table.index)
    lines = [str(warning.message) for warning in caught]
    return runs, [line for line in lines if line not in told]


def _contents(runs: pd.DataFrame) -> Finding:
    """Check that the table has losses, and list its rows, domains and columns."""
    columns = ", ".join(map(str, runs.columns))
    try:
        fitting.losses(runs)
    except RunTableError as error:
        todo = "name the column: --column loss=YOURS"
        return Finding("table", "fail", str(error), todo)
    domains = ""
    if "domain" in runs:
        counts = runs["domain"].astype(str).value_counts()
        domains = f" ({', '.join(f'{name} {n}' for name, n in counts.items())})"
    reason = f"{_rows_of(runs)}{domains}; columns {columns}"
    return Finding("table", "pass", reason)


def _rows_of(runs: pd.DataFrame) -> str:
    return f"{len(runs)} row{'s' * (len(runs) != 1)}"


def _reading(warned: Sequence[str], name: TableName) -> Finding:
    """Report the warnings of reading: rows exported twice, columns with two units."""
    passed = "every cell is a number, and no row is there twice"
    todo = f"mend the table, then: bayeslaw review {name.words()}"
    return judged("reading", passed, "; ".join(warned), todo)


# -- one domain ------------------------------------------------------------------------


def _fit_command(runs: pd.DataFrame, table: TableName, domain: str) -> str:
    """Write the command that fits these rows, of one domain or of a table without
    domains.
    """
    words = ["bayeslaw fit", table.words(domain)]
    for name, value in fitting.reference_near(runs).items():
        words.append(f"--reference {name}={format_count(value)}")
    output = f"{domain or 'fit'}.nc"
    return " ".join([*words, "-o", shlex.quote(output)])


def _review_domain(
    runs: pd.DataFrame, command: str, goal: pd.DataFrame | None
) -> list[Finding]:
    """Review the rows of one domain. ``command`` is the command that fits them."""
    laws, suited = _suiting(runs, command)
    if not laws:
        return [suited, oddities.tokens(runs)]
    # the columns of all laws, each once
    columns = list(dict.fromkeys(c for law in laws for c in law.covariates))
    # As in `average`, enough rows must be left for the largest law.
    least_rows = max(len(law.free_priors) for law in laws)
    stages = folds(runs, default_axes(runs), least_rows)
    smooth = Surface.of(runs, columns)
    findings = [
        suited,
        _rows(runs, laws),
        _levels(runs, columns),
        _reference(runs, command),
        _stages(stages),
        _noise(runs),
        _outliers(runs, smooth),
        oddities.mixture(runs, columns),
        _signal(runs, smooth),
        oddities.size(runs),
        oddities.tokens(runs),
    ]
    alike = alike_but_settings(runs, columns)
    if alike is not None:
        todo = _one_setting(runs, alike, command, least_rows)
        findings.append(Finding("settings", "look", alike.sentence(), todo))
    further = (oddities.replay(runs), oddities.copies(runs))
    findings += [finding for finding in further if finding is not None]
    if goal is not None:
        times = tested(runs, stages)
        findings.append(review_reach(runs, goal, times))
    return findings


def _one_setting(runs: pd.DataFrame, alike: Alike, command: str, most: int) -> str:
    """Write the command that fits the most frequent setting; if that leaves hardly a
    run of each cell, or fewer rows than a law has parameters (``most``), what to do.
    """
    query = at_commonest(runs, alike.columns)
    kept = select(runs, query)
    cells = len(np.unique(cells_of(runs)))
    if len(kept) >= most and 2 * len(np.unique(cells_of(kept))) >= cells:
        return f"{command} --where {quote(query)}"
    return (
        f"hold {', '.join(alike.columns)} at the levels that you will use, by --where "
        f"(the most frequent levels together keep {len(kept)} of {len(runs)} rows), and "
        "leave out columns that are no settings: bayeslaw table RUNS -o FILE"
    )


def _suiting(runs: pd.DataFrame, command: str) -> tuple[list[Law], Finding]:
    """Find the laws that are compared by default and can be fitted, with the check's
    finding.
    """
    try:
        laws = [find_law(name, runs) for name in candidate_laws(runs)]
    except LawError as error:
        todo = "name columns of the schema: --column N=YOURS --column D=YOURS"
        return [], Finding("laws", "fail", str(error), todo)
    usable, refused = [], []
    with warnings.catch_warnings():
        # `_levels` and `_reference` report what these warnings say
        warnings.simplefilter("ignore", RunTableWarning)
        for law in laws:
            try:
                is_handful = len(runs) <= fitting.HANDFUL
                fitting.check_fittable(law, runs, one_domain=False, handful=is_handful)
            except RunTableError as error:
                refused.append(str(error))
            else:
                usable.append(law)
    names = ", ".join(law.name for law in usable)
    if not usable:
        return [], Finding("laws", "fail", refused[0], "mend that, and review again")
    if refused:
        chosen = " ".join(f"--law {law.name}" for law in usable)
        reason = f"{names} can be fitted, but {refused[0]}"
        return usable, Finding("laws", "look", reason, f"{command} {chosen}")
    return usable, Finding("laws", "pass", f"{names} can be fitted", command)


def _rows(runs: pd.DataFrame, laws: Sequence[Law]) -> Finding:
    """Check that there are two rows for each parameter of the largest law."""
    most = max(len(law.free_priors) for law in laws)
    reason = f"{_rows_of(runs)} for at most {most} parameters of a law"
    missing = 2 * most - len(runs)
    trouble = f"{reason}: fits rest on priors in part" if missing > 0 else None
    todo = f"add runs, {missing} at least, or name a smaller law"
    if trouble and len(runs) <= most:
        trouble += ", and nothing shows whether the law fits"
    return judged("rows", reason, trouble, todo)


def _levels(runs: pd.DataFrame, columns: Collection[str]) -> Finding:
    """Check that each column has three levels, so that the runs determine how a law
    bends along it.
    """
    levels = {name: np.unique(runs[name].dropna()) for name in columns}
    reason = "levels: " + ", ".join(f"{name} {len(x)}" for name, x in levels.items())
    few = {name: x for name, x in levels.items() if len(x) < 3}
    if not few:
        return Finding("levels", "pass", reason)
    listed = " and ".join(
        f"{name} ({', '.join(map(format_count, x))})" for name, x in few.items()
    )
    todo = f"add runs at a third level of {next(iter(few))}, or forecast at its levels only"
    reason += f"; along {listed} laws bend as their priors say"
    return Finding("levels", "look", reason, todo)


def _reference(runs: pd.DataFrame, command: str) -> Finding:
    """Check that models lie near the reference run, at which priors in nats are stated."""
    trouble = None
    if fitting.reference_near(runs):
        trouble = (
            f"models of {format_count(runs['N'].min())} to {format_count(runs['N'].max())} "
            "parameters lie far from the reference run (1B), at which priors in nats are "
            "stated"
        )
    passed = "models are within a factor of 100 of the laws' reference run"
    return judged("reference", passed, trouble, command)


def _stages(stages: Sequence[Fold]) -> Finding:
    """Check that a stage with enough runs can be left out, so that forecasts can be
    tested.
    """
    names = "; ".join(f"{stage.name} ({int(stage.held.sum())})" for stage in stages)
    trouble = None
    if not any(stage.held.sum() >= FEW for stage in stages):
        too_few = f" but too few rows to tell by ({names})" if stages else ""
        trouble = (
            "no largest size, stage or budget can be left out with enough runs to fit"
            f"{too_few}, so no forecast can be tested"
        )
    passed = f"forecasts can be tested by leaving out {names} rows"
    todo = "add runs at two levels or more of N, D or ptpp"
    return judged("stages", passed, trouble, todo)


def _noise(runs: pd.DataFrame) -> Finding:
    """Estimate noise from runs that differ only in their seed."""
    # columns that may differ between runs with different seeds only
    before = (LOSS_BEFORE, SOURCE_LOSS_BEFORE, "target_loss_before")
    of_a_run = {"run", "seed", "checkpoint", "loss", "cost", *before}
    alike = [
        column
        for column in runs
        if column not in of_a_run
        # a name or a date that differs in every row is not a setting
        and (
            column in NUMERIC or is_share(column) or runs[column].nunique() < len(runs)
        )
    ]
    log_loss = runs["loss"].map(np.log)
    groups = log_loss.groupby([runs[c] for c in alike], dropna=False)
    sizes = groups.transform("size").to_numpy()
    several = sizes > 1
    if not several.any():
        reason = "no two runs are alike, so noise is told from misfit by how it varies"
        todo = "repeat the cheapest run with another seed"
        return Finding("noise", "pass", reason, todo)
    away = (log_loss - groups.transform("mean")).to_numpy()[several]
    # rows lie nearer to their own mean than to the true mean, by the factor
    # sqrt((n - 1) / n)
    away = away * np.sqrt(sizes[several] / (sizes[several] - 1))
    # the sd of a normal from its median absolute deviation
    sd = 1.4826 * median_distance(away)
    reason = (
        f"{int(several.sum())} rows are of settings that were run more than once: runs "
        f"of equal settings differ by {sd:.2%} (sd of log loss)"
    )
    if sd == 0:
        todo = "look whether one run was exported twice, or the seed changes nothing"
        return Finding("noise", "look", f"{reason}: the losses are equal", todo)
    if sd > LARGE_MISS:
        todo = "look for what else differs between them, and make it a column"
        return Finding(
            "noise", "look", f"{reason}, where seeds differ by .05-.6%", todo
        )
    return Finding("noise", "pass", reason)


def _outliers(runs: pd.DataFrame, smooth: Surface) -> Finding:
    """Check for rows far off a smooth surface, in multiples of the median distance:
    single ones, or a part of the table.
    """
    misses = smooth.misses
    if np.abs(misses).max() < 1e-9:
        reason = "a smooth surface passes through every row, so nothing is said of them"
        return Finding("outliers", "pass", reason)
    half = f"half of the rows lie within {smooth.usual:.2%} of a smooth surface"
    part = apart(misses)
    if part.any():
        rows = named_rows(runs.index[part])
        reason = (
            f"{int(part.sum())} of {len(runs)} rows lie over "
            f"{np.abs(misses[part]).min():.1%} off, where {half}: more than single "
            "mistakes, so another unit, setting or domain in a part of the rows?"
        )
        todo = f"look what {rows} have in common, and mend or select them (--where)"
        return Finding("outliers", "look", reason, todo)
    # a surface is rougher than a law, for which `fit` uses 8
    far = outliers(misses, 12.0)
    rows = named_rows(runs.index[far])
    trouble = None
    if far.any():
        lie = "lies" if far.sum() == 1 else "lie up to"
        trouble = f"{rows} {lie} {np.abs(misses[far]).max():.1%} off, where {half}"
    todo = f"look at {rows}: where a loss is wrong, mend it or leave the row out"
    return judged("outliers", f"{half}, and none far off it", trouble, todo)


def _signal(runs: pd.DataFrame, smooth: Surface) -> Finding:
    """Check how much of the variation of losses a smooth surface in the columns
    explains.
    """
    y = fitting.log_losses(runs)
    # a surface of many terms explains a part of anything
    rows, terms = smooth.design.shape
    if rows <= terms:
        reason = (
            f"{_rows_of(runs)} cannot show whether columns explain the "
            f"losses: a smooth surface of {terms} term{'s' * (terms != 1)} passes through "
            "any"
        )
        todo = f"add runs, {terms + 1 - rows} at least; or keep more of them (--where)"
        return Finding("signal", "look", reason, todo)
    residuals = smooth.misses * np.sqrt(rows / max(1, rows - terms))
    explained = explained_share(residuals, y)
    reason = f"columns explain {explained:.1%} of how losses differ"
    todo = "plot the table: losses against D, a line for each N"
    order = _order_explained(runs, smooth)
    # few rows have a plane, which does not bend as laws do towards their floor
    if order is not None and order >= 0.9 and order > explained:
        reason = f"columns explain {order:.1%} of the order of the losses"
        return Finding("signal", "pass", reason)
    if explains_little(explained, y):
        return Finding("signal", "fail", f"{reason}: {REASONS}", todo)
    usual, trouble = median_distance(residuals), None
    if usual > LARGE_MISS:
        trouble = (
            f"{reason}, but half of the rows lie over {usual:.1%} off a smooth surface, "
            f"where seeds differ by .05-.6%: {REASONS}"
        )
    return judged("signal", reason, trouble, todo)


def _order_explained(runs: pd.DataFrame, smooth: Surface) -> float | None:
    """Measure the share of the order of losses that a plane in the order of the columns
    explains; None unless the rows are too few for a surface that bends.
    """
    varied = [c for c in smooth.columns if _varies(runs, c)]
    rows, terms = smooth.design.shape
    if terms > 1 + len(varied) or rows <= 2 * terms or not _varies(runs, "loss"):
        return None
    y = runs["loss"].rank().to_numpy()
    design = np.column_stack([np.ones(rows), runs[varied].rank()])
    coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
    residuals = y - design @ coefficients
    unexplained = residuals @ residuals / (rows - terms)
    return float(1 - unexplained / y.var(ddof=1))


# -- a plan ----------------------------------------------------------------------------


def _planned_by(parts: Mapping[str, pd.DataFrame]) -> str:
    """Write the command that plans with fits of these domains; mixtures have their own
    command.
    """
    if any(is_share(column) for runs in parts.values() for column in runs):
        return "bayeslaw mixture " + " ".join(f"--loss {n}={n}.nc" for n in parts)
    return "bayeslaw plan --target T.nc --source S.nc"


def _plan(parts: Mapping[str, pd.DataFrame]) -> Finding:
    """Check whether fits of the domains allow a plan of replay and tokens."""
    if not {"target", "source"} <= set(parts):
        reason = f"domains {', '.join(parts)}: none is called target and source"
        todo = f"fit each domain, and name them: {_planned_by(parts)}"
        return Finding("plan", "pass", reason, todo)
    target, source = parts["target"], parts["source"]
    # the doubts that `plan` would have about fits of these rows
    doubts = doubts_of_tables("source", target, source)
    one_replay = [n for n in ("target", "source") if not _varies(parts[n], "replay")]
    if one_replay:
        doubts.append(
            f"replay does not vary among the runs of {' and '.join(one_replay)}, so no "
            "plan can choose it"
        )
    if doubts:
        return Finding("plan", "look", "; ".join(doubts), "mend that before a plan")
    if not _has(target, SOURCE_LOSS_BEFORE) and not _has(
        source, LOSS_BEFORE, SOURCE_LOSS_BEFORE
    ):
        return Finding(
            "plan",
            "look",
            f"no column {SOURCE_LOSS_BEFORE}: forgetting has no baseline, and laws of the "
            "checkpoint's state, which forecast best where we measured, cannot be used",
            "evaluate each checkpoint on the source before it is adapted, or give "
            "--baseline-loss to plan",
        )
    reason = "both domains, replay and losses before adaptation are there"
    return Finding("plan", "pass", reason)


def _varies(runs: pd.DataFrame, column: str) -> bool:
    return column in runs and runs[column].nunique() > 1


def _has(runs: pd.DataFrame, *columns: str) -> bool:
    """Tell whether the table has one of the columns, with values."""
    return any(column in runs and runs[column].notna().all() for column in columns)
