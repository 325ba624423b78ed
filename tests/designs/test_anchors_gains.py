"""What runs are worth, against what is exact."""

import numpy as np
import pandas as pd
import pytest

from bayeslaw import anchors
from known.lines import DRAWS, SIGMA, buy, exact_sd, posterior_of, straight, table


def test_expected_sds_are_those_of_bayesian_linear_regression():
    posterior, offered = straight(), table(x=[0.0, 1.0, 2.0], cost=[1.0, 1.0, 1.0])
    made = buy(posterior, offered, 4.0)
    values = posterior.pieces()[0].values
    x = [offered["x"].loc[p["row"]] for p in made.picks]
    assert made.goal_sd_before == pytest.approx(exact_sd([], 3.0, values), rel=1e-6)
    for k, pick in enumerate(made.picks):
        assert pick["goal_sd"] == pytest.approx(
            exact_sd(x[: k + 1], 3.0, values), rel=1e-6
        )
    total = sum(p["gain"] for p in made.picks)
    assert total == pytest.approx(
        made.goal_sd_before**2 - made.goal_sd_after**2, rel=1e-9
    )


def test_the_importance_weighted_check_agrees_where_the_approximation_is_exact():
    made = buy(straight(), table(x=[0.0, 1.0, 2.0], cost=1.0), 2.0, checks=200)
    assert made.check is not None
    assert made.check["picks"] == 2
    assert made.check["reliable"]
    assert made.check["correction"] == pytest.approx(1.0, abs=0.04)


def test_the_check_shows_where_the_approximation_fails():
    """The goal bends with what is measured: a line leaves most of its variance, weighted draws see that little is left."""

    def bent(draw, x):
        return draw["level"] + x["bend"] * 40 * draw["level"] ** 2

    rng = np.random.default_rng(0)
    values = {
        "level": 0.02 * rng.standard_normal(DRAWS),
        "sigma": np.full(DRAWS, 1e-3),
        "dof": np.full(DRAWS, 1e9),
    }
    made = anchors(
        posterior_of(bent, values, ("bend",)), table(bend=[0.0], cost=1.0), pd.DataFrame({"bend": [1.0]}), 1.0,
        replicates=1, checks=100,
    )  # fmt: skip
    assert made.check is not None
    assert made.check["reliable"]
    assert made.goal_sd_after == pytest.approx(40 * 0.02**2 * np.sqrt(2), rel=0.1)
    assert made.check["correction"] < 0.2


def test_information_is_the_mutual_information_of_two_gaussians():
    posterior = straight()
    offered = table(x=[1.0], cost=1.0)
    made = buy(posterior, offered, 1.0, gain="information", replicates=1)
    draws = posterior.pieces()[0].values
    seen, goal = (draws["level"] + x * draws["slope"] for x in (1.0, 3.0))
    covariance = np.cov(seen, goal) + SIGMA**2 * np.eye(2)
    expected = -0.5 * np.log(
        1 - covariance[0, 1] ** 2 / (covariance[0, 0] * covariance[1, 1])
    )
    assert made.picks[0]["gain"] == pytest.approx(expected, rel=1e-4)
    assert made.unit.startswith("nats")


def test_a_d_optimal_list_takes_the_ends_and_one_for_the_goal_does_not():
    offered = table(x=[-4.0, 0.0, 3.0], cost=1.0)
    everything = buy(straight(), offered, 2.0, gain="parameters", replicates=1)
    aimed = buy(straight(), offered, 2.0, replicates=2)
    assert {p["row"] for p in everything.picks} == {1, 3}
    assert [p["row"] for p in aimed.picks] == [3, 3]
    assert aimed.goal_sd_after < everything.goal_sd_after


def test_batches_of_draws_give_the_monte_carlo_error_of_gains():
    """Over forty posteriors that differ by their draws alone, gains spread as their stated errors say."""
    offered = table(x=[1.0], cost=1.0)
    first = [
        buy(straight(1000, s), offered, 1.0, replicates=1).picks[0] for s in range(40)
    ]
    spread = np.std([p["gain"] for p in first], ddof=1)
    assert np.mean([p["gain_error"] for p in first]) == pytest.approx(spread, rel=0.4)
