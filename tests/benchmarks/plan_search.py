"""Seconds of the planner's search: 4,000 draws, all of replay, once compiled.

    python tests/benchmarks/plan_search.py [--draws 4000] [--repeats 5]

The posterior is the known-answer problem of `bayeslaw._plan_example` with every value spread by .5% and .2% of noise.
CPU seconds are those of the process, so that a busy machine does not count; pin it to one core for one core's figure.
"""

import argparse
import time

import jax.numpy as jnp
import numpy as np

from bayeslaw import _engine
from bayeslaw import _plan_example as example
from bayeslaw._catalogue import law
from bayeslaw._plan import plan
from bayeslaw._plan_question import Question, pose
from bayeslaw._plan_search import search
from bayeslaw._posterior import Piece

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
        piece = Piece(lambda v, x: jnp.log(law(name).loss(x, v)), values, law(name).covariates)
        self.pieces = lambda: (piece,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    _engine.start()
    target = Spread(example.TARGET_LAW, example.TARGET, options.draws, 0)
    source = Spread(example.SOURCE_LAW, example.SOURCE, options.draws, 1)
    asked = example.QUESTION
    question = Question(
        pieces={"target": target.pieces(), "forgetting": source.pieces()}, N=asked["N"], ptpp=asked["ptpp"],
        max_target_loss=asked["max_target_loss"], max_forgetting={"forgetting": asked["max_forgetting"]},
        unit="relative", baseline_loss={"forgetting": asked["baseline_loss"]}, baseline_tokens={"forgetting": None},
        covariates={}, confidence=0.9, max_tokens=np.inf, unique_tokens=np.inf, min_replay=0.0, new_run=True,
        draws=options.draws, seed=0,
    )  # fmt: skip
    problem = pose(question, question.pieces)
    search(problem)  # compiles
    for what, run in {"search": lambda: search(problem), "plan": lambda: plan(target, source, **asked)}.items():
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
