"""What a planner is asked: one builder of records, units in one place, keywords as editors see them."""

import inspect
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from bayeslaw import PlanError, plan
from bayeslaw._plans.arguments import PlanArguments
from bayeslaw._plans.constraint import (
    UNITS,
    Constraint,
    read_limit,
)
from bayeslaw._plans.plan import answered, posed
from bayeslaw._plans.posing import pose
from bayeslaw._plans.question import Budget
from known.lines import posterior_of


def falling(values, columns):
    """A target loss that falls with tokens that are not replayed."""
    tokens = columns["D"] * (1 - 0.9 * columns["replay"])
    return jnp.log(values["floor"] + (tokens / 1e9) ** -0.5)


def rising(values, columns):
    """A source loss that rises with tokens, less with replay."""
    seen = columns["D"] / 1e12 * (1.05 - columns["replay"])
    return jnp.log(values["before"] * (1 + seen))


def posterior(log_loss, name, center, seed, draws=64):
    values = {
        name: center * np.exp(0.01 * np.random.default_rng(seed).standard_normal(draws))
    }
    return posterior_of(log_loss, values, ("D", "replay"))


TARGET = posterior(falling, "floor", 1.5, 0)
SOURCE = posterior(rising, "before", 2.0, 1)
ASKED = {
    "N": 1e9,
    "ptpp": 20.0,
    "max_target_loss": 1.8,
    "max_forgetting": 0.05,
    "draws": 64,
    "new_run": False,
}


# -- constraints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unit", "limit", "read"),
    [
        ("2%", "relative", 0.02, "relative"),
        ("0.02", "relative", 0.02, "relative"),
        ("-1%", "relative", -0.01, "relative"),
        ("0.05nats", "relative", 0.05, "nats"),
        ("0.05 Nats", "relative", 0.05, "nats"),
        ("1.5nats", "relative", 1.5, "nats"),
        ("0.05", "nats", 0.05, "nats"),
        ("1.8", "loss", 1.8, "loss"),
        ("1.8nats", "loss", 1.8, "loss"),
    ],
)
def test_a_limit_says_its_unit(text, unit, limit, read):
    assert read_limit("limit of x", text, unit) == (limit, read)


@pytest.mark.parametrize("name", [n for n in UNITS if n != "error"])
def test_the_loss_at_a_limit_has_that_outcome(name):
    """Both directions of a unit agree, and a whole loss more costs its size."""
    unit, baseline = UNITS[name], np.array([1.4, 2.0])
    limit = 1.7 if name == "loss" else 0.03
    loss = np.broadcast_to(unit.most_loss(limit, baseline), 2)
    np.testing.assert_allclose(unit.outcome(loss, baseline), limit)
    before = loss if name == "loss" else baseline
    for k in range(2):
        rise = unit.outcome(before * 1.001, before)[k] - unit.outcome(before, before)[k]
        assert rise == pytest.approx(0.001 * unit.size(limit, float(before[k])))


# -- keywords ----------------------------------------------------------------------------------------------------------


def test_an_unknown_keyword_is_refused_naming_the_known_ones():
    with pytest.raises(
        PlanError,
        match=r"plan.. has no option 'max_token'; it has: N, ptpp, .*max_tokens.*seed",
    ) as raised:
        plan(TARGET, SOURCE, **ASKED, max_token=1e9)  # pyright: ignore[reportCallIssue]
    assert "\n" not in str(raised.value)


def test_every_keyword_is_shown_with_its_default():
    """`help(plan)` lists the fields of the record."""
    shown = inspect.signature(plan)
    of_record = inspect.signature(PlanArguments)
    assert list(shown.parameters.values()) == list(of_record.parameters.values())
    assert shown.return_annotation == "Plan"


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_question_of_records_is_that_of_the_keywords():
    asked = ASKED | {
        "max_flops": 1e21,
        "unique_target_tokens": 1e10,
        "max_epochs": 2,
        "min_replay": 0.1,
    }
    question = posed(TARGET, SOURCE, **asked)
    assert vars(question.budget) == vars(
        Budget(
            max_flops=1e21,
            supplies={"unique_target_tokens": 1e10},
            epochs=2,
            least=0.1,
        )
    )
    assert question.budget.tokens(1e9) == 1e21 / 6e9
    assert question.budget.seen == {"unique_target_tokens": 2e10}
    assert question.constraints == (
        Constraint("target", 1.8, "loss"),
        Constraint("forgetting", 0.05, "relative"),
    )
    assert answered(question).plan == plan(TARGET, SOURCE, **asked)


def test_a_loss_on_a_third_domain_is_one_more_constraint():
    """It needs a posterior and a limit, no baseline; too tight a limit is what has to be relaxed."""
    question = posed(TARGET, {"forgetting": SOURCE, "code": SOURCE}, **ASKED)

    def limited(most):
        constraints = (*question.constraints[:2], Constraint("code", most, "loss"))
        return replace(question, constraints=constraints)

    made, without = answered(limited(2.5)).plan, plan(TARGET, SOURCE, **ASKED)
    assert made.feasible
    assert made.promises[2]["unit"] == "loss"
    assert pytest.approx(without.D, rel=5e-3) == made.D
    sampled = pose(limited(2.5), question.models[0]).constraints[2]
    np.testing.assert_array_equal(sampled.baseline, 1.0)
    hard = answered(limited(1.9)).plan
    assert not hard.feasible
    assert hard.binding == "code"
    assert "code limit 1.9 nats" in hard.sentence()


def test_a_loss_is_limited_by_the_name_of_its_domain():
    """The promise is on that domain's loss, alone; a baseline without a name is not its own."""
    named = {"web": SOURCE, "code": SOURCE}
    asked = ASKED | {"max_loss": {"code": 1.9}, "max_forgetting": {"web": 0.05}}
    question = posed(TARGET, named, **(asked | {"baseline_loss": 2.0}))
    assert question.constraints == (
        Constraint("target", 1.8, "loss"),
        Constraint("web", 0.05, "relative"),
        Constraint("code", 1.9, "loss"),
    )
    model = question.models[0]
    assert model.columns["web"]["loss_before"] == 2.0
    assert "loss_before" not in model.columns["code"]
    made = plan(TARGET, named, **asked)
    assert made.binding == "code"
    assert set(made.settings["baseline"]) == {"web"}


@pytest.mark.parametrize(
    ("max_loss", "says"),
    [
        (1.9, "max_loss is by domain"),
        ({"math": 1.9}, "max_loss names no 'math'"),
        ({"code": -1}, "max_loss of code must be a positive number"),
    ],
)
def test_a_loss_limit_that_cannot_be_is_refused_in_one_line(max_loss, says):
    with pytest.raises(PlanError, match=says) as raised:
        plan(TARGET, {"web": SOURCE, "code": SOURCE}, **ASKED, max_loss=max_loss)
    assert "\n" not in str(raised.value)
