"""Where the mass of a posterior is, beside its mode."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._inference.importance import approximate
from bayeslaw._inference.modes import find_peaks, start_near_mode
from bayeslaw._law.variants.setting import with_setting
from tests.known.problems import problem


@pytest.fixture
def ladder():
    """Four rates at each of six checkpoints. The losses of a checkpoint follow the law to
    a fiftieth of a percent, and those of checkpoints to a third.
    """
    rng = np.random.default_rng(0)
    N = np.geomspace(4e8, 2e9, 6)
    checkpoints = pd.DataFrame({"N": N, "D": 4 * N, "ptpp": np.geomspace(20, 12, 6)})
    checkpoints["effect"] = 0.003 * rng.standard_normal(6)
    rates = pd.DataFrame({"lr": [0.33, 0.5, 0.67, 0.83]})
    runs = checkpoints.merge(rates, how="cross").assign(replay=0.33)
    law = 0.5 + 0.3 * (runs["N"] / 1e9) ** -0.3 + 0.2 * (runs["D"] / 4e9) ** -0.25
    law += 0.012 * np.log2(runs["lr"] / 1.3) ** 2
    noise = 0.0002 * rng.standard_normal(len(runs))
    return runs.assign(loss=law * np.exp(runs.pop("effect") + noise))


def test_the_mass_is_found_beside_the_mode(ladder):
    """The density is highest without an effect of checkpoints, where the law passes
    through all six in a thin sheet. Draws around that mode weigh as few.
    """
    at = {"N": 9e8, "D": 4e9, "ptpp": 15, "lr": 0.6}
    law = with_setting(bayeslaw.law("ptpp-tokens"), "lr", at)
    case = problem(law, ladder, is_shared=True)
    peaks = find_peaks(*case, start_near_mode(*case, seed=0)[None])
    for seed in range(3):
        approximation = approximate(*case, peaks, seed=seed)
        assert approximation.is_trusted(min_ess=500)
        effect = approximation.values["tau_checkpoint"]
        assert 0.001 < np.average(effect, weights=approximation.weight) < 0.004
