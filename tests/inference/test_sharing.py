"""What rows of a table share, and what they count for while the law is fitted."""

import numpy as np
import pandas as pd
import pytest

from bayeslaw._inference import table


def repeated(seeds=3, sizes=4):
    """Several seeds of each size, from a checkpoint that two sizes share."""
    size = np.repeat(1e8 * 2.0 ** np.arange(sizes), seeds)
    names = [f"step {k}" for k in np.repeat(np.arange(sizes) // 2, seeds)]
    return pd.DataFrame({"N": size, "D": 20 * size, "checkpoint": names})


def curves(points=5, runs=3):
    run = np.repeat(np.arange(runs), points)
    tokens = np.tile(1e9 * 2.0 ** np.arange(points), runs)
    return pd.DataFrame({"run": run, "N": 1e8 * (1 + run), "D": tokens})


# -- what is shared --------------------------------------------------------------------


def test_checkpoints_runs_and_settings_are_found():
    shared = table.sharing(repeated(), ["N", "D"])
    assert list(shared.groups) == ["checkpoint", "setting"]
    assert shared.groups["checkpoint"].tolist() == [0] * 6 + [1] * 6
    assert len(np.unique(shared.groups["setting"])) == 4
    assert not shared.along_run
    # a setting is one of the columns that the law reads
    by_seed = repeated().assign(mix=np.arange(12.0))
    assert "setting" not in table.sharing(by_seed, ["N", "D", "mix"]).groups
    along = table.sharing(curves(), ["N", "D"])
    assert list(along.groups) == ["run"]
    assert along.along_run
    assert along.previous.tolist()[:6] == [0, 0, 1, 2, 3, 5]


def test_a_partition_is_named_once():
    """By its first kind, though its groups come in another order."""
    runs = repeated()
    names = runs["N"].map(lambda n: f"{-n:020.0f}")
    shared = table.sharing(runs.assign(checkpoint=names), ["N", "D"])
    assert list(shared.groups) == ["checkpoint"]
    coarser = table.sharing(runs.assign(checkpoint=names, N=1e8, D=1e9), ["N", "D"])
    assert list(coarser.groups) == ["checkpoint"]  # one setting is none


@pytest.mark.parametrize("kind", ["alone", "all"])
def test_groups_of_one_row_and_a_single_group_are_none(kind):
    runs = repeated().drop(columns="checkpoint")
    alike = 1e8 if kind == "all" else 1e8 * (1 + np.arange(len(runs)))
    assert (
        table.sharing(runs.assign(N=alike, D=20 * alike), ["N", "D"]) == table.Sharing()
    )


@pytest.mark.parametrize(("rows", "pairs"), [(300, 10), (300, 20), (40, 1)])
def test_a_few_settings_measured_twice_are_no_effect_among_hundreds(rows, pairs):
    """They tell nothing of the others, at a column for each; a small table keeps them."""
    place = np.where(np.arange(rows) < 2 * pairs, np.arange(rows) // 2, np.arange(rows))
    runs = pd.DataFrame({"N": 1e6 * 1.05**place, "D": 1e9})
    is_rare = rows > 256 and 2 * pairs < rows / 10
    assert ("setting" in table.sharing(runs, ["N", "D"]).groups) != is_rare


def test_rows_that_are_kept_keep_their_group_and_their_predecessor():
    shared = table.sharing(curves(), ["N", "D"])
    kept = np.ones(15, bool)
    kept[[2, 5]] = False
    part = shared.only(kept)
    np.testing.assert_array_equal(part.groups["run"], shared.groups["run"][kept])
    # the third point of the first run and the first of the second are gone: the next
    # ones begin runs
    expected = [0, 0, 2, 2, 4, 4, 5, 6, 8, 8, 9, 10, 11]
    assert part.previous.tolist() == expected
    begin = np.flatnonzero(np.isinf(part.gap))
    assert begin.tolist() == [0, 2, 4, 8]
    np.testing.assert_allclose(part.gap[~np.isinf(part.gap)], np.log(2))


# -- what a row counts for -------------------------------------------------------------


def test_rows_that_share_nothing_count_for_one_each():
    np.testing.assert_array_equal(table.row_weights(table.Sharing(), 4), np.ones(4))
    of_checkpoints = table.sharing(
        repeated()[["N", "D", "checkpoint"]].iloc[::3], ["N", "D"]
    )
    assert list(of_checkpoints.groups) == ["checkpoint"]
    np.testing.assert_array_equal(table.row_weights(of_checkpoints, 4), np.ones(4))


@pytest.mark.parametrize("points", [2, 5, 40])
def test_points_far_apart_are_independent_but_for_what_their_run_shares(points):
    """Of n errors with a share a of their variance in common the mean is as sure as
    that of 1 / (a + (1 - a) / n) independent ones.
    """
    runs = curves(points)
    shared = table.sharing(runs, ["N", "D"])
    far = np.where(np.isinf(shared.gap), np.inf, 30 * table.RUN_LENGTH)
    weight = table.row_weights(shared._replace(gap=far), len(runs))
    worth = np.bincount(runs["run"], weight)
    covariance = table.COMMON + (1 - table.COMMON) * np.eye(points)
    expected = 1 / covariance.mean()
    np.testing.assert_allclose(worth, expected, rtol=1e-6)


def test_points_close_to_each_other_are_worth_less():
    runs = curves(40)
    shared = table.sharing(runs, ["N", "D"])
    worth = []
    for length in (10.0, 1.0, 0.1, 0.01):
        gap = np.where(np.isinf(shared.gap), np.inf, length * table.RUN_LENGTH)
        worth.append(table.row_weights(shared._replace(gap=gap), len(runs))[:40].sum())
    assert (np.diff(worth) < 0).all()
    assert 1 <= worth[-1] < 1.2
    assert worth[0] < 1 / table.COMMON


def test_a_row_exported_twenty_times_counts_as_under_two():
    once = repeated(seeds=1).drop(columns="checkpoint")
    often = pd.concat([once] * 20, ignore_index=True)
    weight = table.row_weights(table.sharing(often, ["N", "D"]), len(often))
    worth = often.assign(weight=weight).groupby("N")["weight"].sum()
    assert ((worth > 1) & (worth < 2)).all()
