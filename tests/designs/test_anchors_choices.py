"""Runs bought for a choice: which recipe is best, which law is right, where the optimum lies."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from bayeslaw import Anchors, PlanError, RunTableError, anchors
from bayeslaw._designs import criteria, evidence, gaussian
from bayeslaw._designs.goals.goal import forecast_goal
from bayeslaw._designs.menu import menu
from known.lines import SIGMA, Known, buy, posterior_of, straight, table

TWO = pd.DataFrame({"x": [2.0, 3.0]})


def of_goal(posterior, offered, goal, gain, **settled):
    """What is asked of a goal, and the posterior's draws at its rows."""
    asked = forecast_goal(posterior, goal, gain, menu(offered), **settled)
    return asked, evidence.domain_of(posterior, menu(offered), goal).goal


# -- which recipe is best --------------------------------------------------------------


@pytest.mark.parametrize("gap", [0.0, 0.01, 0.03])
def test_the_gain_of_choosing_between_two_is_the_integral_over_outcomes(gap):
    """Each of variance 4 less 1 / 2 of it known: E max(d - gap, 0) with d the learned part of their difference."""
    rows = np.array([[0.02, 0.0], [0.0, 0.01]])
    criterion = criteria.Choosing.between(rows, np.array([1.0, 1.0 + gap]))
    learned = np.hypot(0.02 * np.sqrt(1 - 1 / 2), 0.01 * np.sqrt(1 - 1 / 5))
    exact, _ = quad(
        lambda d: (d - gap) * norm.pdf(d, scale=learned), gap, gap + 12 * learned
    )
    known, nothing = (gaussian.Precision(np.diag(p)) for p in ([2.0, 5.0], [1.0, 1.0]))
    assert criterion.value(known) == pytest.approx(exact, rel=1e-6)
    assert criterion.value(nothing) == pytest.approx(0.0, abs=1e-14)
    everything = np.hypot(0.02, 0.01)
    of_all, _ = quad(
        lambda d: (d - gap) * norm.pdf(d, scale=everything), gap, gap + 12 * everything
    )
    assert criterion.total == pytest.approx(of_all, rel=1e-6)


def test_runs_are_bought_that_tell_the_recipes_apart_not_those_that_tell_their_losses():
    """The recipes' losses share their level: only the slope matters, which runs far from 0 tell; a single one near
    the goal tells both losses best."""
    offered = table(x=[2.5, -8.0], cost=1.0)
    common = {"replicates": 1, "max_picks": 1, "least": 0.0, "checks": 0}
    for_losses = anchors(straight(), offered, TWO, 2.0, **common)
    for_choice = anchors(straight(), offered, TWO, 2.0, gain="best", **common)
    assert [p["row"] for p in for_losses.picks] == [1]
    assert [p["row"] for p in for_choice.picks] == [2]


def test_the_choice_is_told_before_and_after():
    """Two recipes that differ by the slope: chances and regrets by hand, the check agrees."""
    posterior = straight()
    slope = posterior.pieces()[0].values["slope"]
    made = buy(
        posterior,
        table(x=[-1.0, 1.0], cost=1.0),
        2.0,
        TWO,
        gain="best",
        replicates=1,
        checks=300,
    )
    chosen = 0 if slope.mean() > 0 else 1  # x = 2 is less than x = 3 if the slope is up
    assert made.choice["best"] == ["x=2", "x=3"][chosen]
    assert made.choice["chance"] == pytest.approx(
        np.mean((slope > 0) == (slope.mean() > 0))
    )
    wrong = slope if slope.mean() < 0 else -slope
    assert made.choice["regret"] == pytest.approx(np.mean(np.maximum(wrong, 0)))
    # two runs at -1 and 1: level and slope are learned apart
    left = 1 / (1 / slope.var() + 2 / SIGMA**2)
    angle = np.arctan(np.sqrt(left / (slope.var() - left)))
    assert made.choice["chance_after"] == pytest.approx(1 - angle / np.pi, abs=0.01)
    # E |s| where the sign of what is learned of s is wrong: (E|s| - E|learned|) / 2
    lost = (slope.std() - np.sqrt(slope.var() - left)) / np.sqrt(2 * np.pi)
    assert made.choice["regret_after"] == pytest.approx(lost, rel=0.1)
    assert made.check["picks"] == 2
    assert made.check["regret"] == pytest.approx(lost, rel=0.3)
    assert made.check["chance"] == pytest.approx(made.choice["chance_after"], abs=0.02)
    assert "is best by" in made.sentence()
    assert "right in" in made.sentence()
    assert Anchors.from_dict(made.to_dict()) == made
    before_choices = made.to_dict()
    del before_choices["choice"]
    assert Anchors.from_dict(before_choices).choice is None


