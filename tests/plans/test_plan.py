"""What a plan says: the paper's problem, and what uncertainty costs; its plots."""

import json
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import optimize

from bayeslaw import Plan, PlanError, law, plan, plots
from known import example
from known.plans import (
    DRAWS,
    WIDE,
    N,
    example_plan,
    numpy_form,
    numpy_loss,
    published,
    source,
    spread,
    target,
)


def test_known_parameters_give_the_published_plan():
    """One known set of parameters: 8.9 tokens per parameter at 34% replay, both promises with equality."""
    made = example_plan(new_run=False)
    assert made.feasible
    assert round(made.atpp, 1) == example.ATPP
    assert round(made.replay, 2) == example.REPLAY
    base = example.QUESTION["baseline_loss"]
    assert numpy_loss(example.TARGET, made.D, made.replay) == pytest.approx(
        1.8, abs=1e-5
    )
    assert numpy_loss(example.SOURCE, made.D, made.replay) / base - 1 == pytest.approx(
        0.02, abs=1e-4
    )
    needed = optimize.brentq(
        lambda x: numpy_loss(example.TARGET, np.exp(x), made.replay) - 1.8, 20, 30
    )
    assert pytest.approx(np.exp(needed), rel=1e-3) == made.D
    assert made.flops == pytest.approx(6 * N * made.D)
    assert made.sentence().startswith(
        "Adapt N = 8.1B at ptpp 279 on 8.9 tokens per parameter"
    )
    assert (made.probability, made.probability_target, made.probability_forgetting) == (
        1,
        1,
        1,
    )


@cache
def uncertain():
    return example_plan(
        sd=0.005,
        count=2000,
        sigma=0.002,
        point={"target": exact("target"), "forgetting": exact("source")},
    )


def exact(which):
    name = example.TARGET_LAW if which == "target" else example.SOURCE_LAW
    values = law(name).from_paper(
        example.TARGET if which == "target" else example.SOURCE
    )
    return {k: float(v) for k, v in values.items()}


def test_the_plug_in_plan_knows_no_noise():
    """However far a new run may lie from the law: the plan of the law's own loss."""
    noisy = example_plan(sd=0.005, count=200, sigma=0.02)
    law_only = example_plan(sd=0.005, count=200, sigma=0.02, new_run=False)
    assert noisy.atpp > 1.1 * law_only.atpp
    for name in ("atpp", "replay"):
        assert noisy.plug_in[name] == pytest.approx(law_only.plug_in[name], rel=1e-4)


def test_uncertainty_costs_tokens_and_buys_safety():
    """Around the same parameters the 90% plan is dearer; the published one is the plug-in plan, and a gamble."""
    made = uncertain()
    assert made.feasible
    assert made.atpp > 1.1 * example.ATPP
    assert 0.9 <= made.probability < 0.9 + 2 / 4000
    assert made.plug_in["atpp"] == pytest.approx(example.ATPP, abs=0.05)
    assert made.plug_in["replay"] == pytest.approx(example.REPLAY, abs=0.005)
    assert made.plug_in["probability"] < 0.6
    fresh = [
        spread(exact(w), 0.005, 20_000, 7 + k)
        for k, w in enumerate(("target", "source"))
    ]
    names = (example.TARGET_LAW, example.SOURCE_LAW)
    noise = 0.002 * np.random.default_rng(9).standard_t(5, (2, 20_000))
    t, s = (
        numpy_form(published(n, v), made.D, made.replay).ravel() + e
        for n, v, e in zip(names, fresh, noise, strict=True)
    )
    kept = (t <= np.log(1.8)) & (s <= np.log(1.02 * example.QUESTION["baseline_loss"]))
    assert kept.mean() == pytest.approx(
        0.9, abs=0.03
    )  # 4,000 draws in the plan: four standard errors


def test_what_a_plan_says():
    """Frontier, region, trade-off, truth and promises agree with the plan they describe."""
    made = uncertain()
    costs = [row["D"] for row in made.frontier]
    assert costs == sorted(costs)
    assert next(r["D"] for r in made.frontier if r["confidence"] == 0.9) == made.D
    region, middle = np.array(made.region["probability"]), len(made.region["atpp"]) // 2
    assert made.region["atpp"][middle] == pytest.approx(made.atpp)
    assert abs(region[:, middle].max() - 0.9) < 0.03
    band = made.tradeoff["bands"]["target"]
    assert all(
        a < b < c
        for a, b, c in zip(band["low"], band["median"], band["high"], strict=True)
    )
    assert made.tradeoff["atpp"] == pytest.approx(made.atpp)
    truth = made.truth
    assert truth["atpp"] == sorted(truth["atpp"])
    assert truth["atpp"][2] == pytest.approx(example.ATPP, rel=0.1)
    # what knowing the truth saves is measured in test_plan_by_hand
    assert truth["share_with_a_plan"] == 1
    assert made.binding == "target and forgetting"
    for row in made.promises:
        assert row["low"] < row["mean"] < row["high"]
        assert row["probability"] >= 0.9
        assert row["worth"] > 0


def test_survives_json():
    made = uncertain()
    assert (
        Plan.from_dict(json.loads(json.dumps(made.to_dict(), allow_nan=False))) == made
    )
    with pytest.raises(PlanError, match="'atpp' is missing"):
        Plan.from_dict({k: v for k, v in made.to_dict().items() if k != "atpp"})


def test_pictures_draw_on_the_axes_they_get():
    """Each picture returns its axes with the plan on them, for a plan and for none."""
    for made in (uncertain(), example_plan(**WIDE, max_target_loss=1.45)):
        for draw in (plots.frontier, plots.region, plots.tradeoff):
            ax = Figure().add_subplot()
            assert draw(ax, made) is ax
            assert ax.get_xlabel()
            assert ax.has_data()


def test_a_limited_loss_is_drawn_beside_the_target():
    """In nats, on the axis of losses; forgetting keeps its own."""
    sources = {
        "web": source(sd=0.01, draws=DRAWS),
        "code": target(sd=0.01, draws=DRAWS),
    }
    asked = example.QUESTION | {"max_loss": {"code": 1.85}, "new_run": False}
    ax = plots.tradeoff(Figure().add_subplot(), plan(target(), sources, **asked))
    (twin,) = [other for other in ax.figure.axes if other is not ax]
    assert "web" in [line.get_label() for line in ax.get_lines()]
    assert {"target loss", "code"} <= {line.get_label() for line in twin.get_lines()}
    assert twin.get_ylabel() == "loss (nats per token)"
