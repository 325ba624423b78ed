"""Draw the posteriors of a ladder of few rows around the mode alone, and at wider errors,
too.

    python tests/studies/peaks.py [--data ../shared/data]

`ptpp-tokens+lr_factor` is fitted to the scales of a published midtraining up to some
budget: four rates at each checkpoint. A row has the mean over four seeds of the effective
draws of a thousand drawn, and the largest k-hat.
"""

import argparse
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._inference import coordinates, modes
from bayeslaw._inference.importance import approximate
from bayeslaw._inference.table import pad, shared_error
from bayeslaw._tables import fitting

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "peaks.csv"
CASES = (
    ("clean", "j050", 9e19),
    ("clean", "j050", 2e20),
    ("clean", "j050", 3e20),
    ("replay", "loss", 2e19),
    ("replay", "loss", 3e20),
)


def read_ladder(data: Path, part: str, loss: str, most: float) -> pd.DataFrame:
    """Read the runs of the scales up to a budget in FLOPs."""
    table = pd.read_csv(data / f"midtraining_{part}.csv")
    runs = table[["N", "D", "replay", "ptpp", "lr_factor"]].assign(loss=table[loss])
    return runs[table["scale"].astype(float) <= most].reset_index(drop=True)


def draw_posteriors(runs: pd.DataFrame) -> dict[str, float]:
    """Approximate the posterior at four seeds."""
    law = bayeslaw.find_law("ptpp-tokens+lr_factor", runs)
    columns = fitting.covariates(law, runs)
    table = pad(columns, fitting.log_losses(runs), shared_error(runs))
    points = coordinates.contrast_points(law, columns)
    start = modes.start_near_mode(law, table, points, 0)
    peaks = modes.find_peaks(law, table, points, start[None])
    drawn = [approximate(law, table, points, peaks, seed=seed) for seed in range(4)]
    effective = [1000 * each.ess / len(each.weight) for each in drawn]
    return {"effective": np.mean(effective), "k-hat": max(each.k for each in drawn)}


def main() -> None:
    root = Path(__file__).parents[2]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=root.parent / "shared" / "data")
    data = parser.parse_args().data
    rows = []
    for case in CASES:
        runs = read_ladder(data, *case)
        with mock.patch.object(modes, "_find_peaks_at_wider_errors", return_value=[]):
            before = draw_posteriors(runs)
        after = draw_posteriors(runs)
        row = {"rows": str(len(runs))}
        for name, found in (("mode alone", before), ("wider errors", after)):
            row[f"{name}: effective of 1,000"] = f"{found['effective']:.1f}"
            row[f"{name}: largest k-hat"] = f"{found['k-hat']:.2f}"
        rows.append(row)
        print(row, flush=True)
    pd.DataFrame(rows).to_csv(RESULTS, index=False)


if __name__ == "__main__":
    main()
