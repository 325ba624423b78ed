"""What a law errs beyond its runs: distances, priors of its drift, and its scales given
what stages missed, against quadrature.
"""

import numpy as np
import pytest
from scipy import stats

from bayeslaw._inference.discrepancy import drift


def prior(sides, mean=None):
    """The prior of most laws' drift."""
    return drift.DriftPrior(drift.DriftPriors().tau, mean or sides * (0.0,))


def missed(*distance, off, runs=12, noise=0.002):
    """A stage whose runs lie at a distance to each side, and miss by ``off``."""
    rng = np.random.default_rng(3)
    residual = off + noise * rng.standard_normal(runs)
    far = np.tile(np.array(distance, float), (runs, 1))
    return drift.Miss(residual, noise**2 * np.eye(runs), far)


# -- what a stage tells ----------------------------------------------------------------


def test_directions_span_what_drifts_can_do_to_runs():
    """Sides without distance, and sides that say the same, add none."""
    rng = np.random.default_rng(2)
    one, other = rng.random((2, 20))
    away = np.stack([one, 0 * one, other, one + 2 * other], axis=1)
    basis = drift.directions(away)
    assert basis.shape == (20, 2)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(basis @ (basis.T @ away), away, atol=1e-12)
    assert drift.directions(0 * away).shape == (20, 0)


# -- distances -------------------------------------------------------------------------


def test_drift_is_measured_in_e_folds_shares_and_tenths():
    at = {
        "N": np.array([np.e]),
        "D": np.array([np.e**3]),
        "ptpp": np.array([np.e**5]),
        "replay": np.array([1 - np.exp(-0.9)]),
        "loss_before": np.array([np.exp(0.3)]),
        "other": np.array([2.0]),
    }
    expected = {"N": 1, "D": 3, "D/N": 2, "N*D": 4, "ptpp": 5, "1 - replay": 2}
    told = {axis: float(x[0]) for axis, x in drift.positions(at).items()}
    assert told == pytest.approx(expected | {"loss_before": 3})


def test_drift_grows_with_the_log_of_the_share_of_target_up_to_all_replay():
    """From 50% to 90% replay as far as from 90% to 98%; 100% is not infinitely far."""
    runs = {"replay": np.array([0.0, 0.5])}
    asked = {"replay": np.array([0.25, 0.5, 0.9, 0.98, 1.0])}
    above, below = drift.distances(asked, drift.training_range(runs), np).T
    assert (below == 0).all()
    assert above[:2] == pytest.approx([0, 0])
    assert above[2] == pytest.approx(np.log(5) / 0.45)
    assert above[3] == pytest.approx(2 * above[2])
    assert above[3] < above[4] < 15


def test_distances_are_those_beyond_the_range():
    known = drift.training_range(
        {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 1e10])}
    )
    assert known.axes == ("N", "D", "D/N", "N*D")
    runs = {
        "N": np.array([5e8, 1e9 * np.e, 1e9]),
        "D": np.array([5e9, 1e10 * np.e, 1e8]),
    }
    away = np.asarray(drift.distances(runs, known))
    np.testing.assert_allclose(drift.distances(runs, known, np), away, rtol=1e-13)
    np.testing.assert_allclose(away[0], 0)
    np.testing.assert_allclose(away[1], [1, 0, 1, 0, 0, 0, 2, 0], atol=1e-12)
    below = np.log([10, 1e1])  # tokens, and compute
    np.testing.assert_allclose(away[2], [0, 0, 0, below[0], 0, 3.0, 0, 0], atol=1e-12)


# -- drifts ----------------------------------------------------------------------------


