"""Notebooks are kept without outputs, and run."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUICK = ("own_law",)  # the others are run by `pytest -m slow`

named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
run = pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow)
        for p in NOTEBOOKS
    ],
    ids=lambda p: p.stem,
)


@pytest.fixture(scope="module")
def runner(script):
    """The command that runs them for the site."""
    return script("../docs/run_notebooks.py")


def test_all_are_there():
    """A notebook for each tutorial that was promised."""
    assert {p.stem for p in NOTEBOOKS} >= {
        "first_forecast",
        "paper_with_uncertainty",
        "plan",
        "schedules",
        "own_law",
    }


@named
def test_stripped(path: Path):
    """No outputs, counts, or a machine's paths are kept in the file."""
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            compile("".join(cell["source"]), path.name, "exec")
        assert not re.search(r"/(home|work|tmp|Users)/", "".join(cell["source"]))


@run
def test_runs(path: Path, tmp_path: Path, runner):
    """Every cell runs from a fresh kernel, in a folder of its own, and draws pictures."""
    for name in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(name, reason=f"needs the extra test ({name})")
    cells = [
        c for c in runner.executed(path.stem, tmp_path).cells if c.cell_type == "code"
    ]
    pictures = [
        o for cell in cells for o in cell.outputs if "image/png" in o.get("data", {})
    ]
    drawn = sum("plt.show()" in "".join(cell.source) for cell in cells)
    assert len(pictures) >= max(drawn, 1)


@named
def test_the_site_shows_what_this_code_made(path: Path, runner):
    """Outputs kept for the site are of this code, show every picture, and name no path of a machine."""
    kept = json.loads((runner.OUTPUTS / f"{path.stem}.json").read_text())
    assert kept["code"] == runner.code_of(path.stem), (
        f"run: python docs/run_notebooks.py {path.stem}"
    )
    cells = json.loads(path.read_text())["cells"]
    for i, cell in enumerate(cells):
        shown = kept["cells"].get(str(i), [])
        if cell["cell_type"] == "code" and "plt.show()" in "".join(cell["source"]):
            assert [
                o for o in shown if (runner.OUTPUTS / o.get("picture", "-")).is_file()
            ], i
        for output in shown:
            assert not re.search(
                r"/(home|work|tmp|Users)/|Warning|Error", output.get("text", "")
            ), output
