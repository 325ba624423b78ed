"""Bundled tables: complete, readable, and what their cards say."""

import itertools

import make_simulated
import numpy as np
import pandas as pd
import pytest

from bayeslaw import RunTableError, datasets
from bayeslaw._posteriors.fits.candidates import default_laws

STAGES, REPLAYS, LADDER = (
    (15, 31, 93, 279),
    (0.05, 0.1, 0.25, 0.5, 0.75),
    (0.25, 0.5, 1, 2.5, 5, 10, 20),
)
CELLS = {
    (12368, 0),
    (12368, 1),
    (23160, 0),
    (53960, 0),
    (53960, 1),
    (123200, 0),
    (258528, 0),
}


def test_the_simulated_table_is_what_its_recipe_makes():
    table = make_simulated.make()
    bundled = datasets.load("simulated-ptpp-grid")
    assert list(bundled["run"]) == list(table["run"])
    assert abs(bundled["loss"].to_numpy() - table["loss"].to_numpy()).max() < 1e-9


def test_an_unknown_table_lists_the_known():
    with pytest.raises(RunTableError, match="simulated-ptpp-grid"):
        datasets.load("nosuch")


def test_the_measured_grid_is_complete():
    """Every size and seed at every stage, replay and rung, on both domains, once, and a number."""
    runs = datasets.load("microcpt")
    assert set(runs.groupby(["N", "seed"]).groups) == CELLS
    rungs = np.array(LADDER)[
        np.abs(
            np.log(runs["D"] / runs["N"]).to_numpy()[:, None] - np.log(LADDER)
        ).argmin(axis=1)
    ]
    cells = set(
        zip(
            runs["domain"],
            runs["N"],
            runs["seed"],
            runs["ptpp"],
            runs["replay"],
            rungs,
            strict=True,
        )
    )
    grid = itertools.product(("source", "target"), CELLS, STAGES, REPLAYS, LADDER)
    assert cells == {(domain, n, seed, *rest) for domain, (n, seed), *rest in grid}
    assert len(runs) == len(cells)
    assert np.isfinite(runs[["loss", "loss_before", "source_loss_before"]]).all(
        axis=None
    )


def test_the_measured_grid_is_what_its_card_says():
    """Source losses before adaptation are the rows' own; pre-training lowers them, adaptation the target's."""
    runs = datasets.load("microcpt")
    source, target = (runs[runs["domain"] == d] for d in ("source", "target"))
    assert (source["loss_before"] == source["source_loss_before"]).all()
    before = source.groupby(["N", "seed", "ptpp"])["loss_before"].first().unstack()
    assert (np.diff(before, axis=1) < 0).all()
    assert (target["loss"] < target["loss_before"]).all()
    assert default_laws(source) == ["state-rise"]
    assert default_laws(target) == ["state-power-stages"]


SMALLER = (12368, 23160, 53960)
FEWER_STAGES = (15, 93, 279)
EVERY = 512 / 2  # bytes: half a step, to which tokens are rounded


def is_whole(name: str, points: int) -> bool:
    """Whether every run has so many points in both domains, once, all of them numbers."""
    runs = datasets.load(name)
    keys = ["run", "D", "domain"]
    counts = runs.groupby("run")["D"].agg(["size", "nunique"])
    return bool(
        not runs.duplicated(keys).any()
        and (counts["size"] == 2 * points).all()
        and (counts["nunique"] == points).all()
        and np.isfinite(runs[["loss", "loss_before", "source_loss_before"]]).all(
            axis=None
        )
    )


def test_german_runs_start_from_the_checkpoints_of_the_french():
    """The whole grid of two seeds at three sizes; the source loss before adaptation is that of the French table."""
    german, french = datasets.load("microcpt-de"), datasets.load("microcpt")
    assert is_whole("microcpt-de", len(LADDER))
    cells = ["N", "seed", "ptpp", "replay"]
    assert set(german.groupby(cells).groups) == set(
        itertools.product(SMALLER, (0, 1), STAGES, REPLAYS)
    )
    key = ["N", "seed", "ptpp"]
    both = pd.DataFrame(
        {
            name: runs.groupby(key)["source_loss_before"].first()
            for name, runs in (("de", german), ("fr", french))
        }
    ).dropna()
    assert len(both) == 20  # a second seed of 23k there is in German only
    np.testing.assert_allclose(both["de"], both["fr"], atol=1e-5)
    target = german[german["domain"] == "target"]
    assert (target["loss"] < target["loss_before"]).all()


