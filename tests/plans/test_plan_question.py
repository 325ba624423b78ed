"""What a plan may be asked: a team's constraints, baselines, and what is refused."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import bayeslaw
from bayeslaw import PlanError, law, plan
from known import example
from known.plans import (
    DRAWS,
    SEARCH,
    STATE,
    WIDE,
    Draws,
    example_plan,
    numpy_loss,
    piece,
    source,
    state_plan,
    target,
)


@cache
def wide():
    return example_plan(**WIDE)


def test_budget_buys_the_most_probable_plan():
    """Within the cheapest plan's own budget the most probable plan is as probable; within half of it, less so."""
    same = example_plan(**WIDE, max_tokens=wide().D * 1.0001)
    half = example_plan(**WIDE, max_flops=wide().flops / 2)
    assert same.probability >= wide().probability
    assert not half.feasible
    assert half.D <= wide().D / 2 * (1 + 1e-9)
    assert half.probability < 0.9
    assert "budget" in half.binding
    assert half.sentence().startswith("The budget does not reach the confidence")
    assert half.explanation["relax"]


def test_unique_tokens_and_least_replay_are_kept():
    free = wide()
    unique = 0.8 * free.D * (1 - free.replay)
    capped = example_plan(**WIDE, unique_target_tokens=unique)
    assert capped.D * (1 - capped.replay) <= unique * (1 + 1e-9)
    assert capped.D > free.D
    assert "unique target tokens" in capped.binding
    twice = example_plan(**WIDE, unique_target_tokens=unique, max_epochs=2)
    assert pytest.approx(free.D, rel=SEARCH) == twice.D
    floor = example_plan(**WIDE, min_replay=0.6)
    assert floor.replay >= 0.6
    assert floor.D > free.D
    assert "least replay" in floor.binding


def test_confidence_of_each_promise():
    """90% of each costs less than 90% of both; the joint probability then falls short of 90%."""
    each = example_plan(**WIDE, confidence={"target": 0.9, "forgetting": 0.9})
    assert each.D < wide().D
    assert min(each.probability_target, each.probability_forgetting) >= 0.9
    assert each.probability < 0.9


def test_several_sources():
    """A second source that is easy to keep changes nothing; as hard as the first, it costs tokens."""
    made = {"sd": WIDE["sd"], "draws": DRAWS}
    asked = example.QUESTION | {"new_run": False}
    english, arabic = source(**made), source(**made, seed=5)
    easy = plan(
        target(**made),
        {"english": english, "arabic": arabic},
        **(asked | {"max_forgetting": {"english": 0.02, "arabic": 0.5}}),
    )
    hard = plan(target(**made), {"english": english, "arabic": arabic}, **asked)
    assert pytest.approx(wide().D, rel=SEARCH) == easy.D
    assert hard.D > easy.D
    assert [p["name"] for p in hard.promises] == ["target", "english", "arabic"]


def test_cheapest_of_several_models():
    """Of several sizes the one cheapest in FLOPs; the plan is the one it would get alone."""
    asked = {"N": [4e9, 8.1e9, 1.6e10], "ptpp": 279}
    made = example_plan(**WIDE, **asked)
    reached = [c for c in made.candidates if c["feasible"]]
    assert len(made.candidates) == 3
    assert made.flops == min(c["flops"] for c in reached)
    assert pytest.approx(made.D) == example_plan(**WIDE, N=made.N).D


def test_nats_and_relative_agree():
    nats = example_plan(**WIDE, max_forgetting=0.02 * 1.6448, forgetting_unit="nats")
    assert pytest.approx(wide().D, rel=1e-9) == nats.D


def test_average_of_laws():
    """An average is planned for by all its draws: between the plans of its laws."""
    good, worse = (
        piece(example.TARGET_LAW, example.TARGET | {"E": e}, sd=0.005, draws=DRAWS)
        for e in (example.TARGET["E"], 1.18)
    )
    s = Draws(
        tuple(
            piece(example.SOURCE_LAW, example.SOURCE, sd=0.005, draws=DRAWS, seed=k)
            for k in (1, 2)
        )
    )
    asked = example.QUESTION | {"new_run": False, "confidence": 0.7, "draws": 2 * DRAWS}
    costs = [
        plan(Draws((one, other)), s, **asked).D
        for one, other in ((good, good), (good, worse), (worse, worse))
    ]
    assert costs == sorted(costs)
    assert costs[0] < costs[1] < costs[2]


