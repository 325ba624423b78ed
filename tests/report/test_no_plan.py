"""What the page says where no plan can be promised: how far it is, where, and what would help."""

from dataclasses import replace

import pytest

from bayeslaw._base.numbers import format_count
from bayeslaw._report.explorer import choose_middle
from bayeslaw._report.summary import _tell_apart, place_of, why_no_plan
from known import plans


@pytest.fixture(scope="module")
def answer():
    return plans.state_plan(max_target_loss=1.9)


def test_the_best_choice_is_named_with_its_tokens(answer):
    """Not "there is none": it may well keep its limits."""
    first, *ways = why_no_plan(answer, "nats per byte")
    best = answer.explanation["best"]
    where = f"at {format_count(best['D'])} tokens ("
    assert answer.D is None
    assert where in first
    assert f"{best['probability']:.1%} at best" in first
    assert "90% was asked for" in first
    assert where in place_of(answer.N, answer.explanation["shown"])
    for line in ways:
        assert " tokens (" in line
        assert "nats per byte in place of 1.9" in line


def test_what_to_expect_is_that_of_the_best_choice(answer):
    """By the shares of draws: no limit is kept less often than all together."""
    best, shown = (answer.explanation[key] for key in ("best", "shown"))
    assert {key: shown[key] for key in ("D", "replay")} == {
        key: best[key] for key in ("D", "replay")
    }
    assert all(p["probability"] >= best["probability"] for p in answer.promises)


def test_the_map_starts_at_the_same_choice(answer):
    """One page has one most probable choice."""
    start, best = choose_middle(answer), answer.explanation["best"]
    assert (start["D"], start["replay"]) == (best["D"], best["replay"])
    assert start["probability"] == best["probability"]
    assert not start["isPlan"]


def test_hopeless_limits_are_said_to_be_so(answer):
    """Where no draw keeps them, no place is the most probable."""
    explanation = answer.explanation | {
        "best": answer.explanation["best"] | {"probability": 0.0},
        "relax": [row | {"needed": None} for row in answer.explanation["relax"]],
    }
    assert [*why_no_plan(replace(answer, explanation=explanation), "nats")] == [
        "No draw keeps all limits anywhere that was searched; 90% was asked for.",
        "Relaxing one limit alone does not allow a plan.",
    ]


def test_a_cap_in_the_way_is_named(answer):
    """The page said that no limit alone helps, and the command which cap does."""
    cap = {"cap": "max_replay", "limit": 0.5, "needed": 0.62, "atpp": 9, "replay": 0.62}
    kept = answer.explanation | {"relax": (), "caps": [cap]}
    _, line = why_no_plan(replace(answer, explanation=kept), "nats")
    assert line.startswith("max_replay 50.0% -> 62.0% at ")
    assert line.endswith("with 62% replay would allow a plan.")


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [("loss", 2.4, 2.40003), ("relative", 0.03, 0.0300001), ("nats", 0.05, 0.0500002)],
)
def test_what_is_to_be_relaxed_differs_from_what_was_asked(unit, first, second):
    texts = _tell_apart({"unit": unit}, first, second)
    assert texts[0] != texts[1]
