"""A law's smooth misfit: its basis by formulas typed here, its marginal likelihood by dense
Gaussian regression, and what is learned of it.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse, stats

from bayeslaw._inference.discrepancy import axes, learning, marginal
from bayeslaw._inference.discrepancy.process import (
    Spectrum,
    process_from_dict,
    process_of,
    process_to_dict,
)

RNG = np.random.default_rng(21)
RUNS = 40
COLUMNS = {
    "N": np.exp(RNG.uniform(18, 22, RUNS)),
    "D": np.exp(RNG.uniform(20, 25, RUNS)),
    "replay": RNG.uniform(0.0, 0.9, RUNS),
}
PROCESS = process_of(COLUMNS)
LIMITS = {
    "N": (1e8, 1e10),
    "D": (1e9, 1e11),
    "replay": (0.05, 0.9),
    "ptpp": (10.0, 100.0),
    "loss_before": (2.0, 4.0),
}


# -- the basis -------------------------------------------------------------------------


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
        np.testing.assert_allclose(axes.position(name, at, np), places, atol=1e-12)
    assert axes.varies(np.array([0.0, 2e-6]))
    assert not axes.varies(np.array([0.0, 0.5e-6]))
    assert not axes.varies(np.array([0.0, 0.5]), 0.5)


def test_axes_come_in_one_order_whatever_the_columns():
    columns = ("replay", "mine", "N", "S1_pt", "loss_before", "D", "ptpp", "S2_cpt")
    assert axes.axis_names(columns) == (
        *("loss_before", "D", "N", "ptpp", "S1_pt", "replay", "mine"),
    )
    both = ("loss_before", "source_loss_before", "target_loss")
    assert axes.axis_names(both) == ("source_loss_before",)


def functions(reach, density, least, most):
    return min(max(int(np.ceil(reach * density)), least), most)


@pytest.mark.parametrize(
    ("columns", "margin"),
    [(COLUMNS, 1.0), (COLUMNS | {"loss_before": RNG.uniform(2, 4, RUNS)}, 0.7)],
)
def test_a_process_reaches_its_margin_beyond_the_data(columns, margin):
    process = process_of(columns)
    for axis in process.axes:
        x = axes.position(axis.name, columns, np)
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
    """All pieces together are .5% of the loss, or of a law of checkpoint state 1% at a
    million parameters, and the less the larger the models.
    """
    priors = PROCESS.priors
    assert len(PROCESS.pieces) == 6
    for name in PROCESS.pieces:
        assert priors[name].args == pytest.approx((0.005 / np.sqrt(6), 1.0))
    for axis in PROCESS.axes:
        assert priors[f"length {axis.name}"].args == (1.0, 0.5)
    state = {"loss_before": RNG.uniform(2, 4, RUNS), "D": COLUMNS["D"]}
    for sizes, whole in (
        (None, 0.01),
        (np.array([1e4, 1e6]), 0.01 * 10 ** (1 / 3)),  # in the middle of their logs
        (np.array([4e6, 4e6]), 0.01 * 4 ** (-1 / 3)),
        (np.array([1e8, 1e9]), 0.005),
    ):
        columns = state if sizes is None else state | {"N": np.resize(sizes, RUNS)}
        process = process_of(columns)
        expected = whole / np.sqrt(len(process.pieces)), 1.0
        assert process.priors["D"].args == pytest.approx(expected)


def test_runs_of_pretraining_differ_less_the_larger_the_models():
    """Other effects are alike at every size."""
    by_size = {}
    for middle in (1e6, 6.4e10):
        columns = COLUMNS | {"N": middle * np.resize([0.5, 2.0], RUNS)}
        kinds = ("model", "checkpoint", "run", "setting")
        by_size[middle] = marginal.scale_priors(process_of(columns), kinds)
    small, large = by_size.values()
    assert small["tau model"].args == pytest.approx((0.005, 0.5))
    assert large["tau model"].args == pytest.approx((0.005 / 6.4e4 ** (1 / 6), 0.5))
    others = [f"tau {kind}" for kind in ("checkpoint", "run", "setting")]
    assert [small[name] for name in others] == [large[name] for name in others]


def test_what_does_not_vary_is_no_axis():
    """Nor are areas along a run, which are its own course."""
    columns = {"N": COLUMNS["N"], "S1_pt": np.exp(RNG.uniform(0, 4, RUNS))}
    assert [axis.name for axis in process_of(columns).axes] == ["N", "S1_pt"]
    along = process_of(columns, along_run=True)
    assert [axis.name for axis in along.axes] == ["N"]
    assert process_of({"N": np.full(5, 1e9), "D": np.full(5, 2e10)}) is None


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


def cosines(axis, at, count):
    """Functions of an axis, cos(pi k x / length), of norm one; shape (row, function)."""
    share = (axes.position(axis.name, at, np) - axis.low) / axis.length
    wave = np.arange(count)
    height = np.where(wave == 0, 1.0, np.sqrt(2)) / np.sqrt(axis.length)
    return height * np.cos(np.pi * wave * share[:, None])


def test_functions_are_cosines_and_those_of_a_pair_their_products():
    features = PROCESS.features(COLUMNS, np)
    first = PROCESS.axes[0]
    alone = cosines(first, COLUMNS, first.functions)
    np.testing.assert_allclose(features[:, : first.functions], alone, atol=1e-12)
    before = sum(axis.functions for axis in PROCESS.axes)
    size = PROCESS.sizes[len(PROCESS.axes)]
    both = (PROCESS.axes[i] for i in PROCESS.pairs[0])
    waves = [cosines(axis, COLUMNS, axis.pair_functions) for axis in both]
    product = np.einsum("ri,rj->rij", *waves).reshape(RUNS, -1)
    np.testing.assert_allclose(features[:, before : before + size], product, atol=1e-12)


def test_beyond_the_margin_a_piece_stays():
    """What a law errs beyond the data is drift's."""
    far = {"N": [1e12, 1e13, 1e14], "D": [3e14, 3e15, 3e16], "replay": [0.5] * 3}
    features = PROCESS.features({c: np.array(x) for c, x in far.items()}, np)
    np.testing.assert_allclose(features, features[:1].repeat(3, axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "names",
    [
        ("N", "D"),
        ("N", "D", "replay", "ptpp"),
        ("loss_before", "D", "replay", "N"),
        ("N", "ptpp"),
    ],
)
def test_along_tokens_is_the_same_misfit(names):
    """What a plan evaluates, tokens alone, is the sum over all basis functions, inside the
    runs and beyond.
    """
    inside = {c: RNG.uniform(*LIMITS[c], 40) for c in names}
    process = process_of(inside)
    weights = RNG.standard_normal(process.size)
    wider = {
        c: RNG.uniform(0.3 * low, 0.98 * high, 20) for c, (low, high) in LIMITS.items()
    }
    wider["D"] *= np.geomspace(1e-3, 1e3, 20)
    whole = process.features({c: wider[c] for c in names}, np) @ weights
    for k in range(20):
        given = {c: jnp.asarray(wider[c][k]) for c in names if c != "D"}
        along = process.along("D", jnp.asarray(weights), given)
        assert float(along(jnp.asarray(wider["D"][k]))) == pytest.approx(
            whole[k], abs=1e-12
        )


# -- the marginal likelihood -----------------------------------------------------------

GROUPS = np.eye(4)[np.arange(RUNS) % 4]
ROW_SD = np.where(np.arange(RUNS) % 3, 0.0, 0.01)
GROWTH = np.linspace(1.0, 2.0, RUNS)  # of errors, relative to those of the largest runs
DRAWN = np.random.default_rng(5).standard_normal((30, 3))
LAW = 0.002 * DRAWN @ RNG.standard_normal((3, RUNS))


def rows_of(groups):
    """Rows whose errors fade, with errors that the table states for some."""
    features = PROCESS.features(COLUMNS, np)
    rows = learning.independent_rows(features, groups, None, None, 1.0)
    return rows._replace(row_sd=ROW_SD, scale=GROWTH)


@pytest.fixture(scope="module", params=[marginal.MANY, 0])
def problem(request):
    """Effects of groups among the columns, and eliminated; rows weighed."""
    rows = rows_of({"checkpoint": GROUPS})
    residuals = rows.combine(0.01 * RNG.standard_normal(RUNS) + LAW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal, "MANY", request.param)
        found = marginal.Marginal.of(PROCESS, rows, residuals)
    assert found.is_single.any() == (request.param == 0)
    found.weigh(RNG.uniform(0.5, 2.0, RUNS))
    return found


def dense(problem, at):
    """Covariances of the rows at these scales: of misfit, groups and stated errors, of
    the law, and of the noise.
    """
    scales = dict(zip(problem.names, np.exp(at), strict=True))
    of_pieces = PROCESS.spectrum.log_variances(at[: len(PROCESS.priors)])
    features = PROCESS.features(COLUMNS, np)
    linear = (features * np.exp(of_pieces)) @ features.T
    linear = linear + scales["tau checkpoint"] ** 2 * GROUPS @ GROUPS.T
    linear = linear + np.diag((ROW_SD / GROWTH) ** 2)
    law = np.cov((LAW / GROWTH).T)
    return linear, law, np.diag(scales["sigma"] ** 2 / problem.weight)


def test_log_density_is_that_of_the_dense_normal_and_the_prior(problem):
    told, expected = [], []
    for shift in (0.0, 0.4, -0.7):
        at = problem.centre + shift * np.cos(np.arange(len(problem.centre)))
        told.append(problem.log_density(at))
        rows = stats.multivariate_normal(np.zeros(RUNS), sum(dense(problem, at)))
        of_prior = stats.norm(problem.centre, problem.spread).logpdf(at).sum()
        expected.append(rows.logpdf(problem.residual) + of_prior)
    np.testing.assert_allclose(np.diff(told), np.diff(expected), rtol=1e-6)


def test_gradient_is_that_of_differences(problem):
    at = problem.centre + 0.2 * np.cos(np.arange(len(problem.centre)))
    steps = 1e-5 * np.eye(len(at))
    differences = [
        (problem.log_density(at + s) - problem.log_density(at - s)) / 2e-5
        for s in steps
    ]
    np.testing.assert_allclose(
        problem.gradient(at)[1], differences, rtol=1e-4, atol=1e-5
    )


def test_scales_far_out_have_a_density_too(problem):
    """Where the noise is so small beside the pieces that rounding hides it."""
    far = np.where(np.array(problem.names) == "sigma", np.log(1e-9), np.log(10.0))
    log_p, slope = problem.gradient(far)
    assert np.isfinite(log_p)
    assert np.isfinite(slope).all()
    assert log_p < problem.log_density(problem.centre)


def test_what_is_left_of_a_row_is_its_mean_square(problem):
    """Over sigma squared, by dense regression: residual squared plus the fit's variance."""
    at = problem.centre + 0.1
    linear, law, noise = dense(problem, at)
    signal = linear + law
    gain = signal @ np.linalg.inv(signal + noise)
    left = problem.residual - gain @ problem.residual
    variance = np.diag(signal - gain @ signal)
    sigma = np.exp(at[problem.names.index("sigma")])
    expected = problem.precision * (left**2 + variance) / sigma**2
    np.testing.assert_allclose(problem.scaled_squares(at), expected, rtol=1e-6)


def test_weights_are_drawn_from_their_conditional(problem):
    """Mean and sd of misfit, groups and stated errors together, given one of the law's
    draws, are those of dense Gaussian regression.
    """
    at = problem.centre
    project = problem.projection(rows_of({"checkpoint": GROUPS}))
    projected = project(np.tile(problem.residual * GROWTH, (4000, 1)))
    drawn = problem.draw_linear(at, projected, np.random.default_rng(3))
    # at the rows: features, groups, and the errors of the rows that state one
    stated = np.diag(ROW_SD / GROWTH)[:, ROW_SD > 0]
    columns = np.hstack([PROCESS.features(COLUMNS, np), GROUPS, stated])
    at_rows = drawn @ columns.T
    linear, _, noise = dense(problem, at)
    gain = linear @ np.linalg.inv(linear + noise)
    sd = np.sqrt(np.diag(linear - gain @ linear))
    expected = gain @ problem.residual
    away = 5 * sd.max() / np.sqrt(4000)
    np.testing.assert_allclose(at_rows.mean(axis=0), expected, atol=away)
    np.testing.assert_allclose(at_rows.std(axis=0), sd, rtol=0.08)


@pytest.mark.parametrize("fewest", [marginal.MANY, 0])
def test_groups_without_rows_keep_their_priors(fewest, monkeypatch):
    monkeypatch.setattr(marginal, "MANY", fewest)
    with_others = np.eye(7)[np.arange(RUNS) % 4]
    rows = rows_of({"checkpoint": with_others})._replace(
        row_sd=None, scale=np.ones(RUNS)
    )
    rng = np.random.default_rng(11)
    problem = marginal.Marginal.of(PROCESS, rows, 0.01 * rng.standard_normal((1, RUNS)))
    at = problem.centre + 0.1
    projected = problem.projection(rows)(np.tile(problem.residual, (4000, 1)))
    drawn = problem.draw_linear(at, projected, rng)
    tau = np.exp(at[problem.names.index("tau checkpoint")])
    beyond = drawn[:, PROCESS.size + 4 :] / tau
    np.testing.assert_allclose(beyond.mean(axis=0), 0.0, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(beyond.std(axis=0), 1.0, rtol=0.06)
    others = drawn[:, : PROCESS.size + 4]
    alike = np.corrcoef(others.T, beyond.T) - np.eye(drawn.shape[1])
    assert np.abs(alike[:, -3:]).max() < 0.1


def test_scales_are_drawn_from_their_posterior():
    """Two scales by quadrature on a grid: a misfit of one axis that hardly matters, and
    the noise.
    """
    rng = np.random.default_rng(4)
    linear = np.ones((60, 1))
    weight = np.ones(60)

    # one function, whose sd is the first scale
    spectrum = Spectrum(np.zeros(1), np.array([[2.0, 0.0]]), np.zeros((1, 2)))
    problem = marginal.Marginal(
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

        class Left(marginal.Marginal):
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


def test_points_along_a_run_are_projected_as_they_are_combined():
    """The products of columns with residuals are those of rows made independent."""
    previous = np.maximum(np.arange(RUNS) - 1, 0)
    gap = np.where(np.arange(RUNS) % 5, 0.2, np.inf)
    features = PROCESS.features(COLUMNS, np)
    rows = learning.independent_rows(
        features,
        {"run": np.eye(RUNS)[:, ::5].repeat(5, 1)[:, :RUNS]},
        previous,
        gap,
        0.3,
    )._replace(scale=GROWTH)
    residuals = 0.01 * RNG.standard_normal((6, RUNS))
    problem = marginal.Marginal.of(PROCESS, rows, rows.combine(residuals))
    columns = np.hstack([rows.features, rows.groups["run"].toarray()])
    expected = rows.combine(residuals) @ (problem.weight[:, None] * columns)
    np.testing.assert_allclose(problem.projection(rows)(residuals), expected, atol=1e-9)


def test_sigma_points_have_the_mean_and_covariance_of_the_draws():
    law = np.random.default_rng(8).standard_normal((500, 5))
    residuals = law @ RNG.standard_normal((5, 2500)) + 0.3
    points = learning._take_sigma_points(residuals)
    assert len(points) == 10
    np.testing.assert_allclose(points.mean(axis=0), residuals.mean(axis=0))
    some = slice(0, 2500, 50)
    covariance = np.cov(residuals[:, some].T)
    np.testing.assert_allclose(np.cov(points[:, some].T), covariance, atol=1e-9)


# -- what is learned -------------------------------------------------------------------

GRID = dict(
    zip(
        ("N", "D"),
        np.stack(
            np.meshgrid(np.geomspace(1e8, 1e10, 8), np.geomspace(1e9, 3e11, 9))
        ).reshape(2, -1),
        strict=True,
    )
)
OF_GRID = process_of(GRID)


def learned(residual, draws=200, **groups):
    """The misfit of a law that is known to be right but for ``residual``, shape (run,);
    ``groups``: one-hot by kind.
    """
    features = OF_GRID.features(GRID, np)
    rows = learning.independent_rows(features, groups, None, None, 1.0)
    known = 1e-9 * np.random.default_rng(7).standard_normal((draws, len(residual)))
    return learning.learn(
        OF_GRID, rows, residual, lambda block: known[block], draws, seed=0
    )


def test_a_smooth_misfit_is_found_and_the_noise_is_the_runs_own():
    truth = 0.02 * np.sin(np.log(GRID["D"]) / 1.5)
    misfit = learned(truth + 0.002 * np.random.default_rng(1).standard_normal(72))
    low, high = np.quantile(misfit.at(GRID), [0.05, 0.95], axis=0)
    assert ((low <= truth) & (truth <= high)).mean() >= 0.8
    assert (high - low).max() < 0.012
    assert 0.0014 < np.median(misfit.sigma) < 0.0028


def test_one_gross_outlier_does_not_bend_it():
    clean = 0.002 * np.random.default_rng(2).standard_normal(72)
    spoilt = clean.copy()
    spoilt[40] += 0.3
    before, after = (learned(y).at(GRID).mean(axis=0) for y in (clean, spoilt))
    others = np.arange(72) != 40
    assert np.abs(after - before)[others].max() < 0.002


def test_a_law_that_is_right_keeps_its_misfit_under_the_noise():
    misfit = learned(0.003 * np.random.default_rng(3).standard_normal(72))
    assert np.sqrt((misfit.at(GRID) ** 2).mean()) < 0.003
    assert 0.002 < np.median(misfit.sigma) < 0.004


def test_what_a_group_shares_is_told_from_the_misfit():
    groups = np.eye(8)[np.arange(72) % 8]
    shared = 0.01 * np.random.default_rng(4).choice([-1.0, 1.0], 8)[np.arange(72) % 8]
    misfit = learned(
        shared + 0.002 * np.random.default_rng(5).standard_normal(72), checkpoint=groups
    )
    (kind,) = misfit.tau
    assert kind == "checkpoint"
    effects = misfit.effects[kind]
    assert effects.shape == (200, 8)
    assert np.corrcoef(effects.mean(axis=0)[np.arange(72) % 8], shared)[0, 1] > 0.7
    assert np.median(misfit.tau[kind]) > 0.004


def test_each_draw_of_the_law_has_the_misfit_of_what_it_leaves():
    """Two kinds of draws, a constant apart: their misfits at the runs make up for it."""
    y = 0.03 * np.sin(np.log(COLUMNS["D"]))
    draws = 60
    off = np.where(np.arange(draws) % 2, 0.01, -0.01)
    law = np.tile(off[:, None], (1, RUNS))
    rows = learning.independent_rows(PROCESS.features(COLUMNS, np), {}, None, None, 1.0)
    misfit = learning.learn(
        PROCESS, rows, y, lambda block: law[block], draws, seed=0, tries=200
    )
    total = law + misfit.at(COLUMNS)
    for kind in (0.01, -0.01):
        np.testing.assert_allclose(total[off == kind].mean(axis=0), y, atol=0.006)
    apart = misfit.at(COLUMNS)[off < 0].mean() - misfit.at(COLUMNS)[off > 0].mean()
    assert apart == pytest.approx(0.02, abs=0.002)


def test_neighbours_of_a_run_foretell_each_other():
    """exp(-gap / length) of the row before; the first of a run stands alone."""
    previous, gap = np.array([0, 0, 1, 3]), np.array([np.inf, 0.5, 0.25, np.inf])
    features, groups = RNG.standard_normal((4, 2)), np.eye(4)[:, :2]
    rows = learning.independent_rows(features, {"run": groups}, previous, gap, 0.5)
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


# -- columns of the user's own ---------------------------------------------------------

HEATS = {
    "below 0": np.linspace(-3.0, 5.0, 9),
    "at 0": np.linspace(0.0, 1.0, 9),
    "a flag": np.tile([0.0, 1.0, 2.0], 3),
}


@pytest.mark.parametrize("heat", HEATS)
def test_an_own_column_at_0_or_below_is_an_axis_without_a_gap(heat):
    """As even as the column is; its logarithm lay 27 e-folds apart at 0."""
    columns = {"heat": HEATS[heat]}
    process = process_of(columns)
    assert process is not None
    (axis,) = process.axes
    at = axis.position(columns, np)
    scaled = HEATS[heat] * np.ptp(at) / np.ptp(HEATS[heat])
    np.testing.assert_allclose(at, scaled)
    assert np.ptp(at) == pytest.approx(2.0)
    again = process_from_dict(process_to_dict(process))
    assert again == process
    np.testing.assert_allclose(
        again.features(columns, np), process.features(columns, np)
    )


def test_a_positive_own_column_and_those_of_the_schema_keep_their_logarithms():
    columns = {"heat": np.array([0.5, 1.0, 2.0]), "N": np.array([1e8, 1e9, 1e10])}
    process = process_of(columns)
    assert process is not None
    assert [axis.unit for axis in process.axes] == [0.0, 0.0]
    old = process_to_dict(process)
    assert old is not None
    for axis in old["axes"]:
        del axis["unit"]  # as it was saved once
    assert process_from_dict(old) == process
