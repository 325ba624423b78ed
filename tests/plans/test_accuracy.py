"""An accuracy through a chain from loss to quality: its posterior, and plans that promise it."""

import math
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from plans.test_joint import ASKED, SOURCES, of_target
from scipy.special import expit

from bayeslaw import PlanError, RunTableError, accuracy_link, forecast, plan
from bayeslaw._plans.plan import problem_of
from bayeslaw._posteriors.accuracy import _floor_missed

WEB = {"web": SOURCES["web"]}
CHANCE, CEILING, MIDDLE, WIDTH = 0.25, 0.92, 2.35, 0.12


def truth(loss):
    return CHANCE + (CEILING - CHANCE) * expit((MIDDLE - loss) / WIDTH)


def evaluated(rows=9, sd=0.01, seed=0, low=2.0, high=2.8):
    rng = np.random.default_rng(seed)
    losses = np.linspace(low, high, rows)
    accuracy = np.clip(truth(losses) + sd * rng.standard_normal(rows), 0, 1)
    return pd.DataFrame({"loss": losses, "accuracy": accuracy})


LINK = accuracy_link(evaluated(), chance=CHANCE)


def test_intervals_hold_the_true_curve_as_often_as_they_say():
    """Over 80 tables, at a loss inside and one below all that were evaluated."""
    inside = []
    for seed in range(80):
        link = accuracy_link(evaluated(seed=seed), chance=CHANCE, draws=1000)
        for loss in (2.3, 1.9):
            low, high = np.quantile(link.accuracy(np.full(1000, loss)), [0.05, 0.95])
            inside.append(low <= truth(loss) <= high)
    assert 0.82 <= np.mean(inside) <= 0.97


def test_the_loss_of_an_accuracy_is_the_inverse():
    losses = np.linspace(2.0, 2.6, LINK.draws)
    reached = LINK.accuracy(losses)
    for k in (0, 1000, 3000):
        assert LINK.loss_at(reached)[k] == pytest.approx(losses[k], abs=1e-9)
    assert (LINK.loss_at(0.1) == math.inf).all()  # less than chance
    assert (LINK.loss_at(0.999) == 0).mean() > 0.9


def test_a_table_without_noise_is_a_curve():
    """Accuracies are told to a tenth of a percent, which bounds what it can say."""
    link = accuracy_link(evaluated(sd=0.0), chance=CHANCE)
    for loss in (2.1, 2.35, 2.6):
        reached = link.accuracy(np.full(link.draws, loss))
        np.testing.assert_allclose(np.median(reached), truth(loss), atol=0.003)


def test_a_plan_promises_the_accuracy_that_its_draws_have():
    asked = {**ASKED, "max_target_loss": None, "max_forgetting": 0.03}
    found = plan(of_target(), WEB, min_accuracy="60%", accuracy=LINK, **asked)
    assert [row["name"] for row in found.promises] == ["accuracy", "web"]
    problem = problem_of(of_target(), WEB, min_accuracy=0.6, accuracy=LINK, **asked)
    accurate = problem.constraints[0]
    log_loss = accurate.log_losses(math.log(found.D), found.replay)
    by_hand = accurate.link.accuracy(np.exp(log_loss)) >= 0.6
    assert found.promises[0]["probability"] == pytest.approx(by_hand.mean(), abs=0.005)
    assert found.probability >= 0.9
    cheaper = problem.kept(math.log(0.9 * found.D), found.replay).all(axis=0)
    assert cheaper.mean() < 0.9


def test_a_plan_without_uncertainty_has_none_of_the_link_either():
    asked = {**ASKED, "max_target_loss": None, "max_forgetting": 0.03, "draws": 200}
    uncertain, certain = (
        plan(of_target(), WEB, min_accuracy=0.6, accuracy=link, **asked).plug_in
        for link in (LINK, LINK.at_means())
    )
    assert uncertain["D"] == pytest.approx(certain["D"], rel=1e-6)
    assert uncertain["replay"] == pytest.approx(certain["replay"], abs=1e-6)


def test_both_may_be_asked_for():
    asked = {**ASKED, "max_forgetting": 0.03}
    found = plan(of_target(), WEB, min_accuracy=0.3, accuracy=LINK, **asked)
    assert [row["name"] for row in found.promises] == ["target", "accuracy", "web"]
    assert found.probability_target <= found.promises[0]["probability"]


