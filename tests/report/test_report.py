"""The page: made from the bundled table, complete in one file, saying what the check says, and planning in a browser."""

import base64
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import RunTableError, datasets
from bayeslaw._report import planned
from bayeslaw._report.domains import what_to_hold_out
from bayeslaw._tables.fitting import by_domain

CHROMIUM = next(
    (
        p
        for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
        if p
    ),
    None,
)
PHONE = 390  # pixels
QUESTION = datasets.TABLES[datasets.DEFAULT].question
ASKED = {"N": 1e9, "ptpp": 30.0, "max_target_loss": 2.0, "max_forgetting": 0.02}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return bayeslaw.report(output=tmp_path_factory.mktemp("report"))


def test_the_page_is_one_file_that_asks_for_nothing_else(made):
    page = made.path.read_text()
    assert made.path.stat().st_size < 5e6
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert not re.search(r"https?://|@import|url\(", page)
    pictures = re.findall(
        r'<img src="data:image/png;base64,([^"]+)" alt="([^"]+)"', page
    )
    assert len(pictures) >= 8
    assert all(
        base64.b64decode(data).startswith(b"\x89PNG") and len(alt) > 20
        for data, alt in pictures
    )


def test_the_page_says_what_the_table_is_and_repeats_the_verdicts(made):
    page = made.path.read_text()
    assert "measured for this package" in page
    assert "Tiny models" in page
    assert set(made.checks) == {"target", "source"}
    for domain, result in made.checks.items():
        assert re.search(f"<b>{domain}: {result.verdict}", page)
    assert "bayeslaw report --hold-out ptpp" in page
    for member in made.fits["target"].members:
        assert f"<summary>{member.law.name}:" in page


def test_the_plan_on_the_page_is_the_planner_s(made):
    """The sentence is that of `plan` on the two fits, asked what the bundled table comes with."""
    again = bayeslaw.plan(made.fits["target"], made.fits["source"], **QUESTION)
    assert made.plan is not None
    assert again.to_dict() == made.plan.to_dict()
    assert made.plan.sentence().splitlines()[0] in made.path.read_text()
    assert made.plan.probability >= 0.9


@pytest.mark.parametrize(
    ("question", "says"),
    [(ASKED | {"size": 3}, "unexpected keyword"), ({"N": 1e9}, "missing a required")],
)
def test_a_question_is_checked_before_anything_is_fitted(tmp_path, question, says):
    with pytest.raises(bayeslaw.PlanError, match=says):
        bayeslaw.report(datasets.load(), tmp_path, question=question)
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_a_second_level_says_what_to_do(tmp_path):
    runs = bayeslaw.simulate("dcpt").query("ptpp == 15")
    runs = runs[(runs["N"] == runs["N"].min()) & (runs["D"] == runs["D"].min())]
    with pytest.raises(RunTableError, match="nothing to hold out"):
        bayeslaw.report(runs, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("ptpp > 0", "ptpp"),
        ("ptpp <= 31", "N"),
        ("ptpp == 15", "N"),
        ("ptpp <= 31 and N < 30_000", "D"),
    ],
)
def test_what_is_held_out_leaves_two_levels(where, column):
    assert what_to_hold_out(by_domain(datasets.load().query(where))) == column


def test_the_plan_is_of_all_runs_and_the_check_is_not(made):
    """The fits planned with have seen the level held out; the checks forecast it."""
    shown = datasets.TABLES[datasets.DEFAULT].where
    runs = datasets.load().query(shown)
    for domain, posterior in made.fits.items():
        of_domain = runs[runs["domain"] == domain]
        assert len(posterior.runs) == len(of_domain)
        assert made.checks[domain].n == (of_domain["ptpp"] == 279).sum()
    assert "Planned from fits to all" in made.path.read_text()


def test_what_to_expect_of_the_run_is_what_the_plan_promises(made):
    """Limit, interval and probability of each promise, in its unit."""
    page = made.path.read_text()
    (table,) = re.findall(r'<table id="promises">(.*?)</table>', page, re.DOTALL)
    target, forgetting = made.plan.promises
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in table.split("<tr>")[2:]]
    assert rows == [
        [
            f"{target['limit']:.4g} nats",
            f"{target['low']:.4g} nats to {target['high']:.4g} nats",
            f"{target['probability']:.1%}",
        ],
        [
            f"{100 * forgetting['limit']:+.3g}%",
            f"{100 * forgetting['low']:+.3g}% to {100 * forgetting['high']:+.3g}%",
            f"{forgetting['probability']:.1%}",
        ],
    ]


