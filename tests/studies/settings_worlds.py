"""Tune rate and batch together in simulated sweeps whose best settings are known.

    python tests/studies/settings_worlds.py [--worlds 20] [-o docs/results/settings_worlds.csv]
    python tests/studies/settings_worlds.py --law [--worlds 100] [-o docs/results/settings_law.csv]

A world has nine cells, three sizes by three budgets. The log loss of a cell is a quadratic
in the logs of rate and batch, turned by default (more batch, more rate). Its lowest point
moves as in a public sweep of 1,911 runs: rate ~ N^-.70 D^.25, batch ~ N^-.19 D^.63. Levels
are a factor of two apart. Each kind of world changes one thing: the runs of a cell, the
noise, or the form of the bowl. The figures are over all cells of all worlds.

``--law`` fits chinchilla+lr+bs to all runs of a world of 5 by 5 levels, by importance
sampling, and finds the best settings at four times the largest size and budget. Beside it
stand least squares of the form and the noise that the worlds have: what these runs can
tell.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.optimize import least_squares

import bayeslaw

SIZES, TOKENS = (1e8, 3e8, 1e9), (2e9, 8e9, 3.2e10)
GOAL = {"N": 4e9, "D": 1.28e11}
CELLS = [(N, D) for N in SIZES for D in TOKENS]
MOVES = {"lr": (-0.70, 0.25), "bs": (-0.19, 0.63)}  # exponents of N and D
BENDS, TURN = (0.010, 0.006), 0.004  # of log loss, over the logs


def tuned_loss(N, D):
    return 1.8 + 480 / N**0.35 + 2085 / D**0.37


def best_of(N, D) -> np.ndarray:
    """Best rate and batch, shape (..., 2)."""
    middle = {"lr": 1e-3, "bs": 256.0}
    return np.stack(
        [
            middle[name] * (N / 3e8) ** by_size * (D / 8e9) ** by_tokens
            for name, (by_size, by_tokens) in MOVES.items()
        ],
        axis=-1,
    )


# -- the runs of a cell, in octaves from the level nearest to its best -----------------


def square(rng: np.random.Generator, reach: int) -> np.ndarray:
    steps = np.arange(-reach, reach + 1)
    return np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)


def half_of_square(rng: np.random.Generator) -> np.ndarray:
    all_of_them = square(rng, 3)
    chosen = rng.permutation(len(all_of_them))[: len(all_of_them) // 2]
    return all_of_them[chosen]


def cross(rng: np.random.Generator) -> np.ndarray:
    steps = square(rng, 2)
    return steps[(steps == 0).any(axis=1)]


def slow_rates(rng: np.random.Generator) -> np.ndarray:
    """A square; in a third of the cells only rates up to one octave below the best."""
    steps = square(rng, 3)
    return steps[steps[:, 0] <= -1] if rng.random() < 1 / 3 else steps


@dataclass(frozen=True)
class Kind:
    """A kind of world. ``varied``: sd of the log of a cell's curvature around that of
    all cells. ``skew``: how much steeper the loss is at an octave above the best rate.
    """

    runs: Callable[[np.random.Generator], np.ndarray]
    noise: float = 2e-3
    turn: float = TURN
    varied: float = 0.0
    skew: float = 0.0


KINDS = {
    "9 by 9 levels": Kind(partial(square, reach=4)),
    "9 by 9, .5% noise": Kind(partial(square, reach=4), noise=5e-3),
    "7 by 7, half of the runs": Kind(half_of_square),
    "5 by 5": Kind(partial(square, reach=2)),
    "5 by 5, .1% noise": Kind(partial(square, reach=2), noise=1e-3),
    "3 by 3": Kind(partial(square, reach=1)),
    "3 by 3, .05% noise": Kind(partial(square, reach=1), noise=5e-4),
    "cross of 5 and 5, no turn": Kind(cross, turn=0.0),
    "cross of 5 and 5": Kind(cross),
    "9 by 9, curvature varies by 40%": Kind(partial(square, reach=4), varied=0.4),
    "9 by 9, a fifth steeper above": Kind(partial(square, reach=4), skew=0.2),
    "rates end too early in a third": Kind(slow_rates),
}


def world(kind: Kind, seed: int) -> pd.DataFrame:
    """The runs of a world."""
    rng = np.random.default_rng([60, seed])
    rows = []
    for N, D in CELLS:
        best = np.log(best_of(N, D))
        # levels are powers of two times a usual rate and batch
        start = np.log([1e-3, 256.0])
        nearest = start + np.log(2) * np.round((best - start) / np.log(2))
        bend = np.diag(BENDS) + kind.turn * (1 - np.eye(2))
        bend *= np.exp(kind.varied * rng.standard_normal())
        for at in nearest + np.log(2) * kind.runs(rng):
            off = at - best
            rise = off @ bend @ off * (1 + kind.skew * off[0] / np.log(2))
            noise = kind.noise * rng.standard_normal()
            rows.append((N, D, *np.exp(at), tuned_loss(N, D) * np.exp(rise + noise)))
    return pd.DataFrame(rows, columns=["N", "D", "lr", "bs", "loss"])


def tried(name: str, seed: int) -> pd.DataFrame:
    """A world's cells: whether their best settings are found, and how well the loss is."""
    kind = KINDS[name]
    runs = world(kind, seed)
    table = bayeslaw.tuned(runs, ["lr", "bs"])
    sizes, tokens = table["N"].to_numpy(), table["D"].to_numpy()
    truth = best_of(sizes, tokens)
    swept = runs.groupby(["N", "D"])["lr"].max().loc[[*zip(sizes, tokens, strict=True)]]
    cells = {"world": seed, "at_edge": table["at_edge"]}
    cells["is_beyond"] = swept.to_numpy() < truth[:, 0]
    for k, setting in enumerate(MOVES):
        off = np.log(table[f"{setting}_best"] / truth[:, k])
        cells[f"{setting}_near"] = np.abs(off) < np.log(1.1)
        low, high = table[f"{setting}_low"], table[f"{setting}_high"]
        cells[f"{setting}_held"] = (low < truth[:, k]) & (truth[:, k] < high)
    cells["error"] = np.log(table["loss"] / tuned_loss(sizes, tokens))
    cells["log_sd"] = table["log_sd"]
    cells["luck"] = np.log(table["loss"] / table["loss_measured"]) / kind.noise
    # slopes of the found logs over those of N and D
    design = np.column_stack([np.ones(len(table)), np.log(sizes), np.log(tokens)])
    inside = ~table["at_edge"].to_numpy()
    for setting, truths in MOVES.items():
        best = np.log(table[f"{setting}_best"].to_numpy())
        slopes, *_ = np.linalg.lstsq(design[inside], best[inside])
        for along, slope, exponent in zip("ND", slopes[1:], truths, strict=True):
            cells[f"{setting}_{along}"] = slope - exponent
    return pd.DataFrame(cells)


