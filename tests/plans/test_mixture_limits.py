"""Mixtures of a budget under limits, and how sure they are: by brute force."""

import math

import numpy as np
import pytest
from plans.test_mixture_plan import BOUNDS, DOMAINS, Known, losses_of_sets

import bayeslaw
from bayeslaw import PlanError
from bayeslaw._plans.mixing.candidates import simplex_lattice
from bayeslaw._plans.mixing.question import BestMixtureArguments, question_of
from bayeslaw._plans.mixing.search import bounds_of, onto_simplex
from bayeslaw._plans.posing import pose

BUDGET = {"N": 1e9, "D": 2e10, "bounds": BOUNDS, "draws": 200}
SETS = ("web", "code")


@pytest.fixture(scope="module")
def posteriors():
    return {"web": Known("web", 0), "code": Known("code", 1, E=1.15, t_web=0.25)}


def posed(posteriors, **options):
    return question_of(BestMixtureArguments(posteriors, **(BUDGET | options)))


def losses_on_a_lattice(posteriors, options, steps=50):
    """Losses of mixtures within the bounds, (set, draw, mixture), and the mixtures."""
    question = posed(posteriors, **options)
    problem = pose(question)
    lattice, (low, high) = simplex_lattice(3, steps), bounds_of(problem)
    is_within = (lattice >= low - 1e-9) & (lattice <= high + 1e-9)
    mixtures = lattice[is_within.all(axis=1)]
    return np.exp(losses_of_sets(problem, math.log(BUDGET["D"]), mixtures)), mixtures


UNDER_LIMITS = [
    {"max_loss": {"code": 2.08}},
    {"max_loss": {"code": 2.1}, "bounds": BOUNDS | {"books": (0.2, 0.5)}},
    {
        "max_loss": {"web": 2.63, "code": 2.14},
        "weights": {"web": 1.0, "code": 3.0},
        "confidence": 0.8,
    },
]


@pytest.mark.parametrize("options", UNDER_LIMITS)
def test_the_least_mean_under_limits_is_that_of_brute_force(posteriors, options):
    best = bayeslaw.best_mixture(posteriors, **(BUDGET | options))
    assert best.feasible
    confidence = options.get("confidence", 0.9)
    assert confidence <= best.probability < confidence + 0.03
    # the probability is that of other draws than were searched
    losses, mixtures = losses_on_a_lattice(posteriors, options | {"seed": 1}, 100)
    most = np.array([options["max_loss"].get(name, math.inf) for name in SETS])
    chances = (losses <= most[:, None, None]).all(axis=0).mean(axis=0)
    weights = np.array([best.settings["weights"][name] for name in SETS])
    means = np.einsum("s,sdm->m", weights, losses) / losses.shape[1]
    least = means[chances >= confidence].min()
    ours = np.array([best.shares[name] for name in sorted(DOMAINS)])
    nearest = np.abs(mixtures - ours).sum(axis=1).argmin()
    assert means[nearest] == pytest.approx(least, rel=5e-4)
    assert [row["limit"] for row in best.limits] == list(options["max_loss"].values())


@pytest.mark.parametrize(
    "options",
    [
        {"max_loss": {"code": 2.02}},
        {"max_loss": {"web": 2.56, "code": 2.07}},
        {"max_loss": {"code": 0.5}},
    ],
)
def test_limits_that_no_mixture_keeps_are_told_with_the_best_chance(
    posteriors, options
):
    best = bayeslaw.best_mixture(posteriors, **(BUDGET | options))
    assert not best.feasible
    losses, _ = losses_on_a_lattice(posteriors, options | {"seed": 1})
    most = np.array([options["max_loss"].get(name, math.inf) for name in SETS])
    chances = (losses <= most[:, None, None]).all(axis=0).mean(axis=0)
    assert best.probability == pytest.approx(chances.max(), abs=0.03)
    assert "no mixture within the bounds reaches the confidence" in best.sentence()


def test_both_planners_of_a_budget_give_one_mixture(posteriors):
    """`plan_mixture` with D and `best_mixture` with limits: shares, chance, mean."""
    options = UNDER_LIMITS[0]
    best = bayeslaw.best_mixture(posteriors, **(BUDGET | options))
    plan = bayeslaw.plan_mixture(posteriors, **(BUDGET | options))
    assert plan.feasible
    assert plan.shares == pytest.approx(best.shares, abs=1e-6)
    assert plan.limits == best.limits
    assert plan.mean == best.loss
    assert (plan.D, plan.probability) == (pytest.approx(2e10), best.probability)
    assert plan.settings["D"] == 2e10


