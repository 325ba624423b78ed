"""What looks wrong in a table of runs: one table of rules, for the reader and for reviews.

If all rows share a wrong factor, only the relation to another column shows it: tokens
per parameter, compute, the usual loss of a model of that size. That nothing is said does
not prove that units are right, because bits and nats differ by less than losses on two
corpora do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.errors import RunTableWarning
from bayeslaw._base.numbers import format_count, format_level
from bayeslaw._law.columns import LOSS_BEFORE, axis_product, powers_of
from bayeslaw._tables.before import finished_query, unfinished
from bayeslaw._tables.parts import find_gaps
from bayeslaw._tables.rows.naming import SET_BEFORE, named_rows


class Rule(NamedTuple):
    """A figure of a table that is odd between two values (``odd``).

    ``about``: what is judged; of the rules about one thing, the first that speaks
    counts. ``figure``: a column or axis, or a function of a table that has the columns
    ``needs``: one value or one for each row, NaN if it is not judged. ``when``:
    ``"read"`` whenever a table is read, ``"mapped"`` if N or D were read from other
    columns, ``"units"`` in that check of a review. ``by``: how the values of rows make a
    figure.
    """

    about: str
    figure: str | Callable[[pd.DataFrame], pd.Series | float]
    odd: tuple[float, float]
    when: str = "units"
    by: str = "median"
    needs: str = ""


def suspicions(runs: pd.DataFrame, *when: str) -> list[str]:
    """Write a line for each suspicion by the `RULES` of ``when``; where a table is read,
    also by what `find_odd_rows` and `find_gaps` see in single rows.
    """
    lines: dict[str, str] = {}
    for (about, of, (low, high), asked, by, needs), says in RULES.items():
        columns = powers_of(of) if isinstance(of, str) else needs.split()
        is_asked = {*when} & {*asked.split()} and {*columns} <= {*runs}
        if about in lines or not is_asked:
            continue
        table = {name: runs[name] for name in columns}
        figures = axis_product(of, table) if isinstance(of, str) else of(runs)
        values = pd.Series(figures, dtype=float)
        values = values[np.isfinite(values)]
        if not values.empty and low < (x := float(values.agg(by))) < high:
            odd = int(((values > low) & (values < high)).sum())
            names = {"row": values.idxmax(), "name": values.name, "n": len(runs)}
            lines[about] = says.format(x=x, odd=odd, count=format_count(x), **names)
    if "read" not in when:
        return [*lines.values()]
    return [*find_odd_rows(runs), *lines.values(), *find_gaps(runs)]


def describe_unjudged_units(runs: pd.DataFrame) -> str:
    """Describe which units could not be judged, for a table whose units seem right."""
    parts = ["losses in nats, in bits or another measure of that size"]
    if {"N", "D"} <= set(runs) and (runs["D"] / runs["N"] > 0).any():
        parts.append("a factor of N or D, or the two exchanged")
    else:
        parts += [f"the unit of {name}" for name in ("N", "D") if name in runs]
    if "ptpp" in runs:
        parts.append("a factor of ptpp")
    if "replay" in runs:
        parts.append("replay or 1 - replay")
    return "; ".join(parts)


def _compare_losses(runs: pd.DataFrame) -> float:
    """Divide losses by Hoffmann's (2022) at N and D: of the domain farthest off."""
    # smaller models may read bytes
    large = runs[(runs["N"] >= 1e7) & (runs["D"] > 0)]
    tokens = large["D"]
    if "ptpp" in large:
        tokens = tokens + large["ptpp"].fillna(0) * large["N"]
    usual = 1.69 + 406.4 / large["N"] ** 0.34 + 410.7 / tokens**0.28
    domain = large["domain"].astype(str) if "domain" in large else large["N"] * 0
    times = (large["loss"] / usual).groupby(domain).median()
    return float(times.iloc[np.abs(np.log(times)).argmax()]) if len(times) else nan


