"""Seconds to choose anchors: 1,000 candidates, 4,000 draws, 20 picks, once compiled.

    taskset -c 0 python tests/studies/benchmarks/anchors.py [--candidates 1000] [--draws 4000] [--picks 20] [--repeats 5]

The posterior is the known-answer law of `tests/known/example.py` with every value spread by 2% and .5% of noise. CPU
seconds are those of the process, so that a busy machine does not count; pin it to one core for one core's figure.
"""

import argparse
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[2]))

from bayeslaw._base.machine import runtime
from bayeslaw._designs.anchors import anchors
from bayeslaw._law.catalogue import law
from bayeslaw._posteriors.draws import all_draws
from bayeslaw._posteriors.outcomes import log_losses
from bayeslaw._posteriors.posterior import Piece
from bayeslaw._tables.simulate import NOISE, ptpp_grid
from known import example

SPREAD = 0.02


class Spread:
    """A posterior spread log-normally around known parameters."""

    name, warnings = "spread", ()

    def __init__(self, draws: int):
        rng = np.random.default_rng(0)
        known = law(example.TARGET_LAW).from_paper(example.TARGET)
        values = {
            k: float(v) * np.exp(SPREAD * rng.standard_normal(draws))
            for k, v in known.items()
        }
        values |= {"sigma": np.full(draws, NOISE), "dof": np.full(draws, 5.0)}
        own = law(example.TARGET_LAW)
        self._piece = Piece(
            lambda v, x: jnp.log(own.loss(x, v)), values, own.covariates
        )

    def pieces(self) -> tuple[Piece, ...]:
        return (self._piece,)

    def log_loss(
        self, runs: pd.DataFrame, *, noise: bool = False, seed: int = 0
    ) -> np.ndarray:
        return log_losses(all_draws(self.pieces()), runs, "the table")


def table(size: int, along_run: bool) -> pd.DataFrame:
    """Random candidates up to 1.4B; of seven points each where they are measured along runs."""
    rng = np.random.default_rng(1)
    points = 7 if along_run else 1
    runs = -(-size // points)
    made = pd.DataFrame(
        {
            "N": np.repeat(rng.choice([241e6, 517e6, 1.4e9], runs), points),
            "ptpp": np.repeat(rng.choice([15.0, 31.0, 279.0], runs), points),
            "replay": np.repeat(rng.uniform(0.05, 0.6, runs), points),
            "run": np.repeat([f"run{i}" for i in range(runs)], points),
        }
    )
    ladder = np.sort(
        np.exp(rng.uniform(np.log(0.25), np.log(20), (runs, points))), axis=1
    )
    return made.assign(D=ladder.ravel() * made["N"]).head(size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--picks", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    runtime.start()
    posterior, grid = Spread(options.draws), ptpp_grid()
    goal = grid[(grid["N"] == 8.1e9) & (grid["ptpp"] == 279)]
    asked = {"budget": 2e20, "max_picks": options.picks, "least": 0.0}
    for what, along_run in {
        "runs of one point": False,
        "runs of seven points": True,
    }.items():
        for checks in (0, 48):
            offered = table(options.candidates, along_run)
            made = anchors(posterior, offered, goal, **asked, checks=checks)  # compiles
            cpu, wall = [], []
            for _ in range(options.repeats):
                began = time.process_time(), time.perf_counter()
                anchors(posterior, offered, goal, **asked, checks=checks)
                cpu.append(time.process_time() - began[0])
                wall.append(time.perf_counter() - began[1])
            print(
                f"{what:20} {len(offered)} candidates, {options.draws} draws, {len(made.picks)} picks, check {'on' if checks else 'off'}: "
                f"CPU {np.median(cpu):.2f} s, wall {np.median(wall):.2f} s (medians)"
            )


if __name__ == "__main__":
    main()
