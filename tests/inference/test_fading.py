"""Errors that fade as budgets grow, or with the share of the own domain: of the misfit, of
a run, and what it teaches.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw import FitFileError
from bayeslaw._inference.discrepancy import learning, process
from bayeslaw._posteriors.chain import ChainLogLoss
from bayeslaw._posteriors.repetition import repeating

SIZES, TOKENS = np.meshgrid(np.geomspace(1e7, 1e9, 10), np.geomspace(1e8, 1e11, 10))
COLUMNS = {"N": SIZES.ravel(), "D": TOKENS.ravel()}
PROCESS = process.process_of(COLUMNS)
FADED = replace(
    PROCESS,
    fading=process.Fading(power=0.3, largest=1e11),
    own_share=process.OwnShare(is_source=True, usual=0.2),
)


def test_errors_grow_by_a_power_below_the_longest_run_and_stay_beyond_it():
    size = FADED.fading.factor({"D": np.array([1e9, 1e11, 1e13])}, np)
    np.testing.assert_allclose(size, [100**0.3, 1, 1])


def test_the_misfit_fades_at_runs_and_along_tokens_alike():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(FADED.size)
    size = FADED.fading.factor(COLUMNS, np)
    at_runs = FADED.features(COLUMNS, np) @ weights
    np.testing.assert_allclose(
        at_runs, size * (PROCESS.features(COLUMNS, np) @ weights)
    )
    along = FADED.along("D", jnp.asarray(weights), {"N": 1e8})
    for tokens in (1e8, 3e9, 5e12):
        run = {"N": np.array(1e8), "D": np.array(tokens)}
        expected = FADED.features(run, np) @ weights
        assert float(along(jnp.asarray(tokens))) == pytest.approx(expected, rel=1e-9)


def test_a_process_that_fades_survives_json():
    assert process.process_from_dict(process.process_to_dict(FADED)) == FADED
    assert process.process_from_dict(process.process_to_dict(PROCESS)) == PROCESS


def test_a_misfit_with_walks_is_refused_and_not_misread():
    """As fits of N and D were saved before walks were taken out."""
    saved = process.process_to_dict(PROCESS)
    assert (
        process.process_from_dict(saved | {"walks": [], "is_learned": False}) == PROCESS
    )
    with pytest.raises(FitFileError, match="fit again"):
        process.process_from_dict(
            saved | {"walks": [{"name": "N*D", "edges": [1.0, 2.0]}]}
        )


@pytest.mark.parametrize(("power", "low", "high"), [(0, 0, 0.05), (0.3, 0.15, 0.35)])
def test_the_power_is_found(power, low, high):
    """Of noise that is eight times as large at the shortest runs as at the longest, and of noise that is equal;
    the prior draws it towards none.
    """
    rng = np.random.default_rng(1)
    size = process.Fading(power, 1e11).factor(COLUMNS, np)
    rows = learning.independent_rows(PROCESS.features(COLUMNS, np), {}, None, None, 1.0)
    law = 1e-9 * rng.standard_normal((50, size.size))
    y = 0.003 * size * rng.standard_normal(size.size)
    found = learning.fading_power(
        PROCESS, rows, y, lambda at: law[at], 50, COLUMNS["D"]
    )
    assert low <= found <= high


@pytest.mark.parametrize(("domain", "slope"), [("source", -1), ("target", 1), ("", 0)])
def test_errors_are_larger_the_less_data_of_the_own_domain_a_run_has(
    domain, slope, tmp_path
):
    """With little replay where losses fall with it, with much where they rise: by the
    fourth root of the share, with a mean square of 1 over the runs. Where they do neither,
    all are alike.
    """
    rng = np.random.default_rng(3)
    runs = pd.DataFrame(COLUMNS).assign(
        replay=rng.choice([0.05, 0.25, 0.75], SIZES.size)
    )
    runs["run"] = np.arange(len(runs))
    loss = 1.8 + 406 / runs["N"] ** 0.34 + 411 / runs["D"] ** 0.28
    noise = 0.003 * rng.standard_normal(len(runs))
    runs["loss"] = loss * np.exp(0.1 * slope * runs["replay"] + noise)
    moved = "(1 - replay)" if slope < 0 else "replay"
    with pytest.warns(UserWarning, match="prior guessed: c_nats"):
        made = bayeslaw.fit(
            runs,
            f"E + A/N^alpha + B/D^beta + c*{moved}",
            preview=True,
            on_failure="ignore",
        )
    made = bayeslaw.load(made.save(tmp_path / "fit.nc"))
    at = runs.iloc[[0, 0]].assign(replay=[0.05, 0.75], run=["a", "b"], loss=3.0)
    little, much = (made.log_loss(at, noise=True) - made.log_loss(at)).std(axis=0)
    columns = {c: runs[c].to_numpy() for c in ("N", "D", "replay")}
    by_tokens = made.misfit.process.fading.sizes(columns)
    sizes = made.pieces()[0].error_size(columns) / by_tokens
    share = {"source": 0.05 / 0.75, "target": 0.95 / 0.25, "": 1.0}[domain]
    assert little / much == pytest.approx(share**-0.25, rel=0.05)
    assert np.mean(sizes**2) == pytest.approx(1, rel=1e-9)


@pytest.fixture(scope="module")
def fit():
    """A law whose runs lie off by 5% at the smallest budgets and by .3% at the largest."""
    rng = np.random.default_rng(2)
    runs = pd.DataFrame(COLUMNS)
    runs["run"] = np.arange(len(runs))
    loss = 1.8 + 406 / runs["N"] ** 0.34 + 411 / runs["D"] ** 0.28
    size = process.Fading(0.4, 1e11).factor(COLUMNS, np)
    runs["loss"] = loss * np.exp(0.003 * size * rng.standard_normal(len(runs)))
    with pytest.warns(UserWarning, match="lie up to"):
        return bayeslaw.fit(runs, "chinchilla", preview=True, on_failure="ignore")


def test_noise_of_small_runs_is_larger_in_forecasts_anchors_and_updates(fit):
    assert fit.misfit.process.fading.power > 0.25
    runs = pd.DataFrame({"N": 1e8, "D": [1e8, 1e11], "loss": 3.0})
    alone = fit.log_loss(runs)
    small, large = (fit.log_loss(runs, noise=True) - alone).std(axis=0)
    size = fit.pieces()[0].error_size({c: runs[c].to_numpy() for c in ("N", "D")})
    assert size[0] > 1000**0.25
    assert size[1] == 1
    assert small / large == pytest.approx(size[0], rel=0.1)

    from bayeslaw._designs.evidence import domain_of
    from bayeslaw._designs.menu import menu
    from bayeslaw._running.updating.surprise import foresee

    foreseen = foresee(fit, runs)
    short, long = np.sqrt(np.diag(foreseen.own_covariance))
    assert short / long == pytest.approx(size[0], rel=1e-6)
    offered = runs.drop(columns="loss").assign(cost=1.0)
    domain = domain_of(fit, menu(offered), offered.tail(1))
    np.testing.assert_allclose(domain.error_size, size)


def test_formulas_that_fill_in_columns_keep_the_noise_of_small_runs(fit):
    (piece,) = fit.pieces()
    small = {"N": np.array([1e8]), "D": np.array([1e8])}
    (repeated,) = repeating([replace(piece, covariates=("N", "D", "U"))], 1e9)
    for around in (ChainLogLoss(piece.log_loss, ()), repeated.log_loss):
        within = replace(piece, log_loss=around)
        assert within.error_size(small) == piece.error_size(small) > 1000**0.25
        assert (within.law, within.tuned) == (piece.law, piece.tuned)
