"""No page is wider than its window, and a table that is cut shows that it goes on."""

from types import SimpleNamespace

import pandas as pd
import pytest

import bayeslaw
from bayeslaw._report.pages.single import Picture, write_template
from known.browser import opened
from known.pages import check_of, drawn, hold_out, written
from known.saved import save_fit

CUT = """() => [...document.querySelectorAll(".wide")].filter(e => e.scrollWidth > e.clientWidth + 1)
  .map(e => getComputedStyle(e).backgroundImage.split("linear-gradient").length - 1)"""


def seen(browser, path, width):
    """A page with all that can be opened open."""
    page = opened(browser, path, width)
    page.evaluate(
        "document.querySelectorAll('details').forEach(d => { d.open = true })"
    )
    return page


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Five domains, three hold-outs, and fits that failed with a long reason."""
    folder = tmp_path_factory.mktemp("page")
    fit = bayeslaw.load(save_fit(folder / "fit.nc"))
    failed = "the fit failed its diagnostics: R-hat 1.2 of exponent alpha"
    tests = [
        (hold_out(planned=9e9), check_of("trust")),
        (hold_out("D", 1e9, 12e9), check_of("do not extrapolate", 18, 0.0)),
        (hold_out("ptpp", 300.0, 115.0), None, failed),
    ]
    domains = [drawn(f"evaluation set {k}", fit, *tests) for k in range(5)]
    return written(folder / "report.html", domains)


@pytest.mark.parametrize("width", [390, 1280])
def test_what_was_tested_is_seen_whole(browser, report, width):
    """Five domains side by side at a desk; on a phone a card for each hold-out."""
    page = seen(browser, report, width)
    whole = page.evaluate(
        """() => { const t = document.getElementById("held-out"), w = t.closest(".wide");
        return [document.documentElement.scrollWidth, w.scrollWidth - w.clientWidth]; }"""
    )
    assert whole[0] <= width
    assert whole[1] <= 0
    assert page.inner_text("#held-out").count("0% of 18, far off") == 5
    page.close()


@pytest.mark.parametrize("width", [390, 768])
def test_a_table_that_is_cut_has_a_shade(browser, report, width):
    page = seen(browser, report, width)
    cut = page.evaluate(CUT)
    assert cut
    assert set(cut) == {4}
    page.close()


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """The page of an update: many runs, long names, a plan that moved."""
    path = tmp_path_factory.mktemp("update") / "changes.html"
    values = dict.fromkeys(
        ["before", "before_low", "before_high", "after", "after_low", "after_high"],
        0.00123456,
    )
    moves = values | {"moved": True, "shift": 1.2, "expected": 0.5}
    names = ["tau_checkpoint", "a_very_long_name_of_an_exponent"]
    group = {"by": "checkpoint", "level": "1.3B-at-279-tokens", "rows": 21}
    misses = pd.DataFrame([group | dict.fromkeys(["miss", "sd", "p_value"], 0.0123)])
    adds = pd.DataFrame([group | dict.fromkeys(["adds", "alone"], 0.0123)])
    runs = ["a-long-name-of-a-run-2026"]
    runs += [f"{'an_unbroken_name_of_a_run_' * 3}{k}" for k in range(40)]
    worst = pd.DataFrame({"run": runs, "D": 2e9, "z": 3.2})
    worst[["loss", "median", "low", "high", "miss"]] = 2.345678
    law = dict.fromkeys(
        ["weight_before", "weight_after", "drift_before", "drift_after"], 0.25
    )
    domain = SimpleNamespace(
        name="target",
        changes=SimpleNamespace(
            sentence=lambda: "21 new rows",
            changed=worst.tail(40).assign(loss_was=2.345678),
        ),
        surprise=SimpleNamespace(
            sentence=lambda: "surprising: 0 of 21 rows inside",
            worst=worst,
            groups=misses,
        ),
        attribution=SimpleNamespace(sentence=lambda: "told by none", groups=adds),
        parameters=pd.DataFrame([moves] * 2, index=names),
        forecasts=pd.DataFrame([values | {"width": 0.8}], index=["N 8.1B, D 200B"]),
        laws=pd.DataFrame([law], index=["mixture-exponential-with-a-setting+" * 2]),
    )
    before = SimpleNamespace(
        D=8.1e9,
        replay=0.25,
        probability=0.91,
        probability_target=0.95,
        probability_forgetting=0.95,
        binding="the_forgetting_of_a_source_with_a_long_name",
    )
    plan = SimpleNamespace(
        before=before,
        after=before,
        kept=before,
        regret=1.23e9,
        regret_before=1.23e9,
        sentence=lambda: "the plan stays: " + "an_unbroken_word_" * 5,
    )
    write_template(
        path,
        "update.html.jinja",
        updated=SimpleNamespace(
            plan=plan,
            action="moved",
            prob=0.9,
            surprising=["target"],
            verdict=lambda: "Moved: " + "an_unbroken_word_" * 5,
            domains={"target": domain},
        ),
        pictures={"target": []},
        of_plan=Picture("data:,", "a caption", "a picture"),
    )
    return path


@pytest.mark.parametrize("width", [390, 500, 1280])
def test_the_page_of_an_update_is_no_wider_than_its_window(browser, changes, width):
    page = seen(browser, changes, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert set(page.evaluate(CUT)) <= {4}
    page.close()