def test_rows_of_one_recipe_are_judged_together():
    goal = pd.DataFrame({"x": [1.0, 3.0, 5.0], "recipe": ["a", "b", "a"]})
    offered = table(x=[0.0], cost=1.0)
    asked, at_rows = of_goal(straight(), offered, goal, "best")
    (judged,) = asked.domains
    assert asked.options.names == ["a", "b"]
    assert judged.goal[:, 0] == pytest.approx(at_rows[:, [0, 2]].mean(axis=1))
    assert judged.goal[:, 1] == pytest.approx(at_rows[:, 1])


def test_rows_are_recipes_by_what_the_law_reads():
    """A loss or a note that differs makes no recipe; names that look alike tell their rows."""
    goal = pd.DataFrame(
        {"x": [1.0, 1.0, 2.0, 2.000001], "loss": [1.0, 2.0, 3.0, 4.0]}, index=[5, 6, 7, 8]
    )  # fmt: skip
    offered = table(x=[0.0], cost=1.0)
    asked, at_rows = of_goal(straight(), offered, goal, "best")
    (judged,) = asked.domains
    assert asked.options.names == ["x=1", "x=2 (row 7)", "x=2 (row 8)"]
    assert judged.goal[:, 1] == pytest.approx(at_rows[:, 2])


# -- which law is right ----------------------------------------------------------------


def lines_and_bends() -> Known:
    """Two laws that agree at 0 and 1 and differ between and beyond."""
    rng = np.random.default_rng(0)

    def leaves():
        level = 0.02 * rng.standard_normal(2000)
        return {"level": level, "sigma": np.full(2000, SIGMA), "dof": np.full(2000, 1e9)}  # fmt: skip

    def line(draw, x):
        return draw["level"] + 0.04 * x["x"]

    def bend(draw, x):
        return draw["level"] + 0.04 * x["x"] ** 2

    laws = (posterior_of(law, leaves(), ("x",)) for law in (line, bend))
    return Known(*(piece for law in laws for piece in law.pieces()))


def test_runs_are_bought_where_laws_differ():
    offered = table(x=[0.0, 0.5, 1.0], cost=1.0)
    goal = pd.DataFrame({"x": [1.0]})  # laws agree there
    common = {"replicates": 2, "max_picks": 2, "least": 0.0}
    made = anchors(lines_and_bends(), offered, goal, 2.0, gain="law", checks=200, **common)  # fmt: skip
    # apart by .01 at .5, given the level, which a run elsewhere tells
    bought = {p["row"] for p in made.picks}
    assert bought in ({1, 2}, {2, 3})  # as good, by the same difference
    assert made.choice["best"] == "formula 1"
    assert made.choice["chance"] == pytest.approx(0.5, abs=1e-9)
    assert made.goal_sd_before == pytest.approx(0.5, abs=1e-3)
    # what two runs tell: a difference of .01 against an error of SIGMA * sqrt(2)
    z = 0.01 / (SIGMA * np.sqrt(2)) / 2
    assert made.check["chance"] == pytest.approx(norm.cdf(z), abs=0.04)


# -- where the optimum lies ------------------------------------------------------------


def bowl(draws: int = 2000) -> Known:
    """Log loss with its least at a share of about .4, sd .05."""
    rng = np.random.default_rng(0)
    values = {
        "best": 0.4 + 0.05 * rng.standard_normal(draws),
        "level": 0.1 * rng.standard_normal(draws),
        "sigma": np.full(draws, 1e-3),
        "dof": np.full(draws, 1e9),
    }

    def law(draw, x):
        return draw["level"] + (x["replay"] - draw["best"]) ** 2

    return posterior_of(law, values, ("replay",))


def best_of(posterior, offered, goal, **settled):
    """The optimum of each draw."""
    asked, _ = of_goal(posterior, offered, goal, "optimum", **settled)
    (view,) = asked.domains
    return view.goal[:, 0]


