"""A law's smooth misfit: its basis, its marginal likelihood, and what is learned of it."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bayeslaw._inference.discrepancy import marginal
from bayeslaw._inference.discrepancy.axes import AXES, axis_names, position
from bayeslaw._inference.discrepancy.learning import independent_rows, learn
from bayeslaw._inference.discrepancy.marginal import Marginal
from bayeslaw._inference.discrepancy.process import (
    process_from_dict,
    process_of,
    process_to_dict,
)
from bayeslaw._inference.table import sharing
from bayeslaw._posteriors.fits.misfit import TrainingRuns
from known.marginals import columns_of, linear_of

RNG = np.random.default_rng(7)


def grid(sizes=8, budgets=9):
    """Sizes and tokens of a table, each of shape (run,)."""
    N, D = np.meshgrid(np.geomspace(1e8, 1e10, sizes), np.geomspace(1e9, 3e11, budgets))
    return {"N": N.ravel(), "D": D.ravel()}


COLUMNS = grid()
LIMITS = {
    "N": (1e8, 1e10),
    "D": (1e9, 1e11),
    "replay": (0.05, 0.9),
    "ptpp": (10.0, 100.0),
    "loss_before": (2.0, 4.0),
}
PROCESS = process_of(COLUMNS)
CENTRE = np.array([np.log(p.args[0]) for p in PROCESS.priors.values()])


def learned(residual, seed=0, draws=200, **groups):
    """The misfit of a law that is known to be right but for ``residual``, shape (run,);
    ``groups``: one-hot by kind.
    """
    features = PROCESS.features(COLUMNS, np)
    rows = independent_rows(features, groups, None, None, 1.0)
    known = 1e-9 * RNG.standard_normal((draws, len(residual)))
    return learn(PROCESS, rows, residual, lambda block: known[block], draws, seed=seed)


# -- the basis ---------------------------------------------------------------------------------------------------------


def test_basis_is_the_same_in_numpy_and_jax_for_any_shape():
    found = PROCESS.features({c: jnp.asarray(v) for c, v in COLUMNS.items()}, jnp)
    np.testing.assert_allclose(found, PROCESS.features(COLUMNS, np), atol=1e-12)
    one = PROCESS.features({c: np.float64(v[5]) for c, v in COLUMNS.items()}, np)
    np.testing.assert_allclose(one, PROCESS.features(COLUMNS, np)[5], atol=1e-12)
    assert one.shape == (PROCESS.size,)


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
    """What a plan evaluates, tokens alone, is the sum over all basis functions, inside the runs and beyond."""
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


def test_recurrence_is_the_cosine():
    axis = PROCESS.axes[0]
    x = np.linspace(axis.low, axis.high, 40)
    waves = np.arange(axis.functions)
    height = np.where(waves == 0, 1.0, np.sqrt(2.0)) / np.sqrt(axis.length)
    expected = height * np.cos(np.pi * waves * ((x - axis.low) / axis.length)[:, None])
    np.testing.assert_allclose(axis.cosines(x, np), expected, atol=1e-12)


def test_a_piece_has_the_squared_exponential_kernel_inside_the_data():
    """The covariance of the basis with its prior variances is the kernel's, to 2% of its variance."""
    axis = PROCESS.axes[0]
    log_scales = CENTRE.copy()
    names = list(PROCESS.priors)
    log_scales[names.index(f"length {axis.name}")] = 0.0  # one unit
    log_scales[names.index(axis.name)] = 0.0  # one in log loss
    variances = np.exp(PROCESS.spectrum.log_variances(log_scales)[: axis.functions])
    x = np.linspace(axis.low + 1.0, axis.high - 1.0, 25)
    waves = axis.cosines(x, np)
    expected = np.exp(-0.5 * (x[:, None] - x) ** 2)
    middle = slice(8, 17)  # away from the ends, which reflect
    np.testing.assert_allclose(
        ((waves * variances) @ waves.T)[middle, middle],
        expected[middle, middle],
        atol=0.02,
    )


def test_beyond_the_margin_a_piece_stays():
    """What a law errs beyond the data is drift's."""
    out = {"N": np.array([1e12, 1e13, 1e14]), "D": np.array([3e14, 3e15, 3e16])}
    features = PROCESS.features(out, np)
    np.testing.assert_allclose(features, features[:1].repeat(3, axis=0), rtol=1e-6)


