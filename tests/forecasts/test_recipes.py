"""The probability that one recipe beats another, against the closed form of a line."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from typer.testing import CliRunner

import bayeslaw
from bayeslaw import Costs, PlanError, RunTableError, recipes
from bayeslaw.cli.app import app
from known.lines import Known, posterior_of
from known.saved import runs, save_average

SLOPE, SLOPE_SD, DRAWS = 0.02, 0.01, 20_000
TWO = pd.DataFrame(
    {
        "N": 1e9,
        "ptpp": 20.0,
        "replay": 0.3,
        "D": [1e10, np.e * 1e10],
        "recipe": ["short", "long"],
    }
)


def _falling(v, x):
    return v["level"] - v["slope"] * jnp.log(x["D"] / 1e10)


def line(slope=SLOPE, own=1e-5, shared=0.0, seed=0):
    """Log loss falls by some ``slope`` an e-fold of tokens, from a level that is hardly
    known; a run's error has an own part, and one of its checkpoint.
    """
    rng = np.random.default_rng(seed)
    values = {
        "level": 1 + 0.3 * rng.standard_normal(DRAWS),
        "slope": slope + SLOPE_SD * rng.standard_normal(DRAWS),
        "sigma": np.full(DRAWS, np.hypot(own, shared)),
        "tau_checkpoint": np.full(DRAWS, shared),
        "dof": np.full(DRAWS, 1e9),
    }
    return posterior_of(_falling, values, ("N", "D"))


def test_what_both_recipes_share_cancels():
    """The level is known to 30%, the slope alone decides; so much for the law, and for
    two runs, whose own errors add up.
    """
    (pair,) = recipes(line(own=0.01), TWO).pairs
    assert (pair["recipe"], pair["other"]) == ("long", "short")
    error = 4 * np.sqrt(0.25 / DRAWS)
    law = ndtr(SLOPE / SLOPE_SD)
    run = ndtr(SLOPE / np.hypot(SLOPE_SD, np.sqrt(2) * 0.01))
    assert pair["law_probability"] == pytest.approx(law, abs=error)
    assert pair["probability"] == pytest.approx(run, abs=error)
    difference = pair["domains"]["loss"]["difference"]
    half = 1.645 * np.hypot(SLOPE_SD, np.sqrt(2) * 0.01)
    assert np.log1p(difference["low"]) == pytest.approx(-SLOPE - half, abs=1e-3)
    assert np.log1p(difference["high"]) == pytest.approx(-SLOPE + half, abs=1e-3)


def test_what_a_checkpoint_shares_decides_between_checkpoints_only():
    same = recipes(line(shared=0.05), TWO).pairs[0]
    law = ndtr(SLOPE / SLOPE_SD)
    assert same["probability"] == pytest.approx(law, abs=0.01)
    other = TWO.assign(ptpp=[20.0, 40.0])
    apart = recipes(line(shared=0.05), other).pairs[0]["probability"]
    run = ndtr(SLOPE / np.hypot(SLOPE_SD, np.sqrt(2) * 0.05))
    assert apart == pytest.approx(run, abs=0.02)


def test_runs_of_recipes_are_those_that_are_forecast(tmp_path):
    """Effects that a checkpoint is known to have, and errors that fade with tokens, too."""
    posterior = bayeslaw.load(save_average(tmp_path / "fit.nc"))
    offered = runs().iloc[[0, 5]]
    compared = recipes(posterior, offered, seed=3)
    new = posterior.log_loss(offered, noise=True, seed=3)
    lower = float((new[:, 0] < new[:, 1]).mean())
    assert compared.pairs[0]["probability"] == max(lower, 1 - lower)
    best = [row["probability"] for row in compared.rows]
    assert best == [lower, 1 - lower]


def test_the_law_and_the_runs_are_evaluated_once(monkeypatch):
    """What is forecast is what is compared."""
    asked = []
    of_known = Known.log_loss

    def count(self, runs, *, noise=False, seed=0):
        asked.append(noise)
        return of_known(self, runs, noise=noise, seed=seed)

    monkeypatch.setattr(Known, "log_loss", count)
    recipes(line(), TWO)
    assert asked == [False, True]


def test_recipes_without_tokens_cost_what_the_first_costs():
    """A larger model takes fewer tokens; its checkpoint is paid where it must be made."""
    table = pd.DataFrame({"N": [1e9, 2e9, 4e9], "D": [1e10, None, None], "ptpp": 20.0})
    compared = recipes(line(), table)
    assert [row["D"] for row in compared.rows] == pytest.approx([1e10, 5e9, 2.5e9])
    assert [row["cost"] for row in compared.rows] == pytest.approx([6e19] * 3)
    budget = recipes(line(), table.drop(columns="D"), budget=1.2e20)
    assert [row["D"] for row in budget.rows] == pytest.approx([2e10, 1e10, 5e9])
    early = table.head(2).assign(ptpp=2.0)
    paid = recipes(line(), early, costs=Costs(train_checkpoint=True))
    assert paid.rows[0]["cost"] == pytest.approx(6e9 * (1e10 + 2e9))
    assert paid.rows[1]["cost"] == pytest.approx(paid.rows[0]["cost"])


def test_money_buys_tokens_at_its_price():
    costs = Costs(hardware="64xH100", mfu=0.4, price=2.5)
    table = TWO.assign(N=[1e9, 2e9]).drop(columns="D")
    compared = recipes(line(), table, budget=1e4, costs=costs)
    assert compared.unit == "money"
    assert [row["cost"] for row in compared.rows] == pytest.approx([1e4, 1e4])
    assert compared.rows[0]["D"] == pytest.approx(2 * compared.rows[1]["D"])


def test_with_a_source_both_losses_must_be_lower():
    """They are independent: the chance of both is the product."""
    compared = recipes(line(), TWO, source=line(slope=0.01, seed=5))
    (pair,) = compared.pairs
    each = [pair["domains"][name]["probability"] for name in ("target", "source")]
    expected = [ndtr(SLOPE / SLOPE_SD), ndtr(0.01 / SLOPE_SD)]
    assert each == pytest.approx(expected, abs=0.015)
    assert pair["probability"] == pytest.approx(np.prod(expected), abs=0.015)
    assert "on both losses" in compared.sentence()


def test_shares_of_the_best_sum_to_one_and_unequal_costs_are_told():
    three = pd.concat([TWO, TWO.tail(1).assign(D=1.5e10, recipe="middle")])
    compared = recipes(line(), three)
    assert sum(row["probability"] for row in compared.rows) == pytest.approx(1)
    assert len(compared.pairs) == 3
    assert "do not cost the same" in compared.sentence()
    assert recipes(line(), three).to_dict() == compared.to_dict()
    assert json.loads(json.dumps(compared.to_dict())) == compared.to_dict()


@pytest.mark.parametrize(
    ("table", "named", "error", "says"),
    [
        (TWO.head(1), {}, PlanError, "give two or more"),
        (TWO.drop(columns="D"), {}, PlanError, "give the budget"),
        (TWO.assign(D=1e10), {}, RunTableError, "two rows are alike"),
        (TWO.assign(D=[1e10, None]), {}, RunTableError, "two rows are alike"),
        (TWO.assign(D=1e10, N=[1e9, None]), {}, RunTableError, "'N': empty"),
        (TWO.assign(recipe="a"), {}, RunTableError, "a name of its own"),
        (TWO.drop(columns="N"), {}, RunTableError, "lacks column 'N'"),
        (TWO.drop(columns="D"), {"budget": -1.0}, PlanError, "budget"),
        (
            TWO.drop(columns="D"),
            {"budget": 1.0, "costs": Costs(train_checkpoint=True)},
            PlanError,
            "pays for no tokens",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(table, named, error, says):
    with pytest.raises(error, match=says):
        recipes(line(), table, **named)


def test_a_checkpoints_loss_is_taken_from_the_fitted_runs():
    """The law is its own start, which the table of recipes may lack."""

    def start(_, x):
        return jnp.log(x["loss_before"])

    error = {"sigma": np.full(2, 1e-9), "dof": np.full(2, 1e9)}
    posterior = posterior_of(start, error, ("N", "loss_before"))
    posterior.runs = pd.DataFrame(
        {"N": [1e9, 1e9, 2e9], "ptpp": 20.0, "loss_before": [2.0, 2.2, 3.0]}
    )
    table = TWO.assign(N=[1e9, 2e9], D=[2e10, 1e10])
    for offered, first in (
        (table, 2.1),
        (table.assign(N=[1.004e9, 2e9]), 2.1),
        (table.assign(loss_before=[2.5, np.nan]), 2.5),
    ):
        compared = recipes(posterior, offered)
        medians = [row["losses"]["loss"]["median"] for row in compared.rows]
        assert medians == pytest.approx([first, 3.0])
        assert not compared.notes


@pytest.fixture(scope="module")
def fit_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "fit.nc"
    runs = bayeslaw.simulate("dcpt", seed=0)
    bayeslaw.fit(runs, "dcpt", preview=True, seed=0, on_failure="ignore").save(path)
    return path


def test_one_command_says_who_wins(fit_file, tmp_path):
    """More replay and a larger model at equal compute, by options and by a table."""
    at = ["N=8.1B,D=70B,replay=20%", "N=8.1B,replay=40%", "N=13B,replay=20%"]
    options = [word for recipe in at for word in ("--at", recipe)]
    said = CliRunner().invoke(app, ["recipes", str(fit_file), *options])
    assert said.exit_code == 0, said.output
    assert "beats" in said.output
    done = CliRunner().invoke(app, ["recipes", str(fit_file), *options, "--json"])
    record = json.loads(done.stdout)
    assert [row["D"] for row in record["rows"]][:2] == [7e10, 7e10]
    assert record["rows"][2]["cost"] == pytest.approx(record["rows"][0]["cost"])
    assert len(record["pairs"]) == 3
    assert all(pair["probability"] >= 0.5 for pair in record["pairs"])
    path = tmp_path / "recipes.csv"
    path.write_text("recipe,N,D,replay\nusual,8.1B,70B,20%\nlarge,13B,,20%\n")
    asked = ["recipes", str(fit_file), str(path), "--json"]
    picture = tmp_path / "recipes.png"
    table = CliRunner().invoke(app, [*asked, "--picture", str(picture)])
    assert table.exit_code == 0, table.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    pair = json.loads(table.stdout)["pairs"][0]
    assert {pair["recipe"], pair["other"]} == {"usual", "large"}


def test_a_table_and_options_are_not_taken_together(fit_file):
    both = ["recipes", str(fit_file), "x.csv", "--at", "N=1B,D=1B"]
    assert isinstance(CliRunner().invoke(app, both).exception, RunTableError)
    assert isinstance(
        CliRunner().invoke(app, ["recipes", str(fit_file)]).exception, RunTableError
    )
