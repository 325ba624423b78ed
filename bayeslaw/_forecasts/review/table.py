"""Review a table of runs before anything is fitted: what can be learned from it, and
what looks wrong.

Only a smooth surface is fitted here, in milliseconds. A review should answer before the
first program is compiled, and should not blame a table for a law's faults.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd

from bayeslaw._base.errors import LawError, RunTableError, RunTableWarning
from bayeslaw._base.numbers import format_count, format_counts, format_many
from bayeslaw._base.terminal import quote
from bayeslaw._forecasts.review import findings
from bayeslaw._forecasts.review.findings import Finding, judged
from bayeslaw._law.columns import LOSS_BEFORE, SOURCE_LOSS_BEFORE, is_share
from bayeslaw._law.find import find_law
from bayeslaw._law.law import Law, covariates_read
from bayeslaw._posteriors.fits import goodness
from bayeslaw._posteriors.fits.candidates import candidate_laws
from bayeslaw._posteriors.pairs import doubts_of_tables
from bayeslaw._tables import fitting, surface, suspicions
from bayeslaw._tables.holdouts import FEW, default_axes, largest_stages
from bayeslaw._tables.parts import find_misplaced, find_parts
from bayeslaw._tables.rows import settings
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.runs import NUMERIC, numeric_columns, read_with_notes
from bayeslaw._tables.where import select


def review_table(
    table: pd.DataFrame, path: str, goal: pd.DataFrame | None = None
) -> list[Finding]:
    """Review a table of runs, each of its domains, and the needs of a plan.

    ``table``: As `read_runs` returns it. ``attrs["read_with"]``: options of the command
    that reads it, to be repeated. ``path``: its path in a command. ``goal``: runs to
    forecast.
    """

    read_with = table.attrs.get("read_with", [])
    options = [*zip(read_with[::2], read_with[1::2], strict=True)]
    where = [query for option, query in options if option == "--where"]
    columns = [f"{o} {quote(text)}" for o, text in options if o != "--where"]

    def name_rows(*parts: str) -> str:
        """Write path and options of the rows that all queries in ``parts`` select."""
        query = " and ".join([*(f"({query})" for query in where), *parts])
        queries = [query] if parts else where
        chosen = [f"--where {quote(query)}" for query in queries]
        return " ".join([shlex.quote(path), *columns, *chosen])

    def write_fit(runs: pd.DataFrame, label: str, *parts: str) -> str:
        """Write the command that fits the rows of a domain that all ``parts`` select."""
        of_domain = [f"domain == {label!r}"] if label else []
        words = ["bayeslaw fit", name_rows(*of_domain, *parts)]
        for column, value in fitting.reference_near(runs).items():
            words.append(f"--reference {column}={format_count(value)}")
        return " ".join([*words, "-o", shlex.quote(f"{label or 'fit'}.nc")])

    # the table is checked again; warnings with findings of their own are left out
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RunTableWarning)
        warnings.simplefilter("ignore", suspicions.PastMinimumWarning)
        runs = read_with_notes(table).runs
    told = suspicions.suspicions(runs, "units")
    warned = [line for one in caught if (line := str(one.message)) not in told]
    if len(runs) == len(table):
        # rows keep the numbers that they have in their file
        runs = runs.set_axis(table.index)

    domains = ""
    if "domain" in runs:
        counts = runs["domain"].astype(str).value_counts()
        domains = f" ({', '.join(f'{name} {n}' for name, n in counts.items())})"
    names = ", ".join(map(str, runs.columns))
    reason = f"{format_many(len(runs), 'row')}{domains}; columns {names}"
    contents = Finding("table", "pass", reason)
    try:
        fitting.losses(runs)
    except RunTableError as error:
        todo = "name the column: --column loss=YOURS"
        contents = Finding("table", "fail", str(error), todo)
    again = f"then: bayeslaw review {name_rows()}"
    passed = "every cell is a number, and no row is there twice"
    reading = judged("reading", passed, "; ".join(warned), f"mend the table, {again}")
    unjudged = suspicions.describe_unjudged_units(runs)
    odd = "; ".join(suspicions.suspicions(runs, "units"))
    todo = f"rescale the column (--column D=yours*1e9), {again}"
    units = judged("units", f"nothing odd seen; not judged: {unjudged}", odd, todo)
    found = [contents, reading, units]
    parts = fitting.by_domain(runs) if "loss" in runs else {}
    for domain, part in parts.items():
        label = domain if len(parts) > 1 else ""
        command = partial(write_fit, part, label)
        found += findings.labelled([*_review_domain(part, command, goal)], label)
    return [*found, _review_plan(parts)] if len(parts) > 1 else found


def _review_domain(
    runs: pd.DataFrame, write_fit: Callable[..., str], goal: pd.DataFrame | None
) -> Iterator[Finding]:
    """Review the rows of a domain; ``write_fit`` writes the command that fits them."""
    laws, suited = _find_suiting(runs, write_fit())
    yield suited
    if not laws:
        yield _review_tokens(runs)
        return
    columns = covariates_read(laws)

    # two rows for each parameter of the largest law
    most = max(len(law.free_priors) for law in laws)
    reason = f"{format_many(len(runs), 'row')} for at most {most} parameters of a law"
    trouble = None
    if len(runs) < 2 * most:
        trouble = f"{reason}: fits rest on priors in part"
        if len(runs) <= most:
            trouble += ", and nothing shows whether the law fits"
    todo = f"add runs, {2 * most - len(runs)} at least, or name a smaller law"
    yield judged("rows", reason, trouble, todo)

    # three levels of each column, so that the runs determine how a law bends along it
    levels = {name: np.unique(runs[name].dropna()) for name in columns}
    reason = "levels: " + ", ".join(f"{name} {len(x)}" for name, x in levels.items())
    few = {n: ", ".join(map(format_count, x)) for n, x in levels.items() if len(x) < 3}
    along = " and ".join(f"{name} ({x})" for name, x in few.items())
    trouble = f"{reason}; along {along} laws bend as their priors say" if few else None
    todo = f"add runs at a third level of {next(iter(few), '')}, or forecast at its levels only"
    yield judged("levels", reason, trouble, todo)

    # models near the reference run, at which priors in nats are stated
    trouble = None
    if fitting.reference_near(runs):
        sizes = format_counts(runs["N"].min(), runs["N"].max())
        trouble = (
            f"models of {sizes} parameters lie far from the reference run (1B), at which "
            "priors in nats are stated"
        )
    passed = "models are within a factor of 100 of the laws' reference run"
    yield judged("reference", passed, trouble, write_fit())

    # a stage with enough runs that can be left out, so that forecasts can be tested; as
    # in `average`, enough rows must be left for the largest law
    stages = largest_stages(runs, default_axes(runs), most)
    counts = {stage.name: int(stage.is_held(runs).sum()) for stage in stages}
    names = "; ".join(f"{name} ({count})" for name, count in counts.items())
    trouble = None
    if max(counts.values(), default=0) < FEW:
        too_few = f" but too few rows to tell by ({names})" if stages else ""
        trouble = (
            "no largest size, stage or budget can be left out with enough runs to fit"
            f"{too_few}, so no forecast can be tested"
        )
    passed = f"forecasts can be tested by leaving out {names} rows"
    todo = "add runs at two levels or more of N, D or ptpp"
    yield judged("stages", passed, trouble, todo)

    smooth = surface.Surface.of(runs, columns)
    yield _review_noise(runs)
    yield _review_outliers(runs, smooth)
    trouble = "; ".join([*find_misplaced(smooth), *find_parts(smooth)])
    passed = "no part of the rows lies apart from the rest at like settings"
    todo = (
        "look what else differs between those rows, and mend or select them (--where)"
    )
    yield judged("mixture", passed, trouble, todo)
    yield _review_signal(runs, smooth)
    yield _review_size(runs)
    yield _review_tokens(runs)
    alike = settings.alike_but_settings(runs, columns)
    if alike is not None:
        # the most frequent setting, unless hardly a run of each cell has it, or fewer
        # rows than a law has parameters
        query = settings.at_commonest(runs, alike.columns)
        kept = select(runs, query)
        cells, kept_cells = (
            len(np.unique(settings.cells_of(rows))) for rows in (runs, kept)
        )
        todo = write_fit(query)
        if len(kept) < most or 2 * kept_cells < cells:
            todo = (
                f"hold {', '.join(alike.columns)} at the levels that you will use, by "
                f"--where (the most frequent levels together keep {len(kept)} of "
                f"{len(runs)} rows), and leave out columns that are no settings: bayeslaw "
                "table RUNS -o FILE"
            )
        yield Finding("settings", "look", alike.sentence(), todo)
    elif read := settings.tell_read(runs, [law.name for law in laws if law.tuned]):
        yield Finding("settings", "pass", read)
    yield from _review_replay(runs)
    yield from _review_copies(runs)
    if goal is not None:
        yield findings.review_reach(runs, goal, findings.times_tested(stages))


def _find_suiting(runs: pd.DataFrame, command: str) -> tuple[list[Law], Finding]:
    try:
        laws = [find_law(name, runs) for name in candidate_laws(runs)]
    except LawError as error:
        todo = "name columns of the schema: --column N=YOURS --column D=YOURS"
        return [], Finding("laws", "fail", str(error), todo)
    refused = fitting.list_refusals(laws, runs)
    usable = [law for law in laws if law.name not in refused]
    why = next(iter(refused.values()), "")
    if not usable:
        return [], Finding("laws", "fail", why, "mend that, and review again")
    reason = f"{', '.join(law.name for law in usable)} can be fitted"
    todo = " ".join([command, *(f"--law {law.name}" for law in usable)])
    if refused:
        return usable, Finding("laws", "look", f"{reason}, but {why}", todo)
    return usable, Finding("laws", "pass", reason, command)


def _review_noise(runs: pd.DataFrame) -> Finding:
    # columns that may differ between runs with different seeds only
    of_a_run = ["run", "seed", "checkpoint", "loss", "cost"]
    of_a_run += [LOSS_BEFORE, SOURCE_LOSS_BEFORE, "target_loss_before"]
    # a name or a date that differs in every row is not a setting
    alike = [
        runs[c]
        for c in runs.columns.difference(of_a_run, sort=False)
        if c in NUMERIC or is_share(c) or runs[c].nunique() < len(runs)
    ]
    log_loss = runs["loss"].map(np.log)
    groups = log_loss.groupby(alike, dropna=False)
    sizes = groups.transform("size")
    several = (sizes > 1).to_numpy()
    if not several.any():
        reason = "no two runs are alike, so noise is told from misfit by how it varies"
        todo = "repeat the cheapest run with another seed"
        return Finding("noise", "pass", reason, todo)
    # rows lie nearer to their own mean than to the true mean, by the factor
    # sqrt((n - 1) / n); the sd of a normal from its median absolute deviation
    away = (log_loss - groups.transform("mean")) * np.sqrt(sizes / (sizes - 1))
    sd = 1.4826 * goodness.median_distance(away.to_numpy()[several])
    reason = (
        f"{int(several.sum())} rows are of settings that were run more than once: runs "
        f"of equal settings differ by {sd:.2%} (sd of log loss)"
    )
    trouble = (
        f"{reason}, where seeds differ by .05-.6%" if sd > goodness.LARGE_MISS else None
    )
    todo = "look for what else differs between them, and make it a column"
    if sd == 0:
        trouble = f"{reason}: the losses are equal"
        todo = "look whether one run was exported twice, or the seed changes nothing"
    return judged("noise", reason, trouble, todo)


def _review_outliers(runs: pd.DataFrame, smooth: surface.Surface) -> Finding:
    off = np.abs(np.expm1(smooth.misses))
    if off.max() < 1e-9:
        reason = "a smooth surface passes through every row, so nothing is said of them"
        return Finding("outliers", "pass", reason)
    half = f"half of the rows lie within {smooth.usual:.2%} of a smooth surface"
    # a surface is rougher than a law, for which `fit` uses 8
    part = surface.outliers(smooth.misses, 8.0, 0.03, in_part=True)
    if part.any():
        rows = named_rows(runs.index[part])
        trouble = (
            f"{int(part.sum())} of {len(runs)} rows lie over "
            f"{off[part].min():.1%} off, where {half}: more than single "
            "mistakes, so another unit, setting or domain in a part of the rows?"
        )
        todo = f"look what {rows} have in common, and mend or select them (--where)"
        return Finding("outliers", "look", trouble, todo)
    single = surface.outliers(smooth.misses, 12.0)
    rows, trouble = named_rows(runs.index[single]), None
    if single.any():
        lie = "lies" if single.sum() == 1 else "lie up to"
        trouble = f"{rows} {lie} {off[single].max():.1%} off, where {half}"
    todo = f"look at {rows}: where a loss is wrong, mend it or leave the row out"
    return judged("outliers", f"{half}, and none far off it", trouble, todo)


def _review_signal(runs: pd.DataFrame, smooth: surface.Surface) -> Finding:
    y = fitting.log_losses(runs)
    # a surface of many terms explains a part of anything
    rows, terms = smooth.design.shape
    if rows <= terms:
        reason = (
            f"{format_many(len(runs), 'row')} cannot show whether columns explain the "
            f"losses: a smooth surface of {format_many(terms, 'term')} passes through "
            "any"
        )
        todo = f"add runs, {terms + 1 - rows} at least; or keep more of them (--where)"
        return Finding("signal", "look", reason, todo)
    residuals = smooth.misses * np.sqrt(rows / max(1, rows - terms))
    explained = goodness.explained_share(residuals, y)
    reason = f"columns explain {explained:.1%} of how losses differ"
    todo = "plot the table: losses against D, a line for each N"
    # Few rows have a plane, which does not bend as laws do towards their floor. Then the
    # order of the losses is compared with a plane in the order of the columns.
    varied = [c for c in smooth.columns if _varies(runs, c)]
    if terms <= 1 + len(varied) and rows > 2 * terms and _varies(runs, "loss"):
        ranks = runs["loss"].rank().to_numpy()
        design = np.column_stack([np.ones(rows), runs[varied].rank()])
        coefficients, *_ = np.linalg.lstsq(design, ranks, rcond=None)
        away = ranks - design @ coefficients
        order = float(1 - away @ away / (rows - terms) / ranks.var(ddof=1))
        if order >= 0.9 and order > explained:
            reason = f"columns explain {order:.1%} of the order of the losses"
            return Finding("signal", "pass", reason)
    if goodness.explains_little(explained, y):
        return Finding("signal", "fail", f"{reason}: {goodness.REASONS}", todo)
    usual, trouble = goodness.median_distance(residuals), None
    if usual > goodness.LARGE_MISS:
        trouble = (
            f"{reason}, but half of the rows lie over {usual:.1%} off a smooth surface, "
            f"where seeds differ by .05-.6%: {goodness.REASONS}"
        )
    return judged("signal", reason, trouble, todo)


def _review_size(runs: pd.DataFrame) -> Finding:
    trouble = goodness.rise_with_size(runs)
    if not trouble and (
        found := surface.rise_along(runs, "N", ("D", "replay", "ptpp"))
    ):
        part, rise = found
        trouble = f"losses rise with N by {rise:.1%} {part}: {goodness.REASONS}"
    passed = "losses do not rise with N where rows tell"
    if not _varies(runs, "N"):
        passed = "one size, so nothing is said of it"
    todo = "look whether larger models were trained and evaluated alike"
    return judged("size", passed, trouble, todo)


def _review_tokens(runs: pd.DataFrame) -> Finding:
    domain = _domain(runs)
    if domain == "source":
        return Finding("tokens", "pass", "a source's losses may rise with D")
    somewhere = surface.rise_along(runs, "D", ("N", "replay", "ptpp"))
    trouble = suspicions.past_minimum(runs)
    todo = "plot the losses along each run, and keep the rows up to the least"
    if somewhere is not None and not (trouble and somewhere[0]):
        part, rise = somewhere
        where = f" {part}" if part else ""
        trouble = (
            f"losses rise with D by {rise:.1%}{where}, as those of a source that is "
            "forgotten do"
        )
        trouble += ", and of a target do not" if domain != "target" else ""
        todo = "say which losses they are in a column domain (target, source); or look at D"
    passed = "losses do not rise with D where rows tell"
    return judged("tokens", passed, trouble, todo)


def _review_replay(runs: pd.DataFrame) -> Iterator[Finding]:
    """Check whether losses of target and source move with replay as they should."""
    domain = _domain(runs)
    if domain not in ("target", "source") or "replay" not in runs:
        return
    slope, error = surface.partial_slope(runs, "replay", surface.BESIDE_REPLAY)
    change = slope * float(np.ptp(runs["replay"]))
    wrong, way = (-change, "fall") if domain == "target" else (change, "rise")
    trouble = None
    if abs(slope) > surface.CLEAR * error and wrong > 0.005:
        trouble = (
            f"losses of the {domain} {way} with replay, by {wrong:.1%} over its range: "
            "replay given as 1 - replay, or labels of the domains exchanged?"
        )
    passed = f"losses of the {domain} do not {way} with replay"
    todo = "look what replay is: the share of source data (--column replay=...)"
    yield judged("replay", passed, trouble, todo)


def _review_copies(runs: pd.DataFrame) -> Iterator[Finding]:
    """Find losses that are equal to the last of at least four decimals in different
    settings, in 5% of the rows and more often than by chance, or everywhere.
    """
    loss = runs["loss"].to_numpy(float)
    if len(loss) < 3:
        return
    if np.ptp(np.log(loss)) == 0:
        reason = f"all {len(loss)} losses are {loss[0]:g}"
        yield Finding("copies", "fail", reason, "look where the losses come from")
        return
    fine = np.abs(1000 * loss - np.round(1000 * loss)) > 1e-6
    columns = [c for c in numeric_columns(runs) if "loss" not in c]
    apart = runs[[*columns, "loss"]].drop_duplicates()
    again = apart["loss"].duplicated(keep=False)
    by_chance = len(apart) ** 2 / (1e4 * float(np.ptp(loss)) + 1)
    least = max(0.05 * len(apart), 3 * by_chance + 3)
    if fine.mean() >= 0.5 and columns and again.sum() >= least:
        reason = (
            f"{int(again.sum())} rows have the loss of another setting to the last digit "
            f"({named_rows(apart.index[again])})"
        )
        yield Finding("copies", "look", reason, "look whether losses were copied")


def _review_plan(parts: Mapping[str, pd.DataFrame]) -> Finding:
    if not {"target", "source"} <= set(parts):
        command = "bayeslaw plan --target T.nc --source S.nc"
        if any(is_share(column) for runs in parts.values() for column in runs):
            losses = " ".join(f"--loss {name}={name}.nc" for name in parts)
            command = f"bayeslaw mixture {losses}"
        reason = f"domains {', '.join(parts)}: none is called target and source"
        todo = f"fit each domain, and name them: {command}"
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
    todo = "mend that before a plan"
    known = [target.get(SOURCE_LOSS_BEFORE), source.get(SOURCE_LOSS_BEFORE)]
    known.append(source.get(LOSS_BEFORE))
    if not doubts and not any(c is not None and c.notna().all() for c in known):
        doubts = [
            f"no column {SOURCE_LOSS_BEFORE}: forgetting has no baseline, and laws of the "
            "checkpoint's state, which forecast best where we measured, cannot be used"
        ]
        todo = (
            "evaluate each checkpoint on the source before it is adapted, or give "
            "--baseline-loss to plan"
        )
    passed = "both domains, replay and losses before adaptation are there"
    return judged("plan", passed, "; ".join(doubts), todo)


def _varies(runs: pd.DataFrame, column: str) -> bool:
    return column in runs and runs[column].nunique() > 1


def _domain(runs: pd.DataFrame) -> str:
    return str(runs["domain"].iloc[0]) if "domain" in runs else ""
