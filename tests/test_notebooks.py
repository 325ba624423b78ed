"""Notebooks are kept without outputs, and run."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 900  # of one cell, on a machine that others use too

QUICK = ("first_forecast", "measured_runs", "own_law")  # the others are run by `pytest -m slow`

named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
run = pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=() if p.stem in QUICK else pytest.mark.slow) for p in NOTEBOOKS],
    ids=lambda p: p.stem,
)


def test_all_are_there():
    """A notebook for each tutorial that was promised."""
    assert {p.stem for p in NOTEBOOKS} >= {"first_forecast", "paper_with_uncertainty", "plan", "schedules", "own_law"}


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
def test_runs(path: Path, tmp_path: Path):
    """Every cell runs from a fresh kernel, in a folder of its own, and draws pictures."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra test (nbclient)")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra test (nbclient)")
    pytest.importorskip("ipykernel", reason="needs the extra test (ipykernel)")
    notebook = nbformat.read(path, as_version=4)
    (tmp_path / "docs").symlink_to(FOLDER.parent / "docs")  # kept tables of studies
    nbclient.NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    drawn = sum("plt.show()" in "".join(cell.source) for cell in notebook.cells if cell.cell_type == "code")
    assert len(pictures) >= max(drawn, 1)
