"""Check intervals beyond tables of repeated seeds, and beyond curves of few runs.

    python tests/studies/repeated_settings.py [--worlds 100] [--processes 2] [--rows FILE.csv] [-o docs/results/repeated_settings.txt]

*Seeds*: in each world the truth is Chinchilla's law at parameters of this world. There are 20
settings, five sizes by four budgets. Each setting has its own deviation from the law of .2 to 1%,
and 3 to 20 seeds that differ by .05%. *Curves*: six sizes, with 43 points along each run; runs
differ by .4% and points by .1%; the run's name is given, or not. The forecast is that of a new run
at ten times the largest size and 20 tokens per parameter, by the default average, and for seeds
also by the law without misfit (`--plain`). After an interruption, the same command goes on.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from processes import processes
from resumable import study

import bayeslaw
from bayeslaw._base.machine import runtime

SIZES = np.geomspace(3e7, 1e9, 5)
BUDGETS = (2.5, 5.0, 10.0, 20.0)  # tokens per parameter
CURVES = 12  # worlds of curves


def law(rng: np.random.Generator):
    """Chinchilla's law with parameters around the published ones."""
    E, A, B = np.array([1.82, 482.0, 2085.0]) * np.exp(0.1 * rng.standard_normal(3))
    alpha, beta = np.array([0.348, 0.366]) * np.exp(0.05 * rng.standard_normal(2))
    return lambda N, D: E + A / N**alpha + B / D**beta


def seeds_of_settings(rng: np.random.Generator, truth) -> tuple[pd.DataFrame, float]:
    """Runs, and the error of settings."""
    rough, seeds = rng.uniform(0.002, 0.01), int(rng.integers(3, 21))
    rows = []
    for N in SIZES:
        for D in N * np.array(BUDGETS):
            level = truth(N, D) * np.exp(rough * rng.standard_normal())
            losses = level * np.exp(0.0005 * rng.standard_normal(seeds))
            rows += [(N, D, loss) for loss in losses]
    return pd.DataFrame(rows, columns=["N", "D", "loss"]), rough


def curves(rng: np.random.Generator, truth) -> tuple[pd.DataFrame, float]:
    """Points along six runs, and the error of runs."""
    rows = []
    for name, N in enumerate(np.geomspace(3e7, 1e9, 6)):
        level = np.exp(0.004 * rng.standard_normal())
        D = N * np.geomspace(1, 40, 43)
        losses = truth(N, D) * level * np.exp(0.001 * rng.standard_normal(len(D)))
        rows += [(f"run{name}", N, d, loss) for d, loss in zip(D, losses, strict=True)]
    return pd.DataFrame(rows, columns=["run", "N", "D", "loss"]), 0.004


def tried(*, kind: str, world: int) -> list[dict]:
    """Forecasts of one world beside the loss of the run."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([2027, world])
    truth = law(rng)
    runs, rough = (seeds_of_settings if kind == "seeds" else curves)(rng, truth)
    if kind == "curves unnamed":
        runs = runs.drop(columns="run")
    N = 10 * SIZES[-1]
    goal = pd.DataFrame([{"N": N, "D": 20 * N}])
    loss = truth(N, 20 * N) * np.exp(rough * rng.standard_normal())
    settings = {"seed": 0, "on_failure": "ignore"}
    fits = {"average": bayeslaw.average(runs, **settings)}
    if kind == "seeds":
        fits["plain"] = bayeslaw.fit(runs, "chinchilla", discrepancy=False, **settings)
    rows = []
    for name, fit in fits.items():
        forecast = bayeslaw.forecast(fit, goal).iloc[0]
        rows.append(
            {
                "fit": name,
                "is_held": bool(forecast["low"] <= loss <= forecast["high"]),
                "error": float(forecast["median"] / truth(N, 20 * N) - 1),
                "width": float((forecast["high"] - forecast["low"]) / loss),
            }
        )
    return rows


def table(rows: pd.DataFrame) -> str:
    """Cover, width and error by kind of world and fit, as Markdown."""
    lines = [
        "| worlds | fit | 90% intervals hold | median width | mean error | over .5% further off than plain |",
        "|---|---|---|---|---|---|",
    ]
    for (kind, fit), part in rows.groupby(["kind", "fit"], sort=False):
        plain = rows[(rows["kind"] == kind) & (rows["fit"] == "plain")]
        further = "-"
        if fit != "plain" and len(plain):
            beside = part.merge(plain, on="world", suffixes=("", "_plain"))
            more = beside["error"].abs() - beside["error_plain"].abs()
            further = f"{(more > 0.005).sum()} of {len(beside)}"
        lines.append(
            f"| {len(part)}, {kind} | {fit} | {part['is_held'].sum()} "
            f"| {part['width'].median():.1%} | {part['error'].abs().mean():.2%} | {further} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=Path("repeated_settings.csv"))
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    runtime.start()
    jobs = [
        {"kind": kind, "world": world}
        for kind in ("curves named", "curves unnamed")
        for world in range(min(CURVES, given.worlds))
    ]
    jobs += [{"kind": "seeds", "world": world} for world in range(given.worlds)]
    with processes(given.processes) as executor:
        rows = study(tried, jobs, given.rows, executor=executor, progress=print)
    print(table(rows))
    if given.output:
        given.output.write_text(table(rows))


if __name__ == "__main__":
    main()
