"""Every public function has an example, which runs and prints what it says."""

import doctest
import inspect
import re
import warnings
from pathlib import Path

import pytest

import bayeslaw

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
(PRELUDE,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[:1]
MADE = set(re.findall(r"^([a-z_, ]+) = ", PRELUDE, re.MULTILINE))
NAMES = {name for made in MADE for name in made.split(", ")}
LONG = {"report"}  # it needs none of these names


def public_functions() -> list[str]:
    """Names of `bayeslaw` that are functions."""
    return [n for n in dir(bayeslaw) if inspect.isroutine(getattr(bayeslaw, n))]


def example(name: str) -> doctest.DocTest:
    """The example in a function's docstring."""
    text = inspect.getdoc(getattr(bayeslaw, name)) or ""
    return doctest.DocTestParser().get_doctest(text, {}, name, str(PAGE), 0)


def is_quick(name: str) -> bool:
    """Whether an example needs no posterior."""
    words = {w for e in example(name).examples for w in re.findall(r"\w+", e.source)}
    return name not in LONG and not words & (NAMES | {"fit"})


each = pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if is_quick(n) else pytest.mark.slow)
        for n in public_functions()
    ],
)


@pytest.fixture(scope="module")
def made() -> dict:
    """What the page says that examples begin with."""
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(PRELUDE, str(PAGE), "exec"), names)
    return names


@each
def test_the_example_prints_what_it_says(name, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"bayeslaw": bayeslaw, "Path": Path}
    if is_quick(name):
        exec("import numpy as np\nimport pandas as pd", names)
    else:
        names |= request.getfixturevalue("made")
    found = example(name)
    found.globs = names
    runner, said = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = runner.run(found, out=said.append)
    assert result.attempted
    assert not result.failed, "".join(said)


@pytest.mark.parametrize("name", public_functions())
def test_every_public_function_has_one(name):
    """With a heading that the site shows."""
    assert example(name).examples
    assert "Examples\n--------" in (inspect.getdoc(getattr(bayeslaw, name)) or "")


def test_a_wrong_example_is_seen():
    """What an example prints is compared, also where it prints too little."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    wrong = parser.get_doctest(">>> 1 + 1\n3\n", {}, "wrong", "here", 0)
    assert runner.run(wrong, out=lambda text: None).failed == 1