def test_a_forecast_has_the_accuracy_beside_the_loss():
    class Known:
        name, warnings = "known", ()

        def pieces(self):
            return ()

        def log_loss(self, runs, *, noise=False, seed=0):
            rng = np.random.default_rng(seed)
            sd = 0.02 if noise else 0.01
            return np.log(runs["D"].to_numpy()) + sd * rng.standard_normal(
                (500, len(runs))
            )

    runs = pd.DataFrame({"D": [2.1, 2.35, 2.6]})
    rows = forecast(Known(), runs, accuracy=LINK)
    assert list(rows.columns[-3:]) == ["accuracy", "accuracy_low", "accuracy_high"]
    np.testing.assert_allclose(rows["accuracy"], truth(runs["D"]), atol=0.03)
    assert (rows["accuracy_low"] < rows["accuracy"]).all()
    assert (rows["accuracy"] < rows["accuracy_high"]).all()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame({"loss": [2.0]}), "'accuracy' is missing"),
        (evaluated().assign(accuracy=True), r"row 1 .* got .* and True"),
        (evaluated().assign(loss=np.inf), r"row 1 .* got inf"),
        (evaluated() + 1j, r"row 1 .* accuracy from 0 to 1"),
        (
            pd.concat([evaluated(), evaluated()["loss"]], axis=1),
            "2 columns are called 'loss'",
        ),
        (evaluated().assign(accuracy=60.0), r"row 1 .* accuracy from 0 to 1"),
        (evaluated(rows=3), "needs four rows"),
        ("nowhere.csv", "cannot be read"),
    ],
)
def test_tables_that_make_no_sense_are_refused_in_one_line(table, says):
    with pytest.raises(RunTableError, match=says) as refused:
        accuracy_link(table)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"min_accuracy": 0.6}, "min_accuracy needs accuracy"),
        ({"accuracy": LINK}, "min_accuracy needs accuracy"),
        ({"accuracy": LINK, "min_accuracy": 60}, "an accuracy between 0 and 1"),
    ],
)
def test_so_are_questions(asked, says):
    with pytest.raises(PlanError, match=says):
        plan(of_target(), WEB, max_forgetting=0.03, **ASKED, **asked)


@pytest.mark.parametrize(
    ("chance", "floor"), [(0.0, 0.25), (0.0, 0.5), (0.5, 0.25)], ids=str
)
def test_a_floor_that_is_not_chance_is_told(chance, floor):
    """A third of the models lie at the floor; half way, a curve without it is off."""
    rng = np.random.default_rng(0)
    losses = np.linspace(2.0, 3.0, 15)
    curve = floor + (0.92 - floor) * expit((2.35 - losses) / 0.08)
    table = pd.DataFrame({"loss": losses, "accuracy": curve})
    table["accuracy"] += 0.01 * rng.standard_normal(len(losses))
    with pytest.warns(UserWarning, match=rf"level off at .* chance is {chance:.0%}"):
        link = accuracy_link(table, chance=chance, draws=500)
    (line,) = link.warnings
    assert float(re.search(r"at (\d+)%", line)[1]) == pytest.approx(100 * floor, abs=3)
    assert accuracy_link(table, chance=floor, draws=500).warnings == ()


def test_a_right_chance_is_not_doubted():
    """None of 40 tables, half of them of models that do not reach the floor."""
    for seed in range(40):
        table = evaluated(seed=seed, high=2.4 if seed % 2 else 2.8)
        lines = _floor_missed(table["loss"].values, table["accuracy"].values, CHANCE)
        assert lines == []


@pytest.mark.parametrize("rows", [4, 9, 30])
def test_error_rates_are_not_accuracies(rows):
    table = evaluated(rows=rows)
    with pytest.raises(RunTableError, match=r"rises with the loss.*error rates"):
        accuracy_link(table.assign(accuracy=1 - table["accuracy"]))


@pytest.mark.parametrize("least", [0.1, "20%", CHANCE])
def test_an_accuracy_that_guessing_has_is_no_limit(least):
    asked = {**ASKED, "max_target_loss": None, "max_forgetting": 0.03}
    with pytest.raises(PlanError, match="at most the accuracy of guessing, 25%"):
        plan(of_target(), WEB, min_accuracy=least, accuracy=LINK, **asked)


LOSSES = np.linspace(1.5, 3.0, 12)
DEGENERATE = {
    "all equal": np.full(12, 0.5),
    "all at chance": np.full(12, 0.25),
    "all right": np.ones(12),
    "a step": (LOSSES < 2.2) * 1.0,
    "one right": (LOSSES < 1.6) * 1.0,
    "equal but for rounding": 0.5 + 1e-13 * np.sin(LOSSES * 1e3),
}


@pytest.mark.parametrize("losses", [LOSSES, 2 + 1e-9 * LOSSES, np.exp(3 * LOSSES - 7)])
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_accuracies_have_a_curve_or_a_warning(name, losses):
    table = pd.DataFrame({"loss": losses, "accuracy": DEGENERATE[name]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        link = accuracy_link(table, chance=0.25, draws=200)
    for leaf in (link.ceiling, link.middle, link.width, link.sigma):
        assert np.isfinite(leaf).all()
