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


def fit(table: pd.DataFrame | None = None, **learned: float) -> bayeslaw.Fit:
    """Of runs of a checkpoint "seen", whose effect is none, or of those in a table."""
    learned = learned or {"seen": 0.0}
    table = saved.runs() if table is None else table
    tree = saved.make_fit(LAW, values(), table).inference_data
    effects = np.tile([*learned.values()], (1, DRAWS, 1))
    effect = ("chain", "draw", "checkpoint_label"), effects
    draws = tree["posterior"].to_dataset().assign_coords(checkpoint_label=[*learned])
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


def test_a_row_without_names_is_of_the_one_fitted_checkpoint_of_its_size_and_stage():
    """Where there are two of them, as seeds, it is of neither."""
    rows = pd.DataFrame({"N": 1e9, "ptpp": [5.0, 20, 20], "D": 1e10, "replay": 0.0})
    table = rows.assign(loss=2.0, checkpoint=["only", "one", "other"], seed=0)
    posterior = fit(table, only=0.1, one=0.2, other=0.3)
    known = posterior.known_effects(rows, ["checkpoint"])
    assert (known == [0.1, 0.0, 0.0]).all()
    named = posterior.known_effects(table.assign(seed=1), ["checkpoint"])
    assert (named == [0.1, 0.2, 0.3]).all()
    rounded = rows.assign(N=1.003e9, ptpp=5.02)
    assert (posterior.known_effects(rounded, ["checkpoint"]) == 0.1).all()


def test_a_row_that_names_a_seed_is_of_the_fitted_checkpoint_of_that_seed():
    """An empty cell names none."""
    rows = pd.DataFrame({"N": 1e9, "ptpp": [5.0, 20, 20], "D": 1e10, "replay": 0.0})
    table = rows.assign(loss=2.0, checkpoint=["only", "one", "other"], seed=[0, 0, 1])
    posterior = fit(table, only=0.1, one=0.2, other=0.3)
    for seeds, wanted in (
        ([0, 0, 1], [0.1, 0.2, 0.3]),
        ([1, 1, 0], [0.0, 0.3, 0.2]),
        ([np.nan, np.nan, 2], [0.1, 0.0, 0.0]),
    ):
        known = posterior.known_effects(rows.assign(seed=seeds), ["checkpoint"])
        assert (known == wanted).all()


def test_a_learned_effect_opens_with_tokens_beyond_those_of_its_rows():
    """By the variance of an unknown one for each e-fold; its mean stays."""
    row = {"N": 1e9, "ptpp": 20.0, "replay": 0.0, "checkpoint": "one"}
    other = row | {"checkpoint": "other"}
    table = pd.DataFrame([row | {"D": 4e9}, row | {"D": 1e10}, other | {"D": 9e10}])
    posterior = fit(table.assign(loss=2.0), one=0.1, other=0.0)
    rows = pd.DataFrame([row | {"D": d} for d in (1e9, 1e10, 1e10 * np.e**2)])
    error = posterior.log_loss(rows, noise=True) - posterior.log_loss(rows)
    assert error.mean(axis=0) == pytest.approx(0.1, abs=TAU / 10)
    variance = SIGMA**2 * 30 / 28 + TAU**2 * np.array([0.49, 0.49, 2.49])
    assert error.std(axis=0) == pytest.approx(np.sqrt(variance), rel=0.05)


def test_an_update_expects_the_learned_effect_of_a_seen_checkpoint():
    rows = RUNS.head(2).assign(checkpoint=["seen", "new"], loss=2.0)
    effects = foresee(fit(seen=0.1), rows).effects
    assert effects[:, 0].mean() == pytest.approx(0.1, abs=TAU / 10)
    # half of the variance of a new effect is left, for what differs from run to run
    assert effects[:, 0].std() == pytest.approx(0.7 * TAU, rel=0.05)
    assert effects[:, 1].std() == pytest.approx(TAU, rel=0.05)
