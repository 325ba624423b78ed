"""Find columns that seem to be in other units than the schema's.

If all rows share a wrong factor, only the relation to another column shows it: tokens
per parameter, compute, the usual loss of a model of that size. A pass does not prove
that units are right, because bits and nats differ by less than losses on two corpora
do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count


class Rule(NamedTuple):
    """A figure of a table that is odd between two values.

    Parameters
    ----------
    about
        What is judged. Of the rules about one thing, the first that speaks counts.
    figure
        A column, or one of `FIGURES`.
    odd
        The figure is odd between these.
    when
        ``"read"`` whenever a table is read, ``"mapped"`` if N or D were read from other
        columns, ``"review"`` in a review.
    by
        How the values of rows make a figure.
    """

    about: str
    figure: str
    odd: tuple[float, float]
    when: str = "review"
    by: str = "median"


def odd_units(runs: pd.DataFrame, when: str = "review") -> list[str]:
    """Write a line for each thing whose values do not suit its unit, by the rules of
    ``"review"``, ``"read"`` (those that are certain) or ``"mapped"``.
    """
    lines: dict[str, str] = {}
    for rule, says in RULES.items():
        line = None
        if when in rule.when and rule.about not in lines:
            line = _said(rule, says, runs)
        if line is not None:
            lines[rule.about] = line
    return [*lines.values()]


def _said(rule: Rule, says: str, runs: pd.DataFrame) -> str | None:
    """Judge a table by one rule."""
    needs, figure = FIGURES.get(rule.figure, (rule.figure, lambda _: runs[rule.figure]))
    if not {*needs.split()} <= set(runs):
        return None
    values = figure(runs)
    if not isinstance(values, pd.Series):
        values = pd.Series([values], dtype=float)
    values = values[np.isfinite(values.to_numpy(float))]
    low, high = rule.odd
    if values.empty or not low < (x := float(values.agg(rule.by))) < high:
        return None
    odd = int(((values > low) & (values < high)).sum())
    names = {"row": values.idxmax(), "name": values.name, "count": format_count(x)}
    return says.format(x=x, n=len(runs), odd=odd, **names)


def unjudged_units(runs: pd.DataFrame) -> str:
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


# -- figures ---------------------------------------------------------------------------


def _tokens_per_parameter(runs: pd.DataFrame) -> pd.Series:
    ratio = runs["D"] / runs["N"]
    return ratio[ratio > 0]


def _times_usual(runs: pd.DataFrame) -> float:
    """Compare losses with those of models of Hoffmann 2022 with the same size and
    tokens: the domain that is farthest off, in the median.
    """
    # smaller models may read bytes
    large = runs[(runs["N"] >= 1e7) & (runs["D"] > 0)]
    tokens = large["D"]
    if "ptpp" in large:
        tokens = tokens + large["ptpp"].fillna(0) * large["N"]
    usual = 1.69 + 406.4 / large["N"] ** 0.34 + 410.7 / tokens**0.28
    domain = large["domain"].astype(str) if "domain" in large else large["N"] * 0
    times = (large["loss"] / usual).groupby(domain).median()
    return float(times.iloc[np.abs(np.log(times)).argmax()]) if len(times) else nan


def _coarseness(runs: pd.DataFrame) -> float:
    """The step between losses of one decimal, relative to the loss."""
    tenths = 10 * runs["loss"].to_numpy(float)
    if len(tenths) < 8 or not np.allclose(tenths, np.round(tenths), atol=1e-9):
        return nan
    return 1 / float(np.median(tenths))


def _tokens_of_large(runs: pd.DataFrame) -> float:
    """The most tokens, where all models have over 10,000 parameters."""
    is_large = runs["N"].min(skipna=False) > 1e4
    return float(runs["D"].max(skipna=False)) if is_large else nan


def _runs_without_progress(runs: pd.DataFrame) -> float:
    """Count the runs with several steps, if D is the same at all of them."""
    keys = [name for name in ("run", "domain") if name in runs]
    levels = runs.groupby(keys, dropna=False)[["step", "D"]].nunique()
    along = levels[levels["step"] > 2]
    return nan if (along["D"] > 1).any() else len(along)


def _ratio_if_exchanged(runs: pd.DataFrame) -> float:
    """D / N, if N looks like tokens: it has more levels than D, or grows along a run."""
    ratio = float(_tokens_per_parameter(runs).median())
    if "run" in runs:
        within = runs.groupby(runs["run"].astype(str))[["N", "D"]].nunique()
        if (within["N"] > 1).any() and (within["D"] == 1).all():
            return ratio
    has_fewer = 2 * runs["D"].nunique() < runs["N"].nunique()
    return ratio if ratio < 1 and has_fewer else nan


def _times_compute(runs: pd.DataFrame) -> pd.Series | float:
    """Compare the first column of FLOPs with 6 N D."""
    names = ("cost", "flops", "compute", "budget", "c")  # as people write them
    for name, column in runs.items():
        is_called = str(name).casefold() in names and column.dtype.kind in "iuf"
        if is_called and column.median() > 1e12:
            return (column / (6 * runs["N"] * runs["D"])).rename(str(name))
    return nan


def _divided_again(runs: pd.DataFrame, least: float = 0.01) -> pd.Series | float:
    """The replays that were divided by 100 once more: all, some, or one level that fewer
    rows have than a hundred times it, and no other near it, as in a sweep of small
    shares.
    """
    shares = runs["replay"][runs["replay"] > 0]
    small, large = shares[shares < least], shares[shares >= least]
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


def _is_flag(runs: pd.DataFrame) -> float:
    return float({*runs["replay"].dropna()} == {0.0, 1.0})


# name -> the columns that it needs; the figure, or its value in each row; NaN if it is
# not judged
FIGURES: dict[str, tuple[str, Callable[[pd.DataFrame], pd.Series | float]]] = {
    "largest N": ("N", lambda runs: runs["N"].max(skipna=False)),
    "D of large models": ("N D", _tokens_of_large),
    "times the usual loss": ("N D loss", _times_usual),
    "coarseness": ("loss", _coarseness),
    "D/N": ("N D", _tokens_per_parameter),
    "D/N if exchanged": ("N D", _ratio_if_exchanged),
    "replay/100": ("replay", _divided_again),
    "replay is a flag": ("replay", _is_flag),
    "runs without progress": ("run step D", _runs_without_progress),
    "times 6 N D": ("N D", _times_compute),
}

# -- rules -----------------------------------------------------------------------------

_USUAL = "losses are {x:.2g} times what models of that size lose in nats per token: "
_COMPUTE = (
    "column {name!r} is {x:.2g} times 6 N D (median), which is the compute of a run: N, D "
    "or it in another unit?"
)
_BOTH, _SIZES = "read review", "mapped review"
# what is said, with {x} the figure, {count} the figure in words, {n} the number of rows,
# {odd} that of odd rows, {row} the row of the largest value, {name} the column's name
RULES: dict[Rule, str] = {
    Rule("size read", "largest N", (0, 1000), "read"): (
        "column 'N' is at most {x:g}: model parameters in millions or billions? write "
        "8.1B or 8.1e9"
    ),
    Rule("tokens read", "D of large models", (0, 1e4), "read"): (
        "column 'D' is at most {x:g}: billions, or tokens per parameter? D is tokens: "
        "multiply by 1e9 (--column D=yours*1e9) or by N"
    ),
    # ln of a vocabulary of 440,000: the loss of guessing
    Rule("loss", "loss", (13, inf), _BOTH, by="max"): (
        "{odd} of {n} losses (row {row}: {x:.4g}) lie above 13 nats, the logarithm of any "
        "vocabulary: perplexity, percent, or a sum over tokens? loss is nats per token"
    ),
    # measured tables in nats per token are .5 to 1.5, in bits per byte .2 to .35
    Rule("loss", "times the usual loss", (2.5, inf)): (
        _USUAL + "perplexity, a sum over tokens, or N or D in another unit?"
    ),
    Rule("loss", "times the usual loss", (0, 0.4)): (
        _USUAL + "bits per byte, a logarithm, an accuracy, or N or D in another unit?"
    ),
    Rule("loss", "coarseness", (0, inf)): (
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
    Rule("tokens", "D/N if exchanged", (0, inf), _SIZES): (
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
    Rule("replay", "replay/100", (0, 0.01), "read", by="max"): (
        "column 'replay' is at most {x:.2%} in {odd} of {n} rows (row {row}): shares that "
        "were divided by 100 once more? write replay as a share, .25 or 25%"
    ),
    Rule("replay", "replay is a flag", (0, inf)): (
        "replay is 0 or 1 in all rows: a flag, not the share of source data? write the "
        "share, .25 or 25%"
    ),
    Rule("progress", "runs without progress", (0, inf), "read"): (
        "D is the same at all steps of a run ({x:.0f} runs): tokens of pre-training, or "
        "planned ones? D is the tokens that a run has seen at the row"
    ),
    Rule("compute", "times 6 N D", (30, inf)): _COMPUTE,
    Rule("compute", "times 6 N D", (0, 1 / 30)): _COMPUTE,
}
