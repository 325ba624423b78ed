"""An average by its number of laws: seconds of the first (nothing compiled) and of the second in one process.

    python tests/studies/benchmarks/laws.py

Table: the simulated grid of Goffinet 2025 at ptpp 15 and 31 (168 runs); stages, sizes and budgets left out in turn.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings

FORMS = ("ptpp-floor", "dcpt", "ptpp-gate", "ptpp-gate-floor")


def measure(count: int) -> None:
    import bayeslaw

    warnings.simplefilter("ignore")
    runs = bayeslaw.simulate("ptpp-gate-floor", seed=1).query("ptpp <= 31")
    for seed in (0, 1):
        began = time.perf_counter()
        bayeslaw.average(runs, FORMS[:count], seed=seed)
        print(time.perf_counter() - began)


def main() -> None:
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
        return
    print("| laws | first | second |\n|---|---|---|")
    for count in (1, 2, 4):
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"BAYESLAW_CACHE": cache}
            command = [sys.executable, __file__, str(count)]
            done = subprocess.run(
                command, env=environment, check=True, capture_output=True, text=True
            )
        first, second = (float(line) for line in done.stdout.split())
        print(f"| {count} | {first:.1f} s | {second:.1f} s |", flush=True)


if __name__ == "__main__":
    main()
