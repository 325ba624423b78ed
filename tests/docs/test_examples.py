"""Every public function has an example, which runs and prints what it says."""

import doctest
import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bayeslaw

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
PRELUDE, ESTIMATOR = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
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
    run_example(name, bayeslaw, request, tmp_path, monkeypatch)


def run_example(name, package, request, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"bayeslaw": package, "Path": Path}
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


def as_arrow(value):
    """A table as another library holds it."""
    if isinstance(value, pd.DataFrame):
        return pa.Table.from_pandas(value, preserve_index=False)
    return value


class WithArrow:
    """`bayeslaw` called with tables of another library."""

    def __getattr__(self, name: str):
        there = getattr(bayeslaw, name)
        if not inspect.isroutine(there):
            return there

        def call(*args, **options):
            options = {name: as_arrow(value) for name, value in options.items()}
            return there(*map(as_arrow, args), **options)

        return call


@each
def test_it_takes_tables_of_other_libraries(name, request, tmp_path, monkeypatch):
    """Each example prints the same if its tables are Arrow's; a list of runs to buy names
    rows of the table's own index, which Arrow does not have.
    """
    if name != "anchors":
        run_example(name, WithArrow(), request, tmp_path, monkeypatch)


def test_the_estimator_forecasts_as_the_law_does():
    """The page's class, without scikit-learn's own methods."""
    names = {
        "bayeslaw": bayeslaw,
        "RegressorMixin": type("Mixin", (), {}),
        "BaseEstimator": object,
    }
    exec(compile(ESTIMATOR, str(PAGE), "exec"), names)
    runs = bayeslaw.simulate("chinchilla", seed=3).query("replay == 0.1")
    fitted = names["ScalingLaw"]("chinchilla").fit(runs[["N", "D"]], runs["loss"])
    median, interval = fitted.predict(runs[["N", "D"]], return_interval=True)
    fit = bayeslaw.fit(runs[["N", "D", "loss"]], "chinchilla", preview=True)
    same = bayeslaw.forecast(fit, runs[["N", "D"]])
    np.testing.assert_array_equal(median, same["median"])
    np.testing.assert_array_equal(interval, same[["low", "high"]])


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
