"""Learning curves of many points: seconds of a gradient by rows, peak memory of a fit's parts.

    python tests/studies/benchmarks/rows.py [--rows 100,1000,5000,20000,100000]

`anneal` on nine curves, the errors of a curve's points alike (the default). Each size is a process of its own, so that peak
memory is its own; ``fit``, a process too, is the whole of `bayeslaw.fit` (a preview of 4,000 draws) at 20,000 rows.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd

CURVES = 9


def curves(rows: int) -> pd.DataFrame:
    import bayeslaw

    each = rows // CURVES + 1
    rng, parts = np.random.default_rng(0), []
    for k in range(CURVES):
        step = np.linspace(2000, 24000, each)
        peak = 2e-4 * (1 + k / 4)
        annealed = np.clip(step / 24000 - 0.6, 0, None) * 0.4 * (k % 3)
        parts.append(
            pd.DataFrame(
                {
                    "step": step,
                    "S1_pt": peak * step,
                    "S2_pt": annealed,
                    "run": f"run{k}",
                }
            )
        )
    design = pd.concat(parts, ignore_index=True).head(rows)
    made = bayeslaw.simulate("anneal", design=design, seed=1, noise=0.003)
    drift = np.repeat(rng.normal(0, 0.001, CURVES), each)[:rows]
    return made.assign(loss=made["loss"] * np.exp(drift), **design)


def gradient(rows: int) -> None:
    import jax

    import bayeslaw
    from bayeslaw._base.machine import runtime
    from bayeslaw._inference import coordinates
    from bayeslaw._inference.density import error_start, gradients, to_vector
    from bayeslaw._inference.point import posterior_mode
    from bayeslaw._inference.table import pad, shared_error
    from bayeslaw._tables import fitting

    runtime.start()
    law, runs = bayeslaw.law("anneal"), curves(rows)
    x, y = fitting.covariates(law, runs), np.log(fitting.losses(runs))
    table, at = pad(x, y, shared_error(runs)), coordinates.contrast_points(law, x)
    few = pad({c: v[:64] for c, v in x.items()}, y[:64])
    z, noise = posterior_mode(law, few, at, seed=0)
    vectors = np.asarray(
        to_vector(law, table.shared, z | error_start(table.shared, noise))
    )[None]
    jax.block_until_ready(gradients(law, table, at, vectors))
    seconds = []
    for _ in range(30):
        began = time.perf_counter()
        jax.block_until_ready(gradients(law, table, at, vectors))
        seconds.append(time.perf_counter() - began)
    print(
        f"{np.median(seconds)} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}"
    )


def whole(rows: int) -> None:
    import bayeslaw

    fit = bayeslaw.fit(curves(rows), "anneal", preview=True, on_failure="ignore")
    print(f"{fit.seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="100,1000,5000,20000,100000")
    parser.add_argument(
        "--part",
        help="one measurement, printed as two numbers: gradient:ROWS or fit:ROWS",
    )
    options = parser.parse_args()
    if options.part:
        what, rows = options.part.split(":")
        {"gradient": gradient, "fit": whole}[what](int(rows))
        return
    print("| rows | gradient | a row | peak memory |\n|---|---|---|---|")
    for rows in (int(r) for r in options.rows.split(",")):
        seconds, memory = _measured(f"gradient:{rows}")
        print(
            f"| {rows:,} | {1e3 * seconds:.2f} ms | {1e9 * seconds / rows:.0f} ns | {memory:.2f} GiB |",
            flush=True,
        )
    seconds, memory = _measured("fit:20000")
    print(
        f"\nThe whole fit of 20,000 rows: {seconds:.0f} s, peak memory {memory:.2f} GiB"
    )


def _measured(part: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--part", part],
        check=True,
        capture_output=True,
        text=True,
    )
    seconds, memory = done.stdout.split()
    return float(seconds), float(memory)


if __name__ == "__main__":
    main()
