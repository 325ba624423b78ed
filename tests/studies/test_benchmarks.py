"""Models of the benchmarks in NumPyro and in PyMC, which needs the extra ``peers``, have one density."""

import importlib.util
import sys

import numpy as np
import pytest

import bayeslaw

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        importlib.util.find_spec("pymc") is None,
        reason="needs the extra peers: pip install bayeslaw[peers]",
    ),
]


def test_the_benchmarks_sample_one_density(script, monkeypatch):
    """At draws of the prior, each case's model in NumPyro and PyMC's, written from the paper's formula."""
    import pymc
    from numpyro.infer.util import log_density

    peers = script("studies/benchmarks/pymc_models.py")
    monkeypatch.setitem(sys.modules, "pymc_models", peers)
    samplers = script("studies/benchmarks/samplers.py")
    for name, case in samplers.CASES.items():
        law, runs = bayeslaw.law(case.law), case.runs()
        ours, theirs = samplers.numpyro_model(law, runs), samplers.pymc_model(law, runs)
        density = theirs.compile_logp(jacobian=False)
        for seed in range(3):
            with theirs:
                drawn = dict(
                    zip(
                        theirs.free_RVs,
                        pymc.draw(theirs.free_RVs, random_seed=seed),
                        strict=True,
                    )
                )
            whole = {}  # as PyMC's density takes them: positive ones by their logs
            for variable, value in drawn.items():
                transform = theirs.rvs_to_transforms[variable]
                whole[theirs.rvs_to_values[variable].name] = (
                    value
                    if transform is None
                    else np.asarray(
                        transform.forward(value, *variable.owner.inputs).eval()
                    )
                )
            # PyMC has the population's means by their logs, NumPyro by themselves
            means = {
                v.name: value
                for v, value in drawn.items()
                if v.name.startswith("mean_")
            }
            sites = {v.name: value for v, value in drawn.items()} | {
                n: np.exp(v) for n, v in means.items()
            }
            found = float(log_density(ours, (), {}, sites)[0]) + sum(means.values())
            assert found == pytest.approx(float(density(whole)), rel=1e-9, abs=1e-6), (
                name,
                seed,
            )
