"""Melt tables whose headers hold settings: one column for each run, or for each size."""

from __future__ import annotations

import re

import pandas as pd


def long(table: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """Melt a table to a row for each loss, and describe what was done. A table with
    ordinary column names is unchanged.
    """
    return _panel(table) or _sizes(table) or (table, None)


def _panel(table: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """Melt a panel with a column for each run to columns ``run``, ``step`` (or the
    panel's other x axis) and a metric.
    """
    names = list(map(str, table.columns))
    # as W&B exports it: NAME - METRIC, with its minimum and maximum
    cells = {n: re.fullmatch(r"(.+) - (.+?)(__MIN|__MAX)?", n) for n in names}
    plain = [name for name, cell in cells.items() if cell is None]
    if len(plain) != 1 or len(names) < 2:
        return None
    (along,) = plain
    steps = table[along]
    counters = ("step", "_step", "global_step")
    counters += ("train/global_step", "trainer/global_step")
    if along.lower() in counters:
        along = "step"
    metrics: dict[str, list[pd.DataFrame]] = {}
    for name, cell in cells.items():
        if cell is None or cell[3]:
            continue
        run, metric, _ = cell.groups()
        rows = pd.DataFrame({"run": run, along: steps, metric: table[name]})
        metrics.setdefault(metric, []).append(rows.dropna(subset=[metric]))
    if not metrics:
        return None
    runs = max(map(len, metrics.values()))
    rows, *curves = (pd.concat(parts, ignore_index=True) for parts in metrics.values())
    for curve in curves:
        # an outer join, because one metric of a run may have more steps than another
        rows = rows.merge(curve, on=["run", along], how="outer")
    note = f"a panel of {runs} runs, a column each, became rows of run and {along}"
    if any(cell is not None and cell[3] for cell in cells.values()):
        note += " (columns __MIN and __MAX are left out)"
    return rows, note


def _sizes(table: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """Melt a table without N that has a column of losses for each size, to a row for
    each loss.
    """
    names = list(map(str, table.columns))
    # 70M, loss_160M, loss 1.4B, N=410M
    pattern = re.compile(r"(?:loss|N)?[\s_=/-]*(\d+(?:\.\d+)?[kmb])", re.IGNORECASE)
    sizes = {name: match[1] for name in names if (match := pattern.fullmatch(name))}
    if len(sizes) < 2 or {"N", "loss"} & set(names):
        return None
    labels = [name for name in names if name not in sizes]
    rows = table.melt(labels, list(sizes), var_name="N", value_name="loss")
    rows["N"] = rows["N"].map(sizes)
    rows = rows.dropna(subset=["loss"]).reset_index(drop=True)
    note = (
        f"columns {', '.join(sizes)} became a row each, by N, with their cells as loss"
    )
    return rows, note
