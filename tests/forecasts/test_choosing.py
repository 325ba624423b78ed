"""Recipes that a column of a table names, compared at a goal."""

import json
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import LawError, RunTableError, choose_recipe
from bayeslaw._forecasts.choosing import seeds_needed
from bayeslaw._law.variants.recipes import contrasts_of
from bayeslaw.cli.app import app

GOAL = {"N": 1.6e9, "D": 6.4e10}


def two_optimizers() -> pd.DataFrame:
    """Runs of two optimizers with two seeds, whose tables were stacked with their labels:
    muon's tokens count twice, and differ from adamw's by rounding.
    """
    rng = np.random.default_rng(0)
    rows = [
        {
            "optimizer": name,
            "N": N,
            "D": N * ratio + worth - 1,
            "loss": loss(N, worth * N * ratio),
        }
        for name, worth in (("adamw", 1.0), ("muon", 2.0))
        for N in (1e8, 2e8, 4e8, 8e8)
        for ratio in (10, 20, 40)
        for _ in range(2)
    ]
    runs = pd.DataFrame(rows).set_axis(np.arange(48) % 24)
    return runs.assign(loss=runs["loss"] * np.exp(0.001 * rng.standard_normal(48)))


def loss(N: float, D: float) -> float:
    return 1.8 + 480 * N**-0.35 + 2085 * D**-0.366


@pytest.fixture(scope="module")
def chosen() -> bayeslaw.RecipeChoice:
    return choose_recipe(
        two_optimizers(),
        "optimizer",
        GOAL,
        "chinchilla",
        preview=True,
        on_failure="ignore",
    )


def test_the_worse_needs_as_many_tokens_as_were_simulated(chosen):
    """Twice as many; the difference of the losses is the law's at the goal."""
    (pair,) = chosen.pairs
    assert (pair["recipe"], pair["other"]) == ("muon", "adamw")
    assert pair["law_probability"] > 0.99
    tokens, saved = pair["tokens"], pair["tokens_saved"]
    assert tokens["low"] < 2 * GOAL["D"] < tokens["high"]
    assert tokens["median"] == pytest.approx(2 * GOAL["D"], rel=0.3)
    assert saved["median"] == pytest.approx(tokens["median"] - GOAL["D"])
    gap = loss(GOAL["N"], 2 * GOAL["D"]) / loss(**GOAL) - 1
    assert pair["difference"]["low"] < gap < pair["difference"]["high"]


def test_what_recipes_share_cancels(chosen):
    """The gap is known much better than either loss."""
    gap = chosen.pairs[0]["difference"]
    of_gap = gap["high"] - gap["low"]
    of_loss = [np.log(row["high"] / row["low"]) for row in chosen.rows]
    assert of_gap < 0.5 * min(of_loss)


def test_the_record_is_json_and_says_what_a_choice_risks(chosen):
    record = chosen.to_dict()
    assert json.loads(json.dumps(record)) == record
    assert [row["recipe"] for row in record["rows"]] == ["muon", "adamw"]
    assert sum(row["probability"] for row in record["rows"]) == pytest.approx(1)
    for choice in record["choices"].values():
        assert choice["recipe"] == "muon"
        assert 0 <= choice["regret"]["mean"] < 1e-3
        assert choice["rank_correlation"]["median"] == 1
    assert "muon beats adamw" in chosen.sentence()
    assert chosen.table()["optimizer"].tolist() == ["muon", "adamw"]


