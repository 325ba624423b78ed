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

PATH = Path(__file__).with_name("simulated_ptpp_grid.csv")
TRUTH = {"target": (TARGET_LAW, TARGET), "source": (SOURCE_LAW, SOURCE)}
SEEDS = {"target": 20251, "source": 20252}
COLUMNS = ["run", "checkpoint", "N", "D", "replay", "ptpp", "loss"]


def make() -> pd.DataFrame:
    """The table: 252 runs, a row for each of two domains."""
    parts = []
    for domain, (law, parameters) in TRUTH.items():
        runs = simulate(law, seed=SEEDS[domain], parameters=parameters)
        parts.append(runs[COLUMNS].assign(domain=domain, simulated_from=law))
    return pd.concat(parts, ignore_index=True).round({"loss": 5})


if __name__ == "__main__":
    make().to_csv(PATH, index=False)
    print(PATH)
