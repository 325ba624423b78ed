"""Find columns that seem to be in other units than the schema's.

If all rows share a wrong factor, only the relation to another column shows it: tokens
per parameter, compute, the usual loss of a model of that size. A pass does not prove
that units are right, because bits and nats differ by less than losses on two corpora
do.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bayeslaw._base.numbers import format_count

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def odd_units(runs: pd.DataFrame) -> list[str]:
    """Write a line for each column whose values do not suit its unit."""
    return [
        *_of_losses(runs),
        *_of_sizes(runs),
        *_of_pretraining(runs),
        *_of_replay(runs),
        *_of_compute(runs),
    ]


def clear_units(runs: pd.DataFrame) -> list[str]:
    """Write the lines of `odd_units` that are certain; they are shown whenever a table
    is read.
    """
    lines = _of_pretraining(runs) + _of_hundredths(runs) + _of_steps(runs)
    if "loss" in runs:
        lines += _of_high_losses(runs)
    return lines


def units_of_mapping(runs: pd.DataFrame, mapped: Collection[str]) -> list[str]:
    """Write the lines about N and D, if they were read from columns of other names."""
    return _of_sizes(runs) if {"N", "D"} & {*mapped} else []


def unjudged_units(runs: pd.DataFrame) -> str:
    """Describe which units could not be judged, for a table whose units seem right."""
    parts = ["losses in nats, in bits or another measure of that size"]
    if _tokens_per_parameter(runs) is None:
        parts += [f"the unit of {name}" for name in ("N", "D") if name in runs]
    else:
        parts.append("a factor of N or D, or the two exchanged")
    if "ptpp" in runs:
        parts.append("a factor of ptpp")
    if "replay" in runs:
        parts.append("replay or 1 - replay")
    return "; ".join(parts)


def _tokens_per_parameter(runs: pd.DataFrame) -> Float[np.ndarray, " run"] | None:
    """Compute D / N at each run, shape (run,); None if there are no such numbers."""
    if not {"N", "D"} <= set(runs):
        return None
    ratio = (runs["D"] / runs["N"]).to_numpy(float)
    ratio = ratio[np.isfinite(ratio) & (ratio > 0)]
    return ratio if len(ratio) else None


# -- losses ----------------------------------------------------------------------------


def _of_losses(runs: pd.DataFrame) -> list[str]:
    """Judge losses: too high for nats, unusual for their size, or with too few digits."""
    if "loss" not in runs:
        return []
    high = _of_high_losses(runs)
    if high:
        return high
    parts = [runs]
    if "domain" in runs:
        parts = [part for _, part in runs.groupby(runs["domain"].astype(str))]
    levels = [line for part in parts for line in _of_level(part)]
    return levels[:1] + _of_digits(runs)


def _of_high_losses(runs: pd.DataFrame) -> list[str]:
    """Find losses above the logarithm of any vocabulary."""
    most = 13.0  # ln of a vocabulary of 440,000: the loss of guessing
    high = (runs["loss"] > most).to_numpy()
    if not high.any():
        return []
    first = runs[high].iloc[0]
    return [
        f"{int(high.sum())} of {len(runs)} losses (row {first.name}: "
        f"{first['loss']:.4g}) lie above {most:g} nats, the logarithm of any "
        "vocabulary: perplexity, percent, or a sum over tokens? loss is nats per token"
    ]


def _of_level(runs: pd.DataFrame) -> list[str]:
    """Judge losses by those of models of Hoffmann 2022 with the same size and tokens."""
    if not {"N", "D"} <= set(runs):
        return []
    # smaller models may read bytes
    large = runs[(runs["N"] >= 1e7) & (runs["D"] > 0)]
    if large.empty:
        return []
    N, D = large["N"].to_numpy(float), large["D"].to_numpy(float)
    if "ptpp" in large:
        D = D + np.nan_to_num(large["ptpp"].to_numpy(float)) * N
    usual = 1.69 + 406.4 / N**0.34 + 410.7 / D**0.28
    loss = large["loss"].to_numpy(float)
    times = float(np.median(loss / usual))
    # measured tables in nats per token are .5 to 1.5, in bits per byte .2 to .35
    if 0.4 <= times <= 2.5:
        return []
    what = "bits per byte, a logarithm, an accuracy"
    if times > 1:
        what = "perplexity, a sum over tokens"
    return [
        f"losses (median {np.median(loss):.3g}) are {times:.2g} times what models of "
        f"that size lose in nats per token: {what}, or N or D in another unit?"
    ]


def _of_digits(runs: pd.DataFrame) -> list[str]:
    """Judge the digits of losses: one decimal is coarser than the difference between
    seeds.
    """
    loss = runs["loss"].to_numpy(float)
    tenths = 10 * loss
    if len(loss) < 8 or not np.allclose(tenths, np.round(tenths), atol=1e-9):
        return []
    step = 0.1 / float(np.median(loss))
    return [
        f"losses have one decimal, steps of {step:.1%}, where seeds differ by .05-.6%: "
        "export more digits"
    ]


# -- sizes, tokens, compute ------------------------------------------------------------


def _of_sizes(runs: pd.DataFrame) -> list[str]:
    """Judge N and D: parameters in thousands or millions, tokens in steps or billions."""
    lines = []
    # the smallest language models have some ten thousand parameters
    if "N" in runs and 1000 <= runs["N"].median() < 1e4:
        lines.append(
            f"column 'N' is {format_count(runs['N'].median())} (median): parameters in "
            "thousands, millions or a count of layers? N is parameters"
        )
    ratio = _tokens_per_parameter(runs)
    if ratio is None:
        return lines
    # no measured table has so few or so many tokens per parameter, except fine-tuning
    if ratio.max() < 0.1:
        lines.append(
            f"D is at most {ratio.max():.2g} tokens per parameter: D in steps, examples, "
            "thousands or more, or N and D exchanged? D is tokens"
        )
    elif np.median(ratio) > 3e3:
        lines.append(
            f"D is {np.median(ratio):.2g} tokens per parameter (median): N in thousands "
            "or millions, or D in bytes of all epochs? N is parameters, D tokens"
        )
    elif _are_exchanged(runs, ratio):
        lines.append(
            f"D is {np.median(ratio):.2g} tokens per parameter (median) and has fewer "
            "levels than N: N and D exchanged?"
        )
    return lines


def _of_steps(runs: pd.DataFrame) -> list[str]:
    """Judge D by the steps of each run: it grows with them."""
    if not {"run", "step", "D"} <= set(runs):
        return []
    keys = ["run", *(name for name in ("domain",) if name in runs)]
    levels = runs.groupby(keys, dropna=False)[["step", "D"]].nunique()
    along = levels[levels["step"] > 2]
    if along.empty or (along["D"] > 1).any():
        return []
    return [
        f"D is the same at all steps of a run ({len(along)} runs): tokens of "
        "pre-training, or planned ones? D is the tokens that a run has seen at the row"
    ]


def _are_exchanged(runs: pd.DataFrame, ratio: Float[np.ndarray, " run"]) -> bool:
    """Tell whether N looks like tokens: it has more levels than D, or grows along a
    run.
    """
    if "run" in runs:
        within = runs.groupby(runs["run"].astype(str))[["N", "D"]].nunique()
        if bool((within["N"] > 1).any() and (within["D"] == 1).all()):
            return True
    has_fewer = 2 * runs["D"].nunique() < runs["N"].nunique()
    return bool(np.median(ratio) < 1 and has_fewer)


def _of_pretraining(runs: pd.DataFrame) -> list[str]:
    """Judge ``ptpp``: total pre-training tokens, or a share."""
    if "ptpp" not in runs:
        return []
    middle = float(runs["ptpp"].median())
    if middle > 1e5:  # measured: up to 60,000
        return [
            f"column 'ptpp' is {format_count(middle)} (median): pre-training tokens, not "
            "tokens per parameter? divide by N"
        ]
    if middle < 0.1:
        return [
            f"column 'ptpp' is {middle:.2g} (median): it is pre-training tokens per "
            "parameter"
        ]
    return []


def _of_replay(runs: pd.DataFrame) -> list[str]:
    """Judge ``replay``: a flag of 0 and 1 is not a share."""
    if "replay" not in runs:
        return []
    shares = set(runs["replay"].dropna())
    if shares != {0.0, 1.0}:
        return []
    return [
        "replay is 0 or 1 in all rows: a flag, not the share of source data? write the "
        "share, .25 or 25%"
    ]


def _of_hundredths(runs: pd.DataFrame, least: float = 0.01) -> list[str]:
    """Judge ``replay``: shares that were divided by 100 once more, all, some or one."""
    if "replay" not in runs:
        return []
    shares = runs["replay"].dropna()
    small = shares[(shares > 0) & (shares < least)]
    large = shares[shares >= least]
    again = [_hundredfold(share, large).any() for share in small.unique()]
    if small.nunique() >= 2 and (all(again) or large.empty):
        return [
            f"column 'replay' is at most {small.max():.2%} in {len(small)} rows: shares "
            "that were divided by 100 once more? write replay as a share, .25 or 25%"
        ]
    for share in small.unique():
        if _is_stray_hundredth(share, shares):
            rows = small.index[small == share]
            return [
                f"column 'replay' is {100 * share:.4g}% in {len(rows)} of {len(shares)} "
                f"rows (row {rows[0]}), and {1e4 * share:.4g}% in others: shares that "
                "were divided by 100 once more? write replay as a share, .25 or 25%"
            ]
    return []


def _hundredfold(share: float, shares: pd.Series) -> Bool[np.ndarray, " run"]:
    """Tell which shares are a hundred times this one."""
    return np.isclose(shares.to_numpy(float), 100 * share, rtol=1e-6, atol=0)


def _is_stray_hundredth(share: float, shares: pd.Series, near: float = 10.0) -> bool:
    """Tell whether fewer rows have a share than have a hundred times it, and no other
    share lies within ``near`` times of it, as in a sweep of small shares.
    """
    levels = shares[shares > 0].unique()
    times = np.exp(np.abs(np.log(levels / share)))
    is_near = (times > 1 + 1e-6) & (times < near * (1 + 1e-6))
    count = int((shares == share).sum())
    return bool(not is_near.any() and count < _hundredfold(share, shares).sum())


def _of_compute(runs: pd.DataFrame, far: float = 30.0) -> list[str]:
    """Judge a column of FLOPs by 6 N D; it may differ by up to ``far`` times."""
    names = ("cost", "flops", "compute", "budget", "c")  # as people write them
    if _tokens_per_parameter(runs) is None:
        return []
    expected = 6 * runs["N"] * runs["D"]
    for name, column in runs.items():
        if str(name).casefold() not in names or column.dtype.kind not in "iuf":
            continue
        if not column.median() > 1e12:  # FLOPs
            continue
        times = float((column / expected).median())
        if math.isfinite(times) and not 1 / far < times < far:
            return [
                f"column {str(name)!r} is {times:.2g} times 6 N D (median), which is the "
                "compute of a run: N, D or it in another unit?"
            ]
    return []
