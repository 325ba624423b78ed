"""Follow further seeds of a recipe of which nine seeds were fitted: docs/follow.md.

    python tests/studies/follow_seeds.py [--recipes 14] [-o docs/results/follow_seeds.txt]

Simulated recipes: a power law in tokens, a bump and a decay that the law does not know and all seeds share, and what is a seed's own: a
level, a slope and noise. Each is a run of 37 points. A power law is fitted to nine seeds (preview, seed 0), and ten others are followed.
Rivals: `law`, the same filter around the law alone, and `mean`, the other seeds' mean at the end plus half of the run's offset from it.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._running.following.course import Course, CourseGrid, course
from bayeslaw._running.following.track import Track

FITTED, FOLLOWED, POINTS = 9, 10, 37
PREFIXES = (0.2, 0.4, 0.6, 0.8)
N, UNTIL = 124e6, 4.6e9


def seeds_of_recipe(
    rng: np.random.Generator, count: int = FITTED + FOLLOWED
) -> pd.DataFrame:
    """Seeds of one recipe; what they share and what is their own is drawn."""
    tokens = np.linspace(1 / POINTS, 1.0, POINTS)
    t = np.log(tokens)
    law = np.log(2.6 + 0.5 * (tokens / 0.1) ** -0.5)
    place, width = rng.uniform(-1.5, -0.3), rng.uniform(0.2, 0.6)
    bump = rng.choice([-1, 1]) * rng.uniform(0.005, 0.02)
    decay = rng.uniform(0.0, 0.03) * np.clip((tokens - 0.7) / 0.3, 0.0, 1.0)
    shared = bump * np.exp(-0.5 * ((t - place) / width) ** 2) - decay
    level, noise = np.exp(rng.uniform(np.log(0.0003), np.log(0.003), 2))
    own_level = level * rng.standard_normal((count, 1))
    own_slope = 0.5 * level * rng.standard_normal((count, 1))
    own = own_level + own_slope * t + noise * rng.standard_normal((count, POINTS))
    runs = [
        pd.DataFrame({"run": f"seed {i}", "N": N, "D": UNTIL * tokens, "loss": losses})
        for i, losses in enumerate(np.exp(law + shared + own))
    ]
    return pd.concat(runs, ignore_index=True)


def follow_seeds(recipe: int) -> Iterator[dict[str, Any]]:
    """A row for each seed that was not fitted, prefix and forecaster."""
    runs = seeds_of_recipe(np.random.default_rng(recipe))
    by_seed = [run for _, run in runs.groupby("run", sort=False)]
    fitted = pd.concat(by_seed[:FITTED])
    posterior = bayeslaw.fit(
        fitted, "E + B*(D/1e9)^-beta", preview=True, on_failure="ignore"
    )
    grid = CourseGrid(draws=300)
    shared = course(posterior, by_seed[-1], UNTIL, grid=grid)
    alone = course(posterior, by_seed[-1], UNTIL, grid=grid, fitted=fitted.iloc[:0])
    mean = (
        fitted.groupby("D")["loss"].agg(lambda losses: np.log(losses).mean()).to_numpy()
    )
    for run in by_seed[FITTED:]:
        y = np.log(run["loss"].to_numpy())
        for prefix in PREFIXES:
            seen = int(prefix * POINTS)
            offset = y[seen - 1] - mean[seen - 1]
            middle = mean[-1] + offset / 2
            forecasts = {
                "follow": _final(shared, run.head(seen)),
                "law": _final(alone, run.head(seen)),
                "mean": (np.nan, middle, np.nan),
            }
            for name, (low, median, high) in forecasts.items():
                yield {
                    "recipe": recipe,
                    "prefix": prefix,
                    "forecast": name,
                    "error": abs(median - y[-1]),
                    "cover": low <= y[-1] <= high,
                    "width": high - low,
                }


def _final(along: Course, points: pd.DataFrame) -> tuple[float, float, float]:
    """Log loss at the end: low, median and high."""
    departure = Track.start("loss", along, UNTIL).departure
    for at, loss in points[["D", "loss"]].itertuples(index=False):
        clock = float(np.log(at))
        departure = departure.after(clock, np.log(loss) - along.at(clock))
    track = replace(Track.start("loss", along, UNTIL), departure=departure)
    low, median, high = track.outlook(track.end).quantiles([0.05, 0.5, 0.95])
    return float(low), float(median), float(high)


def markdown(rows: pd.DataFrame) -> str:
    lines = [
        "| of the run | runs | error: law alone | mean of seeds, half the offset | **follow** | cover, law alone | cover | width, law alone | width |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for prefix, group in rows.groupby("prefix"):
        of = group.groupby("forecast")[["error", "cover", "width"]].mean()
        error, cover, width = of["error"], of["cover"], of["width"]
        lines.append(
            f"| {prefix:.0%} | {len(group) // len(of)} | {error['law']:.2%} | {error['mean']:.2%} | **{error['follow']:.2%}** "
            f"| {cover['law']:.0%} | {cover['follow']:.0%} | {width['law']:.2%} | {width['follow']:.2%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=int, default=14)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for i in range(options.recipes) for row in follow_seeds(i)]
    table = markdown(pd.DataFrame(rows))
    print(table)
    if options.output is not None:
        options.output.write_text(table)


if __name__ == "__main__":
    main()
