"""Make ``simulated_ptpp_grid.csv``: ``python -m bayeslaw.datasets.make_simulated``.

Target losses follow Form 3 and source losses Form 1 at the parameters of
`bayeslaw._plans.example`, for which the planning problem of Goffinet 2025
has the paper's answer, on the paper's grid with .5% of noise. Nothing in it was
measured.
"""

from pathlib import Path

import pandas as pd

from bayeslaw._plans.example import SOURCE, SOURCE_LAW, TARGET, TARGET_LAW
from bayeslaw._tables.simulate import simulate


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
    path = Path(__file__).with_name("simulated_ptpp_grid.csv")
    make().to_csv(path, index=False)
    print(path)
