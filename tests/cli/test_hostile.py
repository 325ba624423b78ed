"""Hostile files and words: nothing of them is run, written or sent; each is refused or read as data.

In a process of its own, under a hook that sees every program started, every file opened for writing, removed or renamed, every
socket, and every piece of code compiled from a file of the attacker's folder.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from known.saved import save_fit

GUARD = """
import os, sys
from pathlib import Path

folder = Path(sys.argv[1])
os.chdir(folder)
import numpy, pandas, jax.numpy, xarray, h5netcdf, arviz_base, scipy.stats, pyarrow.parquet
import bayeslaw
from bayeslaw._base.machine import runtime
from bayeslaw.cli.parsing import prior_file
bayeslaw.load(folder / "good.nc").log_loss(bayeslaw.simulate("chinchilla"))  # imports and compiles what loading needs

seen = []
STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "pty.spawn",
          "socket.", "urllib.Request", "ctypes.dlopen", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "shutil.")

def hook(event, arguments):
    if event.startswith(STARTS):
        seen.append(f"{event} {arguments}")
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen.append(f"write {arguments[0]}")
    if event == "compile" and isinstance(arguments[1], str) and str(folder) in arguments[1]:
        seen.append(f"run {arguments[1]}")

sys.addaudithook(hook)

def attempt(what, *arguments):
    # refused in one line, or read as data: a value
    try:
        what(*arguments)
        return "read"
    except bayeslaw.BayeslawError as error:
        assert "\\n" not in str(error), error
        return "refused"
"""


def under_guard(folder: Path, attacks: str) -> tuple[list[str], list[str]]:
    """What came of each attack, and what the hook saw."""
    script = f"{GUARD}\n{attacks}\nimport json\nprint(json.dumps([outcomes, seen]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes, seen = json.loads(done.stdout.splitlines()[-1])
    assert not (folder / "marker").exists()
    return outcomes, seen


EVIL = "import pathlib; pathlib.Path('marker').touch()"


@pytest.fixture
def folder(tmp_path):
    save_fit(tmp_path / "good.nc")
    (tmp_path / "evil.py").write_text(f"{EVIL}\nLAW = None\n")
    (tmp_path / "sitecustomize.py").write_text(EVIL)
    (tmp_path / "good.csv").write_text("N,D,loss\n1e9,1e10,3.0\n2e9,2e10,2.9\n")
    return tmp_path


def test_the_guard_sees_what_it_should(folder):
    """A program, a file and a socket: without this the tests below prove nothing."""
    attacks = """
import socket, subprocess
os.system("true")
subprocess.run(["true"])
open("written", "w").close()
socket.socket().close()
exec(compile("1", str(folder / "evil.py"), "exec"))
outcomes = []
"""
    _, seen = under_guard(folder, attacks)
    kinds = {line.split()[0] for line in seen}
    assert {"os.system", "subprocess.Popen", "write", "socket.__new__", "run"} <= kinds


FORMULAS = [
    "__import__('os').system('touch marker') + A/N^alpha",
    "E + A/N^alpha + open('marker','w')",
    "E.__class__ + A/N^alpha",
    "E + exec(1)/N^alpha",
    "(lambda: 0)() + A/N^alpha",
    "E + A/N^" + "9" * 400,
    "E" + " + (" * 2000 + "A/N^alpha" + ")" * 2000,
]


def test_formulas_run_nothing(folder):
    """Nor do queries: `tests/tables/test_where.py`, under such a hook."""
    attacks = f"outcomes = [attempt(bayeslaw.find_law, text) for text in {FORMULAS!r}]"
    outcomes, seen = under_guard(folder, attacks)
    assert outcomes == ["refused"] * len(FORMULAS)
    assert seen == []


def test_files_of_all_kinds_run_nothing(folder):
    """Pickles under other names, priors that are expressions, a table that names functions, a folder, a pipe of text."""
    pickled = b"cos\nsystem\n(S'touch marker'\ntR."
    for name in (
        "a.csv",
        "a.parquet",
        "a.csv.gz",
        "a.nc",
        "a.jsonl",
        "a.toml",
        "a.zip",
    ):
        (folder / name).write_bytes(pickled)
    (folder / "p.toml").write_text(
        "[priors]\nalpha = \"__import__('os').system('touch marker')\"\n"
    )
    (folder / "q.toml").write_text(
        "[priors]\nalpha = \"lognormal(__import__('os'), 1)\"\n"
    )
    (folder / "cells.csv").write_text("N,D,loss\n\"=cmd|'/c calc'!A1\",1e9,2.0\n")
    attacks = """
outcomes = [attempt(bayeslaw.read_runs, folder / name) for name in ("a.csv", "a.parquet", "a.csv.gz", "a.jsonl", "a.zip", "cells.csv")]
outcomes += [attempt(bayeslaw.load, folder / "a.nc")]
def fitted(path):
    law = bayeslaw.law("chinchilla")
    return law.with_priors(prior_file(path)["priors"])
outcomes += [attempt(fitted, folder / name) for name in ("a.toml", "p.toml", "q.toml")]
"""
    outcomes, seen = under_guard(folder, attacks)
    assert outcomes[0] in ("read", "refused")  # a text of one column is a table of it
    assert set(outcomes[1:]) == {"refused"}
    assert seen == []


@pytest.mark.parametrize(
    "named", ["evil.py", "./evil.py", "../{}/evil.py", "{folder}/evil.py"]
)
def test_an_artifact_runs_no_law_file_that_it_names(folder, named):
    """By any path; and no formula of its own."""
    import h5netcdf

    path = named.format(folder.name, folder=folder)
    with h5netcdf.File(folder / "good.nc", "a") as file:
        recipe = json.loads(file.attrs["law_recipe"])
        recipe["origin"] = f"file:{path}"
        file.attrs["law_recipe"] = json.dumps(recipe)
    (folder / "bad.nc").write_bytes((folder / "good.nc").read_bytes())
    save_fit(folder / "good.nc")
    outcomes, seen = under_guard(
        folder, "outcomes = [attempt(bayeslaw.load, folder / 'bad.nc')]"
    )
    assert outcomes == ["refused"]
    assert seen == []
