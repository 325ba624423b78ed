"""Take the columns that a law reads, and check that it may be fitted to a table."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableError, RunTableWarning, warn
from bayeslaw._base.numbers import format_count, format_counts, format_many
from bayeslaw._law.columns import LOSS_SD, LOSSES_BEFORE
from bayeslaw._tables.proposals import check_columns, it_has, losses_hint
from bayeslaw._tables.rows.levels import number_alike
from bayeslaw._tables.rows.naming import named_rows
from bayeslaw._tables.rows.settings import alike_but_settings
from bayeslaw._tables.runs import (
    NUMERIC,
    check_values,
    numeric_columns,
    refuse,
    row_numbers,
)
from bayeslaw._tables.words import quoted

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from bayeslaw._law.law import Law


HANDFUL = 24  # with at most this many rows, priors decide what the rows cannot


def fitted(table: object, runs: pd.DataFrame) -> Bool[np.ndarray, " run"]:
    """Tell which runs are rows of a fit's table, by their numbers; shape (run,)."""
    if not isinstance(table, pd.DataFrame):
        return np.zeros(len(runs), bool)
    keys = [c for c in numeric_columns(runs) if c in table]
    if "loss" not in keys:
        return np.zeros(len(runs), bool)
    rows, new = number_alike(table, runs, keys)
    return np.isin(new, rows)


