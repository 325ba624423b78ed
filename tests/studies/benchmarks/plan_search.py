"""Seconds of the planner's search: 4,000 draws, all of replay, once compiled.

    python tests/studies/benchmarks/plan_search.py [--draws 4000] [--repeats 5]

The posterior is the known-answer problem of `tests/known/example.py` with every value spread by .5% and .2% of noise.
CPU seconds are those of the process, so that a busy machine does not count; pin it to one core for one core's figure.
"""

import argparse
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from bayeslaw._base.machine import runtime
from bayeslaw._law.catalogue import law
from bayeslaw._plans.plan import plan, problem_of
from bayeslaw._plans.search import search
from bayeslaw._posteriors.posterior import Piece
from known import example

SPREAD, NOISE = 0.005, 0.002


class Spread:
    """A posterior spread log-normally around known parameters."""

    warnings = ()

    def __init__(self, name: str, parameters: dict, draws: int, seed: int):
        rng = np.random.default_rng(seed)
        values = {
            k: float(v) * np.exp(SPREAD * rng.standard_normal(draws))
            for k, v in law(name).from_paper(parameters).items()
        }
        values |= {"sigma": np.full(draws, NOISE), "dof": np.full(draws, 5.0)}
        piece = Piece(
            lambda v, x: jnp.log(law(name).loss(x, v)), values, law(name).covariates
        )
        self.pieces = lambda: (piece,)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    runtime.start()
    target = Spread(example.TARGET_LAW, example.TARGET, options.draws, 0)
    source = Spread(example.SOURCE_LAW, example.SOURCE, options.draws, 1)
    asked = example.QUESTION
    problem = problem_of(target, source, **asked, draws=options.draws)
    search(problem)  # compiles
    for what, run in {
        "search": lambda: search(problem),
        "plan": lambda: plan(target, source, **asked),
    }.items():
        run()
        cpu, wall = [], []
        for _ in range(options.repeats):
            began = time.process_time(), time.perf_counter()
            run()
            cpu.append(time.process_time() - began[0])
            wall.append(time.perf_counter() - began[1])
        print(
            f"{what:7} {options.draws} draws: CPU {1e3 * np.median(cpu):.0f} ms, wall {1e3 * np.median(wall):.0f} ms (medians)"
        )


if __name__ == "__main__":
    main()
