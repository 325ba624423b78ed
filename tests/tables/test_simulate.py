"""Simulated runs: the paper's grid, and noise of the size that is stated."""

import numpy as np
import pandas as pd
import pytest

import bayeslaw


def test_the_grid_is_the_paper_s():
    """3 stages, 4 sizes, 3 replays, 7 budgets (Goffinet 2025, section 2)."""
    grid = bayeslaw.simulate("dcpt")
    assert len(grid) == 3 * 4 * 3 * 7
    assert sorted(grid["ptpp"].unique()) == [15, 31, 279]
    assert sorted(grid["N"].unique()) == [241e6, 517e6, 1.4e9, 8.1e9]
    assert sorted(grid["replay"].unique()) == [0.10, 0.25, 0.50]
    shares = np.unique(np.round(grid["D"] / grid["N"], 9))
    assert shares.tolist() == [0.25, 0.5, 1, 2.5, 5, 10, 20]
    assert grid["checkpoint"].nunique() == 12
    assert grid["run"].is_unique
    n = grid["N"]
    before = 1.8172 + 482.01 / n**0.3478 + 2085.43 / (grid["ptpp"] * n) ** 0.3658
    np.testing.assert_allclose(grid["source_loss_before"], before)
    np.testing.assert_allclose(grid["loss_before"], 1.15 * before)


def test_noise_is_normal_on_log_loss():
    """By default .5%; none is the law itself, and parameters may be one's own."""
    design = pd.DataFrame({"N": np.full(20_000, 1e9), "D": 2e10})
    law = bayeslaw.law("chinchilla")
    exact = 1.9 + law.plausible["A"] / 1e9 ** law.plausible["alpha"]
    exact += law.plausible["B"] / 2e10 ** law.plausible["beta"]
    asked = {"design": design, "parameters": {"E": 1.9}}
    still = bayeslaw.simulate(law, **asked, noise=0.0)
    np.testing.assert_allclose(still["loss"], exact)
    for noise, options in ((0.005, {}), (0.02, {"noise": 0.02})):
        error = np.log(bayeslaw.simulate(law, **asked, **options)["loss"] / exact)
        assert error.std() == pytest.approx(noise, rel=0.03)
        assert error.mean() == pytest.approx(0, abs=4 * noise / np.sqrt(20_000))
    with pytest.raises(bayeslaw.LawError, match="noise must be at least 0"):
        bayeslaw.simulate(law, design=design, noise=-0.1)
    with pytest.raises(bayeslaw.LawError, match="a loss is above 0"):
        bayeslaw.simulate(law, design=design, parameters={"E": -3.0})


@pytest.mark.parametrize(
    ("law", "advice"),
    [
        ("mixture-tokens", "'share_web', which design 'ptpp' lacks: design 'mixtures'"),
        ("anneal", "'S1_pt', which design 'ptpp' lacks: give a table"),
    ],
)
def test_a_design_without_the_law_s_columns_is_refused(law, advice):
    with pytest.raises(bayeslaw.LawError, match=advice):
        bayeslaw.simulate(law)
