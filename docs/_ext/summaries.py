"""Kept results in a few lines: the tables of ``docs/paper.md``, also shown at the head
of longer ones. Each function takes the rows of a kept file.
"""

from collections.abc import Sequence

import pandas as pd

FORECASTS = {
    "average": "average of the default laws (what `fit` gives)",
    "law with misfit": "one law with its misfit",
    "law alone": "the same law without a misfit",
    "point fit, bootstrap": "the same law, point fit and bootstrap",
}
REAL = ("forecast", "runs inside", "tables under 80%", "width", "error", "score")
GRID = ("grid", "domain", "runs inside", "width", "error", "score")
LANGUAGES = {"microcpt": "French", "microcpt-de": "German"}
ALL_STAGES = "15, 31, 93 -> 279"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def real_tables(rows: pd.DataFrame) -> str:
    """Forecasts of published tables: each way to forecast over all of them.

    ``runs inside``: of all forecast runs, those in their 90% interval; then the share of
    tables with under 80%, and medians over tables.
    """
    cells = []
    for name, shown in FORECASTS.items():
        part = rows[rows["forecast"] == name]
        runs = part["forecast_runs"]
        inside = (part["coverage"] * runs).sum() / runs.sum()
        cells.append(
            (
                shown,
                f"{inside:.0%}",
                f"{(part['coverage'] < 0.8).sum()} of {len(part)}",
                f"{part['width'].median():.1%}",
                f"{part['mae'].median():.2%}",
                f"{100 * part['interval_score'].median():.1f}",
            )
        )
    return markdown(REAL, cells)


def measured_grids(rows: pd.DataFrame) -> str:
    """Forecasts by the default average of a stage that no fit has seen."""
    cells = []
    for case, row in rows[rows["forecast"] == "average"].set_index("case").iterrows():
        grid, _, rest = str(case).partition(" ")
        domain, _, stages = rest.partition(", ")
        if grid in LANGUAGES and stages == ALL_STAGES:
            cells.append(
                (
                    LANGUAGES[grid],
                    domain,
                    f"{row['coverage']:.0%} of {row['forecast_runs']:.0f}",
                    f"{row['width']:.1%}",
                    f"{row['mae']:.2%}",
                    f"{100 * row['interval_score']:.1f}",
                )
            )
    return markdown(GRID, cells)


def trained_plans(rows: pd.DataFrame) -> str:
    """What became of plans that were trained, by what no fit had seen of them."""
    cells = []
    for unseen, part in rows.groupby("unseen", sort=False):
        kept = part["kept_target"] & part["kept_forgetting"]
        checkpoints = part.groupby(["language", "size", "seed", "ptpp"]).ngroups
        promised, found = part["probability"].mean(), kept.mean()
        cells.append(
            (
                f"a {unseen}",
                f"{len(part)}",
                f"{checkpoints}",
                f"{promised:.0%}",
                f"{found:.0%}",
            )
        )
    header = ("no fit had seen", "plans", "checkpoints", "promised (mean)", "kept")
    return markdown(header, cells)


def pools(rows: pd.DataFrame) -> str:
    """Runs bought from pools that others measured: chosen ones against random ones."""
    cells = []
    for (pool, budget), part in rows.groupby(["pool", "budget"], sort=False):
        score = part.groupby("rule")["interval_score90"].median()
        if {"chosen", "random"} <= set(score.index):
            chosen, random = 100 * score["chosen"], 100 * score["random"]
            cells.append((pool, f"{budget:.0%}", f"{chosen:.1f}", f"{random:.1f}"))
    header = ("pool", "budget", "score, chosen", "score, random")
    return markdown(header, cells)


def abstract(
    real: pd.DataFrame, plans: pd.DataFrame, pools_bought: pd.DataFrame, worlds: str
) -> str:
    """What was found, in one paragraph, each figure from kept rows.

    ``worlds``: the table that `plan_worlds` printed.
    """
    held = {
        name: (part["coverage"] * part["forecast_runs"]).sum()
        / part["forecast_runs"].sum()
        for name, part in real.groupby("forecast")
    }
    cells = [line.split("|")[3].strip() for line in worlds.splitlines()[2:4]]
    score = pools_bought.groupby(["pool", "budget", "rule"])["interval_score90"]
    by_rule = score.median().unstack()
    ratio = (by_rule["chosen"] / by_rule["random"]).median()
    stage = plans[plans["unseen"] == "stage"]
    kept = (stage["kept_target"] & stage["kept_forgetting"]).mean()
    return (
        "We fit scaling laws of continual pre-training with intervals that hold beyond "
        "the data, and plan with them. Laws start from the checkpoint's own losses; what "
        "a law misses, and how it drifts beyond the runs, is learned from stages of the "
        "user's table that are left out; plans solve the chance-constrained problem "
        "exactly; runs to make are chosen by what they teach of the decision. On "
        f"{real['case'].nunique()} published tables 90% intervals of larger runs hold "
        f"{held['average']:.0%} of them, where a point fit with a bootstrap holds "
        f"{held['point fit, bootstrap']:.0%}. In a hundred simulated worlds in which every "
        f"law is wrong, plans at 90% keep both limits in {cells[0]}, plans from best "
        f"estimates in {cells[1]}. Chosen runs give {ratio:.0%} of the interval score of "
        "random runs of the same cost (median over two pools and three budgets). Not "
        "everything holds: of tiny models at a stage that no fit had seen, "
        f"{kept:.0%} of plans were kept where {stage['probability'].mean():.0%} were "
        "promised."
    )