def test_drifts_are_normal_around_nothing_with_a_draw_of_scales():
    """All sides of a drift have the scales of one draw, each side its own."""
    tau = np.array([0.001, 0.03])
    scales = np.array([tau, tau[[1, 1]], tau[[1, 1]], tau[[1, 1]]])
    drawn = drift.draw_drift(scales, prior(2), 20_000, np.random.default_rng(0))
    assert drawn.shape == (20_000, 2)

    def cdf(x):
        narrow, wide = (stats.norm.cdf(x / scale) for scale in tau)
        return 0.25 * narrow + 0.75 * wide

    assert stats.kstest(drawn[:, 0], cdf).pvalue > 0.01
    assert stats.kstest(drawn[:, 1] / tau[1], "norm").pvalue > 0.01
    together = np.array([tau, 10 * tau])
    drawn = drift.draw_drift(together, prior(2), 20_000, np.random.default_rng(0))
    assert stats.spearmanr(*np.abs(drawn).T).statistic > 0.2


def test_a_mean_drift_is_in_units_of_each_sides_scale():
    """Of three sides one has a mean of twice its scale, and one of twice the widest."""
    scales = np.array([[0.001, 0.03, 0.03], [0.002, 0.03, 0.03]])
    uneven = prior(3, mean=(2.0, 0.0, -2.0))
    drawn = drift.draw_drift(scales, uneven, 40_000, np.random.default_rng(0))
    # 2 x .0015, with a sampling sd of about .00001
    assert drawn[:, 0].mean() == pytest.approx(0.003, abs=1e-4)
    # sampling sds are .00015
    assert drawn[:, 1].mean() == pytest.approx(0.0, abs=6e-4)
    assert drawn[:, 2].mean() == pytest.approx(-2 * uneven.widest, abs=6e-4)


def test_without_stages_scales_have_their_prior():
    """Log-normal around .0015 in all, and around a common scale each."""
    scales = drift.draw_scales([], prior(6), np.random.default_rng(0))
    assert scales.shape == (drift.ScaleSampler().draws, 6)
    standard = np.log(scales / 0.0015)
    common = standard.mean(axis=1)
    apart = standard - common[:, None]
    assert np.median(standard) == pytest.approx(0.0, abs=0.15)
    assert common.std() == pytest.approx(np.sqrt(0.36 + 1 / 6), rel=0.1)
    assert apart.std() == pytest.approx(np.sqrt(5 / 6), rel=0.05)


def above(prior, training):
    """The mean drift above each axis; below, drifts have none."""
    assert set(prior.mean[1::2]) == {0.0}
    return dict(zip(training.axes, prior.mean[::2], strict=True))


SIZE_AND_TOKENS = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 3e10])}


@pytest.mark.parametrize(
    ("more", "mean"),
    [
        ([], {"D/N": 2.0, "N*D": -2.0}),
        (["loss_before"], {"D/N": 2.0}),
        (["source_loss_before", "ptpp"], {"D/N": 2.0}),
    ],
)
def test_laws_that_tables_have_told_of_drift_little_and_to_one_side(more, mean):
    """Upwards at more tokens per parameter; those of N and D downwards at more compute."""
    priors = drift.DriftPriors()
    columns = SIZE_AND_TOKENS | {column: np.array([2.0, 3.0]) for column in more}
    training = drift.training_range(columns)
    prior = priors.of(training)
    assert prior.scale == priors.known_tau
    assert above(prior, training) == dict.fromkeys(training.axes, 0.0) | mean


@pytest.mark.parametrize("more", ["ptpp", "replay"])
def test_other_laws_drift_by_more_and_to_neither_side(more):
    priors = drift.DriftPriors()
    columns = SIZE_AND_TOKENS | {more: np.array([0.1, 0.5])}
    of_more = drift.training_range(columns)
    of_one = drift.training_range({"N": columns["N"]})
    for training in (of_more, of_one):
        sides = 2 * len(training.axes)
        assert priors.of(training) == drift.DriftPrior(priors.tau, sides * (0.0,))