def _find_coarseness(runs: pd.DataFrame) -> float:
    """The step between losses of one decimal, relative to the loss."""
    tenths = 10 * runs["loss"].to_numpy(float)
    is_coarse = len(tenths) >= 8 and np.allclose(tenths, np.round(tenths), atol=1e-9)
    return 1 / float(np.median(tenths)) if is_coarse else nan


def _find_tokens_of_large(runs: pd.DataFrame) -> float:
    is_large = runs["N"].min(skipna=False) > 1e4
    return float(runs["D"].max(skipna=False)) if is_large else nan


def _count_without_progress(runs: pd.DataFrame) -> float:
    """Count the runs with several steps, if D is the same at all of them."""
    keys = [name for name in ("run", "domain") if name in runs]
    levels = runs.groupby(keys, dropna=False)[["step", "D"]].nunique()
    along = levels[levels["step"] > 2]
    return nan if (along["D"] > 1).any() else len(along)


def _find_fewer_tokens(runs: pd.DataFrame) -> pd.Series:
    """Tell by 1 which rows have fewer tokens than an earlier step of their run."""
    keys = [name for name in ("run", "domain") if name in runs]
    ordered = runs.dropna(subset=["step", "D"]).sort_values("step", kind="stable")
    most = ordered.groupby(keys, dropna=False)["D"].cummax()
    return (ordered["D"] < most * (1 - 1e-6)).astype(float)


def _judge_exchange(runs: pd.DataFrame) -> float:
    """D / N, if N looks like tokens: it has more levels than D, or grows along a run."""
    ratio = float((runs["D"] / runs["N"]).median())
    if "run" in runs:
        within = runs.groupby(runs["run"].astype(str))[["N", "D"]].nunique()
        if (within["N"] > 1).any() and (within["D"] == 1).all():
            return ratio
    has_fewer = 2 * runs["D"].nunique() < runs["N"].nunique()
    return ratio if ratio < 1 and has_fewer else nan


def _compare_compute(runs: pd.DataFrame) -> pd.Series | float:
    """Compare the first column of FLOPs with 6 N D."""
    for name, column in runs.items():
        # as people write them
        is_called = str(name).casefold() in ("cost", "flops", "compute", "budget", "c")
        if is_called and column.dtype.kind in "iuf" and column.median() > 1e12:
            return (column / (6 * runs["N"] * runs["D"])).rename(str(name))
    return nan


def _find_divided_again(runs: pd.DataFrame) -> pd.Series | float:
    """The replays that were divided by 100 once more: all, some, or one level that fewer
    rows have than a hundred times it, and no other near it, as in a sweep of small
    shares.
    """
    shares = runs["replay"][runs["replay"] > 0]
    small, large = shares[shares < 0.01], shares[shares >= 0.01]
    levels = small.unique()
    again = [np.isclose(large, 100 * share, rtol=1e-6, atol=0) for share in levels]
    if len(levels) >= 2 and (large.empty or all(rows.any() for rows in again)):
        return small
    for share in levels:
        times = np.exp(np.abs(np.log(shares.unique() / share)))
        is_near = (times > 1 + 1e-6) & (times < 10 * (1 + 1e-6))
        rows = np.isclose(shares, 100 * share, rtol=1e-6, atol=0).sum()
        if not is_near.any() and (small == share).sum() < rows:
            return small[small == share]
    return nan


def find_odd_rows(runs: pd.DataFrame) -> Iterator[str]:
    """Tell of unfinished runs, runs of several sizes or stages, and copied rows."""
    for name, states, count in unfinished(runs):
        yield (
            f"{count} of {len(runs)} rows are of runs that did not end ({name} "
            f"{', '.join(states)}): their losses may be of another schedule; leave "
            f'them out by --where "{finished_query(runs)}"'
        )
    for name in (c for c in ("N", "ptpp") if c in runs and "run" in runs):
        levels = runs.groupby("run")[name].nunique()
        several = levels.index[levels > 1]
        # where most runs have several, the column does not name runs
        if 0 < len(several) <= 0.2 * len(levels):
            rows = runs.index[(runs["run"] == several[0]).to_numpy()]
            yield (
                f"{named_rows(rows)} are of one run, {several[0]!r}, and differ in "
                f"{name!r}: is a run's name there twice?"
            )
            break
    twins = runs.duplicated(keep="first").to_numpy()
    if "loss" in runs and twins.any():
        yield (
            f"{named_rows(runs.index[twins])}: the same as an earlier row in every "
            "column, and counted as further runs; drop them if the table was exported "
            "twice, name the runs apart (column 'run') if they are replicates"
        )


