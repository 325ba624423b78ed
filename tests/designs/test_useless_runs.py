"""Nothing is bought that gains nothing, however cheap it is and however often it may be."""

import numpy as np
import pandas as pd
import pytest

from bayeslaw._designs import criteria, gaussian, search
from known.lines import buy, posterior_of

DRAWS = 60  # too few for a Monte Carlo error, which would stop the list as well


def two_numbers(sigma: float = 0.005):
    """Two numbers that vary apart, exactly: candidates measure one, or the other."""

    def one_of_two(draw, x):
        return draw["left"] * (x["x"] < 1) + draw["right"] * (x["x"] >= 1)

    left, right = np.random.default_rng(0).standard_normal((2, DRAWS)) / 8
    left, right = left - left.mean(), right - right.mean()
    right = right - left * (left @ right) / (left @ left)
    values = {"left": left / 4, "right": right / 4, "sigma": np.full(DRAWS, sigma)}
    return posterior_of(one_of_two, values, ("x",))


def offered(x, cost) -> pd.DataFrame:
    return pd.DataFrame({"x": x, "cost": cost})


GOAL = pd.DataFrame({"x": [0.0]})


@pytest.mark.parametrize("gain", ["variance", "information"])
@pytest.mark.parametrize("cost", [1.0, 0.0])
def test_a_run_that_tells_nothing_of_the_goal_is_never_bought(gain, cost):
    """Its gain is a rounding error, which may be positive: no list offers it four times."""
    made = buy(two_numbers(), offered([1.0], [cost]), 9.0, GOAL, gain=gain)
    assert made.picks == []
    assert made.stop == "nothing on offer is worth buying"
    assert made.sentence() == "Buy nothing: nothing on offer is worth buying."


@pytest.mark.parametrize("gain", ["variance", "information"])
def test_a_useless_run_that_is_free_does_not_push_out_a_useful_one(gain):
    made = buy(
        two_numbers(),
        offered([1.0, 0.0], [0.0, 1.0]),
        9.0,
        GOAL,
        gain=gain,
        replicates=2,
    )
    assert [pick["row"] for pick in made.picks] == [1, 1]
    assert made.stop == "nothing left is worth buying"


def test_replicates_end_where_nothing_is_left_to_learn():
    """Measured without noise to speak of, a number is known: another seed of the run adds a rounding error."""
    made = buy(
        two_numbers(sigma=1e-09), offered([0.0], [1.0]), 50.0, GOAL, replicates=50
    )
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
        np.ones((2, 1, 0)),
    )
    absent = criteria.Saving(row, some, some, np.array([np.inf]), 1e20)
    with np.errstate(invalid="ignore"):
        assert search.choose(offer, absent, search.Limits(9.0, 4, 8)) == []
