"""A saved posterior is read and forecasts without NumPyro, which takes seconds to import."""

import subprocess
import sys

import pytest

from known.saved import save_average, save_fit

LIGHT = """
import sys
import bayeslaw
posterior = bayeslaw.load(sys.argv[1])
new_runs = posterior.log_loss(posterior.runs, noise=True)
assert new_runs.shape == (20, len(posterior.runs))
bayeslaw.forecast(posterior, posterior.runs)
assert "numpyro" not in sys.modules
"""


@pytest.mark.parametrize("save", [save_fit, save_average])
def test_loading_and_forecasting_imports_no_numpyro(save, tmp_path):
    path = save(tmp_path / "posterior.nc")
    command = [sys.executable, "-c", LIGHT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