class PastMinimumWarning(RunTableWarning):
    """A loss passed its minimum: a review and a followed run say so in other words."""


def past_minimum(runs: pd.DataFrame) -> str | None:
    """Write a line about runs whose loss passed its minimum, or settings of runs of one
    row each: it rose over three points (of at most twelve), by half a percent and by
    four times their noise; None without such. A source may rise, and is left out, and
    so is what is forgotten.
    """
    has_points = "run" in runs and runs["run"].nunique() < 0.5 * len(runs)
    along = "step" if has_points and "step" in runs else "D"
    names = ("run", "domain") if has_points else SET_BEFORE
    keys = [column for column in names if column in runs]
    if not keys or not {along, "loss"} <= set(runs):
        return None
    rows = runs[runs["domain"] != "source"] if "domain" in runs else runs
    if LOSS_BEFORE in rows:
        # above its loss before adaptation a domain is forgotten, which laws foresee
        rows = rows[~(rows["loss"] > rows[LOSS_BEFORE])]
    rows = rows[rows[along].notna()]
    points = rows.groupby([*keys, along], dropna=False)["loss"].median()
    points = points.reset_index()
    logs = np.log(points["loss"].to_numpy())
    of_run = points.groupby(keys, dropna=False).ngroup().to_numpy()
    risen = []  # the rise to the end of runs that passed their minimum, and their points
    for run in np.split(np.arange(len(points)), np.flatnonzero(np.diff(of_run)) + 1):
        losses = logs[run]
        if len(losses) <= 3:
            continue
        parts = np.array_split(losses, min(12, len(losses)))
        course = np.array([np.median(part) for part in parts])
        rise = np.median(course[-3:]) - course.min()
        # second differences are free of a trend; those of noise have six times its
        # variance
        noise = np.median(np.abs(np.diff(course, 2))) / (0.6745 * np.sqrt(6))
        if course.argmin() < len(course) - 3 and rise > max(0.005, 4 * noise):
            risen.append((losses[-1] - losses.min(), run))
    if not risen:
        return None
    rise, run = max(risen, key=lambda one: one[0])
    worst = points.iloc[run]
    lowest = worst[along].iloc[logs[run].argmin()]
    shown = [f"{c} {format_level(c, worst[c].iloc[0])}" for c in keys]
    others = f" ({len(risen) - 1} more rise, too)" if len(risen) > 1 else ""
    of_repeated = "it reads U" if "U" in runs else "give unique tokens, column U"
    return (
        f"the loss of {', '.join(shown)} is least at {along} {format_count(lowest)} and "
        f"{rise:.1%} higher at the end{others}: data that repeat, or a rate too high? "
        "laws fall with D, so keep the rows up to the least loss (--where); "
        f"data-constrained-overfitting does not ({of_repeated}), and optimum --at says "
        "when to stop"
    )


# -- rules -----------------------------------------------------------------------------

