"""Tables whose headers hold settings: one column a run, or one a size."""

from __future__ import annotations

import re

import pandas as pd

# a panel of W&B as it is downloaded: NAME - METRIC, with what was least and most there
PANEL = re.compile(r"(.+) - (.+?)(__MIN|__MAX)?")
ALONG = {"step", "_step", "global_step", "train/global_step", "trainer/global_step"}
# 70M, loss_160M, loss 1.4B, N=410M
SIZE = re.compile(r"(?:loss|N)?[\s_=/-]*(\d+(?:\.\d+)?[kmb])", re.IGNORECASE)
FEWEST_SIZES = 2


def long(table: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """The table with a row for each loss, and what was done; as it is where its headers
    are names of columns.
    """
    for make in (_panel, _sizes):
        made = make(table)
        if made is not None:
            return made
    return table, None


def _panel(table: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """Columns ``run``, ``step`` (or what the panel is drawn along) and a metric, of a
    panel with a column for each run.
    """
    names = list(map(str, table.columns))
    cells = {name: PANEL.fullmatch(name) for name in names}
    others = [name for name, cell in cells.items() if cell is None]
    if len(others) != 1 or len(names) < 2:
        return None
    metrics: dict[str, list[pd.DataFrame]] = {}
    along = "step" if others[0].lower() in ALONG else others[0]
    for name, cell in cells.items():
        if cell is None or cell[3]:
            continue
        rows = pd.DataFrame(
            {"run": cell[1], along: table[others[0]], cell[2]: table[name]}
        )
        metrics.setdefault(cell[2], []).append(rows.dropna(subset=[cell[2]]))
    if not metrics:
        return None
    runs = {len(parts) for parts in metrics.values()}
    curves = [pd.concat(parts, ignore_index=True) for parts in metrics.values()]
    made = curves[0]
    for curve in curves[1:]:
        # a run may be a step ahead in one of them
        made = made.merge(curve, on=["run", along], how="outer")
    told = f"a panel of {max(runs)} runs, a column each, became rows of run and {along}"
    if any(cell is not None and cell[3] for cell in cells.values()):
        told += " (columns __MIN and __MAX are left out)"
    return made, told


def _sizes(table: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """A row for each size, of a table without N that has a column of losses for each."""
    names = list(map(str, table.columns))
    sizes = {name: match[1] for name in names if (match := SIZE.fullmatch(name))}
    if len(sizes) < FEWEST_SIZES or {"N", "loss"} & set(names):
        return None
    kept = [name for name in names if name not in sizes]
    made = table.melt(kept, list(sizes), var_name="N", value_name="loss")
    made["N"] = made["N"].map(sizes)
    made = made.dropna(subset=["loss"]).reset_index(drop=True)
    shown = ", ".join(sizes)
    return made, f"columns {shown} became a row each, by N, with their cells as loss"
