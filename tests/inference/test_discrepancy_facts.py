"""A misfit's basis and marginal likelihood as formulas typed here: positions, function
counts, prior variances, gradients; and what is learned against dense Gaussian regression.
"""

import numpy as np
import pytest
from scipy import sparse, stats

from bayeslaw._inference.discrepancy import drift, learning, marginal
from bayeslaw._inference.discrepancy.axes import (
    axis_names,
    position,
    varies,
)
from bayeslaw._inference.discrepancy.learning import independent_rows, learn
from bayeslaw._inference.discrepancy.marginal import Marginal
from bayeslaw._inference.discrepancy.process import Spectrum, process_of
from known.marginals import columns_of

RNG = np.random.default_rng(21)
RUNS = 40
COLUMNS = {
    "N": np.exp(RNG.uniform(18, 22, RUNS)),
    "D": np.exp(RNG.uniform(20, 25, RUNS)),
    "replay": RNG.uniform(0.0, 0.9, RUNS),
}
PROCESS = process_of(COLUMNS)


# -- axes ------------------------------------------------------------------------------


def test_positions_in_their_units():
    at = {
        "N": np.array([1.0, np.e**2]),
        "D": np.array([np.e**4, 1e-20]),
        "ptpp": np.array([1.0, np.e**2]),
        "loss_before": np.array([1.0, np.exp(0.45)]),
        "source_loss_before": np.array([1.0, np.exp(0.9)]),
        "replay": np.array([1 - np.exp(-0.9), 1.0]),
        "mine": np.array([np.e**2, np.e**6]),
    }
    expected = {
        "N": [0, 1],
        "D": [2, np.log(1e-12) / 2],
        "ptpp": [0, 1],
        "loss_before": [0, 1],
        "source_loss_before": [0, 2],
        "replay": [-1, np.log(1e-3) / 0.9],
        "mine": [1, 3],
    }
    for name, places in expected.items():
        np.testing.assert_allclose(position(name, at, np), places, atol=1e-12)
    assert varies(np.array([0.0, 2e-6]))
    assert not varies(np.array([0.0, 0.5e-6]))
    assert not varies(np.array([0.0, 0.5]), 0.5)


def test_axes_come_in_one_order_whatever_the_columns():
    columns = ("replay", "mine", "N", "S1_pt", "loss_before", "D", "ptpp", "S2_cpt")
    assert axis_names(columns) == (
        *("loss_before", "D", "N", "ptpp", "S1_pt", "replay", "mine"),
    )
    both = ("loss_before", "source_loss_before", "target_loss")
    assert axis_names(both) == ("source_loss_before",)


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


# -- the scale of the drift to each side -----------------------------------------------


def prior(sides, mean=None):
    """The prior of most laws' drift."""
    return drift.DriftPrior(drift.DriftPriors().tau, mean or sides * (0.0,))


def missed(*distance, off, runs=12, noise=0.002):
    """A stage whose runs lie at a distance to each side, and miss by ``off``."""
    rng = np.random.default_rng(3)
    residual = off + noise * rng.standard_normal(runs)
    far = np.tile(np.array(distance, float), (runs, 1))
    return drift.Miss(residual, noise**2 * np.eye(runs), far)


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


def test_the_prior_of_drift_is_that_of_what_the_law_reads():
    """Laws of checkpoints drift by twice as much, laws of N and D to one side; of a few
    runs neither narrows before a stage tells.
    """
    priors = drift.DriftPriors()
    of_size = drift.training_range({"N": np.array([1e8, 1e9])})
    of_state = drift.training_range({"source_loss_before": np.array([2.0, 3.0])})
    assert priors.of(of_size) == drift.DriftPrior(priors.tau, (0.0, 0.0))
    assert priors.of(of_state) == drift.DriftPrior(priors.state_tau, (0.0, 0.0))

    columns = {"N": np.array([1e8, 1e9]), "D": np.array([1e9, 3e10])}
    of_both = drift.training_range(columns)
    scale, mean, _ = priors.of(of_both)
    assert scale == priors.size_tau
    mean_above = dict(zip(of_both.axes, mean[::2], strict=True))
    assert mean_above == {"N": 0.0, "D": 0.0, "D/N": 2.0, "N*D": -2.0}
    assert mean[1::2] == (0.0, 0.0, 0.0, 0.0)
    with_replay = drift.training_range(columns | {"replay": np.array([0.0, 0.5])})
    centred = drift.DriftPrior(priors.tau, 10 * (0.0,))
    assert priors.of(with_replay) == centred


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
        residual = drift._without_outliers(miss.residual)
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