_USUAL = "losses are {x:.2g} times what models of that size lose in nats per token: "
_COMPUTE = (
    "column {name!r} is {x:.2g} times 6 N D (median), which is the compute of a run: N, D "
    "or it in another unit?"
)
_BOTH, _SIZES = "read units", "mapped units"
# what is said, with {x} the figure, {count} the figure in words, {n} the number of rows,
# {odd} that of odd rows, {row} the row of the largest value, {name} the column's name
RULES: dict[Rule, str] = {
    Rule("size read", "N", (0, 1000), "read", by="max"): (
        "column 'N' is at most {x:g}: model parameters in millions or billions? write "
        "8.1B or 8.1e9"
    ),
    Rule("tokens read", _find_tokens_of_large, (0, 1e4), "read", needs="N D"): (
        "column 'D' is at most {x:g}: billions, or tokens per parameter? D is tokens: "
        "multiply by 1e9 (--column D=yours*1e9) or by N"
    ),
    # ln of a vocabulary of 440,000: the loss of guessing
    Rule("loss", "loss", (13, inf), _BOTH, by="max"): (
        "{odd} of {n} losses (row {row}: {x:.4g}) lie above 13 nats, the logarithm of any "
        "vocabulary: perplexity, percent, or a sum over tokens? loss is nats per token"
    ),
    # measured tables in nats per token are .5 to 1.5, in bits per byte .2 to .35
    Rule("loss", _compare_losses, (2.5, inf), needs="N D loss"): (
        _USUAL + "perplexity, a sum over tokens, or N or D in another unit?"
    ),
    Rule("loss", _compare_losses, (0, 0.4), needs="N D loss"): (
        _USUAL + "bits per byte, a logarithm, an accuracy, or N or D in another unit?"
    ),
    Rule("loss", _find_coarseness, (0, inf), needs="loss"): (
        "losses have one decimal, steps of {x:.1%}, where seeds differ by .05-.6%: export "
        "more digits"
    ),
    # the smallest language models have some ten thousand parameters
    Rule("size", "N", (999, 1e4), _SIZES): (
        "column 'N' is {count} (median): parameters in thousands, millions or a count of "
        "layers? N is parameters"
    ),
    # no measured table has so few or so many tokens per parameter, except fine-tuning
    Rule("tokens", "D/N", (0, 0.1), _SIZES, by="max"): (
        "D is at most {x:.2g} tokens per parameter: D in steps, examples, thousands or "
        "more, or N and D exchanged? D is tokens"
    ),
    Rule("tokens", "D/N", (3e3, inf), _SIZES): (
        "D is {x:.2g} tokens per parameter (median): N in thousands or millions, or D in "
        "bytes of all epochs? N is parameters, D tokens"
    ),
    Rule("tokens", _judge_exchange, (0, inf), _SIZES, needs="N D"): (
        "D is {x:.2g} tokens per parameter (median) and has fewer levels than N: N and D "
        "exchanged?"
    ),
    # measured: up to 60,000
    Rule("stages", "ptpp", (1e5, inf), _BOTH): (
        "column 'ptpp' is {count} (median): pre-training tokens, not tokens per "
        "parameter? divide by N"
    ),
    Rule("stages", "ptpp", (0, 0.1), _BOTH): (
        "column 'ptpp' is {x:.2g} (median): it is pre-training tokens per parameter"
    ),
    Rule("replay", _find_divided_again, (0, 0.01), "read", by="max", needs="replay"): (
        "column 'replay' is at most {x:.2%} in {odd} of {n} rows (row {row}): shares that "
        "were divided by 100 once more? write replay as a share, .25 or 25%"
    ),
    Rule(
        "replay", lambda t: {*t["replay"].dropna()} == {0, 1}, (0, inf), needs="replay"
    ): (
        "replay is 0 or 1 in all rows: a flag, not the share of source data? write the "
        "share, .25 or 25%"
    ),
    Rule("progress", _count_without_progress, (0, inf), "read", needs="run step D"): (
        "D is the same at all steps of a run ({x:.0f} runs): tokens of pre-training, or "
        "planned ones? D is the tokens that a run has seen at the row"
    ),
    Rule(
        "progress", _find_fewer_tokens, (0, inf), "read", by="max", needs="run step D"
    ): (
        "{odd} of {n} rows (row {row}) have fewer tokens D than an earlier step of their "
        "run: counted anew after a resume, an integer that overflowed, or two runs of one "
        "name? D is the tokens since the run's start"
    ),
    Rule("compute", _compare_compute, (30, inf), needs="N D"): _COMPUTE,
    Rule("compute", _compare_compute, (0, 1 / 30), needs="N D"): _COMPUTE,
}
