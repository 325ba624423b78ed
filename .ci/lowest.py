"""The lowest versions that pyproject.toml allows, as constraints for pip.

python .ci/lowest.py [EXTRA ...] > lowest.txt
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUND = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?\s*>=\s*([\w.]+)")


def lowest(extras: list[str]) -> list[str]:
    """A line for each dependency of the package and of these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = list(project["dependencies"])
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    found = filter(None, map(BOUND.match, asked))
    return [f"{name}=={version}" for name, version in (m.groups() for m in found)]


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