def test_a_failed_check_reaches_the_plan_in_numbers(made):
    """Wider intervals keep a promise that holds in 9 of 10 draws less often; nothing is said where checks pass."""
    verdicts = {check.verdict for check in made.checks.values()}
    said = made.probability_if_as_checked
    assert (said is None) == (verdicts == {"trust"})
    if said is not None:
        assert 0.5 < said <= made.plan.probability
        assert f"with {said:.1%}" in made.path.read_text()


@pytest.mark.filterwarnings("ignore")
def test_a_plan_that_fails_leaves_a_page(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise bayeslaw.PlanError("no such plan")

    monkeypatch.setattr(planned, "plan", refuse)
    runs = bayeslaw.simulate("chinchilla", seed=3).query("D < 2e10")
    both = pd.concat([runs.assign(domain=name) for name in ("target", "source")])
    both = both.assign(replay=0.2, ptpp=20.0)
    question = ASKED | {"baseline_loss": 2.0}
    asked = {"law": "chinchilla", "question": question, "on_failure": "ignore"}
    with pytest.raises(bayeslaw.PlanError, match=r"no such plan; .* all but the plan"):
        bayeslaw.report(both, tmp_path, **asked)
    page = (tmp_path / "report.html").read_text()
    assert "<b>No plan.</b> no such plan" in page
    assert "data-goodness" in page


def test_each_domain_can_have_laws_of_its_own(made):
    """The bundled table's record names them; a table of one's own takes what suits."""
    for domain, laws in datasets.TABLES[datasets.DEFAULT].laws.items():
        assert set(made.fits[domain].table.index) == set(laws)


# -- in a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(made):
    """The page opened at a phone's width; what it asked for and complained about is kept."""
    if CHROMIUM is None:
        pytest.skip("needs a Chromium to drive")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": PHONE, "height": 844})
        page.asked, page.complaints = [], []
        page.on("request", lambda r: page.asked.append(r.url))
        page.on(
            "console",
            lambda m: (
                page.complaints.append(m.text)
                if m.type in ("error", "warning")
                else None
            ),
        )
        page.on("pageerror", lambda e: page.complaints.append(str(e)))
        page.goto(made.path.as_uri())
        yield page
        browser.close()


def slide(page, **to) -> dict:
    """Move sliders and read the answer back; those not named go back to where they were."""
    page.click("#x-reset")
    for name, value in to.items():
        page.eval_on_selector(
            f"#x-{name}",
            "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }",
            str(value),
        )
    return json.loads(page.get_attribute("#x-answer", "data-result"))


@pytest.mark.parametrize(
    ("sliders", "asked"),
    [
        ({}, {}),
        ({"confidence": 75}, {"confidence": 0.75}),
        ({"forgetting": 18}, {"max_forgetting": 0.18}),
        (
            {"target": 1.5, "confidence": 95},
            {"max_target_loss": 1.5, "confidence": 0.95},
        ),
    ],
)
def test_the_page_plans_as_python_does(page, made, sliders, asked):
    """Tokens within 2%, replay within 2 points (its optimum is flat)."""
    found = slide(page, **sliders)
    answer = bayeslaw.plan(
        made.fits["target"], made.fits["source"], **(QUESTION | asked)
    )
    assert found["feasible"] is answer.feasible is True
    assert found["atpp"] == pytest.approx(answer.atpp, rel=0.02)
    assert found["replay"] == pytest.approx(answer.replay, abs=0.02)


def test_what_cannot_be_had_is_said(page):
    found = slide(page, target=1.3, forgetting=0, confidence=99, budget=1.0)
    assert found["feasible"] is False
    assert found["probability"] < 0.99
    assert "No plan here keeps both promises" in page.inner_text("#x-answer")
    assert "most probable" in page.inner_text("#x-answer")


def test_a_budget_below_the_plan_is_kept(page):
    free = slide(page)
    found = slide(page, budget=np.log(free["atpp"] / 2))
    assert found["feasible"] is False
    assert found["atpp"] <= free["atpp"] / 2 * 1.01


def test_reset_brings_the_plan_back(page):
    first = slide(page)
    slide(page, confidence=60)
    assert slide(page) == first


def test_nothing_is_asked_for_and_nothing_goes_wrong(page, made):
    slide(page, confidence=80)
    assert page.asked == [made.path.as_uri()]
    assert page.complaints == []


def test_a_phone_need_not_scroll_sideways(page):
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= PHONE
