"""The study of pools in which all runs are measured."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pool_study import pool_study, pool_summary, scores

import bayeslaw
from known.pool import pool

STUDY = Path(__file__).with_name("study.py")


def cli(*words):
    """The study in a process of its own."""
    command = [sys.executable, str(STUDY), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a pool and its losses."""
    where = tmp_path_factory.mktemp("pool")
    pool().to_csv(where / "pool.csv", index=False)
    return where


def test_a_pool_is_bought_and_its_goal_forecast(folder):
    words = [
        *("pool", str(folder / "pool.csv"), "--law", "chinchilla"),
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