@pytest.mark.parametrize("off", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("sides", [3, 6, 10])
def test_sharp_forecasts_far_beyond_the_runs_leave_scales_that_a_machine_can_hold(
    sides, off
):
    """Proposals reach scales of a million; with the precision of a sharp forecast their
    likelihood is no longer one of doubles. They count for nothing.
    """
    for seed in range(10):
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


# -- the basis -------------------------------------------------------------------------


def functions(reach, density, least, most):
    return min(max(int(np.ceil(reach * density)), least), most)


@pytest.mark.parametrize(
    ("columns", "margin"),
    [(COLUMNS, 1.0), (COLUMNS | {"loss_before": RNG.uniform(2, 4, RUNS)}, 0.7)],
)
def test_a_process_reaches_its_margin_beyond_the_data(columns, margin):
    process = process_of(columns)
    for axis in process.axes:
        x = position(axis.name, columns, np)
        ends = x.min() - margin, x.max() + margin
        assert (axis.low, axis.high) == pytest.approx(ends)
        reach = ends[1] - ends[0]
        assert axis.length == pytest.approx(reach)
        assert axis.functions == functions(reach, 1.6, 4, 18)
        assert axis.pair_functions == functions(reach, 1.0, 3, 9)
    pairs = {frozenset(process.axes[k].name for k in pair) for pair in process.pairs}
    wanted = [("N", "D"), ("D", "replay"), ("N", "replay")]
    if margin == 0.7:
        # a law that starts from a loss has few sizes to learn from
        wanted = [("loss_before", "replay"), ("D", "replay")]
    assert pairs == {frozenset(pair) for pair in wanted}


def test_priors_of_scales():
    """All pieces together are .5% of the loss, or 2.8% of a law of checkpoint state."""
    priors = PROCESS.priors
    assert len(PROCESS.pieces) == 6
    for name in PROCESS.pieces:
        assert priors[name].args == pytest.approx((0.005 / np.sqrt(6), 1.0))
    for axis in PROCESS.axes:
        assert priors[f"length {axis.name}"].args == (1.0, 0.5)
    state = process_of({"loss_before": RNG.uniform(2, 4, RUNS), "D": COLUMNS["D"]})
    assert state.priors["D"].args == pytest.approx((0.028 / np.sqrt(2), 1.0))


def test_areas_are_no_axes_along_a_run():
    columns = {"N": COLUMNS["N"], "S1_pt": np.exp(RNG.uniform(0, 4, RUNS))}
    assert [axis.name for axis in process_of(columns).axes] == ["N", "S1_pt"]
    along = process_of(columns, along_run=True)
    assert [axis.name for axis in along.axes] == ["N"]


def test_prior_variances_are_spectral_densities():
    """sqrt(2 pi) l exp(-l^2 w^2 / 2) along each axis, times the piece's variance."""
    names = list(PROCESS.priors)
    log_scales = RNG.normal(-0.5, 0.4, len(names))
    scale = dict(zip(names, np.exp(log_scales), strict=True))
    axes = {axis.name: axis for axis in PROCESS.axes}

    def spectral(name, count):
        frequency = np.pi * np.arange(count) / axes[name].length
        length = scale[f"length {name}"]
        return np.sqrt(2 * np.pi) * length * np.exp(-((length * frequency) ** 2) / 2)

    expected = []
    for piece in PROCESS.pieces:
        if " x " in piece:
            one, other = (
                spectral(name, axes[name].pair_functions) for name in piece.split(" x ")
            )
            expected.append(scale[piece] ** 2 * np.outer(one, other).ravel())
        else:
            expected.append(scale[piece] ** 2 * spectral(piece, axes[piece].functions))
    spectrum = PROCESS.spectrum
    value, slope = spectrum.log_variances(log_scales), spectrum.slopes(log_scales)
    np.testing.assert_allclose(value, np.log(np.concatenate(expected)))
    many = np.stack([log_scales - 0.3, log_scales])
    np.testing.assert_allclose(spectrum.log_variances(many)[1], value)
    for k in range(len(names)):
        step = 1e-5 * np.eye(len(names))[k]
        ends = [spectrum.log_variances(log_scales + sign * step) for sign in (1, -1)]
        np.testing.assert_allclose(slope[:, k], (ends[0] - ends[1]) / 2e-5, atol=1e-6)


def test_a_pair_s_functions_are_the_products_of_its_axes():
    features = PROCESS.features(COLUMNS, np)
    first = sum(axis.functions for axis in PROCESS.axes)
    (i, j), size = PROCESS.pairs[0], PROCESS.sizes[len(PROCESS.axes)]
    waves = []
    for axis in (PROCESS.axes[i], PROCESS.axes[j]):
        share = (position(axis.name, COLUMNS, np) - axis.low) / axis.length
        wave = np.arange(axis.pair_functions)
        height = np.where(wave == 0, 1.0, np.sqrt(2)) / np.sqrt(axis.length)
        waves.append(height * np.cos(np.pi * wave * share[:, None]))
    product = np.einsum("ri,rj->rij", *waves).reshape(RUNS, -1)
    np.testing.assert_allclose(features[:, first : first + size], product, atol=1e-12)


# -- what is learned -------------------------------------------------------------------


@pytest.fixture(scope="module", params=[marginal.MANY, 0])
def problem(request):
    """Effects of groups among the columns, and eliminated."""
    groups = np.eye(4)[np.arange(RUNS) % 4]
    rows = independent_rows(
        PROCESS.features(COLUMNS, np), {"checkpoint": groups}, None, None, 1.0
    )
    rows = rows._replace(precision=RNG.uniform(0.5, 2.0, RUNS))
    law = 0.002 * RNG.standard_normal((30, 3)) @ RNG.standard_normal((3, RUNS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal, "MANY", request.param)
        found = Marginal.of(PROCESS, rows, 0.01 * RNG.standard_normal(RUNS) + law)
    assert found.is_single.any() == (request.param == 0)
    return found


def test_the_law_s_uncertainty_is_its_covariance(problem):
    assert columns_of(problem)[:, problem.linear :].shape == (RUNS, 3)
    draws = RNG.standard_normal((50, 6)) @ RNG.standard_normal((6, RUNS))
    columns = marginal._find_directions(draws)
    np.testing.assert_allclose(columns @ columns.T, np.cov(draws.T), atol=1e-9)
    many = RNG.standard_normal((50, RUNS))
    assert marginal._find_directions(many).shape == (RUNS, 14)
    faint = draws + 1e-7 * RNG.standard_normal((50, RUNS))
    assert marginal._find_directions(faint).shape == (RUNS, 6)


def test_scales_have_their_priors(problem):
    """In order: those of the process, the noise, what groups share."""
    assert problem.names == (*PROCESS.priors, "sigma", "tau checkpoint")
    assert problem.centre[-2:] == pytest.approx(np.log([0.003, 0.003]))
    assert problem.spread[-2:] == pytest.approx([0.8, 0.7])
    np.testing.assert_allclose(
        problem.centre[:-2], [np.log(p.args[0]) for p in PROCESS.priors.values()]
    )


def dense(problem, at):
    """Covariance of the rows: prior of columns, and the noise, at these scales."""
    variances = np.exp(problem.spectrum.log_variances(at))
    columns = columns_of(problem)
    noise = np.diag(np.exp(2 * at[problem._sigma]) / problem.weight)
    return (columns * variances) @ columns.T, noise


def test_log_density_is_that_of_the_dense_normal_and_the_prior(problem):
    told, expected = [], []
    for shift in (0.0, 0.4, -0.7):
        at = problem.centre + shift * np.cos(np.arange(len(problem.centre)))
        told.append(problem.log_density(at))
        rows = stats.multivariate_normal(np.zeros(RUNS), sum(dense(problem, at)))
        of_prior = stats.norm(problem.centre, problem.spread).logpdf(at).sum()
        expected.append(rows.logpdf(problem.residual) + of_prior)
    np.testing.assert_allclose(np.diff(told), np.diff(expected), rtol=1e-6)


def test_what_is_left_of_a_row_is_its_mean_square(problem):
    """Over sigma squared, by dense regression: residual squared plus the fit's variance."""
    at = problem.centre + 0.1
    signal, noise = dense(problem, at)
    gain = signal @ np.linalg.inv(signal + noise)
    left = problem.residual - gain @ problem.residual
    variance = np.diag(signal - gain @ signal)
    expected = problem.precision * (left**2 + variance) / np.exp(2 * at[-2])
    np.testing.assert_allclose(problem.scaled_squares(at), expected, rtol=1e-6)


def test_the_mode_is_where_the_slope_vanishes_and_rows_are_weighed_by_it():
    groups = np.eye(4)[np.arange(RUNS) % 4]
    rows = independent_rows(
        PROCESS.features(COLUMNS, np), {"checkpoint": groups}, None, None, 1.0
    )
    y = 0.004 * np.random.default_rng(1).standard_normal((1, RUNS))
    y[0, 3] += 0.2
    found = Marginal.of(PROCESS, rows, y)
    np.testing.assert_array_equal(found.weight, 1.0)
    mode = found.mode()
    square = found.scaled_squares(mode)
    assert found.weight[3] < 0.05 * np.median(found.weight)
    # the last reweighting was at this mode, with eight degrees of freedom
    again = Marginal.of(PROCESS, rows, y)
    weight = again.precision.copy()
    for _ in range(4):
        again.weigh(weight)
        weight = 9 / (8 + again.scaled_squares(mode))
    np.testing.assert_allclose(found.weight[[0, 3, 9]], weight[[0, 3, 9]], rtol=0.05)
    assert (square > 0).all()


def test_scales_are_drawn_from_their_posterior():
    """Two scales by quadrature on a grid: a misfit of one axis that hardly matters, and
    the noise.
    """
    rng = np.random.default_rng(4)
    linear = np.ones((60, 1))
    weight = np.ones(60)

    # one function, whose sd is the first scale
    spectrum = Spectrum(np.zeros(1), np.array([[2.0, 0.0]]), np.zeros((1, 2)))
    problem = Marginal(
        *(spectrum, linear, sparse.csr_array((60, 0)), np.array([False]), 1),
        *(0.002 * rng.standard_normal(60), weight, weight, ("piece", "sigma")),
        *(np.log([0.003, 0.003]), np.array([0.8, 0.8])),
    )
    mode = problem.mode()
    problem.weigh(weight)
    drawn, khat = problem.draw_scales(mode, 4000, 2000, rng)
    a, b = np.linspace(-9, -3, 121), np.linspace(-7.2, -5, 111)
    log_p = np.array([[problem.log_density(np.array([x, y])) for y in b] for x in a])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    assert khat < 0.7
    mean = p.sum(1) @ a, p.sum(0) @ b
    sd = np.sqrt([p.sum(1) @ (a - mean[0]) ** 2, p.sum(0) @ (b - mean[1]) ** 2])
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1)


def test_degrees_of_freedom_follow_the_tails():
    """Their posterior over a few values, by scipy; drawn in proportion."""
    for dof, kind in ((3.0, "heavy"), (1e9, "normal")):
        left = stats.t(dof).ppf((np.arange(400) + 0.5) / 400)

        class Left(Marginal):
            def __init__(self, left=left):
                self.left = left

            def scaled_squares(self, log_scales):
                return self.left**2

        log_p = [stats.t.logpdf(left, d).sum() for d in learning.DOF]
        log_p += stats.gamma.logpdf(learning.DOF - 2, 2.0, scale=10.0)
        chance = np.exp(log_p - np.max(log_p))
        rng = np.random.default_rng(0)
        drawn = learning._draw_dof(Left(), np.zeros(1), 4000, rng)
        shares = [(drawn == d).mean() for d in learning.DOF]
        np.testing.assert_allclose(shares, chance / chance.sum(), atol=0.03)
        assert (np.mean(drawn) < 5) == (kind == "heavy")


def test_blocks_cover_all_draws_once():
    for draws, rows in ((10, 3), (7, 2_000_000), (5, 9_000_000)):
        blocks = learning._split_draws(draws, rows)
        covered = [i for block in blocks for i in range(draws)[block]]
        assert covered == list(range(draws))
        assert max(len(range(draws)[b]) for b in blocks) * rows <= max(4_000_000, rows)


def test_each_draw_of_the_law_has_the_misfit_of_what_it_leaves():
    """Two kinds of draws, a constant apart: their misfits at the runs make up for it."""
    y = 0.03 * np.sin(np.log(COLUMNS["D"]))
    draws = 60
    off = np.where(np.arange(draws) % 2, 0.01, -0.01)
    law = np.tile(off[:, None], (1, RUNS))
    rows = independent_rows(PROCESS.features(COLUMNS, np), {}, None, None, 1.0)
    misfit = learn(PROCESS, rows, y, lambda block: law[block], draws, seed=0, tries=200)
    total = law + misfit.at(COLUMNS)
    for kind in (0.01, -0.01):
        np.testing.assert_allclose(total[off == kind].mean(axis=0), y, atol=0.006)
    apart = misfit.at(COLUMNS)[off < 0].mean() - misfit.at(COLUMNS)[off > 0].mean()
    assert apart == pytest.approx(0.02, abs=0.002)
    assert misfit.tau == misfit.effects == {}
    assert not misfit.along_run
    assert set(misfit.scales) == set(PROCESS.priors)


def test_neighbours_of_a_run_foretell_each_other():
    """exp(-gap / length) of the row before; the first of a run stands alone."""
    previous, gap = np.array([0, 0, 1, 3]), np.array([np.inf, 0.5, 0.25, np.inf])
    features, groups = RNG.standard_normal((4, 2)), np.eye(4)[:, :2]
    rows = independent_rows(features, {"run": groups}, previous, gap, 0.5)
    share = np.array([0.0, np.exp(-1.0), np.exp(-0.5), 0.0])
    y = RNG.standard_normal((3, 4))
    np.testing.assert_allclose(rows.combine(y), y - share * y[:, previous])
    np.testing.assert_allclose(
        rows.features, features - share[:, None] * features[previous]
    )
    assert rows.along_run
    of_run = groups - share[:, None] * groups[previous]
    np.testing.assert_allclose(rows.groups["run"].toarray(), of_run)
    np.testing.assert_allclose(rows.precision, 1 / (1 - share**2))
