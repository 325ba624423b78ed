"""What LLVM's levels cost to compile and to run, program by program: docs/speed.md.

    python tests/studies/benchmarks/levels.py [--laws chinchilla ptpp-gate-floor] [-o tests/studies/benchmarks/levels.csv]

Each program of a fit is compiled at the default level (3), at `ONCE` (0) and at `OFTEN` (1), in one process, and run; CPU seconds to compile, CPU
milliseconds a run. Errors are shared by checkpoint where the law's simulated table has some.
"""

import argparse
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw._base.programs import (
    FASTER_COMPILER,
    LEVEL,
    OFTEN,
    compiler_options,
)
from bayeslaw._inference import coordinates, density, importance, modes, nuts, point
from bayeslaw._inference.table import pad, shared_error
from bayeslaw._tables import fitting

LEVELS = {"default": None, "0": 0, "1": 1}
WARM_UP = 6  # chunks of the chains before one is timed


def programs(name: str) -> dict[str, tuple]:
    """Programs of a law with their arguments and how often each is run here."""
    runs = bayeslaw.simulate(name, seed=1)
    if "ptpp" in runs:
        runs = runs[runs.ptpp <= 31]
    law = bayeslaw.law(name)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    table, at = pad(x, y, shared_error(runs)), coordinates.contrast_points(law, x)
    start = modes.start_near_mode(law, table, at, 0)
    whitened = nuts.whitened_at(
        table, at, modes.find_peaks(law, table, at, start[None])[0]
    )
    centre, scale = np.asarray(whitened.centre), np.asarray(whitened.scale)
    d = len(centre)
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    chain = nuts.ONE_TABLE, law, runtime.WARMUP, whitened
    states = nuts._start_chains(*chain, keys)
    for _ in range(WARM_UP):
        states, _ = nuts._advance_chains(*chain, states)
    standard = np.random.default_rng(0).standard_normal((importance.AMIS().draws, d))
    many, few = centre + standard @ scale.T, np.tile(centre, (2 * d + 1, 1))
    free, aim = len(law.free_priors), point.Objective(0.02, 0.01, 1.0)
    one = law, table, at
    return {
        "residuals and slopes": (point._linearise, (*one, centre[:free], aim), 50),
        "gradients": (density.gradients, (*one, few), 20),
        "weights of draws": (importance._evaluate, (*one, many), 3),
        "start of chains": (nuts._start_chains, (*chain, keys), 3),
        "chains": (nuts._advance_chains, (*chain, states), 4),
    }


def measured(program, arguments: tuple, times: int, level: int | None) -> tuple:
    """CPU seconds to compile at a level, and CPU milliseconds a run."""
    options = compiler_options(OFTEN).keys() & FASTER_COMPILER.keys()
    asked = {name: FASTER_COMPILER[name] for name in options}
    if level is not None:
        asked[LEVEL] = level
    lowered = program._jitted[OFTEN].lower(*arguments)
    began = time.process_time()
    compiled = lowered.compile(compiler_options=asked)
    made = time.process_time() - began
    given = [a for i, a in enumerate(arguments) if i not in program._static]
    jax.block_until_ready(compiled(*given))
    began = time.process_time()
    for _ in range(times):
        jax.block_until_ready(compiled(*given))
    return made, (time.process_time() - began) / times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", nargs="*", default=["chinchilla", "ptpp-gate-floor"])
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    runtime.start()
    rows = []
    for name in options.laws:
        for what, (program, arguments, times) in programs(name).items():
            row = {"law": name, "program": what}
            for label, level in LEVELS.items():
                made, run = measured(program, arguments, times, level)
                row[f"level {label}: compile, s"] = f"{made:.1f}"
                row[f"level {label}: run, ms"] = f"{run:.1f}"
            rows.append(row)
            print(*row.values(), sep="\t", flush=True)
    if options.output:
        pd.DataFrame(rows).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
