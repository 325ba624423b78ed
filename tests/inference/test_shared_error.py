"""Rows that share their error: seen from the table, integrated out exactly, and carried into forecasts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import bayeslaw
from bayeslaw._inference import likelihood
from bayeslaw._inference.table import NONE, Group, pad, shared_error

ERROR = {
    "sigma": 0.005,
    "dof_above_2": 1.5,
    "tau_checkpoint": -0.004,
    "run_length": 0.8,
}


@pytest.fixture(scope="module")
def grid():
    return bayeslaw.simulate("chinchilla", seed=2).assign(
        run=lambda t: t["checkpoint"] + t["replay"].astype(str)
    )


def test_what_the_table_shows(grid):
    """Checkpoints by column, else by N and ptpp; ladders follow each other in D; learning curves have a run's effect."""
    ladder = shared_error(grid)
    assert ladder.kind == "checkpoint"
    assert len(ladder.group.slots) == 16  # 12 checkpoints
    np.testing.assert_array_equal(ladder.previous[:7], [0, 0, 1, 2, 3, 4, 5])
    np.testing.assert_allclose(ladder.gap[:3], [np.inf, np.log(2), np.log(2)])
    by_columns = shared_error(grid.drop(columns=["checkpoint", "run"]))
    assert by_columns.kind == "checkpoint"
    assert not by_columns.along_run
    curve = grid.assign(run="one", step=np.arange(len(grid)))
    assert (
        shared_error(curve).kind is None
    )  # one run's effect cannot be told from the law
    assert shared_error(curve.assign(run=np.arange(len(grid)) % 3)).kind == "run"
    assert shared_error(grid[["N", "D", "loss"]]) == NONE


def test_effects_are_integrated_out_exactly():
    """The marginal likelihood equals adaptive quadrature of scipy, also with heavy tails, outliers and empty slots."""
    rng = np.random.default_rng(0)
    code = np.array([0, 0, 0, 0, 1, 1, 2])
    y = 0.02 * rng.standard_normal(7) + np.array([0.05, 0, 0, 0, 0, 0, 0])
    table = pad(
        {"N": np.ones(7)}, y, NONE._replace(checkpoint=Group.of(code, np.zeros(8)))
    )
    ours = likelihood.log_likelihood(
        jnp.zeros(16), table.y, table.weight, ERROR, table.shared
    )

    def rows(z, g):
        return np.prod(
            stats.t.pdf(y[code == g] - ERROR["tau_checkpoint"] * z, 3.5, scale=0.005)
        ) * stats.norm.pdf(z)

    exact = sum(
        np.log(integrate.quad(rows, -12, 12, args=(g,), epsabs=0, points=[0])[0])
        for g in range(3)
    )
    assert float(ours) == pytest.approx(exact, abs=2e-3)


def test_a_node_at_a_time_is_all_at_once(grid, monkeypatch):
    """Of many rows the likelihood and its gradient are those of few, to rounding."""
    shared = shared_error(grid)
    y = 0.005 * np.random.default_rng(1).standard_normal(len(grid))

    def both(mean, error):
        def height(mean, error):
            return likelihood.log_likelihood(mean, y, np.ones(len(grid)), error, shared)

        return jax.value_and_grad(height, argnums=(0, 1))(mean, error)

    mean, error = jnp.zeros(len(grid)), {k: jnp.asarray(v) for k, v in ERROR.items()}
    expected = both(mean, error)
    at_nodes = partial(likelihood._log_joint_at_nodes, many_rows=0)
    monkeypatch.setattr(likelihood, "_log_joint_at_nodes", at_nodes)
    assert "scan" in str(jax.make_jaxpr(both)(mean, error))
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-9),
        both(mean, error),
        expected,
    )


@pytest.mark.parametrize("many", [False, True])
def test_drawn_effects_have_the_right_law(many):
    """Mean and sd of drawn effects equal those of scipy's quadrature, also from the few candidates of a group of many rows."""
    settings = {"nearly_normal": 1} if many else {}
    y = np.array([0.004, 0.007, 0.012, 0.003])
    shared = NONE._replace(checkpoint=Group.of(np.zeros(4, int), np.zeros(8)))
    keys = jax.random.split(jax.random.PRNGKey(0), 20_000)
    error = {k: jnp.asarray(v) for k, v in ERROR.items()}
    draws = jax.vmap(
        lambda k: likelihood.draw_effects(
            k, jnp.zeros(4), jnp.asarray(y), jnp.ones(4), error, shared, **settings
        )
    )(keys)

    def density(effect):
        return np.prod(stats.t.pdf(y - effect, 3.5, scale=0.005)) * stats.norm.pdf(
            effect, scale=0.004
        )

    mass, first, second = (
        integrate.quad(lambda e, k=k: e**k * density(e), -0.05, 0.05)[0]
        for k in range(3)
    )
    sd = np.sqrt(second / mass - (first / mass) ** 2)
    assert float(draws[:, 0].mean()) == pytest.approx(first / mass, abs=0.04 * sd)
    assert float(draws[:, 0].std()) == pytest.approx(sd, rel=0.04)
    assert float(draws[:, 7].std()) == pytest.approx(
        0.004, rel=0.04
    )  # an empty slot's effect is a new one


