"""Make ``simulated_ptpp_grid.csv``: ``python tests/studies/make_simulated.py``.

Target losses follow Form 3 and source losses follow Form 1, on the grid of Goffinet
2025, with .5% of noise. The parameters are those of `tests/known/example.py`: at them,
the planning problem of the paper has the answer of the paper. Nothing in the table was
measured.
"""

import sys
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from bayeslaw._tables.simulate import simulate
from known.example import SOURCE, SOURCE_LAW, TARGET, TARGET_LAW


def make() -> pd.DataFrame:
    """Simulate the table: 252 runs, a row for each of two domains."""
    truths = [
        ("target", TARGET_LAW, TARGET, 20251),
        ("source", SOURCE_LAW, SOURCE, 20252),
    ]
    columns = ["run", "checkpoint", "N", "D", "replay", "ptpp", "loss"]
    parts = []
    for domain, law, parameters, seed in truths:
        runs = simulate(law, seed=seed, parameters=parameters)
        parts.append(runs[columns].assign(domain=domain, simulated_from=law))
    return pd.concat(parts, ignore_index=True).round({"loss": 5})


if __name__ == "__main__":
    folder = Path(__file__).parents[2] / "bayeslaw/datasets"
    path = folder / "simulated_ptpp_grid.csv"
    make().to_csv(path, index=False)
    print(path)
