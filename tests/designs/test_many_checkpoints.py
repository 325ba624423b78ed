"""Effects of checkpoints that no goal is about are kept in blocks: the same answers, in little memory."""

import tracemalloc

import numpy as np
import pytest

from bayeslaw._designs import criteria, gaussian, search
from known.purchases import criteria_of

RNG = np.random.default_rng(8)
COORDINATES, EFFECTS, RUNS, STOPS, CHECKPOINTS = 4, 2, 9, 3, 4


def offers():
    """The same runs with effects in blocks, and as coordinates like any other."""
    loadings = RNG.standard_normal((RUNS, STOPS, COORDINATES))
    effects = RNG.standard_normal((RUNS, STOPS, EFFECTS))
    checkpoint = RNG.integers(0, CHECKPOINTS - 1, RUNS)
    checkpoint[0] = CHECKPOINTS - 1
    effects[0] = 0.0  # of a checkpoint that goals are about
    root = RNG.standard_normal((RUNS, STOPS, STOPS))
    noise = root @ root.transpose(0, 2, 1) + np.eye(STOPS)
    cost = np.cumsum(RNG.uniform(1, 2, (RUNS, STOPS)), axis=1)
    of_all = (cost, checkpoint, RNG.uniform(0, 3, CHECKPOINTS))
    spread = np.zeros((RUNS, STOPS, CHECKPOINTS, EFFECTS))
    for run, own in enumerate(checkpoint):
        spread[run, :, own] = effects[run]
    dense = np.concatenate([loadings, spread.reshape(RUNS, STOPS, -1)], axis=2)
    return (
        gaussian.Offer(*of_all, loadings, noise, 1, effects=effects),
        gaussian.Offer(*of_all, dense, noise, 1, dense[..., :0]),
    )


def goals(coordinates: int):
    rows = np.zeros((2, coordinates))
    rows[:, :COORDINATES] = [[1.0, -0.5, 0.2, 2.0], [0.3, 1.0, 0.0, -1.0]]
    return criteria_of(rows)


@pytest.mark.parametrize(
    "picks", [[], [(0, 1)], [(1, 2), (2, 0)], [(k, k % 3) for k in (3, 3, 4, 5, 1, 8)]]
)
def test_blocks_say_what_one_matrix_says(picks):
    blocks, whole = offers()
    known = gaussian.precision_of(blocks, picks)
    everything = gaussian.precision_of(whole, picks)
    assert everything.blocks == {}
    covariance = np.linalg.inv(everything.marginal)[:COORDINATES, :COORDINATES]
    np.testing.assert_allclose(np.linalg.inv(known.marginal), covariance)
    assert known.log_det == pytest.approx(everything.log_det)
    pairs = zip(goals(blocks.coordinates), goals(whole.coordinates), strict=True)
    for ours, theirs in pairs:
        assert ours.value(known) == pytest.approx(theirs.value(everything))
        np.testing.assert_allclose(
            ours.gains(known, blocks), theirs.gains(everything, whole), atol=1e-9
        )


def test_the_runs_that_are_chosen_are_the_same():
    blocks, whole = offers()
    limits = search.Limits(budget=8.0, replicates=1, picks=4)
    for ours, theirs in zip(goals(COORDINATES), goals(whole.coordinates), strict=True):
        assert search.choose(blocks, ours, limits) == search.choose(
            whole, theirs, limits
        )


def test_memory_grows_with_the_runs_not_with_the_square_of_the_checkpoints():
    """Of 1,500 checkpoints all dense would be 27 GiB; a list of runs takes a hundredth of one."""
    count, rank = 1500, 20
    rng = np.random.default_rng(0)
    offer = gaussian.Offer(
        rng.uniform(1, 2, (count, 1)),
        np.arange(count),
        np.zeros(count),
        rng.standard_normal((count, 1, rank)),
        np.ones((count, 1, 1)),
        1,
        effects=np.full((count, 1, 1), 0.5),
    )
    tracemalloc.start()
    limits = search.Limits(budget=20.0, replicates=1, picks=count)
    picks = search.greedy(
        offer, criteria.Variance(rng.standard_normal((3, rank))), limits, 1.0
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(picks) > 8
    assert peak < 20e6