def test_axes_of_laws():
    assert axis_names(("N", "D")) == ("D", "N")
    assert axis_names(("N", "D", "replay", "loss_before", "source_loss_before")) == (
        "source_loss_before", "D", "N", "replay",
    )  # fmt: skip
    assert axis_names(("N", "D", "U")) == ("D", "N", "U")
    x = position("D", {"D": np.array([1e9, 1e9 * np.exp(AXES.count_unit)])}, np)
    assert np.diff(x) == pytest.approx(1.0)


def test_a_process_survives_json_and_keys_programs():
    again = process_from_dict(process_to_dict(PROCESS))
    assert again == PROCESS
    assert hash(again) == hash(PROCESS)


def test_no_process_where_the_runs_do_not_differ():
    assert process_of({"N": np.full(5, 1e9), "D": np.full(5, 2e10)}) is None


# -- the marginal likelihood -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[marginal.MANY, 0])
def problem(request):
    """Effects of groups among the columns, and eliminated."""
    y = 0.02 * np.sin(np.log(COLUMNS["D"])) + 0.003 * RNG.standard_normal(72)
    groups = np.eye(8)[np.arange(72) % 8]
    rows = independent_rows(
        PROCESS.features(COLUMNS, np), {"checkpoint": groups}, None, None, 1.0
    )
    law = y + 0.001 * RNG.standard_normal((50, 1)) * np.log(COLUMNS["N"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal, "MANY", request.param)
        found = Marginal.of(PROCESS, rows, law)
    assert found.is_single.any() == (request.param == 0)
    return found


def test_marginal_likelihood_is_that_of_the_dense_normal(problem):
    """Differences of log densities at three scales agree with scipy's multivariate normal."""
    found, expected = [], []
    for shift in (0.0, 0.3, -0.4):
        at = problem.centre + shift * np.linspace(-1, 1, len(problem.centre))
        prior = -0.5 * np.sum(((at - problem.centre) / problem.spread) ** 2)
        found.append(problem.log_density(at) - prior)
        variances = np.exp(problem.spectrum.log_variances(at))
        columns = columns_of(problem)
        noise = np.exp(2 * at[problem._sigma]) / problem.weight
        covariance = (columns * variances) @ columns.T + np.diag(noise)
        expected.append(
            stats.multivariate_normal(np.zeros(72), covariance).logpdf(problem.residual)
        )
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)


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
    """Where the noise is so small beside the pieces that rounding hides it; importance sampling may try them."""
    far = np.where(np.array(problem.names) == "sigma", np.log(1e-9), np.log(10.0))
    log_p, slope = problem.gradient(far)
    assert np.isfinite(log_p)
    assert np.isfinite(slope).all()
    assert log_p < problem.log_density(problem.centre)


def test_weights_are_drawn_from_their_conditional(problem):
    """Mean and sd of the misfit at the runs agree with the dense formulas of Gaussian regression."""
    at, linear = problem.centre, linear_of(problem)
    projected = problem.project(np.tile(problem.residual, (4000, 1)))
    np.testing.assert_allclose(
        projected[0], problem.residual @ (linear * problem.weight[:, None])
    )
    drawn = problem.draw_linear(at, projected, np.random.default_rng(3)) @ linear.T
    variances = np.exp(problem.spectrum.log_variances(at)[: problem.linear])
    prior = (linear * variances) @ linear.T
    noise = np.diag(np.exp(2 * at[problem._sigma]) / problem.weight)
    gain = np.linalg.solve(prior + noise, prior).T
    sd = np.sqrt(np.diag(prior - gain @ prior))
    np.testing.assert_allclose(
        drawn.mean(axis=0), gain @ problem.residual, atol=5 * sd.max() / np.sqrt(4000)
    )
    np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.08)


