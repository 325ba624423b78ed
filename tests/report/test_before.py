"""The page before the first run: marked, with the first runs to buy and what they are
worth.
"""

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._report.pages.before import first_outcomes, prior_curves
from bayeslaw.cli.app import app

AHEAD = pd.DataFrame({"N": [1e9, 7e9], "D": [2e10, 1.4e11]})


@pytest.fixture(scope="module")
def nothing():
    return bayeslaw.prior_only("chinchilla", AHEAD)


@pytest.fixture(scope="module")
def page(nothing, tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    return bayeslaw.prior_page(nothing, AHEAD, folder / "new" / "report.html")


class Text(HTMLParser):
    """The texts of elements with an id, and pictures."""

    def __init__(self):
        super().__init__()
        self.ids: set[str] = set()
        self.pictures = 0

    def handle_starttag(self, tag, attrs):
        self.ids |= {value for name, value in attrs if name == "id"}
        self.pictures += tag == "img"


def test_the_page_is_marked_and_has_pictures_and_runs_to_buy(page):
    html = page.path.read_text()
    text = Text()
    text.feed(html)
    assert {"b-nothing", "b-forecast", "b-first", "b-priors"} <= text.ids
    assert "b-plan" not in text.ids
    assert text.pictures == 2
    assert "Nothing is measured yet" in html
    assert "http" not in html.replace("http-equiv", "")  # asks for nothing else


def test_the_first_runs_cost_a_fiftieth_and_say_what_they_are_worth(page):
    assert page.first.spent <= 0.02 * 6 * 7e9 * 1.4e11
    assert page.first.goal_sd_after < 0.5 * page.first.goal_sd_before
    assert f"{page.first.goal_sd_before:.2%}" in page.first.sentence()
    assert (page.offered["N"] <= 7e9 / 8).all()


def test_the_forecast_is_that_of_the_prior(page, nothing):
    pd.testing.assert_frame_equal(
        page.forecast, bayeslaw.forecast(nothing, AHEAD, keep=True)
    )
    assert page.to_dict()["prior_only"] is True
    assert json.loads(json.dumps(page.to_dict()))["warnings"]


def test_curves_show_the_priors_bands(nothing):
    ax = prior_curves(Figure().subplots(), nothing, AHEAD.iloc[1], count=7)
    assert len(ax.lines) == 1 + 7
    at_goal = np.interp(1.4e11, *ax.lines[0].get_data())
    middle = np.exp(np.median(nothing.log_loss(AHEAD)[:, 1]))
    assert at_goal == pytest.approx(middle, rel=0.01)


def test_outcomes_have_a_row_for_each_run_on_offer(nothing, page):
    ax = first_outcomes(Figure().subplots(), nothing, page.offered)
    assert len(ax.get_yticks()) == len(page.offered)


def test_what_is_missing_is_said(nothing, tmp_path):
    with pytest.raises(PlanError, match="give runs to forecast"):
        bayeslaw.prior_page(nothing, None, tmp_path / "a.html")
    with pytest.raises(PlanError, match="is a folder"):
        bayeslaw.prior_page(nothing, AHEAD, tmp_path)
    with pytest.raises(PlanError, match="of the source, too"):
        bayeslaw.prior_page(nothing, AHEAD, tmp_path / "a.html", question={"N": 1e9})


def test_the_command_writes_a_plan_from_two_laws(tmp_path):
    settings = {
        "N": "1e9",
        "ptpp": "30",
        "loss_before": "3",
        "source_loss_before": "2.6",
        "baseline_loss": "2.6",
        "max_target_loss": "2.8",
        "max_forgetting": "30%",
        "confidence": "0.6",
    }
    words = ["report", "--prior-only", "--law", "state-target", "--law", "state-source"]
    for name, value in settings.items():
        words += ["--plan", f"{name}={value}"]
    result = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["prior_only"] is True
    assert record["plan"]["D"] > 0
    html = (tmp_path / "out" / "report.html").read_text()
    assert 'id="b-plan"' in html
    assert 'id="b-forecast"' not in html