def test_two_phase_runs_are_what_their_card_says():
    """Both orders, both places and all stages, from one checkpoint each; replay is the mean of the tokens so far, and phases agree until they part."""
    runs = datasets.load("microcpt-phases")
    assert is_whole("microcpt-phases", len(LADDER))
    phases = runs.groupby("run")[["replay_first", "replay_then", "changed_at"]].first()
    assert set(map(tuple, phases.to_numpy())) == {
        *itertools.product((0.1,), (0.5,), (0.25, 0.5)), *itertools.product((0.5,), (0.1,), (0.25, 0.5)),
        *((share, share, 1.0) for share in (0.1, 0.25, 0.5)),
    }  # fmt: skip
    cells = runs.groupby(["N", "ptpp"])
    assert set(cells.groups) == set(itertools.product(SMALLER, FEWER_STAGES))
    assert (cells["source_loss_before"].nunique() == 1).all()
    ends = runs[runs["D"] == runs.groupby("run")["D"].transform("max")]
    weight = 1 - ends["changed_at"]
    mean = (1 - weight) * ends["replay_first"] + weight * ends["replay_then"]
    assert (ends["replay"] - mean).abs().max() < 0.001
    early = runs[runs["D"] < 0.2 * runs.groupby("run")["D"].transform("max")]
    same = early.groupby(["N", "ptpp", "replay_first", "D", "domain"])["loss"]
    assert ((same.max() - same.min()) < 1e-5).all()


def test_repeated_text_is_read_as_often_as_is_told():
    runs = datasets.load("microcpt-repeats")
    assert is_whole("microcpt-repeats", len(LADDER))
    cells = set(runs.groupby(["N", "ptpp", "replay"]).groups)
    assert cells == set(itertools.product(SMALLER, FEWER_STAGES, (0.1, 0.5)))
    read = runs["D"] * (1 - runs["replay"])
    # the table keeps six digits behind the point of epochs, and whole tokens of U
    rounded = {"rtol": 1e-4, "atol": 6e-7}
    drawn, told = read / runs["unique_target"], runs["D"] / runs["U"]
    np.testing.assert_allclose(runs["epochs"], drawn, **rounded)
    np.testing.assert_allclose(runs["epochs"], told, **rounded)
    ends = runs[runs["D"] == runs.groupby("run")["D"].transform("max")]
    times = ends["run"].str.extract(r"-e([\d.]+)$")[0]
    assert set(times.dropna()) == {"1", "2", "4", "8", "16"}
    told = times.astype(float)
    assert ((ends["epochs"] / told - 1).abs()[told.notna()] < 0.01).all()
    assert (ends.loc[told.isna(), "epochs"] < 0.1).all()  # all French text


def test_rates_are_beside_the_usual_one():
    runs = datasets.load("microcpt-rates")
    assert is_whole("microcpt-rates", len(LADDER))
    cells = ["N", "ptpp", "replay", "rate"]
    assert set(runs.groupby(cells).groups) == set(
        itertools.product(SMALLER, FEWER_STAGES, (0.1, 0.5), (0.5, 1.0, 2.0))
    )


def test_tables_that_share_runs_agree():
    """Plain runs of phases, rates, repeats and curves are those of microcpt, point by point; but for one checkpoint, trained anew, whose first rounding error grew to .04% of a loss."""
    keys = ["run", "D", "domain"]
    plain = datasets.load("microcpt").set_index(keys)["loss"]
    for name, points in (
        ("microcpt-phases", 3 * 9 * len(LADDER) * 2),
        ("microcpt-rates", 2 * 9 * len(LADDER) * 2),
        ("microcpt-repeats", 2 * 9 * len(LADDER) * 2),
        ("microcpt-curves", 20 * 2 * 2),  # at 10 and 20 tokens per parameter
    ):
        there = datasets.load(name).set_index(keys)["loss"]
        both = pd.DataFrame({"plain": plain, "there": there}).dropna()
        assert len(both) == points, name
        anew = both.index.get_level_values("run").str.startswith("23k-s0-ptpp279")
        same, near = both[~anew], both[anew]
        np.testing.assert_allclose(same["there"], same["plain"], rtol=2e-5)
        np.testing.assert_allclose(near["there"], near["plain"], rtol=4e-4)