def test_without_limits_a_budget_has_a_plan_too(posteriors):
    plan = bayeslaw.plan_mixture(posteriors, **BUDGET)
    best = bayeslaw.best_mixture(posteriors, **BUDGET)
    assert plan.feasible
    assert plan.shares == pytest.approx(best.shares)
    assert (plan.limits, best.limits, best.probability) == ([], [], None)
    assert "The mean loss is least there" in plan.sentence()


def test_of_fixed_shares_none_is_said_to_matter_least(posteriors):
    """Of all but one that are fixed, none is free either: shares sum to one."""
    some = {"web": (0.4, 0.4), "code": (0.4, 0.4)}
    best = bayeslaw.best_mixture(posteriors, **(BUDGET | {"bounds": BOUNDS | some}))
    assert best.shares == pytest.approx({"web": 0.4, "code": 0.4, "books": 0.2})
    assert "matters least" not in best.sentence()
    free = bayeslaw.best_mixture(posteriors, **BUDGET)
    assert "matters least: from" in free.sentence()


@pytest.mark.parametrize(
    "bounds",
    [
        {"books": (0.25, 0.5)},
        {"web": (0.02, 0.3), "code": (0.02, 0.6)},
        {"code": (0.0, 0.25), "books": (0.0, 0.96)},
    ],
)
def test_the_optimum_of_each_draw_is_right_where_bounds_bind(bounds):
    """Against the best of a lattice for each draw; the best lies in its own interval."""
    wide = {
        "web": Known("web", 0, spread=0.15),
        "code": Known("code", 1, spread=0.15, E=1.15, t_web=0.25),
    }
    options = {"bounds": BOUNDS | bounds, "new_run": False}
    best = bayeslaw.best_mixture(wide, **(BUDGET | options))
    losses, mixtures = losses_on_a_lattice(wide, options, 100)
    of_each = mixtures[losses.mean(axis=0).argmin(axis=1)]
    for j, name in enumerate(sorted(DOMAINS)):
        expected = np.quantile(of_each[:, j], [0.05, 0.5, 0.95])
        optimum = best.optimum[name]
        ours = [optimum["low"], optimum["median"], optimum["high"]]
        np.testing.assert_allclose(ours, expected, atol=0.015)
        assert optimum["low"] - 1e-6 <= best.shares[name] <= optimum["high"] + 1e-6


def test_a_projection_is_the_nearest():
    """Against a search on a lattice."""
    low, high = np.array([0.1, 0.0, 0.2]), np.array([0.6, 0.5, 0.9])
    far = np.array([0.9, -0.2, 0.4])
    lattice = simplex_lattice(3, 200)
    inside = lattice[((lattice >= low) & (lattice <= high)).all(axis=1)]
    nearest = inside[((inside - far) ** 2).sum(axis=1).argmin()]
    np.testing.assert_allclose(onto_simplex(far, low, high), nearest, atol=0.006)


WRONG = [
    ({"covariates": {"N": 1e8}}, "covariates cannot set 'N': it is given as N"),
    ({"covariates": {"D": 1e8}}, "covariates cannot set 'D': it is the budget"),
    ({"covariates": {"share_web": 0.2}}, "covariates cannot set 'share_web'"),
    ({"covariates": {"lr": 1e-3}}, "no law reads the covariate 'lr'"),
    ({"covariates": "lr=2"}, "covariates are by column"),
    ({"unique_tokens": {"web": -3e9}}, "unique_tokens of web must be a positive"),
    ({"unique_tokens": {"web": math.nan}}, "unique_tokens of web must be a positive"),
    ({"unique_tokens": 3e9}, "unique_tokens is by domain"),
    ({"unique_tokens": {"web": 3e9}, "max_epochs": 1e6}, "max_epochs 1e.06: no law"),
    ({"max_epochs": 0}, "max_epochs must be a positive number"),
    ({"N": 0}, "N must be a positive number"),
    ({"N": "many"}, "N must be a positive number"),
    ({"bounds": {"web": "much"}}, "bounds of web must be a share"),
    ({"bounds": {"web": (0.1, 0.2, 0.3)}}, "bounds of web: give the least and the"),
    ({"weights": {"web": "much"}}, "weight of web must be a number"),
    ({"weights": [1, 2]}, "weights is by evaluation set"),
    ({"max_loss": {"web": "low"}}, "max_loss of web must be a positive number"),
    ({"draws": 0}, "draws must be a whole number"),
]


