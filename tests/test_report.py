"""The page: made from the bundled table, complete in one file, and saying what the check says."""

import base64
import re

import pytest

import bayeslaw
from bayeslaw import RunTableError, datasets
from bayeslaw.datasets import make_simulated


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with pytest.warns(UserWarning, match="two levels only"):
        return bayeslaw.report(output=tmp_path_factory.mktemp("report"))


def test_the_bundled_table_is_what_its_recipe_makes():
    table = make_simulated.make()
    bundled = datasets.load("simulated-ptpp-grid")
    assert list(bundled["run"]) == list(table["run"])
    assert abs(bundled["loss"].to_numpy() - table["loss"].to_numpy()).max() < 1e-9


def test_an_unknown_table_lists_the_known():
    with pytest.raises(RunTableError, match="simulated-ptpp-grid"):
        datasets.load("nosuch")


def test_the_page_is_one_file_that_asks_for_nothing_else(made):
    page = made.path.read_text()
    assert made.path.stat().st_size < 5e6
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert not re.search(r"https?://|@import|url\(", page)
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page)
    assert len(pictures) >= 8
    assert all(base64.b64decode(data).startswith(b"\x89PNG") and len(alt) > 20 for data, alt in pictures)


def test_the_page_says_simulated_and_repeats_the_verdicts(made):
    page = made.path.read_text()
    assert "SIMULATED" in page
    assert set(made.checks) == {"target", "source"}
    for domain, result in made.checks.items():
        assert re.search(f"<b>{domain}: {result.verdict}", page)
    assert "bayeslaw report --law ptpp-gate-floor" in page


def test_a_table_without_a_second_level_says_what_to_do(tmp_path):
    runs = bayeslaw.simulate("dcpt").query("ptpp == 15")
    with pytest.raises(RunTableError, match="nothing to hold out"):
        bayeslaw.report(runs, tmp_path)
    assert list(tmp_path.iterdir()) == []
