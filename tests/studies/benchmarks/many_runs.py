"""Time a preview of a table of many runs, each with ten points.

python tests/studies/benchmarks/many_runs.py [--runs 2000]

Runs are of twelve sizes with ten points each; errors are a run's own (.4%) and change along it. Prints seconds, and CPU
seconds of the process, of reading, the quick report and its page.
"""

import argparse
import tempfile
import time
import warnings

import numpy as np
import pandas as pd

import bayeslaw


def make_runs(runs: int, points: int = 10) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    N = np.resize(np.geomspace(2e7, 3e9, 12), runs)[:, None]
    D = N * np.geomspace(1, 40, points)
    log_loss = np.log(1.7 + 400 / N**0.34 + 410 / D**0.28)
    log_loss += 0.004 * rng.standard_normal((runs, 1))
    log_loss += np.cumsum(0.001 * rng.standard_normal((runs, points)), axis=1)
    names = [f"run {i}" for i in range(runs)]
    return pd.DataFrame(
        {
            "run": np.repeat(names, points),
            "N": np.repeat(N.ravel(), points),
            "D": D.ravel(),
            "loss": np.exp(log_loss).ravel(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    table = make_runs(parser.parse_args().runs)
    warnings.simplefilter("ignore")
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        bayeslaw.report(table, folder, quick=True)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(f"{len(table)} rows: {seconds:.0f} s, {cpu:.0f} CPU s")


if __name__ == "__main__":
    main()
