"""Which tests take long: `slow.txt`, by file, test, or case of a test."""

from pathlib import Path


def slow_tests() -> set[str]:
    """As pytest names them, from this folder's parent."""
    lines = Path(__file__).with_suffix(".txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}
