"""Facts of Gaussian algebra that the choice of runs rests on, by dense matrices."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._designs import criteria, evidence, gaussian, search
from bayeslaw._designs.menu import Menu
from bayeslaw._inference.noise import RunNoise
from bayeslaw._posteriors import outcomes
from bayeslaw._posteriors.draws import all_draws
from known import saved
from known.lines import straight

RNG = np.random.default_rng(17)
ALONG = np.array([0.0, 0.7, 1.5, 0.2])
MENU = Menu(
    table=pd.DataFrame({"N": [1e9, 1e9, 1e9, 2e9], "ptpp": [15.0, 15.0, 15.0, 31.0]}),
    rows=np.array([[0, 1, 2], [3, -1, -1]]),
    cost=np.array([[1.0, 2.0, 4.0], [3.0, np.inf, np.inf]]),
    along=ALONG,
    checkpoint=np.array([0, 1]),
    checkpoint_cost=np.array([0.0, 5.0]),
    had=np.zeros(4, bool),
)
NOISE = RunNoise(
    sigma=np.array([0.01, 0.02]),
    dof=np.array([4.0, 9.0]),
    tau_checkpoint=np.array([0.003, 0.005]),
    tau_run=np.array([0.004, 0.006]),
    run_length=np.array([0.5, 0.5]),
)


def domain(log_loss, goal, at, noise=NOISE):
    batch = np.zeros(len(log_loss), int)
    sizes = np.ones(log_loss.shape[1])
    return evidence.Domain(log_loss, goal, np.array(at), noise, batch, sizes)


def test_the_errors_of_a_run_are_its_own_and_what_its_points_share():
    """Variance of the Gaussian as informative as Student-t, correlated along the run;
    beside it the run's effect, common to all points.
    """
    draws = RNG.standard_normal((2, 4))
    view = domain(draws, draws[:, :1], [-1])
    told = evidence.gaussian(MENU, [view]).offer.noise
    own = np.mean([0.01**2 * 7 / 5, 0.02**2 * 12 / 10])  # (dof + 3) / (dof + 1)
    shared = np.mean([0.004**2, 0.006**2])
    gap = np.abs(ALONG[:3, None] - ALONG[:3])
    np.testing.assert_allclose(told[0], own * np.exp(-gap / 0.5) + shared)
    assert told[1, 0, 0] == pytest.approx(own + shared)
    assert (told[1, 0, 1:] == 0).all()
    two = evidence.gaussian(MENU, [view] * 2).offer.noise
    np.testing.assert_allclose(two[0, ::2, ::2], told[0])
    assert (two[0, ::2, 1::2] == 0).all()


def test_a_new_run_s_error_is_taken_apart():
    """Of a scale of .05 that holds effects of .03 and .0144, .0373 is the run's own."""
    leaves = {"sigma": 0.05, "tau_checkpoint": -0.03, "tau_run": 0.0144}
    parts = all_draws(straight(20, **leaves).pieces())
    told = outcomes.noise_of(parts)
    own = np.sqrt(0.05**2 - 0.03**2 - 0.0144**2)
    np.testing.assert_allclose(told.sigma, own)
    np.testing.assert_allclose(told.tau_checkpoint, 0.03)
    np.testing.assert_allclose(told.tau_run, 0.0144)
    np.testing.assert_allclose(told.scale, 0.05)
    assert (told.run_length == 0.5).all()
    assert (outcomes.noise_of(parts, 2.0).run_length == 2.0).all()
    measured = all_draws(straight(20, run_length=0.9).pieces())
    assert (outcomes.noise_of(measured).run_length == 0.9).all()


@pytest.mark.parametrize("kind", ["fit", "average"])
def test_a_fit_and_an_average_tell_what_their_rows_shared(kind):
    """Else twenty runs of one checkpoint would count as twenty."""
    some = np.linspace(0.001, 0.002, 40)
    shared = {"sigma": 3 * some, "tau_checkpoint": 4 * some}
    values = saved.values(40) | shared | {"run_length": np.full(40, 0.2)}
    law, runs = bayeslaw.law("chinchilla"), saved.runs()
    made = {"fit": saved.make_fit(law, values, runs)}
    made["average"] = saved.make_average([(law, values)], runs)
    (piece,) = made[kind].pieces()
    told = outcomes.noise_of(all_draws([piece]))
    assert told.tau_checkpoint == pytest.approx(4 * some)
    assert told.sigma == pytest.approx(3 * some)
    assert told.run_length == pytest.approx(0.2)
    assert piece.values["sigma"] == pytest.approx(5 * some)