def by_domain(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Split rows by domain, target and source first; all as ``"runs"`` without one."""
    if "domain" not in table or table["domain"].isna().all():
        return {"runs": table}
    unnamed = table["domain"].isna().to_numpy()
    if unnamed.any():
        do = 'say whose losses they are, or leave them out (--where "domain.notna()")'
        refuse(row_numbers(table)[unnamed], "domain", "empty", do)
    domain = table["domain"].astype(str)
    return {
        name: table[domain == name]
        for name in sorted({*domain}, key=lambda x: (x != "target", x != "source", x))
    }


def own_rows(table: pd.DataFrame | None, runs: pd.DataFrame) -> pd.DataFrame:
    """Select the runs of a fit's domains, if both name them; refuse a table without."""
    if table is None:
        return runs
    if any("domain" not in t or t["domain"].isna().all() for t in (table, runs)):
        return runs
    fitted = table["domain"].astype(str)
    rows = runs[runs["domain"].astype(str).isin(fitted)]
    if rows.empty and len(runs):
        name, there = " and ".join(fitted.unique()), runs["domain"].unique()[:5]
        raise RunTableError(
            f"the table has no rows of domain {name}, which was fitted; it has: "
            f"{', '.join(map(str, there))}"
        )
    return rows


def warn_other_domain(table: object, runs: pd.DataFrame) -> None:
    if not (isinstance(table, pd.DataFrame) and "domain" in table and "domain" in runs):
        return
    domains = table["domain"].astype(str).unique()
    names = runs["domain"].astype(str)
    foreign = names[~names.isin(domains)]
    if len(domains) == 1 and len(foreign):
        warn(
            f"the fit is of domain {domains[0]!r}, and {len(foreign)} of {len(runs)} "
            f"rows are of {foreign.iloc[0]!r}: select rows with where "
            f"\"domain == '{domains[0]}'\""
        )


def covariates(
    law: Law, runs: pd.DataFrame, *, with_settings: bool = False
) -> dict[str, Float[np.ndarray, " run"]]:
    """Take the columns a law reads, each of shape (run,). Those of tuned settings may be
    absent, but for ``with_settings``; a column that may be meant by one gives a warning.
    """
    columns = {}
    for name in law.covariates:
        is_tuned = name in law.tuned
        if name not in runs:
            similar = _propose_similar(name, runs)
            if not is_tuned or with_settings:
                before = (
                    "; a fit of other checkpoints may forecast it for a forecast "
                    "(--before, docs/howto/chains.md)"
                )
                raise RunTableError(
                    f"law {law.name!r} needs column {name!r} "
                    f"({NUMERIC.get(name, 'covariate')}), which the table lacks{similar}; "
                    f"{it_has(runs)}{before * (name in LOSSES_BEFORE)}"
                )
            if similar:
                warn(
                    f"law {law.name!r} reads {name!r}, which the table lacks{similar}: "
                    f"its runs are taken to have the best {name}"
                )
            continue
        left_out = ", leave the column out (runs then have the best)" * is_tuned
        check_full(runs, name, f"law {law.name!r} needs", f"fill it{left_out}")
        try:
            columns[name] = runs[name].to_numpy(float)
        except (TypeError, ValueError):
            raise RunTableError(
                f"column {name!r}, which law {law.name!r} reads, is not numbers"
            ) from None
        check_values(runs, [name], positive=law.tuned)
    return columns


def _propose_similar(name: str, runs: pd.DataFrame) -> str:
    # names and descriptions are compared: lr is described as a learning rate
    folded = {str(c).casefold(): str(c) for c in runs.columns if c not in NUMERIC}
    words = (name.casefold(), NUMERIC.get(name, name).casefold())
    for close in (difflib.get_close_matches(word, folded, 1) for word in words):
        if close:
            meant = folded[close[0]]
            return f' (is it {meant!r}? write --column "{name}={meant}")'
    return ""


def check_full(runs: pd.DataFrame, name: str, who: str, fill: str = "fill it") -> None:
    """Refuse a column with empty cells. ``who`` needs it; ``fill``: a remedy."""
    empty = runs[name].isna().to_numpy()
    if not empty.any():
        return
    if empty.all():
        raise RunTableError(
            f"column {name!r} is empty at every row; {who} it at every row: {fill}, or "
            "name a law that does not read it"
        )
    rows = row_numbers(runs)[empty]
    do = f"{who} it at every row: {fill}, or leave such rows out"
    refuse(rows, name, "empty", f'{do} (--where "{quoted(name)}.notna()")')


def losses(runs: pd.DataFrame) -> Float[np.ndarray, " run"]:
    """Take the measured losses, shape (run,)."""
    if "loss" not in runs:
        raise RunTableError(
            "the table has no column 'loss', nor target_loss and source_loss; "
            f"{it_has(runs)}{losses_hint(runs)}"
        )
    check_values(runs, ["loss"])
    return runs["loss"].to_numpy(float)


def log_losses(runs: pd.DataFrame) -> Float[np.ndarray, " run"]:
    return np.log(losses(runs))


def sds_of_log_loss(
    runs: pd.DataFrame, nats: Float[np.ndarray, " run"]
) -> Float[np.ndarray, " run"] | None:
    """Convert ``loss_sd`` to sds of log loss, shape (run,); None without the column."""
    if LOSS_SD not in runs:
        return None
    do = "write 0 where the loss is exact"
    check_full(runs, LOSS_SD, "a table with standard errors needs", do)
    check_values(runs, [LOSS_SD])
    return runs[LOSS_SD].to_numpy(float) / nats


def reference_near(runs: pd.DataFrame) -> dict[str, float]:
    """Propose a reference run in the middle of a table, rounded to one digit, if its
    models are too far from a billion parameters for priors in nats at that size.
    """
    # the reference run of the laws that come with this has a billion parameters
    if "N" not in runs or not _are_far(runs["N"].min(), runs["N"].max(), 1e9):
        return {}
    positive = {c: runs[c][runs[c] > 0] for c in ("N", "D") if c in runs}
    return {c: float(f"{np.exp(np.log(x).mean()):.0e}") for c, x in positive.items()}


def _are_far(low: float, high: float, reference: float) -> bool:
    return bool(low > 100 * reference or high < reference / 100)


def domains_mixed(runs: pd.DataFrame) -> str | None:
    """Write the warning of several domains, whose losses one law can only average."""
    rows = runs.groupby(runs["domain"].astype(str)).groups if "domain" in runs else {}
    if len(rows) < 2:
        return None
    listed = "; ".join(f"{domain}: {named_rows(at)}" for domain, at in rows.items())
    return (
        f"runs of {len(rows)} domains are fitted as if of one ({listed}); select "
        f"one of them (--where \"domain == '{next(iter(rows))}'\")"
    )


def names_by(runs: pd.DataFrame, by: str, what: str) -> pd.Series:
    """Read as text which domain, or recipe (``what``), each row is of by a column.

    Raises
    ------
    RunTableError
        There is no such column, or it is empty somewhere or the same everywhere.
    """
    check_columns(runs, [by], f", which names {what}s")
    empty = runs[by].isna()
    if empty.any():
        refuse(runs.index[empty], by, "empty", f"name every run's {what}")
    names = runs[by].astype(str)
    if names.nunique() < 2:
        raise RunTableError(
            f"column {by!r} has one {what} only ({names.iloc[0]!r}): give two or more, "
            "or use fit"
        )
    return names


def check_fittable(
    law: Law,
    runs: pd.DataFrame,
    requested: Collection[str] = (),
    handful: bool = False,
    apart: Collection[str] = (),
) -> None:
    """Refuse a table that a law cannot be fitted to; warn where priors decide what the
    rows cannot: exponents of a column with one level keep their priors.

    ``requested``: the exponents whose prior the user set, of which nothing is said.
    With ``handful``, up to `HANDFUL` runs may be fewer than the parameters. Rows that
    differ in a column of ``apart`` belong to different domains; without one, runs of
    several domains give a warning.
    """
    x, rows = covariates(law, runs, with_settings=True), len(runs)
    nats, free = losses(runs), law.free_priors

    # rows for the parameters; for a handful of runs, priors decide the rest
    if rows < len(free):
        count = format_many(rows, "row")
        few = f"{count} for the {len(free)} parameters of law {law.name!r}"
        if handful and rows <= HANDFUL:
            warn(
                f"{few}: what the runs do not narrow is as the priors say "
                "(fit.narrowed() tells which)"
            )
        else:
            alone = ", or fit it by itself (priors then fill in)"
            raise RunTableError(
                f"{few}: add runs, or take a smaller law{alone * (rows <= HANDFUL)}"
            )
    if not apart and (mixed := domains_mixed(runs)):
        warn(mixed)

    # models far from the reference run, at which priors in nats are stated
    if "N" in law.covariates:
        low, high = float(x["N"].min()), float(x["N"].max())
        reference = float(law.reference["N"])
        if _are_far(low, high, reference):
            middle = (low * high) ** 0.5
            warn(
                f"models of {format_counts(low, high)} parameters lie "
                f"far from the reference run of law {law.name!r} (N = "
                f"{format_count(reference)}), at which priors are stated in nats; state "
                f"one near them: --reference N={format_count(middle)}, in Python "
                "reference={'N': ...}"
            )

    # tokens that follow the size, so that the two effects cannot be separated; two runs
    # always lie on a line
    if {"N", "D"} <= set(x) and rows >= 3:
        size, tokens = np.log(x["N"]), np.log(x["D"])
        if min(np.ptp(size), np.ptp(tokens)) > 0:
            slope, level = np.polyfit(size, tokens, 1)
            away = np.std(tokens - slope * size - level)
            if away < 0.05:
                warn(
                    f"tokens follow the size in all runs (D as N^{slope:.2g}, within "
                    f"{away:.1%}): N and D are collinear, so their separate effects come "
                    "from the priors. Add runs at another D/N, and draw with chains: "
                    "previews lose tails here"
                )
    alike = alike_but_settings(runs, [*law.covariates, *apart])
    if alike is not None:
        warn(alike.sentence() if law.is_formula else alike.sentence(law.name))

    # standard errors that look like the spread of single batches
    errors = sds_of_log_loss(runs, nats)
    if errors is not None and errors.max() > 0.05:
        warn(
            f"column {LOSS_SD!r} is up to {errors.max():.0%} of the loss: it is the "
            "standard error of a row's loss, not the spread of the batches that it is a "
            "mean of (divide that by the square root of their number)"
        )
    check_finite(law, runs, x)

    # levels of the columns that inform exponents; for fewer runs than parameters there
    # was a warning already
    if rows < len(free):
        return
    tied: dict[str, list[str]] = {}
    for e in law.exponents:
        if not e.prior.is_fixed and e.name not in requested:
            # of the columns on which it acts, the one with most levels
            acts_on = [c for c in (e.covariate, *e.also) if c in x] or [e.covariate]
            most = max(acts_on, key=lambda c: len(np.unique(x[c])) if c in x else 0)
            tied.setdefault(most, []).append(e.name)
    for column in (c for c in law.covariates if c in tied):
        levels, names = np.unique(x[column]), tied[column]
        words = " and ".join(map(format_count, levels[:2]))
        if len(levels) == 1:
            which, keep = "exponent", "keeps its prior"
            if len(names) > 1:
                which, keep = "exponents", "keep their priors"
            warn(
                f"column {column!r} has one level only ({words}): {which} "
                f"{', '.join(names)} of law {law.name!r} {keep}; add runs at another "
                f"{column} to learn them"
            )
        if len(levels) == 2:
            warn(
                f"column {column!r} has two levels only ({words}) in the rows that are "
                "fitted: laws bend along it as their priors say, and so do forecasts "
                f"along {column}; a third level would tell"
            )


def list_refusals(laws: Iterable[Law], runs: pd.DataFrame) -> dict[str, str]:
    """List by name the laws that cannot be fitted to a table, and why not."""
    refused = {}
    with warnings.catch_warnings():
        # a review reports what the warnings say
        warnings.simplefilter("ignore", RunTableWarning)
        for law in laws:
            try:
                check_fittable(law, runs, handful=True)
            except RunTableError as error:
                refused[law.name] = str(error)
    return refused


def check_finite(
    law: Law, runs: pd.DataFrame, x: Mapping[str, Float[np.ndarray, " run"]]
) -> None:
    """Refuse rows at which the user's own formula divides by zero, or the like."""
    if not law.is_formula:
        return
    medians = {name: prior.median for name, prior in law.priors.items()}
    with np.errstate(all="ignore"):
        loss = np.asarray(law.loss(x, medians))
    undefined = ~np.isfinite(loss)
    if undefined.any():
        raise RunTableError(
            f"{named_rows(row_numbers(runs)[undefined])}: the formula has no finite loss "
            f"there; leave such rows out, or change the formula ({law.source})"
        )