@pytest.mark.parametrize("fewest", [marginal.MANY, 0])
def test_columns_that_no_run_reaches_keep_their_priors(fewest, monkeypatch):
    """Groups none of whose rows are here: no run says anything of them."""
    monkeypatch.setattr(marginal, "MANY", fewest)
    rng = np.random.default_rng(11)
    groups = np.eye(12)[np.arange(72) % 8]
    rows = independent_rows(
        PROCESS.features(COLUMNS, np), {"checkpoint": groups}, None, None, 1.0
    )
    residual = 0.01 * rng.standard_normal((1, 72))
    problem = Marginal.of(PROCESS, rows, residual)
    linear = linear_of(problem)
    beyond = ~linear.any(axis=0)
    assert list(np.flatnonzero(beyond) - PROCESS.size) == [8, 9, 10, 11]
    at = problem.centre + 0.1
    projected = residual @ (linear * problem.weight[:, None])
    drawn = problem.draw_linear(at, np.tile(projected, (4000, 1)), rng)
    sds = np.exp(problem.spectrum.log_variances(at) / 2)[: problem.linear]
    scaled = drawn[:, beyond] / sds[beyond]
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=5 / np.sqrt(4000))
    np.testing.assert_allclose(scaled.std(axis=0), 1.0, rtol=0.06)
    apart = np.corrcoef(scaled.T) - np.eye(beyond.sum())
    assert np.abs(apart).max() < 0.1
    # nor does what is learned of the others tell of them
    told = np.corrcoef(drawn[:, ~beyond].T, scaled.T)[
        : (~beyond).sum(), -beyond.sum() :
    ]
    assert np.abs(told).max() < 0.1


# -- what is learned ---------------------------------------------------------------------------------------------------


def test_a_smooth_misfit_is_found_and_the_noise_is_the_runs_own():
    truth = 0.02 * np.sin(np.log(COLUMNS["D"]) / 1.5)
    misfit = learned(truth + 0.002 * np.random.default_rng(1).standard_normal(72))
    low, high = np.quantile(misfit.at(COLUMNS), [0.05, 0.95], axis=0)
    assert ((low <= truth) & (truth <= high)).mean() >= 0.8
    assert (high - low).max() < 0.012
    assert 0.0014 < np.median(misfit.sigma) < 0.0028


def test_one_gross_outlier_does_not_bend_it():
    clean = 0.002 * np.random.default_rng(2).standard_normal(72)
    spoilt = clean.copy()
    spoilt[40] += 0.3
    before, after = (learned(y).at(COLUMNS).mean(axis=0) for y in (clean, spoilt))
    others = np.arange(72) != 40
    assert np.abs(after - before)[others].max() < 0.002


def test_a_law_that_is_right_keeps_its_misfit_under_the_noise():
    misfit = learned(0.003 * np.random.default_rng(3).standard_normal(72))
    assert np.sqrt((misfit.at(COLUMNS) ** 2).mean()) < 0.003
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


def test_neighbours_on_a_curve_are_made_independent():
    """Residuals of an autoregression come out white, and with the precision of their innovations."""
    rng, gaps = np.random.default_rng(6), 0.3
    share = np.exp(-gaps / 0.5)
    series = np.empty((400, 60))
    series[:, 0] = rng.standard_normal(400)
    for i in range(1, 60):
        series[:, i] = share * series[:, i - 1] + np.sqrt(
            1 - share**2
        ) * rng.standard_normal(400)
    previous, gap = np.maximum(np.arange(60) - 1, 0), np.full(60, gaps)
    gap[0] = np.inf
    rows = independent_rows(np.ones((60, 1)), {}, previous, gap, 0.5)
    white = rows.combine(series) * np.sqrt(rows.precision)
    np.testing.assert_allclose(white.var(axis=0), 1.0, atol=0.25)
    assert abs(np.corrcoef(white[:, 5], white[:, 6])[0, 1]) < 0.15


def test_rows_left_out_take_their_place_in_a_run_with_them():
    runs = pd.DataFrame(
        {"run": ["a"] * 3 + ["b"] * 3, "D": [1e9, 2e9, 4e9] * 2, "N": 1e8, "loss": 2.0}
    )
    training = TrainingRuns(
        {"N": runs["N"].to_numpy(), "D": runs["D"].to_numpy()},
        np.zeros(6),
        sharing(runs, ["N", "D"]),
    )
    part = training.only(np.array([True, False, True, True, True, False]))
    assert part.sharing.previous.tolist() == [
        0,
        1,
        2,
        2,
    ]  # the second row's predecessor is gone: it begins a run
    assert np.isinf(part.sharing.gap).tolist() == [True, True, True, False]
