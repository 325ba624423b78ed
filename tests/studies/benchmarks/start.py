"""A user's wait, from process start to the end of a command: docs/speed.md.

    python tests/studies/benchmarks/start.py [--laws chinchilla ptpp-gate-floor | --laws all] [--only page plan] [-o tests/studies/benchmarks/starts.csv]

Each command runs twice, each time as a process of its own: with nothing compiled on disk (cold), then with what the first left there
(second). CPU seconds are those of the process and all that it started, so that other work on the machine counts less. Tables: Form 3
(`ptpp-gate-floor`) on the simulated grid of Goffinet 2025 at ptpp 15 and 31 (168 runs), errors independent; every other law on what
`bayeslaw simulate` makes of it; average, plan and page on the simulated table of the README.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import bayeslaw
from bayeslaw import datasets

FORM_3 = "ptpp-gate-floor"
PLAN = (
    "--N 8.1B --ptpp 279 --max-target-loss 1.8 --max-forgetting 2% --baseline-loss 1.64"
)


class Case(NamedTuple):
    """A command in words."""

    name: str
    words: str


POINT = "import sys, bayeslaw; bayeslaw.point_fit(bayeslaw.read_runs(sys.argv[1]), bayeslaw.law(sys.argv[2]))"
CASES = [
    Case("import", "-c pass"),
    Case("laws", "laws"),
    Case("preview of Form 3", f"fit grid.csv --law {FORM_3} --independent --preview -o preview.nc"),
    Case("point fit of Form 3", f"-c point grid.csv {FORM_3}"),
    Case("average, target", "fit runs.csv --where domain=='target' -o target.nc"),
    Case("average, source", "fit runs.csv --where domain=='source' -o source.nc"),
    Case("plan on both", f"plan --target target.nc --source source.nc {PLAN}"),
    Case("follow", "follow target.nc curve.csv --until 80B --max-loss 1.8"),
    Case("page", "report -o page"),
]  # fmt: skip


def of_law(name: str) -> Case:
    table = "grid.csv" if name == FORM_3 else f"{name}.csv"
    return Case(
        f"fit of {name}",
        f"fit {table} --law {name} --independent --accept-diagnostics -o fit.nc",
    )


def write_tables(folder: Path, laws: list[str]) -> None:
    grid = bayeslaw.simulate(FORM_3, seed=1).query("ptpp <= 31")
    grid.drop(columns=["run", "checkpoint"]).to_csv(folder / "grid.csv", index=False)
    runs = datasets.load("simulated-ptpp-grid")
    runs.to_csv(folder / "runs.csv", index=False)
    held = runs.query("ptpp == 279 and domain == 'target'")
    _, one = max(held.groupby(["N", "replay"]), key=lambda group: len(group[1]))
    one.drop(columns=["run", "checkpoint"]).to_csv(folder / "curve.csv", index=False)
    for name in laws:
        bayeslaw.simulate(name, seed=1).to_csv(folder / f"{name}.csv", index=False)


def waited(case: Case, folder: Path, cache: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a case."""
    words = case.words.split()
    program = ["-c", "import bayeslaw" if words[1] == "pass" else POINT] if words[0] == "-c" else ["-m", "bayeslaw"]  # fmt: skip
    given = words[2:] if words[0] == "-c" else words
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *program, *given],
        cwd=folder,
        env=os.environ | {"BAYESLAW_CACHE": str(cache)},
        capture_output=True,
        text=True,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: there is no plan, a check failed
        sys.exit(f"{case.name}: {done.stderr}")
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return wall, user + system


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--laws", nargs="*", default=["chinchilla", FORM_3])
    parser.add_argument("--only", nargs="*", help="cases whose name has one of these")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    made = set(
        bayeslaw.simulate(FORM_3, seed=1)
    )  # what is simulated: no learning curves
    every = [law.name for law in bayeslaw.laws() if set(law.covariates) <= made]
    laws = every if options.laws == ["all"] else options.laws
    cases = CASES[:4] + [of_law(name) for name in laws] + CASES[4:]
    if options.only:
        cases = [c for c in cases if any(part in c.name for part in options.only)]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, [law for law in laws if law != FORM_3])
        for case in cases:
            with tempfile.TemporaryDirectory() as cache:
                cold = waited(case, folder, Path(cache))
                second = waited(case, folder, Path(cache))
            row = (case.name, *(f"{seconds:.1f}" for seconds in (*cold, *second)))
            print(*row, sep="\t", flush=True)
            rows.append(row)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if options.output:
        columns = ["wait", "cold, s", "cold, CPU s", "second, s", "second, CPU s"]
        pd.DataFrame(rows, columns=columns).to_csv(options.output, index=False)


if __name__ == "__main__":
    main()
