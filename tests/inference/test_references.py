"""Posteriors equal those of an independent sampler: PyMC with nutpie on models written from the papers' formulas.

Needs the extra ``peers`` (pymc, nutpie, numba); skipped without it.
"""

import importlib.util

import numpy as np
import pytest

import bayeslaw

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        any(
            importlib.util.find_spec(name) is None
            for name in ("pymc", "nutpie", "numba")
        ),
        reason="needs the extra peers: pip install bayeslaw[peers]",
    ),
]

# combined Monte Carlo standard errors by which a mean or an sd may differ; those errors are
# estimates themselves, and some eighty are compared
ERRORS = 5
SD_RATIO = 0.15  # by which sds may differ at most
DRAWS = 2000  # of each of 4 chains
SIZES = {
    "chinchilla": "N > 0",
    "dcpt": "D > 1e9 and ptpp == 31",
    "ptpp-floor": "D > 1e9",
}
CASES = [
    ("chinchilla", "independent"),
    ("chinchilla", "shared errors"),
    ("chinchilla", "shared errors, repeats weighed"),
    ("ptpp-floor", "independent"),
    ("dcpt", "independent"),
]


@pytest.fixture(scope="module")
def peers(script):
    """The models in PyMC."""
    return script("studies/benchmarks/pymc_models.py")


@pytest.fixture(scope="module", params=CASES, ids=[", ".join(c) for c in CASES])
def both(request, peers):
    """Draws of every site by both samplers, each (chain, draw)."""
    name, errors = request.param
    shared, weighed = errors != "independent", errors.endswith("weighed")
    runs = bayeslaw.simulate(name, seed=5).query(SIZES[name])
    if name == "chinchilla" and not shared:
        runs = runs.drop_duplicates(["N", "D"])
    runs = runs.drop(columns="run")  # a row a run: no correlation along D
    known = {}
    if shared:
        known["checkpoint"] = np.unique(runs["checkpoint"], return_inverse=True)[1]
    if weighed:  # half the variance of a row's error is its setting's
        repeats = runs.groupby(["N", "D"])["loss"].transform("size").to_numpy()
        assert repeats.max() > 1
        known["weight"] = 1 / (0.5 * repeats + 0.5)
    options = {"independent": not shared, "discrepancy": weighed}
    fit = bayeslaw.fit(runs, name, seed=2, draws=DRAWS, max_draws=2 * DRAWS, **options)
    # sampled by the loss at the reference run, its chains reach the floor's tail; by the floor itself they stay short of it
    level = {} if name == "chinchilla" else {"by_level": True}
    program = peers.compiled(peers.MODELS[name](runs, **known, **level))
    data = peers.sample_compiled(program, draws=DRAWS, tune=1500, chains=4, seed=3)
    sites = [
        n
        for n in (*fit.law.priors, "sigma", "dof_above_2", "tau_checkpoint")
        if n in data["posterior"]
    ]
    ours, theirs = fit.inference_data["posterior"], data["posterior"]
    return {n: (ours[n].to_numpy(), theirs[n].to_numpy()) for n in sites}


def mcse(draws, kind):
    import arviz_stats.base

    return float(
        arviz_stats.base.array_stats.mcse(draws, method=kind, chain_axis=0, draw_axis=1)
    )


def test_means_and_sds_agree_within_monte_carlo_error(both):
    """Each site's mean and sd within 5 combined Monte Carlo standard errors, sds also within 15%."""
    assert {"sigma", "dof_above_2", "E_nats", "alpha", "beta"} <= set(both)
    for name, (ours, theirs) in both.items():
        for kind, of in (("mean", np.mean), ("sd", np.std)):
            error = np.hypot(mcse(ours, kind), mcse(theirs, kind))
            z = (of(ours) - of(theirs)) / error
            print(
                f"{name} {kind}: {of(ours):.5g} and {of(theirs):.5g}, {z:+.1f} errors"
            )
            assert abs(z) < ERRORS, (name, kind, of(ours), of(theirs), error)
        if name != "dof_above_2":  # its tail is heavy: a handful of draws make its sd
            assert ours.std() == pytest.approx(theirs.std(), rel=SD_RATIO), name


def test_both_samplers_converged(both):
    """R-hat at most 1.02 and 200 effective draws on either side, else the comparison proves nothing."""
    from arviz_stats.base import array_stats

    for name, draws in both.items():
        for each in draws:
            assert array_stats.rhat(each, chain_axis=0, draw_axis=1) < 1.02, name
            assert array_stats.ess(each, chain_axis=0, draw_axis=1) > 200, name
