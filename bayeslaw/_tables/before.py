"""Complete a checkpoint's columns from other columns and rows of the table (pre-training
tokens per parameter, losses before adaptation), and find unfinished runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayeslaw._base.errors import warn
from bayeslaw._law.columns import LOSS_BEFORE, LOSSES_BEFORE, SOURCE_LOSS_BEFORE
from bayeslaw._tables.words import name_words, quoted

# states by which trackers and schedulers mark unfinished or failed runs
UNFINISHED = re.compile(
    r"crash\w*|fail\w*|running|killed|preempt\w*|cancell?ed|pending|queued|aborted|"
    r"timeout|error|oom|out_of_memory|stopped|diverged|scheduled",
    re.IGNORECASE,
)


def of_source(table: pd.DataFrame) -> pd.DataFrame:
    """Replace ``loss_before`` by the source's loss, for laws of the source domain."""
    if SOURCE_LOSS_BEFORE not in table:
        return table.drop(columns=LOSS_BEFORE, errors="ignore")
    return table.assign(loss_before=table[SOURCE_LOSS_BEFORE])


def with_stages(runs: pd.DataFrame) -> pd.DataFrame:
    """Add ``ptpp`` = ``pretrain_tokens`` / ``N`` if the table has these instead."""
    if "ptpp" in runs or not {"pretrain_tokens", "N"} <= set(runs):
        return runs
    warn("ptpp is pretrain_tokens / N")
    return runs.assign(ptpp=runs["pretrain_tokens"] / runs["N"])


def complete_losses(runs: pd.DataFrame, tolerance: float = 0.01) -> pd.DataFrame:
    """Complete the losses of checkpoints before adaptation. Rows with D = 0 are no runs:
    their losses are ``loss_before`` of the other rows of the same checkpoint (those of
    the source domain ``source_loss_before``, too). Other empty cells are filled from
    rows of the same checkpoint, if those agree within the relative ``tolerance``.

    A table without replay, stages or a column ``model`` has no adaptation and is
    unchanged. Learning curves are unchanged, too, because step 0 is not a checkpoint.
    """
    runs = _take_starts(runs, tolerance)
    keys = _list_keys(runs)
    columns = (*LOSSES_BEFORE, "target_loss_before") if keys else ()
    for column in (c for c in columns if c in runs):
        of_domain = ["domain"] if column == LOSS_BEFORE and "domain" in runs else []
        losses = runs.groupby(keys + of_domain)[column]
        # the first value and not the mean, which can differ in the last digit
        agree = losses.transform("max") <= (1 + tolerance) * losses.transform("min")
        filled = runs[column].fillna(losses.transform("first").where(agree))
        count = int((runs[column].isna() & filled.notna()).sum())
        if count:
            warn(
                f"column {column!r}: {count} empty cells are filled from other rows of "
                f"the same checkpoint ({' and '.join(keys)})"
            )
            runs = runs.assign(**{column: filled})
    return runs


