"""Rows of one checkpoint err together, in a fit and in an average of that one law alike."""

import numpy as np
import pandas as pd
import pytest
from xarray import DataTree

import bayeslaw
from bayeslaw._running.updating.surprise import foresee
from known import saved

DRAWS, TAU, SIGMA = 4000, 0.004, 0.003
LAW = bayeslaw.law("chinchilla")
ERROR = {"sigma": SIGMA, "dof": 30.0, "tau_checkpoint": TAU}
# of a t of 30 degrees of freedom
ALIKE = TAU**2 / (TAU**2 + SIGMA**2 * 30 / 28)


def values() -> dict[str, np.ndarray]:
    of_error = {name: np.full(DRAWS, v) for name, v in ERROR.items()}
    return saved.values(DRAWS) | of_error


def fit() -> bayeslaw.Fit:
    """Of runs of a checkpoint "seen", whose effect is none."""
    tree = saved.make_fit(LAW, values(), saved.runs()).inference_data
    effect = ("chain", "draw", "checkpoint_label"), np.zeros((1, DRAWS, 1))
    draws = tree["posterior"].to_dataset().assign_coords(checkpoint_label=["seen"])
    tree["posterior"] = DataTree(draws.assign(checkpoint_effect=effect))
    return bayeslaw.Fit(LAW, tree)


def average() -> bayeslaw.Average:
    return saved.make_average([(LAW, values())], saved.runs())


RUNS = pd.DataFrame(
    {
        "N": 1e9,
        "D": [1e10, 2e10, 1e10, 2e10],
        "checkpoint": ["new", "new", "other", "third"],
    }
)


@pytest.mark.parametrize("made", [fit, average])
def test_rows_of_one_checkpoint_err_together_and_of_two_apart(made):
    """By the share that the checkpoint's effect has of the variance."""
    noisy = made().log_loss(RUNS, noise=True, seed=3)
    alike = np.corrcoef(noisy.T)
    assert alike[0, 1] == pytest.approx(ALIKE, abs=0.04)
    assert alike[0, 2] == pytest.approx(0, abs=0.05)
    assert alike[2, 3] == pytest.approx(0, abs=0.05)
    assert noisy.std(axis=0) == pytest.approx(np.sqrt(TAU**2 / ALIKE), rel=0.04)


def test_the_mean_of_rows_of_one_checkpoint_is_as_uncertain_in_both():
    """A joint statement: what an average of its losses will be."""
    many = pd.concat([RUNS.iloc[:1]] * 20, ignore_index=True)
    sds = [
        made().log_loss(many, noise=True, seed=1).mean(axis=1).std()
        for made in (fit, average)
    ]
    assert sds[1] == pytest.approx(sds[0], rel=0.05)
    assert sds[1] == pytest.approx(np.sqrt(TAU**2 + SIGMA**2 * 30 / 28 / 20), rel=0.05)


def test_rows_that_name_no_checkpoint_are_each_of_their_own():
    unnamed = RUNS.drop(columns="checkpoint")
    noise = average().log_loss(unnamed, noise=True, seed=3)
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.06
    assert noise.std(axis=0) == pytest.approx(np.sqrt(TAU**2 / ALIKE), rel=0.04)


def test_an_update_expects_the_learned_effect_of_a_seen_checkpoint():
    rows = RUNS.head(2).assign(checkpoint=["seen", "new"], loss=2.0)
    effects = foresee(fit(), rows).effects
    assert (effects[:, 0] == 0).all()
    assert effects[:, 1].std() == pytest.approx(TAU, rel=0.05)
