"""A run that is had up to some point goes on for the difference, against brute force."""

import itertools

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import Costs, candidates
from bayeslaw._designs import criteria, evidence, gaussian, search
from bayeslaw._designs import menu as menus
from bayeslaw._inference.noise import RunNoise

RUNS, STOPS, RANK, DRAWS = 4, 3, 3, 60
NOISE = RunNoise(
    sigma=np.full(DRAWS, 0.01),
    dof=np.full(DRAWS, 1e9),
    tau_checkpoint=np.zeros(DRAWS),
    tau_run=np.full(DRAWS, 0.006),
    run_length=np.full(DRAWS, 0.8),
)


def offered(rng) -> menus.Menu:
    """Four runs of three points, priced by tokens, two of a checkpoint to be paid for."""
    D = np.cumsum(rng.lognormal(0, 0.8, (RUNS, STOPS)), axis=1) * 1e9
    table = pd.DataFrame(
        {
            "run": np.repeat([*"abcd"], STOPS),
            "D": D.ravel(),
            "cost": (D * rng.lognormal(0, 0.5, (RUNS, 1))).ravel(),
            "checkpoint": np.repeat(["old", "old", "new", "new"], STOPS),
            "checkpoint_cost": np.repeat([0.0, 0.0, 1e9, 1e9], STOPS),
        }
    )
    return menus.menu(table)


def exact_draws(covariance, rng):
    """Draws of exactly this covariance, shape (draw, column)."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    standard = rng.standard_normal((DRAWS, len(root)))
    basis = np.linalg.qr(standard - standard.mean(axis=0))[0]
    return np.sqrt(DRAWS - 1) * basis @ root.T


def given(covariance, known):
    """Covariance of all given that some are known, by Gaussian conditioning."""
    link = covariance[:, known]
    return covariance - link @ np.linalg.solve(covariance[np.ix_(known, known)], link.T)


def view_of(draws) -> evidence.Domain:
    """What draws say of the rows and, in the last column, of the goal."""
    batch, sizes = np.zeros(DRAWS, int), np.ones(RUNS * STOPS)
    at = np.array([-1])
    return evidence.Domain(draws[:, :-1], draws[:, -1:], at, NOISE, batch, sizes)


def problem(seed: int):
    """The menu, what is had of two runs, and covariances before: of the law at all rows
    and the goal, and of the rows' errors.
    """
    rng = np.random.default_rng(seed)
    whole = offered(rng)
    had = np.zeros(RUNS * STOPS, bool)
    had[[0, 3, 4] if seed % 2 else [1, 8]] = True  # in the middle of a run, too
    loadings = 0.02 * rng.standard_normal((RUNS * STOPS + 1, RANK))
    law = loadings @ loadings.T
    size = RUNS * STOPS
    nothing = np.zeros((DRAWS, size + 1))
    errors = np.zeros((size, size))
    for run, block in enumerate(
        evidence.gaussian(whole, [view_of(nothing)]).offer.noise
    ):
        rows = whole.rows[run]
        errors[np.ix_(rows, rows)] = block
    # what the draws say once the rows that are had are fitted
    both = np.block([[law, law[:, :size]], [law[:size], law[:size, :size] + errors]])
    left = given(both, size + 1 + np.flatnonzero(had))[: size + 1, : size + 1]
    budget = rng.uniform(0.1, 0.5) * whole.price(np.ones(size, bool))
    return whole, had, view_of(exact_draws(left, rng)), law, errors, budget


def goal_variance(law, errors, rows) -> float:
    """Variance of the goal, the last of the law's values, once these rows are measured."""
    link = law[-1, rows]
    seen = (law[:-1, :-1] + errors)[np.ix_(rows, rows)]
    return float(law[-1, -1] - link @ np.linalg.solve(seen, link))