def _take_starts(runs: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """Take rows of no tokens as the losses before adaptation of their checkpoints."""
    keys = _list_keys(runs)
    if not keys and "model" in runs and not {"run", "step"} <= set(runs):
        keys = ["model"]  # a fine-tuned model, not a learning curve
    if not keys or not {"D", "loss"} <= set(runs):
        return runs
    is_start = ((runs["D"] == 0) & runs["loss"].notna()).to_numpy()
    if not is_start.any() or is_start.all():
        return runs
    losses = runs["loss"].where(is_start)
    keys += ["domain"] if "domain" in runs else []

    def group(names: list[str]) -> Any:
        return losses.groupby([runs[name] for name in names])

    # names, as of data sets, tell apart checkpoints whose losses differ, if by them every
    # row has such a loss
    for name in runs.select_dtypes(exclude="number").columns.difference(keys):
        least, most = (group(keys).transform(end) for end in ("min", "max"))
        is_known = group([*keys, name]).transform("count").all()
        if (most > (1 + tolerance) * least).any() and is_known:
            keys = [*keys, name]
    own = group(keys)
    apart = (own.transform("max") / own.transform("min") - 1).max()
    if apart > tolerance:
        warn(
            f"rows of no tokens (D = 0) with one {' and '.join(keys)} "
            f"differ in loss by up to {apart:.0%}: are they of several checkpoints? "
            "then say what tells them apart (ptpp, or pretrain_tokens, or a column "
            "checkpoint); their mean is taken"
        )
    before = {LOSS_BEFORE: own.transform("mean")}
    if "domain" in runs and (runs["domain"][is_start] == "source").any():
        losses = losses.where(runs["domain"] == "source")
        of_source = group([key for key in keys if key != "domain"])
        before[SOURCE_LOSS_BEFORE] = of_source.transform("mean")
    for column, values in before.items():
        known = runs[column].fillna(values) if column in runs else values
        runs = runs.assign(**{column: known})
    warn(
        f"{is_start.sum()} rows of no tokens (D = 0) are taken as the loss before "
        f"adaptation of their checkpoints ({LOSS_BEFORE}), and are no runs"
    )
    return runs[~is_start]


def _list_keys(runs: pd.DataFrame) -> list[str]:
    """List the columns that identify a checkpoint; empty if the table has none."""
    if "checkpoint" in runs and runs["checkpoint"].notna().all():
        return ["checkpoint"]
    if "ptpp" in runs:
        return [c for c in ("N", "ptpp") if c in runs]
    # without ptpp all checkpoints belong to one stage
    return ["N"] if {"N", "replay"} <= set(runs) else []


def doubt_baseline(table: pd.DataFrame, run: Mapping[str, float]) -> list[str]:
    """Write a line if a run's source loss before adaptation lies below what the table's
    checkpoints say of its size and stage, by over 3% and three residual sds.

    Losses level off as models grow, so that a plane through their logs, over those of
    size and stage, is as low as a checkpoint comes. Unlike it are losses of other data,
    or in another unit.
    """
    columns = [c for c in ("N", "ptpp") if c in run and c in table]
    if not columns or SOURCE_LOSS_BEFORE not in run.keys() & {*table}:
        return []
    checkpoints = table.groupby(columns, as_index=False)[SOURCE_LOSS_BEFORE].mean()
    numbers = checkpoints[[*columns, SOURCE_LOSS_BEFORE]].to_numpy(float)
    logs = np.log(numbers[(numbers > 0).all(axis=1)])
    freedom = len(logs) - 1 - len(columns)
    if freedom < 1:
        return []
    basis, y = np.column_stack([np.ones(len(logs)), logs[:, :-1]]), logs[:, -1]
    plane, *_ = np.linalg.lstsq(basis, y, rcond=None)
    sd = np.sqrt(((y - basis @ plane) ** 2).sum() / freedom)
    level = plane @ [1.0, *(np.log(run[c]) for c in columns)]
    below = level - np.log(run[SOURCE_LOSS_BEFORE])
    if not below > max(0.03, 3 * sd):
        return []
    return [
        f"the source's loss before adaptation, {run[SOURCE_LOSS_BEFORE]:.4g}, lies "
        f"{-np.expm1(-below):.0%} below what the table's checkpoints say of this size and "
        f"stage ({np.exp(level):.3g}): was it measured on the same data, in the same unit?"
    ]


def unfinished(runs: pd.DataFrame) -> Iterator[tuple[str, list[str], int]]:
    """Find columns of states, their unfinished states, and the number of such rows."""
    for name in map(str, runs.columns):
        if set(name_words(name)[-1:]) & {"state", "status"}:
            cells = runs[name].dropna().astype(str)
            states = [c for c in cells if UNFINISHED.fullmatch(c.strip())]
            if states:
                yield name, sorted({*states}), len(states)


def finished_query(runs: pd.DataFrame) -> str:
    """Write the query that leaves out unfinished runs; empty if there are none."""
    return " and ".join(
        f"{quoted(name)} != '{state}'"
        for name, states, _ in unfinished(runs)
        for state in states
    )
