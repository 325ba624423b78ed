"""A saved posterior is read and forecasts without NumPyro, which takes seconds to import."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from arviz_base import from_dict

import bayeslaw
from bayeslaw._inference.discrepancy.drift import training_range
from bayeslaw._posteriors import artifact
from bayeslaw._posteriors.averaging.record import Average, Member
from bayeslaw._posteriors.record import Fit

DRAWS = 20
LIGHT = """
import sys
import bayeslaw
posterior = bayeslaw.load(sys.argv[1])
new_runs = posterior.log_loss(posterior.runs, noise=True)
assert new_runs.shape == (20, len(posterior.runs))
bayeslaw.forecast(posterior, posterior.runs)
assert "numpyro" not in sys.modules
"""


@pytest.fixture
def runs() -> pd.DataFrame:
    return bayeslaw.simulate("chinchilla", seed=1)


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    law = bayeslaw.law("chinchilla")
    parameters = law.from_paper(law.plausible) | {"sigma": 0.005, "dof": 8.0}
    return {name: np.full(DRAWS, float(v)) for name, v in parameters.items()}


@pytest.fixture
def saved_fit(runs, values, tmp_path):
    law = bayeslaw.law("chinchilla")
    one_chain = {name: draws[None] for name, draws in values.items()}
    tree = from_dict({"posterior": one_chain})
    tree["constant_data"] = artifact.constant_data(runs)
    tree.attrs.update(artifact.provenance(law, 0, "fit"), preview_khat=0.1)
    tree.attrs.update(preview_ess=1000.0, seconds=1.0)
    tree["sample_stats"] = from_dict(
        {"sample_stats": {"diverging": np.zeros((1, DRAWS), bool)}}
    )["sample_stats"]
    return Fit(law, tree).save(tmp_path / "fit.nc")


@pytest.fixture
def saved_average(runs, values, tmp_path):
    law = bayeslaw.law("chinchilla")
    known = training_range({c: runs[c].to_numpy(float) for c in law.covariates})
    drift = np.zeros((DRAWS, 2 * len(known.axes)))
    member = Member(law, 1.0, None, known, values | {"drift": drift})
    row = {"weight": 1.0, "rhat": 1.0, "ess": 1000.0, "divergences": 0, "draws": DRAWS}
    table = pd.DataFrame([row], index=pd.Index(["chinchilla"], name="name"))
    average = Average((member,), table, runs, {"seconds": 1.0})
    return average.save(tmp_path / "average.nc")


@pytest.mark.parametrize("saved", ["saved_fit", "saved_average"])
def test_loading_and_forecasting_imports_no_numpyro(saved, request):
    path = request.getfixturevalue(saved)
    command = [sys.executable, "-c", LIGHT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
