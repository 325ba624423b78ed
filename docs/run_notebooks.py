"""Run notebooks and keep what they print and draw for the site: ``python
docs/run_notebooks.py [NAME ...]`` (default: all).

Notebooks are kept without outputs; the site shows those of the last run of this
command, in ``docs/outputs``. A test fails where a notebook's code has changed since.
"""

import argparse
import base64
import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "notebooks"
OUTPUTS = DOCS / "outputs"
SECONDS = 900  # of one cell
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def code_of(name: str) -> str:
    """Digest of a notebook's code."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def executed(name: str, folder: Path) -> Any:
    """The notebook with its outputs, run from a fresh kernel in a folder."""
    import nbclient
    import nbformat

    read = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    (folder / "docs").symlink_to(DOCS)  # kept tables of studies
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        read, timeout=SECONDS, kernel_name="python3", resources=resources
    ).execute()
    return read


def kept(output: Any, picture: Path) -> dict[str, str] | None:
    """What the site shows of an output: a picture, written to a file, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return {"picture": picture.name}
    text = (
        output.get("text", "")
        if output.get("name") == "stdout"
        else data.get("text/plain", "")
    )
    text = ADDRESS.sub("", COLOURS.sub("", "".join(text))).rstrip()
    return {"text": text} if text else None


def keep(name: str) -> None:
    """Run one notebook and write its outputs."""
    OUTPUTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        cells = executed(name, Path(folder)).cells
    for old in OUTPUTS.glob(f"{name}-*.png"):
        old.unlink()
    found = {}
    for i, cell in enumerate(cells):
        shown = [
            kept(o, OUTPUTS / f"{name}-{i}-{k}.png")
            for k, o in enumerate(cell.get("outputs", []))
        ]
        if any(shown):
            found[str(i)] = [s for s in shown if s]
    (OUTPUTS / f"{name}.json").write_text(
        json.dumps({"code": code_of(name), "cells": found}, indent=1) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", default=sorted(p.stem for p in NOTEBOOKS.glob("*.ipynb"))
    )
    for name in parser.parse_args().names:
        print(name, flush=True)
        keep(name)


if __name__ == "__main__":
    main()
