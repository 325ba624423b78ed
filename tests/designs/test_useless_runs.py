"""Nothing is bought that gains nothing, however cheap it is and however often it may be."""

import inspect
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

from bayeslaw import anchors
from bayeslaw._designs import gaussian, search
from bayeslaw._designs.anchors import AnchorArguments
from bayeslaw._designs.criteria import Information, Saving, Variance
from bayeslaw._posteriors.posterior import Piece
from known.lines import buy

DRAWS = 60  # too few for a Monte Carlo error, which would stop the list as well


class Known:
    """Two numbers that vary apart, exactly: candidates measure one, or the other."""

    name, warnings = "known", ()

    def __init__(self, sigma: float = 0.005):
        rng = np.random.default_rng(0)
        left, right = rng.standard_normal((2, DRAWS)) / 8
        left, right = left - left.mean(), right - right.mean()
        right = right - left * (left @ right) / (left @ left)
        values = {"left": left / 4, "right": right / 4, "sigma": np.full(DRAWS, sigma)}
        self._pieces = (Piece(_one_of_two, values, ("x",)),)

    def pieces(self):
        return self._pieces

    def log_loss(self, runs, *, noise=False, seed=0):
        raise NotImplementedError


def _one_of_two(draw, x):
    return draw["left"] * (x["x"] < 1) + draw["right"] * (x["x"] >= 1)


def offered(x, cost) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "cost": cost})


GOAL = pd.DataFrame({"x": [0.0]})


@pytest.mark.parametrize("gain", ["variance", "information"])
@pytest.mark.parametrize("cost", [1.0, 0.0])
def test_a_run_that_tells_nothing_of_the_goal_is_never_bought(gain, cost):
    """Its gain is a rounding error, which may be positive: no list offers it four times."""
    made = buy(Known(), offered([1.0], [cost]), 9.0, GOAL, gain=gain)
    assert made.picks == []
    assert made.stop == "nothing on offer is worth buying"
    assert made.sentence() == "Buy nothing: nothing on offer is worth buying."


@pytest.mark.parametrize("gain", ["variance", "information"])
def test_a_useless_run_that_is_free_does_not_push_out_a_useful_one(gain):
    made = buy(
        Known(), offered([1.0, 0.0], [0.0, 1.0]), 9.0, GOAL, gain=gain, replicates=2
    )
    assert [pick["row"] for pick in made.picks] == [1, 1]
    assert made.stop == "nothing left is worth buying"


def test_replicates_end_where_nothing_is_left_to_learn():
    """Measured without noise to speak of, a number is known: another seed of the run adds a rounding error."""
    made = buy(Known(sigma=1e-09), offered([0.0], [1.0]), 50.0, GOAL, replicates=50)
    total = made.goal_sd_before**2
    assert 1 <= len(made.picks) < 5
    assert all(pick["gain"] > 1e-9 * total for pick in made.picks)
    assert made.stop == "nothing left is worth buying"


def test_gains_that_are_no_numbers_buy_nothing():
    """A constraint kept in every draw alike has no sds to count by: its saving is not a number."""
    row, some = np.ones((1, 1)), np.ones(1)
    offer = gaussian.Offer(
        np.ones((2, 1)),
        np.zeros(2, int),
        np.zeros(1),
        np.ones((2, 1, 1)),
        np.ones((2, 1, 1)),
        1,
    )
    absent = Saving(row, some, some, np.array([np.inf]), 1e20)
    with np.errstate(invalid="ignore"):
        assert search.choose(offer, absent, search.Limits(9.0, 4, 8)) == []


def test_what_may_be_rounding_is_told_by_the_size_of_the_goal():
    rows = np.full((2, 3), 0.01)
    assert Variance(rows).rounding() == pytest.approx(3e-4 * 1e-9)
    assert Information(None).rounding() == 1e-9
    assert Saving(
        rows, rows[:, 0], rows[:, 0], rows[:, 0], 1e21
    ).rounding() == pytest.approx(1e12)


# -- keywords --------------------------------------------------------------------------


def test_an_unknown_keyword_is_refused_in_one_line():
    with pytest.raises(
        TypeError,
        match=r"anchors\(\) has no option 'replicate'; it has: source, gain, repl",
    ) as e:
        anchors(Known(), offered([0.0], [1.0]), GOAL, 9.0, replicate=3)  # pyright: ignore[reportCallIssue]
    assert "\n" not in str(e.value)


def test_every_keyword_is_seen_by_editors_and_by_inspect():
    seen = inspect.signature(anchors).parameters
    assert list(seen) == [f.name for f in fields(AnchorArguments)]
    assert seen["replicates"].default == 4
