"""What is shown to users imports public names only."""

import json
import re
from pathlib import Path

import pytest

ROOT = next(p for p in Path(__file__).parents if (p / "pyproject.toml").is_file())
PRIVATE = re.compile(r"bayeslaw\._\w+|from bayeslaw import .*\b_\w+")
FENCED = re.compile(r"```(?:python|sh)\n(.*?)```", re.DOTALL)


def texts() -> dict[str, str]:
    """Code of the notebooks, of the pages, and of what builds them, by file."""
    code = {}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        shown = [c["source"] for c in cells if c["cell_type"] == "code"]
        code[path.name] = "\n".join("".join(lines) for lines in shown)
    pages = [
        ROOT / "README.md",
        ROOT / "AGENTS.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for path in pages:
        code[path.name] = "\n".join(FENCED.findall(path.read_text()))
    for path in [*(ROOT / "docs").glob("*.py"), *(ROOT / "docs/_ext").glob("*.py")]:
        code[path.name] = path.read_text()
    return code


@pytest.mark.parametrize("name", sorted(texts()))
def test_public_names_only(name):
    assert not PRIVATE.findall(texts()[name])


@pytest.mark.parametrize(
    "line", ["from bayeslaw._law.law import Law", "from bayeslaw import plots, _base"]
)
def test_a_private_name_is_seen(line):
    assert PRIVATE.search(line)
