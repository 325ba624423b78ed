"""What cannot be a limit is refused in one line, wherever it is asked."""

import numpy as np
import pytest

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._base.limits import CHANCE, EVEN_CHANCE, KINDS, LOSS, checked
from bayeslaw._designs.goals.plan import NOT_OF_A_GOAL, present_plan
from bayeslaw._plans.constraint import read_limit
from bayeslaw._plans.plan import posed, problem_of
from bayeslaw.cli.parsing import number, read_question
from known.plans import STATE, example, source, target


def present_question(of_target, of_source, asked):
    posed(of_target, of_source, **asked)


def present_problem(of_target, of_source, asked):
    """As `anchors` and the page ask."""
    refused = {name for names in NOT_OF_A_GOAL for name in names}
    names = [name for name in asked if name not in refused]
    of_goal = {name: asked[name] for name in names}
    if len(names) < len(asked):  # which no goal has
        return problem_of(of_target, of_source, **asked)
    return present_plan(of_target, of_source, of_goal)


IMPOSSIBLE = [
    ({"max_target_loss": 300}, "max_target_loss must be .* at most 20"),
    ({"max_target_loss": 1.8e9}, "max_target_loss must be .* at most 20"),
    ({"max_target_loss": "220%"}, "max_target_loss 220%: it is a loss in nats"),
    ({"max_target_loss": float("inf")}, "max_target_loss must be a positive number"),
    ({"baseline_loss": 164}, "baseline_loss must be .* at most 20"),
    (
        {"baseline_loss": bayeslaw.Draws([1.6, 164.0])},
        "baseline_loss must be .* at most 20",
    ),
    ({"max_loss": {"forgetting": 40}}, "max_loss of forgetting must be .* at most 20"),
    ({"confidence": -0.1}, "confidence must be a probability"),
    ({"confidence": 1.2}, "confidence must be a probability"),
    ({"confidence": float("nan")}, "confidence must be a probability"),
    ({"confidence": "90"}, "^confidence 90 is 9000%; write 90% or 0.9$"),
    ({"confidence": 1}, "confidence must be a probability below 1, .* got 1$"),
    ({"confidence": "100%"}, "confidence must be a probability below 1, such as .99"),
    ({"confidence": 100}, "confidence must be a probability below 1, such as .99"),
    ({"confidence": "120%"}, "confidence must be a probability"),
    (
        {"confidence": {"target": 0.9, "forgetting": 95}},
        "confidence 95 is 9500%; write 95% or 0.95",
    ),
    ({"max_forgetting": "5000%"}, "max_forgetting must be a number over -1"),
    ({"max_forgetting": "164nats"}, "max_forgetting must be a number over -20"),
    ({"max_forgetting": None}, "give max_forgetting .*, or a limit on the mean"),
    ({"max_target_loss": None}, "give max_target_loss .*, or min_accuracy"),
    ({"max_tokens": 1e30}, "max_tokens must be a positive number of at most 1e"),
    ({"unique_target_tokens": -1}, "unique_target_tokens must be a positive number"),
    ({"max_epochs": 0}, "max_epochs must be a positive number"),
    ({"max_flops": "10%"}, "max_flops 10%: it is a number, not a share"),
    ({"N": 1e300}, "N must be a positive number of at most"),
    ({"N": True}, "N must be a positive number .*, got True"),
    ({"max_target_loss": np.True_}, "max_target_loss must be .*, got True"),
    ({"max_forgetting": True}, "max_forgetting must be a number .*, got True"),
    ({"max_target_loss": "+3"}, r"\+3: a sign makes it a rise"),
    ({"max_loss": {"forgetting": "+0.1"}}, r"\+0.1: a sign makes it a rise"),
    (
        {"confidence": {"target": 0.9}},
        "confidence by promise needs exactly target, forgetting",
    ),
    ({"max_forgetting": 15}, "max_forgetting 15 is 1500%; write 15% or 0.15"),
    ({"max_forgetting": {"forgetting": 2}}, "max_forgetting 2 is 200%; write 2% or"),
    ({"max_forgetting": "nats"}, "max_forgetting: '' is not a number"),
    ({"min_replay": 10}, "min_replay must be a share"),
    ({"draws": 0}, "draws must be a whole number of at least 1"),
    ({"N": [1e9, 2e9], "ptpp": [1, 2, 3]}, "one length"),
    ({"N": 6.9}, "write 6.9B"),
    ({"baseline_loss": 0.0}, "must be a positive number"),
    ({"baseline_loss": {"arabic": 1.6}}, "nothing given for source 'forgetting'"),
    ({"baseline_tokens": 1e9}, "not both"),
    ({"forgetting_unit": "percent"}, "'relative' or 'nats'"),
]


