"""Where chains disagree, weights decide: on runs of heavy tails, with chains that each kept to a part."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import bayeslaw
from bayeslaw._inference import importance, nuts
from bayeslaw._inference.modes import Peak

PRIOR_DRAWS = 4_000_000
FAR = {"N": 3e10, "D": 1e12}


@pytest.fixture(scope="module")
def heavy() -> pd.DataFrame:
    """Fifteen runs under Student-t noise of 10% and 1.5 degrees of freedom."""
    rng = np.random.default_rng(0)
    n = 10 ** rng.uniform(7, 10, 15)
    d = n * 10 ** rng.uniform(0.5, 2.5, 15)
    log_loss = np.log(1.69 + 406 / n**0.34 + 410 / d**0.28)
    noise = 0.1 * rng.standard_t(1.5, 15)
    return pd.DataFrame({"N": n, "D": d, "loss": np.exp(log_loss + noise)})


@pytest.fixture(scope="module")
def fitted(heavy):
    """By chains of which each seems to have stayed in a quarter of what all of them drew."""
    sample = nuts.sample

    def apart(*args, **options):
        drawn = sample(*args, **options)
        order = np.argsort(drawn.sites["alpha"], axis=None)
        sites = {
            n: v.reshape(-1)[order].reshape(v.shape) for n, v in drawn.sites.items()
        }
        return drawn._replace(sites=sites)

    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always", UserWarning)
        patch.setattr(nuts, "sample", apart)
        result = bayeslaw.fit(
            heavy,
            "chinchilla",
            discrepancy=False,
            experience="none",  # the draws below are of the law's own priors
            seed=3,
            on_failure="ignore",
        )
    assert any("the chains disagreed (R-hat" in str(one.message) for one in told)
    return result


def by_prior_draws(runs: pd.DataFrame, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Far log losses and weights: parameters from the priors, written out here, weighed
    by the likelihood.
    """
    rng = np.random.default_rng(1)

    def positive(median: float, sd: float) -> np.ndarray:
        return np.exp(np.log(median) + sd * rng.standard_normal(draws))

    floor, size, data = positive(1.6, 0.4), positive(0.3, 1.0), positive(0.3, 1.0)
    priors = bayeslaw.law("chinchilla").priors
    alpha, beta = (positive(*priors[n].args) for n in ("alpha", "beta"))
    # the noise is far out in its prior: drawn where it is, and weighed by the prior
    sigma, dof = positive(0.15, 0.4), 2 + rng.gamma(2.0, 1 / 0.1, draws)

    def log_loss(n: float, d: float) -> np.ndarray:
        return np.log(floor + size * (n / 1e9) ** -alpha + data * (d / 2e10) ** -beta)

    log_sigma = np.log(sigma)
    log_weight = stats.norm.logpdf(log_sigma, np.log(0.005), 1.0)
    log_weight -= stats.norm.logpdf(log_sigma, np.log(0.15), 0.4)
    for row in runs.itertuples():
        miss = np.log(row.loss) - log_loss(row.N, row.D)
        log_weight += stats.t.logpdf(miss, dof, scale=sigma)
    weight = np.exp(log_weight - log_weight.max())
    return log_loss(FAR["N"], FAR["D"]), weight / weight.sum()


def test_the_posterior_is_that_of_draws_from_the_prior(heavy, fitted):
    """Quantiles of a far forecast agree with those of weighted draws from the prior."""
    far, weight = by_prior_draws(heavy, PRIOR_DRAWS)
    effective = 1 / np.sum(weight**2)
    assert effective > 1000
    got = fitted.log_loss(pd.DataFrame([FAR]))[:, 0]
    order = np.argsort(far)
    below = np.cumsum(weight[order])
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        theirs = far[order][np.searchsorted(below, share)]
        ours = np.mean(got < theirs)
        # of both samples; 4,000 draws of ours, of which some 1,800 are effective
        error = np.sqrt(share * (1 - share) * (1 / effective + 1 / 1500))
        assert abs(ours - share) < 4 * error, share


def test_it_passes_and_says_how_it_was_drawn(fitted):
    assert fitted.warnings == ()
    assert fitted.is_preview
    assert np.isnan(fitted.diagnostics["rhat"])
    assert fitted.diagnostics["khat"] < 0.7
    assert fitted.inference_data.attrs["chains_rhat"] > 1.5


def test_it_survives_its_file(fitted, tmp_path):
    back = bayeslaw.load(fitted.save(tmp_path / "fit.nc"))
    assert back.is_preview
    assert back.inference_data.attrs["chains_rhat"] > 1.5


def test_short_chains_are_left_as_they_are(heavy):
    """A failure for want of draws is told as one: nothing is drawn in their place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "half of the rows")
        short = bayeslaw.fit(
            heavy,
            "chinchilla",
            discrepancy=False,
            draws=100,
            max_draws=100,
            on_failure="ignore",
        )
    assert not short.is_preview
    assert any("R-hat" in line for line in short.warnings)


@pytest.mark.parametrize("seed", range(30))
def test_a_proposal_is_fitted_to_draws_along_a_line(seed):
    """In twenty coordinates, rounding makes scale matrices of such draws indefinite."""
    rng = np.random.default_rng(seed)
    along, weight = rng.standard_t(1, 40), rng.dirichlet(np.full(40, 0.3))
    vectors = 5 + np.outer(along, np.linspace(1, 2, 20))
    before = importance.mixture_of([Peak(np.zeros(20), np.eye(20), 0.0)], 5.0)
    mixture = importance.fitted_to(vectors, weight, before, rng, importance.AMIS())
    assert np.isfinite(importance.log_density_of(mixture, vectors)).all()
