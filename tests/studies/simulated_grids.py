"""Coverage on simulated paper grids: ten seeds of each form, fitted with the true form at ptpp 15 and 31.

    python tests/studies/simulated_grids.py [--laws ptpp-floor,ptpp-gate,ptpp-gate-floor] [--seeds 10] [-o FILE.md]

Prints, for each form, how many runs at ptpp 279 the 90% interval of a new run holds, over all seeds and in the worst
one, the interval's mean relative width, and how far the median misses.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import bayeslaw

HEAD = (
    "true form = fitted form",
    "seeds",
    "coverage of 90%",
    "worst seed",
    "width",
    "MAE",
    "failed diagnostics",
    "s/fit",
)


def study(law: str, seeds: int) -> list[str]:
    """One row of the table."""
    checks, seconds, failed = [], [], 0
    for seed in range(seeds):
        runs = bayeslaw.simulate(law, seed=seed)
        fit = bayeslaw.fit(
            runs[runs["ptpp"] <= 31], law, seed=seed, on_failure="ignore"
        )
        checks.append(bayeslaw.check(fit, runs[runs["ptpp"] == 279], seed=seed))
        seconds.append(fit.seconds)
        failed += bool(fit.warnings)
        print(
            f"{law} seed {seed}: {checks[-1].reason}; {fit.seconds:.0f} s",
            file=sys.stderr,
        )
    coverage = [c.coverage["0.9"] for c in checks]
    width, mae = (
        np.mean([getattr(c, k) for c in checks]) for k in ("width90", "mae_rel")
    )
    cells = (
        f"{np.mean(coverage):.1%}",
        f"{min(coverage):.1%}",
        f"{width:.1%}",
        f"{mae:.2%}",
        str(failed),
    )
    return [law, str(seeds), *cells, f"{np.median(seconds):.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", default="ptpp-floor,ptpp-gate,ptpp-gate-floor")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [
        HEAD,
        ["---"] * len(HEAD),
        *(study(law, options.seeds) for law in options.laws.split(",")),
    ]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    print(table)
    if options.output:
        options.output.write_text(table + "\n")


if __name__ == "__main__":
    main()
