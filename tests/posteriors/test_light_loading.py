"""What takes long to import is imported where it is used: a saved posterior is read and forecasts without NumPyro and
scipy.stats, a preview is made without them and without what else brings statistics or pictures.
"""

import os
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
assert not {"numpyro", "scipy.stats"} & set(sys.modules)
"""


@pytest.mark.parametrize("save", [save_fit, save_average])
def test_loading_and_forecasting_imports_nothing_heavy(save, tmp_path):
    path = save(tmp_path / "posterior.nc")
    command = [sys.executable, "-c", LIGHT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


PREVIEW = """
import sys
import bayeslaw
runs = bayeslaw.simulate("chinchilla", seed=1)
bayeslaw.fit(runs, "chinchilla", preview=True, draws=100, on_failure="ignore")
print(*{"numpyro", "scipy.stats", "arviz_base", "arviz_stats", "matplotlib"} & set(sys.modules))
"""


def test_a_preview_imports_no_statistics(tmp_path):
    """Neither when it compiles nor when its programs are on disk."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PREVIEW],
            env=os.environ | {"BAYESLAW_CACHE": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not done.stdout.strip()
