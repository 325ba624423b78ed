"""Summarise a study of anchors: means of each list, worlds in which it beats the
paper's grid, and the calibration of expected gains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd


def wins(rows: pd.DataFrame, name: str = "chosen", share: float = 1.0) -> pd.DataFrame:
    """Tell for each world whether a list's ``rmse``, ``width``, ... are below those of
    the paper's grid; ``both``: RMSE and width.
    """
    columns = ["rmse", "width", "rmse_new", "width_new"]
    by_world = rows.set_index(["law", "seed"])
    is_ours = (by_world["list"] == name) & (by_world["share"] == share)
    ours = by_world.loc[is_ours, columns]
    paper = by_world.loc[by_world["list"] == "paper", columns]
    below = ours < paper.loc[ours.index]
    return below.assign(both=below["rmse"] & below["width"])


def calibration(rows: pd.DataFrame) -> dict[str, float]:
    """Regress the realised on the expected reduction of the goal's sd, over all lists
    and worlds.
    """
    bought = rows.dropna(subset=["sd_expected"])
    before = bought["sd_before"]
    reduction = before - bought["sd_expected"], before - bought["sd"]
    share = 1 - bought["sd_expected"] / before, 1 - bought["sd"] / before
    return {
        "correlation": _correlation(*reduction),
        "slope": _slope(*reduction),
        "share_correlation": _correlation(*share),
        "share_slope": _slope(*share),
    }


def _correlation(expected: pd.Series, realised: pd.Series) -> float:
    return float(np.corrcoef(expected, realised)[0, 1])


def _slope(expected: pd.Series, realised: pd.Series) -> float:
    slope, _ = np.polyfit(expected, realised, 1)
    return float(slope)


def averages(rows: pd.DataFrame, by: Sequence[str] = ("list", "share")) -> pd.DataFrame:
    """Compute means over worlds for each list, and the number of ``worlds``. For
    ``plan_cost`` it is the mean distance of its logarithm from 0.
    """
    if "plan_cost" in rows:
        rows = rows.assign(plan_cost=np.abs(np.log(rows["plan_cost"])))
    # without columns that name the world and the study
    settings = ("law", "seed", "measured", "menu", "spread", "tau", "plan")
    measures = [c for c in rows if c not in (*settings, *by)]
    groups = rows.groupby(list(by), sort=False)
    return groups[measures].mean().assign(worlds=groups.size())


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Summarise the study for JSON: means of each list, shares of worlds won, and the
    calibration of expected gains.
    """
    worlds = rows.groupby(["law", "seed"]).ngroups
    table = averages(rows).reset_index().to_dict(orient="records")
    figures = {"worlds": worlds, "lists": table}
    if "paper" in set(rows["list"]):
        figures["below_paper"] = _shares_won(rows)
    return figures | (calibration(rows) if "sd_expected" in rows else {})


def _shares_won(rows: pd.DataFrame) -> dict[str, dict]:
    """Compute the shares of worlds in which each list beats the paper's grid, by list.
    For chosen runs at the grid's cost, also compute them by law.
    """
    pairs = rows[["list", "share"]].drop_duplicates()
    lists = list(pairs.itertuples(index=False, name=None))
    won = {
        f"{name} {share:g}": wins(rows, name, share).mean().to_dict()
        for name, share in lists
        if name not in ("none", "paper")
    }
    if ("chosen", 1.0) in lists:
        for law, of_law in rows.groupby("law"):
            won[f"chosen 1, {law}"] = wins(of_law).mean().to_dict()
    return won


def markdown(rows: pd.DataFrame) -> str:
    """Write the summary as tables, and the calibration of expected gains."""
    figures, table = summary(rows), averages(rows).reset_index()
    # heading of each column, what it shows, and how
    columns = [
        ("cost", "cost", ".2f"),
        ("runs", "runs", ".0f"),
        ("points", "points", ".0f"),
        ("RMSE_log", "rmse", ".2%"),
        ("width", "width", ".2%"),
        ("width, new run", "width_new", ".2%"),
        ("coverage", "coverage", ".0%"),
        ("coverage, new run", "coverage_new", ".0%"),
        ("sd expected", "sd_expected", ".3%"),
        ("sd", "sd", ".3%"),
    ]
    if "plan_cost" in table:
        columns += [
            ("plan off by", "plan_cost", ".1%"),
            ("promises kept", "plan_kept", ".0%"),
        ]
    head = ["list", "worlds", *(heading for heading, _, _ in columns)]
    lines = [f"{figures['worlds']} worlds", "", _line(head), "|" + "---|" * len(head)]
    for row in table.to_dict("records"):
        lines.append(_line(_cells(row, columns)))
    if "below_paper" in figures:
        lines += ["", *_wins_lines(figures["below_paper"])]
    if "slope" in figures:
        lines += ["", _calibration_line(figures)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(
    row: Mapping[Any, Any], columns: Sequence[tuple[str, str, str]]
) -> list[str]:
    """Write a list's figures; empty if it has none."""
    cells = [f"{row['list']} {row['share']:g}", f"{row['worlds']}"]
    for _, name, form in columns:
        is_number = np.isfinite(row.get(name, np.nan))
        cells.append(format(row[name], form) if is_number else "")
    return cells


def _wins_lines(shares: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Write the table of shares of worlds in which each list is below the paper's grid."""
    lines = ["| below the paper's in | RMSE_log | width | both |", "|---|---|---|---|"]
    for name, share in shares.items():
        cells = [f"{share[measure]:.0%}" for measure in ("rmse", "width", "both")]
        lines.append(_line([name, *cells]))
    return lines


def _calibration_line(figures: Mapping[str, float]) -> str:
    """Write a line that compares the realised reduction of the sd with the expected
    one.
    """
    return (
        "Reduction of the goal's sd, realised on expected: correlation "
        f"{figures['correlation']:.3f}, slope {figures['slope']:.2f}; as shares of the sd: "
        f"{figures['share_correlation']:.3f}, {figures['share_slope']:.2f}."
    )