@pytest.mark.parametrize(("options", "line"), WRONG)
@pytest.mark.parametrize("planner", ["plan_mixture", "best_mixture"])
def test_what_plan_refuses_both_planners_of_mixtures_refuse(
    posteriors, planner, options, line
):
    asked = {**BUDGET, "max_loss": {"code": 2.1}, **options}
    with pytest.raises(PlanError, match=line) as refusal:
        getattr(bayeslaw, planner)(posteriors, **asked)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"max_tokens": 3e10}, "give D, the budget, or max_tokens, not both"),
        ({"D": 0}, "D must be a positive number"),
        ({"unique_tokens": dict.fromkeys(DOMAINS, 1e9)}, "the domains have 3B tokens"),
    ],
)
def test_a_budget_that_is_none_is_refused(posteriors, options, line):
    with pytest.raises(PlanError, match=line):
        bayeslaw.plan_mixture(posteriors, **(BUDGET | options))


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ({"N": "1B"}, {"N": 1e9}),
        ({"bounds": {"web": 0.3}}, {"bounds": {"web": (0.3, 0.3)}}),
        ({"bounds": {"web": "30%"}}, {"bounds": {"web": (0.3, 0.3)}}),
        ({"unique_tokens": {"web": "9B"}}, {"unique_tokens": {"web": 9e9}}),
    ],
)
def test_numbers_as_people_write_them_are_those_numbers(posteriors, written, plain):
    told, expected = (
        bayeslaw.best_mixture(posteriors, **(BUDGET | o)).settings
        for o in (written, plain)
    )
    assert told == expected


EVERY_LIMIT = [
    {"max_loss": {"web": 2.6, "code": 2.1}, "max_mean_loss": 2.36},
    {"max_loss": {"code": 2.1}, "D": 2e10, "weights": {"web": 2.0, "code": 1.0}},
    {"max_loss": {"web": 2.7, "code": 1.055}, "max_mean_loss": 2.5, "D": 1e11},
]


@pytest.mark.parametrize("asked", EVERY_LIMIT)
def test_every_limit_is_in_the_answer_kept_or_infeasible(posteriors, asked):
    question = {"N": 1e9, "bounds": BOUNDS, "draws": 200, "confidence": 0.8, **asked}
    answers = [bayeslaw.plan_mixture(posteriors, **question).to_dict()]
    if "D" in asked:
        answers.append(bayeslaw.best_mixture(posteriors, **question).to_dict())
    limits = dict(asked["max_loss"])
    if "max_mean_loss" in asked:
        limits["mean"] = asked["max_mean_loss"]
    for told in answers:
        assert {row["name"]: row["limit"] for row in told["limits"]} == limits
        assert told["feasible"] is (told["probability"] >= 0.8)
        assert all(row["probability"] >= told["probability"] for row in told["limits"])
        assert told["settings"]["confidence"] == 0.8
        if "weights" in asked:
            assert told["settings"]["weights"] == pytest.approx(
                {"web": 2 / 3, "code": 1 / 3}
            )


def test_limits_on_data_and_shares_are_in_the_answer_and_kept(posteriors):
    asked = {"max_tokens": 4e10, "unique_tokens": {"books": 1e9}, "max_epochs": 2.0}
    bounds = BOUNDS | {"code": (0.2, 0.3)}
    limits = {"max_loss": {"web": 2.7}, "confidence": 0.8}
    told = bayeslaw.plan_mixture(
        posteriors, N=1e9, draws=200, bounds=bounds, **limits, **asked
    ).to_dict()
    assert {name: told["settings"][name] for name in asked} == asked
    least, largest = told["settings"]["least"], told["settings"]["largest"]
    assert (least["code"], largest["code"]) == (0.2, 0.3)
    assert told["feasible"]
    assert told["D"] <= 4e10 * (1 + 1e-9)
    assert told["D"] * told["shares"]["books"] <= 2e9 * (1 + 1e-6)
    assert 0.2 - 1e-9 <= told["shares"]["code"] <= 0.3 + 1e-9


def test_epochs_without_unique_tokens_are_said_to_limit_nothing(posteriors):
    (note,) = posed(posteriors, max_epochs=3).notes
    assert note.startswith("max_epochs limits nothing")
    assert not posed(posteriors).notes
