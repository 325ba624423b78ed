"""Compare forecasts of the best size for a budget with measured sweeps.

    python tests/studies/best_sizes.py FOLDER

FOLDER has published tables (isoflop_marin.csv, isoflop_more.csv, chinchilla.csv). Each
table's most expensive budgets are left out (those that it calls ``test``, else three).
Laws are averaged on the other rows, and on all rows. Prints how often intervals hold the
position and the loss of the measured minimum, which is the vertex of a parabola through
the sweep, and how often the optimum of all rows agrees with the parabolas.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._forecasts.optimum import parabola, sweeps_of


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    both = [pd.read_csv(folder / f"isoflop_{n}.csv") for n in ("marin", "more")]
    return {name: rows for t in both for name, rows in t.groupby("dataset")}


def held_budgets(rows: pd.DataFrame) -> list[float]:
    is_split = "split" in rows and rows["split"].notna().any()
    if is_split:
        return sorted(rows.loc[rows["split"] == "test", "budget"].unique())
    return sorted(rows["budget"].unique())[-3:]


def judged(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Build a line for each budget: whether it was held out, and what was found."""
    held = held_budgets(rows)
    fitted = rows[~rows["budget"].isin(held)]
    read = ["N", "D", "loss", "budget"]
    below, whole = (bayeslaw.average(t[read], seed=0) for t in (fitted, rows))
    sweeps = sweeps_of(rows)
    budgets = [s.attrs["flops"] for s in sweeps]
    forecast, fit = (bayeslaw.optimum(p, budgets) for p in (below, whole))
    print(name, "exponent", forecast.exponent, "of all rows", fit.exponent)
    lines = []
    for sweep, row, own in zip(sweeps, forecast.rows, fit.rows, strict=True):
        vertex = parabola(sweep)
        if vertex["refused"] or row["refused"] or own["refused"]:
            continue
        agrees = own["N_low"] <= vertex["N_high"] and vertex["N_low"] <= own["N_high"]
        lines.append(
            {
                "table": name,
                "held": sweep["budget"].iloc[0] in held,
                "place": row["N_low"] <= vertex["N"] <= row["N_high"],
                "loss": row["new_run_low"]
                <= sweep["loss"].min()
                <= row["new_run_high"],
                "agrees": agrees,
                "off": abs(np.log(own["N"] / vertex["N"])),
            }
        )
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    rows = pd.concat([judged(name, rows) for name, rows in tables(folder).items()])
    held = rows[rows["held"]]
    for what in ("place", "loss"):
        print(
            f"{what} held: {held[what].sum()} of {len(held)} ({held[what].mean():.0%})"
        )
    print(f"agrees with the parabola: {rows['agrees'].sum()} of {len(rows)}")
    print(f"median distance from its vertex: {rows['off'].median():.1%}")
    runs = pd.read_csv(folder / "chinchilla.csv")
    best = bayeslaw.optimum(
        bayeslaw.fit(runs, "chinchilla", seed=0), [1e20, 1e22, 1e24]
    )
    print("chinchilla", best.exponent)


if __name__ == "__main__":
    main()