def test_one_command_compares_the_recipes_of_a_table(chosen, tmp_path):
    path = tmp_path / "runs.csv"
    two_optimizers().to_csv(path, index=False)
    words = f"recipes {path} --by optimizer --at N=1.6B,D=64B --law chinchilla"
    done = CliRunner().invoke(
        app, [*words.split(), "--accept-diagnostics", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert set(record) == set(chosen.to_dict())
    assert record["pairs"] == chosen.to_dict()["pairs"]


def test_recipes_are_exchangeable_before_any_run():
    """Their factors' logarithms are contrasts: of equal variance, and of sum zero."""
    contrasts = contrasts_of("optimizer", ["a", "b", "c", "d"])
    covariance = contrasts.to_numpy() @ contrasts.to_numpy().T
    assert covariance == pytest.approx(np.eye(4) - 0.25)


def test_seeds_still_needed_are_those_of_the_closed_form():
    """A difference that is 0 give or take 1 is named right by the mean of n runs of each
    with probability 1/2 + asin(r) / pi, where r^2 = 1 / (1 + 2 sd^2 / n).
    """
    rng = np.random.default_rng(0)
    first, other = rng.standard_normal((2, 200_000)) / np.sqrt(2)
    gap = np.r_[first - other, other - first]
    both = np.c_[np.r_[first, other], np.r_[other, first]]
    error = ndtri(np.linspace(1e-4, 1 - 1e-4, len(both)))[:, None]
    for confidence in (0.8, 0.9, 0.95):
        share = np.sin(np.pi * (confidence - 0.5)) ** 2
        expected = 2 * share / (1 - share)
        seeds = seeds_needed(gap, both, both + error, confidence)
        assert seeds == pytest.approx(expected, abs=1 + 0.02 * expected)
    assert seeds_needed(gap, both, both + 100 * error, 0.95) is None
    assert seeds_needed(gap + 10, both, both + error, 0.95) == 0


def test_further_seeds_are_new_runs_also_where_the_table_names_its_runs():
    """Points of one run err together by .6%, so that one more seed tells little."""
    rng, rows = np.random.default_rng(0), []
    for name, N, ratio, seed in product("ab", (1e8, 2e8, 4e8, 8e8), (10, 40), range(2)):
        effect = 0.006 * rng.standard_normal() - 0.002 * (name == "b")
        run = {"optimizer": name, "N": N, "seed": seed}
        run["run"] = f"{name} {N:g} {ratio} {seed}"
        for D in np.array([0.25, 0.5, 1.0]) * N * ratio:
            error = effect + 0.001 * rng.standard_normal()
            rows.append(run | {"D": D, "loss": loss(N, D) * np.exp(error)})
    table = pd.DataFrame(rows)
    options = {"preview": True, "on_failure": "ignore"}
    chosen = choose_recipe(table, "optimizer", GOAL, "chinchilla", **options)
    assert chosen.pairs[0]["seeds_of_table"] > 5  # 2, of the runs that were made


@pytest.mark.parametrize(
    ("table", "by", "at", "says"),
    [
        (
            two_optimizers(),
            "corpus",
            GOAL,
            "lacks column 'corpus', which names recipes",
        ),
        (two_optimizers().head(24), "optimizer", GOAL, "one recipe only"),
        (
            two_optimizers(),
            "optimizer",
            pd.DataFrame([GOAL] * 2),
            "the goal is one run",
        ),
        (
            two_optimizers().assign(domain=["web", "code"] * 24),
            "optimizer",
            GOAL,
            "compared on one domain",
        ),
        (
            two_optimizers().assign(optimizer=["adamw", None] * 24),
            "optimizer",
            GOAL,
            "rows 1, 3, 5 and .*, column 'optimizer': empty",
        ),
    ],
)
def test_a_table_that_compares_nothing_is_refused(table, by, at, says):
    with pytest.raises(RunTableError, match=says):
        choose_recipe(table, by, at, "chinchilla")


def test_options_of_a_table_and_of_a_fit_are_not_mixed():
    run = CliRunner().invoke
    words = ["recipes", "fit.nc", "--at", "N=1B,D=2B"]
    assert isinstance(run(app, [*words, "--law", "chinchilla"]).exception, LawError)
    both = [*words, "--at", "N=2B,D=2B", "--by", "optimizer"]
    assert isinstance(run(app, both).exception, RunTableError)
