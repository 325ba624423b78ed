"""Recipes for maintainers name files and functions that exist today."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
FILES = [
    path
    for folder in ("bayeslaw", "models", "tests", "docs")
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
]
PLACES = [path.relative_to(ROOT).as_posix() for path in FILES]


def code_of(page):
    """What a page writes between backticks."""
    return re.findall(r"`([^`\n]+)`", (ROOT / page).read_text())


@pytest.mark.parametrize("page", PAGES)
def test_each_file_that_is_named_exists(page):
    words = {word for code in code_of(page) for word in re.split(r"[\s=]", code)}
    named = [
        word.rstrip("/")
        for word in words
        if ("/" in word or word.endswith(".py")) and not re.search(r"NAME|[*(]", word)
    ]
    assert len(named) > 10
    missing = [
        name
        for name in named
        if not any(f"/{place}".endswith(f"/{name}") for place in PLACES)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_each_function_that_is_named_exists(page):
    """As a word of the code, which a rename leaves nowhere."""
    code = [path for path in FILES if path.suffix in (".py", ".pyi", ".js", ".toml")]
    words = {
        word for path in code for word in re.findall(r"\w+", path.read_text("utf8"))
    }
    named = {
        code.partition("(")[0].rpartition(".")[2]
        for code in code_of(page)
        if re.fullmatch(r"[\w.]+(\(.*\))?", code)
    }
    assert len(named) > 10
    assert not named - words
