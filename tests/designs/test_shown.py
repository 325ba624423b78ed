"""A result at the prompt is a line, in a notebook text and tables without scripts."""

from html.parser import HTMLParser

import pytest

import bayeslaw
from bayeslaw import Anchors
from known import saved
from known.plans import example_plan


def anchors(stop="the budget is spent", picks=()) -> Anchors:
    return Anchors(
        picks=list(picks),
        gain="variance",
        unit="sd",
        goal_sd_before=0.02,
        goal_sd_after=0.01,
        spent=1e20,
        budget=2e20,
        stop=stop,
        check=None,
        plan=None,
        warnings=[],
    )


PICK = {
    "row": 1,
    "rows": [1],
    "run": "<b>241M</b>",
    "replicate": 1,
    "cost": 1e20,
    "gain": 0.5,
    "goal_sd": 0.01,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    fit = bayeslaw.load(saved.save_average(tmp_path_factory.mktemp("fits") / "a.nc"))
    runs = saved.runs()
    return {
        "plan": example_plan(),
        "no plan": example_plan(max_target_loss=0.5),
        "check": bayeslaw.check(fit, runs),
        "anchors": anchors(picks=[PICK]),
        "nothing to buy": anchors(stop="<script>"),
        "review": bayeslaw.review(runs),
    }


NAMES = ("plan", "no plan", "check", "anchors", "nothing to buy", "review")


@pytest.mark.parametrize("name", NAMES)
def test_a_result_at_the_prompt_is_one_short_line(results, name):
    shown = repr(results[name])
    assert shown.startswith(f"{type(results[name]).__name__}(")
    assert "\n" not in shown
    assert len(shown) < 500


class Tags(HTMLParser):
    """The tags that open and close."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_escaped_and_whole_html(results, name):
    tags = Tags()
    tags.feed(results[name]._repr_html_())
    assert tags.open == []
    assert tags.seen <= {
        "p",
        "div",
        "style",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }


def test_names_in_html_are_text(results):
    assert "&lt;b&gt;241M&lt;/b&gt;" in results["anchors"]._repr_html_()
    assert "&lt;script&gt;" in results["nothing to buy"]._repr_html_()


def test_a_plan_s_line_is_its_answer(results):
    assert repr(results["plan"]).startswith("Plan(Adapt N = 8.1B at ptpp 279 on ")
    assert repr(results["no plan"]).startswith("Plan(no plan keeps the promises")