def summary(name: str, cells: pd.DataFrame) -> dict[str, str]:
    """Figures of a kind of world, rate before batch. All but the share at an edge are of
    the other cells.
    """
    inside = cells[~cells["at_edge"]]
    slopes = cells.drop_duplicates("world")

    def shares(of: str) -> str:
        return ", ".join(f"{inside[f'{setting}_{of}'].mean():.0%}" for setting in MOVES)

    def errors(of: str) -> str:
        both = slopes[[f"lr_{of}", f"bs_{of}"]]
        return ", ".join(f"{error:.3f}" for error in np.sqrt((both**2).mean()))

    lucky = [f"{(inside['luck'] > most).mean():.0%}" for most in (1, 2, 3)]
    return {
        "cells": name,
        "best beyond the runs, said": f"{cells['is_beyond'].mean():.0%}, "
        f"{cells['at_edge'].mean():.0%}",
        "best within a tenth": shares("near"),
        "90% intervals hold": shares("held"),
        "error of the loss: mean, sd": f"{inside['error'].mean():+.3%}, "
        f"{inside['error'].std():.3%}",
        "stated sd": f"{inside['log_sd'].mean():.3%}",
        "least run below it by 1, 2, 3 noise": ", ".join(lucky),
        "error of exponents of N": errors("N"),
        "of D": errors("D"),
    }