def test_mixtures_of_three_languages_are_whole():
    """Ten mixtures of every checkpoint, points along every run, losses on each language; the more of a language the
    better its loss, from .05 over .35 and .6 to .9.
    """
    runs = datasets.load("microcpt-mixtures")
    languages = ("source", "fr", "de")
    shares = runs[[f"share_{name}" for name in languages]]
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (runs["replay"] - runs["share_source"]).abs().max() < 1e-6
    assert set(runs.groupby(["N", "seed", "ptpp"]).groups) == set(
        itertools.product(SMALLER[:2], (0, 1), (15, 31, 93))
    )
    cells = runs.groupby(["N", "seed", "ptpp", "step"])
    assert (cells.size() == 10 * 3).all()
    assert cells["run"].nunique().eq(10).all()
    assert len(cells) == 2 * 2 * 3 * len(LADDER)
    assert np.isfinite(runs[["loss", "loss_before", "source_loss_before"]]).all(
        axis=None
    )
    ends = runs[runs["step"] == runs.groupby("run")["step"].transform("max")]
    for name in languages:
        of_set = ends[ends["domain"] == name]
        levels = of_set.groupby([*["N", "seed", "ptpp"], f"share_{name}"])["loss"]
        means = levels.mean().unstack()
        assert list(means.columns.round(2)) == [0.05, 0.33, 0.35, 0.6, 0.9]
        assert (np.diff(means[[0.05, 0.35, 0.6, 0.9]], axis=1) < 0).all()


def test_curves_have_fifty_points():
    runs = datasets.load("microcpt-curves")
    assert is_whole("microcpt-curves", 50)
    assert set(runs.groupby(["N", "seed", "ptpp", "replay"]).groups) == set(
        itertools.product((53960,), (0,), STAGES, REPLAYS)
    )
    asked = 0.4 * np.arange(1, 51) * 53960
    found = np.sort(runs["D"].unique())
    assert np.abs(found - asked).max() <= EVERY


MINI = (258_528, 553_680, 959_424, 2_102_688)
MINI_LADDER = (0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20)
# from where on a run had more replay than it was to have
CUT = {553_680: 15, 959_424: 10, 2_102_688: 5}
# how far the largest size was measured at 279, in tokens per parameter
LAST = {"minicpt": 15, "minicpt-de": 7.5}


@pytest.mark.parametrize("name", LAST)
def test_the_grid_of_the_gpu_is_whole_but_for_what_its_page_leaves_out(name):
    """Every size, stage, replay and point, but the ends of some runs of the largest."""
    table = datasets.load(name)
    keys = ["N", "ptpp", "replay", "D", "domain"]
    assert len(table) == len(table.groupby(keys))
    assert np.isfinite(table["loss"]).all()
    table = table[table["N"] <= max(MINI)]
    runs = table.groupby(["N", "ptpp", "replay"])["D"]
    assert set(runs.groups) == {
        (n, p, r) for n in MINI for p in STAGES for r in REPLAYS
    }
    for (n, ptpp, replay), tokens in runs:
        cut = CUT.get(n, np.inf) if (ptpp, replay) == (15, 0.05) else np.inf
        if (n, ptpp) == (max(MINI), 279):
            cut = LAST[name]
        ladder = n * np.array([d for d in MINI_LADDER if d <= cut])
        assert np.abs(np.unique(tokens) - ladder).max() <= 4096 / 2


# the two largest sizes of the French table, and the tokens per parameter they end at
LARGER = {3_995_600: 10, 8_186_688: 5}


def test_the_two_largest_sizes_are_whole_up_to_their_last_point():
    """Three stages, four shares of replay, both domains."""
    table = datasets.load("minicpt")
    larger = table[table["N"] > max(MINI)]
    runs = larger.groupby(["N", "ptpp", "replay", "domain"])["D"]
    assert set(runs.groups) == set(
        itertools.product(
            LARGER, (15, 31, 93), (0.05, 0.25, 0.5, 0.75), ("source", "target")
        )
    )
    for (n, *_), tokens in runs:
        ladder = n * np.array([d for d in MINI_LADDER if d <= LARGER[n]])
        assert np.abs(np.sort(tokens) - ladder).max() <= 4096 / 2
    before = larger.groupby("N")["source_loss_before"].mean()
    assert before.is_monotonic_decreasing


def test_both_languages_start_from_the_same_checkpoints():
    french, german = (datasets.load(name) for name in LAST)
    french = french[french["N"] <= max(MINI)]
    before = [
        t.groupby(["N", "ptpp"])["source_loss_before"].unique()
        for t in (french, german)
    ]
    assert before[0].map(len).max() == 1
    assert before[0].map(tuple).equals(before[1].map(tuple))
