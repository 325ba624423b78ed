"""Kill whole commands at random moments, and check the files that they leave.

    python tests/studies/kills.py [--kills 60] [--seed 0] [-o docs/results/kills.txt]

Each command is run once to its end, to learn its duration and its output. Then it is
started many times and killed (SIGKILL) at a random moment, once with an output file from
before and once without. After each kill the output must be either unchanged, or complete
and equal to that of the undisturbed run; other files may only be hidden parts. A study is
not begun anew after a kill: it goes on until it ends.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import bayeslaw

TABLE = "runs.csv"
BAYESLAW = ("-m", "bayeslaw")
STUDY = str(Path(__file__).resolve().with_name("study.py"))
LATE = 1.05  # of the time that a command took, at most, to a kill
SHARE_OF_KILLS = {"fit": 0.4, "average": 0.25, "study": 0.25, "report": 0.1}


class Command(NamedTuple):
    """``arguments`` of Python; ``output``: what it writes; ``same``: whether two
    outputs are equal; ``resumes``: whether it goes on where it was killed.
    """

    arguments: list[str]
    output: str
    same: Callable[[Path, Path], bool]
    resumes: bool = False


def same_posterior(one: Path, other: Path) -> bool:
    """Both are read, and forecast the same."""
    posteriors = [bayeslaw.load(path) for path in (one, other)]
    forecasts = [p.log_loss(p.runs).mean(0) for p in posteriors]
    return np.allclose(*forecasts, rtol=1e-9)


def same_rows(one: Path, other: Path) -> bool:
    first, second = (pd.read_csv(path) for path in (one, other))
    pd.testing.assert_frame_equal(first, second, rtol=1e-9)
    return True


def same_page(one: Path, other: Path) -> bool:
    """Tell whether two pages are whole and of nearly the same length. Pages contain the
    seconds they took, so their bytes differ.
    """
    contents = [path.read_text() for path in (one, other)]
    is_whole = all(text.rstrip().endswith("</html>") for text in contents)
    first, second = map(len, contents)
    return is_whole and abs(first - second) < 0.01 * first


COMMANDS = {
    "fit": Command(
        [*BAYESLAW, "fit", TABLE, "--law", "chinchilla", "--preview", "-o", "fit.nc"],
        "fit.nc",
        same_posterior,
    ),
    "average": Command(
        [
            *BAYESLAW,
            "compare",
            TABLE,
            "--laws",
            "chinchilla,coupled",
            "-o",
            "average.nc",
        ],
        "average.nc",
        same_posterior,
    ),
    "study": Command(
        [
            *(STUDY, "anchors", "--laws", "ptpp-floor", "--seeds", "4"),
            *("--lists", "none,paper", "-o", "study.csv"),
        ],
        "study.csv",
        same_rows,
        resumes=True,
    ),
    "report": Command(
        [
            *BAYESLAW,
            "report",
            TABLE,
            "--law",
            "chinchilla",
            "--hold-out",
            "D",
            "-o",
            "page",
        ],
        "page/report.html",
        same_page,
    ),
}


def start(command: Command, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *command.arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def kill(process: subprocess.Popen) -> bool:
    """Kill a process and its children; tell whether it was still running."""
    had_ended = process.poll() is not None
    if not had_ended:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return not had_ended


def undisturbed(command: Command, folder: Path) -> float:
    """Measure the seconds of a command's second run, in which programs are already
    compiled.
    """
    for _ in range(2):
        shutil.rmtree(folder / Path(command.output).parts[0], ignore_errors=True)
        (folder / command.output).unlink(missing_ok=True)
        began = time.perf_counter()
        process = start(command, folder)
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(said.decode()[-2000:])
    return time.perf_counter() - began


def stray(folder: Path, command: Command) -> list[str]:
    """List the files beside the table and the output."""
    expected = {TABLE, Path(command.output).parts[0]}
    return [path.name for path in folder.iterdir() if path.name not in expected]


def trial(
    command: Command, home: Path, seconds: float, kills: int, rng: random.Random
) -> dict[str, int]:
    """Kill a command many times, and count what was left, by kind. ``home``: folder in
    which it ran undisturbed.
    """
    left = {"kills": 0, "ended": 0, "whole": 0, "none": 0, "bad": 0, "parts": 0}
    folder = Path(tempfile.mkdtemp())
    shutil.copy(home / TABLE, folder)
    whole, output = home / command.output, folder / command.output
    for turn in range(kills):
        if not command.resumes:
            shutil.rmtree(folder / "page", ignore_errors=True)
            output.unlink(missing_ok=True)
            if turn % 2:  # every other time there is one already
                output.parent.mkdir(exist_ok=True)
                shutil.copy(whole, output)
        process = start(command, folder)
        time.sleep(rng.uniform(0, LATE * seconds))
        left["kills" if kill(process) else "ended"] += 1
        if not output.exists():
            left["none"] += 1
        elif command.resumes or command.same(whole, output):
            left["whole"] += 1
        else:
            left["bad"] += 1
        names = stray(folder, command)
        left["parts"] += len(names)
        left["bad"] += any(not name.startswith(".") for name in names)
    if command.resumes:
        process = start(command, folder)
        process.communicate()
        left["bad"] += process.returncode != 0 or not command.same(whole, output)
    shutil.rmtree(folder)
    return left


HEAD = "| command | seconds | killed | ended first | output whole | none yet | bad | hidden parts |"


def study(kills: int, seed: int, names: list[str]) -> list[str]:
    """Build a line for each command."""
    rng, lines = random.Random(seed), [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    home = Path(tempfile.mkdtemp())
    bayeslaw.simulate("chinchilla", seed=5).to_csv(home / TABLE, index=False)
    for name in names:
        command = COMMANDS[name]
        seconds = undisturbed(command, home)
        times = round(SHARE_OF_KILLS[name] * kills)
        left = trial(command, home, seconds, times, rng)
        figures = [name, f"{seconds:.0f}", *left.values()]
        lines.append(f"| {' | '.join(map(str, figures))} |")
        print(lines[-1], flush=True)
    shutil.rmtree(home)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=COMMANDS, nargs="+", default=list(COMMANDS))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    lines = study(options.kills, options.seed, options.only)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
