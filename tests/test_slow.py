"""The list of tests that take long."""

from pathlib import Path

import pytest
from slow import slow_tests

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", sorted(slow_tests()))
def test_what_is_listed_is_there(name):
    file, _, test = name.partition("[")[0].partition("::")
    text = (ROOT / file).read_text()
    assert not test or f"def {test}(" in text
