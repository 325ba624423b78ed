"""``anchors --next``, as people type it."""

import json

import pandas as pd
import pytest

from known.commands import run
from known.pool import pool

BUDGET = "2e20"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pool with its losses, runs on offer without, and a goal."""
    where = tmp_path_factory.mktemp("pool")
    runs = pool()
    runs.to_csv(where / "pool.csv", index=False)
    offered = runs.query("split == 'train'").drop(columns="loss")
    offered.to_csv(where / "offer.csv", index=False)
    runs.query("split == 'test'").assign(loss=1.0).to_csv(
        where / "goal.csv", index=False
    )
    return where


@pytest.fixture
def asked(folder):
    """What the sequence is asked each time."""
    return [
        *("anchors", "--next", "--candidates", str(folder / "pool.csv")),
        *("--where", "split == 'train'", "--goal", str(folder / "goal.csv")),
        *("--budget", BUDGET, "--law", "chinchilla", "--json"),
    ]


def measure(folder, batch):
    """The batch's file with losses looked up in the pool, as a user would fill it in."""
    pool = pd.read_csv(folder / "pool.csv")
    pool.index = pool.index + 1  # rows as messages and batches number them
    table = pd.read_csv(batch)
    table["loss"] = pool["loss"].loc[table["row"]].to_numpy()
    table.to_csv(batch, index=False)


def test_a_sequence_of_commands_goes_from_nothing_to_its_end(folder, asked):
    batches, records = [], []
    while not records or not records[-1]["stop"]:
        batch = folder / f"batch{len(batches)}.csv"
        so_far = [word for path in batches for word in ("--measured", str(path))]
        done = run(*asked, *so_far, "-o", str(batch))
        assert done.returncode == 0, done.stderr
        records.append(json.loads(done.stdout))
        measure(folder, batch)
        batches.append(batch)
        assert len(batches) < 10
    assert records[0]["known_from"] == "priors"
    assert records[-1]["known_from"].startswith("average")
    assert records[-1]["goal_sd"] < 0.1 * records[0]["goal_sd"]
    assert records[-1]["spent"] <= float(BUDGET)
    rows = [row for record in records for row in record["rows"]]
    assert len(rows) == len(set(rows))
    # broken off after the first batch and asked again, it says the same
    again = run(*asked, "--measured", str(batches[0]))
    assert json.loads(again.stdout)["rows"] == records[1]["rows"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--gain", "everything"], "gain must be one of variance,"),
        (["--gain", "optimum"], "differ in one column"),
        (["--reference", "replay=0.1"], "reads 'replay'"),
        (["--replicates", "2"], "leave --replicates out"),
        (["--checks", "0"], "leave --checks out"),
        (["--max-loss", "2"], "leave --max-loss out"),
        (["--experience", "none"], "--experience belongs to --prior-only"),
        (["--least", "2"], "--least is of a plan"),
        (["--batch", "0"], "--batch"),
        (["--enough", "much"], "--enough"),
        (["--measured", "no.csv"], "no such file"),
    ],
)
def test_what_next_cannot_be_asked_is_refused_in_one_line(asked, words, line):
    done = run(*asked, *words)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sequence_for_a_plan_asks_for_both_losses(folder):
    done = run(
        *("anchors", "--next", "--candidates", str(folder / "offer.csv")),
        *("--goal", "N=8B", "--goal", "ptpp=20", "--goal", "max_target_loss=2.2"),
        *("--goal", "max_forgetting=2%", "--goal", "baseline_loss=3.0"),
        *("--law", "chinchilla", "--source-law", "chinchilla", "--budget", BUDGET),
        *("-o", str(folder / "first.csv"), "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plan"] is None  # nothing is measured yet
    first = pd.read_csv(folder / "first.csv")
    assert first[["loss", "source_loss"]].isna().all(axis=None)


def test_runs_are_bought_for_the_choice_between_recipes(folder):
    goal = pd.DataFrame({"N": [2e9, 8e9], "D": [4e11, 1e11], "recipe": ["wide", "deep"]})  # fmt: skip
    goal.to_csv(folder / "recipes.csv", index=False)
    asked = [
        *("anchors", "--next", "--candidates", str(folder / "offer.csv")),
        *("--goal", str(folder / "recipes.csv"), "--gain", "best"),
        *("--law", "chinchilla", "--budget", BUDGET, "--reference", "N=500M"),
    ]
    record = json.loads(run(*asked, "--json").stdout)
    assert record["gain"] == "best"
    assert record["choice"]["best"] in ("wide", "deep")
    assert "is best by" in run(*asked).stdout


def test_without_a_fit_or_next_the_way_on_is_told(folder):
    done = run(
        *("anchors", "--candidates", str(folder / "offer.csv")),
        *("--goal", str(folder / "goal.csv"), "--budget", BUDGET),
    )
    assert done.returncode == 2
    assert "--next" in done.stderr