def test_the_error_along_a_run_is_that_of_an_autoregression(grid):
    """With Gaussian tails the likelihood along runs equals the multivariate normal's."""
    shared = shared_error(grid)._replace(checkpoint=None)
    error = {"sigma": 0.005, "dof_above_2": 1e6, "run_length": 0.8}
    y = 0.005 * np.random.default_rng(1).standard_normal(len(grid))
    ours = likelihood.log_likelihood(
        jnp.zeros(len(grid)), y, np.ones(len(grid)), error, shared
    )
    along, exact = np.log(grid["D"].to_numpy()), 0.0
    for _, rows in grid.reset_index(drop=True).groupby("run"):
        t = along[rows.index]
        covariance = 0.005**2 * np.exp(-np.abs(t[:, None] - t) / 0.8)
        exact += stats.multivariate_normal.logpdf(y[rows.index], cov=covariance)
    assert float(ours) == pytest.approx(exact, rel=1e-5)
    each = likelihood.pointwise(jnp.zeros(len(grid)), y, 0.0, error, shared)
    assert float(each.sum()) == pytest.approx(float(ours))


def test_a_row_is_what_is_left_of_law_and_effect_and_of_the_row_before():
    """By scipy: an effect above explains a loss above; along a run exp(-gap / length) of
    what was left before is foretold, and the rest has its own scale.
    """
    mean, y = np.array([0.7, 0.8, 0.9]), np.array([0.71, 0.78, 0.93])
    effect = np.array([0.02, 0.02, -0.01])
    error = {"sigma": 0.01, "dof_above_2": 3.0, "run_length": 0.5}
    error = {name: jnp.asarray(value) for name, value in error.items()}
    left = y - mean - effect
    told = likelihood.pointwise(mean, y, effect, error, NONE)
    np.testing.assert_allclose(told, stats.t.logpdf(left, 5, scale=0.01), rtol=1e-9)
    previous, gap = np.array([0, 0, 1]), np.array([np.inf, 0.5, 1.0])
    along = NONE._replace(previous=previous, gap=gap)
    told = likelihood.pointwise(mean, y, np.full(3, 0.02), error, along)
    rho = np.array([0.0, np.exp(-1.0), np.exp(-2.0)])
    left, scale = y - mean - 0.02, 0.01 * np.sqrt(1 - rho**2)
    expected = stats.t.logpdf(left - rho * left[previous], 5, scale=scale)
    np.testing.assert_allclose(told, expected, rtol=1e-9)


def test_a_new_checkpoint_widens_the_forecast_a_known_one_does_not():
    """Effects of .6% are found; a new run at a checkpoint that was seen is forecast more narrowly than elsewhere, by half of the effects' variance."""
    runs = bayeslaw.simulate("chinchilla", seed=4, noise=0.002)
    effect = dict(
        zip(
            runs["checkpoint"].unique(),
            0.006 * np.random.default_rng(3).standard_normal(12),
            strict=True,
        )
    )
    runs["loss"] *= np.exp(runs["checkpoint"].map(effect))
    fit = bayeslaw.fit(runs, "chinchilla", seed=0)
    assert 0.002 < fit.posterior["tau_checkpoint"].mean() < 0.012
    assert fit.posterior["sigma"].mean() == pytest.approx(0.002, rel=0.2)
    renamed = runs.assign(checkpoint="another " + runs["checkpoint"])
    known, new = (fit.log_loss(t, noise=True).std(0).mean() for t in (runs, renamed))
    tau, sigma = (fit.posterior[name].mean() for name in ("tau_checkpoint", "sigma"))
    expected = np.sqrt((tau**2 + sigma**2) / (0.49 * tau**2 + sigma**2))
    assert new / known == pytest.approx(expected, rel=0.15)
    assert (
        fit.pieces()[0].values["sigma"].mean() > 2 * fit.posterior["sigma"].mean()
    )  # a plan is a new checkpoint's
    inside = bayeslaw.check(fit, runs).coverage["0.9"]
    assert inside > 0.85
    assert fit.posterior["dof"].min() > 2
    # it is sampled signed
    assert fit.posterior["tau_checkpoint"].min() >= 0


def test_runs_of_a_new_checkpoint_share_its_effect():
    runs = bayeslaw.simulate("chinchilla", seed=4)
    fit = bayeslaw.fit(runs, "chinchilla", seed=0)
    # of two models that the fit has not seen, too
    two = runs.iloc[[0, 0, 0]].assign(
        checkpoint=["x", "x", "y"], N=runs["N"].iloc[0] * np.array([1.1, 1.1, 1.2])
    )
    extra = fit.log_loss(two, noise=True) - fit.log_loss(two)
    kinds = ("tau_model", "tau_checkpoint")
    shared = sum((fit.posterior[tau] ** 2).mean() for tau in kinds)
    fraction = shared / (shared + (fit.posterior["sigma"] ** 2 * 1.1).mean())
    together, apart = np.corrcoef(extra.T)[0, 1], np.corrcoef(extra.T)[0, 2]
    assert abs(apart) < 0.06
    assert together == pytest.approx(fraction, abs=0.06)


def test_learning_curves_do_not_pretend_to_be_thousands_of_runs(data):
    """`anneal` on three measured schedules: every other one within .25% (both sizes), 90% intervals hold 75% of them."""
    fitted = ["cosine_24000", "constant_24000", "wsdcon_9"]
    for size in ("100m", "25m"):
        with pytest.warns(bayeslaw.RunTableWarning, match="warm"):
            runs = bayeslaw.read_runs(data(f"lr_curves_{size}.csv"))
        known = runs["schedule"].isin(fitted)
        fit = bayeslaw.fit(
            runs[known], "anneal", seed=0, preview=True
        )  # chains say the same, in minutes
        assert fit.diagnostics["khat"] < 0.7
        held = bayeslaw.check(fit, runs[~known])
        assert held.coverage["0.9"] >= 0.75, size
        for schedule, rows in runs[~known].groupby("schedule"):
            assert bayeslaw.check(fit, rows).mae_rel <= 0.0025, (size, schedule)