@pytest.mark.parametrize("seed", range(6))
def test_the_list_is_the_best_of_all_that_the_budget_pays_for(seed):
    """Every set of runs up to every point: each costs what it adds to the price of what
    is had, and all its points are measured together with those that are had.
    """
    whole, had, view, law, errors, budget = problem(seed)
    unsold = whole.without(had)
    made = evidence.gaussian(unsold, [view], tolerance=1e-12)
    criterion = criteria.Variance(made.goals)
    found = search.choose(made.offer, criterion, search.Limits(budget, 1, 99))
    best = np.inf
    for last in itertools.product(range(-1, STOPS), repeat=RUNS):
        rows = had.copy()
        for run, stop in enumerate(last):
            rows[whole.rows[run, : stop + 1]] = True
        if whole.price(rows) - whole.price(had) <= budget * (1 + 1e-9):
            best = min(best, goal_variance(law, errors, np.flatnonzero(rows)))
    rows = had.copy()
    for pick in found:
        new = unsold.measured_by(pick)
        assert not rows[new].any()
        rows[new] = True
    assert made.offer.price_picks(found) == pytest.approx(
        whole.price(rows) - whole.price(had)
    )
    left = goal_variance(law, errors, np.flatnonzero(rows))
    precision = gaussian.precision_of(made.offer, found)
    assert criteria.variances_at(precision, made.goals) == pytest.approx([left])
    assert left == pytest.approx(best)


@pytest.mark.parametrize("seed", range(2))
def test_a_run_of_the_list_goes_farther_for_the_difference(seed):
    """Precisions add up: to a stop, and from there on."""
    whole, _, view, *_ = problem(seed)
    offer = evidence.gaussian(whole, [view], tolerance=1e-12).offer
    rest = offer.going_on([(1, 0), (3, 1)])
    for (run, stop), place in (((1, 0), 0), ((3, 1), 1)):
        before = offer.information((run, stop)).shared
        after = offer.information((run, 2)).shared
        np.testing.assert_allclose(
            before + rest.information((place, 2)).shared, after, rtol=1e-6
        )
        assert rest.cost[place, 2] == offer.cost[run, 2] - offer.cost[run, stop]
        assert np.isinf(rest.cost[place, : stop + 1]).all()
    assert not rest.checkpoint_cost.any()


def test_points_before_one_that_is_had_are_free_and_taken():
    table = pd.DataFrame(
        {"run": "a", "D": [1e9, 2e9, 4e9], "cost": [1.0, 2.0, 4.0]}, index=[5, 6, 7]
    )
    whole = menus.menu(table)
    unsold = whole.without(np.array([False, True, False]))
    assert unsold.cost.tolist() == [[0.0, 0.0, 2.0]]
    assert unsold.measured_by((0, 2)).tolist() == [0, 2]
    ended = whole.without(np.array([True, True, False]))
    assert ended.cost.tolist() == [[np.inf, np.inf, 2.0]]
    assert np.isinf(whole.without(np.ones(3, bool)).cost).all()


def test_days_are_of_the_tokens_that_are_still_to_be_trained():
    costs = Costs(hardware="8xH100", price=2.5)
    runs = pd.DataFrame({"N": [1e9, 1e9], "ptpp": [30.0, 30.0], "D": [1e9, 4e9]})
    offer = candidates(runs, N=[1e9], ptpp=[30], atpp=[1, 4], costs=costs)
    whole = menus.menu(offer, costs)
    unsold = whole.without(np.array([True, False]))
    three = costs.of_tokens(1e9, 3e9)
    assert unsold.cost[0, 1] == pytest.approx(three.money)
    assert menus.days_of(unsold, [(0, 1)], costs) == pytest.approx(three.days)
    assert menus.days_of(whole, [(0, 1)], costs) == pytest.approx(
        costs.of_tokens(1e9, 4e9).days
    )


def test_next_runs_goes_on_with_a_run_where_it_could_not_pay_for_it_whole():
    """What is left of the budget is what the longest point of one run adds."""
    sizes, per_parameter = [1e8, 3e8, 9e8], [2.0, 5.0, 20.0, 80.0]
    grid = pd.DataFrame(
        [(n, n * d) for n in sizes for d in per_parameter], columns=["N", "D"]
    )
    runs = bayeslaw.simulate("chinchilla", design=grid, noise=0.003, seed=0)
    runs["run"] = runs["N"].map("{:g}".format)
    runs["cost"] = 6 * runs["N"] * runs["D"]
    is_had = runs["D"] / runs["N"] < 70
    measured = runs[is_had].assign(row=runs.index[is_had])[["row", "loss"]]
    spent = menus.menu(runs).price(is_had.to_numpy())
    last = runs[~is_had].iloc[1]
    rest = last["cost"] - 6 * last["N"] ** 2 * 20.0
    goal = pd.DataFrame({"N": [9e8], "D": [9e11]})
    now = bayeslaw.next_runs(
        runs, goal, spent + 1.01 * rest, laws=["chinchilla"], measured=measured
    )
    assert now.runs["row"].tolist() == [last.name]
    assert now.runs["cost"].tolist() == [last["cost"]]
    assert now.spent == pytest.approx(spent)