def of_least_squares(runs: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """The log of each best setting at the goal, and its standard error, by least squares
    of the worlds' own form.
    """
    N, D = (np.log(runs[c].to_numpy() / x) for c, x in (("N", 3e8), ("D", 8e9)))
    place = np.column_stack([np.ones(len(runs)), N, D])
    settings = np.log(runs[["lr", "bs"]].to_numpy() / [1e-3, 256.0])
    y = np.log(runs["loss"].to_numpy())

    def residuals(p: np.ndarray) -> np.ndarray:
        floor, size, alpha, data, beta = p[:5]
        tuned = np.exp(floor) + np.exp(size - alpha * N) + np.exp(data - beta * D)
        off = settings - place @ p[5:11].reshape(2, 3).T
        rise = np.exp(p[11]) * off[:, 0] ** 2 + np.exp(p[12]) * off[:, 1] ** 2
        return (np.log(tuned) + rise + 2 * p[13] * off.prod(axis=1) - y) / 2e-3

    start = [0.6, -0.7, 0.35, -0.8, 0.37, 0, -0.7, 0.25, 0, -0.19, 0.63, -4.6, -5.1, 0]
    found = least_squares(residuals, start, x_scale=np.abs(start) + np.array(0.1))
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    goal = np.array([1.0, np.log(GOAL["N"] / 3e8), np.log(GOAL["D"] / 8e9)])
    places = {"lr": slice(5, 8), "bs": slice(8, 11)}
    middle = {"lr": np.log(1e-3), "bs": np.log(256.0)}
    return {
        name: (
            float(middle[name] + found.x[at] @ goal),
            float(np.sqrt(goal @ covariance[at, at] @ goal)),
        )
        for name, at in places.items()
    }


def told_by_law(seed: int) -> list[dict[str, Any]]:
    """For each setting of a world: the best at the goal over the true one, whether its
    interval holds that, and the same of the exponents of N and D.
    """
    runs = world(KINDS["5 by 5"], seed)
    options: dict[str, Any] = {"discrepancy": False, "preview": True, "seed": seed}
    fit = bayeslaw.fit(runs, "chinchilla+lr+bs", on_failure="ignore", **options)
    ranges = {"lr": (1e-5, 1e-1), "bs": (16.0, 1e5)}
    best = bayeslaw.best_settings(None, fit, GOAL, source_weight=0.0, ranges=ranges)
    truth = dict(zip(MOVES, best_of(**GOAL), strict=True))
    squares = of_least_squares(runs)
    rows = []
    for name, answer in best.items():
        low, high = answer.interval
        row = {"setting": name, "error": np.log(answer.best / truth[name])}
        row |= {"held": low < truth[name] < high, "half": np.log(high / low) / 2}
        at, error = squares[name]
        row["squares"] = at - np.log(truth[name])
        row["squares_held"] = abs(row["squares"]) < 1.645 * error
        for along, exponent in zip("ND", MOVES[name], strict=True):
            draws = fit.posterior[f"{name}_best_{along}"]
            row[f"error_{along}"] = draws.mean() - exponent
            row[f"held_{along}"] = 0.05 < (draws < exponent).mean() < 0.95
        rows.append(row)
    jax.clear_caches()
    return rows


def summary_of_law(rows: pd.DataFrame) -> pd.DataFrame:
    """Figures of each setting, as texts."""
    lines = []
    for name, part in rows.groupby("setting", sort=False):
        line = {
            "best at the goal": name,
            "worlds": str(len(part)),
            "within a tenth": str((part["error"].abs() < np.log(1.1)).sum()),
            "mean error": f"{part['error'].mean():+.1%}",
            "sd": f"{part['error'].std():.1%}",
            "half of the 90% interval": f"{part['half'].mean():.1%}",
            "held": str(part["held"].sum()),
            "least squares: within a tenth, sd, held": (
                f"{(part['squares'].abs() < np.log(1.1)).sum()}, "
                f"{part['squares'].std():.1%}, {part['squares_held'].sum()}"
            ),
        }
        for along in "ND":
            error = np.sqrt((part[f"error_{along}"] ** 2).mean())
            held = part[f"held_{along}"].sum()
            line[f"exponent of {along}: error, held"] = f"{error:.3f}, {held}"
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--law", action="store_true", help="fit a law to all runs")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    if given.law:
        for seed in range(given.worlds):
            rows += told_by_law(seed)
            table = summary_of_law(pd.DataFrame(rows))
            print(table.to_string(), flush=True)
            if given.output:
                table.to_csv(given.output, index=False)
        return
    for name in KINDS:
        cells = pd.concat([tried(name, seed) for seed in range(given.worlds)])
        rows.append(summary(name, cells))
        print(rows[-1], flush=True)
    if given.output:
        pd.DataFrame(rows).to_csv(given.output, index=False)


if __name__ == "__main__":
    main()
