"""The papers' fit: finds the best optimum, reproduces published numbers, and breaks where theirs breaks."""

import numpy as np
import pandas as pd
import pytest
from point_fits import resampled_losses
from scipy import optimize

import bayeslaw


@pytest.mark.parametrize("name", ["chinchilla", "coupled", "dcpt", "ptpp-floor"])
def test_noiseless_runs_give_their_parameters_back(name):
    """Without noise the law's own loss is recovered to a part in 10^4 at every run, and the objective is nil."""
    runs = bayeslaw.simulate(name, noise=0.0)
    fitted = bayeslaw.point_fit(runs, bayeslaw.law(name))
    assert fitted.objective < 1e-9
    np.testing.assert_allclose(fitted.loss(runs), runs["loss"], rtol=1e-4)


def test_no_scipy_start_finds_a_better_optimum():
    """The Huber objective of twenty scipy L-BFGS-B starts, the papers' way, is never below ours."""
    runs = bayeslaw.simulate("chinchilla", seed=2, noise=0.02)
    ours = bayeslaw.point_fit(runs, bayeslaw.law("chinchilla"))
    n, d, y = (np.log(runs[c].to_numpy()) for c in ("N", "D", "loss"))

    def objective(p):
        log_a, log_b, log_e, alpha, beta = p
        r = np.logaddexp(np.logaddexp(log_a - alpha * n, log_b - beta * d), log_e) - y
        far = np.abs(r) > ours.delta
        return (
            np.where(far, ours.delta * (np.abs(r) - ours.delta / 2), r**2 / 2).mean()
            * 1e4
        )

    rng = np.random.default_rng(0)
    starts = rng.uniform([0, 0, -1, 0.1, 0.1], [12, 14, 1, 0.8, 0.8], (20, 5))
    best = (
        min(optimize.minimize(objective, s, method="L-BFGS-B").fun for s in starts)
        / 1e4
    )
    assert ours.objective <= best * (1 + 1e-4)


def test_chinchilla_s_published_point_fit_and_its_five_bad_points(data):
    """E 1.817, beta .366 without five points of little data; 1.89 and .45 with them (LAWS, trap 7; Besiroglu 2024)."""
    law = bayeslaw.law("chinchilla")
    clean = bayeslaw.point_fit(
        bayeslaw.read_runs(data("chinchilla.csv"), where="D/N > 0.41"), law, delta=1e-3
    )
    assert clean.parameters["E"] == pytest.approx(1.817, abs=0.002)
    assert clean.parameters["beta"] == pytest.approx(0.366, abs=0.002)
    broken = bayeslaw.point_fit(
        bayeslaw.read_runs(data("chinchilla.csv")), law, delta=1e-3
    )
    assert broken.parameters["E"] == pytest.approx(1.89, abs=0.005)
    assert broken.parameters["beta"] == pytest.approx(0.45, abs=0.005)


@pytest.mark.filterwarnings("ignore:rows 2")  # what is resampled is there twice
def test_bootstrap_spreads_as_resampling_does():
    """A compiled refit of a resampled table equals fitting that table; the spread of the loss covers the truth."""
    law = bayeslaw.law("chinchilla")
    runs = bayeslaw.simulate(law, seed=4)
    fitted = bayeslaw.point_fit(runs, law, bootstrap=64, seed=9)
    n = len(runs)
    counts = np.random.default_rng(9).multinomial(n, np.full(n, 1 / n), size=64)[0]
    resampled = runs.iloc[np.repeat(np.arange(n), counts)]
    alone = bayeslaw.point_fit(resampled, law)
    assert fitted.bootstrap["alpha"][0] == pytest.approx(
        alone.parameters["alpha"], rel=1e-4
    )
    truth = np.asarray(
        law.loss(
            {c: runs[c].to_numpy() for c in law.covariates},
            law.from_paper(law.plausible),
        )
    )
    low, high = np.quantile(resampled_losses(fitted, runs), [0.005, 0.995], axis=0)
    assert ((low <= truth) & (truth <= high)).mean() > 0.8


def test_two_domains_in_one_fit_are_warned_of():
    """As `fit` does: one law can only average their losses."""
    runs = bayeslaw.simulate("chinchilla")
    both = pd.concat([runs.assign(domain="a"), runs.assign(domain="b")])
    with pytest.warns(bayeslaw.RunTableWarning, match="2 domains are fitted as if"):
        bayeslaw.point_fit(both.reset_index(drop=True), "chinchilla")


@pytest.mark.parametrize(
    "options",
    [
        *({"bootstrap": -1}, {"starts": 0}, {"delta": 0.0}),
        *({"delta": float("nan")}, {"delta": -0.02}),
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    """A delta of nan gave parameters that no table has."""
    (name,) = options
    runs = bayeslaw.simulate("chinchilla", seed=1)
    with pytest.raises(bayeslaw.PlanError, match=f"{name} must be"):
        bayeslaw.point_fit(runs, "chinchilla", **options)
