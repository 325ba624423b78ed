"""Forecast learning curves under schedules that no fit has seen.

    python tests/studies/learning_curves.py [--data ../shared/data] [-o docs/results/learning_curves.txt]

`anneal` with its misfit is fitted at default settings and seed 0 to three measured
schedules of a model of 25 and of 100 million parameters (Luo et al. 2025), and forecasts
the six others. Errors, and widths of 90% intervals of a new run, are relative to the loss.
"""

import argparse
import warnings
from pathlib import Path

from measured import DATA

import bayeslaw

FITTED = ["cosine_24000", "constant_24000", "wsdcon_9"]
SIZES = ("25m", "100m")
HEAD = "| size | schedule | points | MAE | coverage of 90% | width |"
ROOT = Path(__file__).parents[2]


def by_schedule(path: Path, preview: bool) -> list[str]:
    """Build a line for each schedule that is not fitted."""
    runs = bayeslaw.read_runs(path)
    is_fitted = runs["schedule"].isin(FITTED)
    fit = bayeslaw.fit(
        runs[is_fitted],
        "anneal",
        seed=0,
        preview=preview,
        on_failure="warn",
    )
    lines = []
    for schedule, rows in runs[~is_fitted].groupby("schedule"):
        held = bayeslaw.check(fit, rows)
        figures = [
            schedule,
            len(rows),
            f"{held.mae_rel:.2%}",
            f"{held.coverage['0.9']:.0%}",
            f"{held.width90:.2%}",
        ]
        lines.append(" | ".join(map(str, figures)))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--preview", action="store_true", help="draw without chains")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for size in SIZES:
        path = options.data / f"lr_curves_{size}.csv"
        lines += [f"| {size} | {line} |" for line in by_schedule(path, options.preview)]
        print("\n".join(lines), flush=True)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