def test_what_a_setting_shares_is_a_row_s_own_unless_it_is_told_apart():
    """A candidate is of a setting that nobody has run; of rows that are there one knows
    which are equal.
    """
    leaves = {"sigma": 0.05, "tau_run": 0.03, "tau_setting": 0.024}
    parts = all_draws(straight(20, **leaves).pieces())
    whole, apart = (outcomes.noise_of(parts, settings_apart=a) for a in (False, True))
    np.testing.assert_allclose(whole.sigma, 0.04)
    assert (whole.tau_setting == 0).all()
    np.testing.assert_allclose(apart.sigma, 0.032)
    np.testing.assert_allclose(apart.tau_setting, 0.024)
    for noise in (whole, apart):
        np.testing.assert_allclose(noise.scale, 0.05)
        assert (noise.run_length == 0.5).all()


def test_what_picks_leave_of_a_goal_is_gaussian_conditioning():
    """Covariances of draws, effects and errors written out, for each list of picks."""
    law = RNG.standard_normal((400, 3)) @ (0.02 * RNG.standard_normal((3, 5)))
    made = evidence.gaussian(MENU, [domain(law[:, :4], law[:, 4:], [0], wide(400))])
    of_law = np.cov(law.T)
    effect = np.mean(NOISE.tau_checkpoint**2)
    own = np.mean([0.01**2 * 7 / 5, 0.02**2 * 12 / 10])
    run = np.mean(NOISE.tau_run**2)
    # rows 0 to 2 are points of a run of the goal's checkpoint, row 3 is of another
    same = np.zeros((5, 5), bool)
    same[np.ix_([0, 1, 2, 4], [0, 1, 2, 4])] = True
    same[3, 3] = True
    known = of_law + effect * same
    gap = np.abs(ALONG[:, None] - ALONG)
    one_run = np.ones((4, 4)) * run + own * np.exp(-gap / 0.5)
    for picks, rows in (
        ([(0, 0)], [0]),
        ([(0, 2)], [0, 1, 2]),
        ([(0, 1), (1, 0)], [0, 1, 3]),
    ):
        error = one_run[np.ix_(rows, rows)].copy()
        if 3 in rows:
            error[:-1, -1] = error[-1, :-1] = 0.0
        seen = known[np.ix_(rows, rows)] + error
        link = known[rows, 4]
        left = known[4, 4] - link @ np.linalg.solve(seen, link)
        precision = gaussian.precision_of(made.offer, picks)
        variance = criteria.variances_at(precision, made.goals)
        assert variance == pytest.approx([left], rel=1e-3)
        goal = criteria.Variance(made.goals)
        assert goal.value(precision) == pytest.approx(known[4, 4] - left, rel=2e-3)


def wide(draws):
    """The same errors for many draws."""
    values = {name: np.resize(getattr(NOISE, name), draws) for name in NOISE_FIELDS}
    return RunNoise(**values)


NOISE_FIELDS = ("sigma", "dof", "tau_checkpoint", "tau_run", "run_length")


def test_information_is_half_the_log_of_determinants():
    """About everything, and about a goal whose measurement is known or not."""
    root = RNG.standard_normal((4, 4))
    matrix = np.eye(4) + root @ root.T
    precision = gaussian.Precision(matrix)
    about_all = criteria.Information(None).value(precision)
    assert about_all == pytest.approx(np.log(np.linalg.det(matrix)) / 2)
    goal = np.outer([1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 0.0, 1.0]) / 0.3
    # one goal g'z with error .3: the entropy of its measurement before less after
    at = np.array([1.0, 2.0, 0.0, 1.0])
    before = at @ at + 0.3
    after = at @ np.linalg.solve(matrix, at) + 0.3
    about_goal = criteria.Information(goal).value(precision)
    assert about_goal == pytest.approx(np.log(before / after) / 2)


