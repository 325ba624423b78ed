"""A strict start: float64 as in inference, and the measured tables where they are."""

import os
from pathlib import Path

import pytest

from bayeslaw import _engine

SHARED = Path(os.environ.get("BAYESLAW_SHARED", Path(__file__).parents[2] / "shared"))


def pytest_configure(config):
    _engine.start()


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
