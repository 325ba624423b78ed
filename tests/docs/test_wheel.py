"""What is built from this folder installs, and works from another one."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = (  # of which a wheel without one would import, and fail later
    "bayeslaw/py.typed",
    "bayeslaw/__init__.pyi",
    "bayeslaw/_report/templates/page/page.html.jinja",
    "bayeslaw/_report/templates/page/uplot.min.js",
    "bayeslaw/datasets/microcpt.csv",
    "bayeslaw/models/chinchilla.py",
)
NOT_SHIPPED = ("tests/", "docs/", "notebooks/", "build/")
SCRIPT = """
import json, sys
from pathlib import Path
import bayeslaw
from bayeslaw import datasets

inside = Path(sys.prefix).resolve()
assert Path(bayeslaw.__file__).resolve().is_relative_to(inside), bayeslaw.__file__
names = list(datasets.TABLES)
tables = {name: datasets.load(name) for name in names}
assert all(len(table) and "loss" in table for table in tables.values())
runs = bayeslaw.simulate("chinchilla", seed=1)
run = runs[runs["N"] == runs["N"].min()].drop_duplicates("D")
runs.to_csv("runs.csv", index=False)
run.assign(run="a").to_csv("run.csv", index=False)
print(json.dumps(names))
"""

pytestmark = pytest.mark.slow


def call(*words: object, folder: Path) -> str:
    """What a command prints, told nothing of this checkout."""
    told = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    environment = {k: v for k, v in os.environ.items() if k not in told}
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """The files that git keeps or would keep, and nothing that was built from them."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(
        listed, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    folder = tmp_path_factory.mktemp("sources")
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # not one that was deleted
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(sources) -> tuple[str, Path, Path]:
    """What the build said, the sdist, and the wheel that was built from the sdist."""
    pytest.importorskip("build", reason="needs the extra test")
    said = call(sys.executable, "-m", "build", ".", folder=sources)
    (sdist,) = (sources / "dist").glob("*.tar.gz")
    (wheel,) = (sources / "dist").glob("*.whl")
    return said, sdist, wheel


def test_it_builds_without_a_warning(built):
    said = [
        line for line in built[0].splitlines() if "ignored: it is neither" not in line
    ]
    assert not [line for line in said if "warning" in line.lower()]
    assert not [line for line in said if "would be ignored" in line]


def test_the_wheel_has_what_is_used_and_nothing_else(built):
    names = zipfile.ZipFile(built[2]).namelist()
    assert set(SHIPPED) <= set(names)
    tops = {name.split("/")[0] for name in names}
    assert tops - {"bayeslaw"} == {t for t in tops if t.endswith(".dist-info")}
    with tarfile.open(built[1]) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= set(inside)
    assert not [name for name in inside if name.startswith(NOT_SHIPPED)]


def test_a_wheel_of_the_folder_is_that_of_the_sdist(built, sources, tmp_path):
    """The same files, byte for byte."""
    command = (sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ".")
    call(*command, folder=sources)
    (direct,) = tmp_path.glob("*.whl")
    ours, theirs = (zipfile.ZipFile(wheel) for wheel in (direct, built[2]))
    assert sorted(ours.namelist()) == sorted(theirs.namelist())
    assert not [n for n in ours.namelist() if ours.read(n) != theirs.read(n)]


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The programs of a fresh environment with the wheel, which borrows what it depends
    on from this one, though not this one's own link to the checkout.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = Path(call(python, "-c", purelib, folder=folder).strip())
    # what is on a path file's lines is searched, its own path files are not followed
    (own / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    call(*pip, "--no-deps", "--no-index", built[2], folder=folder)
    return programs


def test_the_main_job_runs_from_another_folder(installed, tmp_path):
    """Laws, bundled tables, a fit and a page, of the installed files alone."""
    program = installed / "bayeslaw"
    listed = call(program, "laws", "--json", folder=tmp_path).splitlines()[0]
    assert len(json.loads(listed)) == len(list((ROOT / "models").glob("[!_]*.py")))
    names = call(installed / "python", "-P", "-c", SCRIPT, folder=tmp_path)
    assert "microcpt" in names
    fitted = ("fit", "runs.csv", "--law", "chinchilla", "--preview", "-o", "fit.nc")
    call(program, *fitted, folder=tmp_path)
    followed = ("follow", "fit.nc", "run.csv", "--until", "10T", "--page", "page.html")
    call(program, *followed, folder=tmp_path)
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") + page.count("<canvas") > 0
    assert "</html>" in page
    said = call(program, "--version", folder=tmp_path)
    # pyproject.toml is the one place that has it
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert said.split()[1] == project["version"]
