"""The page that follows a run: every frame what `follow` says of as many points, in one file, moved by a slider."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._base.numbers import format_chance
from known.browser import DESK, PHONE, opened
from known.power_laws import TOKENS, UNTIL, points, power_laws, true_curve

HOSTILE = "</script><b onclick='x'>\"&{{ 1 }}"
ASKED = {"max_loss": {"target": 1.95, HOSTILE: 2.0}, "confidence": 0.9}


def measured(count, domain):
    return points(TOKENS[:count], true_curve(TOKENS[:count]), domain=domain)


@pytest.fixture(scope="module")
def fits():
    return {name: power_laws(domain=name) for name in ASKED["max_loss"]}


@pytest.fixture(scope="module")
def curve():
    """A run whose second loss was not measured at its last point."""
    both = [measured(5, "target"), measured(4, HOSTILE)]
    return pd.concat(both).assign(run=f"run {HOSTILE}")


@pytest.fixture(scope="module")
def made(tmp_path_factory, fits, curve):
    """The page of two domains, one of them with a hostile name, and what it returned."""
    path = tmp_path_factory.mktemp("follow") / "run.html"
    return path, bayeslaw.follow_page(fits, curve, UNTIL, path, **ASKED)


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """The page of one domain without a limit."""
    path = tmp_path_factory.mktemp("single") / "run.html"
    bayeslaw.follow_page(power_laws(), measured(2, "loss"), UNTIL, path)
    return path


def data(path) -> dict:
    (text,) = re.findall(
        r'<script type="application/json" id="f-data">(.*?)</script>', path.read_text()
    )
    return json.loads(text)


def test_the_page_is_one_file_that_asks_for_nothing_else(made):
    page = made[0].read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert not re.search(r"@import|https?://(?!www\.w3\.org/2000/svg)", page)
    assert "default-src 'none'" in page
    assert made[0].stat().st_size < 2e5


def test_every_frame_is_what_follow_says_of_as_many_points(made, fits, curve):
    frames = data(made[0])["frames"]
    first, *places = [frame["at"] for frame in frames]
    assert first is None
    assert places == pytest.approx(TOKENS[:5], rel=1e-5)
    for count in (2, 5):
        so_far = curve[curve["D"] <= TOKENS[count - 1]]
        known = bayeslaw.follow(fits, so_far, UNTIL, **ASKED)
        frame = frames[count]
        assert frame["probability"] == pytest.approx(known.probability, rel=1e-4)
        assert frame["action"] == known.decision.action
        assert frame["reason"] == known.decision.reason
        for side, followed in zip(
            frame["domains"], known.domains.values(), strict=True
        ):
            assert side["points"] == followed.points
            for key in ("median", "low", "high"):
                assert side["final"][key] == pytest.approx(
                    followed.final[key], rel=1e-5
                )
                assert side["path"][key] == pytest.approx(
                    list(followed.path[key]), rel=1e-5
                )
            assert side["words"]["verdict"] == followed.verdict
            chance = format_chance(followed.probability)
            assert side["words"]["probability"] == chance


def test_what_it_returns_is_what_follow_says(made, fits, curve):
    again = bayeslaw.follow(fits, curve, UNTIL, **ASKED)
    assert json.dumps(made[1].to_dict()) == json.dumps(again.to_dict())


def test_points_of_the_warm_up_are_left_out_and_said(tmp_path):
    curve = measured(4, "loss").assign(step=[10, 20, 30, 40])
    known = bayeslaw.follow_page(
        power_laws(), curve, UNTIL, tmp_path / "a.html", warmup=15
    )
    page = data(tmp_path / "a.html")
    assert len(page["frames"]) == 4
    assert known.first.notes[0] in page["frames"][-1]["domains"][0]["words"]["notes"]


def test_a_long_run_is_thinned_and_keeps_its_ends(tmp_path):
    tokens = np.geomspace(0.02, 1, 90) * UNTIL
    curve = points(tokens, true_curve(tokens))
    told = []
    bayeslaw.follow_page(
        power_laws(draws=40),
        curve,
        UNTIL,
        tmp_path / "a.html",
        progress=lambda *done: told.append(done),
    )
    page = data(tmp_path / "a.html")
    counts = [f["domains"][0]["points"] for f in page["frames"]]
    assert len(counts) == 40
    assert (counts[0], counts[-1]) == (0, 90)
    assert set(np.diff(counts)) == {2, 3}
    assert len(page["domains"][0]["points"]["at"]) == 90
    assert told == [(i + 1, 40) for i in range(40)]


def test_what_cannot_be_is_refused_and_leaves_nothing(tmp_path, fits, curve):
    with pytest.raises(PlanError, match="is a folder; give the name of a file"):
        bayeslaw.follow_page(fits, curve, UNTIL, tmp_path)
    with pytest.raises(PlanError, match="confidence must be"):
        bayeslaw.follow_page(fits, curve, UNTIL, tmp_path / "a.html", confidence=2)
    assert list(tmp_path.iterdir()) == []


# -- in a browser --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[PHONE, DESK])
def page(request, browser, made):
    page = opened(browser, made[0], request.param)
    yield page
    page.close()


def shown(page) -> dict:
    """What a reader sees of the frame."""
    fields = page.locator("section[data-domain='0'] [data-field]")
    return {
        "place": page.inner_text("#f-place"),
        "decision": page.inner_text("#f-decision"),
        "dots": page.locator("[data-domain='0'] circle.point").count(),
        "later": page.locator("[data-domain='0'] circle.later").count(),
        "words": fields.all_text_contents(),
    }


def test_it_opens_with_all_points(page, made):
    seen = shown(page)
    assert seen["place"].startswith("5 points")
    assert made[1].decision.reason in seen["decision"]
    assert (seen["dots"], seen["later"]) == (5, 0)


def test_the_slider_moves_the_run_by_keys(page, made):
    frames = data(made[0])["frames"]
    page.get_by_label("Points so far").focus()
    page.keyboard.press("Home")
    assert shown(page)["place"] == "before the first point"
    assert shown(page)["dots"] == 0
    for count in (1, 2):
        page.keyboard.press("ArrowRight")
        seen = shown(page)
        assert seen["place"] == frames[count]["place"]
        assert page.get_attribute("#f-frame", "aria-valuetext") == seen["place"]
        assert frames[count]["reason"] in seen["decision"]
        assert (seen["dots"], seen["later"]) == (count, 5 - count)
        assert frames[count]["domains"][0]["words"]["end"] in seen["words"]
    page.keyboard.press("End")
    assert shown(page)["place"] == frames[-1]["place"]
    assert page.complaints == []


def test_pictures_are_drawn_inside_their_frames_and_say_what_they_show(page):
    """Seven lines of numbers would be NaN if a scale were wrong; each picture has words for who cannot see it."""
    pictures = page.locator("svg")
    assert pictures.count() == 5
    for i in range(5):
        picture = pictures.nth(i)
        inside = picture.inner_html()
        assert "NaN" not in inside
        assert "Infinity" not in inside
        assert len(picture.get_attribute("aria-label")) > 20
        box = picture.bounding_box()
        for mark in picture.locator("circle").all():
            dot = mark.bounding_box()
            assert box["x"] <= dot["x"] <= box["x"] + box["width"]
            assert box["y"] <= dot["y"] <= box["y"] + box["height"]


def test_hostile_names_are_only_names(page):
    assert page.locator("b[onclick]").count() == 0
    assert page.locator("section[data-domain='1'] h2").text_content() == HOSTILE
    assert HOSTILE in page.locator("h1").text_content()
    assert HOSTILE in page.locator("#f-lines").text_content()
    assert page.complaints == []


def test_it_asks_for_nothing_and_need_not_be_scrolled_sideways(page, made):
    page.locator("summary").click()
    assert page.asked == [made[0].as_uri()]
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= page.viewport_size["width"]


def test_one_domain_without_a_limit_has_no_probabilities(browser, single):
    page = opened(browser, single, PHONE)
    assert page.locator("svg").count() == 2
    assert page.locator("#f-probability").count() == 0
    page.get_by_label("Points so far").press("Home")
    assert page.inner_text("#f-place") == "before the first point"
    assert "no limit was given" in page.inner_text("#f-decision")
    assert page.complaints == []
    page.close()