@pytest.mark.parametrize(("asked", "says"), IMPOSSIBLE)
@pytest.mark.parametrize("ask", [present_question, present_problem])
def test_impossible_limits_are_refused_in_one_line(asked, says, ask):
    question = example.QUESTION | asked
    of_one_draw = target(), source()
    with pytest.raises(PlanError, match=says) as raised:
        ask(*of_one_draw, question)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"covariates": {"source_loss_before": 164}}, "source_loss_before must be"),
        ({"baseline_tokens": -1}, "baseline_tokens must be a number of tokens"),
    ],
)
def test_so_are_those_that_each_draw_reads(asked, says):
    question = example.QUESTION | {"baseline_loss": None} | asked
    with pytest.raises(PlanError, match=says) as raised:
        problem_of(target(), source(), **question)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("max_target_loss=220%", "max_target_loss 220%: it is a loss in nats"),
        ("max_target_loss=1.8B", "max_target_loss must be .* got '1.8B'"),
        ("baseline_loss=164", "baseline_loss must be"),
        ("source_loss_before=164", "source_loss_before must be"),
        ("loss_before=2%", "loss_before 2%: it is a loss"),
        ("max_loss=code=33", "max_loss code must be"),
        ("confidence=110%", "confidence must be a probability"),
        ("confidence=-90%", "confidence must be a probability"),
        ("min_replay=110%", "min_replay must be a share"),
        ("max_forgetting=900nats", "max_forgetting must be a number over -20"),
        ("max_forgetting=2", "max_forgetting 2 is 200%; write 2%"),
        ("max_mean_loss=+3", "a sign makes it a rise, which has a unit"),
        ("bytes_per_token=4.2B", "bytes_per_token must be .* at most 100"),
    ],
)
def test_words_of_plan_goal_and_toml_are_refused_where_they_are_read(word, says):
    with pytest.raises(PlanError, match=says) as raised:
        read_question(["N=8B", word])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", KINDS)
def test_an_option_is_of_the_kind_of_its_keyword(name):
    """And a number that it may be is read as it is, in percent where it is a share."""
    with pytest.raises(PlanError, match=f"^{name} must be"):
        number(name, "-1")
    written, meant = ("90%", 0.9) if KINDS[name].what == "" else ("2", 2.0)
    assert number(name, written) == meant


def test_what_can_be_asked_is_taken_as_it_is_meant():
    assert checked("x", "90%", CHANCE) == checked("x", 0.9, CHANCE) == 0.9
    assert checked("x", "12.5", LOSS) == 12.5
    assert checked("x", 0.5, EVEN_CHANCE) == 0.5
    assert read_limit("x", "150%") == (1.5, "relative")
    assert read_limit("x", 0.05, "nats") == (0.05, "nats")
    named = example.QUESTION | {"confidence": "90%", "max_target_loss": "1.8"}
    question = posed(target(), source(), **named)
    assert (question.confidence, question.constraints[0].limit) == (0.9, 1.8)
    assert STATE["loss_before"] < 20


@pytest.mark.parametrize(
    ("text", "days"),
    [("3", 3), ("3d", 3), ("3 days", 3), ("36h", 1.5), ("2 weeks", 14)],
)
def test_days_may_have_a_unit(text, days):
    assert checked("max_days", text, KINDS["max_days"]) == pytest.approx(days)


def test_other_units_are_no_days():
    for name, text in (("max_days", "3x"), ("max_days", "d"), ("max_cost", "3d")):
        with pytest.raises(PlanError, match=name):
            checked(name, text, KINDS[name])
