"""Bundled tables: complete, readable, and what their cards say."""

import itertools

import numpy as np
import pytest

from bayeslaw import RunTableError, datasets
from bayeslaw._posteriors.averaging.compare import default_laws
from bayeslaw.datasets import make_simulated

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
    assert default_laws(source)[-1] == "state-source"
    assert default_laws(target)[-1] == "state-target"


def test_two_phase_runs_are_what_their_card_says():
    """Both orders, both places and all stages, from one checkpoint each; replay is the mean of the tokens so far, and phases agree until they part."""
    runs = datasets.load("microcpt-two-phases")
    assert np.isfinite(runs[["loss", "loss_before", "source_loss_before", "D"]]).all(
        axis=None
    )
    phases = runs.groupby("run")[["replay_first", "replay_then", "changed_at"]].first()
    assert set(map(tuple, phases.to_numpy())) == {
        *itertools.product((0.1,), (0.5,), (0.25, 0.5)), *itertools.product((0.5,), (0.1,), (0.25, 0.5)),
        *((share, share, 1.0) for share in (0.1, 0.25, 0.5)),
    }  # fmt: skip
    cells = runs.groupby(["N", "ptpp"])
    assert set(cells.groups) == set(itertools.product((12368, 23160), (15, 93, 279)))
    assert (cells["source_loss_before"].nunique() == 1).all()
    ends = runs[runs["D"] == runs.groupby("run")["D"].transform("max")]
    weight = 1 - ends["changed_at"]
    mean = (1 - weight) * ends["replay_first"] + weight * ends["replay_then"]
    assert (ends["replay"] - mean).abs().max() < 0.001
    early = runs[runs["D"] < 0.2 * runs.groupby("run")["D"].transform("max")]
    same = early.groupby(["N", "ptpp", "replay_first", "D", "domain"])["loss"]
    assert ((same.max() - same.min()) < 1e-3).all()
