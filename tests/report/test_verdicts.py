"""Headline, boxes and table of the page follow from the same checks."""

import re
from types import SimpleNamespace

import pytest

import bayeslaw
from bayeslaw._report.summary import TRUST, cause_of, judged, verdict_of
from known.pages import check_of, drawn, hold_out, written
from known.saved import save_fit

FIT = SimpleNamespace(runs=())
TOKENS = {"axis": "D", "top": 12e9}
WIDE = {"verdict": "widen", "coverage": 0.7}
MEDIANS_OFF = {"verdict": "widen", "n": 10, "coverage": 1.0, "half": 0.1}
MISSED = {"verdict": "do not extrapolate", "n": 18, "coverage": 0.0}


def domain(main, *further, name="target", planned=9e9, tokens=1e9):
    """Judged at a size that the plan is beyond, and at tokens within the table."""
    tests = [(hold_out(planned=planned), check_of(**main))]
    of_tokens = hold_out(planned=tokens, **TOKENS)
    return drawn(name, FIT, *tests, *((of_tokens, check_of(**c)) for c in further))


@pytest.mark.parametrize(
    ("check", "cause", "clause"),
    [
        ({"verdict": "trust"}, "", "as often as stated"),
        (WIDE, "too narrow", "surer than right"),
        (MEDIANS_OFF, "medians off", "but medians were off"),
        ({"verdict": "widen", "group": 2.0}, "a group missed", "not a group of them"),
        (MISSED, "far off", "missed by far"),
        (
            {"verdict": "do not extrapolate", "n": 2, "coverage": 1.0},
            "on priors",
            "rest on priors",
        ),
        ({"verdict": "unknown", "n": 3}, "too few", "too few runs were held out"),
        ({"verdict": "unknown", "n": 20}, "no evidence", "do not tell"),
    ],
)
def test_a_verdict_is_said_with_its_cause(check, cause, clause):
    """Nothing is surer than right whose 90% intervals held all runs."""
    assert cause_of(check_of(**check)) == cause
    verdict, said = verdict_of([domain(check)])
    assert verdict == check["verdict"]
    assert said.startswith(f"{TRUST[verdict]}: ")
    assert clause in said


@pytest.mark.parametrize("failure", [MISSED, WIDE])
def test_a_failure_where_the_plan_does_not_lie_asks_for_care(failure):
    """Two domains that pass along the plan's axis, above a table with "0% of 18"."""
    both = [domain({"verdict": "trust"}, failure, name=n) for n in ("a", "b")]
    verdict, said = verdict_of(both)
    assert verdict == "widen"
    assert "12B tokens of training (a, b)" in said
    assert {judged(one).verdict for one in both} == {"widen"}
    assert ("though the plan lies within" in said) is (failure is MISSED)


def test_a_failure_in_the_plans_direction_counts_in_full():
    missed = domain({"verdict": "trust"}, MISSED, tokens=90e9)
    verdict, said = verdict_of([missed])
    assert verdict == judged(missed).verdict == "do not extrapolate"
    assert said == (
        "No: forecasts of runs that were held out missed by far at 12B tokens of "
        "training (target)."
    )


@pytest.mark.parametrize(
    "elsewhere", [{"verdict": "unknown", "n": 2}, {"verdict": "trust"}]
)
def test_too_little_where_the_plan_does_not_lie_takes_nothing_away(elsewhere):
    verdict, said = verdict_of([domain({"verdict": "trust"}, elsewhere)])
    assert (verdict, said.split(":")[0]) == ("trust", "Yes")


def test_a_forecast_that_errs_on_the_safe_side_is_said():
    """Where all that decide do: too high a forecast of a loss that must stay low."""
    safe = [domain(WIDE | {"is_safe": True})]
    assert verdict_of(safe)[1].endswith("the safe side of a limit on them.")
    assert "safe side" not in verdict_of([*safe, domain(WIDE)])[1]


@pytest.mark.parametrize("verdict", list(TRUST))
def test_what_no_check_tests_is_said_with_every_verdict(verdict):
    """And a pass is then as unknown as what is beyond it."""
    domains = [domain({"verdict": v}) for v in ("trust", verdict)]
    alone = verdict_of(domains)
    level, said = verdict_of(domains, ["9B parameters", "ptpp 300"])
    assert level == ("unknown" if verdict == "trust" else verdict)
    assert said.endswith(" Not tested at 9B parameters and ptpp 300.")
    assert alone[1].partition(": ")[2] in said
    assert not said.startswith("Yes")


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    return bayeslaw.load(save_fit(tmp_path_factory.mktemp("known") / "fit.nc"))


@pytest.mark.parametrize(
    "checks",
    [
        ({"verdict": "trust"}, MISSED),
        (MEDIANS_OFF, {"verdict": "trust"}),
        ({"verdict": "unknown", "n": 20}, {"verdict": "unknown", "n": 2}),
    ],
)
def test_no_box_is_better_than_its_row_of_the_table(tmp_path, fit, checks):
    """On the page itself: the colour of the headline is that of the worst box."""
    tests = [(hold_out(planned=9e9), check_of(**checks[0]))]
    tests.append((hold_out(planned=1e9, **TOKENS), check_of(**checks[1])))
    domains = [drawn(name, fit, *tests) for name in ("target", "source")]
    page = written(tmp_path / "report.html", domains).read_text()
    order = [name.replace(" ", "-") for name in TRUST]
    (headline,) = re.findall(r'class="verdict ([\w-]+)" id="trusted"', page)
    boxes = re.findall(r'class="verdict small ([\w-]+)" data-domain', page)
    assert max(boxes, key=order.index) == headline
    assert len(boxes) == 2
    for check in checks:
        cell = f"{100 * check.get('coverage', 0.9):.0f}% of {check.get('n', 20)}"
        assert page.count(cell) >= 2
    if checks[1] is MISSED:
        assert headline == "widen"
