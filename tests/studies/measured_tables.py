"""Tabulate what the bundled measured tables show without any law.

    python tests/studies/measured_tables.py [NAME]

The tables are about the spread of two seeds, two languages from the same checkpoints,
repeated text, learning rates, the shape of a curve, and mixtures of languages. The pages
show them; they are computed when the site is built. Differences of log losses are given
in percent.
"""

import argparse
from collections.abc import Callable

import numpy as np
import pandas as pd

from bayeslaw import datasets

END = 20.0  # tokens per parameter, where runs end
WARM = 20  # steps, from which rows count
SIZES = {12368: "12k", 23160: "23k", 53960: "54k", 123200: "123k", 258528: "259k"}
RUN = ["N", "ptpp", "replay", "D"]


def table(name: str) -> pd.DataFrame:
    """A bundled table after the warm-up, with log losses and names of sizes."""
    runs = datasets.load(name)
    runs = runs[runs["step"] >= WARM]
    sizes = runs["N"].astype(int).map(SIZES)
    return runs.assign(log_loss=np.log(runs["loss"]), size=sizes)


def ends(runs: pd.DataFrame) -> pd.DataFrame:
    """The last point of each run, in each domain."""
    return runs[runs["D"] == runs.groupby("run")["D"].transform("max")]


def markdown(rows: list[list[str]], heads: list[str]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(values: pd.Series) -> str:
    """Mean, and the lowest and highest, of differences of log losses."""
    risen = 100 * np.expm1(values)
    return f"{risen.mean():+.1f} ({risen.min():+.1f} to {risen.max():+.1f})"


def sd_of_one(differences: pd.Series) -> float:
    """Standard deviation of one run, from differences of two."""
    return float(np.sqrt((differences**2).mean() / 2))


# -- seeds and languages ---------------------------------------------------------------


def seeds(name: str) -> str:
    """Spread of one run's loss by size, domain and stage, from its two seeds; and how
    much of it is common to all runs of a checkpoint.
    """
    runs = table(name)
    two = runs.pivot_table(
        index=["size", "domain", *RUN], columns="seed", values="log_loss"
    )
    difference = (two[1] - two[0]).dropna()
    rows = []
    for (size, domain), part in difference.groupby(["size", "domain"]):
        by_stage = [sd_of_one(one) for _, one in part.groupby("ptpp")]
        common = part.groupby("ptpp").transform("mean")
        share = (common**2).mean() / (part**2).mean()
        spreads = [f"{sd:.2%}" for sd in (*by_stage, sd_of_one(part))]
        rows.append([size, domain, *spreads, f"{share:.0%}"])
    stages = [f"ptpp {stage:g}" for stage in sorted(runs["ptpp"].unique())]
    heads = ["size", "domain", *stages, "all", "common to a checkpoint"]
    return markdown(rows, heads)


def languages() -> str:
    """The same checkpoints adapted to French and to German."""
    both = {name: table(name) for name in ("microcpt", "microcpt-de")}
    keys = ["domain", "size", "seed", *RUN]
    french, german = (runs.set_index(keys)["log_loss"] for runs in both.values())
    losses = pd.DataFrame({"fr": french, "de": german}).dropna().reset_index()
    rows = []
    for (domain, size), part in losses.groupby(["domain", "size"]):
        last = part[part["D"] == part["D"].max()]
        gap = last["de"] - last["fr"]
        cell = part.groupby(RUN)[["fr", "de"]]
        seeded = (cell.last() - cell.first())[cell.size() == 2]
        told = f"{seeded['fr'].corr(seeded['de']):.2f}" if len(seeded) else ""
        spread = f"{np.exp(last['fr'].mean()):.3f}, {np.exp(last['de'].mean()):.3f}"
        rows.append([domain, size, str(len(part)), spread, percent(gap), told])
    heads = [
        "domain",
        "size",
        "pairs of losses",
        "loss at the end: French, German",
        "German over French, %",
        "correlation of the seeds' differences",
    ]
    return markdown(rows, heads)


# -- repeated text, rates --------------------------------------------------------------


def beside(name: str, variant: str, usual: str) -> pd.DataFrame:
    """Log losses at the end over the usual run's of the same checkpoint and replay.

    ``variant``: pattern of the part of the run's name that tells what differs;
    ``usual``: what is told of a run without.
    """
    last = ends(table(name))
    told = last["run"].str.extract(variant)[0].fillna(usual)
    index = ["domain", "size", "ptpp", "replay"]
    losses = last.assign(told=told).pivot_table(
        index=index, columns="told", values="log_loss"
    )
    return losses.drop(columns=usual).sub(losses[usual], axis=0)


def by_cells(
    differences: pd.DataFrame,
    index: list[str],
    columns: Callable[[str], float],
    unit: str,
) -> str:
    """Mean (lowest to highest) difference of each group, in percent of the loss."""
    order = sorted(differences.columns, key=columns)
    rows = [
        [*map(str, group if isinstance(group, tuple) else (group,))]
        + [percent(part[column]) for column in order]
        for group, part in differences.groupby(index)
    ]
    return markdown(rows, [*index, *(f"{column} {unit}" for column in order)])


def repeats() -> str:
    """What reading a small text again costs at the end."""
    differences = beside("microcpt-repeats", r"-e([\d.]+)$", "all text")
    return by_cells(differences, ["domain", "size"], float, "epochs")


def repeats_by_replay() -> str:
    differences = beside("microcpt-repeats", r"-e([\d.]+)$", "all text")
    target = differences.xs("target", level="domain")
    return by_cells(target, ["size", "replay"], float, "epochs")


def rates() -> str:
    """What another learning rate does at the end."""
    differences = beside("microcpt-rates", r"-x([\d.]+)$", "1")
    return by_cells(differences, ["domain", "size", "ptpp"], float, "times the rate")


# -- curves ----------------------------------------------------------------------------

STRETCHES = ((2.5, 5.0), (5.0, 10.0), (10.0, 20.0))  # tokens per parameter


def curves() -> str:
    """Slopes along a run, and how far a point lies off its neighbours."""
    runs = table("microcpt-curves")
    runs = runs.assign(atpp=runs["D"] / runs["N"], t=np.log(runs["D"]))
    rows = []
    for (domain, ptpp), part in runs.groupby(["domain", "ptpp"]):
        of_runs = [run.sort_values("D") for _, run in part.groupby("run")]
        slopes = [[slope(run, *ends) for run in of_runs] for ends in STRETCHES]
        noise = np.sqrt(np.mean([off_neighbours(run) ** 2 for run in of_runs]))
        cells = [f"{np.mean(s):+.2%} ({min(s):+.2%} to {max(s):+.2%})" for s in slopes]
        rows.append([domain, f"{ptpp:g}", *cells, f"{noise:.3%}"])
    heads = ["domain", "ptpp"]
    heads += [f"{low:g} to {high:g} D/N" for low, high in STRETCHES]
    return markdown(rows, [*heads, "off the line of its neighbours"])


def slope(run: pd.DataFrame, low: float, high: float) -> float:
    """Change of log loss an e-fold of tokens, by least squares."""
    inside = run[run["atpp"].between(0.99 * low, 1.01 * high)]
    return float(np.polyfit(inside["t"], inside["log_loss"], 1)[0])


def off_neighbours(run: pd.DataFrame) -> float:
    """Root mean square distance of a point beyond 2.5 tokens per parameter from the line
    through its neighbours, as one point's noise (white: sqrt(3/2) of it).
    """
    y = run.loc[run["atpp"] > STRETCHES[0][0], "log_loss"].to_numpy()
    off = y[1:-1] - (y[:-2] + y[2:]) / 2
    return float(np.sqrt((off**2).mean() / 1.5))


# -- mixtures --------------------------------------------------------------------------


def languages_mixed(size: str = "23k", ptpp: float = 93.0) -> str:
    """Losses at the end of each mixture of three languages, means of two seeds."""
    runs = ends(table("microcpt-mixtures"))
    runs = runs[(runs["size"] == size) & (runs["ptpp"] == ptpp)]
    languages = ["source", "fr", "de"]
    shares = [f"share_{name}" for name in languages]
    means = runs.pivot_table(values="loss", index=shares, columns="domain")[languages]
    rows = [
        [*(f"{share:.2g}" for share in mixture), *(f"{loss:.3f}" for loss in losses)]
        for mixture, losses in zip(means.index, means.to_numpy(), strict=True)
    ]
    return markdown(
        rows, ["English", "French", "German", *(f"loss, {n}" for n in languages)]
    )


SHOWN: dict[str, Callable[[], str]] = {
    "seeds": lambda: seeds("microcpt"),
    "seeds_de": lambda: seeds("microcpt-de"),
    "languages": languages,
    "repeats": repeats,
    "repeats_by_replay": repeats_by_replay,
    "rates": rates,
    "curves": curves,
    "languages_mixed": languages_mixed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=list(SHOWN))
    options = parser.parse_args()
    for name in [options.name] if options.name else SHOWN:
        print(f"\n{name}\n\n{SHOWN[name]()}")


if __name__ == "__main__":
    main()