def test_state_laws_carry_their_baseline():
    """Forgetting is measured from the checkpoint's own loss; the source loss rises with tokens and bounds them."""
    made = state_plan()
    assert made.feasible
    assert made.settings["baseline"]["forgetting"] == pytest.approx(2.4)
    assert made.replay > 0.05
    same = state_plan(
        baseline_loss=2.4, covariates={"loss_before": 3.1, "source_loss_before": 2.4}
    )
    assert same.D == made.D
    with pytest.raises(PlanError, match=r"one loss, .* and differ: give one"):
        state_plan(baseline_loss=2.5)
    chained = bayeslaw.Draws(np.random.default_rng(0).normal(3.1, 0.05, 300))
    assert state_plan(covariates=STATE | {"loss_before": chained}).D > made.D


def test_nothing_to_do():
    """A target loss that is good enough before adaptation needs no tokens."""
    made = state_plan(max_target_loss=3.2)
    assert (made.feasible, made.D, made.atpp) == (True, 0, 0)
    json.dumps(made.to_dict(), allow_nan=False)


def test_diverging_law_refuses_zero_tokens_and_takes_a_budget():
    """Trap: Form 1 has no loss at D = 0; a reference budget of pure replay is a baseline."""
    with pytest.raises(PlanError, match=r"\(--baseline-loss\).*\(--baseline-tokens\)"):
        example_plan(baseline_loss=None)
    made = example_plan(baseline_loss=None, baseline_tokens=1e10, new_run=False)
    assert made.settings["baseline"]["forgetting"] == pytest.approx(
        numpy_loss(example.SOURCE, 1e10, 1.0)
    )


def test_infeasible_says_what_to_relax():
    """The limits it names are enough: asked again with them, there is a plan at about the cost it named."""
    asked = {"max_target_loss": 1.5, "max_forgetting": -0.04}
    made = example_plan(**WIDE, **asked)
    assert (made.feasible, made.atpp, made.probability) == (False, None, None)
    json.dumps(made.to_dict(), allow_nan=False)
    asked = {"max_target_loss": 1.45}
    made = example_plan(**WIDE, **asked)
    assert not made.feasible
    assert "no plan keeps" in made.sentence()
    row = made.explanation["relax"][0]
    assert row["promise"] == "target"
    assert row["needed"] > 1.45
    again = example_plan(**WIDE, max_target_loss=row["needed"] * (1 + 1e-4))
    assert again.feasible
    assert not example_plan(**WIDE, max_target_loss=row["needed"] * (1 - 1e-3)).feasible
    easy = row["comfortable"]
    assert (
        pytest.approx(easy["D"], rel=SEARCH)
        == example_plan(**WIDE, max_target_loss=easy["limit"]).D
    )


def test_untrustworthy_fits_are_named():
    t = replace(target(), warnings=("R-hat 1.3 in beta",))
    made = plan(t, source(), **example.QUESTION, new_run=False)
    assert made.warnings == ["target: R-hat 1.3 in beta"]


@pytest.mark.parametrize(
    ("point", "says"),
    [({"target": {"beth": 1.0}}, "no parameter 'beth'"), ({"goal": {}}, "no 'goal'")],
)
def test_a_point_that_is_none_is_refused(point, says):
    with pytest.raises(PlanError, match=says):
        example_plan(point=point)


def test_more_than_all_of_the_baseline_may_be_asked_for_with_its_sign():
    assert example_plan(max_forgetting="150%").promises[1]["limit"] == 1.5
    nats = example_plan(max_forgetting=1.5, forgetting_unit="nats")
    assert nats.promises[1]["limit"] == 1.5


def test_laws_of_shares_are_planned_as_a_mixture():
    """Their shares are no replay: held fixed they gave a plan with "0% replay"."""
    name = "mixture-dcpt"
    mixed = Draws((piece(name, law(name).plausible),))
    shares = {"share_web": 0.7, "share_code": 0.2, "share_books": 0.1}
    for covariates in (None, shares):
        with pytest.raises(PlanError, match="plan_mixture"):
            plan(mixed, mixed, **example.QUESTION, covariates=covariates)