@pytest.mark.parametrize("mean", [(0.0, 0.0), (2.0, -1.0)])
def test_scales_are_drawn_from_their_posterior_given_what_stages_missed(mean):
    """By quadrature over the common scale and those of two sides: quantiles of each side
    lie where they should in probability, to Monte Carlo error.
    """
    misses = [missed(0.7, 0, off=0.02), missed(0.4, 0.5, off=0.01)]
    misses.append(missed(0, 1.2, off=0.001))
    unit = np.linspace(-4.5, 4.5, 121)
    common, one, other = np.meshgrid(unit, unit, unit, indexing="ij")
    tau = 0.0015 * np.exp(0.6 * common[..., None] + np.stack([one, other], axis=-1))
    log_p = -0.5 * (common**2 + one**2 + other**2)
    for miss in misses:
        # all runs of a stage are at one distance: their mean says all of the drift
        residual = miss.residual
        of_drift = np.sum((tau * miss.distance[0]) ** 2, axis=-1)
        expected = np.sum(np.minimum(tau, 0.003) * miss.distance[0] * mean, axis=-1)
        variance = of_drift + miss.covariance[0, 0] / len(residual)
        log_p += stats.norm.logpdf(residual.mean(), expected, np.sqrt(variance))
    p = np.exp(log_p - log_p.max()).ravel()
    p /= p.sum()
    drawn = drift.draw_scales(misses, prior(2, mean), np.random.default_rng(1))
    for side in (0, 1):
        at = tau[..., side].ravel()
        for q in (0.05, 0.25, 0.5, 0.75, 0.95):
            below = p[at <= np.quantile(drawn[:, side], q)].sum()
            # three sds of a share of a thousand draws that repeat, and the grid's step
            assert below == pytest.approx(q, abs=0.06)


@pytest.mark.parametrize("off", [0.0, 0.3])
@pytest.mark.parametrize("sides", [3, 10])
def test_sharp_forecasts_far_beyond_the_runs_leave_scales_that_a_machine_can_hold(
    sides, off
):
    """Proposals reach scales of a million; with the precision of a sharp forecast their
    likelihood is no longer one of doubles. They count for nothing.
    """
    for seed in range(5):
        rng = np.random.default_rng([9, seed])
        away = rng.uniform(1, 9, (2, sides))  # fewer runs than sides
        exact = [drift.Miss(np.full(2, off), 1e-6 * np.eye(2), away)] * 3
        scales = drift.draw_scales(exact, prior(sides), rng)
        assert np.isfinite(scales).all()
        assert np.quantile(scales, 0.99) < 10


def test_a_side_that_no_stage_tells_of_follows_the_common_scale():
    """It is as far from the common one as in the prior, wherever that has gone."""
    rng = np.random.default_rng(2)
    bad = [missed(*0.7 * np.eye(4)[k], off=0.05) for k in range(3)]
    scales = drift.draw_scales(bad, prior(4), rng)
    before = drift.draw_scales([], prior(4), rng)
    middle, untold = np.median(scales, axis=0), np.median(before)
    # of three sides each says that the common scale is larger
    assert middle[3] > 4 * untold
    assert middle[3] < middle[:3].min()
    spread = np.log(scales[:, 3]).std()
    assert 1.0 < spread < np.log(before[:, 3]).std()


def test_a_stage_that_misses_along_one_side_widens_that_side_alone():
    """Misses of 4% an e-fold there; to the other sides, whose stages were right, scales
    stay about their prior's median.
    """
    fine = [missed(*0.7 * np.eye(4)[k], off=0.0) for k in (1, 2, 3)]
    bad = missed(0.7, 0, 0, 0, off=0.03)
    rng = np.random.default_rng(4)
    before, after = (
        np.median(drift.draw_scales(misses, prior(4), rng), axis=0)
        for misses in (fine, [bad, *fine])
    )
    assert after[0] > 0.02 > 20 * before[0]
    assert (after[1:] < 2 * 0.0007).all()
    assert (after[1:] < after[0] / 15).all()


def test_one_gross_miss_does_not_make_a_drift():
    """Eleven runs of a stage are where they should be, one is 30% off: the drift stays
    about that of the others.
    """
    fine = missed(0.7, 0.0, off=0.0)
    gross = fine.residual.copy()
    gross[3] = 0.3
    before, after = (
        np.median(drift.draw_scales([miss], prior(2), np.random.default_rng(0))[:, 0])
        for miss in (fine, fine._replace(residual=drift.without_outliers(gross)))
    )
    assert after < 2 * before