def sweep(*levels: float) -> pd.DataFrame:
    return pd.DataFrame({"replay": levels})


def test_the_optimum_of_a_parabola_is_found_between_the_levels_of_a_sweep():
    posterior, goal = bowl(), sweep(0.7, 0.0, 0.3, 0.45, 0.9)
    found = best_of(posterior, table(replay=[0.0], cost=1.0), goal)
    assert found == pytest.approx(posterior.pieces()[0].values["best"], abs=1e-9)


def test_an_optimum_beyond_the_sweep_is_at_its_end():
    posterior, goal = bowl(), sweep(0.42, 0.6, 0.8)
    found = best_of(posterior, table(replay=[0.0], cost=1.0), goal)
    best = posterior.pieces()[0].values["best"]
    assert found == pytest.approx(np.maximum(best, 0.42))


def test_an_optimum_may_be_settled_by_the_runs_of_a_sequence():
    posterior, goal = bowl(), sweep(0.9, 0.95, 1.0)
    offered = table(replay=[0.0], cost=1.0)
    assert np.ptp(best_of(posterior, offered, goal, may_be_settled=True)) == 0


def test_runs_for_an_optimum_are_a_pair_whose_difference_tells_it():
    """The level is unknown, so that one run tells nothing; two ends of the sweep tell most."""
    goal = sweep(0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    offered = table(replay=[0.0, 0.35, 0.5, 1.0], cost=1.0)
    made = buy(bowl(), offered, 2.0, goal, gain="optimum", replicates=2, checks=48)
    assert sorted(p["row"] for p in made.picks) == [1, 4]
    assert made.goal_sd_before == pytest.approx(0.05, rel=0.05)
    # loss(1) - loss(0) = 1 - 2 best: error of best is 1e-3 sqrt(2) / 2
    known = 1 / np.sqrt(1 / 0.05**2 + (2 / (1e-3 * np.sqrt(2))) ** 2)
    assert made.goal_sd_after == pytest.approx(known, rel=0.1)
    assert made.check["correction"] == pytest.approx(1.0, abs=0.1)
    assert "optimum's position from 0.05 to 0.0" in made.sentence()


def test_tokens_are_swept_in_e_folds():
    # the law does not read the other
    goal = pd.DataFrame({"x": [1.0, 2.0, 4.0], "other": [1, 2, 3]})
    offered = table(x=[1.0], cost=1.0)
    found = best_of(straight(), offered, goal)
    slope = straight().pieces()[0].values["slope"]
    assert found == pytest.approx(np.where(slope > 0, 0.0, np.log(4.0)))


# -- goals without a choice ------------------------------------------------------------


@pytest.mark.parametrize(
    ("gain", "goal", "error", "says"),
    [
        ("best", TWO.head(1), PlanError, "two recipes or more"),
        ("best", TWO.assign(x=2.0, loss=[1.0, 2.0]), PlanError, "two recipes or more"),
        ("best", TWO.assign(recipe=["a", None]), RunTableError, "column 'recipe': empty"),
        ("best", TWO.assign(recipe="a"), PlanError, "two recipes or more"),
        ("law", TWO, PlanError, "average of two laws"),
        ("optimum", pd.DataFrame({"x": [0.0, 1.0, 2.0]}), RunTableError, "above 0"),
        ("optimum", sweep(0.1, 0.1, 0.1), RunTableError, "differ in none"),
        ("optimum", sweep(0.1, 0.5), RunTableError, "3 or more"),
        ("optimum", sweep(0.1, 0.5, 0.5), RunTableError, "3 or more different levels"),
        ("optimum", sweep(0.9, 0.95, 1.0), PlanError, "at replay = 0.9 in every draw"),
        ("best", {"N": 1e9}, PlanError, "give a table as the goal"),
    ],
)  # fmt: skip
def test_a_goal_that_leaves_nothing_to_choose_is_refused(gain, goal, error, says):
    law = bowl() if "replay" in goal else straight()
    source = {"source": straight()} if isinstance(goal, dict) else {}
    offered = table(x=[1.0], replay=[0.0], cost=1.0)
    with pytest.raises(error, match=says):
        anchors(law, offered, goal, 1e30, gain=gain, **source)