def test_a_plan_s_saving_is_the_mean_of_what_limits_will_cost():
    """Of two promises, by draws of how far their losses will move."""
    rows, rest = np.array([[0.02, 0.0], [0.01, 0.03]]), np.array([1e-4, 4e-4])
    price, z = np.array([2.0, 1.5]), np.array([1.28, 0.8])
    saving = criteria.Saving(rows, rest, price, z, cost=5e9)
    precision = gaussian.Precision(np.diag([4.0, 2.0]))
    before, after = (np.sum(rows**2 / p, axis=1) for p in ([1.0, 1.0], [4.0, 2.0]))
    moved = np.sqrt(before - after) * np.random.default_rng(0).standard_normal(
        (10**6, 2)
    )
    sds = np.sqrt(after + rest) - np.sqrt(before + rest)
    costs = 5e9 * np.exp(np.sum(price * (z * sds + moved), axis=1))
    assert saving.value(precision) == pytest.approx(5e9 - costs.mean(), rel=5e-3)
    nothing = gaussian.Precision(np.eye(2))
    assert saving.value(nothing) == pytest.approx(0.0, abs=1.0)


def apart(*costs: float) -> gaussian.Offer:
    """Runs that measure a coordinate each, at these costs."""
    count = len(costs)
    one, each = np.eye(count)[:, None, :], np.ones((count, 1, 1))
    same = np.zeros(count, int)
    cost = np.array(costs)[:, None]
    return gaussian.Offer(cost, same, np.zeros(1), one, each, 1, one[..., :0])


def test_a_list_is_in_order_of_gain_for_cost():
    """One coordinate each: the gain of a run is known, and apart from the others'."""
    offer = apart(1.0, 1.0, 4.0, 2.0)
    goal = criteria.Variance(np.diag(np.sqrt([2.0, 6.0, 8.0, 7.0])))
    # gains of half the goal's variance over four goals, by cost: 2, 6, 2 and 3.5
    ordered = search.order_by_worth(offer, goal, [(0, 0), (1, 0), (2, 0), (3, 0)])
    assert ordered[:2] == [(1, 0), (3, 0)]
    assert set(ordered[2:]) == {(0, 0), (2, 0)}
    limits = search.Limits(5.0, 1, 9)
    assert search.greedy(offer, goal, limits, 1.0) == [(1, 0), (3, 0), (0, 0)]
    assert search.greedy(offer, goal, limits, 0.0) == [(2, 0), (1, 0)]
    # 8 + 6 of plain gain against 6 + 7 + 2 by cost
    assert set(search.choose(offer, goal, limits)) == {(1, 0), (3, 0), (0, 0)}
    assert search.choose(offer, goal, limits._replace(picks=1)) == [(2, 0)]


def test_exchanges_begin_at_the_best_of_all_greedy_lists(monkeypatch):
    """Or they would have to mend more than they can; what they find is chosen."""
    offer = apart(1.0, 4.0, 5.0)
    goal = criteria.Variance(np.diag(np.sqrt([2.0, 3.0, 4.0])))
    begun = []

    def drop_one(offer, criterion, limits, picks):
        begun.append(set(picks))
        return [(1, 0)]

    monkeypatch.setattr(search, "exchange", drop_one)
    # by cost 2 + 3, by gain 4
    assert search.choose(offer, goal, search.Limits(5.0, 1, 9)) == [(1, 0)]
    assert begun == [{(0, 0), (1, 0)}]


def test_exchanges_sell_what_stands_in_the_way_of_better():
    """A cheap run bought first leaves too little for the best one; it is dropped again."""
    offer, limits = apart(1.0, 5.0), search.Limits(5.0, 1, 9)
    goal = criteria.Variance(np.diag([1.0, 3.0]))
    for begun in ([(0, 0)], [(1, 0)]):
        assert search.exchange(offer, goal, limits, begun) == [(1, 0)]


def test_principal_coordinates_are_as_few_as_the_tolerance_allows():
    """Four directions of known size: the two small ones hold less than is left out; with
    nothing left out the covariance is whole, of fewer coordinates than columns.
    """
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.standard_normal((400, 4)))[0]
    directions -= directions.mean(axis=0)
    columns = directions * np.array([1.0, 0.1, 0.01, 0.001]) * np.sqrt(399)
    basis, loadings = gaussian.principal(columns, tolerance=1e-3)
    assert basis.shape == (400, 2)
    np.testing.assert_allclose(loadings @ loadings.T, np.cov(columns.T), atol=2e-3)
    many = columns @ rng.standard_normal((4, 80)) + 3.0
    basis, loadings = gaussian.principal(many, tolerance=1e-9)
    assert loadings.shape == (80, 4)
    np.testing.assert_allclose(loadings @ loadings.T, np.cov(many.T), atol=1e-8)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-10)
