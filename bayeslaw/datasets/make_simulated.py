"""Make ``simulated_ptpp_grid.csv``: ``python -m bayeslaw.datasets.make_simulated``.

Target losses follow Form 3 and source losses Form 1 at the parameters below, on the grid of Goffinet 2025 with
.5% of noise. Nothing in it was measured.
"""

from pathlib import Path

import pandas as pd

from bayeslaw._simulate import simulate

PATH = Path(__file__).with_name("simulated_ptpp_grid.csv")
TARGET = ("ptpp-gate-floor", {})
SOURCE = ("ptpp-floor", {"E": 1.3, "A": 260.0, "B": 6.0, "C": 0.04, "F": 0.5, "beta": 0.17, "nu": 0.1, "gamma": 0.6})
SEEDS = {"target": 20251, "source": 20252}


def make() -> pd.DataFrame:
    """The table: 252 runs, a row for each of two domains."""
    parts = []
    for domain, (law, parameters) in {"target": TARGET, "source": SOURCE}.items():
        runs = simulate(law, seed=SEEDS[domain], parameters=parameters)
        kept = runs[["run", "checkpoint", "N", "D", "replay", "ptpp", "loss"]].assign(domain=domain, simulated_from=law)
        parts.append(kept)
    return pd.concat(parts, ignore_index=True).round({"loss": 5})


if __name__ == "__main__":
    make().to_csv(PATH, index=False)
    print(PATH)
