"""A strict start: float64 as in inference, shapes broadcast only where it is written,
and the measured tables where they are.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from measured import SHARED
from slow import slow_tests

from known.browser import chromium
from shapes import check_shapes

# read when JAX is imported, here and in the processes that tests start
os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
# before any test imports them
check_shapes(
    "_base",
    "_designs",
    "_forecasts",
    "_inference",
    "_law",
    "_plans",
    "_pooling",
    "_posteriors",
    "_running",
    "_schedules",
    "_tables",
)


def pytest_configure(config):
    import bayeslaw.models
    from bayeslaw._base.machine import runtime

    ours = Path(__file__).parents[1] / "models"
    of_package = [Path(folder).resolve() for folder in bayeslaw.models.__path__]
    if ours.is_dir() and ours.resolve() not in of_package:
        pytest.exit(f"bayeslaw.models is of another checkout: {of_package[0]}", 3)
    runtime.start()


@pytest.hookimpl(tryfirst=True)  # before those marked are left out
def pytest_collection_modifyitems(items):
    listed = slow_tests()
    for item in items:
        function = item.nodeid.partition("[")[0]
        file = function.partition("::")[0]
        if not listed.isdisjoint({item.nodeid, function, file}):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module", autouse=True)
def _let_go_of_programs():
    """Drop a file's compiled programs when it is done.

    Each is a few memory maps of the process, of which Linux allows 65,530: a worker that kept those of all files died in the compiler.
    """
    yield
    import jax

    jax.clear_caches()


@pytest.fixture(scope="module")
def browser():
    """A real browser; skips where there is none."""
    with chromium() as driven:
        yield driven


@pytest.fixture(scope="session", autouse=True)
def _watched():
    """Commands of this process answer before the eyes of `known.answers`."""
    from known.answers import watched_answers  # after the hook that checks shapes

    with watched_answers():
        yield


@pytest.fixture(autouse=True)
def _as_schemas_say(_watched):
    """No answer in JSON has a key, or a type, that its schema has not."""
    from known.answers import wrong

    yield
    told = [*wrong]
    wrong.clear()
    assert not told, told


def _shared(*parts: str) -> Path:
    path = SHARED.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"needs {path}, which is not on this machine (set BAYESLAW_SHARED)")
    return path


@pytest.fixture(scope="session")
def data():
    """Path of a measured table by name; skips where it is absent."""
    return lambda name: _shared("data", name)


@pytest.fixture(scope="session")
def published():
    """Path of a table of published numbers by name; skips where it is absent."""
    return lambda name: _shared("reference", name)


@pytest.fixture(scope="session")
def script():
    """A script (study, benchmark, of the docs) as a module, by its path from this folder."""

    def load(path: str):
        name = f"script_{Path(path).stem}"
        spec = importlib.util.spec_from_file_location(
            name, Path(__file__).parent / path
        )
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return load
