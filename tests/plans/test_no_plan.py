"""Why no plan can be promised: limits are named, and what is named gives a plan."""

import numpy as np
import pytest

from bayeslaw._plans import value
from bayeslaw._plans.constraint import Constraint
from bayeslaw._plans.plan import name_in_the_way
from bayeslaw._plans.search import search
from known.plans import WIDE, N, example_plan, random_problem


@pytest.mark.parametrize(
    ("constraint", "needed", "words"),
    [
        (Constraint("t", 2.4, "loss"), 2.400371, "2.4 nats -> 2.40038 nats"),
        (Constraint("t", 1.45, "loss"), 1.5002, "1.45 nats -> 1.501 nats"),
        (Constraint("f", 0.02, "relative"), 0.020301, "2% -> 2.031%"),
        (Constraint("f", -0.02, "relative"), -0.0163, "-2% -> -1.63%"),
        (Constraint("f", 0.05, "nats"), 0.9, "0.05 nats -> 0.90 nats"),
        (Constraint("accuracy", 0.4, "error"), 0.4312, "40% wrong -> 43.2% wrong"),
    ],
)
def test_a_looser_limit_is_rounded_up_and_differs(constraint, needed, words):
    """Two digits of the rise; never the limit itself, never less than is needed."""
    loosened = constraint.loosened(needed)
    assert loosened.words == words
    assert loosened.limit >= needed
    assert loosened.limit - needed < 0.2 * (needed - constraint.limit)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_limit_that_is_named_gives_a_plan(seed):
    """Also where it is but a hair over the limit: a tenth of a permille."""
    problem, _ = random_problem(seed)
    cheapest = value.relaxations(problem.relaxed("target", 0.5))[0]
    for gap in (1e-4, 3e-2):
        short = problem.relaxed("target", cheapest["needed"] * (1 - gap))
        rows = {row["promise"]: row for row in value.relaxations(short)}
        row = rows["target"]
        enough = row["enough"]
        assert enough["limit"] >= row["needed"] > row["limit"]
        again = search(short.relaxed("target", enough["limit"]))
        assert again.margin >= 0
        assert np.exp(again.log_tokens) == pytest.approx(enough["D"])
        assert len(set(enough["words"].split(" -> "))) == 2


def test_unique_target_tokens_in_the_way_are_named():
    asked = WIDE | {"max_replay": 0.6, "unique_target_tokens": 1e9}
    made = example_plan(**asked)
    assert not made.feasible
    assert "unique target tokens" in made.binding
    cap, *_ = made.explanation["caps"]
    assert f"unique target tokens 1B -> {cap['needed'] / 1e9:.3g}B" in made.sentence()
    enough = example_plan(**(asked | {"unique_target_tokens": 1.001 * cap["needed"]}))
    assert enough.feasible


def test_unique_tokens_that_are_repeated_are_told_as_given():
    """Not as often as they may be seen: 250M tokens seen four times are not 1B."""
    once = example_plan(**WIDE, max_replay=0.6, unique_target_tokens=1e9)
    asked = {"unique_target_tokens": 2.5e8, "max_epochs": 4}
    repeated = example_plan(**WIDE, max_replay=0.6, **asked)
    (cap_once, *_), (cap, *_) = once.explanation["caps"], repeated.explanation["caps"]
    assert cap["limit"] == 2.5e8
    assert cap["needed"] == pytest.approx(cap_once["needed"] / 4)
    assert "unique target tokens 250M -> " in repeated.sentence()


def test_a_bound_of_replay_in_the_way_is_named():
    made = example_plan(**WIDE, min_replay=0.0, max_replay=0.0)
    assert not made.feasible
    assert "largest replay" in made.binding
    assert "largest replay 0.0% -> " in made.sentence()
    assert f"({made.explanation['caps'][0]['D'] / 1e9:.3g}B tokens)" in made.sentence()
    assert made.explanation["caps"][0]["atpp"] * N == pytest.approx(
        made.explanation["caps"][0]["D"]
    )


@pytest.mark.parametrize(
    ("relax", "caps", "binding"),
    [
        ([("target", 2.0), ("web", None)], [], "target"),
        ([("target", None)], ["unique target tokens"], "unique target tokens"),
        ([("target", None), ("web", None)], [], "target and web"),
    ],
)
def test_something_is_always_in_the_way(relax, caps, binding):
    rows = [{"promise": name, "needed": needed} for name, needed in relax]
    explanation = {"relax": rows, "caps": [{"cap": cap} for cap in caps]}
    assert name_in_the_way(explanation) == binding
