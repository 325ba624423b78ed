"""Rows that are alike, seeds of one setting or points of one run, do not pass for
independent measurements of the law: simulated tables whose truth is known.
"""

import numpy as np
import pandas as pd
import pytest

import bayeslaw

ROUGH, SEED = 0.004, 0.0005  # of settings or runs, and of what is alike in them


def truth(N, D):
    return 1.7 + 400 / N**0.34 + 410 / D**0.28


def seeds(rng):
    """Three seeds of each of 30 settings."""
    N, D = np.meshgrid(np.geomspace(5e7, 1e9, 5), np.geomspace(1e9, 5e10, 6))
    one = pd.DataFrame({"N": N.ravel(), "D": D.ravel()})
    runs = pd.concat([one] * 3, ignore_index=True)
    return runs, np.tile(rng.standard_normal(30), 3)


def curves(rng):
    """43 logged points of each of six runs."""
    size = np.repeat(np.geomspace(1e8, 2e9, 6), 43)
    tokens = size * np.tile(np.geomspace(2, 40, 43), 6)
    name = np.repeat(list("abcdef"), 43)
    runs = pd.DataFrame({"run": name, "N": size, "D": tokens})
    return runs, np.repeat(rng.standard_normal(6), 43)


@pytest.mark.parametrize("make", [seeds, curves])
def test_a_forecast_at_ten_times_the_size_holds_the_truth(make):
    """20 tokens a parameter; the seeds' table ends at 1B parameters, the curves' at 2B."""
    rng = np.random.default_rng(1)
    runs, rough = make(rng)
    error = ROUGH * rough + SEED * rng.standard_normal(len(runs))
    runs["loss"] = truth(runs["N"], runs["D"]) * np.exp(error)
    size = 10 * runs["N"].max()
    goal = pd.DataFrame({"N": [size], "D": [20 * size]})
    found = bayeslaw.forecast(bayeslaw.average(runs), goal).iloc[0]
    expected = truth(size, 20 * size)
    assert found["low"] < expected < found["high"]
    assert found["median"] == pytest.approx(expected, rel=0.02)
    assert found["high"] - found["low"] < 0.08 * expected
