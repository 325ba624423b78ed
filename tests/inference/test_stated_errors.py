"""Standard errors that a table states (column ``loss_sd``): each row's noise is sigma and
its own error in quadrature, in the fit, the misfit, forecasts and files.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import RunTableError, RunTableWarning
from bayeslaw._inference.likelihood import log_likelihood
from bayeslaw._inference.table import NONE, Group, pad, shared_error
from bayeslaw._running.updating.surprise import foresee
from bayeslaw.cli.app import app

NOISE = {"sigma": 0.005, "dof_above_2": 1.5, "tau_checkpoint": 0.004, "run_length": 0.8}
# a law of one parameter: the floor
FLOOR = {"E": "lognormal(2.0, 0.3)", "A": "fixed(0.5)", "alpha": "fixed(0.3)"}


def measured(rows=8, seed=3):
    """Runs of ``E + A/N^alpha``; the larger half was evaluated on few tokens."""
    rng = np.random.default_rng(seed)
    N = np.geomspace(1e8, 1e10, rows)
    few = np.arange(rows) >= rows // 2
    law = 1.9 + 0.5 * (N / 1e9) ** -0.3
    loss_sd = np.where(few, 0.06, 0.0)
    log_loss = np.log(law) + np.hypot(0.002, loss_sd / law) * rng.standard_normal(rows)
    return pd.DataFrame({"N": N, "loss": np.exp(log_loss), "loss_sd": loss_sd})


def fitted(runs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return bayeslaw.fit(
            runs,
            "E + A/N^alpha",
            priors=FLOOR,
            reference={"N": 1e9},
            seed=1,
            on_failure="ignore",
            **options,
        )


def test_rows_have_sigma_and_their_own_error():
    """The likelihood is scipy's Student-t of the scales in quadrature; with effects of
    checkpoints it is adaptive quadrature of it.
    """
    y = np.array([0.01, -0.002, 0.03, 0.004])
    row_sd = np.array([0.0, 0.01, 0.02, 0.001])
    scale = np.hypot(0.005, row_sd)
    apart = pad({"N": np.ones(4)}, y, NONE._replace(row_sd=row_sd))
    ours = log_likelihood(jnp.zeros(16), apart.y, apart.weight, NOISE, apart.shared)
    expected = stats.t.logpdf(y, 3.5, scale=scale)
    assert float(ours) == pytest.approx(expected.sum(), abs=1e-9)
    group = Group.of(np.array([0, 0, 1, 1]), np.zeros(8))
    shared = pad({"N": np.ones(4)}, y, NONE._replace(row_sd=row_sd, checkpoint=group))
    ours = log_likelihood(jnp.zeros(16), shared.y, shared.weight, NOISE, shared.shared)

    def rows(z, inside):
        residual = y[inside] - 0.004 * z
        at_rows = stats.t.pdf(residual, 3.5, scale=scale[inside])
        return np.prod(at_rows) * stats.norm.pdf(z)

    exact = 0.0
    for inside in (slice(0, 2), slice(2, 4)):
        area, _ = integrate.quad(rows, -12, 12, args=(inside,), epsabs=0, points=[0])
        exact += np.log(area)
    assert float(ours) == pytest.approx(exact, abs=2e-3)


def test_along_a_run_the_error_of_the_row_before_counts():
    """What is new at a row has the variance of a direct reckoning: e_i - rho e_{i-1} of an
    autoregression, plus stated errors of both rows.
    """
    runs = pd.DataFrame({"run": "a", "D": [1e9, 2e9], "N": 1e8, "loss": 2.0})
    runs = pd.concat([runs, runs.assign(run="b", loss=2.1)], ignore_index=True)
    shared = shared_error(runs.assign(loss_sd=[0.02, 0.04, 0.0, 0.0]))
    row_sd = np.asarray(shared.row_sd)
    assert row_sd == pytest.approx([0.01, 0.02, 0, 0])
    y = np.array([0.01, 0.02, 0.0, 0.0])
    ours = log_likelihood(jnp.zeros(4), y, np.ones(4), NOISE, shared)
    rho = np.exp(-np.log(2) / 0.8)
    new = 0.005**2 * (1 - rho**2)
    at_rows = [
        stats.t.logpdf(0.01, 3.5, scale=np.hypot(0.005, 0.01)),
        stats.t.logpdf(
            0.02 - rho * 0.01,
            3.5,
            scale=np.sqrt(new + 0.02**2 + (rho * 0.01) ** 2),
        ),
        stats.t.logpdf(0.0, 3.5, scale=0.005),
        stats.t.logpdf(0.0, 3.5, scale=np.sqrt(new)),
    ]
    assert float(ours) == pytest.approx(sum(at_rows), abs=1e-9)


def test_posterior_of_a_small_law_is_brute_force():
    """Floor and sigma: mean and sd of a grid over floor, sigma and degrees of freedom."""
    runs = measured()
    fit = fitted(runs, discrepancy=False)
    y = np.log(runs["loss"].to_numpy())
    row_sd = (runs["loss_sd"] / runs["loss"]).to_numpy()
    size = 0.5 * (runs["N"].to_numpy() / 1e9) ** -0.3
    floor = np.linspace(1.85, 1.95, 101)[:, None, None, None]
    log_sigma = np.linspace(np.log(1e-4), np.log(0.1), 60)[:, None, None]
    above_2 = np.geomspace(0.2, 120, 20)[:, None]
    scale = np.hypot(np.exp(log_sigma), row_sd)
    dof = 2 + above_2
    rows = stats.t.logpdf(y - np.log(floor + size), dof, scale=scale).sum(axis=-1)
    log_p = rows + stats.norm.logpdf(np.log(floor[..., 0]), np.log(2.0), 0.3)
    log_p = log_p + stats.norm.logpdf(log_sigma[..., 0], np.log(0.005), 1.0)
    # its density, by the width of cells that are even in its logarithm
    log_p = log_p + stats.gamma.logpdf(above_2[:, 0], 2.0, scale=10.0)
    log_p = log_p + np.log(above_2[:, 0])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    of_floor, of_sigma = p.sum(axis=(1, 2)), p.sum(axis=(0, 2))
    values, logs = floor[:, 0, 0, 0], log_sigma[:, 0, 0]
    mean = of_floor @ values
    sd = np.sqrt(of_floor @ (values - mean) ** 2)
    draws = fit.posterior
    assert draws["E"].mean() == pytest.approx(mean, abs=0.15 * sd)
    assert draws["E"].std() == pytest.approx(sd, rel=0.1)
    assert np.log(draws["sigma"]).mean() == pytest.approx(of_sigma @ logs, abs=0.08)


def test_precise_rows_decide():
    """Rows of a tenth of the precision move the floor by less than they do unweighed, and
    sigma is that of the precise ones.
    """
    runs = measured(rows=24, seed=5)
    stated, unstated = fitted(runs), fitted(runs.drop(columns="loss_sd"))
    error = {
        name: abs(fit.posterior["E"].mean() - 1.9)
        for name, fit in {"stated": stated, "unstated": unstated}.items()
    }
    assert error["stated"] < 0.004 < error["unstated"] + 0.004
    assert np.median(stated.posterior["sigma"]) < 0.005
    assert np.median(unstated.posterior["sigma"]) > 0.008


def test_a_forecast_widens_by_the_error_that_it_will_have(tmp_path):
    """A new run that is evaluated on few tokens; the law's interval stays. A saved fit
    forecasts the same.
    """
    fit = fitted(measured(rows=24, seed=5))
    plain = pd.DataFrame({"N": [3e9]})
    rough = plain.assign(loss_sd=0.06)
    exact = bayeslaw.forecast(fit, plain).iloc[0]
    wide = bayeslaw.forecast(fit, rough).iloc[0]
    half = (wide["high"] - wide["low"]) / 2
    expected = np.hypot((exact["high"] - exact["low"]) / 2, 1.645 * 0.06)
    assert half == pytest.approx(expected, rel=0.15)
    assert wide["law_low"] == exact["law_low"]
    path = fit.save(tmp_path / "fit.nc")
    again = bayeslaw.forecast(bayeslaw.Fit.load(path), rough).iloc[0]
    assert again["low"] == wide["low"]


def test_intervals_of_rows_of_any_precision_hold():
    """90% intervals of new runs hold 84 to 96% of 300 rows, precise and rough ones each."""
    fit = fitted(measured(rows=24, seed=5))
    rng = np.random.default_rng(0)
    N = rng.uniform(1e8, 1e10, 300)
    law = 1.9 + 0.5 * (N / 1e9) ** -0.3
    loss_sd = np.where(np.arange(300) % 2, 0.06, 0.0)
    log_loss = np.log(law) + np.hypot(0.002, loss_sd / law) * rng.standard_normal(300)
    table = pd.DataFrame({"N": N, "loss_sd": loss_sd})
    rows = bayeslaw.forecast(fit, table)
    holds = (rows["low"] <= np.exp(log_loss)) & (np.exp(log_loss) <= rows["high"])
    assert 0.84 <= holds[loss_sd > 0].mean() <= 0.96
    assert holds[loss_sd == 0].mean() >= 0.84


def test_an_update_is_not_surprised_by_rough_rows():
    """What was foreseen of new rows has the error that they state."""
    fit = fitted(measured(rows=24, seed=5))
    rows = pd.DataFrame({"N": [3e9, 4e9], "loss": [2.3, 2.2]})
    exact = foresee(fit, rows).errors.scale
    rough = foresee(fit, rows.assign(loss_sd=0.06)).errors.scale
    law = np.exp(np.median(fit.log_loss(rows), axis=0))
    assert rough == pytest.approx(np.hypot(exact, 0.06 / law), rel=1e-6)


def test_an_average_weighs_stages_by_them():
    """An average with stated errors has the drift of the precise table: rough stages left
    out do not count as misses of the law.
    """
    runs = bayeslaw.simulate("chinchilla", seed=4, noise=1e-3)[["N", "D", "loss"]]
    runs = runs.drop_duplicates(["N", "D"])
    rng = np.random.default_rng(1)
    sd = np.where(runs["D"] > runs["D"].median(), 0.08, 0.0)
    rough = runs.assign(loss=runs["loss"] + sd * rng.standard_normal(len(runs)))
    widths = {}
    for name, table in {"unstated": rough, "stated": rough.assign(loss_sd=sd)}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            average = bayeslaw.average(
                table, ["chinchilla"], seed=0, on_failure="ignore"
            )
        row = bayeslaw.forecast(average, pd.DataFrame({"N": [2e9], "D": [4e11]}))
        widths[name] = float((row["law_high"] - row["law_low"]).iloc[0])
    assert widths["stated"] < 0.7 * widths["unstated"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ([-0.01, 0.0], "row 1, column 'loss_sd': -0.01 is negative"),
        ([0.01, None], "row 2, column 'loss_sd': empty; a table with standard errors"),
        (["low", 0.01], "row 1, column 'loss_sd'"),
        ([np.inf, 0.01], "row 1, column 'loss_sd': inf is infinite"),
    ],
)
def test_refused_in_one_line(cells, reason):
    runs = bayeslaw.simulate("chinchilla", seed=1).iloc[:30]
    column = np.full(len(runs), 0.01, object)
    column[:2] = cells
    table = runs.reset_index(drop=True).assign(loss_sd=column)
    with pytest.raises(RunTableError, match=reason) as refusal:
        bayeslaw.fit(table, "chinchilla", preview=True)
    assert "\n" not in str(refusal.value)


def test_the_spread_of_batches_is_warned_of():
    runs = measured().assign(loss_sd=0.4)
    with warnings.catch_warnings(record=True) as told:  # also of guessed priors
        warnings.simplefilter("always")
        bayeslaw.fit(runs, "E + A/N^alpha", preview=True, on_failure="ignore")
    lines = [str(one.message) for one in told if one.category is RunTableWarning]
    assert any("not the spread of the batches" in line for line in lines)


def test_from_the_command_line(tmp_path):
    """The column by its name of one's own; it is said that it counts; help has it."""
    runs = measured(rows=24, seed=5).rename(columns={"loss_sd": "stderr"})
    runs.to_csv(tmp_path / "runs.csv", index=False)
    words = ["fit", str(tmp_path / "runs.csv"), "--law", "E + A/N^alpha", "--preview"]
    words += ["--reference", "N=1e9", "--accept-diagnostics"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # guessed priors
        result = CliRunner().invoke(app, [*words, "--column", "loss_sd=stderr"])
    assert result.exit_code == 0, result.output
    assert "loss_sd" in result.stdout
    missing = CliRunner().invoke(app, [*words, "--column", "loss_sd=stder"])
    assert isinstance(missing.exception, RunTableError)
    assert "did you mean 'stderr'?" in str(missing.exception)
    assert "loss_sd=" in CliRunner().invoke(app, ["fit", "--help"]).stdout
