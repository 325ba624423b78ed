"""``anchors --next`` and ``study pool``, as people type them."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bayeslaw
from bayeslaw._studies.pool import pool_study, pool_summary, scores

BUDGET = "2e20"


def cli(*words):
    """A command in a process of its own."""
    command = [sys.executable, "-m", "bayeslaw", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pool with its losses, runs on offer without, and a goal."""
    where = tmp_path_factory.mktemp("pool")
    grid = [
        (n, d) for n in np.geomspace(5e7, 2e9, 6) for d in np.geomspace(1e9, 4e10, 6)
    ]
    settings = pd.DataFrame([*grid, (5e9, 1e11), (8e9, 2e11)], columns=["N", "D"])
    runs = bayeslaw.simulate("chinchilla", design=settings, noise=0.003, seed=0)
    split = np.where(settings["N"] < 3e9, "train", "test")
    runs = runs[["N", "D", "loss"]].assign(split=split)
    runs.to_csv(where / "pool.csv", index=False)
    offered = runs[split == "train"].drop(columns="loss")
    offered.to_csv(where / "offer.csv", index=False)
    runs[split == "test"].drop(columns="loss").assign(loss=1.0).to_csv(
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
        done = cli(*asked, *so_far, "-o", str(batch))
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
    again = cli(*asked, "--measured", str(batches[0]))
    assert json.loads(again.stdout)["rows"] == records[1]["rows"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--gain", "everything"], "gain must be one of variance,"),
        (["--gain", "optimum"], "differ in one column"),
        (["--reference", "replay=0.1"], "reads 'replay'"),
        (["--replicates", "2"], "leave --replicates out"),
        (["--checks", "0"], "leave --checks out"),
        (["--least", "2"], "--least is of a plan"),
        (["--batch", "0"], "--batch"),
        (["--enough", "much"], "--enough"),
        (["--measured", "no.csv"], "no such file"),
    ],
)
def test_what_next_cannot_be_asked_is_refused_in_one_line(asked, words, line):
    done = cli(*asked, *words)
    assert done.returncode == 2
    assert line in done.stderr
    assert "Traceback" not in done.stderr


def test_a_sequence_for_a_plan_asks_for_both_losses(folder):
    done = cli(
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
    record = json.loads(cli(*asked, "--json").stdout)
    assert record["gain"] == "best"
    assert record["choice"]["best"] in ("wide", "deep")
    assert "is best by" in cli(*asked).stdout


def test_without_a_fit_or_next_the_way_on_is_told(folder):
    done = cli(
        *("anchors", "--candidates", str(folder / "offer.csv")),
        *("--goal", str(folder / "goal.csv"), "--budget", BUDGET),
    )
    assert done.returncode == 2
    assert "--next" in done.stderr


def test_a_pool_is_bought_and_its_goal_forecast(folder):
    words = [
        *("study", "pool", str(folder / "pool.csv"), "--law", "chinchilla"),
        *("--offer", "split == 'train'", "--goal", "split == 'test'"),
        *("--budgets", "5%", "--seeds", "1", "--rules", "chosen,cheapest"),
        *("-o", str(folder / "kept.csv"), "--json"),
    ]
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    chosen, cheapest = json.loads(done.stdout)["budgets"]
    assert (chosen["rule"], cheapest["rule"]) == ("chosen", "cheapest")
    assert {"budget", "runs", "r2", "cover90", "interval_score90"} <= set(chosen)
    assert chosen["budget"] == 0.05
    assert chosen["spent"] <= 0.05
    # for the same money: fewer runs, and dearer ones
    assert chosen["runs"] < cheapest["runs"]
    kept = pd.read_csv(folder / "kept.csv")
    assert kept["r2"].to_list() == [chosen["r2"], cheapest["r2"]]
    # what is kept is not bought again
    kept.assign(r2=0.123).to_csv(folder / "kept.csv", index=False)
    again = json.loads(cli(*words).stdout)["budgets"]
    assert [line["r2"] for line in again] == [0.123, 0.123]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"goal": "N > 0"}, "on offer and in the goal"),
        ({"goal": "N > 1e30"}, "--goal 'N > 1e30' selects none"),
        ({"budgets": [3.0]}, "no share"),
        ({"rules": ["best"]}, "known: chosen"),
    ],
)
def test_a_pool_that_cannot_be_studied_is_refused(folder, change, line):
    runs = pd.read_csv(folder / "pool.csv")
    asked = {"offer": "split == 'train'", "goal": "split == 'test'"} | change
    with pytest.raises(bayeslaw.BayeslawError, match=line):
        pool_study(runs, **asked)


def test_scores_are_those_of_the_goals_losses():
    class Known:
        def log_loss(self, runs, *, noise=False, seed=0):
            assert noise
            quantiles = (np.arange(1001) / 1000)[:, None]
            return np.log(2.0) + 0.1 * (quantiles - 0.5) * np.ones(len(runs))

    goal = pd.DataFrame({"loss": [2.0, 2.02, 2.4]})
    told = scores(Known(), goal, 0)
    mean = np.mean([2.0, 2.02, 2.4])
    spread = sum((y - mean) ** 2 for y in (2.0, 2.02, 2.4))
    assert told["r2"] == pytest.approx(1 - (0.02**2 + 0.4**2) / spread)
    assert told["mae"] == pytest.approx((0 + 0.02 / 2.02 + 0.4 / 2.4) / 3)
    assert told["cover90"] == pytest.approx(2 / 3)
    low, high = 2 * np.exp(-0.045), 2 * np.exp(0.045)
    assert told["width90"] == pytest.approx((high - low) / 2)
    widths = [(high - low) / y for y in (2.0, 2.02, 2.4)]
    assert told["interval_score90"] == pytest.approx(
        (sum(widths) + 20 * (2.4 - high) / 2.4) / 3
    )


def test_a_summary_has_medians_over_seeds():
    rows = pd.DataFrame(
        {
            "rule": ["chosen"] * 3,
            "budget": [0.1] * 3,
            "seed": [0, 1, 2],
            "runs": [5, 7, 30],
            "r2": [0.2, 0.9, 0.8],
        }
    )
    (line,) = pool_summary(rows)
    assert line == {
        "rule": "chosen",
        "budget": 0.1,
        "runs": 7,
        "r2": 0.8,
        "seeds": 3,
    }
