"""What a study of anchors says: means of each list, worlds won from the paper's grid, and how well gains were foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def wins(rows: pd.DataFrame, name: str = "chosen", share: float = 1.0) -> pd.DataFrame:
    """For each world, whether a list's ``rmse``, ``width``, ... are below the paper's; ``both``: RMSE and width."""
    key = ["law", "seed"]
    ours = rows[(rows["list"] == name) & (rows["share"] == share)].set_index(key)
    paper = rows[rows["list"] == "paper"].set_index(key)
    columns = ["rmse", "width", "rmse_new", "width_new"]
    below = ours[columns] < paper.loc[ours.index, columns]
    return below.assign(both=below["rmse"] & below["width"])


def calibration(rows: pd.DataFrame) -> dict[str, float]:
    """Realised on expected reduction of the goal's sd, over all lists and worlds."""
    told = rows.dropna(subset=["sd_expected"])
    before = told["sd_before"]
    expected, realised = before - told["sd_expected"], before - told["sd"]
    share = (1 - told["sd_expected"] / before), (1 - told["sd"] / before)
    return {
        "correlation": float(np.corrcoef(expected, realised)[0, 1]),
        "slope": float(np.polyfit(expected, realised, 1)[0]),
        "share_correlation": float(np.corrcoef(*share)[0, 1]), "share_slope": float(np.polyfit(*share, 1)[0]),
    }  # fmt: skip


def averages(rows: pd.DataFrame, by: Sequence[str] = ("list", "share")) -> pd.DataFrame:
    """Means over worlds of each list, and how many ``worlds``; of ``plan_cost`` the mean distance of its logarithm from 0."""
    if "plan_cost" in rows:
        rows = rows.assign(plan_cost=np.abs(np.log(rows["plan_cost"])))
    left = [c for c in rows if c not in ("law", "seed", "measured", "menu", "spread", "tau", "plan", *by)]
    groups = rows.groupby(list(by), sort=False)
    return groups[left].mean().assign(worlds=groups.size())


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """What the study says, as JSON holds it: means of each list, shares of worlds won, and how well gains were foretold."""
    worlds = rows.groupby(["law", "seed"]).ngroups
    table = averages(rows).reset_index().to_dict(orient="records")
    told = calibration(rows) if "sd_expected" in rows else {}
    if "paper" not in set(rows["list"]):
        return {"worlds": worlds, "lists": table, **told}
    made = list(rows[["list", "share"]].drop_duplicates().itertuples(index=False, name=None))
    won = {f"{n} {s:g}": wins(rows, n, s).mean().to_dict() for n, s in made if n not in ("none", "paper")}
    if ("chosen", 1.0) in made:
        won |= {f"chosen 1, {law}": wins(own).mean().to_dict() for law, own in rows.groupby("law")}
    return {"worlds": worlds, "lists": table, "below_paper": won, **told}


HEAD = (
    "list", "worlds", "cost", "runs", "points", "RMSE_log", "width", "width, new run", "coverage", "coverage, new run", "sd expected",
    "sd",
)  # fmt: skip
PLANNED = ("plan off by", "promises kept")


def markdown(rows: pd.DataFrame) -> str:
    """The summary as tables, and how well gains were foretold."""
    told, table = summary(rows), averages(rows).reset_index()
    head = HEAD + PLANNED * ("plan_cost" in table)
    lines = [f"{told['worlds']} worlds", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in table.to_dict("records")]
    if "below_paper" in told:
        lines += ["", "| below the paper's in | RMSE_log | width | both |", "|---|---|---|---|"]
        shares = ((name, v["rmse"], v["width"], v["both"]) for name, v in told["below_paper"].items())
        lines += [f"| {name} | {rmse:.0%} | {width:.0%} | {both:.0%} |" for name, rmse, width, both in shares]
    if "slope" in told:
        form = "Reduction of the goal's sd, realised on expected: correlation {correlation:.3f}, slope {slope:.2f}; as shares of the sd: "
        lines += ["", (form + "{share_correlation:.3f}, {share_slope:.2f}.").format(**told)]
    return "\n".join(lines)


def _cells(row: Mapping[Any, Any]) -> list[str]:
    def shown(name: str, form: str) -> str:
        return format(row[name], form) if np.isfinite(row.get(name, np.nan)) else ""

    cells = [
        f"{row['list']} {row['share']:g}",
        f"{row['worlds']}",
        shown("cost", ".2f"),
        shown("runs", ".0f"),
        shown("points", ".0f"),
    ]
    cells += [shown(n, ".2%") for n in ("rmse", "width", "width_new")]
    cells += [shown(n, ".0%") for n in ("coverage", "coverage_new")] + [shown(n, ".3%") for n in ("sd_expected", "sd")]
    return cells + ([shown("plan_cost", ".1%"), shown("plan_kept", ".0%")] if "plan_cost" in row else [])
