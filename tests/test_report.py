"""The page: made from the bundled table, complete in one file, and saying what the check says."""

import base64
import re

import pytest

import bayeslaw
from bayeslaw import RunTableError, datasets
from bayeslaw.datasets import make_simulated

ASKED = {"N": 1e9, "ptpp": 30.0, "max_target_loss": 2.0, "max_forgetting": 0.02}


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


def test_the_plan_on_the_page_is_the_planner_s(made):
    """The sentence is that of `plan` on the two fits, asked what the bundled table comes with."""
    from bayeslaw._plan_example import QUESTION

    again = bayeslaw.plan(made.fits["target"], made.fits["source"], **QUESTION)
    assert made.plan is not None
    assert again.to_dict() == made.plan.to_dict()
    assert made.plan.sentence().splitlines()[0] in made.path.read_text()
    assert made.plan.probability >= 0.9


@pytest.mark.parametrize(
    ("question", "says"), [(ASKED | {"size": 3}, "unexpected keyword"), ({"N": 1e9}, "missing a required")]
)
def test_a_question_is_checked_before_anything_is_fitted(tmp_path, question, says):
    with pytest.raises(bayeslaw.PlanError, match=says):
        bayeslaw.report(datasets.load(), tmp_path, question=question)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_a_second_level_says_what_to_do(tmp_path):
    runs = bayeslaw.simulate("dcpt").query("ptpp == 15")
    with pytest.raises(RunTableError, match="nothing to hold out"):
        bayeslaw.report(runs, tmp_path)
    assert list(tmp_path.iterdir()) == []
